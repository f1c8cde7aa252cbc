"""The text that the demonstration sends."""

from pathlib import Path

from safeproducer.cli.demo.experiment import identify, python_sources, read_corpus


def test_corpus_values_are_unique_and_identify_their_line(tmp_path: Path) -> None:
    """Equal lines differ by file and number; any bytes come back as they were; a limit stops the corpus."""
    path = tmp_path / "a\tb"
    path.write_bytes(b"same\nsame\n\xff\tx\r\n")
    entries = list(read_corpus([("a\tb", path)], records=None))
    assert [entry.value for entry in entries] == [b"a b\t1\tsame", b"a b\t2\tsame", b"a b\t3\t\xff\tx\r"]
    assert [identify(entry.value) for entry in entries] == [(b"a b", 1), (b"a b", 2), (b"a b", 3)]
    assert identify(b"nothing like it") is None
    assert len(list(read_corpus([("a", path)], records=2))) == 2


def test_the_default_corpus_is_large_enough() -> None:
    """The standard library has the promised number of lines."""
    assert sum(1 for _ in read_corpus(python_sources(), records=20_000)) == 20_000
