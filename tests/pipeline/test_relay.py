"""One native producer, several owners one after the other: nobody but the present one is told."""

from __future__ import annotations

import gc
import time
import weakref
from typing import Any

from safeproducer import SafeProducer
from safeproducer.kafka.native import NativeProducer
from safeproducer.pipeline.cluster.relay import Owner, Relay
from tests.inside import engine_of

STATISTICS = {"statistics.interval.ms": 20, "debug": "broker", "test.mock.num.brokers": 1}


class Listener:
    def __init__(self) -> None:
        self.told: list[str] = []

    def owner(self) -> Owner:
        def note(kind: str) -> Any:
            return lambda *_: self.told.append(kind)

        return Owner(note("error"), note("throttle"), note("statistics"), note("log"))


def serve(native: Any, until: Any) -> None:
    deadline = time.monotonic() + 10
    while not until() and time.monotonic() < deadline:
        native.poll(0.05)
    assert until()


def test_only_the_present_owner_is_told() -> None:
    """Of statistics and log lines of a real client, from the moment of the change on."""
    first, second = Listener(), Listener()
    relay = Relay(first.owner())
    native = NativeProducer(relay.configured({"logger": "anything", **STATISTICS}))
    serve(native, lambda: {"statistics", "log"} <= set(first.told))
    relay.belong_to(second.owner())
    before = len(first.told)
    serve(native, lambda: {"statistics", "log"} <= set(second.told))
    assert len(first.told) == before
    relay.error(None)  # type: ignore[arg-type]
    relay.throttle(None)  # type: ignore[arg-type]
    assert second.told[-2:] == ["error", "throttle"]
    assert len(first.told) == before
    native.close()


def test_no_owner_is_told_until_there_is_one() -> None:
    relay = Relay()
    native = NativeProducer(relay.configured(dict(STATISTICS)))
    time.sleep(0.1)
    assert native.poll(0.5) > 0
    native.close()


def test_every_native_producer_has_a_relay_that_does_not_keep_it(mock_bootstrap: str) -> None:
    """A cycle would keep the engine until the garbage collector comes."""
    gc.disable()
    try:
        producer = SafeProducer({"bootstrap.servers": mock_bootstrap, "safeproducer.mode": "held"})
        engine = engine_of(producer)
        relays = engine.dispatcher.lanes._maker.make.__self__.relays
        assert set(relays) == {id(native) for native in engine.natives}
        gone = weakref.ref(engine)
        del producer, engine, relays
        assert gone() is None
    finally:
        gc.enable()
