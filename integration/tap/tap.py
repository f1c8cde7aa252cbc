"""The wire tap: one proxy per broker behind its advertised port, controlled from any thread."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType
from typing import Any, Literal, TypeVar

from integration.tap.faults import (
    AnswerEdit,
    Asked,
    Changes,
    ConfigEdit,
    Drop,
    Faults,
    Scope,
    edit_configs,
)
from integration.tap.ledger import Ledger
from integration.tap.proxy import LOOPBACK, Proxy, TappedCluster, TappedNode
from integration.tap.seen import (
    AnswerSeen,
    BatchSeen,
    ConnectionSeen,
    RequestSeen,
    Undecoded,
)

T = TypeVar("T")


class Tap:
    """Everything clients and brokers say to each other, counted; and changed, if told to.

    `with Tap(cluster) as tap:` listens on each node's advertised port, on a thread of its own. All methods may be
    called from any thread and return when they are in force. A frame that cannot be read is forwarded untouched and
    listed in `undecoded`. Leaving the block cuts all connections and raises what went wrong inside the tap.
    """

    def __init__(self, cluster: TappedCluster | Iterable[TappedNode]) -> None:
        nodes = cluster if isinstance(cluster, Iterable) else cluster.nodes.values()
        self._nodes = list(nodes)
        self._ledger = Ledger()
        self._faults = Faults()
        self._proxies: dict[int, Proxy] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="wire-tap", daemon=True)
        self._last_number = 0

    # ---- life

    def __enter__(self) -> Tap:
        self._thread.start()
        try:
            self._do(self._listen())
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._do(self._close())
        self._stop()
        failures = [failure for proxy in self._proxies.values() for failure in proxy.failures]
        if failures and error is None:
            raise ExceptionGroup("the tap failed", [f for f in failures if isinstance(f, Exception)])

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _do(self, work: Awaitable[T]) -> T:
        async def run() -> T:
            return await work

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(40)

    def _next_number(self) -> int:
        self._last_number += 1
        return self._last_number

    async def _listen(self) -> None:
        for node in self._nodes:
            self._proxies[node.id] = proxy = Proxy(node, self._ledger, self._faults, self._next_number)
            await proxy.listen()

    async def _close(self) -> None:
        for proxy in self._proxies.values():
            await proxy.refuse()
        own = asyncio.current_task()
        deadline = self._loop.time() + 30
        while True:
            # Again and again: a connection that was being accepted becomes a link only after the first cut.
            await self._cut(None, None, reset=True)
            running = [task for task in asyncio.all_tasks() if task is not own]
            if not running or self._loop.time() > deadline:
                break
            await asyncio.wait(running, timeout=0.05)
        await asyncio.sleep(0)  # an aborted transport closes its socket in the loop's next round

    def _chosen(self, broker: int | None) -> list[Proxy]:
        if broker is None:
            return list(self._proxies.values())
        if broker not in self._proxies:
            raise ValueError(f"broker: {broker} is not behind this tap; it has {sorted(self._proxies)}")
        return [self._proxies[broker]]

    # ---- what was seen

    @property
    def bootstrap(self) -> str:
        """`bootstrap.servers` through the tap."""
        return ",".join(f"{LOOPBACK}:{node.advertised_port}" for node in self._nodes)

    @property
    def batches(self) -> list[BatchSeen]:
        """Every batch that reached the tap, retries included, in order of arrival."""
        return self._ledger.copy(self._ledger.batches)

    @property
    def answers(self) -> list[AnswerSeen]:
        """Every broker answer to a Produce request, one entry a partition."""
        return self._ledger.copy(self._ledger.answers)

    @property
    def undecoded(self) -> list[Undecoded]:
        """Frames forwarded without being understood; a test that counts should find none."""
        return self._ledger.copy(self._ledger.undecoded)

    @property
    def connections(self) -> list[ConnectionSeen]:
        """All connections since the start or `reset`."""
        return self._ledger.connections()

    def requests(self, api: str | None = None, broker: int | None = None) -> list[RequestSeen]:
        """The requests seen, all or those of one API or broker."""
        all_of_them = self._ledger.copy(self._ledger.requests)
        return [seen for seen in all_of_them if api in (None, seen.api) and broker in (None, seen.broker)]

    def wait(self, happened: Callable[[Tap], bool], timeout: float = 10) -> None:
        """Return when `happened(tap)` is true. Raises TimeoutError after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while not happened(self):
            if time.monotonic() > deadline:
                raise TimeoutError(f"it did not happen within {timeout} s; the tap saw {self!r}")
            time.sleep(0.002)

    def reset(self) -> None:
        """Forget what was seen. Faults stay."""
        self._ledger.reset()

    def __repr__(self) -> str:
        return f"Tap({len(self.requests())} requests, {len(self.batches)} batches, {len(self.undecoded)} undecoded)"

    # ---- faults

    def delay(
        self, seconds: float, *, broker: int | None = None, to_broker: bool = True, to_client: bool = True
    ) -> None:
        """Add latency each way, so 0.05 makes a round trip of 100 ms. Frames on their way keep what they had."""
        self._chosen(broker)
        for direction, wanted in ((True, to_broker), (False, to_client)):
            if wanted:
                self._faults.set_delay(seconds, broker, direction)

    def bandwidth(self, bytes_per_second: float | None, *, broker: int | None = None) -> None:
        """Send no faster than this, per connection and direction; None for as fast as possible."""
        self._chosen(broker)
        self._faults.set_rate(bytes_per_second, broker)

    def drop_answers(self, api: str | None = "Produce", n: int = 1, *, keep_open: bool = False, **scope: Any) -> None:
        """Swallow the next `n` answers: the broker has done the work, the client never hears of it.

        Each drop resets its connection, unless `keep_open`: then the client waits in vain. `api=None` means any; the
        other fields of Scope by name.
        """
        self._drop(Scope(api, **scope), n, keep_open, to_broker=False)

    def drop_requests(self, api: str | None = "Produce", n: int = 1, *, keep_open: bool = False, **scope: Any) -> None:
        """Swallow the next `n` requests before the broker sees them; otherwise like `drop_answers`."""
        self._drop(Scope(api, **scope), n, keep_open, to_broker=True)

    def deliver_late(self) -> int:
        """Let the brokers have the requests that `drop_requests` swallowed with `keep_open`, each on a connection of
        its own, and wait until they have answered. Returns how many."""
        swallowed, self._faults.swallowed = self._faults.swallowed, []
        for broker, frame in swallowed:
            with socket.create_connection((LOOPBACK, self._proxies[broker].node.client_port), timeout=20) as late:
                late.sendall(len(frame).to_bytes(4, "big") + frame)
                assert late.recv(4)
        return len(swallowed)

    def _drop(self, scope: Scope, n: int, keep_open: bool, to_broker: bool) -> None:
        self._chosen(scope.broker)
        self._faults.add_drop(Drop(scope, n, keep_open), to_broker)

    @property
    def drops_left(self) -> int:
        """How many of the ordered drops have not happened yet."""
        return self._faults.drops_left()

    def rewrite_configs(self, changes: Changes | ConfigEdit | None, *, broker: int | None = None) -> None:
        """Change, add (value or ConfigEntry) or hide (None) entries of DescribeConfigs answers; None stops it.

        A function is asked with (resource type, resource name): 2 is a topic, 4 a broker.
        """
        self.edit_answers("DescribeConfigs", None if changes is None else edit_configs(changes), broker=broker)

    def edit_answers(
        self, api: str, edit: AnswerEdit | None, *, broker: int | None = None, of: Asked | None = None
    ) -> None:
        """Pass every answer of this API through `edit` (on the tap's thread); None stops it.

        With `of` only those to requests with batches for which that is true.
        """
        self._chosen(broker)
        self._faults.set_edit(api, broker, edit, of)

    def cut(
        self, *, broker: int | None = None, connection: int | None = None, how: Literal["reset", "fin"] = "reset"
    ) -> int:
        """End connections now, all or one broker's or one; what is inside the tap is lost. Returns how many."""
        self._chosen(broker)
        return self._do(self._cut(broker, connection, reset=how == "reset"))

    async def _cut(self, broker: int | None, connection: int | None, reset: bool) -> int:
        links = [link for proxy in self._chosen(broker) for link in proxy.links if connection in (None, link.number)]
        for link in links:
            link.cut(reset)
        return len(links)

    def pause(self, *, broker: int | None = None) -> None:
        """Black hole: connections stay open, nothing passes either way until `resume`."""
        for proxy in self._chosen(broker):
            self._loop.call_soon_threadsafe(proxy.gate.clear)
        self._do(asyncio.sleep(0))

    def resume(self, *, broker: int | None = None) -> None:
        """What the pause held back goes on, in order."""
        for proxy in self._chosen(broker):
            self._loop.call_soon_threadsafe(proxy.gate.set)
        self._do(asyncio.sleep(0))

    def heal(self) -> None:
        """End all faults: no delay, no drop, no edit, nothing paused."""
        self._faults.clear()
        self.resume()
