"""An ASGI application: a thread polls, each request waits for the report of its record."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from integration.applications.programs.given import TOPIC, accepted, account, make, reported

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class Orders:
    """Holds the producer between start and end of the application."""

    def __init__(self) -> None:
        self.producer = make()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._poll)
        self._thread.start()

    def _poll(self) -> None:
        while not self._stopping.is_set():
            self.producer.poll(0.1)

    async def send(self, number: str) -> bool:
        loop = asyncio.get_running_loop()
        written: asyncio.Future[bool] = loop.create_future()

        def report(error: Any, message: Any) -> None:
            reported(error, message)
            loop.call_soon_threadsafe(written.set_result, error is None)

        self.producer.produce(TOPIC, number, on_delivery=report)
        accepted(number)
        return await written

    async def close(self) -> None:
        self._stopping.set()
        await asyncio.to_thread(self._thread.join)
        await asyncio.to_thread(self.producer.flush, 10)
        account(self.producer)


orders: list[Orders] = []


async def app(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        await receive()
        orders.append(Orders())
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await orders.pop().close()
        await send({"type": "lifespan.shutdown.complete"})
    else:
        written = await orders[0].send(scope["path"].rpartition("/")[2])
        headers = [(b"content-type", b"text/plain")]
        await send({"type": "http.response.start", "status": 202 if written else 503, "headers": headers})
        await send({"type": "http.response.body", "body": b""})
