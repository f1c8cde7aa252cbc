"""KIP-1269's names and numbers, all in one place: to be changed here when the KIP changes. It is not final.

A broker that knows the KIP remembers as many batches of a producer in a partition as the topic's config says, or else
its own, instead of 5. It tells so in a tagged field of each partition of a Produce answer, from version 14 on; the
request of that version is that of version 13. The default, 5, is not sent: no field and 5 mean the same.
"""

from __future__ import annotations

from typing import Final

TOPIC_CONFIG: Final = "producer.state.batches.to.retain"
BROKER_CONFIG: Final = "log.producer.state.batches.to.retain"
DEFAULT: Final = 5
MINIMUM: Final = 5
"""Least value of both configs: clients of today count on five."""

PRODUCE_VERSION: Final = 14
TAG: Final = 1
FIELD: Final = "producer_state_batches_to_retain"
"""The tagged field's name in a decoded answer."""
