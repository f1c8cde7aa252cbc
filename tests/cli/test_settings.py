"""Settings from files and arguments, and their secrets."""

import argparse
import json
from pathlib import Path

import pytest

from safeproducer.cli.config_file import parse_properties, read_config_file
from safeproducer.cli.failure import Failure
from safeproducer.cli.record_format import RecordFormat
from safeproducer.cli.screen import Screen
from safeproducer.cli.secrets import REDACTED, Redactor
from safeproducer.cli.settings import read_settings

MARKER = "MARKER-s3cret"


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("a=b", {"a": "b"}),
        ("a = b c ", {"a": "b c "}),
        ("a: b=c", {"a": "b=c"}),
        ("a b", {"a": "b"}),
        ("a", {"a": ""}),
        ("# c\n! d\n\n  a=1\r\nb=2", {"a": "1", "b": "2"}),
        ("a=1,\\\n   2", {"a": "1,2"}),
        ("a=x\\\\\nb=y", {"a": "x\\", "b": "y"}),
        (r"a\:b\=c=\u00e9\t.", {"a:b=c": "é\t."}),
        ("a=1\na=2", {"a": "2"}),
        ("p=#not!a comment", {"p": "#not!a comment"}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, settings: dict[str, str]) -> None:
    """Separators, comments, continuation lines and escapes follow java.util.Properties."""
    assert parse_properties(text) == settings


def test_json_keeps_types(tmp_path: Path) -> None:
    """A file that begins with a brace is JSON; numbers and booleans stay what they are."""
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"linger.ms": 5, "enable.idempotence": True, "acks": "all"}))
    assert read_config_file(str(path)) == {"linger.ms": 5, "enable.idempotence": True, "acks": "all"}


@pytest.mark.parametrize(
    "content", [b'{"sasl.password": "MARKER-s3cret",', b'{"sasl.password": ["MARKER-s3cret"]}', b"\xff\xfe"]
)
def test_a_bad_file_is_named_and_not_quoted(content: bytes, tmp_path: Path) -> None:
    """The sentence names the file and shows nothing of its content."""
    path = tmp_path / "bad.conf"
    path.write_bytes(content)
    with pytest.raises(Failure, match=r"bad\.conf") as failure:
        read_config_file(str(path))
    assert MARKER not in str(failure.value)


def test_priority_is_servers_argument_then_config_then_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment names the file; --config wins over it and --bootstrap-servers over both."""
    path = tmp_path / "c.properties"
    path.write_text("bootstrap.servers=file:1\nlinger.ms=1\nacks=all\n")
    monkeypatch.setenv("SAFEPRODUCER_CONFIG_FILE", str(path))
    args = argparse.Namespace(
        config_file=None, config=["linger.ms=2", "bootstrap.servers=c:1"], bootstrap_servers="a:1"
    )
    settings = read_settings(args, Screen(json_output=False, quiet=True))
    assert settings == {"bootstrap.servers": "a:1", "linger.ms": "2", "acks": "all"}


@pytest.mark.parametrize("servers", ["", ",", "host:9092,", ":9092", "a b:9092"])
def test_servers_without_a_name_are_refused(servers: str) -> None:
    """librdkafka would wait for ever for a broker that cannot exist."""
    args = argparse.Namespace(config_file=None, config=[], bootstrap_servers=servers)
    with pytest.raises(Failure, match="names no broker"):
        read_settings(args, Screen(json_output=False, quiet=True))


@pytest.mark.parametrize(
    "name",
    [
        "sasl.password",
        "sasl.pasword",
        "ssl.key.password",
        "ssl.key.pem",
        "sasl.jaas.config",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
        "basic.auth.credentials",
        "sasl.pwd",
    ],
)
def test_secret_values_are_redacted(name: str) -> None:
    """Known and misspelt names of secrets alike, in text and at any depth of a document."""
    redact = Redactor({name: MARKER})
    assert redact(f"before {MARKER} after") == f"before {REDACTED} after"
    assert MARKER not in json.dumps(redact.tree({"a": [f"x{MARKER}", {"b": MARKER}], "n": 1}))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sasl.mechanism", "SCRAM-SHA-512"),
        ("sasl.username", "alice"),
        ("ssl.ca.location", "ca.pem"),
        ("ssl.key.location", "key.pem"),
        ("security.protocol", "SASL_SSL"),
        ("linger.ms", "5"),
    ],
)
def test_other_values_stay_readable(name: str, value: str) -> None:
    """What a person needs to find a mistake is not hidden."""
    assert Redactor({name: value})(f"see {value}") == f"see {value}"


def test_one_secret_inside_another_leaves_no_remainder() -> None:
    """The longer secret is replaced first, so no tail of it remains."""
    redact = Redactor({"sasl.password": "abc", "ssl.key.password": "abcdef"})
    assert redact("abcdef abc") == f"{REDACTED} {REDACTED}"


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
