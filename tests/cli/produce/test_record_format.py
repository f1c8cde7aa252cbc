"""How a line becomes a record."""

import pytest

from safeproducer.cli.common.failure import Failure
from safeproducer.cli.produce.record_format import RecordFormat


@pytest.mark.parametrize(
    ("separator", "line", "record"),
    [
        (None, b"a:b", (None, b"a:b")),
        (":", b"a:b:c", (b"a", b"b:c")),
        (":", b":b", (b"", b"b")),
        (":", b"a:", (b"a", b"")),
        (":", b"ab", None),
        ("::", b"a:b::c", (b"a:b", b"c")),
        (r"\t", b"a\tb", (b"a", b"b")),
        (r"\x00", b"a\x00b", (b"a", b"b")),
        (r"\\", b"a\\b", (b"a", b"b")),
        ("\u00e9", "a\u00e9b".encode(), (b"a", b"b")),
    ],
)
def test_the_first_separator_splits_key_and_value(
    separator: str | None, line: bytes, record: tuple[bytes | None, bytes] | None
) -> None:
    """Bytes before it are the key (perhaps empty), all bytes behind it the value; none is None."""
    assert RecordFormat(separator, [], None).split(line) == record


def test_headers_are_bytes_and_keep_their_order() -> None:
    """The first equals sign splits; a name may come twice."""
    form = RecordFormat(None, ["a=1", "b=x=y", "a="], None)
    assert form.options == {"headers": [("a", b"1"), ("b", b"x=y"), ("a", b"")]}


@pytest.mark.parametrize(("separator", "headers"), [("", []), ("\n", []), (None, ["novalue"]), (None, ["=x"])])
def test_arguments_without_meaning_are_refused(separator: str | None, headers: list[str]) -> None:
    """An empty separator, a newline as separator and a header without name are usage errors."""
    with pytest.raises(Failure):
        RecordFormat(separator, headers, None)
