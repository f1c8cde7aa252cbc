"""Produces in each mode, and prints what was delivered, when the first record was, and what was logged at ERROR."""

import json
import logging
import time
from typing import Any

from safeproducer import SafeProducer
from safeproducer.testing import FakeCluster

RECORDS = 500
WAYS: dict[str, dict[str, Any]] = {
    "auto": {},
    "held": {"safeproducer.mode": "held"},
    "passthrough": {"safeproducer.mode": "passthrough"},
    "lanes": {"safeproducer.mode": "held", "safeproducer.ordering": "key", "safeproducer.lanes": 3},
}


class Errors(logging.Handler):
    """Keeps what is logged at ERROR."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def first_record(bootstrap: str) -> float:
    """Seconds from a new producer's first record to its acknowledgement."""
    producer = SafeProducer({"bootstrap.servers": bootstrap})
    began = time.monotonic()
    producer.produce("t", b"first")
    producer.flush(10)
    taken = time.monotonic() - began
    producer.close(10)
    return taken


def main() -> None:
    errors = Errors()
    logging.getLogger().addHandler(errors)
    delivered = {}
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        first = sorted(first_record(cluster.bootstrap) for _ in range(5))[2]
        for name, settings in WAYS.items():
            cluster.create_topic(name)
            producer = SafeProducer({"bootstrap.servers": cluster.bootstrap, **settings})
            for number in range(RECORDS):
                producer.produce(name, b"value", key=str(number))
                producer.poll(0)
            report = producer.close(30)
            delivered[name] = [report.delivered, len(cluster.log(name))]
    print(json.dumps({"first": first, "delivered": delivered, "errors": errors.texts}))


if __name__ == "__main__":
    main()
