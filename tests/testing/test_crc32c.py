"""The checksum of record batches against a bit-by-bit one."""

import random
import subprocess
import sys
from collections.abc import Callable

import pytest

from safeproducer.testing import crc32c as module
from safeproducer.testing.crc32c import crc32c, crc32c_in_python

WITHOUT = """
import sys, types, warnings

warnings.simplefilter("error")
if sys.argv[1] == "missing":
    sys.modules["google_crc32c"] = None
else:
    sys.modules["google_crc32c.cext"] = None  # as where no compiler was at hand
from safeproducer.testing.crc32c import crc32c

print(crc32c(b"123456789"))
"""


def bit_by_bit(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@pytest.mark.parametrize("checksum", [crc32c, crc32c_in_python])
@pytest.mark.parametrize("size", [0, 1, 9, 847, 848, 849, 850, 1633, 1634, 1700, 3389, 3390, 3391, 12345, 40000])
def test_any_length_has_the_same_checksum_as_bit_by_bit(
    size: int, checksum: Callable[[bytes | memoryview], int]
) -> None:
    """The shortening of long messages, at and around the lengths where it takes another step, changes no result."""
    data = random.Random(size).randbytes(size)
    assert checksum(data) == bit_by_bit(data)
    assert checksum(memoryview(data)) == checksum(memoryview(bytearray(data))) == checksum(data)


def test_the_compiled_one_is_used_where_it_is() -> None:
    """The extra brings it."""
    pytest.importorskip("google_crc32c", reason="google-crc32c is not installed")
    assert module.compiled is not None


@pytest.mark.parametrize("how", ["missing", "not compiled"])
def test_without_the_compiled_one_nothing_is_missing(how: str) -> None:
    """Neither an import nor a result; and nobody is warned of another package's slow way, which is not used."""
    command = [sys.executable, "-c", WITHOUT, how]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.stdout, ran.stderr) == (f"{0xE3069283}\n", "")
