"""Telemetry as hooks: OpenTelemetry traces and structlog events; both file an error under the same name.

The core imports nothing of this package: pass an instance to `SafeProducer(config, hooks=[...])`, or pay nothing.

    from safeproducer.telemetry.opentelemetry import OpenTelemetryHook
    from safeproducer.telemetry.structlog import StructlogHook
"""

from __future__ import annotations

from safeproducer.kafka.native import KafkaError, KafkaException


def error_type(error: KafkaError | BaseException) -> str:
    """librdkafka's name of the error code (`_MSG_TIMED_OUT`, `UNKNOWN_TOPIC_OR_PART`), else the exception's class.

    The error's text is left out on purpose: that of a refused record may quote its key or value.
    """
    if isinstance(error, KafkaException) and error.args and isinstance(error.args[0], KafkaError):
        error = error.args[0]
    if isinstance(error, KafkaError):
        return str(error.name())
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
