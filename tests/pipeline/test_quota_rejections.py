"""What is remembered of direct records until the broker knows this producer's ID."""

from typing import Any

import pytest

from safeproducer.pipeline.record import ReportNumbers
from safeproducer.pipeline.reports.quota_rejections import QuotaRejections
from tests.pipeline.interleaving import between, codes_of


def _report(error: Any, message: Any) -> None:
    pass


def _remember(rejections: QuotaRejections, key: bytes = b"k") -> None:
    rejections.remember("t", _report, (b"v", key, id(_report), 1, None, 15, 0.0))


@pytest.mark.parametrize("known", [False, True])
def test_a_record_that_is_remembered_while_others_are_forgotten(known: bool) -> None:
    """Wherever one thread's forget() comes in another one's remember(): its callback was kept for ever."""
    step, steps = 0, [1]
    while step < steps[0]:
        rejections = QuotaRejections(lambda: None, numbers := ReportNumbers())
        _remember(rejections, b"k" if known else b"other")
        # As for a handler that raises: not between a call's arguments and the call, where no thread is switched.
        with between(codes_of(QuotaRejections.remember), step, rejections.forget, raises=True) as steps:
            _remember(rejections)
        rejections.forget()
        assert not numbers.reports, f"step {step}"
        assert not rejections.remembered, f"step {step}"
        step += 1


def test_a_record_that_is_remembered_while_they_are_released() -> None:
    step, steps = 0, [1]
    while step < steps[0]:
        rejections = QuotaRejections(lambda: None, numbers := ReportNumbers())
        _remember(rejections)
        _remember(rejections)
        codes = codes_of(QuotaRejections.forget, ReportNumbers.release)
        with between(codes, step, lambda rejections=rejections: _remember(rejections)) as steps:  # type: ignore[misc]
            rejections.forget()
        assert sum(numbers.uses.values()) == rejections.remembered <= 1, f"step {step}"
        rejections.forget()
        assert not numbers.reports, f"step {step}"
        step += 1
    assert step > 3
