"""CRC-32C (Castagnoli), the checksum of record batches: compiled, where google-crc32c is installed.

It comes with the extra ``safeproducer[testing]``. Without it, or where it has no compiled part, pure Python does the
same at about 3 ns a byte for large batches, sixty times as long.
"""

import warnings
from collections.abc import Callable
from functools import lru_cache

__all__ = ["crc32c", "crc32c_in_python"]


def _compiled() -> Callable[[bytes], int] | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is slow without its compiled part: then it is not used
        try:
            from google_crc32c import implementation, value  # noqa: PLC0415
        except ImportError:
            return None
    return value if implementation == "c" else None


compiled = _compiled()
"""The compiled one, None without it."""

# x^6777 + x^484 + x^100 + 1 is a multiple of the checksum's polynomial, so a long message can be shortened by whole
# blocks with three shifts, without changing its remainder. The same holds with all exponents doubled, again and again
# (squaring over GF(2)). The checksum takes the first bit as the highest power: low bits of the integer go first.
_DEGREE, _MIDDLE, _LOW = 6777, 484, 100


@lru_cache(maxsize=1)
def _table() -> tuple[int, ...]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)  # noqa: PLW2901
        table.append(value)
    return tuple(table)


def crc32c(data: bytes | memoryview) -> int:
    """The CRC-32C of these bytes."""
    return crc32c_in_python(data) if compiled is None else compiled(bytes(data))


def crc32c_in_python(data: bytes | memoryview) -> int:
    """The same without the compiled one."""
    crc, bits = 0xFFFFFFFF, len(data) * 8
    if bits >= _DEGREE + 8:
        message = int.from_bytes(data, "little") ^ crc
        while bits >= _DEGREE + 8:
            scale = 1 << (((bits - 8) // _DEGREE).bit_length() - 1)
            degree, middle, low = _DEGREE * scale, _MIDDLE * scale, _LOW * scale
            block = min(degree - middle, bits - degree) & ~7
            first = message & ((1 << block) - 1)
            rest = message >> block
            message = rest ^ first << (degree - middle - block)
            message ^= first << (degree - low - block) ^ first << (degree - block)
            bits -= block
        data, crc = message.to_bytes(bits // 8, "little"), 0
    table = _table()
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF
