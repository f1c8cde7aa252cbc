"""The demo on real Kafka: what it delivers, and what it says when it is not let in."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from integration.conftest import MARKER, Login
from integration.kafka.cluster import KafkaCluster
from integration.kafka.poll import until
from integration.kafka.security import EXPIRED, MISNAMED, SECURE

Done = subprocess.CompletedProcess[bytes]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-W", "error", "-m", "safeproducer", *arguments]


def run(*arguments: str, config_file: Path | None = None) -> Done:
    """Run the command; the configuration file is named by the environment."""
    environment = {**os.environ, **({"SAFEPRODUCER_CONFIG_FILE": str(config_file)} if config_file else {})}
    done = subprocess.run(command(*arguments), capture_output=True, timeout=120, check=False, env=environment)
    assert MARKER.encode() not in done.stdout + done.stderr
    assert b"Traceback" not in done.stderr or "--debug" in arguments
    return done


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
def test_a_user_who_is_not_let_in_is_told_why(
    changes: dict[str, str], words: list[str], kafka_secure: KafkaCluster, login: Login
) -> None:
    """Wrong user, authority, certificate or protocol: one sentence with the cause within seconds."""
    certificates = kafka_secure.certificates
    assert certificates is not None
    real = {"other_ca": str(certificates.other_ca)} | {
        listener: kafka_secure.tls_bootstrap(listener) for listener in (SECURE, EXPIRED, MISNAMED)
    }
    config = login(**{setting: real.get(value, value) for setting, value in changes.items()})
    started = time.monotonic()
    done = run("demo", "--records", "1", "--connect-timeout", "5", "--json", config_file=config)
    text = done.stderr.decode()
    assert done.returncode == 2, text
    assert time.monotonic() - started < 20
    for word in words:
        assert word in text
    assert text.count("\n") == 1


def test_a_wrong_password_is_told_and_not_shown(kafka_secure: KafkaCluster, login: Login) -> None:
    """The sentence names the setting, never the password, well before the time to connect is over."""
    started = time.monotonic()
    wrong = ("--config", f"sasl.password=wrong-{MARKER}")
    arguments = ("--records", "1", "--connect-timeout", "60", *wrong, "--debug")
    done = run("demo", *arguments, config_file=login())
    assert done.returncode == 2
    assert time.monotonic() - started < 20
    assert b"refused the user name or the password" in done.stderr
    assert b"put it into a --config-file" in done.stderr
