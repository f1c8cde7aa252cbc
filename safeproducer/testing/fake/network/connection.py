"""One connection to one broker: requests in, answers out in order, with the faults in between.

The cost of a request to its user, and how long the connection stays unread for it (KIP-13, 124, 219, 936).

The answer goes out at once and tells the delay; the connection is muted for that long. If several quotas are broken
the longest delay counts. A throttled fetch is answered without records, and its bytes are not charged. A produce
request without an answer (acks=0) is charged for its bytes only.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable
from functools import partial
from inspect import isawaitable
from typing import cast

from safeproducer.testing.codec import Body, WireError
from safeproducer.testing.fake.handlers import ILLEGAL_SASL_STATE, SERVED, UNSUPPORTED_VERSION, api_versions, served
from safeproducer.testing.fake.handlers.request import Request
from safeproducer.testing.fake.network import buffers
from safeproducer.testing.fake.rules.quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE
from safeproducer.testing.fake.state.cluster_state import BrokerState, ClusterState, JournalEntry, Outcome
from safeproducer.testing.fake.state.sasl import ANONYMOUS, MAX_UNAUTHENTICATED, SaslError, Session
from safeproducer.testing.wire import RequestHeader, decode_request, encode_response, read_request_header

_NO_RECORDS: Body = {"error_code": 0, "session_id": 0, "responses": []}
MAX_REQUEST = 100 * 1024 * 1024
"""``socket.request.max.bytes``; a client that declares more is cut off before anything is read."""


def limit_fetch(request: Request) -> None:
    """No fetch gets more than the quota lets pass after a pause: it would be throttled for ever."""
    if request.header.api != "Fetch" or not request.cluster.quotas.enabled(CONSUMER_BYTE_RATE):
        return
    most = request.broker.quotas.most_at_once(CONSUMER_BYTE_RATE, request.session.user, request.header.client_id)
    if most is not None:
        body = request.body
        body["max_bytes"] = min(body["max_bytes"], int(most))
        body["min_bytes"] = min(body["min_bytes"], body["max_bytes"])


def charge(request: Request, answer: Body | None, busy_seconds: float) -> tuple[Body | None, int]:
    """The answer to send, and how many ms the connection is muted."""
    if not request.session.open:
        return answer, 0
    api, enabled, delay = request.header.api, request.cluster.quotas.enabled, request.throttle_ms
    if enabled(REQUEST_PERCENTAGE) and answer is not None:
        delay = max(delay, _charge(request, REQUEST_PERCENTAGE, busy_seconds * 100))
    if api == "Produce" and enabled(PRODUCER_BYTE_RATE):
        delay = max(delay, _charge(request, PRODUCER_BYTE_RATE, request.size))
    elif api == "Fetch" and answer is not None and enabled(CONSUMER_BYTE_RATE):
        size = len(encode_response(api, request.header.version, 0, answer))
        delay = max(delay, _charge(request, CONSUMER_BYTE_RATE, size))
        if delay:
            _charge(request, CONSUMER_BYTE_RATE, -size)
            answer = dict(_NO_RECORDS)
    return answer, delay


def _charge(request: Request, quota: str, value: float) -> int:
    now = request.cluster.clock.now_ms()
    return request.broker.quotas.charge(quota, request.session.user, request.header.client_id, value, now)


class Connection:
    """One connection, whose requests are answered one after the other, as Kafka does."""

    def __init__(
        self,
        cluster: ClusterState,
        broker: BrokerState,
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        number: int,
        running: asyncio.Event,
        user: str = ANONYMOUS,
    ) -> None:
        self._cluster = cluster
        self._broker = broker
        self._reader, self._writer = streams
        self._number = number
        self._running = running
        self._session = Session(cluster.access.credentials, cluster.clock.now, user)
        self._inbox, self._outbox = buffers.DelayLine(buffers.MOST_IN), buffers.DelayLine(buffers.MOST_OUT)
        self._paused_reading = False
        self.client_id: str | None = None
        """The client ID of the newest request."""
        self.hold(not running.is_set())

    async def serve(self) -> None:
        """Until the client hangs up, or says what no broker would answer. An error inside is kept for the test."""
        try:
            # Whoever cuts the connection, this side or the other, ends it here.
            with contextlib.suppress(asyncio.CancelledError, OSError):
                with contextlib.suppress(asyncio.IncompleteReadError):
                    while not self._writer.is_closing():
                        await self._take(await self._read())
                        await self._room()
                await self._inbox.finish()
        except Exception as error:
            self._cluster.failures.append(error)
        finally:
            self._writer.transport.abort()
            await self._inbox.close()  # first: what is worked on may still answer
            await self._outbox.close()

    def abort(self) -> None:
        self._writer.transport.abort()

    def hold(self, held: bool) -> None:
        """Read nothing and send nothing, as a broker whose process is stopped; or go on."""
        transport = cast("asyncio.ReadTransport", self._writer.transport)
        if held and transport.is_reading():
            self._paused_reading = True
            transport.pause_reading()
        elif not held and self._paused_reading:
            self._paused_reading = False
            transport.resume_reading()
        self._outbox.hold(held)

    async def _read(self) -> bytes:
        if not self._running.is_set():
            await self._running.wait()
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        most = MAX_REQUEST if self._session.open else MAX_UNAUTHENTICATED
        if size > most:
            self._refuse(None, "malformed", f"a request of {size} bytes, more than {most}")
            return b""
        frame = await self._reader.readexactly(size)
        if not self._running.is_set():  # the stream may have resumed reading by itself, amid a large request
            await self._running.wait()
        return frame

    async def _take(self, frame: bytes) -> None:
        if self._writer.is_closing():
            return
        arrived = time.time()
        if self._session.bare:
            await self._log_in(frame, arrived)
            return
        try:
            header = read_request_header(frame)
        except WireError as error:
            self._refuse(None, "malformed", str(error), arrived)
            return
        self.client_id = header.client_id
        faults = self._cluster.faults
        delay = faults.delays["request"].of(header.api, self._broker.id)
        held = faults.take_hold(header.api, self._broker.id)
        answer = partial(self._answer_and_wait, header, frame, arrived)
        await self._inbox.room(len(frame))
        if (at_once := self._inbox.put(delay, answer, len(frame), held)) is not None:
            await at_once

    async def _answer_and_wait(self, header: RequestHeader, frame: bytes, arrived: float) -> None:
        await self._answer(header, frame, arrived)
        await self._room()

    async def _room(self) -> None:
        """Read on, or work on, only when there is room for the next answer: so the client's own socket fills."""
        await self._outbox.room()
        await self._writer.drain()

    async def _answer(self, header: RequestHeader, frame: bytes, arrived: float) -> None:
        api, faults = header.api, self._cluster.faults
        early = not self._session.may_ask(api)
        if not self._is_served(header, early, arrived):
            return
        began = time.perf_counter()
        try:
            body = decode_request(header, frame, trailing=True)
            error = ILLEGAL_SASL_STATE if early else faults.take_error(api, self._broker.id)
            request = Request(self._cluster, self._broker, header, body, self._session, len(frame), error)
            limit_fetch(request)
            given = SERVED[api][2](request)
            answer: Body | None = await cast("Awaitable[Body]", given) if isawaitable(given) else cast("Body", given)
        except WireError as error:
            self._refuse(header, "malformed", str(error), arrived)
            return
        if early:
            self._session.fail()
        if self._session.failed:
            await self._wait_for_strangers()
        answer, request.throttle_ms = charge(request, answer, time.perf_counter() - began - request.idle)
        muted, failed = request.throttle_ms, request.error or request.failed
        outcome: Outcome = "failed" if failed else "unanswered" if answer is None else "answered"
        if answer is not None and faults.take_loss(api, self._broker.id, request.named):
            outcome = "lost"
            self._outbox.put(self._late(header), self.abort)
        elif answer is not None:
            answer["throttle_time_ms"] = max(muted, int(faults.throttles.of(api, self._broker.id)))
            self._send(header, encode_response(api, header.version, header.correlation_id, answer))
        self._note(header, outcome, arrived, request, self._session.reason)
        if self._session.failed:
            self._outbox.put(self._late(header), self.abort)
        if muted:
            await self._mute(muted / 1000)

    def _is_served(self, header: RequestHeader, early: bool, arrived: float) -> bool:
        """Whether there is an answer; `early`: it comes before the log-in is over."""
        if self._writer.is_closing():
            return False
        if early and not self._session.logging_in:
            self._refuse(header, "unauthenticated", f"{header.api} is out of place in a log-in", arrived)
            return False
        if self._session.over and header.api != "SaslHandshake":
            self._refuse(header, "unauthenticated", "the log-in has ended, and was not renewed in time", arrived)
            return False
        first, last = served(header.api, self._broker)
        if first <= header.version <= last:
            return True
        if header.api == "ApiVersions":
            # The one request whose version a broker may not know: it is answered in the oldest version.
            request = Request(self._cluster, self._broker, header, {}, self._session, error=UNSUPPORTED_VERSION)
            self._send(header, encode_response("ApiVersions", 0, header.correlation_id, api_versions(request)))
            self._note(header, "unsupported", arrived, note="answered in version 0")
        else:
            self._refuse(header, "unsupported", f"{header.api} v{header.version} is not served", arrived)
        return False

    async def _mute(self, seconds: float) -> None:
        """KIP-219: the answer is out, and nothing more is read until the delay is over, in real time."""
        until = asyncio.get_running_loop().time() + seconds
        # In steps: a delay may be hours long, and who has hung up need not be kept for it.
        while (left := until - asyncio.get_running_loop().time()) > 0 and not self._reader.at_eof():
            await asyncio.sleep(min(left, 1.0))

    async def _log_in(self, token: bytes, arrived: float) -> None:
        """A SASL message without a Kafka header, as clients sent them before KIP-152. A failure has no answer."""
        header = RequestHeader("SaslAuthenticate", -1, -1, -1, self.client_id, None)
        try:
            answer = self._session.step(token)
        except SaslError as error:
            await self._wait_for_strangers()
            self._refuse(header, "unauthenticated", str(error), arrived)
            return
        self._send(header, answer)
        self._note(header, "answered", arrived, note="a bare SASL message")

    async def _wait_for_strangers(self) -> None:
        """Answer a failed log-in late, so that guessing takes time."""
        await asyncio.sleep(self._broker.value("connection.failed.authentication.delay.ms") / 1000)

    def _late(self, header: RequestHeader) -> float:
        return self._cluster.faults.delays["answer"].of(header.api, self._broker.id)

    def _send(self, header: RequestHeader, frame: bytes) -> None:
        pieces = (len(frame).to_bytes(4, "big"), frame)
        self._outbox.put(self._late(header), lambda: self._writer.writelines(pieces), len(frame))

    def _refuse(self, header: RequestHeader | None, outcome: Outcome, note: str, arrived: float | None = None) -> None:
        self._note(header, outcome, arrived or time.time(), note=note)
        self._writer.transport.abort()

    def _note(
        self, header: RequestHeader | None, outcome: Outcome, at: float, asked: Request | None = None, note: str = ""
    ) -> None:
        known = header or RequestHeader("", -1, -1, -1, None, None)
        came = at, self._broker.id, self._number, known.client_id, known.api, known.version, known.correlation_id
        produced, muted = (tuple(asked.produced), asked.throttle_ms) if asked else ((), 0)
        self._cluster.journal.append(JournalEntry(*came, outcome, produced, note, self._session.user, muted))
