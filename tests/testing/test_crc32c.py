"""The checksum of record batches against a bit-by-bit one."""

import random

import pytest

from safeproducer.testing.crc32c import crc32c


def bit_by_bit(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@pytest.mark.parametrize("size", [0, 1, 9, 847, 848, 849, 850, 1633, 1634, 1700, 3389, 3390, 3391, 12345, 40000])
def test_any_length_has_the_same_checksum_as_bit_by_bit(size: int) -> None:
    """The shortening of long messages, at and around the lengths where it takes another step, changes no result."""
    data = random.Random(size).randbytes(size)
    assert crc32c(data) == bit_by_bit(data)
    assert crc32c(memoryview(data)) == crc32c(data)
