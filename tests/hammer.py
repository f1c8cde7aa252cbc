"""Many threads at once, which the interpreter switches between as often as it can."""

import sys
import threading
from collections.abc import Callable


def hammer(work: Callable[[int], object], threads: int, interval: float = 1e-6) -> None:
    """Run `work(number)` on so many threads, and wait for all. `interval`: seconds between two switches, at most."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(interval)
    try:
        started = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
        for thread in started:
            thread.start()
        for thread in started:
            thread.join()
    finally:
        sys.setswitchinterval(before)
