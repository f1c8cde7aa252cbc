"""structlog events of the Spark sink: what became of a micro-batch, and sentences for whoever runs the driver."""

from __future__ import annotations

from typing import Any

import structlog


def batch_written(**fields: Any) -> None:
    """All rows of a micro-batch are acknowledged. Event `spark_batch_written`, level info."""
    _logger().info("spark_batch_written", **fields)


def batch_aborted(**fields: Any) -> None:
    """Spark gave a micro-batch up. Event `spark_batch_aborted`, level error."""
    _logger().error("spark_batch_aborted", **fields)


def commit_refused(**fields: Any) -> None:
    """Spark commits tasks that have not written. Event `spark_commit_refused`, level error."""
    _logger().error("spark_commit_refused", **fields)


def note(sentence: str) -> None:
    """Something works otherwise than one might expect. Event `spark_note`, level warning."""
    _logger().warning("spark_note", note=sentence)


def _logger() -> Any:
    return structlog.get_logger("safeproducer")
