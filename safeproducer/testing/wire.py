"""This module makes bytes of Kafka's messages and back.

The schemas are Kafka's own (``schemas.json``; ``scripts/lib/schemas.py`` takes them from its jar). That of KIP-1269
(batches to retain) is added here. Reading and writing is :mod:`codec`'s. It checks declared lengths against the bytes
left, keeps unknown tagged fields through a round trip, and has one error, :class:`WireError`, for whatever is wrong
with the bytes.

A *frame* is what follows the four size bytes on the connection. Importing this module is cheap: the schemas are loaded
when an API is first used. All functions are pure and may be called from any thread.

KIP-1269's prose has its field in each partition of an answer, its schema beside the partitions of a topic. Here both
can be read and written; FakeCluster's `kip_1269_field` chooses.
"""

import json
import struct
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal

from safeproducer.testing import codec

PRODUCE_VERSION = 14
BATCHES_TO_RETAIN = "producer_state_batches_to_retain"
"""The name of KIP-1269's tagged field in a decoded answer. A field that is missing means the default."""
DEFAULT_BATCHES_TO_RETAIN = 5
_SCHEMA_NAME, _TAG = "ProducerStateBatchesToRetain", 1
Kind = Literal["Request", "Response"]
_UNSUPPORTED_VERSION = 35
_HEADER = struct.Struct(">hhih")
_CORRELATION = struct.Struct(">i")


def extend_produce(schema: dict[str, Any]) -> None:
    """Teach a schema of Kafka 4.4's Produce request or answer the version of this KIP; others are left alone."""
    if schema["name"] not in ("ProduceRequest", "ProduceResponse"):
        return
    first, _, last = schema["validVersions"].partition("-")
    schema["validVersions"] = f"{first}-{max(int(last), PRODUCE_VERSION)}"
    if schema["name"] == "ProduceResponse":
        topics = next(field for field in schema["fields"] if field["name"] == "Responses")
        partitions = next(field for field in topics["fields"] if field["name"] == "PartitionResponses")
        since = f"{PRODUCE_VERSION}+"
        added = {"taggedVersions": since, "tag": _TAG, "default": str(DEFAULT_BATCHES_TO_RETAIN)}
        for fields in (partitions["fields"], topics["fields"]):
            fields.append({"name": _SCHEMA_NAME, "type": "int32", "versions": since, **added})


@dataclass(frozen=True, slots=True)
class RequestHeader:
    """The start of every request; ``body`` is where the body starts in the frame.

    ``body`` is None for an API or version without a schema: then it cannot be known whether the header has tags.
    """

    api: str
    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body: int | None


@cache
def _schemas() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("schemas.json").read_text(encoding="utf-8"))
    return found


@cache
def _api_keys() -> dict[str, int]:
    requests = (schema for name, schema in _schemas().items() if name.endswith("Request"))
    return {schema["name"].removesuffix("Request"): schema["apiKey"] for schema in requests}


@lru_cache(maxsize=256)
def api_name(key: int) -> str:
    """The name of an API key, ``Produce`` for 0; ``Api71`` for a key without a schema."""
    return next((name for name, known in _api_keys().items() if known == key), f"Api{key}")


def api_key(api: str) -> int:
    """The key of an API name, 0 for ``Produce``. Raises WireError for a name without a schema."""
    if api not in _api_keys():
        raise codec.WireError(f"there is no schema of an API named {api!r}")
    return _api_keys()[api]


@cache
def _schema(api: str, kind: Kind) -> Mapping[str, Any]:
    schema = _schemas().get(f"{api}{kind}")
    if schema is None:
        raise codec.WireError(f"there is no schema of {api}")
    schema = deepcopy(schema)  # two threads may come at once, and each extends its own
    extend_produce(schema)
    shared = {struct["name"]: struct["fields"] for struct in schema.get("commonStructs", ())}
    schema["fields"] = _with_shared(schema["fields"], shared)
    return schema


def _with_shared(fields: list[Any], shared: Mapping[str, list[Any]]) -> list[Any]:
    """The fields with structs that a schema defines once put in wherever they are named."""
    whole = []
    for field in fields:
        inner = field.get("fields") or shared.get(field["type"].removeprefix("[]"))
        whole.append({**field, "fields": _with_shared(inner, shared)} if inner else field)
    return whole


def versions(api: str) -> tuple[int, int]:
    """The oldest and newest version of this API that can be read. Raises WireError if there is none."""
    return codec.first_and_last(_schema(api, "Request")["validVersions"])


@cache
def _message(api: str, kind: Kind, version: int) -> tuple[codec.Read, codec.Write, bool]:
    """Reader, writer and whether it is flexible (compact lengths, tagged fields)."""
    first, last = versions(api)
    schema = _schema(api, kind)
    if not first <= version <= last:
        raise codec.WireError(f"{api} v{version} is outside the known versions {first} to {last}")
    flexible = codec.holds(schema["flexibleVersions"], version)
    return (*codec.struct_codec(schema["fields"], version, flexible), flexible)


def read_request_header(frame: bytes) -> RequestHeader:
    """The header of a request frame; unknown header tags are skipped. Raises WireError if it is cut short."""
    data, end = memoryview(frame), len(frame)
    if end < _HEADER.size:
        raise codec.WireError(f"a request of {end} bytes is shorter than its header")
    key, version, correlation, length = _HEADER.unpack_from(frame)
    pos = _HEADER.size
    if length > end - pos or length < -1:
        raise codec.WireError(f"the client id declares {length} bytes, {end - pos} are left")
    client = None
    if length >= 0:
        try:
            client = str(data[pos : pos + length], "utf-8")
        except UnicodeDecodeError as error:
            raise codec.WireError("the client id is not UTF-8") from error
        pos += length
    api = api_name(key)
    try:
        flexible = _message(api, "Request", version)[2]
    except codec.WireError:
        return RequestHeader(api, key, version, correlation, client, None)
    if flexible:
        pos = codec.read_tags(data, pos, end, {}, {})
    return RequestHeader(api, key, version, correlation, client, pos)


def _decode(read: codec.Read, frame: bytes, pos: int, what: str, *, trailing: bool = False) -> codec.Body:
    body, pos = read(memoryview(frame), pos, len(frame))
    if pos != len(frame) and not trailing:
        raise codec.WireError(f"{what} leaves {len(frame) - pos} of {len(frame)} bytes unread")
    return dict(body)


def decode_request(header: RequestHeader, frame: bytes, *, trailing: bool = False) -> codec.Body:
    """The body of the request frame that ``header`` was read from. Raises WireError.

    ``trailing`` lets bytes behind the body pass, as brokers do: librdkafka 2.16 asks for all topics with 3 too many.
    """
    read = _message(header.api, "Request", header.version)[0]
    if header.body is None:
        raise codec.WireError(f"the header of this {header.api} v{header.version} request was read without a schema")
    return _decode(read, frame, header.body, f"{header.api} v{header.version} request", trailing=trailing)


def decode_response(api: str, version: int, frame: bytes) -> tuple[int, codec.Body]:
    """Correlation id and body of the answer to a request of this API and version. Raises WireError.

    Header tags are kept as ``_header_tags`` so that :func:`encode_response` gives the same bytes again.
    """
    read, _, flexible = _message(api, "Response", version)
    if len(frame) < _CORRELATION.size:
        raise codec.WireError(f"a response of {len(frame)} bytes is shorter than its header")
    tags: codec.Body = {}
    pos = _CORRELATION.size
    # ApiVersions answers keep the old header for ever, so that a client can read them before it knows the broker.
    if flexible and api != "ApiVersions":
        pos = codec.read_tags(memoryview(frame), pos, len(frame), tags, {})
    if api == "ApiVersions" and version and frame[pos : pos + 2] == struct.pack(">h", _UNSUPPORTED_VERSION):
        # A broker that does not know the version answers in the oldest one.
        read, version = _message(api, "Response", 0)[0], 0
    body = _decode(read, frame, pos, f"{api} v{version} response")
    if tags:
        body["_header_tags"] = tags["_tags"]
    return _CORRELATION.unpack_from(frame)[0], body


def _encode(write: codec.Write, out: bytearray, body: codec.Body, what: str) -> bytes:
    try:
        write(out, body)
    except (struct.error, AttributeError, TypeError, UnicodeError) as error:
        raise codec.WireError(f"{what} cannot hold this value: {error}") from error
    return bytes(out)


def encode_request(api: str, version: int, correlation_id: int, client_id: str | None, body: codec.Body) -> bytes:
    """A request frame; missing fields take the schema's defaults. Raises WireError."""
    _, write, flexible = _message(api, "Request", version)
    client = b"" if client_id is None else client_id.encode()
    out = bytearray(_HEADER.pack(api_key(api), version, correlation_id, -1 if client_id is None else len(client)))
    out += client
    if flexible:
        codec.write_tags(out, {"_tags": body.get("_header_tags", {})}, {})
    return _encode(write, out, body, f"{api} v{version} request")


def encode_response(api: str, version: int, correlation_id: int, body: codec.Body) -> bytes:
    """An answer frame; missing fields take the schema's defaults. Raises WireError."""
    _, write, flexible = _message(api, "Response", version)
    out = bytearray(_CORRELATION.pack(correlation_id))
    if flexible and api != "ApiVersions":
        codec.write_tags(out, {"_tags": body.get("_header_tags", {})}, {})
    return _encode(write, out, body, f"{api} v{version} response")
