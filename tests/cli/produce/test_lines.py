"""Lines are bytes between newlines, whatever the sizes in which they arrive."""

import os
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safeproducer.cli.produce import lines
from safeproducer.cli.produce.lines import Line, read_lines


def read(content: bytes, tmp_path: Path, limit: int) -> list[Line]:
    path = tmp_path / "input"
    path.write_bytes(content)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return [line for line in read_lines(descriptor, limit=limit) if line is not None]
    finally:
        os.close(descriptor)


def expected(content: bytes, limit: int) -> list[Line]:
    """The same by the plainest means."""
    pieces = content.split(b"\n")
    if not pieces[-1]:
        pieces.pop()
    return [
        Line(number, piece if len(piece) <= limit else None, len(piece)) for number, piece in enumerate(pieces, start=1)
    ]


@settings(max_examples=300)
@given(
    content=st.lists(st.sampled_from([b"\n", b"\r\n", b"a", b"\x00\xff", b"bcd"]), max_size=40).map(b"".join),
    chunk=st.integers(1, 7),
    limit=st.integers(0, 9),
)
def test_lines_do_not_depend_on_chunks(
    content: bytes, chunk: int, limit: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Any content in any chunk size gives exactly the pieces between newlines, long ones without data."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "_CHUNK", chunk)
        assert read(content, tmp_path_factory.mktemp("lines"), limit) == expected(content, limit)


@pytest.mark.parametrize(
    ("content", "values"),
    [
        (b"", []),
        (b"a", [b"a"]),
        (b"a\n", [b"a"]),
        (b"\n\n", [b"", b""]),
        (b"a\r\nb", [b"a\r", b"b"]),
    ],
)
def test_edges_of_the_format(content: bytes, values: Sequence[bytes], tmp_path: Path) -> None:
    """Empty lines and a last line without newline count; a carriage return belongs to the line."""
    assert [line.data for line in read(content, tmp_path, 100)] == values


def test_a_huge_line_needs_no_memory(tmp_path: Path) -> None:
    """A line of 64 MB above a limit of 1 kB is measured in a few chunks of memory, and the next one is read."""
    path = tmp_path / "huge"
    with path.open("wb") as stream:
        for _ in range(64):
            stream.write(b"x" * 1_000_000)
        stream.write(b"\nnext\n")
    descriptor = os.open(path, os.O_RDONLY)
    tracemalloc.start()
    try:
        found = list(read_lines(descriptor, limit=1000))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        os.close(descriptor)
    assert found == [Line(1, None, 64_000_000), Line(2, b"next", 4)]
    assert peak < 4 * lines._CHUNK


def test_a_silent_pipe_gives_the_caller_its_turn() -> None:
    """While nothing can be read the reader yields None instead of blocking."""
    reading, writing = os.pipe()
    try:
        stream = read_lines(reading, limit=10, wait=0.01)
        assert next(stream) is None
        os.write(writing, b"half")
        assert next(stream) is None
        os.write(writing, b"\n")
        assert next(stream) == Line(1, b"half", 4)
    finally:
        os.close(reading)
        os.close(writing)
