"""One producer ID as a broker knows it, and why a broker did not tell. Pure; `producer_states` asks.

It loads without kafka-python, which is an extra.
"""

from typing import NamedTuple

TopicPartition = tuple[str, int]


class ProducerState(NamedTuple):
    """The state that the leader of a partition keeps of one producer ID."""

    producer_id: int
    last_sequence: int
    """That of its last record there; -1 when the leader knows only the marker of a transaction."""
    last_timestamp: float
    """The newest record timestamp of its last batch, in seconds since the Unix epoch."""
    transactional: bool = False
    in_transaction: bool = False
    """Its transaction is open, so the leader does not forget it."""


class AskError(Exception):
    """A question without an answer; `str()` is why, `code` librdkafka's name of the error where it has one.

    `of_broker`: no other question to this broker would be answered either.
    """

    def __init__(self, code: str, text: str, *, of_broker: bool) -> None:
        super().__init__(text)
        self.code = code
        self.of_broker = of_broker
