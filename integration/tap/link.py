"""One client connection through the tap: reads frames, keeps the delivery counters, applies the faults, forwards."""

import asyncio
import contextlib
import socket
import struct
import time
from dataclasses import dataclass

from integration.tap.faults import Faults
from integration.tap.ledger import Ledger, Pending
from integration.tap.outbox import Outbox, Release
from safeproducer.testing.codec import WireError
from safeproducer.testing.produce import ProducedBatch
from safeproducer.testing.wire import decode_response, encode_response, read_request_header
from tests.produce_messages import ProduceAnswer, read_produce, read_produce_answer

MAX_FRAME = 128 * 1024 * 1024
"""A longer size prefix is no Kafka: the rest of that direction is forwarded as it comes."""
TOPIC_IDS_SINCE = 10
RESET = struct.pack("ii", 1, 0)
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Cut(Exception):  # noqa: N818 (an order, not an error)
    """A fault ends this connection now."""


@dataclass(frozen=True, slots=True)
class Passage:
    """What becomes of a frame: the bytes to forward (None swallows it) and what to do as they leave."""

    data: bytes | None
    release: Release | None = None


@dataclass(frozen=True, slots=True)
class Setting:
    """What all links of one broker share."""

    broker: int
    ledger: Ledger
    faults: Faults
    gate: asyncio.Event


class Link:
    """Forwards between one client and its broker until either side or a fault ends it."""

    def __init__(self, number: int, client: Streams, server: Streams, setting: Setting) -> None:
        self.number = number
        self.broker = setting.broker
        self._client, self._server = client, server
        self._ledger, self._faults, self._gate = setting.ledger, setting.faults, setting.gate
        self._expected: dict[int, Pending] = {}
        self._task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Forward until the connection ends. Raises only what is a bug of the tap."""
        self._ledger.opened(self.number, self.broker)
        self._task = asyncio.current_task()
        directions = [
            asyncio.create_task(self._pump(self._client[0], self._server[1], to_broker=True)),
            asyncio.create_task(self._pump(self._server[0], self._client[1], to_broker=False)),
        ]
        try:
            done, _ = await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
            failed = [task.exception() for task in done]
        except asyncio.CancelledError:
            failed = [Cut()]
        self._task = None  # a cut from here on would interrupt the closing and leave a socket open
        for task in directions:
            task.cancel()
        await asyncio.gather(*directions, return_exceptions=True)
        self._ledger.closed(self.number)
        for _, writer in (self._client, self._server):
            close(writer, reset=any(failed))
        for _, writer in (self._client, self._server):
            await closed(writer)
        for error in failed:
            if error is not None and not isinstance(error, (OSError, Cut)):
                raise error

    def cut(self, reset: bool) -> None:
        """End the connection now; what is on its way through the tap is lost."""
        if not reset:
            close(self._client[1], reset=False)
        task, self._task = self._task, None
        if task is not None:  # once: a second cancellation would interrupt the closing
            task.cancel()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, to_broker: bool) -> None:
        outbox = Outbox(writer, self._gate)
        delivery = asyncio.create_task(outbox.deliver())
        source = asyncio.create_task(self._read(reader, outbox, to_broker))
        try:
            await asyncio.wait([delivery, source], return_when=asyncio.FIRST_COMPLETED)
            if source.done():
                source.result()
                outbox.finish(self._faults.delay(self.broker, to_broker))
            await delivery
        finally:
            for task in (delivery, source):
                task.cancel()
            await asyncio.gather(delivery, source, return_exceptions=True)

    async def _read(self, reader: asyncio.StreamReader, outbox: Outbox, to_broker: bool) -> None:
        prefix = b""
        try:
            while True:
                prefix = b""
                prefix = await reader.readexactly(4)
                size = int.from_bytes(prefix, "big")
                if size > MAX_FRAME:
                    self._not_decoded(to_broker, size, f"a size prefix of {size} bytes: forwarding raw from here")
                    await self._raw(prefix, reader, outbox, to_broker)
                    return
                frame = await reader.readexactly(size)
                passage = self._request(frame) if to_broker else self._answer(frame)
                if passage.data is not None:
                    data = len(passage.data).to_bytes(4, "big") + passage.data
                    await self._put(outbox, data, to_broker, passage.release)
        except asyncio.IncompleteReadError as ended:
            rest = prefix + ended.partial
            if rest:
                self._not_decoded(to_broker, len(rest), "the connection ended inside a frame")
                await self._put(outbox, rest, to_broker, None)

    async def _put(self, outbox: Outbox, data: bytes, to_broker: bool, release: Release | None) -> None:
        delay = self._faults.delay(self.broker, to_broker)
        await outbox.put(data, delay, self._faults.rate(self.broker), release)

    async def _raw(self, data: bytes, reader: asyncio.StreamReader, outbox: Outbox, to_broker: bool) -> None:
        while data:
            await self._put(outbox, data, to_broker, None)
            data = await reader.read(1 << 16)

    def _not_decoded(self, to_broker: bool, size: int, reason: object) -> None:
        self._ledger.not_decoded(self.broker, self.number, to_broker, size, str(reason))

    def _request(self, frame: bytes) -> Passage:
        arrived = time.monotonic()
        try:
            header = read_request_header(frame)
        except WireError as error:
            self._not_decoded(True, len(frame), error)
            return Passage(frame)
        pending = Pending(header, arrived, self.number, self.broker)
        produced: tuple[ProducedBatch, ...] | None = None
        if header.api == "Produce":
            try:
                request = read_produce(header, frame)
                produced, pending.expects_answer = request.batches, request.acks != 0
            except WireError as error:
                self._not_decoded(True, len(frame), error)
        if pending.expects_answer:
            self._expected[header.correlation_id] = pending
        self._ledger.request(pending, len(frame), produced)
        dropped = self._dropped(pending, to_broker=True)
        if dropped is not None:
            self._faults.swallowed.append((self.broker, frame))
        return dropped or Passage(frame)

    def _answer(self, frame: bytes) -> Passage:
        pending = self._expected.pop(int.from_bytes(frame[:4], "big", signed=True), None)
        if pending is None:
            self._not_decoded(False, len(frame), "an answer to no request that was seen")
            return Passage(frame)
        try:
            frame = self._edited(pending, frame)
            answer = self._understood(pending, frame)
        except WireError as error:
            self._not_decoded(False, len(frame), error)
            return Passage(frame)
        swallowed = self._dropped(pending, to_broker=False, answer=answer)
        if swallowed is not None:
            return swallowed
        if answer is None:
            return Passage(frame)
        return Passage(frame, lambda: self._ledger.answer(pending, answer, delivered=True))

    def _edited(self, pending: Pending, frame: bytes) -> bytes:
        header = pending.header
        edit = self._faults.edit(header.api, self.broker, pending.batches)
        if edit is None:
            return frame
        correlation, body = decode_response(header.api, header.version, frame)
        changed = edit(body)
        return frame if changed is None else encode_response(header.api, header.version, correlation, changed)

    def _understood(self, pending: Pending, frame: bytes) -> ProduceAnswer | None:
        api, version = pending.header.api, pending.header.version
        if api == "Produce":
            return read_produce_answer(version, frame)
        if api == "Metadata":
            _, body = decode_response(api, version, frame)
            if version >= TOPIC_IDS_SINCE:
                self._ledger.learned_topics({t["topic_id"]: t["name"] for t in body["topics"] if t["name"]})
        return None

    def _dropped(self, pending: Pending, to_broker: bool, answer: ProduceAnswer | None = None) -> Passage | None:
        drop = self._faults.take_drop(pending, to_broker)
        if drop is None:
            return None
        if answer is not None:
            self._ledger.answer(pending, answer, delivered=False)
        if not drop.keep_open:
            raise Cut
        return Passage(None)


async def closed(writer: asyncio.StreamWriter) -> None:
    """Wait until the socket is closed; one whose peer reads nothing more is aborted."""
    try:
        await asyncio.wait_for(writer.wait_closed(), 1)
    except (OSError, TimeoutError, asyncio.CancelledError):
        writer.transport.abort()


def close(writer: asyncio.StreamWriter, reset: bool) -> None:
    """Close at once; with `reset` the peer sees a reset connection, without it an end of file."""
    if reset:
        sock = writer.get_extra_info("socket")
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        writer.transport.abort()
    else:
        writer.close()
