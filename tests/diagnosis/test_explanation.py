"""explain() names as the cause what holds now, and tells what is over as over."""

import contextlib
import dataclasses
import re
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from safeproducer import HoldReason, PartitionSnapshot, SafeProducer
from safeproducer.errors import FatalError
from safeproducer.pipeline.inspection import explanation
from safeproducer.policy.diagnosis import Located
from safeproducer.testing import FakeCluster
from tests.contract.support import poll_until as wait
from tests.inside import engine_of

Make = Callable[..., SafeProducer]
Plant = Callable[[SafeProducer], None]

OVER = "Over by now, and not the cause:"
MODES = ("auto", "held", "passthrough")
TOLD_BY_STATISTICS = ("auto", "held")
"""Where statistics tell that a broker is connected again."""
LONG_MS, SHORT_MS = 30_000, 200


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """Two brokers; partition 0 of "t" is led by broker 1, partition 1 by broker 2."""
    with FakeCluster(brokers=2) as made:
        made.create_topic("t", partitions=2, replication_factor=1)
        assert [made.leader("t", partition)[0] for partition in (0, 1)] == [1, 2]
        yield made


@pytest.fixture
def make(cluster: FakeCluster) -> Iterator[Make]:
    """Make a producer in this mode that both brokers have acknowledged a record of."""
    made: list[SafeProducer] = []

    def build(mode: str = "auto", **more: Any) -> SafeProducer:
        config: dict[str, Any] = {"safeproducer.mode": mode, "reconnect.backoff.max.ms": 200, **more}
        producer = SafeProducer({"bootstrap.servers": cluster.bootstrap, "log_level": 0, **config})
        made.append(producer)
        for partition in (0, 1):
            producer.produce("t", b"warm", partition=partition)
        assert producer.flush(10) == 0
        if mode != "passthrough":
            leader = engine_of(producer).updates.holds.partitions.leader
            wait(producer, lambda: (leader("t", 0), leader("t", 1)) == (1, 2))
        return producer

    yield build
    for producer in made:
        with contextlib.suppress(FatalError):
            producer.close(0)


def throttle(cluster: FakeCluster, producer: SafeProducer, milliseconds: int = 1000) -> None:
    """Let broker 1 answer once with a throttle time, which it does not keep itself."""
    cluster.set_throttle(milliseconds, broker=1)
    producer.produce("t", b"asks for it", partition=0)
    wait(producer, lambda: producer.snapshot().throttled_brokers.get(1) and not producer.snapshot().unresolved)
    cluster.set_throttle(0, broker=1)


def cut_off(cluster: FakeCluster) -> None:
    """Let nobody reach broker 1, which goes on leading."""
    cluster._await(cluster._brokers[1].stop)


def cause(told: str) -> str:
    return without_addresses(told).partition(OVER)[0]


def past(told: str) -> str:
    return without_addresses(told).partition(OVER)[2]


def without_addresses(told: str) -> str:
    return re.sub(r" \(127\.0\.0\.1:\d+\)", "", told)


@pytest.mark.parametrize("mode", MODES)
def test_a_throttle_time_that_has_ended_is_told_as_past(cluster: FakeCluster, make: Make, mode: str) -> None:
    """Records that wait for another reason are not laid to it; snapshot() still has it."""
    producer = make(mode)
    throttle(cluster, producer, SHORT_MS)
    wait(producer, lambda: not engine_of(producer).updates.holds.cluster.throttle.deadlines(time.monotonic()))
    cluster.pause(1)
    producer.produce("t", b"x", partition=0)
    told = producer.explain("t", 0)
    assert told.startswith("1 record(s) wait for t [0]: ")
    assert "quota" not in cause(told)
    assert "the quota of broker 1 throttled this client until " in past(told)
    assert producer.snapshot().throttled_brokers == {1: SHORT_MS / 1000}


def test_a_reason_and_a_cure_are_told_once(unreachable: dict[str, object]) -> None:
    """However many partitions have it or would be helped, and no cure where waiting is all there is to do."""
    reasons = (HoldReason.LINGER, HoldReason.LINGER, HoldReason.LANES_BUSY, HoldReason.TURN)
    rows = [PartitionSnapshot("t", n, 1, 0, 0, 1, 1, "waits", reason) for n, reason in enumerate(reasons)]
    with SafeProducer(unreachable) as producer:
        account = dataclasses.replace(producer.snapshot(), partitions=tuple(rows))
    told = explanation(dataclasses.replace(account, state="open"), None, None, (), lambda *_: set())
    places = ", ".join(f"1 for t [{number}]" for number in range(4))
    cures = f"{reasons[0].cure} {reasons[2].cure}"
    assert told == f"4 record(s) wait: {places} are held back: the partition waits. {cures}"


def test_nobody_is_told_to_poll_who_does(unreachable: dict[str, object]) -> None:
    """A callback runs: the reports behind it were said to wait for poll()."""
    with SafeProducer(unreachable) as producer:
        rows = (PartitionSnapshot("t", 0, 2, 0, 0, 2),)
        account = dataclasses.replace(producer.snapshot(), state="open", partitions=rows)
    for served, told in (True, "1 report(s) wait behind one that runs."), (False, "Call poll() or flush()."):
        located = Located({("t", 0): 1}, served=served)
        assert explanation(account, None, None, (), lambda *_: set(), located).endswith(told)


@pytest.mark.parametrize("mode", TOLD_BY_STATISTICS)
def test_a_port_that_never_answers_is_named(mode: str) -> None:
    """Soon after it accepted a connection; librdkafka tells of it after ten seconds, without its address."""
    with socket.create_server(("127.0.0.1", 0)) as port:
        address = "{}:{}".format(*port.getsockname())
        producer = SafeProducer({"bootstrap.servers": address, "safeproducer.mode": mode, "log_level": 0})
        producer.produce("t", b"x")
        named = f"a connection to {address} has got no further than APIVERSION_QUERY for "
        wait(producer, lambda: named in producer.explain())
        assert "the last client error" not in producer.explain()
        producer.close(0)


@pytest.mark.parametrize("mode", MODES)
def test_a_throttle_time_that_lasts_is_the_cause(cluster: FakeCluster, make: Make, mode: str) -> None:
    producer = make(mode)
    throttle(cluster, producer, LONG_MS)
    cluster.pause(1)
    cluster.pause(2)
    for partition in (0, 1):
        producer.produce("t", b"x", partition=partition)
    told = producer.explain("t", 0)
    assert re.search(r"broker 1(, its leader,)? throttles this client for another ", cause(told))
    assert {row.reason for row in producer.snapshot().partitions if row.partition == 0} == {HoldReason.THROTTLED}
    assert past(told) == ""
    if mode != "passthrough":  # where nothing tells who leads
        assert "quota" not in producer.explain("t", 1)


@pytest.mark.parametrize("mode", TOLD_BY_STATISTICS)
def test_a_broker_that_is_back_is_not_the_cause(cluster: FakeCluster, make: Make, mode: str) -> None:
    """Its error is told as past; snapshot() still has it."""
    producer = make(mode)
    cut_off(cluster)
    producer.produce("t", b"x", partition=0)
    wait(producer, lambda: "the last client error of broker 1 was: " in cause(producer.explain("t", 0)))
    cluster.start(1)
    assert producer.flush(30) == 0
    wait(
        producer,
        lambda: all(
            error.is_over(engine_of(producer).updates.holds.cluster.connected(), 10**9, time.monotonic())
            for error in of_broker_1(producer)
        ),
    )
    cluster.pause(1)
    producer.produce("t", b"x", partition=0)
    told = producer.explain("t", 0)
    assert "error" not in cause(told)
    assert "the last client error of broker 1: " in past(told)
    assert producer.snapshot().last_error is not None


def of_broker_1(producer: SafeProducer) -> list[Any]:
    return [error for error in engine_of(producer).holds.cluster.errors.copy().values() if error.node == 1]


@pytest.mark.parametrize("mode", MODES)
def test_a_broker_that_is_still_down_is_the_cause(cluster: FakeCluster, make: Make, mode: str) -> None:
    """Although the other one acknowledges, and newer errors were about that one."""
    producer = make(mode)
    cut_off(cluster)
    producer.produce("t", b"x", partition=0)
    wait(producer, lambda: of_broker_1(producer))
    for _ in range(3):
        producer.produce("t", b"y", partition=1)
    wait(producer, lambda: producer.snapshot().unresolved == 1)
    told = producer.explain("t", 0)
    assert told.startswith("1 record(s) wait for t [0]: ")
    assert "the last client error of broker 1 was: " in cause(told)
    assert "broker 1" not in past(told)


@pytest.mark.parametrize("mode", MODES)
def test_no_broker_is_blamed_where_nothing_ever_happened(cluster: FakeCluster, make: Make, mode: str) -> None:
    producer = make(mode)
    assert producer.explain() == "Nothing waits: 2 record(s) delivered, 0 failed."
    cluster.pause(1)
    producer.produce("t", b"x", partition=0)
    told = producer.explain()
    assert told.startswith("1 record(s) wait: ")
    assert not any(word in told for word in ("error", "quota", OVER))


@pytest.mark.parametrize("ended", ["fatal", "closed"])
def test_the_end_of_a_producer_comes_first(cluster: FakeCluster, make: Make, plant_fatal: Plant, ended: str) -> None:
    """What throttled before is no cause any more."""
    producer = make("auto")
    throttle(cluster, producer, LONG_MS)
    if ended == "closed":
        producer.close(10)
        assert producer.explain() == "This producer is closed; make a new one to produce again."
        return
    plant_fatal(producer)

    def use() -> None:
        producer.produce("t", b"x", partition=1)
        producer.flush(10)  # the sender may not have looked since the throttle time: then the record was buffered

    with pytest.raises(FatalError):
        use()
    # In front of it stands what the error means, once its event was served.
    before, met, _ = producer.explain().partition("It met a fatal error and takes no more records; close it and make ")
    assert met
    assert "throttle" not in before


def test_what_waits_is_counted_by_partition(cluster: FakeCluster, make: Make) -> None:
    """Also of records that were given no partition; one that does not exist is told."""
    producer = make("auto")
    cluster.pause(1)
    for key in range(100):
        producer.produce("t", b"x", key=str(key))
    wait(producer, lambda: re.fullmatch(r"Nothing waits for t \[1\]: \d+ .*, 0 failed\.", producer.explain("t", 1)))
    left = 102 - producer.snapshot().delivered
    wait(producer, lambda: producer.explain("t", 0).startswith(f"{left} record(s) wait for t [0]: "))
    assert producer.explain("t", 2) == "There is no partition 2 of t: it has 2, 0 to 1."


def test_reports_and_acknowledgements_are_waited_for_apart(cluster: FakeCluster, make: Make) -> None:
    """A program that does not call poll() is told so, and brokers that have answered are not blamed."""
    producer = make("auto")
    for _ in range(3):
        producer.produce("t", b"x", partition=0)
    deadline = time.monotonic() + 20
    while "3 report(s) wait for poll()" not in producer.explain("t", 0):  # without poll()
        assert time.monotonic() < deadline, producer.explain()
        time.sleep(0.05)
    assert (
        producer.explain("t", 0) == "3 record(s) wait for t [0]: 3 report(s) wait for poll(). Call poll() or flush()."
    )
    assert producer.explain("t", 1).startswith("Nothing waits")
    producer.flush()
    cluster.pause(2)
    producer.produce("t", b"x", partition=1)
    assert producer.explain("t", 1) == "1 record(s) wait for t [1]: 1 record(s) have no acknowledgement yet."


def test_an_error_that_comes_each_second_is_no_matter_of_the_past(cluster: FakeCluster, make: Make) -> None:
    """Brokers are connected in between: it is told with how often it came, and librdkafka's "0/2 are down" is not."""
    producer = make("auto")
    cluster.lose_acks(12)
    for partition in (0, 1):
        producer.produce("t", b"x", partition=partition)
    wait(producer, lambda: re.search(r"\d times in \d+ s, the last \d+ s ago", producer.explain()))
    while producer.snapshot().unresolved:
        told = producer.explain()
        assert OVER not in told
        assert "0/" not in told
        producer.poll(0.05)
    cluster.pause(1)
    producer.produce("t", b"y", partition=0)
    wait(producer, lambda: "the last client error" not in cause(producer.explain()))


@pytest.mark.parametrize("mode", ["auto", "held"])
def test_a_topic_that_is_not_there_is_named(mode: str, cluster: FakeCluster, make: Make) -> None:
    """With the nearest name, in explain(), snapshot(), log and error; one that is made meanwhile is no more."""
    cluster.create_topic("orders")
    config = {"bootstrap.servers": cluster.bootstrap, "log_level": 0, "safeproducer.mode": mode}
    errors: list[Any] = []
    with SafeProducer({**config, "message.timeout.ms": 4_000}) as producer:
        producer.produce("ordres", b"x", on_delivery=lambda error, message: errors.append(error))
        named = "topic 'ordres' is not there (nearest name: 'orders')"
        wait(producer, lambda: named in producer.explain("ordres"))
        assert producer.explain("ordres").endswith(f" {HoldReason.UNKNOWN_TOPIC.cure}")
        assert producer.snapshot().partitions[0].reason is HoldReason.UNKNOWN_TOPIC
        assert named in str(producer.snapshot().last_error)
        producer.flush(20)
        assert named in str(errors[0])
        producer.produce("late", b"x", on_delivery=lambda error, message: errors.append(error))
        wait(producer, lambda: "topic 'late' is not there" in producer.explain("late"))
        cluster.create_topic("late")
        assert producer.flush(20) == 0
        assert errors[1] is None
        assert producer.explain().startswith("Nothing waits")


def test_a_broker_is_told_with_its_address(cluster: FakeCluster, make: Make) -> None:
    """By explain(), and by the sentence of a partition."""
    producer = make("held")
    cluster.pause(1)
    for _ in range(3):
        producer.produce("t", b"x", partition=0)
        producer.poll(0.2)
    address = engine_of(producer).updates.holds.cluster.statistics.copy().popitem()[1].brokers[1].name.partition("/")[0]
    wait(producer, lambda: f"broker 1 ({address}), its leader," in producer.explain("t", 0))
    assert f"broker 1 ({address})" in str([row.why for row in producer.snapshot().partitions])


def test_what_failed_lately_is_told_by_its_code(cluster: FakeCluster, make: Make) -> None:
    """For the topic alone that it concerns."""
    producer = make("auto")
    cluster.create_topic("u")
    cluster.fail_next("Produce", 29)
    producer.produce("u", b"x")
    assert producer.flush(20) == 0
    failed = "Nothing waits for u: 0 record(s) delivered, 1 failed, lately with TOPIC_AUTHORIZATION_FAILED. 1 record"
    assert producer.explain("u").startswith(failed)
    assert producer.explain("u").endswith(
        "none has been delivered since: this user may not write to the topic. "
        "Have an administrator grant WRITE and DESCRIBE on it (kafka-acls --add --producer)."
    )
    assert producer.explain("t") == "Nothing waits for t: 2 record(s) delivered, 0 failed."


@pytest.mark.parametrize("named", [True, False], ids=["named", "any"])
@pytest.mark.parametrize("mode", TOLD_BY_STATISTICS)
def test_a_silent_leader_is_named_for_records_it_has(cluster: FakeCluster, make: Make, mode: str, named: bool) -> None:
    """Once, with the cure, by snapshot() and by the error of the record, too; for its own partitions alone."""
    producer = make(mode, **{"message.timeout.ms": 5_000})
    errors: list[Any] = []
    choose = engine_of(producer).updates.holds.partitions.choose
    key = next(key for key in map(str, range(1000)) if choose("t", key, time.monotonic()) == 0)
    cluster.pause(1)
    producer.produce("t", b"x", key, partition=0 if named else -1, on_delivery=lambda error, _: errors.append(error))
    wait(producer, lambda: "broker 1 acknowledges nothing of t [0]" in without_addresses(producer.explain()))
    for told in (producer.explain(), producer.explain("t"), producer.explain("t", 0)):
        assert told.count("acknowledges nothing") == told.count(HoldReason.LEADER_SILENT.cure or "") == 1
        assert re.search(r"broker 1 \(127.0.0.1:\d+\) acknowledges nothing of t \[0\]\. Look", told)
    wait(producer, lambda: producer.explain("t", 1).startswith("Nothing waits"))
    (waits,) = [row for row in producer.snapshot().partitions if row.unresolved]
    assert waits.reason is HoldReason.LEADER_SILENT
    assert "broker 1, its leader, acknowledges nothing" in without_addresses(str(waits.why))
    wait(producer, lambda: errors)
    assert re.search(r"within message.timeout.ms: its leader is broker 1 \(127.0.0.1:\d+\)$", errors[0].str())
    assert producer.explain().startswith("Nothing waits")
