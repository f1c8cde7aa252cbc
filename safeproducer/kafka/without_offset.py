"""A record that librdkafka reports as delivered though no broker acknowledged it.

An idempotent librdkafka that gets a batch acknowledged takes every earlier one for written, whatever became of its own
request: a leader that knows the producer would have rejected the later batch. A leader that does not know it takes any:
of a topic that was deleted and re-created in between, or of a partition that has no batch of this producer yet. Then
the earlier records are nowhere. These records are known by their missing offset.
"""

from __future__ import annotations

from safeproducer.kafka.native import KafkaError

WITHOUT_OFFSET = KafkaError(
    KafkaError._INCONSISTENT,
    "Local: Inconsistent state: a later batch of the partition was acknowledged, this record was not",
)
