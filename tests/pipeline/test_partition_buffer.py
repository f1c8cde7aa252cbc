"""What is taken from a partition buffer fits into a batch, as the wire format counts bytes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeproducer.pipeline.buffer.partition_buffer import PartitionBuffer
from safeproducer.pipeline.record import OVERHEAD, TIMESTAMP, VALUE
from safeproducer.policy.affinity import Affinity
from safeproducer.policy.decision import Hold
from safeproducer.policy.hold_reason import HoldReason

SPARE = 3
"""Bytes that a large record may take beyond its share of a batch."""


def varint(number: int) -> int:
    """How many bytes a number takes in a record: zigzag, seven bits in each."""
    number = number << 1 if number >= 0 else (-number << 1) - 1
    return max(1, -(-number.bit_length() // 7))


def on_the_wire(record: Any, offset: int, first_ms: int) -> int:
    """The record's bytes in a batch, without headers."""
    value, key = record[VALUE], record[1]
    body = 1 + varint(record[TIMESTAMP] - first_ms) + varint(offset) + varint(-1 if key is None else len(key))
    body += (0 if key is None else len(key)) + varint(len(value)) + len(value) + varint(0)
    return varint(body) + body


records = st.lists(
    st.tuples(st.integers(0, 70_000), st.none() | st.integers(0, 200), st.integers(0, 10**9)), min_size=1, max_size=200
)


@given(records, st.integers(100, 100_000), st.integers(1, 200), st.booleans())
def test_a_batch_is_no_larger_than_it_may_be(
    rows: list[tuple[int, int | None, int]], size: int, count: int, keyed: bool
) -> None:
    """However far apart its times are; only its first record may be larger alone, and nothing is lost."""
    buffer = PartitionBuffer("a", 0, Affinity() if keyed else None)
    held: list[Any] = []
    stamp = 1_700_000_000_000
    for value, key, later in rows:
        stamp += later if later % 3 == 0 else later % 3
        body = value + (key or 0)
        held.append((bytes(value), None if key is None else bytes(key), None, stamp, None, body + OVERHEAD, 0.0))
    buffer.records.extend(held)
    buffer.bytes = sum(record[5] for record in held)
    taken: list[Any] = []
    buffer.take(count, size, 0, taken)
    assert taken == held[: len(taken)]
    assert buffer.bytes == sum(record[5] for record in held[len(taken) :])
    assert 1 <= len(taken) <= count
    wire = sum(on_the_wire(record, number, taken[0][TIMESTAMP]) for number, record in enumerate(taken))
    assert len(taken) == 1 or wire <= size + SPARE * sum(len(record[VALUE]) > 8_000 for record in taken)
    if len(taken) < min(count, len(held)):
        following = sum(record[5] for record in held[: len(taken) + 1])
        assert following + 3 * (len(taken) + 1) > size, "room was left"


@given(st.lists(st.sampled_from([b"k", b"l", b"m", None]), max_size=30), st.integers(1, 12), st.integers(0, 12))
def test_records_that_a_failed_lane_did_not_take_keep_order(keys: list[bytes | None], count: int, taken: int) -> None:
    """A batch before it has the keys in that lane, and another lane looked at the records meanwhile."""
    held: list[Any] = [(b"", key, None, 0, None, OVERHEAD, float(number)) for number, key in enumerate(keys)]
    buffer = PartitionBuffer("a", 0, Affinity())
    for key in (b"k", b"l"):
        buffer.keys.bind(key, 1)
    buffer.records.extend(held)
    buffer.bytes = len(held) * OVERHEAD
    if keys:
        buffer.take(count, 10_000, 2, [])
    out = {record[6] for record in held} - {record[6] for queue in buffer.queues() for record in queue}
    if buffer.bound.get(1) or buffer.records:
        batch: list[Any] = []
        buffer.take(count, 10_000, 1, batch)
        accepted, back = batch[:taken], batch[taken:]
        out |= {record[6] for record in accepted}
        buffer.take_back(back, 1)
    buffer.unbind(1)
    buffer.unbind(2)
    left = list(buffer.records)
    assert {record[6] for record in left} | out == {record[6] for record in held}
    assert buffer.bytes == len(left) * OVERHEAD
    for key in (b"k", b"l", b"m"):
        numbers = [record[6] for record in left if record[1] == key]
        assert numbers == sorted(numbers)


@pytest.mark.parametrize("step_ms", [1, 1_000_000])
def test_many_small_records_fit_exactly(step_ms: int) -> None:
    """Where a byte too few for each record adds up to more than the room that the last one left."""
    size, body = 40_000, 64
    buffer = PartitionBuffer("a", 0)
    held: list[Any] = [
        (bytes(body), bytes(body), None, 1_700_000_000_000 + number * step_ms, None, 2 * body + OVERHEAD, 0.0)
        for number in range(400)
    ]
    buffer.records.extend(held)
    taken: list[Any] = []
    buffer.take(1_000, size, 0, taken)
    assert 250 < len(taken) < 400
    assert sum(on_the_wire(record, number, taken[0][TIMESTAMP]) for number, record in enumerate(taken)) <= size


def test_a_record_waited_longest_for_one_of_the_reasons_of_its_own_time():
    """Waits for one reason are added up; those of before it came, and times without a reason, count for nothing."""
    buffer = PartitionBuffer("a", 0)
    throttled, linger = HoldReason.THROTTLED, HoldReason.LINGER
    for at, reason in ((0, throttled), (10, None), (20, linger), (22, throttled), (23, linger), (25, None)):
        buffer.wait_for(None if reason is None else Hold(None, reason), float(at))
    assert buffer.waits.longest(4.0, 26.0) == throttled
    assert buffer.waits.longest(8.0, 26.0) == linger
    assert buffer.waits.longest(25.0, 26.0) is None
    assert PartitionBuffer("a", 0).waits.longest(0.0, 1.0) is None
