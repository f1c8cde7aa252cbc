"""Requests in pieces, from the schemas, so that every length in them can be found and changed."""

import re
import struct
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from safeproducer.testing.codec import holds
from safeproducer.testing.fake.handlers import SERVED
from safeproducer.testing.wire import _schema, encode_request
from tests.testing.raw import make_batch

__all__ = ["Piece", "pieces", "requests", "varint", "with_giant_lengths"]

TEXT = "abc"
GIANTS = {
    "int16": [struct.pack(">h", value) for value in (2**15 - 1, -1, -2)],
    "int32": [struct.pack(">i", value) for value in (2**31 - 1, -1, -2)],
}
_FIXED = {"int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint16": "H", "float64": "d", "bool": "?"}


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


GIANTS["varint"] = [varint(value) for value in (2**31 - 1, 2**32 - 1, 2**35 - 1)]


@dataclass(frozen=True)
class Piece:
    """Bytes of a request; ``length`` says how they are a length or a count, empty if they are none."""

    data: bytes
    length: str = ""
    what: str = ""


def _value(field: Mapping[str, Any], kind: str, version: int) -> Any:
    """Something to say in this field: one element, a short text, one batch."""
    if kind.startswith("[]"):
        return [_value(field, kind[2:], version)]
    if "fields" in field:
        inner = (f for f in field["fields"] if holds(f["versions"], version))
        return {_snake(f["name"]): _value(f, f["type"], version) for f in inner}
    if kind == "records":
        return make_batch([b"value"], timestamp=1)
    return {"string": TEXT, "bytes": b"abc", "uuid": uuid.UUID(int=7), "bool": False, "float64": 1.5}.get(kind, 1)


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _length(size: int, compact: bool, legacy: str, what: str) -> Piece:
    return Piece(varint(size + 1), "varint", what) if compact else Piece(_pack(legacy, size), legacy, what)


def _pack(kind: str, value: Any) -> bytes:
    return value.bytes if kind == "uuid" else struct.pack(">" + _FIXED[kind], value)


def _field(field: Mapping[str, Any], kind: str, value: Any, version: int, compact: bool) -> Iterator[Piece]:
    what = field["name"]
    if kind.startswith("[]"):
        yield _length(len(value), compact, "int32", what)
        for item in value:
            yield from _field({**field, "nullableVersions": None}, kind[2:], item, version, compact)
    elif "fields" in field:
        if holds(field.get("nullableVersions"), version):
            yield Piece(b"\1")
        yield from _struct(field["fields"], value, version, compact)
    elif kind in ("string", "bytes", "records"):
        raw = value.encode() if kind == "string" else value
        yield _length(len(raw), compact, "int16" if kind == "string" else "int32", what)
        if kind == "records":
            yield from (Piece(raw[:8]), Piece(raw[8:12], "int32", "batch length"), Piece(raw[12:23]))
            yield from (Piece(raw[23:27], "int32", "last offset delta"), Piece(raw[27:57]))
            yield from (Piece(raw[57:61], "int32", "record count"), Piece(raw[61:]))
        else:
            yield Piece(raw)
    else:
        yield Piece(_pack(kind, value))


def _struct(fields: list[Any], body: Mapping[str, Any], version: int, flexible: bool) -> Iterator[Piece]:
    present = [field for field in fields if holds(field["versions"], version)]
    tagged = [field for field in present if "tag" in field and holds(field["taggedVersions"], version)]
    for field in present:
        if field not in tagged:
            yield from _field(field, field["type"], body[_snake(field["name"])], version, flexible)
    if flexible:
        yield Piece(varint(len(tagged)), "varint", "tag count")
        for field in sorted(tagged, key=lambda field: int(field["tag"])):
            inner = list(_field(field, field["type"], body[_snake(field["name"])], version, True))
            yield Piece(varint(field["tag"]))
            yield Piece(varint(sum(len(piece.data) for piece in inner)), "varint", f"size of tag {field['tag']}")
            yield from inner


def pieces(api: str, version: int, number: int = 1) -> list[Piece]:
    """A request of this API in which each field says something, header included."""
    schema = _schema(api, "Request")
    flexible = holds(schema["flexibleVersions"], version)
    fields = [field for field in schema["fields"] if holds(field["versions"], version)]
    body = {_snake(field["name"]): _value(field, field["type"], version) for field in fields}
    header = [Piece(struct.pack(">hhi", schema["apiKey"], version, number)), Piece(b"\0\3", "int16", "client id")]
    header.append(Piece(b"raw"))
    if flexible:
        header.append(Piece(b"\0", "varint", "header tag count"))
    found = [*header, *_struct(fields, body, version, flexible)]
    assert b"".join(piece.data for piece in found) == encode_request(api, version, number, "raw", body)
    return found


def requests() -> Iterator[tuple[str, int]]:
    """Each API and version that is served."""
    for api, (first, last, _) in SERVED.items():
        yield from ((api, version) for version in range(first, last + 1))


def with_giant_lengths(api: str, version: int) -> Iterator[tuple[str, bytes]]:
    """The request with one length or count made absurd, for each of them; and which it was."""
    whole = pieces(api, version)
    for place, piece in enumerate(whole):
        for giant in GIANTS.get(piece.length, ()):
            changed = [*whole[:place], Piece(giant), *whole[place + 1 :]]
            yield f"{api} v{version} {piece.what}={giant.hex()}", b"".join(part.data for part in changed)
