"""Telemetry as hooks: OpenTelemetry traces and metrics, and structlog events; all file an error under the same name.

The core imports nothing of this package: pass an instance to `SafeProducer(config, hooks=[...])`, or pay nothing.

    from safeproducer.telemetry import OpenTelemetryMetrics
    from safeproducer.telemetry.opentelemetry import OpenTelemetryHook
    from safeproducer.telemetry.structlog import StructlogHook
"""

from __future__ import annotations

from safeproducer.telemetry.conventions import error_type
from safeproducer.telemetry.metrics import OpenTelemetryMetrics

__all__ = ["OpenTelemetryMetrics", "error_type"]
