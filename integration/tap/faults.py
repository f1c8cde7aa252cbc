"""What the tap does to the traffic on purpose. Set by any thread, asked by the tap's thread."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from integration.tap.ledger import Pending
from integration.tap.seen import BatchSeen
from safeproducer.testing.codec import Body

DYNAMIC_TOPIC_CONFIG = 1
DYNAMIC_BROKER_CONFIG = 2
STATIC_BROKER_CONFIG = 4
DEFAULT_CONFIG = 5
INT = 3
"""The protocol's number for a config of type int."""


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One entry of a DescribeConfigs answer; `source` is the protocol's number, 5 for a default value."""

    value: str | None
    source: int = DEFAULT_CONFIG
    sensitive: bool = False
    read_only: bool = False
    type: int = INT


Resource = tuple[int, str]
"""Type and name of what is described: 2 is a topic, 4 a broker."""
Changes = Mapping[str, str | ConfigEntry | None]
"""By config name: the new entry (added if missing), None takes it away."""
ConfigEdit = Callable[[int, str], Changes]
"""Called with the type and the name of a resource."""
AnswerEdit = Callable[[Body], Body | None]
"""Gets a decoded answer; gives the body to send instead, or None to leave the answer alone."""
Asked = Callable[[Sequence[BatchSeen]], bool]
"""Whether the answer to a request with these batches is meant."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Which requests a fault is about; None means any. Producer, topic and partition ask for a batch of theirs."""

    api: str | None = "Produce"
    broker: int | None = None
    producer_id: int | None = None
    topic: str | None = None
    partition: int | None = None

    def covers(self, pending: Pending) -> bool:
        if self.api not in (None, pending.header.api) or self.broker not in (None, pending.broker):
            return False
        if self.producer_id is None and self.topic is None and self.partition is None:
            return True
        return any(
            self.producer_id in (None, batch.producer_id)
            and self.topic in (None, batch.topic)
            and self.partition in (None, batch.partition)
            for batch in pending.batches
        )


@dataclass(slots=True)
class Drop:
    """Frames to swallow: how many more, and whether the connection stays open afterwards."""

    scope: Scope
    left: int
    keep_open: bool


class Faults:
    """All faults now in force."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        """Back to a link that only forwards."""
        with self._lock:
            self._delays: dict[tuple[int | None, bool], float] = {}
            self._rates: dict[int | None, float] = {}
            self._drops: dict[bool, list[Drop]] = {True: [], False: []}
            self._edits: dict[tuple[str, int | None], tuple[AnswerEdit, Asked | None]] = {}
            self.swallowed: list[tuple[int, bytes]] = []
            """Brokers, and the requests to them that never came."""

    def set_delay(self, seconds: float, broker: int | None, to_broker: bool) -> None:
        if seconds < 0:
            raise ValueError(f"delay: {seconds} s is less than nothing; give 0 or more")
        with self._lock:
            self._delays[broker, to_broker] = seconds

    def set_rate(self, bytes_per_second: float | None, broker: int | None) -> None:
        if bytes_per_second is not None and bytes_per_second <= 0:
            raise ValueError(f"bandwidth: {bytes_per_second} bytes/s never sends; give more than 0, or None")
        with self._lock:
            if bytes_per_second is None:
                self._rates.pop(broker, None)
            else:
                self._rates[broker] = bytes_per_second

    def add_drop(self, drop: Drop, to_broker: bool) -> None:
        if drop.left < 1:
            raise ValueError(f"n: {drop.left} frames to drop; give 1 or more")
        with self._lock:
            self._drops[to_broker].append(drop)

    def set_edit(self, api: str, broker: int | None, edit: AnswerEdit | None, of: Asked | None = None) -> None:
        with self._lock:
            if edit is None:
                self._edits.pop((api, broker), None)
            else:
                self._edits[api, broker] = edit, of

    # ---- asked by the tap's thread

    def delay(self, broker: int, to_broker: bool) -> float:
        return self._delays.get((broker, to_broker), self._delays.get((None, to_broker), 0.0))

    def rate(self, broker: int) -> float | None:
        return self._rates.get(broker, self._rates.get(None))

    def take_drop(self, pending: Pending, to_broker: bool) -> Drop | None:
        """The drop that swallows this frame, counted down; None lets it through."""
        if not self._drops[to_broker]:
            return None
        with self._lock:
            for drop in self._drops[to_broker]:
                if drop.scope.covers(pending):
                    drop.left -= 1
                    if not drop.left:
                        self._drops[to_broker].remove(drop)
                    return drop
        return None

    def drops_left(self) -> int:
        with self._lock:
            return sum(drop.left for drops in self._drops.values() for drop in drops)

    def edit(self, api: str, broker: int, batches: Sequence[BatchSeen]) -> AnswerEdit | None:
        if not self._edits:
            return None
        edit, of = self._edits.get((api, broker), self._edits.get((api, None), (None, None)))
        return edit if of is None or of(batches) else None


def edit_configs(changes: Changes | ConfigEdit) -> AnswerEdit:
    """Change, add or take away entries of every resource that was described without an error."""
    choose: ConfigEdit = changes if callable(changes) else lambda kind, name: changes

    def edit(body: Body) -> Body:
        results = []
        for result in body["results"]:
            wanted = choose(result["resource_type"], result["resource_name"]) if not result["error_code"] else {}
            kept = [config for config in result["configs"] if config["name"] not in wanted]
            added = [_config(name, entry) for name, entry in wanted.items() if entry is not None]
            results.append({**result, "configs": kept + added})
        return {**body, "results": results}

    return edit


def _config(name: str, entry: str | ConfigEntry) -> dict[str, Any]:
    entry = ConfigEntry(entry) if isinstance(entry, str) else entry
    return {
        "name": name,
        "value": entry.value,
        "read_only": entry.read_only,
        "config_source": entry.source,
        "is_sensitive": entry.sensitive,
        "config_type": entry.type,
    }
