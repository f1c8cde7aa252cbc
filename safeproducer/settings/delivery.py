"""How records travel to the brokers: the part of a configuration that the buffered path acts by.

The names, units and defaults are librdkafka's. A value that cannot be read is left to librdkafka, whose constructor
refuses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import Any

from safeproducer.errors import ConfigurationError
from safeproducer.kafka.properties import real, whole
from safeproducer.policy.expiry import BACKSTOP_MARGIN, backstop
from safeproducer.policy.partitioner import DEFAULT, PARTITIONERS
from safeproducer.settings.own_settings import Mode, OwnSettings

GUARD_MS = 60_000
"""The linger of a batch lane. It must outlast the time that handing over takes, and the time that a batch waits behind
one that is not answered: a head of the queue older than linger behind a closed window makes librdkafka busy-wait, and
one that gets older in the middle of handing over splits the batch."""

STATISTICS_MS = 500
_LEAST_TICK_MS = 20
_TICK_SHARE = 1 / 8  # the share of message.timeout.ms between two statistics, at most
_LINGER_MS = 5
LISTEN_TO = "eos"  # librdkafka's debug context for producer IDs: a line at each change of state, none for a record
_LONGEST_TIMEOUT_MS = 2_147_483_647
_MOST_MESSAGE_BYTES = 1_000_000_000
_REQUEST_BYTES = 300  # bytes that a request takes beside its records, at most
_SPARSE = "enable.sparse.connections"
_IN_FLIGHT = "max.in.flight.requests.per.connection"
RANGES = {
    "batch.num.messages": (1, 1_000_000),
    "batch.size": (1, 2_147_483_647),
    "linger.ms": (0, 900_000),
    "message.max.bytes": (1_000, _MOST_MESSAGE_BYTES),
    "message.timeout.ms": (0, _LONGEST_TIMEOUT_MS),
    "queue.buffering.max.kbytes": (1, _LONGEST_TIMEOUT_MS),
    "queue.buffering.max.messages": (0, _LONGEST_TIMEOUT_MS),
    "statistics.interval.ms": (0, 86_400_000),
}
"""librdkafka's own bounds of the settings that are replaced here."""
_REAL = frozenset({"linger.ms"})  # those that are no whole numbers
ALIAS = {"queue.buffering.max.ms": "linger.ms", "delivery.timeout.ms": "message.timeout.ms"}
"""librdkafka's second names of what is replaced here."""


@dataclass(frozen=True, slots=True)
class BufferSize:
    """How much a producer may hold; None where there is no limit."""

    records: int | None
    bytes: int | None
    record_bytes: int  # most bytes of one record


@dataclass(frozen=True, slots=True)
class Partitioning:
    """How partitions are chosen: by which partitioner, and for how long the same one for records without a key."""

    partitioner: str
    sticky: float


@dataclass(frozen=True)  # no slots: what is read at each record is derived once, at construction
class SendConfig:
    """Times in seconds, sizes in bytes; None where there is no limit."""

    own: OwnSettings
    timeout: float | None
    linger: float
    batch_records: int
    batch_bytes: int
    buffer: BufferSize
    retry_backoff: float
    socket_timeout: float
    partitioning: Partitioning
    statistics_ms: int  # how often the user's stats_cb is called; 0 = never
    idempotent: bool
    transactional: bool
    connection_cap: int | None  # batches that a broker may have unresolved, as the user's max.in.flight says
    metadata_refresh: float
    acks: int  # how many replicas acknowledge a write; -1: all that are in sync

    @cached_property
    def mode(self) -> Mode:
        """Whether records are held back always, at need, or never."""
        return self.own.mode

    @cached_property
    def only_batch_lanes(self) -> bool:
        """Whether there is no direct lane."""
        return self.mode == "held"

    @cached_property
    def holds_back(self) -> bool:
        """Whether records may be held back, and leave by a batch lane.

        A transaction's may not: a commit must know of each failure, and librdkafka counts those that it reports.
        """
        return not self.transactional and self.mode != "passthrough"

    @property
    def listens(self) -> bool:
        """Whether librdkafka's log has to tell of lost requests, after which a transaction needs a new epoch."""
        return self.transactional and self.mode != "passthrough"

    @cached_property
    def spreads(self) -> bool:
        """Whether records of one partition may take several lanes."""
        return self.holds_back and self.idempotent and self.own.ordering != "partition"

    @property
    def renews(self) -> bool:
        """Whether another native producer follows one that met a fatal error.

        Never for a transactional one: another instance has fenced it, and would be fenced back. It is renewed between
        two transactions, see pipeline/transactions.py.
        """
        return self.holds_back and self.idempotent and self.own.fatal == "renew"

    @property
    def fails_behind(self) -> bool:
        """Whether what waits behind a record that a fatal error left of unknown outcome is not sent.

        Without any order nothing is behind it.
        """
        return self.renews and self.own.fatal_held == "fail" and self.own.ordering != "none"

    @property
    def waits_for_id(self) -> bool:
        """Whether the first record that goes directly waits for a producer ID.

        A transactional producer has its ID by then, a batch lane asks for it ahead, and passthrough adds nothing.
        """
        return self.mode == "auto" and self.idempotent and not self.transactional

    @cached_property
    def owns_timeout(self) -> bool:
        """Whether this library times records out, and librdkafka's own delivery deadline is only a backstop.

        An expiry inside an idempotent librdkafka starts a new epoch for the whole producer, and writes batches of other
        partitions whose acknowledgement was lost a second time. A transactional producer's records end with the
        transaction; without idempotence an expiry concerns nobody else, and matters only to what is held back.
        """
        return not self.transactional and (self.only_batch_lanes or (self.idempotent and self.mode == "auto"))

    @property
    def stalled_after(self) -> float | None:
        """Age of a batch in seconds at which its lane must be purged, before librdkafka's own time-out comes."""
        if not self.owns_timeout or self.timeout is None:
            return None
        return backstop(self.timeout, self.socket_timeout) - BACKSTOP_MARGIN

    @property
    def ticks_ms(self) -> int:
        """librdkafka's statistics interval: the user's, cut into equal parts of half a second at most."""
        if self.mode == "passthrough":
            return self.statistics_ms
        return max(1, self.statistics_ms // self.ticks_per_statistics) if self.statistics_ms else self._most_tick_ms

    @property
    def _most_tick_ms(self) -> int:
        """The longest tick that takes no healthy record for one whose time is over: its age is known to a tick."""
        if not self.owns_timeout or self.timeout is None:
            return STATISTICS_MS
        return min(STATISTICS_MS, max(_LEAST_TICK_MS, int(self.timeout * 1000 * _TICK_SHARE)))

    @property
    def ticks_per_statistics(self) -> int:
        """The user's stats_cb is called at every so many of them; 0 = never."""
        if self.mode == "passthrough":
            return 1 if self.statistics_ms > 0 else 0
        return -(-self.statistics_ms // self._most_tick_ms)

    def direct_lane_config(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """`config` as the direct lane gets it."""
        changes: dict[str, Any] = {}
        if self.mode != "passthrough":
            changes["statistics.interval.ms"] = self.ticks_ms
        if self.owns_timeout and self.timeout is not None:
            changes["message.timeout.ms"] = int(backstop(self.timeout, self.socket_timeout) * 1000)
        return _changed(config, changes)

    def batch_lane_config(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """`config` as a batch lane gets it: only an exact count or a flush trigger sends a batch, and the buffer is
        ours."""
        return _changed(
            self.direct_lane_config(config),
            {
                "linger.ms": self.guard_ms,
                "batch.num.messages": self.batch_records,
                "batch.size": self._spare_bytes,
                "message.max.bytes": min(_MOST_MESSAGE_BYTES, max(self._spare_bytes, self.buffer.record_bytes)),
                _SPARSE: False,  # connected before the first batch, not by it
                "queue.buffering.max.messages": 0,
                "queue.buffering.max.kbytes": _LONGEST_TIMEOUT_MS,
                "statistics.interval.ms": self.ticks_ms,
                "enable.metrics.push": False,  # KIP-714: brokers would take each lane for a client of its own
            },
        )

    def told_lane_config(self, config: Mapping[str, Any], tells: bool) -> dict[str, Any]:
        """`config` as a batch lane gets it whose log tells of its producer ID. The first lane `tells` of the cluster;
        those that follow have statistics only for a stats_cb, not oftener than that is called."""
        debug = [text for text in (config.get("debug"), LISTEN_TO) if text]
        found = {**self.batch_lane_config(config), "debug": ",".join(map(str, debug))}
        return found if tells else {**found, "statistics.interval.ms": max(0, self.statistics_ms)}

    @property
    def _spare_bytes(self) -> int:
        """More than any batch that is handed over: librdkafka must not cut it where it counts otherwise.

        And not much more: two batches that went together must not be larger than what a topic takes by default, 4.9 %
        more than `batch.size`. Records whose sizes take three bytes each are 0.1 % larger than they were counted.
        """
        return min(_MOST_MESSAGE_BYTES, max(0, self.batch_bytes) * 1_001 // 1_000 + 2_000)

    @property
    def guard_ms(self) -> int:
        """The linger of a batch lane: librdkafka wants it shorter than its own timeout of records."""
        if self.timeout is None:
            return GUARD_MS
        limit = backstop(self.timeout, self.socket_timeout) if self.owns_timeout else self.timeout
        return min(GUARD_MS, int(limit * 500))


def _changed(config: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`config` with `changes`, but for settings that it has a bad value for: librdkafka shall refuse those."""
    bad = {real for name, value in config.items() if not _is_good(real := ALIAS.get(name, name), value)}
    replaced = {name: value for name, value in changes.items() if name not in bad}
    return {name: value for name, value in config.items() if ALIAS.get(name, name) not in replaced} | replaced


def _is_good(name: str, value: Any) -> bool:
    if name == _SPARSE:
        return str(value).lower() in ("true", "t", "1", "false", "f", "0")
    if name not in RANGES:
        return True
    least, most = RANGES[name]
    number = real(value) if name in _REAL else whole(value)
    return number is not None and not (number < least or number > most)  # librdkafka takes a NaN


def _refuse_long_linger(linger: float | None, timeout_ms: int) -> None:
    """Refuse it as librdkafka would, which is given another linger; what is out of range it refuses itself."""
    if linger is not None and 0 < timeout_ms <= linger <= RANGES["linger.ms"][1]:
        problem = (
            f"`message.timeout.ms` ({timeout_ms}) must be greater than `linger.ms`: no record would be sent in time"
        )
        way_out = "Lower linger.ms, or raise message.timeout.ms (delivery.timeout.ms)"
        raise ConfigurationError("linger.ms", f"{linger:g}", problem, way_out)


def read(by_name: Mapping[str, Any], own: OwnSettings, idempotent: bool, wants_statistics: bool) -> SendConfig:
    """The delivery settings in `by_name`, whose names are librdkafka's own (no aliases)."""

    def number(name: str, default: int) -> int:
        found = whole(by_name.get(name))
        return default if found is None else found

    timeout_ms = number("message.timeout.ms", 300_000)
    message_bytes = number("message.max.bytes", 1_000_000)
    linger = real(by_name.get("queue.buffering.max.ms"))
    if "message.timeout.ms" in by_name:
        _refuse_long_linger(linger, timeout_ms)
    return SendConfig(
        own=own,
        timeout=timeout_ms / 1000 if timeout_ms > 0 else None,
        linger=(_LINGER_MS if linger is None or not isfinite(linger) else linger) / 1000,
        batch_records=max(1, number("batch.num.messages", 10_000)),
        batch_bytes=min(number("batch.size", 1_000_000), message_bytes) - _REQUEST_BYTES,
        buffer=BufferSize(
            number("queue.buffering.max.messages", 100_000) or None,
            number("queue.buffering.max.kbytes", 1_048_576) * 1024,
            message_bytes,
        ),
        retry_backoff=min(number("retry.backoff.ms", 100), number("retry.backoff.max.ms", 1000)) / 1000,
        socket_timeout=number("socket.timeout.ms", 60_000) / 1000,
        partitioning=Partitioning(
            name if (name := by_name.get("partitioner")) in PARTITIONERS else DEFAULT,
            number("sticky.partitioning.linger.ms", 10) / 1000,
        ),
        statistics_ms=number("statistics.interval.ms", 0) if wants_statistics else 0,
        idempotent=idempotent,
        transactional=bool(by_name.get("transactional.id")),
        connection_cap=number(_IN_FLIGHT, 5) if _IN_FLIGHT in by_name else None,
        metadata_refresh=number("topic.metadata.refresh.interval.ms", 300_000) / 1000,
        acks=number("request.required.acks", -1),
    )
