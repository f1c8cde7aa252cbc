"""The commands on real Kafka: what they deliver, and what they say when they are not let in."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]

from integration.conftest import MARKER, Login, TopicFactory
from integration.kafka.cluster import KafkaCluster
from integration.kafka.log import read_records
from integration.kafka.poll import until
from integration.kafka.security import EXPIRED, MISNAMED, SECURE
from safeproducer.kafka.readback import LogRecord, read_topic

Done = subprocess.CompletedProcess[bytes]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-W", "error", "-m", "safeproducer", *arguments]


def run(*arguments: str, stdin: bytes = b"", config_file: Path | None = None) -> Done:
    """Run the command; the configuration file is named by the environment."""
    environment = {**os.environ, **({"SAFEPRODUCER_CONFIG_FILE": str(config_file)} if config_file else {})}
    done = subprocess.run(
        command(*arguments), input=stdin, capture_output=True, timeout=120, check=False, env=environment
    )
    assert MARKER.encode() not in done.stdout + done.stderr
    assert b"Traceback" not in done.stderr or "--debug" in arguments
    return done


def log(cluster: KafkaCluster, topic: str, partitions: int) -> list[LogRecord]:
    """Every record of the topic, by partition and offset."""
    return sorted(
        read_topic({"bootstrap.servers": cluster.bootstrap}, topic, partitions), key=lambda record: record[:2]
    )


def test_produce_delivers_every_line(kafka: KafkaCluster, topic: TopicFactory, tmp_path: Path) -> None:
    """50 000 keyed lines of a file are in the log once each, in order within each key, headers and all."""
    name = topic(partitions=4)
    path = tmp_path / "lines"
    lines = [(f"k{number % 17}".encode(), str(number).encode()) for number in range(50_000)]
    path.write_bytes(b"".join(b"%s:%s\n" % line for line in lines))
    more = ["--key-separator", ":", "--header", "origin=test", "--json"]
    done = run("produce", "--bootstrap-servers", kafka.bootstrap, "--topic", name, *more, str(path))
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["sent"], summary["delivered"], summary["delivered_through_line"]) == (50_000, 50_000, 50_000)
    found = log(kafka, name, 4)
    assert sorted((record.key, record.value) for record in found) == sorted(lines)
    for key in {line[0] for line in lines}:
        numbers = [int(record.value or b"") for record in found if record.key == key]
        assert numbers == sorted(numbers)
    assert {tuple(record.headers or ()) for record in read_records(kafka.bootstrap, name)[0]} == {
        (("origin", b"test"),)
    }


def test_a_record_that_the_topic_refuses_fails_alone(kafka: KafkaCluster, topic: TopicFactory) -> None:
    """The topic takes 2 000 bytes, one line has 5 000: the broker refuses it, status 1, the others are there."""
    name = topic(configs={"max.message.bytes": "2000"})
    content = b"\n".join([b"one", b"x" * 5000, b"two"])
    # Records of one batch are refused together, so each gets a batch of its own here.
    alone = ["--config", "batch.num.messages=1"]
    done = run("produce", "--bootstrap-servers", kafka.bootstrap, "--topic", name, "--json", *alone, stdin=content)
    summary = json.loads(done.stdout)
    assert done.returncode == 1
    assert (summary["delivered"], summary["failed"], summary["left"]) == (2, 1, 0)
    assert [(error["code"], error["first_lines"]) for error in summary["errors"]] == [("MSG_SIZE_TOO_LARGE", [2])]
    assert [record.value for record in log(kafka, name, 1)] == [b"one", b"two"]


def test_ctrl_c_drains_and_names_the_line(kafka: KafkaCluster, topic: TopicFactory) -> None:
    """SIGINT in the middle of a stream: the log holds exactly the lines that the summary counts."""
    name = topic()
    arguments = ("produce", "--bootstrap-servers", kafka.bootstrap, "--topic", name, "--json")
    with subprocess.Popen(
        command(*arguments), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            assert process.stdin is not None
            process.stdin.write(b"".join(b"%d\n" % number for number in range(1, 2001)))
            process.stdin.flush()
            until(lambda: kafka.admin.end_offsets(name) == [2000], "2 000 records in the log")
            process.send_signal(signal.SIGINT)
            stdout, stderr = process.communicate(timeout=60)
        finally:
            process.kill()
    summary = json.loads(stdout)
    assert process.returncode == 130
    assert (summary["delivered"], summary["left"], summary["delivered_through_line"]) == (2000, 0, 2000)
    assert b"begins at line 2001 misses nothing" in stderr
    assert [record.value for record in log(kafka, name, 1)] == [b"%d" % number for number in range(1, 2001)]


def test_the_demo_is_flawless_and_cleans_up(kafka: KafkaCluster) -> None:
    """20 000 real lines over 10 partitions come back once each and in order; the topic is deleted."""
    done = run("demo", "--bootstrap-servers", kafka.bootstrap, "--partitions", "10", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    total = document["total"]
    assert (total["accepted"], total["delivered"], total["in_log"]) == (20_000, 20_000, 20_000)
    assert len(document["partitions"]) == 10
    assert document["limits"] == document["steps"] == []
    client: Any = kafka.admin.client
    until(lambda: document["topic"] not in client.list_topics(timeout=10).topics, "the topic is gone")


def test_the_demo_keeps_its_topic_when_asked(kafka: KafkaCluster) -> None:
    """--keep-topic leaves the records for inspection."""
    done = run("demo", "--bootstrap-servers", kafka.bootstrap, "--keep-topic", "--records", "100", "--json")
    assert done.returncode == 0, done.stderr
    name = json.loads(done.stdout)["topic"]
    assert sum(kafka.admin.end_offsets(name)) == 100
    kafka.admin.delete_topic(name)


def test_a_permitted_user_gets_through(
    kafka_secure: KafkaCluster, topic: TopicFactory, user: str, login: Login
) -> None:
    """SCRAM over TLS with the password in a properties file named by the environment."""
    name = topic(on=kafka_secure)
    kafka_secure.admin.add_acl(f"User:{user}", name, AclOperation.WRITE)
    done = run("produce", "--topic", name, "--json", stdin=b"a\nb\n", config_file=login())
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["delivered"] == 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sasl_username": "nobody"}, ["refused the user name or the password", "sasl.username"]),
        ({"sasl_mechanism": "SCRAM-SHA-256"}, ["refused the user name or the password", "sasl.mechanism"]),
        ({"ssl_ca_location": "other_ca"}, ["not signed by an authority", "ssl.ca.location"]),
        ({"bootstrap_servers": EXPIRED}, ["certificate", "out of date"]),
        ({"bootstrap_servers": MISNAMED}, ["certificate", "another host name"]),
        ({"security_protocol": "PLAINTEXT"}, ["security.protocol", "SASL_SSL"]),
        ({"security_protocol": "SASL_PLAINTEXT"}, ["security.protocol", "SASL_SSL"]),
        ({"security_protocol": "SSL"}, ["security.protocol", "SASL_SSL"]),
        ({"ssl_ca_location": "/no/such/ca.pem"}, ["ssl.ca.location", "file"]),
    ],
)
def test_who_is_not_let_in_is_told_why(
    changes: dict[str, str],
    words: list[str],
    kafka_secure: KafkaCluster,
    topic: TopicFactory,
    login: Login,
) -> None:
    """Wrong user, authority, certificate or protocol: one sentence with the cause within seconds, nothing sent."""
    name = topic(on=kafka_secure)
    certificates = kafka_secure.certificates
    assert certificates is not None
    real = {"other_ca": str(certificates.other_ca)} | {
        listener: kafka_secure.tls_bootstrap(listener) for listener in (SECURE, EXPIRED, MISNAMED)
    }
    config = login(**{setting: real.get(value, value) for setting, value in changes.items()})
    started = time.monotonic()
    done = run("produce", "--topic", name, "--connect-timeout", "5", "--json", stdin=b"x\n", config_file=config)
    text = done.stderr.decode()
    assert done.returncode == 2, text
    assert time.monotonic() - started < 20
    for word in words:
        assert word in text
    assert text.count("\n") == 1
    assert sum(kafka_secure.admin.end_offsets(name)) == 0


def test_a_wrong_password_is_told_and_not_shown(kafka_secure: KafkaCluster, topic: TopicFactory, login: Login) -> None:
    """The sentence names the setting, never the password, well before the time to connect is over."""
    name = topic(on=kafka_secure)
    started = time.monotonic()
    wrong = ("--config", f"sasl.password=wrong-{MARKER}")
    arguments = ("--topic", name, "--connect-timeout", "60", *wrong, "--debug")
    done = run("produce", *arguments, stdin=b"x\n", config_file=login())
    assert done.returncode == 2
    assert time.monotonic() - started < 20
    assert b"refused the user name or the password" in done.stderr
    assert b"put it into a --config-file" in done.stderr


def test_missing_rights_are_told(kafka_secure: KafkaCluster, topic: TopicFactory, user: str, login: Login) -> None:
    """No right: nothing is sent. Only DESCRIBE: the first refusal ends the run, and a file is not read to its end."""
    unseen, seen, own = (topic(on=kafka_secure) for _ in range(3))
    done = run("produce", "--topic", unseen, "--json", stdin=b"x\n", config_file=login())
    assert done.returncode == 2
    assert b"may not write to the topic" in done.stderr
    assert json.loads(done.stdout)["error"]["code"] == "TOPIC_AUTHORIZATION_FAILED"

    kafka_secure.admin.add_acl(f"User:{user}", own, AclOperation.WRITE)
    kafka_secure.admin.add_acl(f"User:{user}", seen, AclOperation.DESCRIBE)
    content = b"x\n" * 2_000_000
    done = run("produce", "--topic", seen, "--json", stdin=content, config_file=login())
    summary = json.loads(done.stdout)
    assert done.returncode == 1
    assert b"may not write to the topic" in done.stderr
    assert summary["delivered"] == 0
    assert 0 < summary["failed"] < 2_000_000
    assert summary["errors"][0]["code"] == "TOPIC_AUTHORIZATION_FAILED"


def test_a_user_who_may_write_nowhere_is_told(kafka_secure: KafkaCluster, topic: TopicFactory, login: Login) -> None:
    """With DESCRIBE and no WRITE at all the idempotent producer itself is refused: a fatal error, at once."""
    kafka_secure.admin.add_scram_user("cli-reader", MARKER)
    name = topic(on=kafka_secure)
    kafka_secure.admin.add_acl("User:cli-reader", name, AclOperation.DESCRIBE)
    started = time.monotonic()
    done = run("produce", "--topic", name, "--json", stdin=b"x\n" * 10, config_file=login(sasl_username="cli-reader"))
    assert done.returncode == 1, done.stderr
    assert time.monotonic() - started < 20
    assert b"may write to no topic" in done.stderr
    assert json.loads(done.stdout)["delivered"] == 0


def test_a_missing_topic_is_told(kafka: KafkaCluster) -> None:
    """The brokers create no topics on their own: the sentence says to create it, within seconds."""
    started = time.monotonic()
    done = run("produce", "--bootstrap-servers", kafka.bootstrap, "--topic", "no-such-topic", stdin=b"x\n")
    assert done.returncode == 2
    assert time.monotonic() - started < 15
    assert b"no-such-topic" in done.stderr
    assert b"does not exist" in done.stderr
