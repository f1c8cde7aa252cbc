"""What the tests of spans share: a hook with the spans that it made, and what is read of one."""

from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Sampler

from safeproducer.telemetry.opentelemetry import OpenTelemetryHook


class Tracing:
    def __init__(self, sampler: Sampler | None = None, **options: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(sampler=sampler)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.hook = OpenTelemetryHook(self.provider, **options)

    @property
    def ended(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def traceparent(of: Any) -> str:
    """The header that carries this context."""
    return f"00-{of.trace_id:032x}-{of.span_id:016x}-{of.trace_flags:02x}"


def context_of(span: ReadableSpan) -> str:
    return traceparent(span.get_span_context())
