"""Time limits by SIGALRM around produce() and poll(), as task queues and test runners set them: the handler raises."""

from __future__ import annotations

import contextlib
import random
import signal
from itertools import count
from typing import Any, NoReturn

from integration.applications.programs.given import TOPIC, accepted, make, reported, say

ROUNDS = 200


class TooLongError(Exception):
    """The time is over."""


def too_long(*_: Any) -> NoReturn:
    raise TooLongError


def work() -> None:
    while True:
        value = str(next(numbers))
        producer.produce(TOPIC, value, on_delivery=reported)
        accepted(value)
        for _ in range(20):
            producer.poll(0)


if __name__ == "__main__":
    numbers = count()
    producer = make()
    signal.signal(signal.SIGALRM, too_long)
    for _ in range(ROUNDS):
        with contextlib.suppress(TooLongError):
            try:
                signal.setitimer(signal.ITIMER_REAL, random.uniform(0.001, 0.004))
                work()
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    say("left", count=producer.flush(20))
    value = "last"
    producer.produce(TOPIC, value, on_delivery=reported)
    accepted(value)
    say("left", count=producer.flush(20))
