"""The exception that the C client leaves behind when librdkafka reports a fatal error."""

from __future__ import annotations

from typing import Any

from safeproducer.kafka.native import KafkaError


def discard_pending(raised: tuple[Any, Any, Any]) -> None:
    """Swallow a fatal error that the C client left pending; re-raise anything else.

    When librdkafka reports a fatal error while flush() serves delivery reports, the C client sets a Python exception
    and goes on calling callbacks; the first C call inside one then fails for no fault of its own, and a callback that
    does not catch that loses its record's report. The exception can even be a KafkaError, which is no BaseException.
    The producer learns of the fatal error from the flush itself.
    """
    kind, error, _ = raised
    if not (issubclass(kind, (SystemError, KafkaError))):
        raise error
