"""The tool itself: while it traces, nothing comes where nothing could come without it."""

import gc
import threading
from queue import SimpleQueue

from safeproducer.pipeline.record import ReportNumbers
from tests.contract.support import switching
from tests.pipeline.interleaving import between, codes_of


class Cycle:
    """What only the garbage collector ends."""

    ended = 0

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        Cycle.ended += 1


def test_no_thread_comes_in_the_middle_of_a_step() -> None:
    """As the sender releases numbers while produce() holds them: a callback was kept in one of a hundred batches."""
    numbers, held = ReportNumbers(), SimpleQueue[int]()

    def report(error: object, message: object) -> None:
        pass

    def hold() -> int:
        number = id(report)
        numbers.uses[number] += 1
        numbers.reports[number] = report
        return number

    def release() -> None:
        while number := held.get():
            numbers.release(number)

    other = threading.Thread(target=release, daemon=True)
    with switching(1e-4):
        other.start()
        for _ in range(200):
            with between(codes_of(hold), -1, lambda: None):
                for _ in range(20):
                    held.put(hold())
        held.put(0)
        other.join(10)
    assert not numbers.reports, dict(numbers.uses)


def test_no_garbage_is_collected_in_the_middle_of_a_step() -> None:
    """Else a handler raises in the destructor of another test's producer."""
    Cycle.ended = 0
    with between(set(), -1, lambda: None):
        for _ in range(2_000):
            Cycle()
        assert Cycle.ended == 0
    gc.collect()
    assert Cycle.ended == 2_000
    assert gc.isenabled()
