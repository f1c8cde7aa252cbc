"""The forms of configuration, and what is refused with which exception."""

import collections
import logging
from typing import Any

import pytest
from confluent_kafka import KafkaException

from tests.contract.support import NOWHERE, send_one, wait_until

QUIET = {"bootstrap.servers": NOWHERE, "log_level": 0}


class Mine(dict[str, Any]):
    """A dict of the user's own."""


FORMS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "dict": ((QUIET,), {}),
    "empty-dict": (({},), {}),
    "keywords": ((), QUIET),
    "dict-and-keywords": (({"bootstrap.servers": "x"},), QUIET),
    "dict-and-logger": ((QUIET,), {"logger": logging.getLogger("contract")}),
    "dict-subclass": ((Mine(QUIET),), {}),
    "ordered-dict": ((collections.OrderedDict(QUIET),), {}),
    "logger-inside": (({**QUIET, "logger": logging.getLogger("contract")},), {}),
    "logger-none": ((QUIET,), {"logger": None}),
    "int": (({**QUIET, "linger.ms": 5},), {}),
    "float": (({**QUIET, "linger.ms": 0.5},), {}),
    "str": (({**QUIET, "linger.ms": "5"},), {}),
    "bool": (({**QUIET, "enable.idempotence": True},), {}),
    "bool-false": (({**QUIET, "enable.idempotence": False},), {}),
    "bool-text": (({**QUIET, "enable.idempotence": "TRUE"},), {}),
    "none": (({**QUIET, "client.id": None},), {}),
    "topic-settings": (({**QUIET, "default.topic.config": {"acks": 1, "partitioner": "murmur2"}},), {}),
    "topic-settings-empty": (({**QUIET, "default.topic.config": {}},), {}),
    "aliases": (
        (
            {
                "metadata.broker.list": NOWHERE,
                "log_level": 0,
                "delivery.timeout.ms": 1000,
                "compression.codec": "none",
                "request.required.acks": -1,
                "max.in.flight": 5,
            },
        ),
        {},
    ),
    "only-errors": (({**QUIET, "delivery.report.only.error": True},), {}),
    "consumer-setting": (({**QUIET, "auto.offset.reset": "earliest", "group.id": "g"},), {}),
    "dotted-topic-settings": (({**QUIET, "request.timeout.ms": 1000, "compression.level": 1},), {}),
}


@pytest.mark.parametrize(("args", "kwargs"), FORMS.values(), ids=FORMS.keys())
def test_accepted_form(producer_class: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Each form of configuration makes a producer that answers."""
    producer = producer_class(*args, **kwargs)
    producer.poll(0)
    producer.close()


def test_value_that_is_not_text_of_any_encoding_is_refused(producer_class: type) -> None:
    """A lone surrogate in a value is refused; confluent_kafka breaks a rule of Python on the way and raises
    SystemError."""
    with pytest.raises((SystemError, ValueError, KafkaException)):
        producer_class({"bootstrap.servers": "\ud800", "log_level": 0})


def test_configuration_is_not_changed(producer_class: type) -> None:
    """The caller's dict, and the dict in it, are left as they are."""
    config = {**QUIET, "default.topic.config": {"acks": 1}, "on_delivery": print, "debug": "msg", "log_level": 0}
    before = {**config, "default.topic.config": {"acks": 1}}
    producer_class(config, logger=logging.getLogger("contract")).close()
    assert config == before


def test_keyword_wins_over_dict(producer_class: type, cluster: Any, topic: str) -> None:
    """A setting given both ways has the keyword's value."""
    producer = producer_class(
        {"bootstrap.servers": NOWHERE, "log_level": 0}, **{"bootstrap.servers": cluster.bootstrap}
    )
    send_one(producer, topic, b"v")
    producer.close()


def test_topic_settings_take_effect(make: Any, cluster: Any, topic: str) -> None:
    """A setting under default.topic.config holds as if it stood beside the others."""
    producer = make({"bootstrap.servers": NOWHERE, "default.topic.config": {"message.timeout.ms": 200}})
    errors: list[Any] = []
    send_one(producer, "t", b"v", on_delivery=lambda error, _message: errors.append(error.name()))
    assert errors == ["_MSG_TIMED_OUT"]


@pytest.mark.parametrize("acks", [0, 1, "all", -1, "1"])
def test_acks_setting(make: Any, cluster: Any, topic: str, acks: Any) -> None:
    """Whatever acks says, a record is reported once and is in the log; with acks=0 without an offset."""
    producer = make({"acks": acks})
    reports: list[Any] = []
    send_one(producer, topic, b"v", on_delivery=lambda error, message: reports.append((error, message)))
    [(error, message)] = reports
    assert error is None
    assert message.offset() == (None if acks == 0 else 0)
    wait_until(lambda: cluster.values(topic) == [b"v"])  # with acks=0 the report says no more than "sent"
