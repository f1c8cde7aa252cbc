"""One broker's listener, and the connections it has."""

import asyncio
import socket
from collections.abc import Callable
from typing import cast

from safeproducer.testing.fake.connection import Connection
from safeproducer.testing.fake.handlers.request import LOOPBACK
from safeproducer.testing.fake.state import BrokerState, ClusterState

__all__ = ["Broker", "reserve"]

_STREAM_BUFFER = 1 << 20


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
        self._connections: dict[asyncio.Task[None], Connection] = {}
        self._running = asyncio.Event()
        self._running.set()

    async def start(self) -> None:
        """Listen; nothing to do if it does."""
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, sock=self._reserved, limit=_STREAM_BUFFER)

    async def stop(self) -> None:
        """Refuse connections and cut those there are; the port stays reserved. Ends a pause."""
        self.resume()
        if self._server is not None:
            self._server.close()
            self._server = None
            self._reserved = reserve(self._state.port)
            await self.cut()

    async def close(self) -> None:
        """As :meth:`stop`, for good."""
        await self.stop()
        self._reserved.close()

    async def cut(self, client_id: str | None = None) -> int:
        """End all connections now, or those of one client; returns how many there were."""
        tasks = [task for task, connection in self._connections.items() if client_id in (None, connection.client_id)]
        for task in tasks:
            self._connections[task].abort()
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        return len(tasks)

    def pause(self) -> None:
        """Go on accepting connections, and nothing else."""
        self._running.clear()
        for connection in self._connections.values():
            connection.hold(True)

    def resume(self) -> None:
        """Work on what came meanwhile; nothing to do if not paused."""
        self._running.set()
        for connection in tuple(self._connections.values()):
            connection.hold(False)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._server is None:  # accepted just before the broker stopped
            writer.transport.abort()
            return
        task = cast("asyncio.Task[None]", asyncio.current_task())
        connection = Connection(self._cluster, self._state, (reader, writer), self._number(), self._running)
        self._connections[task] = connection
        try:
            await connection.serve()
        finally:
            del self._connections[task]
