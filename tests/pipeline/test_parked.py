"""Native producers without an owner: real ones, served and told nobody."""

from __future__ import annotations

import time
from typing import Any

import pytest

from safeproducer.config import parse
from safeproducer.kafka.native import KafkaError, NativeProducer
from safeproducer.pipeline.cluster.relay import Relay
from safeproducer.pipeline.lanes.given import Given
from safeproducer.pipeline.parked import Former, ParkedLane, ParkedLanes, key_of

REUSE = {"safeproducer.producer.ids.policy": "reuse"}


def parked(config: dict[str, Any], former: Former | None = None) -> ParkedLanes:
    relay = Relay()
    lanes = [ParkedLane(NativeProducer(relay.configured(config)), relay, None)]
    left = ParkedLanes(lanes, (False, 0.0, {}), former)
    left.leave()
    return left


def test_parked_producers_do_not_pile_up() -> None:
    left = parked({"test.mock.num.brokers": 1, "statistics.interval.ms": 5})
    (native,) = left.natives
    time.sleep(0.3)
    assert len(native) > 5
    assert left.serve()
    assert len(native) <= 2
    left.close()


def test_tokens_are_renewed() -> None:
    """By the application's oauth_cb, which is the same object for whoever comes next."""
    asked: list[str] = []

    def token(config: str) -> tuple[str, float]:
        asked.append(config)
        return "token", time.time() + 2

    left = parked(
        {
            "bootstrap.servers": "127.0.0.1:1",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "OAUTHBEARER",
            "oauth_cb": token,
            "log_level": 0,
        }
    )
    deadline = time.monotonic() + 20
    while len(asked) < 3 and time.monotonic() < deadline:
        left.serve()
        time.sleep(0.05)
    assert len(asked) >= 3
    left.close()


def test_one_that_its_former_owner_has_closed_is_of_no_use() -> None:
    """Its sender may have closed an idle lane while the producer was collected."""
    left = parked({"test.mock.num.brokers": 1})
    left.natives[0].close()
    assert not left.serve()


@pytest.mark.parametrize("fatal", [True, False])
def test_a_fatal_error_is_noted(fatal: bool) -> None:
    left = parked({"test.mock.num.brokers": 1})
    left.lanes[0].relay.error(KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "no", fatal=fatal))
    assert left.serve() is not fatal
    left.close()


def test_a_former_owner_is_released_when_its_threads_have_ended() -> None:
    """And not before: what it was given may still change."""
    ends, given = [False, False, True], Given()
    former = Former(lambda _: ends.pop(0), lambda _: given)
    left = parked({"test.mock.num.brokers": 1}, former)
    assert [left.settled(0.1) for _ in range(4)] == [False, False, True, True]
    assert left.given is given
    assert left._former is None
    left.close()


def key(**settings: Any) -> Any:
    named = {name.replace("__", "."): value for name, value in settings.items()}
    return key_of(parse(({"bootstrap.servers": "a:1", **REUSE, **named},), {}))


def same(*_: Any) -> None:
    """A callback."""


def test_equal_is_what_librdkafka_got() -> None:
    """Values as text, objects by identity; what is the owner's does not matter."""
    assert key() == key(error_cb=same, on_delivery=print)
    assert key(linger__ms=5) == key(linger__ms="5")
    assert key(oauth_cb=same) == key(oauth_cb=same)
    assert key(oauth_cb=same) != key(oauth_cb=lambda _: None)
    assert key(safeproducer__max__block__ms=5) == key()
    for different in (
        {"linger__ms": 6},
        {"sasl__password": "x"},
        {"safeproducer__mode": "held"},
        {"safeproducer__ordering": "key"},
        {"stats_cb": same, "statistics__interval__ms": 100},
        {"bootstrap__servers": "b:1"},
    ):
        assert key(**different) != key(), different
    assert "secret" not in repr(key(sasl__password="secret"))
    assert key(enable__idempotence=False) is None
    assert key_of(parse(({"bootstrap.servers": "a:1"},), {})) is None
