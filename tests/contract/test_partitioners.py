"""Which partition a record goes to, for every partitioner name of librdkafka."""

import zlib
from collections.abc import Callable
from typing import Any

import pytest

from tests.contract.support import PARTITIONS, Reports

KEYS = [f"key-{number}".encode() for number in range(60)] + [b"\0", b"\xff" * 33, "\u00e9".encode()]


def crc32(key: bytes) -> int:
    """librdkafka's "consistent" hash."""
    return zlib.crc32(key)


def murmur2(key: bytes) -> int:
    """The Java client's hash, made positive as Java does."""
    mask, factor = 0xFFFFFFFF, 0x5BD1E995
    value = (0x9747B28C ^ len(key)) & mask
    whole = len(key) & ~3
    for start in range(0, whole, 4):
        word = int.from_bytes(key[start : start + 4], "little") * factor & mask
        value = (value * factor & mask) ^ ((word ^ word >> 24) * factor & mask)
    if key[whole:]:
        value = (value ^ int.from_bytes(key[whole:], "little")) * factor & mask
    value = (value ^ value >> 13) * factor & mask
    return (value ^ value >> 15) & 0x7FFFFFFF


def fnv1a(key: bytes) -> int:
    """FNV-1a as Sarama uses it: a signed number made positive."""
    value = 0x811C9DC5
    for octet in key:
        value = (value ^ octet) * 0x01000193 & 0xFFFFFFFF
    return value if value < 1 << 31 else (1 << 32) - value


HASHES: dict[str, Callable[[bytes], int]] = {
    "consistent": crc32,
    "consistent_random": crc32,
    "murmur2": murmur2,
    "murmur2_random": murmur2,
    "fnv1a": fnv1a,
    "fnv1a_random": fnv1a,
}


def partitions_of(producer: Any, topic: str, keys: list[bytes | None]) -> list[int]:
    """The partition each key went to."""
    found: dict[int, int] = {}
    for number, key in enumerate(keys):
        producer.produce(
            topic, b"v", key, on_delivery=lambda error, message, n=number: found.update({n: message.partition()})
        )
    assert producer.flush(10) == 0
    return [found[number] for number in range(len(keys))]


@pytest.mark.parametrize("name", HASHES)
def test_keyed_records_go_where_the_hash_says(make: Any, topic: str, name: str) -> None:
    """A record with a key goes to hash(key) modulo partitions, whichever class and process produces it."""
    producer = make({"partitioner": name})
    expected = [HASHES[name](key) % PARTITIONS for key in KEYS]
    assert len(set(expected)) == PARTITIONS
    assert partitions_of(producer, topic, list(KEYS)) == expected


@pytest.mark.parametrize("name", HASHES)
def test_batches_are_partitioned_alike(make: Any, topic: str, name: str) -> None:
    """produce_batch() sends a key to the partition to which produce() sends it."""
    producer = make({"partitioner": name})
    reports = Reports()
    assert producer.produce_batch(topic, [{"key": key} for key in KEYS], on_delivery=reports) == len(KEYS)
    assert producer.flush(10) == 0
    found = {message.key(): message.partition() for _, message in reports}
    assert found == {key: HASHES[name](key) % PARTITIONS for key in KEYS}


def test_default_partitioner_is_consistent_random(producer: Any, topic: str) -> None:
    """Without a setting, keyed records go where CRC32 says."""
    assert partitions_of(producer, topic, list(KEYS)) == [crc32(key) % PARTITIONS for key in KEYS]


@pytest.mark.parametrize("name", ["consistent", "murmur2", "fnv1a"])
@pytest.mark.parametrize("key", [None, b""], ids=["none", "empty"])
def test_keyless_records_go_to_one_partition(make: Any, topic: str, name: str, key: bytes | None) -> None:
    """The partitioners without `random` send every record without a key to the same partition."""
    producer = make({"partitioner": name, "sticky.partitioning.linger.ms": 0})
    found = set(partitions_of(producer, topic, [key] * 100))
    assert found == {HASHES[name](b"") % PARTITIONS}


@pytest.mark.parametrize("name", ["random", "consistent_random", "murmur2_random", "fnv1a_random"])
def test_keyless_records_are_spread(make: Any, topic: str, name: str) -> None:
    """The partitioners with `random` spread records without a key over all partitions."""
    producer = make({"partitioner": name, "sticky.partitioning.linger.ms": 0})
    assert set(partitions_of(producer, topic, [None] * 200)) == set(range(PARTITIONS))


@pytest.mark.parametrize("name", ["consistent_random", "murmur2_random", "fnv1a_random"])
def test_empty_key_differs_between_partitioners(make: Any, topic: str, name: str) -> None:
    """An empty key counts as none for consistent_random and as a key for the others."""
    producer = make({"partitioner": name, "sticky.partitioning.linger.ms": 0})
    found = set(partitions_of(producer, topic, [b""] * 200))
    assert found == (set(range(PARTITIONS)) if name == "consistent_random" else {HASHES[name](b"") % PARTITIONS})


def test_keyless_records_stick_to_a_partition_for_a_while(make: Any, topic: str) -> None:
    """Within sticky.partitioning.linger.ms, records without a key go to one partition."""
    producer = make({"sticky.partitioning.linger.ms": 60_000})
    producer.produce(topic, b"warm", partition=0)  # so that the metadata is known
    assert producer.flush(10) == 0
    assert len(set(partitions_of(producer, topic, [None] * 100))) == 1


def test_explicit_partition_beats_the_partitioner(make: Any, topic: str) -> None:
    """partition= is where the record goes, whatever its key."""
    producer = make({"partitioner": "murmur2"})
    reports = Reports()
    for partition in range(PARTITIONS):
        producer.produce(topic, b"v", b"key", partition, on_delivery=reports)
    assert producer.flush(10) == 0
    assert sorted(message.partition() for _, message in reports) == list(range(PARTITIONS))
