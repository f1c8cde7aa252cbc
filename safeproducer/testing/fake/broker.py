"""One broker's socket: frames in, answers out in order, with the faults in between."""

import asyncio
import contextlib
import socket
import time
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import cast

from safeproducer.testing.fake.handlers import SERVED, Request, api_versions, served
from safeproducer.testing.fake.handlers.request import LOOPBACK
from safeproducer.testing.fake.journal import JournalEntry, Outcome
from safeproducer.testing.fake.state import BrokerState, ClusterState
from safeproducer.testing.wire import (
    Body,
    RequestHeader,
    WireError,
    decode_request,
    encode_response,
    read_request_header,
)

__all__ = ["Broker", "reserve"]

MAX_REQUEST = 100 * 1024 * 1024
"""``socket.request.max.bytes``; a client that declares more is cut off before anything is read."""
_STREAM_BUFFER = 1 << 20
_UNSUPPORTED_VERSION = 35


def reserve(port: int = 0) -> socket.socket:
    """A port of the loopback that nobody else can take; connections are refused until somebody listens on it."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind((LOOPBACK, port))
    return reserved


class Broker:
    """The listener of one broker, and its connections. Used on the cluster's thread only."""

    def __init__(self, cluster: ClusterState, state: BrokerState, reserved: socket.socket, number: Callable[[], int]):
        self._cluster = cluster
        self._state = state
        self._reserved = reserved
        self._number = number
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def start(self) -> None:
        """Listen; nothing to do if it does."""
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, sock=self._reserved, limit=_STREAM_BUFFER)

    async def stop(self) -> None:
        """Refuse connections and cut those there are; the port stays reserved."""
        if self._server is not None:
            self._server.close()
            self._server = None
            self._reserved = reserve(self._state.port)
            await self.cut()

    async def close(self) -> None:
        """As :meth:`stop`, for good."""
        await self.stop()
        self._reserved.close()

    async def cut(self) -> int:
        """End all connections now; returns how many there were."""
        tasks = dict(self._connections)
        for task, writer in tasks.items():
            writer.transport.abort()
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        return len(tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._server is None:  # accepted just before the broker stopped
            writer.transport.abort()
            return
        task = cast("asyncio.Task[None]", asyncio.current_task())
        self._connections[task] = writer
        connection = _Connection(self._cluster, self._state, writer, self._number())
        try:
            # Whoever cuts the connection, this side or the other, ends it here.
            with contextlib.suppress(asyncio.CancelledError, asyncio.IncompleteReadError, OSError):
                while not writer.is_closing():
                    size = int.from_bytes(await reader.readexactly(4), "big")
                    if size > MAX_REQUEST:
                        connection.refuse(None, "malformed", f"a request of {size} bytes, more than {MAX_REQUEST}")
                        break
                    await connection.answer(await reader.readexactly(size))
        except Exception as error:
            self._cluster.failures.append(error)
        finally:
            writer.transport.abort()
            del self._connections[task]


class _Connection:
    """What one connection asks, answered one request after the other, as Kafka does."""

    def __init__(self, cluster: ClusterState, broker: BrokerState, writer: asyncio.StreamWriter, number: int) -> None:
        self._cluster = cluster
        self._broker = broker
        self._writer = writer
        self._number = number
        self._due = 0.0

    async def answer(self, frame: bytes) -> None:
        arrived = time.time()
        try:
            header = read_request_header(frame)
        except WireError as error:
            self.refuse(None, "malformed", str(error), arrived)
            return
        first, last = served(header.api, self._broker)
        if not first <= header.version <= last:
            self._unsupported(header, arrived)
            return
        api, faults = header.api, self._cluster.faults
        try:
            body = decode_request(header, frame, trailing=True)
            request = Request(self._cluster, self._broker, header, body, faults.take_error(api, self._broker.id))
            given = SERVED[header.api][2](request)
            answer: Body | None = await cast("Awaitable[Body]", given) if isawaitable(given) else cast("Body", given)
        except WireError as error:
            self.refuse(header, "malformed", str(error), arrived)
            return
        outcome: Outcome = "failed" if request.error else "unanswered" if answer is None else "answered"
        if answer is not None:
            if faults.take_loss(api, self._broker.id):
                outcome = "lost"
                self._later(self._writer.transport.abort)
            else:
                answer["throttle_time_ms"] = faults.throttle(api, self._broker.id)
                self._send(encode_response(api, header.version, header.correlation_id, answer))
        self._note(header, outcome, arrived, request)
        await self._writer.drain()

    def _send(self, frame: bytes) -> None:
        self._later(lambda: self._writer.writelines((len(frame).to_bytes(4, "big"), frame)))

    def _later(self, step: Callable[[], None]) -> None:
        """Do it now, or when the delay is over; never before an earlier step of this connection."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        due = max(self._due, now + self._cluster.faults.delay(self._broker.id))
        if due <= now:
            step()
        else:
            self._due = due
            loop.call_at(due, step)

    def _unsupported(self, header: RequestHeader, arrived: float) -> None:
        if header.api == "ApiVersions":
            # The one request whose version a broker may not know: it is answered in the oldest version.
            request = Request(self._cluster, self._broker, header, {}, _UNSUPPORTED_VERSION)
            self._send(encode_response("ApiVersions", 0, header.correlation_id, api_versions(request)))
            self._note(header, "unsupported", arrived, note="answered in version 0")
            return
        self.refuse(header, "unsupported", f"{header.api} v{header.version} is not served", arrived)

    def refuse(self, header: RequestHeader | None, outcome: Outcome, note: str, arrived: float | None = None) -> None:
        """Close the connection; the journal says why."""
        self._note(header, outcome, arrived or time.time(), note=note)
        self._writer.transport.abort()

    def _note(
        self,
        header: RequestHeader | None,
        outcome: Outcome,
        arrived: float,
        request: Request | None = None,
        note: str = "",
    ) -> None:
        known = header or RequestHeader("", -1, -1, -1, None, None)
        entry = JournalEntry(
            arrived,
            self._broker.id,
            self._number,
            known.client_id,
            known.api,
            known.version,
            known.correlation_id,
            outcome,
            tuple(request.produced) if request else (),
            note,
        )
        self._cluster.journal.append(entry)
