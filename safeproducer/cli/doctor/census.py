"""The checks judge a configuration, a cluster and this host as they were found, and counts of producer IDs. Pure.

How many IDs, how old, how small. Ages are by record timestamp, which is all that brokers keep: an ID whose records
carry old timestamps looks idle.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

from safeproducer.cli.common.admin_settings import AskError, OpenTransaction, RememberedId
from safeproducer.cli.common.producer_states import Producers
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
SILENT = frozenset({"_TIMED_OUT", "_TRANSPORT"})


@dataclass(frozen=True, slots=True)
class Idle:
    """For how long IDs have written nothing, in seconds; 0 for timestamps of the future."""

    shortest: float
    median: float
    longest: float


@dataclass(frozen=True, slots=True)
class BusiestHour:
    """The hour of the last day in which most small IDs wrote for the last time; `start` is in seconds since 1970."""

    start: float
    small_ids: int


@dataclass(frozen=True, slots=True)
class BrokerError:
    """Librdkafka's name of the error, and its text."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class PartitionCensus:
    """IDs of one partition, in the order and with the names of the JSON. `error`: why its leader did not tell."""

    partition: int
    leader: int | None
    ids: int = 0
    small_ids: int = 0
    about_to_expire: int = 0
    idle_seconds: Idle | None = None
    error: BrokerError | None = None


@dataclass(frozen=True, slots=True)
class TopicCensus:
    """IDs of one topic. All but `ids` count an ID once, in however many partitions it wrote.

    `ids`: what its leaders keep in memory. `small_ids`: those that are small in each partition, without
    `transactional_ids`, whose sequence numbers begin anew. `of_this_host`: line of code -> the IDs that this host's
    ledger knows. `error`: with which the cluster refused the topic as a whole.
    """

    topic: str
    ids: int = 0
    distinct_ids: int = 0
    small_ids: int = 0
    transactional_ids: int = 0
    about_to_expire: int = 0
    idle_seconds: Idle | None = None
    busiest_hour: BusiestHour | None = None
    of_this_host: Mapping[str, Sequence[int]] = field(default_factory=dict)
    partitions: Sequence[PartitionCensus] = ()
    error: BrokerError | None = None


class _Id(NamedTuple):
    small: bool
    transactional: bool
    last: float
    expiring: bool


def census(
    topic: str,
    partitions: Sequence[tuple[int, int | None, Producers]],
    expirations: Mapping[int, float],
    lines: Mapping[int, str],
    now: float,
) -> TopicCensus:
    """Count one topic. `partitions`: number, leader, and what it keeps. `expirations`: leader -> seconds for which it
    remembers an ID. `lines`: ID -> line of code, as far as this host's ledger knows it.
    """
    ids: dict[int, _Id] = {}
    counted = []
    for number, leader, told in partitions:
        states, error = ((), BrokerError(told.code, str(told))) if isinstance(told, AskError) else (told, None)
        found = [_id(state, None if leader is None else expirations.get(leader), now) for state in states]
        counted.append(PartitionCensus(number, leader, len(found), **_counts(found, now), error=error))
        for state, one in zip(states, found, strict=True):
            ids[state.producer_id] = _merged(ids.get(state.producer_id, one), one)
    known: dict[str, list[int]] = {}
    for number in sorted(ids.keys() & lines.keys()):
        known.setdefault(lines[number], []).append(number)
    return TopicCensus(
        topic,
        sum(one.ids for one in counted),
        len(ids),
        transactional_ids=sum(one.transactional for one in ids.values()),
        busiest_hour=busiest_hour((one.last for one in ids.values() if one.small), now),
        of_this_host=known,
        partitions=counted,
        **_counts(ids.values(), now),
    )


def busiest_hour(moments: Iterable[float], now: float) -> BusiestHour | None:
    """The hour of the last day with most of these moments, the earliest of several; None without any."""
    recent = sorted(moment for moment in moments if moment > now - DAY)
    counts = [bisect_left(recent, start + HOUR) - first for first, start in enumerate(recent)]
    return BusiestHour(recent[counts.index(max(counts))], max(counts)) if counts else None


def _id(state: RememberedId, forgets: float | None, now: float) -> _Id:
    small = state.last_sequence < SMALL and not state.transactional
    expiring = forgets is not None and not state.in_transaction and state.last_timestamp + forgets <= now + SOON
    return _Id(small, state.transactional, state.last_timestamp, expiring)


def _merged(one: _Id, other: _Id) -> _Id:
    transactional, expiring = one.transactional or other.transactional, one.expiring or other.expiring
    return _Id(one.small and other.small, transactional, max(one.last, other.last), expiring)


def _counts(ids: Collection[_Id], now: float) -> dict[str, Any]:
    """Count what topics and partitions tell of IDs."""
    ages = [max(0.0, now - one.last) for one in ids]
    return {
        "small_ids": sum(one.small for one in ids),
        "about_to_expire": sum(one.expiring for one in ids),
        "idle_seconds": Idle(*(round(of(ages), 3) for of in (min, median, max))) if ages else None,
    }


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
class ClusterCensus:
    """`topics` are those that were asked for, else all that this user sees.

    `moves`: partition -> the replicas that are being added; None if that was not told.
    """

    brokers: Sequence[BrokerCensus] = ()
    topics: Sequence[TopicCensus] = ()
    all_topics: bool = False
    facts: Facts = field(default_factory=lambda: Facts({}))
    moves: Mapping[TopicPartition, Sequence[int]] | None = None
    unread: Sequence[Unread] = ()
    transactions: Sequence[OpenTransaction] = ()

    @property
    def expirations(self) -> Mapping[int, float]:
        """Broker -> seconds for which it remembers a producer ID, of those that tell."""
        told = {broker.number: broker.told.producer_id for broker in self.brokers}
        return {number: seconds for number, seconds in told.items() if seconds is not None}


@dataclass(frozen=True, slots=True)
class Examined:
    """`configuration` is None when none was given; `cluster` is empty when none was named, or none answered."""

    rate: int
    configuration: Configuration | None = None
    cluster: ClusterCensus = field(default_factory=ClusterCensus)
    host: Host = field(default_factory=Host)
