"""Report callbacks by number: kept while a record uses the number, from however many threads, and not longer."""

import gc
import weakref
from typing import Any

from safeproducer.pipeline.record import ReportNumbers
from tests.hammer import hammer
from tests.inside import hold


class Report:
    def __call__(self, error: Any, message: Any) -> None:
        pass


def test_a_callback_is_kept_until_its_last_record_ends() -> None:
    """Also one that nobody else refers to."""
    numbers = ReportNumbers()
    report = Report()
    seen = weakref.ref(report)
    number = hold(numbers, report)
    assert hold(numbers, report) == number
    numbers.hold_again(number)
    del report
    numbers.release(number, 2)
    assert numbers[number] is seen()
    numbers.release(number)
    assert seen() is None
    assert len(numbers) == 0


def test_threads_do_not_lose_each_others_callbacks() -> None:
    """One lets a callback go for the last time while others hold it again."""
    numbers = ReportNumbers()
    shared = [Report(), Report()]
    failures: list[BaseException] = []

    def work(_: int) -> None:
        try:
            for turn in range(30_000):
                report = shared[turn % 2]
                number = hold(numbers, report)
                assert numbers[number] is report
                numbers.release(number)
        except BaseException as error:
            failures.append(error)

    hammer(work, 4)
    assert failures == []
    assert len(numbers) == 0


def test_a_waiting_record_is_nothing_to_the_garbage_collector() -> None:
    """That is what the numbers are for; a tuple that holds the callback itself stays among what it visits."""
    numbers = ReportNumbers()
    report = Report()
    records = [(b"%d" % each, None, hold(numbers, report), 1, None, 40, 0.0) for each in range(10)]
    others = [(b"%d" % each, None, report, 1, None, 40, 0.0) for each in range(10)]
    gc.collect()
    assert not any(map(gc.is_tracked, records))
    assert all(map(gc.is_tracked, others))
