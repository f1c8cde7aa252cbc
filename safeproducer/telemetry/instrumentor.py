"""`opentelemetry-instrument python app.py` traces and measures each producer, without a change to the application.

Each thing is done once: the instrumentation of confluent_kafka replaces `confluent_kafka.Producer`, which is no part
of a SafeProducer.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

try:
    from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]
except ModuleNotFoundError as error:
    needs = f"safeproducer.telemetry.instrumentor needs {error.name}: pip install 'safeproducer[otel]'"
    raise ModuleNotFoundError(needs, name=error.name) from None

from safeproducer.hooks import Hooks
from safeproducer.telemetry.metrics import OpenTelemetryMetrics
from safeproducer.telemetry.opentelemetry import OpenTelemetryHook


class SafeProducerInstrumentor(BaseInstrumentor):  # type: ignore[misc]
    """Gives an OpenTelemetryHook and OpenTelemetryMetrics to each producer that has none of that class.

    It does so from `instrument(tracer_provider=None, meter_provider=None)` until `uninstrument()`. Producers that are
    made in that time keep what they got. The providers are those of OpenTelemetry by default.
    There is one for a process, as of each BaseInstrumentor; its `args` and `kwargs` are not used.
    """

    def instrumentation_dependencies(self) -> Collection[str]:
        return ()

    def _instrument(self, **kwargs: Any) -> None:
        Hooks.of_each = (
            OpenTelemetryHook(kwargs.get("tracer_provider")),
            OpenTelemetryMetrics(kwargs.get("meter_provider")),
        )

    def _uninstrument(self, **_: Any) -> None:
        Hooks.of_each = ()
