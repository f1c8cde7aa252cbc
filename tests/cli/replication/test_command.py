"""What the command is given: one sentence and exit 2 for what it cannot use, before anybody is asked."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from safeproducer.cli.common.settings import duration, rate
from safeproducer.cli.common.stop import Failure
from safeproducer.cli.replication.command import read_reassignment
from tests.cli.in_process import CommandHere

ENTRY = {"topic": "a", "partition": 0, "replicas": [1, 2]}
NOBODY = ("--bootstrap-servers", "127.0.0.1:1", "--connect-timeout", "0.2")


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [("1", 1), ("10000000", 10**7), ("10MB", 10**7), ("1.5 MB/s", 1_500_000), ("2kB", 2000), ("2 KiB/s", 2048)],
)
def test_a_rate_is_in_bytes(text: str, bytes_: int) -> None:
    """Decimal and binary units."""
    assert rate(text) == bytes_


@pytest.mark.parametrize(
    "text",
    ["0", "0.4", "-1", "-5MB", "20 parsecs", "10Mb", "10 Mbit/s", "10 mb", "nan", "inf", "1e9", "9" * 20, "", "MB"],
)
def test_a_rate_that_is_none_is_refused(text: str) -> None:
    """Zero, negative, no unit, bits, too large."""
    with pytest.raises(argparse.ArgumentTypeError, match="is no rate"):
        rate(text)


def test_a_time_has_a_unit() -> None:
    """Without one it could be minutes."""
    assert [duration(text) for text in ("90s", "30 min", "30m", "2h", "1.5d")] == [90, 1800, 1800, 7200, 129_600]
    for text in ("0s", "-1h", "2", "2 weeks", "", "h", "inf"):
        with pytest.raises(argparse.ArgumentTypeError, match="is no time"):
            duration(text)


def test_a_file_of_kafkas_tool_is_read(tmp_path: Path) -> None:
    """Its other fields do not matter."""
    file = tmp_path / "move.json"
    file.write_text(json.dumps({"version": 1, "partitions": [{**ENTRY, "log_dirs": ["any", "any"]}]}))
    assert read_reassignment(str(file)) == {("a", 0): (1, 2)}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[" * 100_000,
        "[]",
        "{}",
        {"partitions": []},
        {"partitions": [ENTRY, ENTRY]},
        {"partitions": ["a"]},
        *(
            {"partitions": [{**ENTRY, name: value}]}
            for name, value in [
                ("topic", 1),
                ("partition", -1),
                ("partition", True),
                ("partition", "0"),
                ("replicas", []),
                ("replicas", [1, 1]),
                ("replicas", [1.5]),
                ("replicas", [-1]),
                ("replicas", None),
                ("replicas", [[1]]),
            ]
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(content: Any, tmp_path: Path) -> None:
    """The file is named."""
    file = tmp_path / "move.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(Failure, match=r"--reassignment .*move\.json"):
        read_reassignment(str(file))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("plan", "--ongoing"), "bootstrap"),
        (("plan", *NOBODY), "give one of them"),
        (("plan", "--ongoing", "--reassignment", "move.json", *NOBODY), "give one of them"),
        (("plan", "--ongoing", "--rate", "1MB", "--within", "2h", *NOBODY), "one of --rate and --within"),
        (("status", "--rate", "1MB", *NOBODY), "--rate does not belong to status"),
        (("plan", "--ongoing", "--yes", *NOBODY), "--yes does not belong to plan"),
        (("clear", "--replace", *NOBODY), "--replace does not belong to clear"),
        (("throttle", "--yes", "--rate", "1MB", *NOBODY), "--rate R and --reassignment FILE"),
        (("throttle", "--yes", "--reassignment", "move.json", *NOBODY), "--rate R and --reassignment FILE"),
        (("clear", *NOBODY), "clear needs --yes"),
        (("clear", "--yes", *NOBODY), "127.0.0.1:1"),
        (("plan", "--reassignment", "/no/such/file", *NOBODY), "No such file"),
        (("status", *NOBODY), "127.0.0.1:1"),
        (("plan", "--ongoing", "--rate", "0", *NOBODY), "argument --rate: '0' is no rate above zero"),
        (("plan", "--ongoing", "--rate=-1", *NOBODY), "argument --rate: '-1' is no rate"),
        (("plan", "--ongoing", "--within", "soon", *NOBODY), "argument --within: 'soon' is no time"),
        (("execute", *NOBODY), "argument action: the value cannot be used"),
    ],
)
def test_wrong_usage_is_one_sentence(arguments: tuple[str, ...], words: str, tmp_path: Path) -> None:
    """And exit 2."""
    done = CommandHere(tmp_path).run("replication", *arguments)
    assert done.returncode == 2
    assert words in done.stderr.decode()
    assert done.stderr.decode().count("\n") == 1
