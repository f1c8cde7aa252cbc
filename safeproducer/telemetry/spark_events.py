"""structlog events of the Spark sink: what became of a micro-batch, and sentences for whoever runs the driver."""

from __future__ import annotations

from typing import Any

import structlog


def tell(level: str, event: str, **fields: Any) -> None:
    """Log it with these fields. docs/operate/spark.md has the events, which begin with `spark_`."""
    getattr(structlog.get_logger("safeproducer"), level)(event, **fields)
