"""What is told on a thread of its own: each notice once, whoever comes while the thread is about to end."""

import threading
import time

import pytest

from safeproducer.runtime.threads import Notices
from tests.contract.support import wait_until
from tests.hammer import hammer


@pytest.mark.parametrize("_", range(5))
def test_notices_from_many_threads_are_each_told_once(monkeypatch: pytest.MonkeyPatch, _: int) -> None:
    """Two of them may make a thread each; a notice may come when the thread has found nothing more to tell."""
    raised: list[object] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    notices = Notices(lambda: True)
    told: list[tuple[int, int]] = []
    each, threads = 200, 4  # fewer than are kept

    def tell(number: int) -> None:
        for count in range(each):
            notices.tell(told.append, (number, count))
            if count % 7 == 0:
                time.sleep(0)

    hammer(tell, threads)
    wait_until(lambda: len(told) >= each * threads)
    assert sorted(told) == [(number, count) for number in range(threads) for count in range(each)]
    assert not raised
