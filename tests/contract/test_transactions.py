"""Transactions: order of the calls, states, timeouts, and what each misuse raises."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

# A commit returns before its markers are in every partition, so what is visible is waited for.
from tests.contract.support import NOWHERE, Reports, error_of, poll_until, wait_until

STATE = KafkaError._STATE


@pytest.fixture
def transactional(make: Any) -> Any:
    """A transactional producer that is ready to begin."""
    producer = make({"transactional.id": uuid.uuid4().hex, "enable.idempotence": True})
    assert producer.init_transactions(30) is None
    return producer


def refused(code: int, call: Callable[..., Any], *arguments: Any) -> KafkaError:
    """The KafkaError that the call raises, which must have this code."""
    with pytest.raises(KafkaException) as caught:
        call(*arguments)
    error = error_of(caught.value)
    assert error.code() == code, error
    return error


def test_committed_records_are_in_the_log(transactional: Any, cluster: Any, topic: str) -> None:
    """begin, produce, commit: the commit flushes, runs the callbacks and makes the records visible."""
    reports = Reports()
    assert transactional.begin_transaction() is None
    for number in range(10):
        transactional.produce(topic, b"%d" % number, partition=0, on_delivery=reports)
    assert transactional.commit_transaction(30) is None
    assert len(transactional) == 0
    transactional.flush(10)
    assert reports.codes == [None] * 10
    wait_until(lambda: cluster.values(topic) == [b"%d" % number for number in range(10)])


def test_transactions_one_after_the_other(transactional: Any, cluster: Any, topic: str) -> None:
    """A producer runs any number of transactions, empty ones included; all calls work without a timeout."""
    for number in range(3):
        transactional.begin_transaction()
        transactional.produce(topic, b"%d" % number, partition=0)
        transactional.commit_transaction()
    transactional.begin_transaction()
    transactional.commit_transaction()
    transactional.begin_transaction()
    transactional.abort_transaction()
    wait_until(lambda: cluster.values(topic) == [b"0", b"1", b"2"])


def test_batch_in_a_transaction(transactional: Any, cluster: Any, topic: str) -> None:
    """produce_batch() takes part in the transaction."""
    transactional.begin_transaction()
    assert transactional.produce_batch(topic, [{"value": b"v"}, {"value": b"w"}], 0) == 2
    transactional.commit_transaction(30)
    wait_until(lambda: cluster.values(topic) == [b"v", b"w"])


def test_abort_purges_what_was_not_sent(transactional: Any, topic: str) -> None:
    """abort_transaction() reports records that were still in the queue as purged and goes on to the next one."""
    reports = Reports()
    transactional.begin_transaction()
    transactional.produce(topic, b"v", partition=0, on_delivery=reports)
    assert transactional.abort_transaction(30) is None
    poll_until(transactional, lambda: reports)
    assert reports.codes in ([KafkaError._PURGE_QUEUE], [KafkaError._PURGE_INFLIGHT], [None])
    transactional.begin_transaction()
    transactional.produce(topic, b"w", partition=0, on_delivery=reports)
    transactional.commit_transaction(30)
    transactional.flush(10)
    assert reports.codes[1:] == [None]


def test_calls_in_the_wrong_state_are_refused(transactional: Any, topic: str) -> None:
    """Between transactions, commit, abort, a second init and produce() raise _STATE; so does a second begin."""
    refused(STATE, transactional.init_transactions, 1)
    refused(STATE, transactional.commit_transaction, 1)
    refused(STATE, transactional.abort_transaction, 1)
    error = refused(STATE, transactional.produce, topic, b"v")
    assert not error.txn_requires_abort()
    assert not error.fatal()
    messages: list[dict[str, Any]] = [{"value": b"v"}]
    assert transactional.produce_batch(topic, messages) == 0
    assert messages[0]["_error"].code() == STATE
    assert len(transactional) == 0
    transactional.begin_transaction()
    refused(STATE, transactional.begin_transaction)
    transactional.abort_transaction(30)


def test_calls_before_init_are_refused(make: Any) -> None:
    """Before init_transactions(), begin, commit, abort and produce() raise _STATE."""
    producer = make({"transactional.id": uuid.uuid4().hex, "enable.idempotence": True})
    refused(STATE, producer.begin_transaction)
    refused(STATE, producer.commit_transaction, 1)
    refused(STATE, producer.abort_transaction, 1)
    refused(STATE, producer.produce, "t", b"v")


def test_init_against_an_unreachable_cluster_times_out(producer_class: type) -> None:
    """init_transactions() raises _TIMED_OUT, retriable, after its timeout, and can be called again."""
    # Not closed: what close() does in this state is in test_differences.py.
    producer = producer_class({"bootstrap.servers": NOWHERE, "transactional.id": "t", "log_level": 0})
    for _ in range(2):
        error = refused(KafkaError._TIMED_OUT, producer.init_transactions, 0.2)
        assert error.retriable()
        assert not error.fatal()
    assert refused(KafkaError._CONFLICT, producer.begin_transaction).retriable()


def test_offsets_are_sent_with_a_transaction(transactional: Any, cluster: Any, topic: str) -> None:
    """send_offsets_to_transaction() commits positions of a consumer group together with the records."""
    group = uuid.uuid4().hex
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "log_level": 0})
    try:
        metadata = consumer.consumer_group_metadata()
        position = [TopicPartition(topic, 0, 7)]
        refused(STATE, transactional.send_offsets_to_transaction, position, metadata, 10)
        transactional.begin_transaction()
        transactional.produce(topic, b"v", partition=0)
        assert transactional.send_offsets_to_transaction(position, metadata, 30) is None
        transactional.commit_transaction(30)
        if cluster.kind == "kafka":  # the mock answers, but keeps no offsets of transactions
            assert [tp.offset for tp in consumer.committed([TopicPartition(topic, 0)], 10)] == [7]
    finally:
        consumer.close()


def test_raising_callback_comes_out_of_commit(transactional: Any, cluster: Any, topic: str) -> None:
    """commit_transaction() runs the callbacks and raises what one of them raised, after it has committed."""

    def report(_error: Any, _message: Any) -> None:
        raise LookupError("in the callback")

    transactional.begin_transaction()
    transactional.produce(topic, b"v", partition=0, on_delivery=report)
    with pytest.raises(LookupError):
        transactional.commit_transaction(30)
    refused(STATE, transactional.commit_transaction, 30)
    wait_until(lambda: cluster.values(topic) == [b"v"])


def test_close_ends_an_open_transaction(transactional: Any, topic: str) -> None:
    """close() with a transaction open returns and leaves nothing behind."""
    reports = Reports()
    transactional.begin_transaction()
    transactional.produce(topic, b"v", partition=0, on_delivery=reports)
    transactional.close()
    assert len(transactional) == 0
    assert len(reports) == 1


def lookup_error(_error: Any, _message: Any) -> None:
    raise LookupError("in the callback")


def test_raising_callback_comes_out_of_abort(transactional: Any, topic: str) -> None:
    """abort_transaction() raises what a callback raised, after it has aborted."""
    transactional.begin_transaction()
    transactional.produce(topic, b"v", partition=0, on_delivery=lookup_error)
    with pytest.raises(LookupError):
        transactional.abort_transaction(30)
    refused(STATE, transactional.abort_transaction, 30)
    transactional.begin_transaction()


def test_raising_callback_comes_out_of_a_close_that_aborts(transactional: Any, topic: str) -> None:
    """close() raises what a callback raised, and the producer is closed."""
    transactional.begin_transaction()
    for _ in range(3):
        transactional.produce(topic, b"v", partition=0, on_delivery=lookup_error)
    with pytest.raises(LookupError):
        transactional.close()
    with pytest.raises(RuntimeError):
        transactional.begin_transaction()
