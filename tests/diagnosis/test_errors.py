"""Every error of this library can be copied and sent to another process, with all it says."""

import copy
import multiprocessing
import pickle
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest
from confluent_kafka.cimpl import KafkaError

from safeproducer import CallSite, Outcome, SafeProducer, errors

FATAL = KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "planted", fatal=True, txn_requires_abort=True)
REFUSED = ("linger.ms", "'soon'", "it must be a number", "Give a number")
EXAMPLES: dict[str, Callable[[], Any]] = {
    "CallbackReentryError": lambda: errors.CallbackReentryError("close() inside a callback"),
    "ConfigurationError": lambda: errors.ConfigurationError(*REFUSED),
    "ConfigurationTypeError": lambda: errors.ConfigurationTypeError(*REFUSED),
    "ConfigurationValueError": lambda: errors.ConfigurationValueError(*REFUSED),
    "DeliveryError": lambda: errors.DeliveryError(FATAL, Outcome.UNKNOWN, "orders", 3, 1001, 2, 1.5, 2.5, 4),
    "FatalError": lambda: errors.FatalError(FATAL, 17),
    "ForkedProducerError": lambda: errors.ForkedProducerError("made before a fork"),
    "ProducerClosedError": lambda: errors.ProducerClosedError("closed"),
    "ProducerIdLimitError": lambda: errors.ProducerIdLimitError("used up", 36.0, CallSite("app.py", 7, "run")),
    "QueueFullError": lambda: errors.QueueFullError("full"),
    "SafeProducerError": lambda: errors.SafeProducerError("something", 5),
}
WAYS: dict[str, Callable[[Any], Any]] = {"copy": copy.copy, "deepcopy": copy.deepcopy} | {
    f"pickle {protocol}": lambda error, protocol=protocol: pickle.loads(pickle.dumps(error, protocol))  # noqa: S301
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
}
NAMES = sorted(errors.__all__)


def told(error: Any) -> dict[str, Any]:
    said = {"type": type(error), "str": str(error), "repr": repr(error), "attributes": told_values(vars(error))}
    if isinstance(error, KafkaError):
        return said | {"kafka": told_value(error)}
    return said | {"args": [told_value(argument) for argument in error.args]}


def told_values(attributes: dict[str, Any]) -> dict[str, Any]:
    return {name: told_value(value) for name, value in attributes.items()}


def told_value(value: Any) -> Any:
    if not isinstance(value, KafkaError):
        return value
    flags = (value.fatal(), value.retriable(), value.txn_requires_abort())
    return value.code(), value.name(), value.str(), *map(bool, flags)


def refusal(config: dict[str, Any]) -> Exception:
    try:
        SafeProducer(config)
    except Exception as error:
        return error
    raise AssertionError("no error")


def refused_in_another_process(config: dict[str, Any]) -> None:
    """Work for a process pool."""
    SafeProducer(config)


def test_no_class_is_forgotten() -> None:
    """A new error gets its example here, and with it all tests below."""
    assert sorted(EXAMPLES) == NAMES
    for name, make in EXAMPLES.items():
        assert type(make()) is getattr(errors, name)


def test_a_fatal_error_counts_records_only_where_there_are_some() -> None:
    """Else nobody is told to fetch reports that are not there."""
    some, none = str(errors.FatalError(FATAL, 17)), str(errors.FatalError(FATAL, 0))
    assert "17 accepted record(s)" in some
    assert "record(s)" not in none
    for told in (some, none):
        assert "close() it, and create one new producer" in told.replace("then close()", "close()")


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize("name", NAMES)
def test_a_copy_says_the_same(name: str, way: Callable[[Any], Any]) -> None:
    """Type, text, arguments and attributes, those that somebody added, too."""
    error = EXAMPLES[name]()
    error.tried = [1, 2]
    if isinstance(error, BaseException):
        error.add_note("while testing")
    copied = way(error)
    assert copied is not error
    assert told(copied) == told(error)
    assert told(way(copied)) == told(error)


@pytest.mark.parametrize(
    "config",
    [{"no.such.setting": 1}, {"linger.ms": "soon"}, {"on_delivery": 5}, {"error_cb": 5}, {"safeproducer.mode": "x"}],
    ids=str,
)
def test_a_refusal_from_librdkafka_too(config: dict[str, Any]) -> None:
    """Those that are changed after they were made, with the code that librdkafka gave."""
    error = refusal({"bootstrap.servers": "127.0.0.1:1", **config})
    for way in WAYS.values():
        assert told(way(error)) == told(error)


def test_a_refusal_in_a_process_pool_arrives() -> None:
    """An error that cannot be unpickled breaks the whole pool."""
    config = {"bootstrap.servers": "127.0.0.1:1", "linger.ms": "soon"}
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        refused = pool.submit(refused_in_another_process, config)
        with pytest.raises(errors.ConfigurationError) as caught:
            refused.result(timeout=60)
    assert caught.value.setting == "linger.ms"
    assert str(caught.value) == str(refusal(config))
