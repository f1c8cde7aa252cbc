"""Starts Spark's Python workers as `pyspark.daemon` does, and has imported what all of them import before it forks,
with what safeproducer depends on.

A worker took 1.4 s of CPU for that, one of this daemon takes 0.2 s. Nothing of safeproducer or confluent_kafka is
loaded before the fork.
"""

import sys
from importlib import import_module

from pyspark.daemon import manager

if __name__ == "__main__":
    for module in ("pyarrow", "pandas", "structlog", "opentelemetry.metrics", sys.argv[1]):
        import_module(module)
    manager()
