"""Requests in which each field says something, and the same with one length or count made absurd."""

import re
import struct
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

from safeproducer.testing import codec
from safeproducer.testing.codec import holds
from safeproducer.testing.fake.handlers import SERVED
from safeproducer.testing.wire import _schema, encode_request
from tests.testing.raw import make_batch

__all__ = ["request_of", "requests", "with_giant_lengths"]

GIANTS = {
    "int16": [struct.pack(">h", value) for value in (2**15 - 1, -1, -2)],
    "int32": [struct.pack(">i", value) for value in (2**31 - 1, -1, -2)],
    "uvarint": [b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x7f"],
}
BATCH = make_batch([b"value"], timestamp=1)
OF_BATCH = {"batch length": 8, "last offset delta": 23, "record count": 57}


def requests() -> Iterator[tuple[str, int]]:
    """Each API and version that is served."""
    for api, (first, last, _) in SERVED.items():
        yield from ((api, version) for version in range(first, last + 1))


def _value(field: Mapping[str, Any], kind: str, version: int, records: bytes) -> Any:
    """Something to say in this field: one element, a short text, one batch."""
    if kind.startswith("[]"):
        return [_value(field, kind[2:], version, records)]
    if "fields" in field:
        inner = [one for one in field["fields"] if holds(one["versions"], version)]
        return {_snake(one["name"]): _value(one, one["type"], version, records) for one in inner}
    said = {"string": "abc", "bytes": b"abc", "records": records, "bool": False, "float64": 1.5}
    return {**said, "uuid": uuid.UUID(int=7)}.get(kind, 1)


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def request_of(api: str, version: int, records: bytes = BATCH) -> bytes:
    body = _value(_schema(api, "Request"), "", version, records)
    return encode_request(api, version, 1, "raw", body)


class Lie:
    """Writes lengths as codec.py does, but for one of them; other threads are left alone."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self.at, self.giant = -1, b""
        self._thread = threading.get_ident()

    def writer(self, kind: str) -> Callable[[bytearray, int], None]:
        write = getattr(codec, f"_write_{kind}")

        def lied(out: bytearray, length: int) -> None:
            if threading.get_ident() == self._thread:
                self.kinds.append(kind)
                if len(self.kinds) - 1 == self.at:
                    out += self.giant
                    return
            write(out, length)

        return lied


def with_giant_lengths(api: str, version: int) -> Iterator[tuple[str, bytes]]:
    """The request with one length or count made absurd, for each of them; and which it was."""
    schema, lie, expected = _schema(api, "Request"), Lie(), request_of(api, version)
    flexible = holds(schema["flexibleVersions"], version)
    body = _value(schema, "", version, BATCH)
    found: list[tuple[str, bytes]] = []
    with mock.patch.multiple(codec, **{f"_write_{kind}": lie.writer(kind) for kind in GIANTS}):
        _, write = codec.struct_codec(schema["fields"], version, flexible)

        def written() -> bytes:
            lie.kinds = []
            out = bytearray(struct.pack(">hhi", schema["apiKey"], version, 1))
            codec._write_int16(out, 3)  # of the client ID
            out += b"raw"
            if flexible:
                codec.write_tags(out, {}, {})
            write(out, body)
            return bytes(out)

        assert written() == expected
        for place, kind in enumerate([*lie.kinds]):
            for giant in GIANTS[kind]:
                lie.at, lie.giant = place, giant
                found.append((f"{api} v{version} length {place}={giant.hex()}", written()))
    yield from found
    if BATCH in expected:
        for what, at in OF_BATCH.items():
            for giant in GIANTS["int32"]:
                records = BATCH[:at] + giant + BATCH[at + 4 :]
                yield f"{api} v{version} {what}={giant.hex()}", request_of(api, version, records)
