"""Readers and writers of Kafka message bodies, built from the JSON schemas Kafka publishes.

Every declared length is checked against the bytes that are left before anything is built from it, and unknown tagged
fields survive a round trip. A body is a plain dict with snake_case keys; tagged fields without a schema are
kept, as raw bytes by tag number, under the key ``_tags``. Format: KIP-482 and the protocol guide of Apache Kafka.
"""

import re
import struct
import uuid
from collections.abc import Callable, Mapping
from typing import Any

Body = dict[str, Any]
Read = Callable[[memoryview, int, int], tuple[Any, int]]
Write = Callable[[bytearray, Any], None]
_LAYOUTS = {"int8": "b", "int16": "h", "uint16": "H", "int32": "i", "int64": "q", "float64": "d", "bool": "?"}
_EMPTY: Mapping[str, Any] = {"bytes": b"", "records": b"", "uuid": uuid.UUID(int=0), "float64": 0.0}


class WireError(ValueError):
    """Bytes that are not the Kafka message they claim to be, or a value that a message cannot hold."""


class RefusedError(ValueError):
    """A request that a broker refuses; ``error_code`` is what the protocol answers."""

    def __init__(self, error_code: int, text: str = "") -> None:
        super().__init__(error_code, text)
        self.error_code = error_code

    def __str__(self) -> str:
        return str(self.args[1])


def _fixed(layout: str) -> tuple[Read, Write]:
    packer = struct.Struct(">" + layout)
    size, unpack, pack = packer.size, packer.unpack_from, packer.pack

    def read(data: memoryview, pos: int, end: int) -> tuple[Any, int]:
        if end - pos < size:
            raise WireError(f"the frame ends {size - end + pos} bytes too early, at byte {pos}")
        return unpack(data, pos)[0], pos + size

    def write(out: bytearray, value: Any) -> None:
        out += pack(value)

    return read, write


_read_int16, _write_int16 = _fixed("h")
_read_int32, _write_int32 = _fixed("i")
_read_int8, _write_int8 = _fixed("b")


def _read_uvarint(data: memoryview, pos: int, end: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        if pos >= end:
            raise WireError(f"the frame ends inside a varint, at byte {pos}")
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos
    raise WireError(f"a varint is longer than 5 bytes, at byte {pos}")


def _write_uvarint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _lengths(compact: bool, legacy: tuple[Read, Write], nullable: bool, what: str) -> tuple[Read, Write]:
    """Reader and writer of a length; -1 means null. A length beyond the bytes left never leaves the reader."""
    read_legacy, write_legacy = legacy

    def read(data: memoryview, pos: int, end: int) -> tuple[int, int]:
        start = pos
        if compact:
            length, pos = _read_uvarint(data, pos, end)
            length -= 1
        else:
            length, pos = read_legacy(data, pos, end)
        # Each element of an array takes at least one byte, so the same bound holds for strings and arrays.
        if length > end - pos:
            raise WireError(f"{what} at byte {start} declares {length}, but only {end - pos} bytes are left")
        if length < (-1 if nullable else 0):
            raise WireError(f"{what} at byte {start} declares the length {length}")
        return length, pos

    def write(out: bytearray, length: int) -> None:
        if length < 0 and not nullable:
            raise WireError(f"{what} must not be null")
        if compact:
            _write_uvarint(out, length + 1)
        else:
            write_legacy(out, length)

    return read, write


def _blob(
    lengths: tuple[Read, Write], load: Callable[[memoryview], Any], dump: Callable[[Any], bytes]
) -> tuple[Read, Write]:
    read_length, write_length = lengths

    def read(data: memoryview, pos: int, end: int) -> tuple[Any, int]:
        length, pos = read_length(data, pos, end)
        if length < 0:
            return None, pos
        try:
            return load(data[pos : pos + length]), pos + length
        except UnicodeDecodeError as error:
            raise WireError(f"a string at byte {pos} is not UTF-8") from error

    def write(out: bytearray, value: Any) -> None:
        raw = None if value is None else dump(value)
        write_length(out, -1 if raw is None else len(raw))
        out += raw or b""

    return read, write


def _uuid() -> tuple[Read, Write]:
    read_raw, write_raw = _fixed("16s")

    def read(data: memoryview, pos: int, end: int) -> tuple[uuid.UUID, int]:
        raw, pos = read_raw(data, pos, end)
        return uuid.UUID(bytes=raw), pos

    def write(out: bytearray, value: uuid.UUID) -> None:
        write_raw(out, value.bytes)

    return read, write


_FIXED = {**{kind: _fixed(layout) for kind, layout in _LAYOUTS.items()}, "uuid": _uuid()}


def first_and_last(versions_text: str | None) -> tuple[int, int]:
    """The first and last version of Kafka's notation: ``3+``, ``0-12``, ``7`` or ``none``."""
    if not versions_text or versions_text == "none":
        return 1, 0
    first, plus, _ = versions_text.partition("+")
    if plus:
        return int(first), 32767
    first, _, last = versions_text.partition("-")
    return int(first), int(last or first)


def holds(versions_text: str | None, version: int) -> bool:
    first, last = first_and_last(versions_text)
    return first <= version <= last


def _default(field: Mapping[str, Any]) -> Any:
    """The default of a field: a schema spells defaults as text, or leaves them out."""
    kind, given = field["type"], field.get("default", "")
    if given == "null":
        return None
    if kind.startswith("[]"):
        return []
    if "fields" in field:
        return {}
    if kind == "bool":
        return given in (True, "true")
    if kind == "string":
        return given
    return int(str(given), 0) if given != "" else _EMPTY.get(kind, 0)


def _codec(field: Mapping[str, Any], kind: str, version: int, compact: bool) -> tuple[Read, Write]:
    """Reader and writer of one field of this type; an array's elements come back here."""
    nullable = holds(field.get("nullableVersions"), version)
    if kind.startswith("[]"):
        return _array(field, kind[2:], version, compact, nullable)
    if "fields" in field:
        return struct_codec(field["fields"], version, compact)
    if kind in _FIXED:
        return _FIXED[kind]
    what = field["name"]
    if kind == "string":
        lengths = _lengths(compact, (_read_int16, _write_int16), nullable, what)
        return _blob(lengths, lambda raw: str(raw, "utf-8"), lambda text: text.encode())
    if kind in ("bytes", "records"):
        lengths = _lengths(compact, (_read_int32, _write_int32), nullable, what)
        return _blob(lengths, (lambda raw: raw) if kind == "records" else bytes, lambda raw: raw)
    raise WireError(f"the schema of {what} has the unknown type {kind}")


def _array(field: Mapping[str, Any], kind: str, version: int, compact: bool, nullable: bool) -> tuple[Read, Write]:
    element = {**field, "type": kind, "nullableVersions": None}
    read_element, write_element = _codec(element, kind, version, compact)
    read_length, write_length = _lengths(compact, (_read_int32, _write_int32), nullable, field["name"])

    def read(data: memoryview, pos: int, end: int) -> tuple[list[Any] | None, int]:
        length, pos = read_length(data, pos, end)
        if length < 0:
            return None, pos
        items = []
        for _ in range(length):
            item, pos = read_element(data, pos, end)
            items.append(item)
        return items, pos

    def write(out: bytearray, items: list[Any] | None) -> None:
        write_length(out, -1 if items is None else len(items))
        for item in items or ():
            write_element(out, item)

    return read, write


def _nullable_struct(read_struct: Read, write_struct: Write) -> tuple[Read, Write]:
    def read(data: memoryview, pos: int, end: int) -> tuple[Body | None, int]:
        present, pos = _read_int8(data, pos, end)
        return (None, pos) if present < 0 else read_struct(data, pos, end)

    def write(out: bytearray, value: Body | None) -> None:
        _write_int8(out, -1 if value is None else 1)
        if value is not None:
            write_struct(out, value)

    return read, write


def struct_codec(fields: list[Any], version: int, flexible: bool) -> tuple[Read, Write]:
    plain: list[tuple[str, Read, Write, Any]] = []
    tagged: dict[int, tuple[str, Read, Write]] = {}
    for field in fields:
        if not holds(field["versions"], version):
            continue
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", field["name"]).lower()
        codec = _codec(field, field["type"], version, flexible)
        is_struct = "fields" in field and not field["type"].startswith("[]")
        if is_struct and holds(field.get("nullableVersions"), version):
            codec = _nullable_struct(*codec)
        if "tag" in field and holds(field["taggedVersions"], version):
            tagged[field["tag"]] = (name, *codec)
        else:
            plain.append((name, *codec, _default(field)))

    def read(data: memoryview, pos: int, end: int) -> tuple[Body, int]:
        body: Body = {}
        for name, read_field, _, _ in plain:
            body[name], pos = read_field(data, pos, end)
        if flexible:
            pos = read_tags(data, pos, end, body, tagged)
        return body, pos

    def write(out: bytearray, body: Body) -> None:
        for name, _, write_field, default in plain:
            write_field(out, body.get(name, default))
        if flexible:
            write_tags(out, body, tagged)

    return read, write


def read_tags(data: memoryview, pos: int, end: int, body: Body, known: Mapping[int, tuple[str, Read, Write]]) -> int:
    count, pos = _read_uvarint(data, pos, end)
    if count > (end - pos) // 2:  # a tag and its size
        raise WireError(f"the frame declares {count} tagged fields, but only {end - pos} bytes are left")
    for _ in range(count):
        tag, pos = _read_uvarint(data, pos, end)
        size, pos = _read_uvarint(data, pos, end)
        if size > end - pos:
            raise WireError(f"tag {tag} declares {size} bytes, but only {end - pos} are left")
        stop = pos + size
        if tag in known:
            name, read_field, _ = known[tag]
            body[name], pos = read_field(data, pos, stop)
            if pos != stop:
                raise WireError(f"tag {tag} ({name}) declares {size} bytes and uses {size - stop + pos}")
        else:
            body.setdefault("_tags", {})[tag] = bytes(data[pos:stop])
        pos = stop
    return pos


def write_tags(out: bytearray, body: Body, known: Mapping[int, tuple[str, Read, Write]]) -> None:
    raw: dict[int, bytes] = dict(body.get("_tags", {}))
    for tag, (name, _, write_field) in known.items():
        # Only what is there is written: a default spelled out by the sender stays spelled out.
        if name in body:
            value = bytearray()
            write_field(value, body[name])
            raw[tag] = bytes(value)
    _write_uvarint(out, len(raw))
    for tag in sorted(raw):
        _write_uvarint(out, tag)
        _write_uvarint(out, len(raw[tag]))
        out += raw[tag]
