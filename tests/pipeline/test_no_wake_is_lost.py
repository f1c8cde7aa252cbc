"""Another thread may come between any two steps: what it asks for is done in time, not when something else happens."""

import time
from contextlib import suppress
from unittest import mock

from safeproducer.pipeline.dispatch.dispatcher import Dispatcher
from safeproducer.pipeline.dispatch.expiry import Expiry
from safeproducer.pipeline.schedule import Alarm
from safeproducer.pipeline.sender import Sender, _work
from safeproducer.runtime.threads import WakeLock
from tests.pipeline.interleaving import between, codes_of
from tests.pipeline.warmed import warmed

LONG_ROUND_TRIP = {1: 0.1, 2: 0.1, 3: 0.1}
LINGER = 0.005
TIMEOUT = 30.0
CONFIG = {"safeproducer.mode": "held", "message.timeout.ms": int(TIMEOUT * 1000), "linger.ms": 5}
SLACK = 0.15
"""Seconds by which a busy machine may make a sleep longer; less than LONGEST_SLEEP."""


def test_a_record_that_is_accepted_during_a_pump() -> None:
    codes = codes_of(Dispatcher.pump, Expiry.act, Alarm.begin, Alarm.end)
    step, steps = 0, [1]
    while step < steps[0]:
        with warmed(CONFIG, LONG_ROUND_TRIP, {"a": 2}) as rig:
            rig.dispatcher.recheck(rig.time.monotonic())
            with between(codes, step, lambda rig=rig: rig.produce("a", 1)) as steps:  # type: ignore[misc]
                rig.dispatcher.pump(rig.time.monotonic())
            now = rig.time.monotonic()
            assert rig.dispatcher.schedule.alarm.at <= now + LINGER, f"step {step}: it is not sent in time"
            assert rig.dispatcher.schedule.deadline.at <= now + TIMEOUT, f"step {step}: it does not fail in time"
        step += 1
    assert step > 20


def test_one_who_asks_while_another_asks() -> None:
    """The later time may win when both ask at once, but neither is forgotten, and no hurry."""
    codes = codes_of(Alarm.ask, Alarm.hurry)
    for first, second in ((5.0, 6.0), (6.0, 5.0)):
        step, steps = 0, [1]
        while step < steps[0]:
            alarm = Alarm()
            with between(codes, step, lambda alarm=alarm, second=second: alarm.ask(second)) as steps:  # type: ignore[misc]
                alarm.ask(first)
            assert alarm.at in (first, second)
            alarm = Alarm()
            with between(codes, step, alarm.hurry) as steps:
                alarm.ask(first)
            assert alarm.rings(0.0)
            step += 1


class Works:
    def __init__(self) -> None:
        self.due = float("inf")

    def release_callbacks(self) -> None:
        pass

    def turn(self, now: float) -> float:
        return self.due

    def near(self, now: float) -> None:
        return None


class AsleepError(Exception):
    """The sender begins to wait."""


def test_a_sender_that_is_woken_while_it_is_awake() -> None:
    """It sleeps no longer than until what is due then; a wake that is lost would let it sleep for LONGEST_SLEEP."""
    codes = codes_of(_work, Sender.turn, Sender.sleep, Works.turn, Works.near)
    step, steps = 0, [1]
    while step < steps[0]:
        works = Works()
        sender = Sender()
        sender.work_for(works)
        until: list[float] = []

        class Rings(WakeLock):
            def wait(self, timeout: float, until: list[float] = until) -> bool:
                if not super().wait(0) and timeout > 0:
                    until.append(time.monotonic() + timeout)
                    raise AsleepError
                return True

        def ask(sender: Sender = sender, works: Works = works, until: list[float] = until) -> None:
            if not until:
                works.due = time.monotonic() + 0.02
                sender.wake(works.due)

        sender._bell = Rings()
        with mock.patch.object(sender, "_start"), between(codes, step, ask) as steps, suppress(AsleepError):
            _work(lambda works=works: works, sender)  # type: ignore[arg-type, misc]
        assert step >= steps[0] or until[0] <= works.due + SLACK or works.due == float("inf"), f"step {step}"
        step += 1
    assert step > 15
