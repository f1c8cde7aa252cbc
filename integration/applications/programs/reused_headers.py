"""One dict of headers, filled anew for each record: confluent_kafka copies it inside produce()."""

from __future__ import annotations

import time

from integration.applications.programs.given import TOPIC, accepted, make, reported

SECONDS = 1.5

if __name__ == "__main__":
    producer = make()
    headers: dict[str, str | bytes | None] = {}
    end = time.monotonic() + SECONDS
    number = 0
    while time.monotonic() < end:
        headers["number"] = str(number)
        producer.produce(TOPIC, str(number), headers=headers, on_delivery=reported)
        accepted(str(number))
        producer.poll(0.005)
        number += 1
    producer.flush(20)
