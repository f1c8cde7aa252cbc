"""A request that arrives after its transaction has ended does nothing in the next one."""

import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from safeproducer import FatalError, SafeProducer, TransactionsSnapshot
from safeproducer.aio import TransactionAborted, TransactionUnknown
from safeproducer.pipeline.calls import Calls
from safeproducer.pipeline.transactions import Transactions
from safeproducer.testing import FakeCluster
from tests.clusters import cluster_of
from tests.contract.support import noting, send_one
from tests.inside import engine_of

PATIENCE = 30


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def cluster(request: pytest.FixtureRequest) -> Iterator[FakeCluster]:
    with cluster_of({"t": 1}, transaction_version=request.param) as made:
        yield made


def config(cluster: FakeCluster, **more: Any) -> dict[str, Any]:
    """Requests time out after a second, the least that librdkafka has."""
    settings = {"bootstrap.servers": cluster.bootstrap, "transactional.id": "shop", "log_level": 0}
    return settings | {"socket.timeout.ms": 500, "transaction.timeout.ms": 60_000} | more


@pytest.fixture
def producer(cluster: FakeCluster) -> Iterator[SafeProducer]:
    """One that may begin a transaction."""
    with SafeProducer(config(cluster)) as made:
        made.init_transactions(PATIENCE)
        yield made


def commit(producer: SafeProducer, *values: bytes) -> None:
    with producer.transaction(PATIENCE):
        for value in values:
            producer.produce("t", value)


def committed(cluster: FakeCluster) -> list[bytes | None]:
    """What readers of committed records see."""
    return [record.value for record in cluster.log("t", isolation="read_committed")]


def arrived(cluster: FakeCluster, api: str) -> int:
    return len(cluster.journal(api))


def let_in(cluster: FakeCluster, api: str) -> None:
    before = arrived(cluster, api)
    assert cluster.release() == 1
    cluster.wait(lambda found: arrived(found, api) == before + 1)


def second_of_two(producer: Any, cluster: FakeCluster, ends: str) -> None:
    """The end of the first transaction is held back, asked for again, and done. It arrives during the second one, of
    which nothing is committed."""
    producer.init_transactions(PATIENCE)
    producer.begin_transaction()
    send_one(producer, "t", b"first")
    cluster.hold_next("EndTxn")
    getattr(producer, f"{ends}_transaction")(PATIENCE)
    assert cluster.held_back == 1
    producer.begin_transaction()
    send_one(producer, "t", b"second")
    let_in(cluster, "EndTxn")


@pytest.mark.parametrize("ends", ["commit", "abort"])
def test_a_late_end_ends_no_other_transaction(cluster: FakeCluster, ends: str) -> None:
    first = [b"first"] if ends == "commit" else []
    with SafeProducer(config(cluster)) as producer:
        second_of_two(producer, cluster, ends)
        assert cluster.transactions()["shop"].state == "Ongoing"
        assert committed(cluster) == first
        producer.commit_transaction(PATIENCE)
        assert committed(cluster) == [*first, b"second"]


def test_a_lost_answer_renews_the_epoch_once(cluster: FakeCluster, producer: SafeProducer) -> None:
    """The next transaction begins in a new one, and those behind it go on in that; without a loss there is none."""
    epochs = []
    for number in range(4):
        if number == 1:
            cluster.lose_acks(1, api="EndTxn")
        with producer.transaction(PATIENCE):
            producer.produce("t", b"%d" % number)
            epochs.append(cluster.transactions()["shop"].epoch)
    assert epochs == [0, 0, 1, 1]
    assert committed(cluster) == [b"0", b"1", b"2", b"3"]


def test_an_idle_connection_that_ends_renews_nothing(cluster: FakeCluster, producer: SafeProducer) -> None:
    for number in range(3):
        commit(producer, b"%d" % number)
        cluster.cut()
        time.sleep(0.5)  # a request into a connection whose end is not known yet would be lost
    assert cluster.transactions()["shop"].epoch == 0
    assert committed(cluster) == [b"0", b"1", b"2"]


def test_an_abort_of_what_was_not_sent_renews_nothing(cluster: FakeCluster) -> None:
    """Its records are of unknown outcome, and in no request."""
    with SafeProducer(config(cluster, **{"linger.ms": 20_000})) as producer:
        producer.init_transactions(PATIENCE)
        for _ in range(3):
            producer.begin_transaction()
            producer.produce("t", b"")
            producer.abort_transaction(PATIENCE)
        commit(producer, b"at the end")
        assert producer.snapshot().failed == 3
        assert cluster.transactions()["shop"].epoch == 0
        assert committed(cluster) == [b"at the end"]


def test_a_commit_without_an_answer_is_told_and_left(cluster: FakeCluster, producer: SafeProducer) -> None:
    """Whether it is committed the coordinator decides, and it is committed or aborted as a whole."""
    cluster.hold_next("EndTxn", 9)
    with pytest.raises(TransactionUnknown, match="not known") as caught, producer.transaction(1.5):
        producer.produce("t", b"first")
    assert caught.value.args[0].retriable()
    assert cluster.held_back
    producer.begin_transaction()
    cluster.hold_next("EndTxn", 0)  # not before: the former native producer asks again until then
    send_one(producer, "t", b"second")
    before = arrived(cluster, "EndTxn")
    held = cluster.release()
    assert held
    cluster.wait(lambda found: arrived(found, "EndTxn") >= before + held)
    assert committed(cluster) == []
    producer.commit_transaction(PATIENCE)
    assert committed(cluster) == [b"second"]


def test_a_commit_may_be_waited_for_again(cluster: FakeCluster, producer: SafeProducer) -> None:
    """By hand, as with confluent_kafka; the next transaction needs a new epoch all the same."""
    producer.begin_transaction()
    producer.produce("t", b"first")
    cluster.hold_next("EndTxn", 9)
    with pytest.raises(TransactionUnknown):
        producer.commit_transaction(1.2)
    cluster.release()
    producer.commit_transaction(PATIENCE)
    assert committed(cluster) == [b"first"]
    commit(producer, b"second")
    assert cluster.transactions()["shop"].epoch == 1
    assert committed(cluster) == [b"first", b"second"]


def test_an_unanswered_abort_is_done_before_the_next_transaction(cluster: FakeCluster, producer: SafeProducer) -> None:
    """The exception that ended the block is the one that is raised."""
    cluster.hold_next("EndTxn", 9)
    with pytest.raises(ValueError, match="the application's"), producer.transaction(1.2):  # noqa: PT012
        producer.produce("t", b"first")
        raise ValueError("the application's")
    cluster.release()
    commit(producer, b"second")
    assert committed(cluster) == [b"second"]


def test_a_record_held_back_is_in_no_other_transaction(cluster: FakeCluster, producer: SafeProducer) -> None:
    """It was given up, and its transaction aborted."""
    commit(producer, b"first")
    cluster.hold_next("Produce", 9)
    with pytest.raises(ValueError, match="given up"), producer.transaction(1.2):  # noqa: PT012
        producer.produce("t", b"late")
        raise ValueError("given up")
    held = cluster.held_back
    cluster.hold_next("Produce", 0)
    producer.begin_transaction()
    send_one(producer, "t", b"second")
    before = arrived(cluster, "Produce")
    assert cluster.release() == held > 0
    cluster.wait(lambda found: arrived(found, "Produce") == before + held)
    producer.commit_transaction(PATIENCE)
    assert committed(cluster) == [b"first", b"second"]


def test_an_aborted_block_says_so(cluster: FakeCluster, producer: SafeProducer) -> None:
    failures: Any = engine_of(producer).updates.failures
    with pytest.raises(TransactionAborted, match=r"1 record\(s\)") as caught, producer.transaction(PATIENCE):  # noqa: PT012
        producer.produce("t", b"first")
        failures.without_offset += 1  # as the report of a record without an offset does
    assert isinstance(caught.value, KafkaException)
    assert cluster.transactions()["shop"].state == "CompleteAbort"
    commit(producer, b"again")
    assert committed(cluster) == [b"again"]


def offsets(cluster: FakeCluster) -> int:
    """What is committed of the group, -1001 for nothing."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "log_level": 0})
    try:
        return int(consumer.committed([TopicPartition("t", 0)], timeout=PATIENCE)[0].offset)
    finally:
        consumer.close()


@pytest.mark.parametrize("made", [Producer, SafeProducer], ids=["confluent_kafka", "SafeProducer"])
def test_late_offsets_are_committed_with_no_other_transaction(cluster: FakeCluster, made: Callable[..., Any]) -> None:
    """With confluent_kafka the group goes back to where it was."""
    group = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "log_level": 0})
    producer = made(config(cluster))
    producer.init_transactions(PATIENCE)
    for offset in (1, 2):
        producer.begin_transaction()
        if offset == 1:
            cluster.hold_next("TxnOffsetCommit")
        producer.send_offsets_to_transaction([TopicPartition("t", 0, offset)], group.consumer_group_metadata(), 20)
        if offset == 2:
            let_in(cluster, "TxnOffsetCommit")
        producer.commit_transaction(PATIENCE)
        assert offsets(cluster) == (1 if made is Producer else offset)
    group.close()


def test_another_instance_is_not_written_over(cluster: FakeCluster, producer: SafeProducer) -> None:
    """It has taken over while this one rested: this one ends for good, whether it has to renew its epoch or not."""
    cluster.lose_acks(1, api="EndTxn")
    commit(producer, b"first")
    with SafeProducer(config(cluster)) as other:
        other.init_transactions(PATIENCE)
        commit(other, b"of the other one")
    for _ in range(2):
        with pytest.raises(FatalError, match="another instance"):
            producer.begin_transaction()
    with pytest.raises(FatalError):
        producer.produce("t", b"second")
    assert producer.snapshot().state == "fatal"
    assert committed(cluster) == [b"first", b"of the other one"]


def test_a_fence_is_fatal_and_renews_nothing(cluster: FakeCluster, producer: SafeProducer) -> None:
    """Also if an answer was lost in the same transaction."""
    producer.begin_transaction()
    send_one(producer, "t", b"first")
    cluster.cut()
    with SafeProducer(config(cluster)) as other:
        other.init_transactions(PATIENCE)
    with pytest.raises(FatalError):
        producer.commit_transaction(PATIENCE)
    for _ in range(2):
        with pytest.raises(FatalError):
            producer.begin_transaction()
    assert cluster.transactions()["shop"].epoch == 2, "the abort of what was open, and the other instance"
    assert committed(cluster) == []


def test_an_absent_coordinator_keeps_the_next_transaction_waiting(cluster: FakeCluster, producer: SafeProducer) -> None:
    """A renewal that failed goes on with the next begin, which is told to come again."""
    cluster.lose_acks(1, api="EndTxn")
    commit(producer, b"first")
    cluster.hold_next("InitProducerId", 99)
    with pytest.raises(KafkaException) as caught, producer.transaction(1.2):
        pass
    assert caught.value.args[0].retriable()
    cluster.release()
    commit(producer, b"second")
    assert committed(cluster) == [b"first", b"second"]


def test_what_was_left_is_reported_before_the_new_epoch(cluster: FakeCluster, producer: SafeProducer) -> None:
    """Each record of a commit that was given up has its report, and callbacks run in begin_transaction()."""
    told: list[Any] = []
    cluster.hold_next("Produce", 9)
    producer.begin_transaction()
    producer.produce("t", b"left", on_delivery=lambda error, message: told.append(error))
    with pytest.raises(TransactionUnknown):
        producer.commit_transaction(0.5)
    assert told == []
    cluster.hold_next("Produce", 0)
    producer.begin_transaction()
    assert [error.outcome for error in told] == ["unknown"]
    send_one(producer, "t", b"second")
    cluster.release()
    producer.commit_transaction(PATIENCE)
    assert committed(cluster) == [b"second"]
    assert producer.snapshot().unresolved == 0


def test_hooks_and_the_snapshot_tell_what_became_of_transactions(cluster: FakeCluster) -> None:
    """Also of one whose commit has no answer, when the next one begins."""
    hook = noting("transaction_ended")
    with SafeProducer(config(cluster), hooks=[hook]) as producer:
        producer.init_transactions(PATIENCE)
        commit(producer, b"")
        with contextlib.suppress(ZeroDivisionError), producer.transaction(PATIENCE):
            raise ZeroDivisionError
        cluster.hold_next("EndTxn", 9)
        with pytest.raises(TransactionUnknown), producer.transaction(1.2):
            producer.produce("t", b"")
        cluster.release()
        commit(producer, b"")
        assert [event.outcome for event in hook.told] == ["committed", "aborted", "unknown", "committed"]
        assert [bool(event.doubt) for event in hook.told] == [False, False, True, False]
        assert hook.told[2].seconds >= 1
        assert hook.told[0].producer.transactional_id == "shop"
        assert producer.snapshot().transactions == TransactionsSnapshot(committed=2, aborted=1, unknown=1, renewed=1)
    with SafeProducer({"bootstrap.servers": cluster.bootstrap, "log_level": 0}) as plain:
        assert plain.snapshot().transactions is None


def late(producer: Any, cluster: FakeCluster, api: str, number: int) -> bool:
    """A request of a transaction is held back, and asked for again. It arrives in the next one: whether it ends that or
    adds to it. Transactions are committed and aborted in turn."""
    ends = ("commit_transaction", "abort_transaction")[number % 2]
    producer.begin_transaction()
    if api == "Produce":
        cluster.hold_next(api)
    producer.produce("t", b"first %d" % number)
    if api == "EndTxn":
        assert producer.flush(PATIENCE) == 0
        cluster.hold_next(api)
        getattr(producer, ends)(PATIENCE)
    else:
        producer.commit_transaction(PATIENCE)
    assert cluster.held_back == 1
    before = committed(cluster)
    producer.begin_transaction()
    send_one(producer, "t", b"second %d" % number)
    let_in(cluster, api)
    return cluster.transactions()["shop"].state != "Ongoing" or committed(cluster) != before


@pytest.mark.full
@pytest.mark.parametrize("made", [Producer, SafeProducer], ids=["confluent_kafka", "SafeProducer"])
@pytest.mark.parametrize("api", ["EndTxn", "Produce"])
def test_of_two_hundred_late_requests_none_does_anything(
    cluster: FakeCluster, made: Callable[..., Any], api: str, record_property: Callable[[str, object], None]
) -> None:
    """Fifty of each kind and each version. With confluent_kafka each late end ends another transaction."""
    harm, count = 0, 10 if made is Producer else 50
    for number in range(count):
        producer = made(config(cluster))
        producer.init_transactions(PATIENCE)
        harm += late(producer, cluster, api, number)
        for end in (partial(producer.abort_transaction, PATIENCE), producer.close):
            with contextlib.suppress(KafkaException):  # a transaction that was ended by the late request is fatal
                end()
    record_property("harm", harm)
    assert harm == (count if made is Producer and api == "EndTxn" else 0)


# --- planted ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ends", ["commit", "abort"])
def test_without_the_rule_the_hole_is_there(cluster: FakeCluster, ends: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Transactions, "_renew", lambda *_: None)
    producer = SafeProducer(config(cluster))
    second_of_two(producer, cluster, ends)
    assert cluster.transactions()["shop"].state != "Ongoing"
    with contextlib.suppress(FatalError):  # the brokers refuse the abort
        producer.close()


def test_lines_of_the_log_tell_of_each_loss(cluster: FakeCluster, producer: SafeProducer) -> None:
    """Before the call returns that asked again."""
    log: Any = engine_of(producer).native_producers.session_log
    for api in ("AddPartitionsToTxn", "Produce", "EndTxn"):
        before = log.lost
        cluster.lose_acks(1, api=api)
        producer.begin_transaction()
        producer.produce("t", b"")
        producer.commit_transaction(PATIENCE)
        assert log.lost > before, api


def test_a_commit_called_again_with_no_time_left_goes_on(
    cluster: FakeCluster, producer: SafeProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka ended the process in one of nine tries, at the coordinator's answer: it had forgotten the commit."""
    serve, given = Calls.serve, list[float]()

    def noting(calls: Calls, call: Any, *args: Any) -> Any:
        if call.__name__ == "commit_transaction":
            given.append(args[0])
        return serve(calls, call, *args)

    monkeypatch.setattr(Calls, "serve", noting)
    producer.begin_transaction()
    producer.produce("t", b"first")
    cluster.hold_next("EndTxn", 9)
    for seconds in (1.2, 0):
        with pytest.raises(TransactionUnknown):
            producer.commit_transaction(seconds)
    cluster.release()
    producer.poll(0.5)  # the answer comes
    producer.commit_transaction(PATIENCE)
    assert committed(cluster) == [b"first"]
    assert given[0] <= 1.2
    assert given[1] == 1, "librdkafka's thread must have time to answer"
