"""Why records wait, or fail: the causes of one look, which is told first, and what they rest on.

explain(), health(), snapshot(), log lines and the errors of records tell the same causes. Pure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from safeproducer.policy.hold_reason import HoldReason
from safeproducer.policy.types import NEVER, UNPLACED, TopicPartition

Leaders = Callable[[str, int], set[int]]  # who may lead a partition; nobody while that is not known
Seen = Mapping[int, float]  # broker -> when it was last connected, if it is
Windows = Mapping[TopicPartition, str]  # how many batches of a partition may be under way, as a clause
_FIRST = "callback", "coordinator", "unknown_topic", "replication", "client_error", "no_broker", "refusing", "slow"
_RANKS = (*_FIRST, "", "waiting", "refused", "expired")
_BROKER = re.compile(r"^(?:[a-z0-9_]+://)?\S+/(?P<id>bootstrap|\d+): ", re.IGNORECASE)
RECURS_WITHIN = 10.0  # seconds: reconnect.backoff.max.ms of librdkafka
_BEGINS_WITHIN = 1.0  # seconds that a connection may take to get ready, long round trips included
_LISTENS = "Check that a broker listens there, with TLS or without it as security.protocol says"
_LASTS = 1.0  # seconds: a leader that moves refuses for as long
_ASKED_AFTER = "NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, or UNKNOWN_TOPIC_OR_PARTITION of a deleted topic"
_AGAIN = 2.5  # seconds within which what statistics showed goes on: they come twice a second, attempts each second
SLOW = 1.0  # seconds: brokers answer sooner, however long the round trip is
Row = Any  # a PartitionSnapshot, which belongs to a layer above


class What(NamedTuple):
    """The thing that a cause is about. `kind`: "cluster", "broker", "topic", "partition", "callback" or "call".

    `name`: the broker's ID, the topic, the (topic, partition), the callback's name and place, the method.
    """

    kind: str
    name: object = None


CLUSTER = What("cluster")


class Cause(NamedTuple):
    """A thing that is wrong, or that records wait for.

    - `code`: as of HealthReason. `sentence` says it, `cure` what to do, None for nothing.
    - `since`: seconds for which it has been so, None for as long as records wait. `over`: nothing waits because of it
      any more.
    - `clause`: the sentence among those of other partitions, where `name` follows it; "1 for name" is in front of it.
    - `evidence`: what it rests on. `harms`: health() is not ok, however short it has been so.
    """

    code: str
    sentence: str
    cure: str | None = None
    since: float | None = None
    clause: str = ""
    name: str = ""
    what: What = CLUSTER
    over: bool = False
    evidence: str = ""
    harms: bool = False

    @property
    def node(self) -> int | None:
        """The broker that it is about, None for another thing."""
        return self.what.name if self.what.kind == "broker" and isinstance(self.what.name, int) else None

    @property
    def rank(self) -> int:
        """The place of its code: what explains another one is told before it."""
        return _RANKS.index(self.code if self.code in _RANKS else "")


def told_first(causes: Iterable[Cause]) -> list[Cause]:
    """Causes in their order: those that explain others first."""
    return sorted(causes, key=lambda cause: cause.rank)


# --- what the client tells of brokers --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClientError:
    """A client error that was told at `at`, in seconds, when so many records had been `delivered`.

    It came `times` times since `since`, the last two `gap` seconds apart. `vague`: it says no more than that brokers
    cannot be reached.

    `node`: the broker it is about, None when it names none. `of_all`: it is about reaching any broker at all. `lasts`:
    it is fatal.
    """

    sentence: str
    node: int | None
    of_all: bool
    lasts: bool
    at: float
    delivered: int
    since: float = 0.0
    times: int = 1
    gap: float = 0.0
    vague: bool = False
    cure: str = ""

    def after(self, before: ClientError | None) -> ClientError:
        """The error as one more of those before it."""
        if before is None or self.at - before.at > RECURS_WITHIN:
            return replace(self, since=self.at)
        said = before if self.vague else self
        again = replace(self, since=before.since, times=before.times + 1, gap=self.at - before.at)
        return replace(again, sentence=said.sentence, cure=said.cure, vague=said.vague)

    def is_over(self, connected: Seen, delivered: int, now: float) -> bool:
        """By when each broker was last seen connected, and how many records have been delivered.

        A broker that is named is over its trouble only when it is connected itself: others may acknowledge meanwhile.
        One that comes again and again is over when it is not due again, and records are delivered.
        """
        if self.lasts or (self.times > 1 and (now - self.at <= 2 * self.gap or delivered <= self.delivered)):
            return False
        if self.node is not None:
            return connected.get(self.node, self.at) > self.at
        return delivered > self.delivered or (self.of_all and any(seen > self.at for seen in connected.values()))

    def cause(self, over: bool, away: bool, now: float) -> Cause:
        """The error as a cause. `over`: nothing waits because of it any more; `away`: no broker is connected."""
        about = "the last client error" + ("" if self.node is None else f" of broker {self.node}")
        again = "" if self.times == 1 else f"{self.times} times in {self.at - self.since:.0f} s, the last "
        told = f"{about}{'' if over else ' was'}: {self.sentence} ({again}{now - self.at:.0f} s ago)"
        told += "; no broker is connected" if away and not over else ""
        what = CLUSTER if self.node is None else What("broker", self.node)
        return Cause("client_error", told, self.cure or None, now - self.since, what=what, over=over)


def broker_in(reason: str, all_down: bool) -> tuple[int | None, bool]:
    """(the broker that librdkafka's text names, whether it is about all of them)."""
    found = _BROKER.match(reason)
    if found is None:
        return None, all_down
    name = found["id"]
    return (int(name), False) if name.isdecimal() else (None, True)


def advertised(cure: str, node: int | None, told_by: str) -> str:
    """The cure, where a broker has told the address: what has an ID was not taken from bootstrap.servers."""
    setting = f"advertised.listeners of broker {node} (its address was told by {told_by})"
    return cure if node is None else cure.replace("bootstrap.servers", setting, 1)


def begun(connections: Mapping[str, tuple[str, float]], more: float) -> Iterator[Cause]:
    """Connections that do not get ready: address and ID -> (librdkafka's state of it, seconds in it, `more` ago)."""
    for name, (state, age) in connections.items():
        address, _, number = name.rpartition("/")
        if (seconds := age + more) > _BEGINS_WITHIN:
            told = f"a connection to {address} has got no further than {state} for {seconds:.0f} s"
            node = f"; broker {number} told that address: advertised.listeners" if number.isdecimal() else ""
            yield Cause("client_error", told, f"{_LISTENS}{node}.", seconds)


def throttling(node: int, until: float, now: float) -> Cause:
    """A broker announced a throttle time that ends, or ended, at `until`. A negative `node` is one that is not known.

    Once it has ended it is no cause: what is held to calm the broker has a reason of its own, and what librdkafka has
    waits for something else.
    """
    who, about = (f"broker {node}", What("broker", node)) if node >= 0 else ("a broker", CLUSTER)
    why = HoldReason.THROTTLED
    if until > now:
        lasts = f"the quota of {who} throttles this client for another {until - now:.1f} s"
        return Cause(why, lasts, why.cure, what=about)
    return Cause(why, f"the quota of {who} throttled this client until {now - until:.1f} s ago", what=about, over=True)


def cut(node: int, times: int, since: float, last: float) -> Cause:
    """The connection to a broker is lost again and again, since so many seconds."""
    told = f"the connection to broker {node} was lost {times} times in {since - last:.0f} s, the last {last:.0f} s ago"
    return Cause("client_error", told, HoldReason.LEADER_SILENT.cure, what=What("broker", node))


def of_errors(
    errors: Iterable[ClientError], cuts: Mapping[int, Cause], connected: Seen, away: bool, delivered: int, now: float
) -> Iterator[Cause]:
    """The last error of each broker, newest first, and cuts behind why; that none is reached is not told beside it."""
    found = sorted(errors, key=lambda error: -error.at)
    again = {error for error in found if (bool(cuts) if error.node is None else error.node in cuts)}
    over = {error for error in found if error not in again and error.is_over(connected, delivered, now)}
    why = [error for error in found if not (error.vague or error in over)]
    told = {error: error.cause(error in over, away, now) for error in found if not (error.vague and why)}
    yield from [told.pop(error) for error in why]
    yield from (*cuts.values(), *told.values())


def concerning(troubles: Iterable[Cause], rows: list[Row], leaders: Leaders) -> list[Cause]:
    """Troubles without those of brokers that lead none of the partitions."""
    led = [leaders(row.topic, row.partition) for row in rows]
    nodes = set().union(*led) if all(led) else None
    return [trouble for trouble in troubles if nodes is None or trouble.node is None or trouble.node in nodes]


# --- what brokers answer ---------------------------------------------------------------------------------------------


class Attempts(NamedTuple):
    """Attempts to send records of a partition that its leader has answered with errors, since it acknowledged one.

    librdkafka tries again and tells nobody which error that was. `lane`: whose. `sent`: records in requests before.
    `refused`: records in requests that were, between statistics of `since` and `at`. `looks`: at how many
    statistics; `asked`: at how many more of them the topic's metadata were new than not, as it asks for these only
    after certain errors.
    """

    lane: int
    sent: int
    refused: int = 0
    since: float = NEVER
    at: float = -NEVER
    looks: int = 0
    asked: int = 0

    def seen(self, sent: int, in_flight: int, since: float, at: float, asked: int) -> Attempts:
        """After statistics that show no acknowledgement since those before them. `asked`: 1, or -1; 0: not known."""
        if (count := sent - self.sent - in_flight) <= self.refused:
            return self
        known = self.asked + asked if self.looks else max(0, asked)  # it may be about to ask
        return self._replace(refused=count, since=min(self.since, since), at=at, looks=self.looks + 1, asked=known)

    def lasts(self, now: float, since: float = -NEVER) -> bool:
        """Whether it has gone on for so long that it is told, and does. Replicas may be the reason until `since`."""
        return self.looks > 1 and min(now - self.since, self.at - since) >= _LASTS and now < self.at + _AGAIN

    def cause(self, tp: TopicPartition, node: int | None, now: float) -> Cause:
        """For people; which error it was is told by what librdkafka does then."""
        code, cure = ", NOT_ENOUGH_REPLICAS for example" * (self.asked < -1), HoldReason.LEADER_SILENT.cure
        if self.asked > 0:
            code = f", after each of which it asks who leads, as after {_ASKED_AFTER}"
            cure = "Look at that broker and its disks: the cluster says that it leads, and it takes no records."
        who = "its leader" if node is None else f"broker {node}"
        clause = f"{who} answers, with errors that librdkafka tries again{code}: it acknowledges none of"
        name = f"{tp[0]} [{tp[1]}]"
        evidence = f"{self.refused} records in requests were refused in {self.at - self.since:.0f} s"
        told = f"{clause} {name} ({evidence}, the last {max(0.0, now - self.at):.0f} s ago)"
        return Cause("refusing", told, cure, now - self.since, clause, name, What("partition", tp), evidence=evidence)


def silent(tp: TopicPartition, node: int) -> Cause:
    """A leader acknowledges nothing of what librdkafka has."""
    clause, name, why = f"broker {node} acknowledges nothing of", f"{tp[0]} [{tp[1]}]", HoldReason.LEADER_SILENT
    return Cause(why, f"{clause} {name}", why.cure, None, clause, name, What("partition", tp))


def slow(node: int, seconds: float, since: float, name: str = "records", answers: bool = True) -> Cause:
    """A broker answers late, also for the partition of this name; or it has not answered for so long."""
    how = f"takes {seconds:.1f} s for each answer, and so for"
    clause = f"broker {node} {how if answers else f'has not answered for {seconds:.1f} s: no'} acknowledgements of"
    cure = "Look at that broker's load and disks, at the followers of its partitions and at the network between."
    return Cause("slow", f"{clause} {name}", cure, since, clause, name, What("broker", node))


def untold(topic: str, node: int, since: float) -> Cause:
    """No broker has told of a topic, and one has not answered for so long."""
    told = f"no broker has told of {topic}: broker {node} has not answered for {since:.1f} s"
    return Cause(HoldReason.NO_BROKER, told, HoldReason.LEADER_SILENT.cure, since, what=What("broker", node))


Blocked = tuple[Cause, Callable[[TopicPartition], int]]
"""The callback, and of how many records of a partition there may be no acknowledgement, beside those that are held."""


def blocked(place: str, since: float, reports: int) -> Cause:
    """A callback of the application keeps the thread that serves, for so many seconds."""
    told = f"the callback {place} has been running for {since:.0f} s, and {reports} report(s) wait behind it"
    cure = "Let callbacks return soon, and give long work to another thread."
    return Cause("callback", told, cure, since, what=What("callback", place))


# --- what records wait for -------------------------------------------------------------------------------------------


class Located(NamedTuple):
    """Where records are that wait, beside those that are held, and what is wrong there.

    - `reports`: by partition, those that poll() has to run. `sent`: records that librdkafka has, by the last
      statistics; also of those whose caller named no partition.
    - `counts`: partitions of topics that a broker has told of. `missing`: a clause for each topic that is not there.
    - `sick`: partition -> what is wrong with its leader. `linger`: seconds. `lost`: as Losses.known().
    - `failed`: the name of the last error, for each topic with records that failed.
    - `ages`: partition -> seconds for which its oldest record has waited, as far as that is known.
    - `blocked`: the callback behind which reports wait. `served`: whether a thread runs reports.
    """

    reports: Mapping[TopicPartition, int] = MappingProxyType({})
    sent: Mapping[TopicPartition, int] = MappingProxyType({})
    counts: Mapping[str, int] = MappingProxyType({})
    missing: Mapping[str, str] = MappingProxyType({})
    sick: Mapping[TopicPartition, tuple[Cause, ...]] = MappingProxyType({})
    linger: float = 0.0
    failed: Mapping[str, str] = MappingProxyType({})
    lost: Mapping[TopicPartition, Cause] = MappingProxyType({})
    ages: Mapping[TopicPartition, float] = MappingProxyType({})
    blocked: Blocked | None = None
    served: bool = False

    def of(self, topic: str | None, partition: int | None) -> tuple[int, int]:
        """(reports that wait for poll(), records that librdkafka has)."""

        def total(each: Mapping[TopicPartition, int]) -> int:
            return sum(count for tp, count in each.items() if topic in (None, tp[0]) and partition in (None, tp[1]))

        return total(self.reports), total(self.sent)

    def waiting(self, rows: Iterable[Row]) -> Iterator[tuple[Row, int]]:
        """Rows with records that have no acknowledgement, and how many; or lost some, while none got through.

        A record that names no partition counts where it is held, and not where it was accepted as well.
        """
        elsewhere, reports = Counter[str](), Counter(self.reports)
        for (topic, number), count in self.reports.items():
            reports[topic, UNPLACED] += count if number >= 0 else 0
        for row in sorted(rows, key=lambda row: row.partition < 0):
            tp = row.topic, row.partition
            owed = row.unresolved - reports[tp] - elsewhere[row.topic] * (row.partition < 0)
            if self.blocked is not None:
                owed = min(owed, row.held + self.blocked[1](tp))
            elsewhere[row.topic] += max(0, row.held - row.unresolved)
            if (count := max(owed, row.held, 0)) or tp in self.lost:
                yield row, count

    def causes(
        self, rows: Iterable[Row], troubles: Iterable[Cause], leaders: Leaders, windows: Windows
    ) -> Iterator[tuple[Row, int, list[Cause]]]:
        """The rows of waiting(), with what each of them waits for: what explains the rest first."""
        present = [one for one in troubles if not one.over]
        of_brokers = any(one.node is not None for one in present)
        by_topic = dict[str, list[Cause]]()
        for (topic, _), found in sorted(self.sick.items()):
            by_topic.setdefault(topic, []).extend(found)
        for row, count in self.waiting(rows):
            matters = concerning(present, [row], leaders) if of_brokers else present
            sick: Iterable[Cause] = (
                by_topic.get(row.topic, ()) if row.partition < 0 else self.sick.get((row.topic, row.partition), ())
            )
            window = windows.get((row.topic, row.partition), "")
            yield row, count, told_first(self._of(row, matters, sick, window))

    def _of(self, row: Row, matters: Iterable[Cause], sick: Iterable[Cause], window: str) -> Iterator[Cause]:
        tp, why, held = (row.topic, row.partition), row.reason, f"{row.held} for {tp_name(row)}" if row.held else ""
        about = What("partition", tp)
        if stops(row):
            yield of_replicas(row.replication, tp, window, held)
            return
        if missing := self.missing.get(row.topic):
            unknown = HoldReason.UNKNOWN_TOPIC
            yield Cause(unknown, missing, unknown.cure, None, missing, held, What("topic", row.topic))
            sick = ()
        elif held and why is not None:
            told = f"{tp_name(row)} {row.why}"
            yield Cause(why, told, why.cure, None, f"the partition {row.why}{window}", held, about)
        yield from [one for one in matters if one.code != why] if held else matters
        yield from [one for one in sick if one.code != why] if held else sick
        if lost := self.lost.get(tp):
            yield lost


def of_replicas(known: Any, tp: TopicPartition, window: str = "", held: str = "") -> Cause:
    """Acknowledgements wait for replicas, by the ReplicationSnapshot."""
    told = known.sentence
    return Cause("replication", told, known.cure or None, None, f"{told}{window}", held, What("partition", tp))


def tp_name(row: Row) -> str:
    return f"{row.topic} [{row.partition}]" if row.partition >= 0 else row.topic


def stops(row: Row) -> bool:
    """Whether records wait because of replicas."""
    delays = row.replication is not None and row.replication.delays
    return delays and row.reason in (None, HoldReason.LEADER_SILENT)
