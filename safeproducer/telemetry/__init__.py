"""Telemetry as hooks: OpenTelemetry traces and structlog events.

Nothing here is imported by the core: pass an instance to `SafeProducer(config, hooks=[...])`, or pay nothing.

    from safeproducer.telemetry.opentelemetry import OpenTelemetryHook
    from safeproducer.telemetry.structlog import StructlogHook
"""
