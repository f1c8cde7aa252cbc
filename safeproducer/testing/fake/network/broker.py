"""One broker's listener, and the connections it has."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from safeproducer.testing.fake.handlers.request import LOOPBACK
from safeproducer.testing.fake.network.connection import Connection
from safeproducer.testing.fake.state.certificates import distinguished_name
from safeproducer.testing.fake.state.cluster_state import BrokerState, ClusterState
from safeproducer.testing.fake.state.sasl import ANONYMOUS

_STREAM_BUFFER = 1 << 20
_BACKLOG = 128
_REST = 0.1
"""Seconds without accepting when the process has no file descriptor left."""


def reserve(port: int = 0) -> socket.socket:
    """A port of the loopback that nobody else can take; connections are refused until somebody listens on it."""
    # asyncio turns Nagle's algorithm off only for sockets that say they are TCP: answers would wait for each other.
    reserved = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind((LOOPBACK, port))
    except OSError:
        reserved.close()
        raise
    return reserved


class _Handshake:
    """The context of one connection. asyncio drops what TLS has to tell of a handshake that failed: it is sent here."""

    def __init__(self, context: ssl.SSLContext, accepted: socket.socket) -> None:
        self._context = context
        self._accepted = accepted

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, **kwargs: Any) -> ssl.SSLObject:
        made = self._context.wrap_bio(incoming, outgoing, **kwargs)
        shake_hands = made.do_handshake

        def do_handshake() -> None:
            try:
                shake_hands()
            except (ssl.SSLWantReadError, ssl.SSLSyscallError):
                raise
            except ssl.SSLError:
                with contextlib.suppress(OSError):
                    self._accepted.send(outgoing.read())
                raise

        made.do_handshake = do_handshake  # type: ignore[method-assign]
        return made


class Broker:
    """The listener of one broker, and its connections. Used on the cluster's thread only."""

    def __init__(self, cluster: ClusterState, state: BrokerState, reserved: socket.socket, number: Callable[[], int]):
        self._cluster = cluster
        self._state = state
        self._reserved = reserved
        self._number = number
        self._listening = False
        self._connections: dict[asyncio.Task[None], Connection | None] = {}
        self._running = asyncio.Event()
        self._running.set()

    async def start(self) -> None:
        """Listen; nothing to do if it does."""
        if not self._listening:
            if self._reserved.fileno() < 0:  # there was no file descriptor for it when the broker stopped
                self._reserved = reserve(self._state.port)
            self._reserved.setblocking(False)
            self._reserved.listen(_BACKLOG)
            self._listening = True
        self._watch(self._reserved)

    def _watch(self, listening: socket.socket) -> None:
        """Accept on this socket, unless the broker has stopped meanwhile, and begun anew on another one."""
        if self._listening and listening is self._reserved:
            asyncio.get_running_loop().add_reader(listening, self._accept)

    async def stop(self) -> None:
        """Refuse connections and cut those there are; the port stays reserved. Ends a pause."""
        try:
            if self._listening:
                self._refuse()
                self._reserved = reserve(self._state.port)
        finally:
            await self.cut()
            self.resume()

    async def close(self) -> None:
        """As :meth:`stop`, for good: the port is anybody's at once."""
        if self._listening:
            self._refuse()
        self._reserved.close()
        await self.cut()
        self.resume()

    def _refuse(self) -> None:
        self._listening = False
        asyncio.get_running_loop().remove_reader(self._reserved)
        self._reserved.close()

    async def cut(self, client_id: str | None = None) -> int:
        """End all connections now, or those of one client; returns how many there were."""
        chosen = [
            task
            for task, connection in self._connections.items()
            if client_id is None or (connection is not None and connection.client_id == client_id)
        ]
        for task in chosen:
            connection = self._connections[task]
            if connection is not None:
                connection.abort()
            task.cancel()
        if chosen:
            await asyncio.wait(chosen)
        return len(chosen)

    def pause(self) -> None:
        """Go on accepting connections, and nothing else."""
        self._running.clear()
        self._hold(True)

    def resume(self) -> None:
        """Work on what came meanwhile; nothing to do if not paused."""
        self._running.set()
        self._hold(False)

    @property
    def is_running(self) -> bool:
        return self._running.is_set()

    def _hold(self, held: bool) -> None:
        for connection in tuple(self._connections.values()):
            if connection is not None:
                connection.hold(held)

    def _accept(self) -> None:
        # Not asyncio.start_server(): a connection it accepts while its server closes stays open for ever, unserved.
        loop = asyncio.get_running_loop()
        try:
            accepted, _ = self._reserved.accept()
        except (BlockingIOError, ConnectionError):
            return  # it has hung up already
        except OSError as error:
            # The connection goes on waiting: without a rest this would be called again at once, for ever.
            loop.remove_reader(self._reserved)
            loop.call_later(_REST, self._watch, self._reserved)
            self._cluster.warn(
                "accept",
                f"broker {self._state.id} of FakeCluster cannot accept a connection: {error}; it tries again every "
                f"{_REST} s. Close files and producers, or raise the limit (ulimit -n)",
            )
            return
        task = loop.create_task(self._serve(accepted))
        self._connections[task] = None
        task.add_done_callback(partial(self._forget, accepted))

    def _forget(self, accepted: socket.socket, task: "asyncio.Task[None]") -> None:
        del self._connections[task]
        accepted.close()  # for a connection that was cut before it was served

    async def _serve(self, accepted: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(_STREAM_BUFFER, loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        authority = self._cluster.access.authority
        tls = None if authority is None else cast("ssl.SSLContext", _Handshake(authority.context, accepted))
        try:
            accepted.setblocking(False)
            if tls is not None:
                await self._running.wait()
            transport, _ = await loop.connect_accepted_socket(lambda: protocol, accepted, ssl=tls)
            writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        except OSError:
            return  # it has hung up already
        task = cast("asyncio.Task[None]", asyncio.current_task())
        user = distinguished_name(transport.get_extra_info("peercert")) or ANONYMOUS
        connection = Connection(self._cluster, self._state, (reader, writer), self._number(), self._running, user)
        self._connections[task] = connection
        await connection.serve()
