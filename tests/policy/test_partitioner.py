"""Partitioners: ours puts every key where librdkafka itself puts it; on the wire in tests/contract."""

import ctypes
from pathlib import Path

import confluent_kafka
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from safeproducer.policy.partitioner import ANY, NAMES, partitioner

HASHING = [name for name in NAMES if name != "random"]
LOWEST_FNV1A = bytes.fromhex("0e9c450115")
"""Its FNV-1a hash is -2**31, whose absolute value does not fit a signed number of 32 bits."""
keys = st.one_of(st.binary(min_size=1, max_size=200), st.binary(min_size=1, max_size=9))


@pytest.fixture(scope="module")
def librdkafka() -> ctypes.CDLL:
    """The C library below confluent_kafka; it exports its partitioners."""
    libraries = Path(confluent_kafka.__file__).parent.with_name("confluent_kafka.libs").glob("librdkafka*")
    return ctypes.CDLL(str(next(libraries)))


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
