"""safeproducer.fatal=renew on real brokers: the producer goes on, and the log agrees with what it told."""

import statistics
import time
from collections import Counter
from typing import Any

import pytest

from integration.kafka.cluster import KafkaCluster
from integration.lost_answers import settled
from safeproducer import SafeProducer
from tests.inside import engine_of, fatal_planter

ERRORS = 6


@pytest.mark.parametrize("mode", ["auto", "held"])
@pytest.mark.parametrize("ordering", ["partition", "key"])
def test_a_producer_goes_on_after_fatal_errors(kafka: KafkaCluster, topic: Any, mode: str, ordering: str) -> None:
    """From the error to the next delivery: 0.3 s at best, 3 s at most. Nothing is lost, twice or reordered."""
    name, plant_fatal = topic(2), fatal_planter()
    own = {"safeproducer.mode": mode, "safeproducer.ordering": ordering, "safeproducer.fatal": "renew"}
    producer = SafeProducer({"bootstrap.servers": kafka.bootstrap, "log_level": 0, **own})
    ended: dict[bytes, tuple[str, float]] = {}
    sent = 0

    def report(error: Any, message: Any) -> None:
        how = "delivered" if error is None else str(error.outcome)
        ended[message.value()] = how, time.monotonic()

    def send(count: int) -> None:
        nonlocal sent
        for _ in range(count):
            producer.produce(name, b"%d" % sent, b"k%d" % (sent % 2), sent % 2, on_delivery=report)
            sent += 1
            producer.poll(0)

    send(100)
    assert producer.flush(20) == 0
    seconds = []
    for number in range(ERRORS):
        engine = engine_of(producer)
        renewed(producer, number)  # the one that failed takes no second error
        send(200)
        plant_fatal(producer if engine.holds.direct is not None else next(iter(engine.dispatcher.lanes)))
        struck, after = time.monotonic(), sent
        while not (found := [ended[b"%d" % one][1] for one in range(after, sent) if delivered(ended, one)]):
            assert time.monotonic() < struck + 20, producer.explain()
            send(2)
            producer.poll(0.005)
        seconds.append(min(found) - struck)
    assert producer.flush(30) == 0
    renewed(producer, ERRORS)
    account = producer.snapshot()
    producer.close(10)
    assert (account.state, account.renewals, account.unresolved) == ("open", ERRORS, 0)
    assert len(ended) == sent
    logs = [[value for value in values if value is not None] for values in settled(kafka, name)]
    copies = Counter(value for values in logs for value in values)
    for value, (how, _) in ended.items():
        assert copies[value] in {"delivered": (1,), "not_written": (0,), "unknown": (0, 1)}[how], (value, how)
    for values in logs:
        numbers = [int(value) for value in values if ended[value][0] == "delivered"]
        assert numbers == sorted(numbers)
    print(f"{mode} {ordering}: median {statistics.median(seconds):.3f} s, worst {max(seconds):.3f} s")
    assert min(seconds) <= 0.3
    assert max(seconds) <= 3.0


def renewed(producer: SafeProducer, times: int) -> None:
    """Wait until it was."""
    began = time.monotonic()
    while producer.snapshot().renewals < times:
        assert time.monotonic() < began + 20, producer.explain()
        producer.poll(0.005)


def delivered(ended: dict[bytes, tuple[str, float]], number: int) -> bool:
    """Whether that record was."""
    return ended.get(b"%d" % number, ("", 0.0))[0] == "delivered"
