"""KIP-854: a broker forgets idle producer IDs, by the timestamps of their records, and idempotence is lost unsaid."""

import time

from tests.conformance.target import end_offset, until
from tests.conformance.test_configs import BROKER, DELETE, SET, alter
from tests.conformance.test_descriptions import producers
from tests.testing.raw import RawClient, make_batch

OUT_OF_ORDER = 45
AGE = "producer.id.expiration.ms"
TWO_DAYS_MS = 2 * 86_400_000


def remembered(client: RawClient, topic: str) -> set[int]:
    """The producer IDs of partition 0."""
    error, found = producers(client, topic)
    assert error == 0
    return {one["producer_id"] for one in found}


def set_age(client: RawClient, milliseconds: int | None) -> None:
    """Of all brokers; None is the default again."""
    change = (AGE, DELETE, None) if milliseconds is None else (AGE, SET, str(milliseconds))
    assert alter(client, BROKER, "", change) == 0


def test_the_age_is_that_of_the_newest_record_timestamp(client: RawClient, name: str) -> None:
    """A record of two days ago is older than the day that is the default: its ID is gone at the next check."""
    now = int(time.time() * 1000)
    for producer, timestamp in ((7, now - TWO_DAYS_MS), (8, now)):
        old = make_batch([b"v"], producer_id=producer, epoch=0, sequence=0, timestamp=timestamp)
        assert client.produce(name, old)["error_code"] == 0
    until(lambda: remembered(client, name) == {8}, "the old one is forgotten, the new one is not")


def test_the_age_can_be_changed_at_run_time_and_nothing_is_said(client: RawClient, name: str) -> None:
    """Known, a repeated batch is a duplicate and a gap is refused; forgotten, both are appended as if they were new."""
    first, gap = (make_batch([b"v"], producer_id=7, epoch=1, sequence=sequence) for sequence in (0, 5))
    lower = make_batch([b"v"], producer_id=7, epoch=0, sequence=9)

    def send(batch: bytes) -> tuple[int, int]:
        answer = client.produce(name, batch)
        return answer["error_code"], answer["base_offset"]

    assert [send(first), send(first), send(gap)] == [(0, 0), (0, 0), (OUT_OF_ORDER, -1)]
    set_age(client, 100)
    try:
        until(lambda: not remembered(client, name), "the producer is forgotten")
        assert end_offset(client, name) == 1
        assert send(first) == (0, 1)
        until(lambda: not remembered(client, name), "it is forgotten again")
        assert send(gap) == (0, 2)
        until(lambda: not remembered(client, name), "and again")
        assert send(lower) == (0, 3)
    finally:
        set_age(client, None)
