"""``safeproducer doctor`` as a person runs it, on FakeCluster."""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from safeproducer import SafeProducer
from safeproducer.cli.doctor import checks
from safeproducer.policy.permits import Kind
from safeproducer.producer_ids.guard import guard_of
from safeproducer.producer_ids.ledger_places import Place
from safeproducer.producer_ids.ledger_reader import read_ledgers
from safeproducer.producer_ids.permit import Claim
from safeproducer.records import CallSite
from safeproducer.testing import FakeCluster
from tests.cli.in_process import CommandHere
from tests.contract.support import wait_until

TOPIC_AUTHORIZATION_FAILED = 29
CLUSTER_AUTHORIZATION_FAILED = 31
KEYS = ["brokers", "command", "exit_code", "findings", "host", "topics"]


@pytest.fixture(autouse=True)
def ledger(command: Any, here: CommandHere, tmp_path: Path) -> str:
    """The command's own: what other tests took is not in it."""
    directory = str(tmp_path / "ledger")
    for one in (command, here):
        one.environment["SAFEPRODUCER_PRODUCER_IDS_LEDGER"] = directory
    return directory


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    """Two brokers. The topic "calm" has one producer, "churned" five."""
    with FakeCluster(brokers=2) as cluster:
        cluster.create_topic("calm", partitions=2)
        cluster.create_topic("churned", partitions=3)
        write(cluster, "calm", 1)
        write(cluster, "churned", 5)
        yield cluster


def write(cluster: FakeCluster, topic: str, producers: int) -> None:
    """One record by each of so many producers, which live at the same time: that is faster."""
    made = [
        Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "log_level": 0})
        for _ in range(producers)
    ]
    failed: list[Any] = []
    for number, producer in enumerate(made):
        producer.produce(topic, b"x", partition=number % 2, on_delivery=lambda error, _: failed.append(error))
    assert not sum(producer.flush(20) for producer in made)
    assert failed == [None] * producers


def document(done: Any, exit_code: int) -> dict[str, Any]:
    """What the command wrote as JSON."""
    assert done.returncode == exit_code, done.stderr
    assert b"Traceback" not in done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["exit_code"] == exit_code
    assert sorted(set(found) - {"error"}) == KEYS
    return found


def properties(path: Path, **settings: str) -> str:
    """A configuration file."""
    path.write_text("".join(f"{name} = {value}\n" for name, value in settings.items()))
    return str(path)


def test_a_topic_that_is_flooded_is_named_alone(command: Any, cluster: FakeCluster) -> None:
    """Five IDs in an hour of which three are allowed: exit 1; one is no churn. Counts are told of every partition."""
    allowed = ["--config", "safeproducer.producer.ids.per.hour=3"]
    found = document(command.run("doctor", "--bootstrap-servers", cluster.bootstrap, *allowed, "--json"), 1)
    assert [(one["code"], one["severity"], one["topic"]) for one in found["findings"]] == [
        ("producer-id-churn", "warning", "churned")
    ]
    churned = next(one for one in found["topics"] if one["topic"] == "churned")
    assert (churned["ids"], churned["distinct_ids"], churned["small_ids"]) == (5, 5, 5)
    assert churned["busiest_hour"]["small_ids"] == 5
    assert [one["ids"] for one in churned["partitions"]] == [3, 2, 0]
    assert 0 <= churned["idle_seconds"]["shortest"] < 600
    assert [one["expiration_seconds"] for one in found["brokers"]] == [86_400, 86_400]


def test_all_is_well_within_the_rate(command: Any, cluster: FakeCluster) -> None:
    """Exit 0 with the default of 100; the tables name both topics."""
    done = command.run("doctor", "--bootstrap-servers", cluster.bootstrap)
    text = done.stdout.decode()
    assert done.returncode == 0, done.stderr
    assert "churned" in text
    assert "calm" in text
    assert "Nothing was found." in text
    assert done.stderr == b""


def test_one_topic_by_partition(here: CommandHere, cluster: FakeCluster) -> None:
    """--topic takes the others out, and shows partitions."""
    arguments = ("doctor", "--bootstrap-servers", cluster.bootstrap, "--topic", "churned")
    assert [one["topic"] for one in document(here.run(*arguments, "--json"), 0)["topics"]] == ["churned"]
    text = here.run(*arguments).stdout.decode()
    assert "partition" in text
    assert "calm" not in text


def test_a_topic_that_does_not_exist(here: CommandHere, cluster: FakeCluster) -> None:
    """Exit 2 with its name and the nearest one, and the topic is not made by asking."""
    found = document(here.run("doctor", "--bootstrap-servers", cluster.bootstrap, "--topic", "missing", "--json"), 2)
    assert found["error"]["message"].startswith("Topic missing: ")
    asked = "--topic", "chruned", "--topic", "calm"
    near = document(here.run("doctor", "--bootstrap-servers", cluster.bootstrap, *asked, "--json"), 2)
    assert near["error"]["message"].startswith("Topic chruned (nearest name: 'churned'): ")
    assert [one["topic"] for one in near["topics"]] == ["calm"]  # what can be read is shown all the same
    everything = document(here.run("doctor", "--bootstrap-servers", cluster.bootstrap, "--json"), 0)
    assert "missing" not in [one["topic"] for one in everything["topics"]]


def test_doctor_takes_no_producer_id_and_writes_nothing(
    here: CommandHere, cluster: FakeCluster, tmp_path: Path
) -> None:
    """Not even with the configuration of a transactional producer."""
    config = properties(tmp_path / "c", **{"bootstrap.servers": cluster.bootstrap, "transactional.id": "app-1"})
    before = len(cluster.journal())
    document(here.run("doctor", "--config-file", config, "--json"), 0)
    asked = {entry.api for entry in cluster.journal()[before:]}
    assert "DescribeProducers" in asked
    questions = {"Metadata", "DescribeConfigs", "DescribeProducers", "DescribeCluster", "ListPartitionReassignments"}
    questions |= {"ListTransactions", "DescribeTransactions"}
    assert asked <= {"ApiVersions"} | questions


def test_time_outs_against_each_broker(here: CommandHere, tmp_path: Path) -> None:
    """One broker remembers for five minutes, shorter than a record may be under way: it alone is named, and that the
    brokers differ. Without a configuration nothing is known of time-outs."""
    with FakeCluster(brokers=2) as cluster:
        cluster.create_topic("t", partitions=2)
        cluster.set_broker_config(2, "producer.id.expiration.ms", "300000")
        config = properties(tmp_path / "c", **{"bootstrap.servers": cluster.bootstrap})
        found = document(here.run("doctor", "--config-file", config, "--json"), 1)
        assert [(one["code"], one.get("broker")) for one in found["findings"]] == [
            ("expiration-below-timeout", 2),
            ("expiration-differs", None),
        ]
        assert "430 s" in found["findings"][0]["message"]
        found = document(here.run("doctor", "--bootstrap-servers", cluster.bootstrap, "--json"), 1)
        assert [one["code"] for one in found["findings"]] == ["expiration-differs"]
        safe = ["--config", "message.timeout.ms=30000", "--config", "socket.timeout.ms=10000"]
        found = document(here.run("doctor", "--config-file", config, *safe, "--json"), 1)
        assert [one["code"] for one in found["findings"]] == ["expiration-differs"]


def test_an_info_is_no_finding(here: CommandHere) -> None:
    """That a ledger is switched off is what was asked for."""
    here.environment["SAFEPRODUCER_PRODUCER_IDS_LEDGER"] = "off"
    found = document(here.run("doctor", "--json"), 0)
    assert [(one["code"], one["severity"]) for one in found["findings"]] == [("ledger-not-kept", "info")]


def test_an_open_transaction_is_named(here: CommandHere, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the partitions that its readers wait for, of the topics that were asked for."""
    monkeypatch.setattr(checks, "_OPEN_FOR", 0.0)
    with FakeCluster(brokers=2) as cluster:
        for name in ("t", "u", "v"):
            cluster.create_topic(name, partitions=1)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "orders-3", "log_level": 0})
        producer.init_transactions(20)
        producer.begin_transaction()
        for name in ("t", "u"):
            producer.produce(name, b"x")
        assert producer.flush(20) == 0
        for name, topics in ((None, "t [0], u [0]"), ("u", "u [0]"), ("v", "")):
            named = () if name is None else ("--topic", name)
            found = document(here.run("doctor", "--bootstrap-servers", cluster.bootstrap, *named, "--json"), 0)
            messages = [one["message"] for one in found["findings"] if one["code"] == "transaction-open"]
            assert [f"up for as long: {topics}. Its transaction.timeout.ms is 1 min." in one for one in messages] == (
                [True] if topics else []
            )
        producer.commit_transaction(20)
        found = document(here.run("doctor", "--bootstrap-servers", cluster.bootstrap, "--json"), 0)
        assert [one["code"] for one in found["findings"]] == []


def test_topics_of_kafka_itself_are_left_out(here: CommandHere) -> None:
    """Coordinators write to them with the IDs of others; who names one sees it."""
    with FakeCluster(brokers=1) as cluster:
        for name in ("__transaction_state", "t"):
            cluster.create_topic(name, partitions=1)
        found = document(here.run("doctor", "--bootstrap-servers", cluster.bootstrap, "--json"), 0)
        assert [one["topic"] for one in found["topics"]] == ["t"]
        named = ("--topic", "__transaction_state", "--json")
        found = document(here.run("doctor", "--bootstrap-servers", cluster.bootstrap, *named), 0)
        assert [one["topic"] for one in found["topics"]] == ["__transaction_state"]


def test_ids_of_this_host_have_their_line(here: CommandHere) -> None:
    """Brokers know no line of code; the ledger does, and both are joined by the number of the ID."""
    ledger = here.environment["SAFEPRODUCER_PRODUCER_IDS_LEDGER"]
    with FakeCluster(brokers=1) as cluster, contextlib.ExitStack() as open_:
        cluster.create_topic("t", partitions=1)
        config = {"bootstrap.servers": cluster.bootstrap, "log_level": 0, "safeproducer.producer.ids.ledger": ledger}
        for _ in range(4):
            producer = open_.enter_context(SafeProducer(config))
            producer.produce("t", b"x")
            assert producer.flush(20) == 0
        wait_until(lambda: all(one.producer_id is not None for one in read_ledgers(Place(ledger))[0].records))
        allowed = ["--config", "safeproducer.producer.ids.per.hour=3"]
        found = document(here.run("doctor", "--bootstrap-servers", cluster.bootstrap, *allowed, "--json"), 1)
    churn = next(one for one in found["findings"] if one["code"] == "producer-id-churn")
    assert f"This host's ledger knows where some come from: 4 from {__file__}:" in churn["message"]
    assert [one["asked"] for one in found["host"]["ledgers"]] == [True]
    (of_host,) = found["topics"][0]["of_this_host"]
    assert (of_host["ids"], len(set(of_host["producer_ids"]))) == (4, 4)


def test_doctor_makes_no_directory(command: Any, cluster: FakeCluster, tmp_path: Path) -> None:
    """That a configuration names a directory for the ledger, or a variable does, is no reason to make it."""
    named = tmp_path / "named"
    setting = {"bootstrap.servers": cluster.bootstrap, "safeproducer.producer.ids.ledger": str(named)}
    config = properties(tmp_path / "c", **setting)
    document(command.run("doctor", "--config-file", config, "--json"), 0)
    command.environment["SAFEPRODUCER_PRODUCER_IDS_LEDGER"] = f"{named}/"
    document(command.run("doctor", "--json"), 0)
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_ids_that_are_about_to_expire(here: CommandHere) -> None:
    """Those that have 50 minutes left of a day, and of no other."""
    with FakeCluster(brokers=1, broker_config={"producer.id.expiration.ms": "3000000"}) as cluster:
        cluster.create_topic("t", partitions=2)
        write(cluster, "t", 2)
        found = document(here.run("doctor", "--bootstrap-servers", cluster.bootstrap, "--json"), 0)
        assert (found["topics"][0]["about_to_expire"], found["topics"][0]["small_ids"]) == (2, 2)


def test_without_rights_there_are_findings(here: CommandHere) -> None:
    """A leader that refuses a topic: no traceback, and the other topic is counted."""
    with FakeCluster(brokers=1) as cluster:
        cluster.create_topic("hidden", partitions=2)
        cluster.create_topic("shown", partitions=2)
        write(cluster, "hidden", 2)
        write(cluster, "shown", 2)
        cluster.fail_next("DescribeProducers", TOPIC_AUTHORIZATION_FAILED, 50, topic="hidden")
        found = document(here.run("doctor", "--bootstrap-servers", cluster.bootstrap, "--json"), 1)
        assert [(one["code"], one["topic"]) for one in found["findings"]] == [("rights-missing", "hidden")]
        assert {one["topic"]: one["distinct_ids"] for one in found["topics"]} == {"hidden": 0, "shown": 2}


def test_brokers_that_do_not_show_their_configs(here: CommandHere) -> None:
    """The right is named, and what is assumed."""
    with FakeCluster(brokers=1) as cluster:
        cluster.fail_next("DescribeConfigs", CLUSTER_AUTHORIZATION_FAILED)
        found = document(here.run("doctor", "--bootstrap-servers", cluster.bootstrap, "--json"), 1)
        assert [(one["code"], one["severity"]) for one in found["findings"]] == [
            ("expiration-unreadable", "warning"),
            ("rights-missing", "warning"),
            ("rights-missing", "info"),
        ]
        assert found["brokers"][0]["expiration_seconds"] is None
        cluster.fail_next("DescribeConfigs", CLUSTER_AUTHORIZATION_FAILED)
        given = "--config", "safeproducer.expiry.ms=90000000"
        found = document(here.run("doctor", "--bootstrap-servers", cluster.bootstrap, *given, "--json"), 1)
        assert "safeproducer.expiry.ms is taken: 90000000." in found["findings"][0]["message"]


def test_no_broker_answers_at_the_address(command: Any) -> None:
    """Exit 2 within the time to connect; what this host knows is shown all the same."""
    started = time.monotonic()
    command.run("doctor", "--json")
    bare, started = time.monotonic() - started, time.monotonic()
    done = command.run("doctor", "--bootstrap-servers", "127.0.0.1:1", "--connect-timeout", "2", "--json")
    found = document(done, 2)
    assert time.monotonic() - started < 2 + bare + max(4.0, bare)  # a busy machine may be busier by now
    assert "127.0.0.1:1" in found["error"]["message"]
    assert found["brokers"] == found["topics"] == []


def test_a_thousand_partitions_on_a_long_link(here: CommandHere) -> None:
    """Within 30 s, with 100 ms for each answer."""
    with FakeCluster(brokers=3) as cluster:
        cluster.create_topic("wide", partitions=500)
        for number in range(250):
            cluster.create_topic(f"t{number}", partitions=2)
        cluster.delay(0.1)
        started = time.monotonic()
        found = document(here.run("doctor", "--bootstrap-servers", cluster.bootstrap, "--json"), 0)
        assert time.monotonic() - started < 30
        assert sum(len(one["partitions"]) for one in found["topics"]) == 1_000


def test_without_brokers_the_host_alone(here: CommandHere) -> None:
    """Exit 0, no error."""
    found = document(here.run("doctor", "--json"), 0)
    assert found["brokers"] == found["topics"] == []
    assert here.run("doctor").returncode == 0


def test_a_host_that_has_used_up_its_hour(here: CommandHere, ledger: str) -> None:
    """Exit 1 without any broker, with the line that took the IDs; with --no-paths without it."""
    guard = guard_of(("k1:9092", "User:a"), Place(ledger))
    for _ in range(4):
        guard.ask(Claim(Kind.FIRST, 3, False, CallSite("/srv/secret.py", 7, "main")))
    found = document(here.run("doctor", "--config", "safeproducer.producer.ids.per.hour=3", "--json"), 1)
    assert [one["code"] for one in found["findings"]] == ["host-over-limit"]
    (kept,) = found["host"]["ledgers"]
    assert (kept["ids_in_hour"], kept["next_in_seconds"] > 0) == (4, True)
    assert {one["line"] for one in kept["ids"]} == {"/srv/secret.py:7 in main"}
    hidden = here.run("doctor", "--config", "safeproducer.producer.ids.per.hour=3", "--no-paths")
    assert hidden.returncode == 1
    assert b"secret" not in hidden.stdout + hidden.stderr
    assert b"line 1" in hidden.stdout


def test_wrong_usage(here: CommandHere) -> None:
    """One sentence each, exit 2, and JSON all the same."""
    for arguments, words in (
        (["--topic", "t"], "--topic needs brokers"),
        (["--bootstrap-servers", "127.0.0.1:1", "--config", "safeproducer.mode=x"], "safeproducer.mode"),
        (["--bootstrap-servers", "127.0.0.1:1", "--config", "no.such=x"], "no.such"),
    ):
        done = here.run("doctor", *arguments, "--json")
        assert done.returncode == 2
        assert words in json.loads(done.stdout)["error"]["message"]
        assert done.stderr.decode().count("\n") == 1


def test_a_mechanism_that_is_not_translated(command: Any, tmp_path: Path) -> None:
    """A sentence that names it and those that are, no traceback, no password."""
    settings = {
        "bootstrap.servers": "127.0.0.1:1",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.password": "MARKER-s3cret",
    }
    config = properties(tmp_path / "c", **settings)
    done = command.run("doctor", "--config-file", config, "--connect-timeout", "1", "--json")
    found = document(done, 2)
    assert "OAUTHBEARER" in found["error"]["message"]
    assert b"MARKER" not in done.stdout + done.stderr


def test_ctrl_c_ends_it_at_once(command: Any) -> None:
    """While leaders do not answer; exit 130, no traceback."""
    with FakeCluster(brokers=1) as cluster:
        cluster.create_topic("t", partitions=10)
        cluster.delay(60, api="DescribeProducers")
        arguments = ("--bootstrap-servers", cluster.bootstrap, "--connect-timeout", "60", "--json")
        process = command.start("doctor", *arguments)
        cluster.wait(lambda seen: any(one.api == "DescribeProducers" for one in seen.journal()), 30)
        started = time.monotonic()
        os.kill(process.pid, signal.SIGINT)
        stderr = process.communicate(timeout=20)[1]
        assert time.monotonic() - started < 10
        assert process.returncode == 130
        assert b"Traceback" not in stderr
        cluster.delay(0)


def test_a_follower_that_hangs_is_named_at_once(command: Any) -> None:
    """Others answer, so nobody waits for it as long as for the first answer of all."""
    with FakeCluster() as cluster:
        cluster.create_topic("t", replication_factor=3)
        leader, _ = cluster.leader("t")
        hung = next(broker for broker in cluster.brokers if broker != leader)
        cluster.delay(600, broker=hung)
        started = time.monotonic()
        done = command.run("doctor", "--bootstrap-servers", cluster.bootstrap, "--connect-timeout", "60", "--json")
        took = time.monotonic() - started
        findings = {one["code"]: one for one in document(done, 1)["findings"]}
        assert findings["broker-silent"]["broker"] == hung
        assert "t [0]" in findings["broker-silent"]["message"]
        assert "expiration-unreadable" not in findings
        assert took < 30
        cluster.delay(0)


def test_progress_is_drawn_on_a_terminal_alone(command: Any) -> None:
    """While leaders are slow: how many partitions are read. Nothing of it with --quiet."""
    with FakeCluster(brokers=1) as cluster:
        cluster.create_topic("t", partitions=300)
        cluster.delay(0.4, api="DescribeProducers")
        asked = ("doctor", "--bootstrap-servers", cluster.bootstrap, "--json")
        status, seen = command.on_terminal(*asked, stdout=subprocess.DEVNULL)
        assert status == 0
        assert "reading producer IDs" in seen
        assert "300 partitions" in seen
        assert "partitions" not in command.on_terminal(*asked, "--quiet", stdout=subprocess.DEVNULL)[1]


CAUSES = {"replicas": "replication", "hangs": "leader_silent", "no topic": "unknown_topic", "away": "client_error"}


@pytest.mark.parametrize("situation", CAUSES)
def test_doctor_and_a_producer_tell_one_cause(command: Any, situation: str) -> None:
    """By one code."""
    with FakeCluster(brokers=3) as own:
        own.create_topic("t", 1, replication_factor=3, config={"min.insync.replicas": "2"})
        boot, leader, cause = own.bootstrap, own.leader("t")[0], CAUSES[situation]
        topic = "other" if situation == "no topic" else "t"
        with SafeProducer({"bootstrap.servers": boot, "log_level": 0}) as producer:
            producer.produce("t", b"x")
            assert producer.flush(20) == 0
            stopped = {"replicas": {1, 2, 3} - {leader}, "away": {1, 2, 3}}
            for broker in stopped.get(situation, ()):
                own.stop(broker)
            if situation == "hangs":
                own.pause(leader)

            def told() -> bool:
                producer.produce(topic, b"x")
                producer.poll(0.05)
                return cause in {reason.code for reason in producer.health(unresolved_for=0.5).reasons}

            wait_until(told, 30)
            asked = "doctor", "--bootstrap-servers", boot, "--topic", topic, "--connect-timeout", "5", "--json"
            found = json.loads(command.run(*asked).stdout)
            producer.purge()
    causes = {one.get("cause") for one in found["findings"]} | {found.get("error", {}).get("cause")}
    assert causes - {None} == {cause}, found["findings"]
