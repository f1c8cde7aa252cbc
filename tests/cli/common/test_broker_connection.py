"""A connection of our own to one broker, on FakeCluster: who gets in, and what is told of a broker that is away."""

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from safeproducer.cli.common.admin_settings import AdminSettings, AskError, admin_settings
from safeproducer.cli.common.broker_connection import BrokerConnection, log_in
from safeproducer.cli.common.producer_states import BrokerQuestions
from safeproducer.cli.common.settings import Setting
from safeproducer.cli.common.stop import Failure
from safeproducer.testing import FakeCluster
from tests.contract.support import wait_until

SECRET = "s3cr=t, with ünïcode"
USERS = {"alice": SECRET, "b=o,b": "pencil"}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture(scope="module")
def secure() -> Iterator[FakeCluster]:
    """TLS with certificates of clients, and users."""
    with FakeCluster(1, tls="mutual", users=USERS) as cluster:
        yield cluster


def named(cluster: FakeCluster, mechanism: str, user: str, password: str) -> dict[str, Setting]:
    certificate, key = cluster.client_files("doctor")
    return {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": cluster.ca_file or "",
        "ssl.certificate.location": certificate,
        "ssl.key.location": key,
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


def addresses(cluster: FakeCluster) -> dict[int, str]:
    return dict(enumerate(cluster.bootstrap.split(","), 1))


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("user", USERS)
def test_users_log_in_over_tls(secure: FakeCluster, mechanism: str, user: str) -> None:
    """With names and passwords of any characters; the journal knows who asked."""
    with BrokerQuestions(named(secure, mechanism, user, USERS[user]), addresses(secure), 10, "It") as questions:
        before = len(secure.journal("ListPartitionReassignments"))
        assert questions.moves() == {}
    (asked,) = secure.journal("ListPartitionReassignments")[before:]
    assert asked.user == user


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_told(secure: FakeCluster, mechanism: str) -> None:
    """In the broker's words, without the password, once."""
    before = len(secure.journal("SaslHandshake"))
    connection = BrokerConnection(
        addresses(secure)[1], admin_settings(named(secure, mechanism, "alice", "wrong-one")), 10
    )
    for _ in range(2):
        with pytest.raises(AskError, match=f"log-in by {mechanism} failed") as told:
            connection.request("ListPartitionReassignments", {})
        assert told.value.code == "SASL_AUTHENTICATION_FAILED"
        assert "wrong-one" not in str(told.value)
    assert len(secure.journal("SaslHandshake")) == before + 1
    connection.close()


def test_a_certificate_of_a_stranger_is_refused(secure: FakeCluster) -> None:
    """Nothing is sent to it, no password."""
    settings = named(secure, "PLAIN", "alice", SECRET)
    del settings["ssl.ca.location"]
    before = len(secure.journal())
    with pytest.raises(Failure, match=r"ssl\.ca\.location .*It was not read"):
        BrokerQuestions(settings, addresses(secure), 10, "It")
    assert len(secure.journal()) == before


def test_a_server_that_does_not_know_the_password_is_found_out() -> None:
    """It asks for few iterations, gives another nonce, or cannot sign."""
    told = {
        "few": "r={nonce}x,s=c2FsdA==,i=1",
        "another": "r=another,s=c2FsdA==,i=4096",
        "unsigned": "r={nonce}x,s=c2FsdA==,i=4096",
    }
    sent: list[bytes] = []
    for kind, challenge in told.items():

        def send(token: bytes, challenge: str = challenge) -> bytes:
            sent.append(token)
            if token.startswith(b"n,,"):
                return challenge.format(nonce=token.decode().partition(",r=")[2]).encode()
            return b"v=AAAA"

        sent.clear()
        with pytest.raises(ValueError, match="the broker"):
            log_in(AdminSettings("c", mechanism="SCRAM-SHA-256", username="u", password="p"), send)
        assert len(sent) == 1 + (kind == "unsigned")  # no proof for who is not Kafka


def test_a_mechanism_that_the_broker_does_not_offer(secure: FakeCluster) -> None:
    """It names those that are offered."""
    settings = admin_settings(named(secure, "PLAIN", "alice", SECRET))._replace(mechanism="SCRAM-SHA-1")
    connection = BrokerConnection(addresses(secure)[1], settings, 10)
    with pytest.raises(AskError, match="offers PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, not SCRAM-SHA-1"):
        connection.request("Metadata", {})
    connection.close()


# --- brokers that are not there ----------------------------------------------------------------------------------


def test_a_broker_that_hangs_costs_one_time_out() -> None:
    """However often it is asked."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        connection = BrokerConnection(f"127.0.0.1:{silent.getsockname()[1]}", AdminSettings("c"), 1.0)
        started = time.monotonic()
        for _ in range(8):
            with pytest.raises(AskError) as told:
                connection.request("Metadata", {})
            assert told.value.code == "_TIMED_OUT"
        assert time.monotonic() - started < 6
        connection.close()


def test_another_broker_answers_for_one_that_is_gone() -> None:
    """Nobody waits for the first as long as for all."""
    with FakeCluster(2) as cluster, socket.create_server(("127.0.0.1", 0)) as silent:
        silent_first = {0: f"127.0.0.1:{silent.getsockname()[1]}", **addresses(cluster)}
        started = time.monotonic()
        with BrokerQuestions({}, silent_first, 6, "It") as questions:
            assert time.monotonic() - started < 6  # it waits for the first half as long
            assert questions.moves() == {}
        with pytest.raises(Failure, match="It was not read"):
            BrokerQuestions({}, {1: "127.0.0.1:1"}, 2, "It")


def test_a_broker_that_goes_away_is_told() -> None:
    """At once, and again."""
    with FakeCluster(1) as cluster, BrokerQuestions({}, addresses(cluster), 10, "It") as questions:
        assert questions.moves() == {}
        cluster.stop(1)
        for _ in range(2):
            with pytest.raises(AskError) as told:
                questions.moves()
            assert told.value.code == "_TRANSPORT"


def test_closing_wakes_who_waits() -> None:
    """Ctrl-C ends a command while a broker is silent."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        connection = BrokerConnection(f"127.0.0.1:{silent.getsockname()[1]}", AdminSettings("c"), 60)
        ended: list[Any] = []

        def ask() -> None:
            with pytest.raises(AskError) as told:
                connection.request("Metadata", {})
            ended.append(told.value.code)

        thread = threading.Thread(target=ask)
        thread.start()
        peer, _ = silent.accept()
        with peer:
            wait_until(lambda: bool(peer.recv(1)), 10)  # its first request is sent
            connection.close()
            thread.join(20)
        assert ended == ["_TRANSPORT"]


def test_only_the_controller_knows_of_moves() -> None:
    """In clusters of old: the next broker is asked. An API that a broker does not have is told by its name."""
    with FakeCluster(2) as cluster:
        cluster.fail_next("ListPartitionReassignments", 41, broker=1)
        with BrokerQuestions({}, addresses(cluster), 10, "It") as questions:
            assert questions.moves() == {}
            asked = [entry.broker for entry in cluster.journal("ListPartitionReassignments")]
            assert asked == [1, 2]
            cluster.fail_next("ListPartitionReassignments", 31, broker=1)
            with pytest.raises(AskError) as told:  # a right is missing everywhere
                questions.moves()
            assert told.value.code == "CLUSTER_AUTHORIZATION_FAILED"
        connection = BrokerConnection(addresses(cluster)[1], AdminSettings("c"), 10)
        with pytest.raises(AskError) as told:
            connection.request("DescribeQuorum", {"topics": []})
        assert told.value.code == "UNSUPPORTED_VERSION"
        connection.close()


def test_a_partition_that_is_refused_is_alone() -> None:
    """One that has moved meanwhile is asked of the leader of now; a topic that is not there is not made."""
    with FakeCluster(2) as cluster:
        cluster.create_topic("t", partitions=2, replication_factor=1)
        cluster.create_topic("hidden")
        led, other = cluster.leader("t", 0)[0], 3 - cluster.leader("t", 0)[0]
        cluster.fail_next("DescribeProducers", 29, topic="hidden")
        with BrokerQuestions({}, addresses(cluster), 10, "It") as questions:
            found = questions.producers(other, [("t", 0), ("t", 1), ("hidden", 0), ("no-such-topic", 0)])
            refused = {tp: one.code for tp, one in found.items() if isinstance(one, AskError)}
            assert refused == {
                ("t", 0): "NOT_LEADER_FOR_PARTITION",
                ("hidden", 0): "TOPIC_AUTHORIZATION_FAILED",
                ("no-such-topic", 0): "UNKNOWN_TOPIC_OR_PART",
            }
            assert found["t", 1] == []
            assert questions.moved(found) == {("t", 0): []}
            assert [entry.broker for entry in cluster.journal("DescribeProducers")] == [other, led]
            assert questions.moved({("t", 1): []}) == {}
            cluster.stop(led)
            assert questions.moved(found) == {}
        assert not cluster.journal("CreateTopics")
