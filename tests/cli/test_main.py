"""The command's outer shell."""

import json
import subprocess
import sys
from typing import Any

from confluent_kafka import Producer

from safeproducer.testing import FakeCluster


def test_help_and_version_work_without_a_broker(command: Any) -> None:
    """Each help text has examples and the exit statuses; the version is that of the package."""
    assert command.run("--version").stdout.decode().startswith("safeproducer 0.")
    for subcommand in ("demo", "doctor", "replication"):
        text = command.run(subcommand, "--help").stdout.decode()
        assert "examples:" in text
        assert "exit status" in text
    bare = command.run()
    assert bare.returncode == 2
    assert bare.stderr.decode().count("\n") == 1


def test_what_the_command_line_refuses_has_a_way_out(command: Any) -> None:
    """The choices, or the kind of value; never the value itself, which may be a password."""
    for arguments, way_out in (
        (["s3cret"], "choose from 'demo', 'doctor'"),
        (["doctor", "--connect-timeout", "s3cret"], "it takes seconds"),
    ):
        done = command.run(*arguments)
        assert done.returncode == 2
        assert way_out in done.stderr.decode()
        assert b"s3cret" not in done.stderr


def test_doctor_and_replication_need_no_extra() -> None:
    """With --json they read a cluster with no other client, and none of the packages of the extra."""
    blocked = ("kafka", "aiokafka", "rich", "google_crc32c")
    program = f"import sys; sys.modules.update(dict.fromkeys({blocked}))\n"
    program += "from safeproducer.cli.main import main; sys.exit(main())"
    with FakeCluster(1) as cluster:
        cluster.create_topic("t")
        with Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True}) as producer:
            producer.produce("t", b"x")
            assert producer.flush(20) == 0
        named = ("--bootstrap-servers", cluster.bootstrap, "--json")
        for arguments in (("doctor", *named), ("replication", "status", *named, "--measure", "0")):
            line = [sys.executable, "-c", program, *arguments]
            done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
            assert (done.returncode, done.stderr) == (0, ""), done.stderr
            if "doctor" in arguments:
                assert json.loads(done.stdout)["topics"][0]["distinct_ids"] == 1
