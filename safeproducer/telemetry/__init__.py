"""Telemetry as hooks: OpenTelemetry traces and structlog events.

The core imports nothing of this package: pass an instance to `SafeProducer(config, hooks=[...])`, or pay nothing.

    from safeproducer.telemetry.opentelemetry import OpenTelemetryHook
    from safeproducer.telemetry.structlog import StructlogHook
"""
