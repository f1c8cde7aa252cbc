"""DeliveryError: confluent_kafka's KafkaError with the outcome, in words and in fields."""

import copy
import operator
from collections import Counter
from typing import Any
from unittest import mock

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.cimpl import KafkaError, Message

from safeproducer import DeliveryError, Outcome
from safeproducer.pipeline.reports.delivery_errors import Failures
from safeproducer.settings.config import parse

PLAIN = KafkaError(KafkaError._MSG_TIMED_OUT, "no answer", fatal=True, retriable=True, txn_requires_abort=True)
FULL = DeliveryError(PLAIN, Outcome.UNKNOWN, "orders", 3, 1001, 2, 1_700_000_000.5, 1_700_000_001.5, 4)


def fields(error: KafkaError) -> tuple[object, ...]:
    flags = (error.fatal(), error.retriable(), error.txn_requires_abort())
    return error.code(), error.name(), error.str(), *map(bool, flags), hash(error)


@pytest.mark.parametrize("stock", [PLAIN, KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)], ids=["flags", "plain"])
def test_a_delivery_error_answers_as_stock_does(stock: KafkaError) -> None:
    """Code, name, reason, flags, hash and comparisons are those of the error it is made of."""
    error = DeliveryError(stock, Outcome.UNKNOWN)
    assert isinstance(error, KafkaError)
    assert fields(error) == fields(stock)
    assert error == stock
    assert stock == error
    assert error == stock.code()
    assert error != KafkaError._TRANSPORT
    with pytest.raises(KafkaException) as caught:
        raise KafkaException(error)
    assert caught.value.args[0] is error


LOWER = DeliveryError(KafkaError(KafkaError._DESTROY), Outcome.NOT_WRITTEN)
"""Of a lower code than PLAIN."""
LOW_TO_HIGH = {"lt": True, "le": True, "gt": False, "ge": False, "eq": False, "ne": True}
"""What each comparison says of a lower one and a higher one."""
HIGH_TO_LOW = {"lt": False, "le": False, "gt": True, "ge": True, "eq": False, "ne": True}
SAME = {"lt": False, "le": True, "gt": False, "ge": True, "eq": True, "ne": False}


def compared(one: Any, other: Any) -> dict[str, bool]:
    return {name: getattr(operator, name)(one, other) for name in SAME}


@pytest.mark.parametrize("same", [FULL, copy.copy(FULL), PLAIN, PLAIN.code()], ids=["itself", "copy", "stock", "code"])
def test_a_delivery_error_is_equal_to_what_has_its_code(same: Any) -> None:
    """From both sides, whatever the outcome; so in lists, sets, counts and mocks."""
    assert compared(FULL, same) == compared(same, FULL) == SAME
    assert FULL in [None, "text", LOWER, same]
    assert same in [LOWER, FULL]
    assert len({FULL, same}) == 1
    assert Counter([FULL, same, LOWER])[FULL] == 2
    called = mock.Mock()
    called(FULL, "message")
    called.assert_called_with(same, "message")
    called.assert_called_with(mock.ANY, mock.ANY)


@pytest.mark.parametrize("higher", [FULL, PLAIN, PLAIN.code(), 2**70], ids=["ours", "stock", "code", "no code"])
def test_a_delivery_error_sorts_by_its_code(higher: Any) -> None:
    assert compared(LOWER, higher) == LOW_TO_HIGH
    assert compared(higher, LOWER) == HIGH_TO_LOW
    assert sorted([higher, LOWER]) == [LOWER, higher]


@pytest.mark.parametrize(
    "other", [None, "text", 1.5, float(PLAIN.code()), object(), (), b""], ids=lambda other: type(other).__name__
)
def test_a_delivery_error_is_unequal_to_anything_else(other: Any) -> None:
    """confluent_kafka raises TypeError or SystemError for these."""
    for one, two in ((FULL, other), (other, FULL)):
        assert operator.ne(one, two)
        assert not operator.eq(one, two)
    assert FULL not in [other]
    with pytest.raises(TypeError, match="not supported between instances"):
        sorted([FULL, other])


def test_unknown_is_said_with_what_to_do() -> None:
    """One sentence for what happened, one for the outcome and the way on."""
    assert str(FULL) == (
        "a record for orders [3] failed after 4 attempt(s) with _MSG_TIMED_OUT (no answer). It may be in the log once, "
        "or not at all: if a duplicate does no harm, produce it again; else look for it in the log before you do."
    )


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (KafkaError.INVALID_PRODUCER_EPOCH, ["producer ID", "make one new one"]),
        (KafkaError.INVALID_PRODUCER_ID_MAPPING, ["producer ID", "make one new one"]),
        (KafkaError.INVALID_RECORD, ["neighbour", "compacted topic", "key"]),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, ["WRITE"]),
        (KafkaError.MSG_SIZE_TOO_LARGE, ["batch.size", "max.message.bytes"]),
        (KafkaError._INVALID_DIFFERENT_RECORD, ["neighbour", "produce this one again"]),
        (KafkaError._UNKNOWN_PARTITION, ["no such partition"]),
        (KafkaError.THROTTLING_QUOTA_EXCEEDED, ["producer IDs", "keep producers"]),
    ],
)
def test_the_text_says_what_the_code_of_a_broker_means(code: int, words: list[str]) -> None:
    """Each once: the broker's own words are told as the reason."""
    error = KafkaError(code)
    failures = Failures(parse(({"bootstrap.servers": "127.0.0.1:1"},), {}).delivery)
    text = str(failures.reported(error, Message(topic="orders", partition=0, latency=1.0)))
    assert all(word in text for word in words)
    assert text.count(error.str()) == 1
    assert "transactional.id" not in text


def test_the_text_of_not_written_says_what_to_do() -> None:
    """Where it was to go is left out as far as it is not known."""
    error = DeliveryError(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), Outcome.NOT_WRITTEN, "orders", -1)
    assert error.partition is None
    assert str(error) == (
        "a record for orders failed with MSG_SIZE_TOO_LARGE (Broker: Message size too large). It is not in the log: "
        "produce it again when the cause is gone."
    )


def test_an_outcome_that_is_none_of_the_two_is_refused() -> None:
    """Text is taken as the outcome it names."""
    assert DeliveryError(PLAIN, "not_written").outcome is Outcome.NOT_WRITTEN  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="delivered"):
        DeliveryError(PLAIN, "delivered")  # type: ignore[arg-type]
