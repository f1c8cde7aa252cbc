"""Records of one topic that have a value, a key and nothing else: what produce() does, without a call for each.

For the sink of Spark. It is no method of SafeProducer, whose methods are those of confluent_kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from safeproducer.pipeline.engine import Engine
from safeproducer.pipeline.process.frames import raised_by_native_call
from safeproducer.producer import SafeProducer

ANY_PARTITION = -1


def produce_pairs(
    producer: SafeProducer,
    topic: str,
    pairs: Iterable[tuple[bytes | None, bytes | None]],
    callback: Callable[..., Any],
    refused: Callable[[str, bytes | None, bytes | None], object],
) -> None:
    """Accept (value, key) of each record in their order. Without exception each is counted before it is handed over.

    `refused(topic, value, key)` is called for a record that was not accepted; what it raises ends the loop. Why it was
    not, a produce() of the same tells. What is raised by a signal handler is not caught.
    """
    engine: Engine = producer._SafeProducer__engine  # type: ignore[attr-defined]
    counters, route = engine.counters, engine.route
    account = counters.open(topic)
    report = account.bind(callback)[1]
    for value, key in pairs:
        account.accepted += 1  # as in produce()
        try:
            route.send(topic, value, key, ANY_PARTITION, report)  # looked up for each: the route may change meanwhile
        except BaseException as error:
            counters.interrupts += 1
            if not (isinstance(error, Exception) and raised_by_native_call(error)):
                raise
            account.accepted -= 1
            counters.interrupts -= 1  # one step with the line above
        else:
            continue
        refused(topic, value, key)
