"""Consumer groups in a test: members of all libraries at once, rebalances, coordinators and time on order."""

import asyncio
import threading
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import aiokafka  # type: ignore[import-untyped]
import aiokafka.coordinator.assignors.roundrobin  # type: ignore[import-untyped]
import pytest
from confluent_kafka import Consumer, Producer

from safeproducer.testing import FakeCluster
from tests.clusters import fake_cluster
from tests.conformance.target import Target
from tests.conformance.test_groups import Member, stable
from tests.testing.raw import RawClient, kafka_python

NOT_COORDINATOR, UNKNOWN_MEMBER, REBALANCING = 16, 25, 27
RECORDS, PARTITIONS = 300, 6


@pytest.fixture
def cluster(running: FakeCluster) -> FakeCluster:
    running.reset()
    running.create_topic("t", PARTITIONS)
    return running


def write(cluster: FakeCluster, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for number in numbers:
        producer.produce("t", str(number), partition=number % PARTITIONS)
    assert producer.flush(10) == 0


class Reader:
    """A member that reads on a thread of its own, until it is told to stop; then it commits and leaves."""

    def __init__(self, read: Callable[["Reader"], None]) -> None:
        self.found: list[int] = []
        self.stopped = threading.Event()
        self._thread = threading.Thread(target=read, args=(self,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self.stopped.set()
        self._thread.join(30)
        assert not self._thread.is_alive()


def with_confluent(cluster: FakeCluster) -> Reader:
    def read(reader: Reader) -> None:
        client = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "heartbeat.interval.ms": 200,
                "partition.assignment.strategy": "roundrobin",
                "log_level": 0,
            }
        )
        client.subscribe(["t"])
        while not reader.stopped.is_set():
            message = client.poll(0.05)
            if message is not None and message.error() is None:
                reader.found.append(int(message.value() or b""))
        client.close()

    return Reader(read)


def with_kafka_python(cluster: FakeCluster) -> Reader:
    kafka, assignors = kafka_python(), kafka_python("kafka.coordinator.assignors.roundrobin")

    def read(reader: Reader) -> None:
        client = kafka.KafkaConsumer(
            "t",
            bootstrap_servers=cluster.bootstrap,
            group_id="g",
            auto_offset_reset="earliest",
            heartbeat_interval_ms=200,
            session_timeout_ms=10_000,
            partition_assignment_strategy=[assignors.RoundRobinPartitionAssignor],
        )
        while not reader.stopped.is_set():
            for records in client.poll(50).values():
                reader.found += [int(record.value) for record in records]
        client.close()

    return Reader(read)


def with_aiokafka(cluster: FakeCluster) -> Reader:
    def read(reader: Reader) -> None:
        async def work() -> None:
            client = aiokafka.AIOKafkaConsumer(
                "t",
                bootstrap_servers=cluster.bootstrap,
                group_id="g",
                auto_offset_reset="earliest",
                heartbeat_interval_ms=200,
                partition_assignment_strategy=[aiokafka.coordinator.assignors.roundrobin.RoundRobinPartitionAssignor],
            )
            async with client:
                while not reader.stopped.is_set():
                    for records in (await client.getmany(timeout_ms=50)).values():
                        reader.found += [int(record.value) for record in records]

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # it asks asyncio for what is going away
            asyncio.run(work())

    return Reader(read)


def shared(cluster: FakeCluster, members: int) -> bool:
    """Whether all partitions are assigned, to so many members."""
    group = cluster.groups().get("g")
    if group is None or group.state != "Stable" or len(group.members) != members:
        return False
    return sorted(place for member in group.members for place in member.assignment) == [("t", n) for n in range(6)]


def read_up(cluster: FakeCluster, readers: list[Reader], wanted: range) -> None:
    cluster.wait(lambda c: len({*wanted}.difference(*(reader.found for reader in readers))) == 0, 30)


@pytest.mark.filterwarnings("ignore:read_text is deprecated")
def test_members_of_all_libraries_at_once(cluster: FakeCluster) -> None:
    """Three rebalances in between: each record is read; offsets survive the members, so nothing is read anew."""
    kafka_python("kafka.coordinator.assignors.roundrobin")  # where it is missing this ends before a member is there
    write(cluster, range(RECORDS))
    readers = [with_confluent(cluster)]
    cluster.wait(lambda c: shared(c, 1), 20)
    readers.append(with_kafka_python(cluster))
    cluster.wait(lambda c: shared(c, 2), 20)
    readers.append(with_aiokafka(cluster))
    cluster.wait(lambda c: shared(c, 3), 20)
    read_up(cluster, readers, range(RECORDS))
    generation = cluster.groups()["g"].generation
    cluster.rebalance("g")
    cluster.wait(lambda c: shared(c, 3) and c.groups()["g"].generation > generation, 20)
    before = sum(len(reader.found) for reader in readers)
    write(cluster, range(RECORDS, 2 * RECORDS))
    read_up(cluster, readers, range(2 * RECORDS))
    assert sum(len(reader.found) for reader in readers) == before + RECORDS  # nothing twice without a rebalance
    for reader in readers:
        reader.stop()
    left = cluster.groups()["g"]
    assert (left.state, left.members) == ("Empty", ())
    assert left.offsets == {("t", partition): 2 * RECORDS // PARTITIONS for partition in range(PARTITIONS)}
    assert set(left.lag.values()) == {0}
    write(cluster, range(2 * RECORDS, 2 * RECORDS + PARTITIONS))
    last = with_confluent(cluster)
    read_up(cluster, [last], range(2 * RECORDS, 2 * RECORDS + PARTITIONS))
    last.stop()
    assert min(Counter(last.found)) == 2 * RECORDS


def test_a_coordinator_that_moves_or_stops(cluster: FakeCluster) -> None:
    """Members find the new one, and go on in the generation they were in."""
    reader = with_confluent(cluster)
    cluster.wait(lambda c: shared(c, 1), 20)
    first = cluster.groups()["g"]
    moved = cluster.move_coordinator("g")
    assert moved != first.coordinator
    write(cluster, range(PARTITIONS))
    read_up(cluster, [reader], range(PARTITIONS))
    cluster.stop(moved)
    assert cluster.groups()["g"].coordinator not in (-1, moved)
    cluster.wait(lambda c: len(c.journal("Heartbeat", broker=c.groups()["g"].coordinator)) > 2, 20)
    assert cluster.groups()["g"].generation == first.generation
    reader.stop()
    assert cluster.groups()["g"].state == "Empty"


@pytest.fixture
def target(cluster: FakeCluster) -> Target:
    """The brokers by raw requests: the first one coordinates."""
    while cluster.move_coordinator("g") != 1:
        pass
    return Target("fake", cluster.bootstrap)


def test_time_can_be_moved_to_the_end_of_sessions(cluster: FakeCluster, target: Target) -> None:
    """Members that were not heard of are out at once."""
    with Member(target, "g") as one:
        stable(one)
        assert [member.client_id for member in cluster.groups()["g"].members] == ["member"]
        cluster.advance(5)
        assert one.heartbeat() == 0
        cluster.advance(6.5)
        assert cluster.groups()["g"].members == ()
        assert one.heartbeat() == UNKNOWN_MEMBER


def test_time_can_be_moved_to_the_end_of_a_rebalance(cluster: FakeCluster, target: Target) -> None:
    """Who waits for the others is answered without them."""
    with Member(target, "g") as one, Member(target, "g") as two:
        stable(one)
        two.get_id()
        two.post_join(session_timeout_ms=60_000, rebalance_timeout_ms=60_000)
        cluster.wait(lambda c: c.groups()["g"].state == "PreparingRebalance")
        cluster.advance(61)
        assert two.joined()["error_code"] == 0
        assert [member.id for member in cluster.groups()["g"].members] == [two.id]


def test_a_move_amid_a_rebalance(cluster: FakeCluster, target: Target) -> None:
    """Who waits at the old coordinator is sent to the new one."""
    with Member(target, "g") as one, Member(target, "g") as two:
        stable(one)
        two.get_id()
        two.post_join()
        cluster.wait(lambda c: c.groups()["g"].state == "PreparingRebalance")
        cluster.move_coordinator("g")
        assert two.joined()["error_code"] == NOT_COORDINATOR
        assert one.heartbeat() == NOT_COORDINATOR
        assert one.commit("t", 1) == NOT_COORDINATOR


def test_faults_reach_the_apis_of_groups(cluster: FakeCluster, target: Target) -> None:
    """By `api=`: an error without work, and work without an answer."""
    with Member(target, "g") as one:
        stable(one)
        for api, ask in (
            ("Heartbeat", one.heartbeat),
            ("OffsetCommit", lambda: one.commit("t", 1)),
            (
                "OffsetFetch",
                lambda: one.client.ask("OffsetFetch", 8, groups=[{"group_id": "g"}])["groups"][0]["error_code"],
            ),
            ("LeaveGroup", lambda: one.client.ask("LeaveGroup", 5, group_id="g", members=[])["error_code"]),
        ):
            cluster.fail_next(api, NOT_COORDINATOR)
            assert ask() == NOT_COORDINATOR
        cluster.fail_next("SyncGroup", NOT_COORDINATOR)
        assert one.sync()["error_code"] == NOT_COORDINATOR
        cluster.fail_next("JoinGroup", NOT_COORDINATOR)
        assert one.try_join()["error_code"] == NOT_COORDINATOR
        assert cluster.groups()["g"].offsets == {}
        one.generation = 1
        cluster.lose_acks(api="OffsetCommit")
        with pytest.raises(ConnectionError):
            one.commit("t", 7)
    assert cluster.groups()["g"].offsets == {("t", 0): 7}


def test_other_assignments_are_not_read(cluster: FakeCluster, target: Target) -> None:
    """Bytes of another protocol than `consumer` are shown as none."""
    for data in (b"", b"\0", b"\0\1\x7f\xff\xff\xff", b"\0\1\0\0\0\1\0\1\xff\0\0\0\0", b"\0\1\0\0\0\1\xff\xff"):
        with Member(target, "g") as one:
            one.get_id()
            one.try_join()
            one.sync({one.id: data})
            assert [member.assignment for member in cluster.groups()["g"].members] == [()]
            one.leave()


def test_wrong_orders_are_refused(cluster: FakeCluster) -> None:
    with pytest.raises(ValueError, match=r"group: there is no 'h', only \[\]"):
        cluster.rebalance("h")
    for broker in (2, 3):
        cluster.stop(broker)
    with pytest.raises(ValueError, match="no other broker lives"):
        cluster.move_coordinator("g")
    cluster.stop(1)
    cluster.start(1)


def test_a_stranger_is_sent_to_the_coordinator(cluster: FakeCluster, target: Target) -> None:
    """Each broker lists its own groups only."""
    with RawClient(cluster.bootstrap, 1) as right, RawClient(cluster.bootstrap, 2) as wrong:
        at = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
        right.ask("OffsetCommit", 9, group_id="g", topics=[{"name": "t", "partitions": [at]}])
        assert [len(client.ask("ListGroups", 4)["groups"]) for client in (right, wrong)] == [1, 0]
        assert wrong.ask("DescribeGroups", 5, groups=["g"])["groups"][0]["error_code"] == NOT_COORDINATOR
        assert wrong.ask("DeleteGroups", 1, groups_names=["g"])["results"][0]["error_code"] == NOT_COORDINATOR
        for version in (1, 5, 9):
            topics = [{"name": "t", "partition_indexes": [0]}]
            body: dict[str, Any] = {"group_id": "g", "topics": topics}
            answer = wrong.ask("OffsetFetch", version, **({"groups": [body]} if version > 7 else body))
            told = answer["groups"][0] if version > 7 else answer
            errors = [one["error_code"] for topic in told["topics"] for one in topic["partitions"]]
            expected = (NOT_COORDINATOR, []) if version > 1 else (0, [NOT_COORDINATOR])
            assert (told.get("error_code", 0), errors) == expected


running = fake_cluster({}, brokers=3, scope="module")
