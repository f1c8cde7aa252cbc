"""Partitioners: ours puts every key where librdkafka itself puts it."""

import ctypes
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.cimpl import Producer
from hypothesis import example, given
from hypothesis import strategies as st

from safeproducer.policy.partitioner import ANY, NAMES, partitioner
from tests.clusters import cluster_of

HASHING = [name for name in NAMES if name != "random"]
LOWEST_FNV1A = bytes.fromhex("0e9c450115")
"""Its FNV-1a hash is -2**31, whose absolute value does not fit a signed number of 32 bits."""
PARTITIONS = 13
KEYS = [
    *(f"key-{number}".encode() for number in range(300)),
    *(bytes([octet]) for octet in range(256)),
    *(bytes(range(255, 255 - length, -1)) for length in range(1, 40)),
    b"\0" * 1000,
    b"\xff" * 4097,
    "\u00e9t\u00e9 \u20ac \U0001f600".encode(),
    LOWEST_FNV1A,
]
keys = st.one_of(st.binary(min_size=1, max_size=200), st.binary(min_size=1, max_size=9))


@pytest.fixture(scope="module")
def librdkafka() -> ctypes.CDLL:
    """The C library below confluent_kafka; it exports its partitioners."""
    libraries = Path(confluent_kafka.__file__).parent.with_name("confluent_kafka.libs").glob("librdkafka*")
    return ctypes.CDLL(str(next(libraries)))


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """A cluster with one topic of thirteen partitions: a prime, so every bit of a hash counts."""
    with cluster_of({"keys": PARTITIONS}) as cluster:
        yield cluster.bootstrap


def placed(bootstrap: str, name: str, records: list[bytes | None]) -> list[int]:
    """The partition to which librdkafka sends each key, without stickiness."""
    found: dict[int, int] = {}
    producer = Producer(
        {"bootstrap.servers": bootstrap, "partitioner": name, "sticky.partitioning.linger.ms": 0, "log_level": 0}
    )
    for number, key in enumerate(records):
        producer.produce(
            "keys", b"v", key, on_delivery=lambda _, message, n=number: found.update({n: message.partition()})
        )
    assert producer.flush(10) == 0
    producer.close()
    return [found[number] for number in range(len(records))]


@pytest.mark.parametrize("name", HASHING)
def test_keys_go_where_librdkafka_sends_them(bootstrap: str, name: str) -> None:
    choose = partitioner(name)
    expected = [choose(key, PARTITIONS) for key in KEYS]
    assert set(expected) == set(range(PARTITIONS))
    assert placed(bootstrap, name, list(KEYS)) == expected


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("key", [None, b""], ids=["none", "empty"])
def test_any_is_the_answer_where_librdkafka_chooses_at_random(bootstrap: str, name: str, key: bytes | None) -> None:
    """200 records without a key spread when the answer is ANY, else all go to the partition computed here."""
    answer = partitioner(name)(key, PARTITIONS)
    found = set(placed(bootstrap, name, [key] * 200))
    assert len(found) > 1 if answer == ANY else found == {answer}


@pytest.mark.parametrize("name", HASHING)
@given(key=keys, count=st.integers(1, 2**31 - 1))
@example(key=LOWEST_FNV1A, count=7)
@example(key=b"\xff" * 5000, count=1000)
def test_hashes_agree_with_the_c_functions(librdkafka: ctypes.CDLL, name: str, key: bytes, count: int) -> None:
    """For any key that is not empty and any number of partitions."""
    function = getattr(librdkafka, f"rd_kafka_msg_partitioner_{name}")
    function.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int32, *[ctypes.c_void_p] * 2]
    function.restype = ctypes.c_int32
    assert partitioner(name)(key, count) == function(None, key, len(key), count, None, None)


@given(key=st.none() | st.binary(max_size=20), count=st.integers(1, 1000))
def test_random_never_chooses(key: bytes | None, count: int) -> None:
    assert partitioner("random")(key, count) == ANY


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match=r"partitioner 'murmur3' is unknown; use one of random, consistent, .*fnv1a"):
        partitioner("murmur3")
