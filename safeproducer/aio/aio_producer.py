"""AIOProducer: the surface of confluent_kafka.aio.AIOProducer, whose records take a round trip instead of seconds."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from safeproducer.aio.producer import AsyncSafeProducer
from safeproducer.kafka.native import KafkaError, KafkaException
from safeproducer.submitting import abort

_LOOK = 0.01


class AIOProducer(AsyncSafeProducer):
    """A drop-in for confluent_kafka.aio.AIOProducer, with its methods and results: Messages and KafkaExceptions.

    `producer_conf` is that of AsyncSafeProducer; an on_delivery in it is ignored, as there. `max_workers`, `executor`,
    `batch_size` and `buffer_timeout` are taken and not needed. `more`: hooks and close_timeout, as of
    AsyncSafeProducer; without the latter close() waits until each record has its report. It is made on an event loop.
    """

    def __init__(
        self,
        producer_conf: dict[str, Any],
        max_workers: int = 4,
        executor: Any = None,
        batch_size: int = 1000,
        buffer_timeout: float = 1.0,
        **more: Any,
    ) -> None:
        asyncio.get_running_loop()  # raises as confluent_kafka's
        self.executor = executor
        conf = producer_conf
        if isinstance(conf, dict):
            conf = {name: value for name, value in conf.items() if name != "on_delivery"}
        try:
            super().__init__(conf, hooks=more.get("hooks", ()), close_timeout=more.get("close_timeout", float("inf")))
        finally:
            del producer_conf, conf  # as in AsyncSafeProducer: frames know secrets
        self._settling.result = lambda message: message
        self._bind()

    async def produce(
        self, topic: str, value: Any = None, key: Any = None, *args: Any, **kwargs: Any
    ) -> asyncio.Future[Any]:
        """Wait until there is room; a future of the delivered Message, or a KafkaException that has an `outcome`.

        `topic`, `value` and `key`, then partition, timestamp and headers, all of which are sent.
        """
        for ignored in ("on_delivery", "callback"):
            kwargs.pop(ignored, None)
        return await self.send(topic, value, key, *args, **kwargs)

    async def poll(self, timeout: float = 0, *args: Any, **kwargs: Any) -> int:
        """Let the loop run for `timeout` seconds or until a record ends; how many did. No application needs to call."""
        loop, before = asyncio.get_running_loop(), sum(self._engine.counters.totals()[1:])
        deadline = loop.time() + timeout if timeout >= 0 else float("inf")
        while True:
            await asyncio.sleep(0)
            served = sum(self._engine.counters.totals()[1:]) - before
            if served or loop.time() >= deadline:
                return served
            await asyncio.sleep(min(_LOOK, deadline - loop.time()))

    async def flush(self, timeout: float = -1, *args: Any, **kwargs: Any) -> int:  # type: ignore[override]
        """Wait for `timeout` seconds until all records have ended; how many have not."""
        with suppress(TimeoutError):
            await asyncio.wait_for(super().flush(), None if timeout < 0 else timeout)
        return len(self)

    async def purge(self, *args: Any, **kwargs: Any) -> None:
        """As SafeProducer.purge(). Awaits of purged records raise a KafkaException, where confluent_kafka's are
        cancelled; so do calls that wait for room."""
        self._room.refuse_all(lambda: KafkaException(KafkaError(KafkaError._PURGE_QUEUE)))
        await self._in_thread(self.producer.purge, *args, **kwargs)

    async def begin_transaction(self, *args: Any, **kwargs: Any) -> None:
        """As SafeProducer.begin_transaction(), behind a flush."""
        await self.flush()
        await self._in_thread(self.producer.begin_transaction, *args, **kwargs)

    async def commit_transaction(self, *args: Any, **kwargs: Any) -> None:
        """Commit as SafeProducer.commit_transaction() does, on a thread beside the loop."""
        await self._in_thread(self.producer.commit_transaction, *args, **kwargs)

    async def abort_transaction(self, *args: Any, **kwargs: Any) -> None:
        """As SafeProducer.abort_transaction(), behind what was sent, for 2 s at most."""
        await self._in_thread(abort, self.producer, *args, **kwargs)

    @property
    def _is_closed(self) -> bool:
        """AsyncSerializingProducer, which may derive from this class, asks."""
        return self._closing is not None

    def __len__(self) -> int:
        return 0 if self._is_closed else super().__len__() + self._room.count
