"""The checks judge a configuration, a cluster and this host as they were found, and counts of producer IDs. Pure.

How many IDs, how old, how small. Ages are by record timestamp, which is all that brokers keep: an ID whose records
carry old timestamps looks idle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import NamedTuple

from safeproducer.cli.common.admin_settings import OpenTransaction, RememberedId
from safeproducer.cli.doctor.host import Host
from safeproducer.policy.expiry import Told
from safeproducer.policy.replication import Facts
from safeproducer.policy.types import TopicPartition

SMALL = 1_000
"""An ID whose last sequence number is below that has written fewer records to the partition, unless its epoch rose."""
HOUR = 3600.0
DAY = 24 * HOUR
SOON = HOUR
"""IDs that the leader may forget within that time are about to expire."""


class Idle(NamedTuple):
    """For how long IDs have written nothing, in seconds; 0 for timestamps of the future."""

    shortest: float
    median: float
    longest: float


class BusiestHour(NamedTuple):
    """The hour of the last day in which most small IDs wrote for the last time; `start` is in seconds since 1970."""

    start: float
    ids: int


@dataclass(frozen=True, slots=True)
class PartitionCensus:
    """IDs of one partition. `error`: the code and why its leader did not tell."""

    partition: int
    leader: int | None
    ids: int = 0
    small: int = 0
    expiring: int = 0
    idle: Idle | None = None
    error: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class TopicCensus:
    """IDs of one topic. All but `entries` count an ID once, in however many partitions it wrote.

    `entries`: what its leaders keep in memory. `small`: IDs that are small in each partition, without `transactional`
    ones, whose sequence numbers begin anew. `of_host`: line of code -> how many of the IDs this host's ledger knows.
    `error`: with which the cluster refused the topic as a whole.
    """

    topic: str
    entries: int = 0
    ids: int = 0
    small: int = 0
    transactional: int = 0
    expiring: int = 0
    idle: Idle | None = None
    busiest: BusiestHour | None = None
    of_host: Mapping[str, Sequence[int]] | None = None
    partitions: Sequence[PartitionCensus] = ()
    error: tuple[str, str] | None = None


class _Id(NamedTuple):
    small: bool
    transactional: bool
    last: float
    expiring: bool


def census(
    topic: str,
    partitions: Sequence[tuple[PartitionCensus, Sequence[RememberedId]]],
    expirations: Mapping[int, float],
    lines: Mapping[int, str],
    now: float,
) -> TopicCensus:
    """Count one topic. `partitions`: each still without its counts, and what its leader keeps.

    `expirations`: leader -> seconds for which it remembers an ID. `lines`: ID -> line of code, as far as this host's
    ledger knows it.
    """
    ids: dict[int, _Id] = {}
    counted = []
    for partition, states in partitions:
        forgets = expirations.get(-1 if partition.leader is None else partition.leader)
        found = [(state, _is_expiring(state, forgets, now)) for state in states]
        counted.append(_partition(partition, found, now))
        for state, expiring in found:
            ids[state.producer_id] = _merged(ids.get(state.producer_id), state, expiring)
    small = [one.last for one in ids.values() if one.small and not one.transactional]
    known: dict[str, list[int]] = {}
    for number in sorted(ids.keys() & lines.keys()):
        known.setdefault(lines[number], []).append(number)
    return TopicCensus(
        topic,
        entries=sum(len(states) for _, states in partitions),
        ids=len(ids),
        small=len(small),
        transactional=sum(one.transactional for one in ids.values()),
        expiring=sum(one.expiring for one in ids.values()),
        idle=_idle((one.last for one in ids.values()), now),
        busiest=busiest_hour(small, now),
        of_host=known,
        partitions=tuple(counted),
    )


def busiest_hour(moments: Iterable[float], now: float) -> BusiestHour | None:
    """The hour of the last day with most of these moments, the earliest of several; None without any."""
    recent = sorted(moment for moment in moments if moment > now - DAY)
    best: BusiestHour | None = None
    first = 0
    for last, moment in enumerate(recent):
        while moment - recent[first] >= HOUR:
            first += 1
        if best is None or last - first + 1 > best.ids:
            best = BusiestHour(recent[first], last - first + 1)
    return best


def _is_small(state: RememberedId) -> bool:
    return state.last_sequence < SMALL


def _is_expiring(state: RememberedId, forgets: float | None, now: float) -> bool:
    return forgets is not None and not state.in_transaction and state.last_timestamp + forgets <= now + SOON


def _merged(before: _Id | None, state: RememberedId, expiring: bool) -> _Id:
    one = _Id(_is_small(state), state.transactional, state.last_timestamp, expiring)
    if before is None:
        return one
    kinds = before.small and one.small, before.transactional or one.transactional
    return _Id(*kinds, max(before.last, one.last), before.expiring or one.expiring)


def _partition(partition: PartitionCensus, found: Sequence[tuple[RememberedId, bool]], now: float) -> PartitionCensus:
    return replace(
        partition,
        ids=len(found),
        small=sum(_is_small(state) and not state.transactional for state, _ in found),
        expiring=sum(expiring for _, expiring in found),
        idle=_idle((state.last_timestamp for state, _ in found), now),
    )


def _idle(last: Iterable[float], now: float) -> Idle | None:
    ages = [max(0.0, now - moment) for moment in last]
    return Idle(min(ages), median(ages), max(ages)) if ages else None


SILENT = frozenset({"_TIMED_OUT", "_TRANSPORT"})


@dataclass(frozen=True, slots=True)
class BrokerCensus:
    """`told`: for how long it remembers an ID, in seconds. `refused`: the code with which it refused to say."""

    number: int
    address: str
    told: Told
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class Configuration:
    """The application's settings. `timeout` and `socket_timeout` in seconds; no `timeout`: without end.

    `expiration`: what it says of brokers that do not tell for how long they remember an ID, in seconds; None: nothing.
    """

    timeout: float | None
    socket_timeout: float
    idempotent: bool
    expiration: float | None = None


class Unread(NamedTuple):
    """Facts that were not told, the right that shows them, and the code and text of the refusal."""

    what: str
    right: str
    code: str
    text: str


@dataclass(frozen=True, slots=True)
class ReplicationCensus:
    """`moves`: partition -> the replicas that are being added; None if that was not told."""

    facts: Facts = field(default_factory=lambda: Facts({}))
    moves: Mapping[TopicPartition, Sequence[int]] | None = None
    unread: Sequence[Unread] = ()


@dataclass(frozen=True, slots=True)
class ClusterCensus:
    """`topics` are those that were asked for, else all that this user sees."""

    brokers: Sequence[BrokerCensus] = ()
    topics: Sequence[TopicCensus] = ()
    all_topics: bool = False
    replication: ReplicationCensus = field(default_factory=ReplicationCensus)
    transactions: Sequence[OpenTransaction] = ()


@dataclass(frozen=True, slots=True)
class Examined:
    """`configuration` is None when none was given; `cluster` is empty when none was named, or none answered."""

    rate: int
    configuration: Configuration | None = None
    cluster: ClusterCensus = field(default_factory=ClusterCensus)
    host: Host = field(default_factory=Host)


def expirations(brokers: Sequence[BrokerCensus]) -> Mapping[int, float]:
    """Broker -> seconds for which it remembers a producer ID, of those that tell."""
    return {broker.number: broker.told.producer_id for broker in brokers if broker.told.producer_id is not None}
