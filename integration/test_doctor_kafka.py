"""``safeproducer doctor`` on real Kafka: what brokers remember, and what it says when it is not let in."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AclOperation, ResourceType, ScramMechanism  # type: ignore[attr-defined]

from integration.conftest import MARKER, Login, TopicFactory, properties
from integration.kafka.cluster import KafkaCluster
from integration.kafka.poll import until
from integration.kafka.security import PLAIN_PASSWORD, PLAIN_USER
from tests.cli.in_process import CommandHere

AT_ONCE = 30
ROOT = Path(__file__).resolve().parents[1]


PROGRAM = """
import sys, time
from safeproducer import SafeProducer
from safeproducer.producer_ids.ledger_places import Place
from safeproducer.producer_ids.ledger_reader import read_ledgers

bootstrap, topic, ledger, stays = sys.argv[1:]


def make():
    return SafeProducer({"bootstrap.servers": bootstrap, "log_level": 0, "safeproducer.producer.ids.per.hour": 3})


made = []
for _ in range(5):
    made.append(make())
    made[-1].produce(topic, b"x")
    made[-1].flush(30)
    if stays == "no":
        made[-1].close()
deadline = time.monotonic() + 30
while stays == "yes" and time.monotonic() < deadline:
    if all(one.producer_id is not None for found in read_ledgers(Place(ledger)) for one in found.records):
        break
    time.sleep(0.05)
"""


@pytest.fixture(autouse=True)
def ledger(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Each test has its own: what others took is not in it."""
    directory = str(tmp_path / "ledger")
    monkeypatch.setenv("SAFEPRODUCER_PRODUCER_IDS_LEDGER", directory)
    return directory


def doctor(exit_code: int, *arguments: str | Path) -> dict[str, Any]:
    """The report of a run that ends so, as JSON. In this process: another one takes a second to start."""
    done = CommandHere(Path.home()).run("doctor", *map(str, arguments), "--json")
    assert MARKER.encode() not in done.stdout + done.stderr
    assert b"Traceback" not in done.stderr
    assert done.returncode == exit_code, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert (found["command"], found["exit_code"]) == ("doctor", exit_code)
    return found


def codes(found: dict[str, Any]) -> list[tuple[str, str | None]]:
    """Code and topic of each finding."""
    return [(one["code"], one.get("topic")) for one in found["findings"]]


def write(bootstrap: str, topic: str, producers: int, records: int = 1, **settings: Any) -> None:
    """Records by each of so many new producers, some of which live at the same time: an ID takes half a second."""
    failed: list[Any] = []
    for start in range(0, producers, AT_ONCE):
        made = [
            Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0, **settings})
            for _ in range(min(AT_ONCE, producers - start))
        ]
        for number, producer in enumerate(made):
            for _ in range(records):
                producer.produce(topic, b"x", partition=number % 3, on_delivery=lambda error, _: failed.append(error))
        for producer in made:
            assert producer.flush(60) == 0
    assert failed == [None] * producers * records


def test_the_topic_that_is_flooded_is_named(kafka: KafkaCluster, topic: TopicFactory) -> None:
    """150 producers that wrote one record each: exit 1. One on another topic is none, and one that wrote 1 001 records
    is not small. The counts are those of DescribeProducers."""
    flooded, calm = topic(partitions=3), topic(partitions=3)
    write(kafka.bootstrap, flooded, 150)
    write(kafka.bootstrap, flooded, 1, records=1_001)
    write(kafka.bootstrap, calm, 1)
    found = doctor(1, "--bootstrap-servers", kafka.bootstrap)
    concerned = {flooded, calm}
    assert [one for one in codes(found) if one[1] in concerned] == [("producer-id-churn", flooded)]
    census = {one["topic"]: one for one in found["topics"]}
    assert (census[flooded]["distinct_ids"], census[flooded]["small_ids"]) == (151, 150)
    assert census[flooded]["busiest_hour"]["small_ids"] == 150
    assert (census[calm]["distinct_ids"], census[calm]["about_to_expire"]) == (1, 0)
    for number, one in enumerate(census[flooded]["partitions"]):
        assert one["ids"] == len(kafka.admin.requests.describe_producers(flooded, number))
    assert "__transaction_state" not in census


def test_an_intended_rate_is_no_finding(kafka: KafkaCluster, topic: TopicFactory) -> None:
    """safeproducer.producer.ids.per.hour of the configuration counts."""
    name = topic(partitions=3)
    write(kafka.bootstrap, name, 4)
    named = ("--bootstrap-servers", kafka.bootstrap, "--topic", name, "--config")
    assert codes(doctor(0, *named, "safeproducer.producer.ids.per.hour=4")) == []
    assert codes(doctor(1, *named, "safeproducer.producer.ids.per.hour=3")) == [("producer-id-churn", name)]


@pytest.mark.parametrize("stays", ["yes", "no"])
def test_ids_of_this_host_have_their_line(
    kafka: KafkaCluster, topic: TopicFactory, tmp_path: Path, ledger: str, stays: str
) -> None:
    """Five producers of one line, which stay until they know their IDs, or are closed at once: the line is named, and
    is not with --no-paths."""
    name, program = topic(), tmp_path / "secret_application.py"
    program.write_text(PROGRAM)
    line = [sys.executable, str(program), kafka.bootstrap, name, ledger, stays]
    subprocess.run(line, check=True, timeout=120, cwd=ROOT)
    rate = ("--config", "safeproducer.producer.ids.per.hour=3")
    arguments = ("--bootstrap-servers", kafka.bootstrap, "--topic", name, *rate)
    found = doctor(1, *arguments)
    assert codes(found) == [("producer-id-churn", name), ("host-over-limit", None)]
    assert all(f"{program}:11 in make" in one["message"] for one in found["findings"])
    (recorded,) = found["host"]["ledgers"]
    assert (recorded["name"], recorded["ids_in_hour"]) == (f"{kafka.bootstrap} as User:ANONYMOUS", 5)
    if stays == "yes":
        known = sorted(one.producer_id for one in kafka.admin.requests.describe_producers(name, 0))
        assert found["topics"][0]["of_this_host"] == [
            {"line": f"{program}:11 in make", "ids": 5, "producer_ids": known}
        ]
    assert "secret_application" not in json.dumps(doctor(1, *arguments, "--no-paths"))


def test_a_transactional_producer_is_counted_apart(kafka: KafkaCluster, topic: TopicFactory) -> None:
    """After its commit, and while its transaction is open."""
    name = topic(partitions=3)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": name, "log_level": 0})
    producer.init_transactions(30)
    for _ in range(2):
        producer.begin_transaction()
        producer.produce(name, b"x", partition=0)
        producer.commit_transaction(30)
    producer.begin_transaction()
    producer.produce(name, b"x", partition=1)
    producer.flush(30)
    (census,) = doctor(0, "--bootstrap-servers", kafka.bootstrap, "--topic", name)["topics"]
    assert (census["distinct_ids"], census["transactional_ids"], census["small_ids"]) == (1, 1, 0)
    producer.abort_transaction(30)


def test_time_outs_against_each_broker(kafka3: KafkaCluster, topic: TopicFactory, tmp_path: Path) -> None:
    """A broker that forgets after five minutes is named for a configuration of more, and differs from the others."""
    topic(partitions=3, on=kafka3)
    config = properties(tmp_path / "c", {"bootstrap.servers": kafka3.bootstrap})
    name = "producer.id.expiration.ms"
    kafka3.admin.set_broker_config({name: "300000"}, 2)
    try:
        until(
            lambda: kafka3.admin.configs(ResourceType.BROKER, "2")[name].value == "300000",
            "broker 2 has the expiration",
        )
        found = doctor(1, "--config-file", config)
        about = [(one["code"], one.get("broker")) for one in found["findings"] if one["code"].startswith("expiration")]
        assert about == [("expiration-below-timeout", 2), ("expiration-differs", None)]
        assert [one["expiration_seconds"] for one in found["brokers"]] == [86_400, 300, 86_400]
    finally:
        kafka3.admin.set_broker_config({name: None}, 2)


def test_a_broker_that_is_down(kafka3: KafkaCluster, topic: TopicFactory) -> None:
    """The partitions that it alone has are named; no traceback."""
    name = topic(partitions=3, on=kafka3)
    write(kafka3.bootstrap, name, 3)
    gone = kafka3.admin.requests.partitions(name)[0].leader
    kafka3.nodes[gone].kill()
    try:
        until(
            lambda: kafka3.admin.requests.partitions(name, kafka3.admin.requests.running()[0])[0].leader != gone,
            "the partition has lost its leader",
        )
        found = doctor(1, "--bootstrap-servers", kafka3.bootstrap, "--topic", name, "--connect-timeout", "5")
        assert ("partition-unreadable", name) in codes(found)
        (census,) = found["topics"]
        assert census["partitions"][0]["error"] is not None
        assert sum(one["ids"] for one in census["partitions"]) == 2
    finally:
        kafka3.nodes[gone].start()
        until(lambda: kafka3.admin.requests.partitions(name)[0].leader == gone, "the broker leads again", timeout=60)


# --- who is let in ----------------------------------------------------------------------------------------------------


@pytest.fixture
def secure_topic(kafka_secure: KafkaCluster, topic: TopicFactory) -> str:
    """A topic of the secure cluster with one producer ID in it."""
    name = topic(partitions=3, on=kafka_secure)
    write(kafka_secure.bootstrap, name, 1)
    return name


def test_without_any_right_there_are_findings(secure_topic: str, login: Login) -> None:
    """No topic is seen, no config told: findings that name the rights; so for a topic by its name."""
    found = doctor(1, "--config-file", login())
    assert ("expiration-unreadable", None) in codes(found)
    assert ("rights-missing", None) in codes(found)
    assert found["topics"] == []
    assert any("DESCRIBE_CONFIGS" in one["cure"] for one in found["findings"])
    named = doctor(1, "--config-file", login(), "--topic", secure_topic)
    assert ("rights-missing", secure_topic) in codes(named)


def test_describing_is_not_reading(kafka_secure: KafkaCluster, secure_topic: str, user: str, login: Login) -> None:
    """With DESCRIBE the topic is seen and READ is named as missing; with READ its IDs are counted."""
    kafka_secure.admin.add_acl(f"User:{user}", secure_topic, AclOperation.DESCRIBE)
    found = doctor(1, "--config-file", login())
    (finding,) = [one for one in found["findings"] if one.get("topic") == secure_topic]
    assert (finding["code"], "READ" in finding["cure"]) == ("rights-missing", True)
    kafka_secure.admin.add_acl(f"User:{user}", secure_topic, AclOperation.READ)
    census = {one["topic"]: one for one in doctor(1, "--config-file", login())["topics"]}
    assert census[secure_topic]["distinct_ids"] == 1


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "PLAIN"])
def test_other_ways_to_log_in(mechanism: str, kafka_secure: KafkaCluster, secure_topic: str, login: Login) -> None:
    """PLAIN and both SCRAM over TLS."""
    kafka_secure.admin.add_scram_user(PLAIN_USER, PLAIN_PASSWORD, ScramMechanism.SCRAM_SHA_256)
    kafka_secure.admin.add_acl(f"User:{PLAIN_USER}", secure_topic, AclOperation.READ)
    config = login(sasl_mechanism=mechanism, sasl_username=PLAIN_USER, sasl_password=PLAIN_PASSWORD)
    (census,) = doctor(1, "--config-file", config, "--topic", secure_topic)["topics"]
    assert census["distinct_ids"] == 1


def test_a_user_who_is_not_let_in_is_told_why(secure_topic: str, login: Login) -> None:
    """Exit 2, and the sentence that the other commands have; long before librdkafka would give up by itself."""
    for changes, words in (
        ({"sasl_password": "wrong"}, "refused the user name or the password"),
        ({"security_protocol": "SASL_PLAINTEXT"}, "security.protocol"),
        ({"bootstrap_servers": "127.0.0.1:1"}, "127.0.0.1:1"),
        ({"sasl_mechanism": "OAUTHBEARER"}, "OAUTHBEARER"),
    ):
        config, started = login(**changes), time.monotonic()
        found = doctor(2, "--config-file", config, "--connect-timeout", "4")
        assert words in found["error"]["message"]
        assert time.monotonic() - started < 30
