"""A raw Kafka client for tests: one connection, requests as dicts, batches made to measure."""

import socket
import ssl
import struct
import time
import uuid
import warnings
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import Any, Self

import pytest

from safeproducer.testing.produce import crc32c
from safeproducer.testing.wire import decode_response, encode_request

__all__ = ["PLENTY", "RawClient", "fetch_body", "kafka_python", "make_batch", "produce_body"]

PLENTY = 1 << 20


def kafka_python(module: str = "kafka") -> Any:
    """A module of it, whatever its version; without it the test is skipped, or the module of tests."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it reads its own schemas in a deprecated way
        return pytest.importorskip(module, reason="kafka-python has it not, or is not installed", exc_type=ImportError)


def _varint(value: int) -> bytes:
    value = value << 1 ^ value >> 63
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def make_batch(
    values: Sequence[bytes],
    *,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    timestamp: int | None = None,
    codec: int = 0,
    pack: Callable[[bytes], bytes] = bytes,
) -> bytes:
    """A batch of message format 2 with these values; record n has the timestamp `timestamp` (default: now) + n."""
    timestamp = int(time.time() * 1000) if timestamp is None else timestamp
    records = b""
    for number, value in enumerate(values):
        record = b"\0" + _varint(number) * 2 + _varint(-1) + _varint(len(value)) + value + _varint(0)
        records += _varint(len(record)) + record
    last = len(values) - 1
    producer = producer_id, epoch, sequence
    checked = struct.pack(">hiqqqhii", codec, last, timestamp, timestamp + last, *producer, len(values))
    checked += pack(records)
    return struct.pack(">qiibI", 0, len(checked) + 9, -1, 2, crc32c(checked)) + checked


def _named(topic: Any, name: str) -> dict[str, Any]:
    return {"topic_id" if isinstance(topic, uuid.UUID) else name: topic}


def produce_body(topic: Any, records: bytes | None, *partitions: int, **changes: Any) -> dict[str, Any]:
    """Of a Produce request: the same for each of these partitions, or for 0, of a topic by its name or its ID."""
    data = [{"index": index, "records": records} for index in partitions or (0,)]
    topics = [{**_named(topic, "name"), "partition_data": data}]
    return {"transactional_id": None, "acks": -1, "timeout_ms": 1000, "topic_data": topics, **changes}


def fetch_body(topic: Any, offset: int = 0, *partitions: int, **changes: Any) -> dict[str, Any]:
    """Of a Fetch request without a session: from this offset on of each of these partitions, or of 0."""
    wanted = {"fetch_offset": offset, "partition_max_bytes": PLENTY, "current_leader_epoch": -1}
    wanted |= {"log_start_offset": -1, "last_fetched_epoch": -1}
    wanted |= {key: changes.pop(key) for key in list(changes) if key in wanted}
    topics = [{**_named(topic, "topic"), "partitions": [{"partition": one, **wanted} for one in partitions or (0,)]}]
    body = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": PLENTY, "session_epoch": -1}
    return {**body, "topics": topics, **changes}


class RawClient:
    """One connection to one broker, over TLS if a context is given."""

    def __init__(
        self, bootstrap: str, broker: int = 1, *, client_id: str = "raw", tls: ssl.SSLContext | None = None
    ) -> None:
        host, port = bootstrap.split(",")[broker - 1].split(":")
        self._socket = socket.create_connection((host, int(port)), timeout=5)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname=host)
        self.client_id = client_id
        self._number = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._socket.close()

    def set_timeout(self, seconds: float) -> None:
        """How long an answer may take before TimeoutError; 5 s at first."""
        self._socket.settimeout(seconds)

    def send(self, frame: bytes) -> None:
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)

    def send_raw(self, data: bytes) -> None:
        self._socket.sendall(data)

    def ends(self) -> None:
        """The broker hangs up, and says no more."""
        with hung_up():
            self.receive()

    def receive(self) -> bytes:
        """The next answer. Raises ConnectionError if the broker hangs up."""
        return self._exactly(struct.unpack(">i", self._exactly(4))[0])

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise ConnectionError("the broker hung up")
            data += piece
        return data

    def ask(self, api: str, version: int, **body: Any) -> dict[str, Any]:
        self.post(api, version, **body)
        return self.answer(api, version)

    def post(self, api: str, version: int, **body: Any) -> None:
        """Send a request and let its answer wait."""
        self._number += 1
        self.send(encode_request(api, version, self._number, self.client_id, body))

    def answer(self, api: str, version: int) -> dict[str, Any]:
        """The answer to the newest request."""
        number, answer = decode_response(api, version, self.receive())
        assert number == self._number
        return answer

    def produce(
        self, topic: str, batch: bytes, *, partition: int = 0, version: int = 9, acks: int = -1
    ) -> dict[str, Any]:
        """The broker's answer for the one partition."""
        answer = self.ask("Produce", version, **produce_body(topic, batch, partition, acks=acks, timeout_ms=4000))
        found: dict[str, Any] = answer["responses"][0]["partition_responses"][0]
        return found


@contextmanager
def hung_up() -> Any:
    """The block ends with the broker closing the connection."""
    try:
        yield
    except ConnectionError:
        return
    raise AssertionError("the broker kept the connection")
