"""``safeproducer produce`` as a process against mock brokers in another process."""

import fcntl
import json
import os
import pty
import select
import signal
import socket
import struct
import subprocess
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

MARKER = "MARKER-s3cret"
PLAIN_LOGIN = [
    *["--config", "security.protocol=SASL_PLAINTEXT"],
    *["--config", "sasl.mechanism=PLAIN"],
    *["--config", "sasl.username=u"],
]
Until = Callable[..., None]


def summary(done: "subprocess.CompletedProcess[bytes]") -> dict[str, Any]:
    document: dict[str, Any] = json.loads(done.stdout)
    assert document["exit_code"] == done.returncode
    return document


def produce(cluster: Any, topic: str, *more: str) -> list[str]:
    return ["produce", "--bootstrap-servers", cluster.bootstrap, "--topic", topic, *more]


def test_every_line_becomes_a_record_of_its_bytes(cluster: Any, command: Any) -> None:
    """Any bytes, empty lines, carriage returns and a last line without newline arrive as they are, in order."""
    lines = [b"a", b"", b"\xff\x00\xfe", b"crlf\r", "ü".encode(), b"last"]
    done = command.run(*produce(cluster, "bytes", "--partition", "2", "--json"), stdin=b"\n".join(lines))
    assert done.returncode == 0, done.stderr
    document = summary(done)
    assert {name: document[name] for name in ("sent", "delivered", "failed", "left", "bytes")} == {
        "sent": 6,
        "delivered": 6,
        "failed": 0,
        "left": 0,
        "bytes": sum(map(len, lines)),
    }
    assert [(record.partition, record.key, record.value) for record in cluster.log("bytes")] == [
        (2, None, line) for line in lines
    ]
    assert done.stderr == b""


def test_keys_split_at_the_first_separator(cluster: Any, command: Any, tmp_path: Path) -> None:
    """The key is what stands before it; a file is read as well as stdin."""
    path = tmp_path / "keyed"
    path.write_bytes(b"k1\tv1\tmore\nk2\tv2\n")
    done = command.run(*produce(cluster, "keyed", "--key-separator", r"\t", "--json", str(path)))
    assert done.returncode == 0, done.stderr
    assert {(record.key, record.value) for record in cluster.log("keyed")} == {(b"k1", b"v1\tmore"), (b"k2", b"v2")}


def test_a_line_without_separator_is_named_and_ends_the_run(cluster: Any, command: Any) -> None:
    """What stands before it is delivered, what stands behind it is not sent."""
    done = command.run(*produce(cluster, "unkeyed", "--key-separator", ":", "--json"), stdin=b"a:1\nwrong\nb:2\n")
    document = summary(done)
    assert done.returncode == 1
    assert "Line 2" in document["problem"]
    assert (document["sent"], document["delivered"], document["delivered_through_line"]) == (1, 1, 1)
    assert b"Line 2 has no key separator" in done.stderr
    assert [record.value for record in cluster.log("unkeyed")] == [b"1"]


def test_a_line_too_large_fails_alone(cluster: Any, command: Any) -> None:
    """Lines above message.max.bytes, by far or by little, are named; all others are delivered."""
    content = b"\n".join([b"first", b"x" * 5_000_000, b"second", b"y" * 999_999, b"third"])
    done = command.run(*produce(cluster, "large", "--partition", "0", "--json"), stdin=content)
    document = summary(done)
    assert done.returncode == 1
    assert (document["sent"], document["delivered"], document["failed"]) == (5, 3, 2)
    (error,) = document["errors"]
    assert (error["code"], error["count"], error["first_lines"]) == ("MSG_SIZE_TOO_LARGE", 2, [2, 4])
    assert b"lines 2, 4" in done.stderr
    assert [record.value for record in cluster.log("large")] == [b"first", b"second", b"third"]


def test_a_small_buffer_slows_reading_and_loses_nothing(cluster: Any, command: Any) -> None:
    """With room for 100 records in the producer 30 000 lines all arrive, each once."""
    lines = [b"%d" % number for number in range(30_000)]
    done = command.run(
        *produce(cluster, "pressure", "--json", "--config", "queue.buffering.max.messages=100"), stdin=b"\n".join(lines)
    )
    assert done.returncode == 0, done.stderr
    assert summary(done)["delivered"] == 30_000
    assert sorted(record.value for record in cluster.log("pressure")) == sorted(lines)


def test_a_long_linger_does_not_delay_the_end(cluster: Any, command: Any) -> None:
    """At the end of the input nothing waits for linger.ms any more."""
    started = time.monotonic()
    done = command.run(*produce(cluster, "linger", "--json", "--config", "linger.ms=60000"), stdin=b"a\nb\n")
    assert done.returncode == 0, done.stderr
    assert summary(done)["delivered"] == 2
    assert time.monotonic() - started < 20


def test_no_input_is_no_error(cluster: Any, command: Any) -> None:
    """Empty and closed standard input both mean zero records."""
    assert summary(command.run(*produce(cluster, "empty", "--json")))["sent"] == 0
    closed = subprocess.run(  # noqa: S602
        f"{' '.join(command.line(*produce(cluster, 'empty', '--json')))} <&-",
        shell=True,
        capture_output=True,
        check=False,
        env=command.environment,
        cwd=os.getcwd(),
    )
    assert closed.returncode == 0, closed.stderr
    assert json.loads(closed.stdout)["sent"] == 0


def test_the_table_is_for_people(cluster: Any, command: Any) -> None:
    """Without --json a table is on stdout, without colours in a pipe; --quiet leaves nothing."""
    done = command.run(*produce(cluster, "table"), stdin=b"a\nb\n")
    text = done.stdout.decode()
    assert done.returncode == 0
    assert "delivered" in text
    assert "records/s" in text
    assert "\x1b" not in text
    quiet = command.run(*produce(cluster, "table", "--quiet"), stdin=b"a\nb\n")
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, b"", b"")


def test_a_reader_that_leaves_is_no_error(cluster: Any, command: Any) -> None:
    """A closed stdout (| head) gives neither a traceback nor another exit status."""
    process = command.start(*produce(cluster, "leaver"))
    process.stdout.close()
    stderr = _finish(process, b"a\n")
    assert process.returncode == 0
    assert b"Traceback" not in stderr
    assert b"BrokenPipe" not in stderr


def _finish(process: "subprocess.Popen[bytes]", content: bytes) -> bytes:
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.write(content)
    process.stdin.close()
    stderr = process.stderr.read()
    process.stderr.close()
    process.wait(60)
    return stderr


def test_ctrl_c_delivers_what_was_read_and_says_where_to_resume(cluster: Any, command: Any, until: Until) -> None:
    """The pipe stays open, SIGINT comes: all lines read are delivered, status 130, the next line is named."""
    process = command.start(*produce(cluster, "stopped", "--json"))
    process.stdin.write(b"".join(b"%d\n" % number for number in range(1, 501)))
    process.stdin.flush()
    until(lambda: len(cluster.log("stopped")) == 500, "500 records in the log")
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=30)
    document = json.loads(stdout)
    assert process.returncode == document["exit_code"] == 130
    assert (document["delivered"], document["left"], document["stopped_by"]) == (500, 0, "SIGINT")
    assert b"Every line up to line 500 is delivered: a run that begins at line 501 misses nothing" in stderr


def test_sigterm_ends_like_ctrl_c_with_its_own_status(cluster: Any, command: Any, until: Until) -> None:
    """A service manager's stop is orderly too: status 143."""
    process = command.start(*produce(cluster, "terminated", "--json"))
    process.stdin.write(b"a\n")
    process.stdin.flush()
    until(lambda: len(cluster.log("terminated")) == 1, "the record in the log")
    process.terminate()
    stdout, _ = process.communicate(timeout=30)
    assert process.returncode == 143
    assert json.loads(stdout)["delivered"] == 1


def _start_and_freeze(cluster: Any, command: Any, until: Until, topic: str, *more: str) -> "subprocess.Popen[bytes]":
    """Write 10 lines into the log, freeze the brokers, let the command read 5 more lines."""
    process: subprocess.Popen[bytes] = command.start(*produce(cluster, topic, "--json", *more))
    assert process.stdin is not None
    process.stdin.write(b"x\n" * 10)
    process.stdin.flush()
    until(lambda: len(cluster.log(topic)) == 10, "10 records in the log")
    cluster.freeze()
    process.stdin.write(b"y\n" * 5)
    process.stdin.flush()
    until(lambda: _unread(process) == 0 and _waits_for_input(process), "the command waits for more input")
    return process


def _unread(process: "subprocess.Popen[bytes]") -> int:
    assert process.stdin is not None
    count: int = struct.unpack("i", fcntl.ioctl(process.stdin, termios.FIONREAD, b"\0" * 4))[0]
    return count


def _waits_for_input(process: "subprocess.Popen[bytes]") -> bool:
    """Its main thread is in select(2) or pselect6(2), so everything it read has been handed over."""
    return Path(f"/proc/{process.pid}/syscall").read_text().split()[0] in {"23", "270", "72"}


def check_left(document: dict[str, Any]) -> int:
    """The 5 late lines, and those of the first 10 whose answer the freeze caught, are left; all adds up."""
    left: int = document["left"]
    assert 5 <= left <= 15, document
    assert (document["sent"], document["delivered"], document["failed"]) == (15, 15 - left, 0)
    assert document["delivered_through_line"] <= document["delivered"]
    return left


def test_ctrl_c_gives_up_at_the_deadline_and_counts_what_is_left(freezable: Any, command: Any, until: Until) -> None:
    """With frozen brokers the drain ends after --timeout; the records without answer are left, not failed."""
    process = _start_and_freeze(freezable, command, until, "frozen", "--timeout", "2")
    stopped = time.monotonic()
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=30)
    took = time.monotonic() - stopped
    document = json.loads(stdout)
    assert process.returncode == 130
    left = check_left(document)
    assert f"{left} records left without acknowledgement".encode() in stderr
    assert f"begins at line {document['delivered_through_line'] + 1} misses nothing".encode() in stderr
    assert 1.9 <= took < 10


def test_the_second_ctrl_c_does_not_wait(freezable: Any, command: Any, until: Until) -> None:
    """During a long drain a second SIGINT ends the command at once, with the account so far."""
    process = _start_and_freeze(freezable, command, until, "twice", "--timeout", "60")
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1.5)
    stopped = time.monotonic()
    process.send_signal(signal.SIGINT)
    stdout, _ = process.communicate(timeout=30)
    assert time.monotonic() - stopped < 5
    assert process.returncode == 130
    check_left(json.loads(stdout))


def test_the_end_of_the_input_gives_up_without_progress(freezable: Any, command: Any, until: Until) -> None:
    """Frozen brokers at the end of the input: status 1 after --timeout seconds without a report, and why."""
    process = _start_and_freeze(freezable, command, until, "stuck", "--timeout", "2")
    stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == 1
    check_left(json.loads(stdout))
    assert b"may or may not be in the log" in stderr


def _unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["--bootstrap-servers", "127.0.0.1:{port}"], 2, ["refuses the connection", "bootstrap.servers"]),
        (["--bootstrap-servers", "no-such-host.invalid:9092"], 2, ["no-such-host.invalid:9092", "spelling"]),
        (["--bootstrap-servers", ""], 2, ["names no broker"]),
        (["--bootstrap-servers", "{mock}", "--config", "lingerms=5"], 2, ["lingerms", "setting"]),
        (["--bootstrap-servers", "{mock}", "--config", "linger.ms=five"], 2, ["linger.ms"]),
        (["--bootstrap-servers", "{mock}", "--config", "transactional.id=t"], 2, ["transactional.id", "remove"]),
        (["--bootstrap-servers", "{mock}", "--config", "ssl.ca.location=/no/ca"], 2, ["/no/ca", "No such file"]),
        (["--bootstrap-servers", "{mock}", "--config", "oops"], 2, ["NAME=VALUE"]),
        (["--bootstrap-servers", "{mock}", "--config", "security.protocol=SSL"], 2, ["without TLS", "PLAINTEXT"]),
        (["--bootstrap-servers", "{mock}", "--partition", "9"], 2, ["partitions 0 to 3", "9"]),
        (["--bootstrap-servers", "{mock}", "/no/such/file"], 2, ["/no/such/file", "No such file"]),
        (["--bootstrap-servers", "{mock}", "/"], 2, ["directory"]),
        (["--bootstrap-servers", "{mock}", "--config-file", "/no/such/config"], 2, ["/no/such/config"]),
        ([], 2, ["--bootstrap-servers"]),
    ],
)
def test_errors_a_person_meets(arguments: list[str], status: int, words: list[str], cluster: Any, command: Any) -> None:
    """One sentence on stderr that names the cause and the way out, at once, and no traceback."""
    filled = [argument.format(port=_unused_port(), mock=cluster.bootstrap) for argument in arguments]
    started = time.monotonic()
    patience = "5" if "{mock}" in arguments else "1"  # a busy machine answers late
    done = command.run("produce", "--topic", "errors", "--connect-timeout", patience, "--json", *filled, stdin=b"x\n")
    text = done.stderr.decode()
    assert done.returncode == status, text
    assert time.monotonic() - started < 20
    for word in words:
        assert word in text
    assert text.count("\n") == 1
    assert text.startswith("safeproducer: error: ")
    document = json.loads(done.stdout)
    assert document["exit_code"] == status
    assert f"safeproducer: error: {document['error']['message']}\n" == text


def test_rich_is_named_when_it_is_missing(cluster: Any, command: Any, tmp_path: Path) -> None:
    """Without the extra a table cannot be drawn: the sentence tells what to install; --json works without."""
    (tmp_path / "rich").mkdir()
    (tmp_path / "rich" / "__init__.py").write_text("raise ImportError('not here')\n")
    done = command.run(*produce(cluster, "poor"), stdin=b"x\n", PYTHONPATH=str(tmp_path))
    assert done.returncode == 2
    assert b"pip install 'safeproducer[cli]'" in done.stderr
    assert b"Traceback" not in done.stderr
    plain = command.run(*produce(cluster, "poor", "--json"), stdin=b"x\n", PYTHONPATH=str(tmp_path))
    assert summary(plain)["delivered"] == 1


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
def test_no_output_holds_a_secret(arguments: list[str], cluster: Any, command: Any) -> None:
    """Right, misspelt and misplaced passwords appear on neither stream, not even with --debug."""
    done = command.run(*produce(cluster, "secret", "--connect-timeout", "1", *arguments), stdin=b"x\n")
    assert MARKER.encode() not in done.stdout + done.stderr
    assert done.stderr


def test_a_terminal_shows_progress(cluster: Any, command: Any, tmp_path: Path) -> None:
    """With stderr on a terminal a bar with the number delivered is drawn; NO_COLOR takes its colours."""
    path = tmp_path / "many"
    path.write_bytes(b"line\n" * 20_000)
    arguments = produce(cluster, "bar", "--json", str(path))
    drawn = _on_terminal(command, arguments, {})
    assert "delivered" in drawn
    assert "100%" in drawn
    assert "20,000" in drawn
    assert "\x1b[3" in drawn
    assert "\x1b[3" not in _on_terminal(command, arguments, {"NO_COLOR": "1"})


def _on_terminal(command: Any, arguments: list[str], environment: dict[str, str]) -> str:
    """Run with stderr on a pseudo terminal and return what was written there."""
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            command.line(*arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=theirs,
            env=command.environment | {"TERM": "xterm-256color", "COLUMNS": "120"} | environment,
            cwd=os.getcwd(),
        )
        os.close(theirs)
        drawn = b""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if not select.select([ours], [], [], 0.2)[0]:
                continue
            try:
                piece = os.read(ours, 65536)
            except OSError:  # Linux: the other end is closed
                break
            if not piece:
                break
            drawn += piece
        assert process.wait(10) == 0, drawn
        return drawn.decode()
    finally:
        os.close(ours)
