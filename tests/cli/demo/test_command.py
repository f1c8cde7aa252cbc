"""``safeproducer demo`` as a process; its steps also in this process, at speed."""

import json
import re
import signal
import sysconfig
import time
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from safeproducer.cli.demo import steps
from safeproducer.cli.main import main
from safeproducer.testing import FakeCluster
from tests.cli.in_process import CommandHere

MARKER = "MARKER-s3cret"
PLAIN_LOGIN = [
    *["--config", "security.protocol=SASL_PLAINTEXT"],
    *["--config", "sasl.mechanism=PLAIN"],
    *["--config", "sasl.username=u"],
]
FLAWS = ("not_written", "unknown", "refused", "lost", "duplicated", "reordered", "unexpected", "contradicted")


def test_the_steps_are_flawless_and_each_happened(command: Any) -> None:
    """20 000 lines survive a moved leader, a throttle and lost acknowledgements, each once and in order."""
    done = command.run("demo", "--json", timeout=120)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    total = document["total"]
    assert (total["accepted"], total["delivered"], total["in_log"]) == (20_000, 20_000, 20_000)
    assert {total[name] for name in FLAWS} == {0}
    assert document["exit_code"] == 0
    assert document["files"] > 20
    assert len(document["partitions"]) == 6
    assert 0 < document["latency_ms"]["p50"] <= document["latency_ms"]["p95"]
    assert document["seconds"] < 30

    flow, moved, throttled, lost, far = document["steps"]
    assert [step["shown"] for step in document["steps"]] == [True] * 5
    assert sum(step["accepted"] for step in document["steps"]) == 20_000
    assert all(step["accepted"] == step["in_log"] for step in document["steps"])
    assert flow["facts"]["brokers"] == [1, 2, 3]
    assert moved["facts"]["from"] != moved["facts"]["to"]
    facts = throttled["facts"]
    assert set(facts["partitions_held"]) <= set(facts["partitions"]) != set(range(6))
    assert facts["slowest_ms"] >= facts["longest_throttle_ms"] > 100
    assert facts["acknowledged_by_others"] > 100
    assert lost["facts"]["answers_lost"] == 3
    # On a busy machine two of the answers may be of one batch, sent and sent again.
    assert lost["facts"]["recognised"] == lost["facts"]["batches_lost"] >= 1
    assert far["facts"]["window"] == 20
    assert 5 < far["facts"]["lanes"] <= 20
    assert far["facts"]["in_log"] == far["facts"]["records"] > 1000


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps at four times their rate, which a person could not follow."""
    for name in ("_RATE", "_BURST_RATE", "_CALM_RATE"):
        monkeypatch.setattr(steps, name, 4 * getattr(steps, name))


@pytest.mark.usefixtures("fast")
def test_the_steps_without_their_faults_fail(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """When the cluster does not do what is ordered, the steps say so, although nothing was lost."""
    monkeypatch.setattr(FakeCluster, "move_leader", lambda self, topic, partition, to: self.leader(topic, partition)[0])
    monkeypatch.setattr(FakeCluster, "set_quota", lambda *_, **__: None)
    monkeypatch.setattr(FakeCluster, "lose_acks", lambda *_, **__: None)
    create_topic = FakeCluster.create_topic
    monkeypatch.setattr(
        FakeCluster, "create_topic", lambda self, name, partitions=1, **_: create_topic(self, name, partitions)
    )
    assert main(["demo", "--json"]) == 1
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert {document["total"][name] for name in FLAWS} == {0}
    assert [step["shown"] for step in document["steps"]] == [True, False, False, False, False]
    assert "by step 2, 3, 4, 5" in err


@pytest.mark.usefixtures("fast")
def test_a_producer_without_idempotence_is_found_out(capsys: pytest.CaptureFixture[str]) -> None:
    """What was written before its acknowledgement got lost is in the log twice, in the step that lost it, and shows."""
    assert main(["demo", "--config", "enable.idempotence=false", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    duplicated = [step["duplicated"] for step in document["steps"]]
    assert duplicated[:3] == [0, 0, 0]
    assert duplicated[3] > 0
    assert not document["steps"][3]["shown"]


@pytest.mark.usefixtures("fast")
def test_the_steps_are_plain_lines_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Each step announces itself and says what came of it; then the table by step and the picture."""
    status = main(["demo"])
    out, err = capsys.readouterr()
    # At this rate the quota's window holds two steps, so broker 3 may be over its quota, too, and step 3 not be shown.
    assert (status == 0) == (err == "") == ("NOT SHOWN" not in out)
    assert "\x1b" not in out
    lines = out.splitlines()
    beginnings = [line for line in lines if re.match(r"[1-5]  \w", line)]
    assert [line.split(":")[0][3:] for line in beginnings] == [
        "Records flow",
        "A leader moves",
        "A broker throttles",
        "Acknowledgements get lost",
        "A leader announces its window",
    ]
    for row in ("1 flow", "2 leader moved", "3 throttled", "4 answers lost", "total"):
        assert sum(row in line and "│" in line for line in lines) == 1, row
    pictures = [line for line in lines if re.match(r" [0-5] [·▁-█]{80}$", line)]
    assert len(pictures) == 6
    assert "exactly once" in out


def test_the_demo_without_faults_draws_a_table(command: Any) -> None:
    """With --records there are no steps: a row for each partition, and the totals."""
    done = command.run("demo", "--records", "500")
    text = done.stdout.decode()
    assert done.returncode == 0, done.stderr
    for word in ("partition", "delivered", "lost", "duplicated", "reordered", "p50", "p95", "exactly once"):
        assert word in text
    plain = command.run("demo", "--records", "500", "--partitions", "2", PYTHONIOENCODING="ascii")
    assert plain.returncode == 0, plain.stderr
    assert "exactly once" in plain.stdout.decode("ascii")


@pytest.mark.parametrize("width", [60, 80, 100])
def test_a_narrow_terminal_loses_nothing(command: Any, width: int) -> None:
    """No digit and no header is cut."""
    status, text = command.on_terminal("demo", "--records", "200", width=width)
    assert status == 0, text
    rows = [line for line in text.splitlines() if "│" in line or "┃" in line]
    assert rows
    assert not [line for line in rows if "…" in line or len(line.rstrip()) > width]
    assert "delivered" in text


def test_a_kept_cluster_serves_others_until_ctrl_c(command: Any) -> None:
    """--keep prints the address; other clients can write there; Ctrl-C ends it with the result of the demo."""
    process = command.start("demo", "--records", "100", "--keep")
    told = b""
    while not told.endswith(b"\n") or b"bootstrap.servers = " not in told:
        line = process.stdout.readline()
        assert line, told
        told += line
    assert b"exactly once" in told
    address = told.split(b"bootstrap.servers = ")[1].strip().decode()
    topic = re.search(r"with the topic ([\w-]+):", told.decode())[1]
    other = confluent_kafka.Producer({"bootstrap.servers": address})
    other.produce(topic, b"one more")
    assert other.flush(20) == 0
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, b""), err


def test_ctrl_c_ends_the_steps_on_a_terminal(command: Any) -> None:
    """What was sent until Ctrl-C is drained, read back and compared; status 130."""
    told: list[bytes] = []

    def stop(process: Any, text: bytes) -> None:
        if b"2  A leader moves" in text and not told:
            told.append(text)
            process.send_signal(signal.SIGINT)

    status, text = command.on_terminal("demo", read=stop)
    assert status == 130, text
    assert "Stopped by SIGINT" in text
    assert "1 flow" in text
    assert "3 throttled" not in text


def test_the_demo_takes_files(here: CommandHere) -> None:
    """Given files are sent whole; one given twice is sent once; the same text twice is two records."""
    path = Path(sysconfig.get_path("stdlib")) / "this.py"
    lines = len(path.read_bytes().splitlines())
    done = here.run("demo", "--json", str(path), str(path), str(Path(__file__)))
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["total"]["accepted"] == lines + len(Path(__file__).read_bytes().splitlines())
    assert document["files"] == 2


def test_a_record_that_fails_spoils_the_demo(command: Any, tmp_path: Path) -> None:
    """A line that the producer refuses is counted as refused and the exit status is 1."""
    path = tmp_path / "text"
    path.write_bytes(b"short\n" + b"x" * 1_100_000 + b"\nshort again\n")
    done = command.run("demo", "--json", str(path))
    assert done.returncode == 1
    total = json.loads(done.stdout)["total"]
    assert (total["accepted"], total["delivered"], total["refused"], total["lost"]) == (2, 2, 1, 0)
    assert b"MSG_SIZE_TOO_LARGE" in done.stderr


def test_a_fatal_error_ends_the_demo(here: CommandHere) -> None:
    """The producer itself ends what it has accepted: nobody waits for the time-out."""
    with FakeCluster(1) as cluster:
        cluster.fail_next("InitProducerId", 31, 1_000)
        started = time.monotonic()
        done = here.run("demo", "--json", "--bootstrap-servers", cluster.bootstrap, "--timeout", "100")
        assert time.monotonic() - started < 60
    assert done.returncode == 1
    total = json.loads(done.stdout)["total"]
    assert total["not_written"] == total["accepted"] < 20_000


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--partitions", "7"], ["--records"]),
        (["--keep", "--bootstrap-servers", "127.0.0.1:1"], ["--keep-topic"]),
        (["--records", "0"], ["at least 1"]),
        (["/no/such/file"], ["/no/such/file"]),
        (["/dev/null"], ["no line"]),
        (["--bootstrap-servers", "127.0.0.1:1", "--connect-timeout", "2"], ["refuses the connection"]),
        (["--bootstrap-servers", "no-such-host.invalid:9092", "--connect-timeout", "2"], ["no-such-host", "spelling"]),
        (["--bootstrap-servers", ""], ["names no broker"]),
        (["--config", "lingerms=5"], ["lingerms", "setting"]),
        (["--config", "linger.ms=five"], ["linger.ms"]),
        (["--config", "transactional.id=t"], ["transactional.id", "remove"]),
        (["--config", "oops"], ["NAME=VALUE"]),
        (["--config-file", "/no/such/config"], ["/no/such/config"]),
    ],
)
def test_the_demo_refuses_in_one_sentence(
    arguments: list[str], words: list[str], here: CommandHere, capfd: pytest.CaptureFixture[str]
) -> None:
    """Wrong arguments and unreachable brokers: status 2, one line, no traceback."""
    done = here.run("demo", "--json", *arguments)
    assert capfd.readouterr() == ("", ""), "of librdkafka"
    text = done.stderr.decode()
    assert done.returncode == 2, text
    assert text.count("\n") == 1
    for word in words:
        assert word in text


def test_rich_is_named_when_it_is_missing(command: Any, tmp_path: Path) -> None:
    """Without the extra a table cannot be drawn: the sentence tells what to install; --json works without."""
    (tmp_path / "rich").mkdir()
    (tmp_path / "rich" / "__init__.py").write_text("raise ImportError('not here')\n")
    done = command.run("demo", "--records", "1", PYTHONPATH=str(tmp_path))
    assert done.returncode == 2
    assert b"pip install 'safeproducer[cli]'" in done.stderr
    assert b"Traceback" not in done.stderr
    plain = command.run("demo", "--records", "1", "--json", PYTHONPATH=str(tmp_path))
    assert json.loads(plain.stdout)["total"]["delivered"] == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["--config", f"sasl.password={MARKER}"],
        ["--config", f"sasl.pasword={MARKER}"],
        ["--config", f"sasl.jaas.config=org.apache.kafka required password='{MARKER}'"],
        ["--config", f"ssl.key.pem={MARKER}", "--config", "security.protocol=SSL"],
        ["--config", MARKER],
        [f"--password={MARKER}"],
        ["--password", MARKER],
        ["--timeout", MARKER],
        ["--config", f"sasl.password={MARKER}", *PLAIN_LOGIN, "--debug"],
    ],
)
def test_no_output_holds_a_secret(arguments: list[str], here: CommandHere, capfd: pytest.CaptureFixture[str]) -> None:
    """Right, misspelt and misplaced passwords appear on neither stream, not even with --debug."""
    done = here.run("demo", "--records", "1", "--connect-timeout", "1", *arguments)
    assert MARKER.encode() not in done.stdout + done.stderr
    assert MARKER not in "".join(capfd.readouterr())
    assert done.stderr
