"""``safeproducer demo`` and the command's outer shell, as processes."""

import json
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from safeproducer.cli.corpus import identify, python_sources, read_corpus
from safeproducer.cli.latency import Latencies, bar


def test_the_default_demo_is_flawless(command: Any) -> None:
    """20 000 lines of real files go out and come back, each once and in order, on the embedded brokers."""
    done = command.run("demo", "--json", timeout=120)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    total = document["total"]
    assert (total["sent"], total["delivered"], total["in_log"]) == (20_000, 20_000, 20_000)
    assert {total[name] for name in ("failed", "left", "lost", "duplicated", "reordered", "unexpected")} == {0}
    assert document["exit_code"] == 0
    assert document["files"] > 20
    assert len(document["partitions"]) == 4
    assert sum(row["in_log"] for row in document["partitions"]) == 20_000
    assert 0 < document["latency_ms"]["p50"] <= document["latency_ms"]["p95"]
    assert document["records_per_second"] > 0
    assert any("never detect a duplicate" in limit for limit in document["limits"])


def test_the_demo_draws_a_table(command: Any) -> None:
    """The table has a row per partition, the totals, and the picture in whatever the terminal can show."""
    done = command.run("demo", "--records", "500")
    text = done.stdout.decode()
    assert done.returncode == 0, done.stderr
    for word in ("partition", "delivered", "lost", "duplicated", "reordered", "p50", "p95", "█", "exactly once"):
        assert word in text
    plain = command.run("demo", "--records", "500", PYTHONIOENCODING="ascii")
    assert plain.returncode == 0, plain.stderr
    assert "#" in plain.stdout.decode("ascii")


def test_the_demo_takes_files(command: Any) -> None:
    """Given files are sent whole; one given twice is sent once; the same text twice is two records."""
    path = Path(sysconfig.get_path("stdlib")) / "this.py"
    lines = len(path.read_bytes().splitlines())
    done = command.run("demo", "--json", str(path), str(path), str(Path(__file__)))
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["total"]["sent"] == lines + len(Path(__file__).read_bytes().splitlines())
    assert document["files"] == 2


def test_a_record_that_fails_spoils_the_demo(command: Any, tmp_path: Path) -> None:
    """A line that no broker takes is counted as failed and the exit status is 1."""
    path = tmp_path / "text"
    path.write_bytes(b"short\n" + b"x" * 1_100_000 + b"\nshort again\n")
    done = command.run("demo", "--json", str(path))
    assert done.returncode == 1
    total = json.loads(done.stdout)["total"]
    assert (total["sent"], total["delivered"], total["failed"], total["lost"]) == (3, 2, 1, 0)
    assert b"MSG_SIZE_TOO_LARGE" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--partitions", "7"], ["--bootstrap-servers"]),
        (["--records", "0"], ["at least 1"]),
        (["/no/such/file"], ["/no/such/file"]),
        (["/dev/null"], ["no line"]),
        (["--bootstrap-servers", "127.0.0.1:1", "--connect-timeout", "2"], ["refuses the connection"]),
    ],
)
def test_the_demo_refuses_in_one_sentence(arguments: list[str], words: list[str], command: Any) -> None:
    """Wrong arguments and unreachable brokers: status 2, one line, no traceback."""
    done = command.run("demo", "--json", *arguments)
    text = done.stderr.decode()
    assert done.returncode == 2, text
    assert text.count("\n") == 1
    for word in words:
        assert word in text


def test_help_and_version_work_without_a_broker(command: Any) -> None:
    """Each help text has examples and the exit statuses; the version is that of the package."""
    assert command.run("--version").stdout.decode().startswith("safeproducer 0.")
    for subcommand in ("produce", "demo"):
        text = command.run(subcommand, "--help").stdout.decode()
        assert "examples:" in text
        assert "exit status" in text
    bare = command.run()
    assert bare.returncode == 2
    assert bare.stderr.decode().count("\n") == 1


def test_corpus_values_are_unique_and_identify_their_line(tmp_path: Path) -> None:
    """Equal lines differ by file and number; any bytes come back as they were; limits stop the corpus."""
    path = tmp_path / "a\tb"
    path.write_bytes(b"same\nsame\n\xff\tx\r\n")
    entries = list(read_corpus([("a\tb", path)], records=None, max_bytes=None))
    assert [entry.value for entry in entries] == [b"a b\t1\tsame", b"a b\t2\tsame", b"a b\t3\t\xff\tx\r"]
    assert [identify(entry.value) for entry in entries] == [(b"a b", 1), (b"a b", 2), (b"a b", 3)]
    assert identify(b"nothing like it") is None
    assert len(list(read_corpus([("a", path)], records=2, max_bytes=None))) == 2
    cut: list[bool] = []
    entries = read_corpus([("a", path)], records=None, max_bytes=len(b"a\t1\tsame"), on_cut=lambda: cut.append(True))
    assert len(list(entries)) == 1
    assert cut == [True]


def test_the_default_corpus_is_large_enough() -> None:
    """The standard library has the promised number of lines."""
    assert sum(1 for _ in read_corpus(python_sources(), records=20_000, max_bytes=None)) == 20_000


def test_percentiles_are_nearest_rank() -> None:
    """p50 and p95 of 1..100 ms are the 50th and the 95th; a single value is all of them."""
    latencies = Latencies()
    for number in range(100, 0, -1):
        latencies.add(number / 1000)
    assert latencies.percentile(50) == pytest.approx(0.050)
    assert latencies.percentile(95) == pytest.approx(0.095)
    single = Latencies()
    single.add(0.007)
    assert single.percentile(50) == single.percentile(95) == 0.007


def test_the_picture_shows_peaks() -> None:
    """One slow report among many stands out; bars are in proportion."""
    latencies = Latencies()
    for number in range(1000):
        latencies.add(1.0 if number == 500 else 0.001)
    line = latencies.sparkline(10, ascii_only=False)
    assert len(line) == 10
    assert line.index("█") == 5
    assert line.count("▁") == 9
    assert (bar(5, 10, 8, ascii_only=True), bar(0, 10, 8, ascii_only=True), bar(0, 0, 8, ascii_only=True)) == (
        "####",
        "",
        "",
    )
