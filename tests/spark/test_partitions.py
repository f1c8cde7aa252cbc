"""Rows go to the partitions that Spark's own Kafka sink gives them: those of Java's producer."""

from __future__ import annotations

import random
from itertools import cycle, islice

import pytest

from safeproducer.policy.partitioner import partitioner
from safeproducer.spark.task import Task, write_task
from safeproducer.testing import FakeCluster
from tests.spark.arrow import batch
from tests.spark.conftest import MakeOptions

OF_KAFKA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
"""Of Kafka's own UtilsTest: key -> murmur2 as Java prints it."""


def javas(key: bytes) -> int:
    """Kafka's Utils.murmur2, line by line, in Java's 32-bit numbers: each byte counts as 0 to 255."""
    m, r = 0x5BD1E995, 24
    h = (0x9747B28C ^ len(key)) & 0xFFFFFFFF
    for i in range(0, len(key) // 4 * 4, 4):
        k = key[i] + (key[i + 1] << 8) + (key[i + 2] << 16) + (key[i + 3] << 24)
        k = k * m & 0xFFFFFFFF
        k = (k ^ k >> r) * m & 0xFFFFFFFF
        h = (h * m & 0xFFFFFFFF) ^ k
    rest = key[len(key) // 4 * 4 :]
    if len(rest) == 3:
        h ^= rest[2] << 16
    if len(rest) >= 2:
        h ^= rest[1] << 8
    if rest:
        h = (h ^ rest[0]) * m & 0xFFFFFFFF
    h = (h ^ h >> 13) * m & 0xFFFFFFFF
    h ^= h >> 15
    return h - (1 << 32) if h >> 31 else h


def some_keys(count: int) -> list[bytes]:
    """Of 0 to 40 bytes, of all values: of text, most bytes would be below 128."""
    chance = random.Random(18)
    return [chance.randbytes(length) for length in islice(cycle(range(41)), count)]


def test_the_reference_is_javas() -> None:
    assert {key: javas(key) for key in OF_KAFKA} == OF_KAFKA


def test_a_hundred_thousand_keys_on_one_to_fifty_partitions() -> None:
    """What decides where a row that is held back waits."""
    ours = partitioner("murmur2_random")
    for number, key in enumerate(some_keys(100_000)):
        count = number % 50 + 1
        assert ours(key, count) == (javas(key) & 0x7FFFFFFF) % count, (key, count)


@pytest.mark.parametrize("mode", ["auto", "held"])
def test_rows_are_on_javas_partitions(mode: str, cluster: FakeCluster, options: MakeOptions) -> None:
    """Whether librdkafka chooses or this library, without any option."""
    cluster.create_topic("seven", 7)
    keys = some_keys(2000)
    values = [b"%d" % number for number in range(2000)]
    made = options("seven", safeproducer_mode=mode)
    assert write_task([batch(values, key=keys)], made, Task(0, 0)).delivered == 2000
    for partition in range(7):
        for record in cluster.log("seven", partition):
            assert (javas(record.key or b"") & 0x7FFFFFFF) % 7 == partition
