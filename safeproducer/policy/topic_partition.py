"""Which partition, by name of its topic and number: a plain tuple, because one is made for each record."""

from __future__ import annotations

TopicPartition = tuple[str, int]
