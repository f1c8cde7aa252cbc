"""Pairs of value and key are accounted for as by produce(), though that is not called for each."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from safeproducer import SafeProducer
from safeproducer.pipeline.bulk import Block, placing, produce_block, produce_records
from safeproducer.pipeline.dispatch.intake import Intake
from safeproducer.testing import FakeCluster
from tests.clusters import fake_cluster
from tests.hammer import hammer
from tests.inside import engine_of
from tests.pipeline.interleaving import between, codes_of
from tests.threads.test_forks import fork_in_c, in_child

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "queue.buffering.max.messages": 10}
VALUES: list[bytes | None] = [b"v%d" % number for number in range(50)]
KEYS = [b"k%d" % number for number in range(50)]


@pytest.fixture
def producer() -> Iterator[SafeProducer]:
    """Nothing leaves it, and there is room for ten."""
    with SafeProducer({**NOWHERE, "safeproducer.max.block.ms": 0}) as made:
        yield made
        made.purge()


def forget(producer: SafeProducer, count: int) -> None:
    """As many records went nowhere, because the test took them."""
    counters = engine_of(producer).counters
    counters.topics["t"].accepted -= count
    counters.interrupts = 0


def ignored(*_: Any) -> None:
    """Nobody asks for these reports."""


def test_refused_records_are_told_and_not_counted(producer: SafeProducer) -> None:
    """Those that found room are accepted; the others are named one by one, in their order."""
    refused: list[tuple[Any, ...]] = []
    produce_records(engine_of(producer), "t", (VALUES, KEYS), ignored, lambda *record: refused.append(record))
    assert refused == [("t", *pair, -1, ignored) for pair in zip(VALUES[10:], KEYS[10:], strict=True)]
    account = producer.snapshot()
    assert (account.accepted, account.unresolved, account.interrupted) == (10, 10, 0)


def test_an_exception_of_a_refusal_ends_the_loop(producer: SafeProducer) -> None:
    """Nothing behind a record that stays refused is accepted."""
    taken = iter(VALUES)

    def refused(*_: Any) -> None:
        raise BufferError("as planned")

    with pytest.raises(BufferError, match="as planned"):
        produce_records(engine_of(producer), "t", (taken, KEYS), ignored, refused)
    assert list(taken) == VALUES[11:]


def test_a_route_that_changes_is_taken_at_once(producer: SafeProducer) -> None:
    """A throttle time that arrives in the middle holds back the very next record."""
    held: list[Any] = []

    def values() -> Iterator[bytes | None]:
        yield from VALUES[:3]
        engine_of(producer).route.send = lambda *record: held.append(record[1])
        yield from VALUES[3:6]

    produce_records(engine_of(producer), "t", (values(), KEYS), ignored, ignored)
    forget(producer, 3)
    assert held == VALUES[3:6]


def test_a_record_counts_before_it_is_handed_over(producer: SafeProducer) -> None:
    """Its report may arrive on another thread before that returns."""
    counted: list[int] = []
    engine_of(producer).route.send = lambda *_: counted.append(producer.snapshot().accepted)
    produce_records(engine_of(producer), "t", (VALUES[:3], KEYS), ignored, ignored)
    forget(producer, 3)
    assert counted == [1, 2, 3]


@pytest.mark.parametrize("raised", [KeyboardInterrupt, TimeoutError])
def test_an_exception_of_a_signal_handler_goes_on(producer: SafeProducer, raised: type[BaseException]) -> None:
    """Whether the record was accepted is not known then: it is no refusal, and nothing is sent again."""

    def interrupted(*_: Any) -> None:
        raise raised

    engine_of(producer).route.send = interrupted
    refused: list[Any] = []
    with pytest.raises(raised):
        produce_records(engine_of(producer), "t", (VALUES, KEYS), ignored, lambda *record: refused.append(record))
    counted = producer.snapshot().accepted, engine_of(producer).counters.interrupts
    forget(producer, 1)
    assert not refused
    assert counted == (1, 1)


# --- blocks ----------------------------------------------------------------------------------------------------------

ONLY_ERRORS = {"delivery.report.only.error": True, "linger.ms": 0, "log_level": 0}
BLOCK = Block("t", 1, VALUES, [b"k"] * 50, [len(value or b"") + 1 for value in VALUES])


cluster = fake_cluster(dict.fromkeys(("t", "fails", "forked", "full", "stopped", "threads"), 3), scope="module")


def held(cluster: FakeCluster, topic: str, **more: Any) -> SafeProducer:
    """A producer whose records wait before they go, which knows the topic and may write."""
    made = SafeProducer({"bootstrap.servers": cluster.bootstrap, "safeproducer.mode": "held", **ONLY_ERRORS, **more})
    made.list_topics(topic, timeout=10)
    assert placing(engine_of(made), topic) is not None
    return made


@pytest.mark.parametrize("ordering", ["partition", "key"])
def test_a_block_is_delivered_and_counted(cluster: FakeCluster, ordering: str) -> None:
    """Each record is in the log of its partition once, in order; the callback is not called."""
    told: list[Any] = []
    before = len(cluster.log("t", 1))
    with held(cluster, "t", **{"safeproducer.ordering": ordering}) as producer:
        assert produce_block(engine_of(producer), BLOCK, lambda *report: told.append(report))
        assert producer.snapshot().accepted == 50
        assert producer.flush(10) == 0
        account = producer.snapshot()
    assert (account.delivered, account.failed, account.unresolved, told) == (50, 0, 0, [])
    assert [record.value for record in cluster.log("t", 1)[before:]] == VALUES


def test_failed_records_of_a_block_are_told(cluster: FakeCluster) -> None:
    """Each with its error, as those of produce()."""
    told: list[bytes] = []
    with held(cluster, "fails", **{"linger.ms": 60_000, "message.timeout.ms": 120_000}) as producer:
        assert produce_block(
            engine_of(producer), BLOCK._replace(topic="fails"), lambda error, message: told.append(message.value())
        )
        producer.purge()
        producer.flush(10)
        account = producer.snapshot()
    assert told == VALUES
    assert (account.accepted, account.delivered, account.failed) == (50, 0, 50)


def test_a_block_without_room_is_refused_as_a_whole(cluster: FakeCluster) -> None:
    """Nothing of it is accepted; a smaller one is."""
    more = {"queue.buffering.max.messages": 60, "linger.ms": 60_000, "message.timeout.ms": 120_000}
    with held(cluster, "full", **more, **{"safeproducer.max.block.ms": 0}) as producer:
        assert produce_block(engine_of(producer), BLOCK._replace(topic="full"), ignored)
        assert not produce_block(engine_of(producer), BLOCK._replace(topic="full"), ignored)
        account = producer.snapshot()
        assert (account.accepted, account.interrupted) == (50, 0)
        assert produce_block(engine_of(producer), Block("full", 1, VALUES[:10], [None] * 10, [2] * 10), ignored)
        assert len(producer) == 60
        producer.purge()


def test_near_the_brokers_records_go_one_by_one(cluster: FakeCluster) -> None:
    """As they do where somebody asks for each report."""
    with SafeProducer({"bootstrap.servers": cluster.bootstrap, **ONLY_ERRORS}) as producer:
        producer.produce("t", b"first")
        producer.flush(10)
        assert placing(engine_of(producer), "t") is None
        assert not produce_block(engine_of(producer), BLOCK, ignored)
        assert producer.snapshot().accepted == 1
    with held(cluster, "t", **{"delivery.report.only.error": False}) as producer:
        assert not produce_block(engine_of(producer), BLOCK, ignored)
        assert producer.snapshot().accepted == 0


def stop() -> None:
    """As a time limit does: an Exception might be taken for a refusal."""
    raise TimeoutError


def test_a_handler_that_raises_anywhere_in_a_block_leaves_a_right_account(cluster: FakeCluster) -> None:
    """All records of the block wait, or none does; what waits is delivered once, and the rest counts as interrupted."""
    family = codes_of(produce_block, Intake.send_block, Intake._extend, Intake._extended)
    with held(cluster, "stopped") as producer:
        before = len(cluster.log("stopped", 1))
        for step in range(100):
            value = b"%d" % step
            block = Block("stopped", 1, [value] * 3, [None] * 3, [len(value)] * 3)
            try:
                with between(family, step, stop, raises=True) as places:
                    produce_block(engine_of(producer), block, ignored)
                if places[0] <= step:
                    break
            except TimeoutError:
                pass
            assert producer.flush(10) == 0
        assert producer.flush(10) == 0
        log = [record.value for record in cluster.log("stopped", 1)][before:]
        account = producer.snapshot()
    assert step > 10
    assert set(Counter(log).values()) == {3}
    assert (account.delivered, account.unresolved) == (len(log), 0)
    assert account.interrupted == account.accepted - len(log)
    assert account.accepted % 3 == 0


def test_a_handler_that_raises_while_the_permit_is_asked_for_is_heard(producer: SafeProducer) -> None:
    """A time limit must not get lost in what only looks how records go."""

    def interrupted() -> None:
        raise TimeoutError

    engine_of(producer).route.enter = interrupted
    with pytest.raises(TimeoutError):
        placing(engine_of(producer), "t")


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")
@pytest.mark.parametrize("fork", [os.fork, fork_in_c], ids=["python", "c"])
def test_a_child_gets_no_block_accepted(cluster: FakeCluster, fork: Callable[[], int]) -> None:
    """Each record is refused there, those that wait are the parent's, and the parent goes on."""
    before = len(cluster.log("forked", 1))
    with held(cluster, "forked", **{"linger.ms": 60_000, "message.timeout.ms": 120_000}) as producer:
        block = BLOCK._replace(topic="forked")
        assert produce_block(engine_of(producer), block, ignored)

        def body() -> int:
            taken = produce_block(engine_of(producer), block, ignored)
            refused: list[Any] = []
            columns = VALUES, KEYS
            produce_records(engine_of(producer), "forked", columns, ignored, lambda *record: refused.append(record))
            return 0 if not taken and len(refused) == len(VALUES) else 1

        assert in_child(fork, body) == 0
        assert produce_block(engine_of(producer), block, ignored)
        assert producer.flush(10) == 0
        assert producer.snapshot().delivered == 100
    assert [record.value for record in cluster.log("forked", 1)[before:]] == VALUES * 2


def test_blocks_of_eight_threads_stay_whole(cluster: FakeCluster) -> None:
    """Each is in the log once, undivided, behind those that its thread produced before; beside produce() and poll()."""
    blocks, size = 60, 20

    def work(thread: int) -> None:
        for number in range(blocks):
            values: list[bytes | None] = [b"%d-%d-%d" % (thread, number, record) for record in range(size)]
            block = Block("threads", number % 2, values, [None] * size, [len(value or b"") for value in values])
            while not produce_block(engine_of(producer), block, ignored):
                producer.poll(0.01)
            producer.produce("threads", b"%d-%d-alone" % (thread, number), partition=2)
            producer.poll(0)

    more = {"queue.buffering.max.messages": 500, "safeproducer.max.block.ms": 30_000}
    with held(cluster, "threads", **more) as producer:
        hammer(work, 8, interval=1e-5)
        assert producer.flush(30) == 0
        account = producer.snapshot()
    assert (account.accepted, account.delivered, account.failed) == (8 * blocks * (size + 1),) * 2 + (0,)
    found: dict[bytes, list[int]] = {}
    for partition in range(2):
        log = [record.value or b"" for record in cluster.log("threads", partition)]
        for first in range(0, len(log), size):
            thread, number, _ = log[first].split(b"-")
            assert log[first : first + size] == [b"%s-%s-%d" % (thread, number, record) for record in range(size)]
            found.setdefault(thread + b" %d" % partition, []).append(int(number))
    assert sorted(found.values()) == [[*range(0, blocks, 2)]] * 8 + [[*range(1, blocks, 2)]] * 8
    assert len(cluster.log("threads", 2)) == 8 * blocks
