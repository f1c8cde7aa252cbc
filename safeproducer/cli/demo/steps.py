"""The demonstration on embedded brokers has five steps, each with what is ordered from the cluster, and its proof.

The last one is about a partition behind a long link, whose leader says how many batches it remembers (KIP-1269). It has
a producer and a topic of its own, because there only the order of each key is kept.
"""

from __future__ import annotations

import itertools
import math
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from safeproducer import HoldReason, SafeProducer
from safeproducer.cli.common.connection import BrokerErrors
from safeproducer.cli.common.screen import Screen
from safeproducer.cli.common.stop import Failure
from safeproducer.cli.demo.experiment import Experiment, Line, compare, flawless, total_of
from safeproducer.policy.window import LEAST, TOPIC_CONFIG

if TYPE_CHECKING:
    from safeproducer.testing import FakeCluster
    from safeproducer.testing.fake.state.cluster_state import JournalBatch, JournalEntry

BROKERS, PARTITIONS, RECORDS = 3, 6, 20_000
"""`RECORDS`: of all steps together."""
_RATE, _BURST_RATE, _CALM_RATE, _UNLIMITED = 2_000, 3_000, 750, 1e12
_MOVED, _HOT = 0, 2
"""The partition that moves, and the broker that gets it, and is throttled then."""
_NOT_LEADER = 6
_ANSWERS = 3
_SAMPLE_EVERY, _SLICE = 0.1, 0.02
_THROTTLED = HoldReason.THROTTLED, HoldReason.PROBING
_LATER = 400
"""The fault of a step comes behind this many of its records: while others are on their way."""
_WINDOW, _ROUND_TRIP, _SECONDS, _KEYS = 20, 0.04, 2.5, 500
_FAR_SETTINGS = {
    "safeproducer.ordering": "key",
    "safeproducer.mode": "held",
    "batch.num.messages": 20,
    "queue.buffering.max.messages": 5_000,
    "log_level": 0,
}


TITLES = {
    "flow": f"Records flow: {_RATE:,} a second to {PARTITIONS} partitions on three brokers.",
    "leader moved": f"A leader moves: partition {_MOVED} goes to broker {_HOT}, in full flow.",
    "throttled": f"A broker throttles: broker {_HOT} is sent a burst, and may take no more than it did until now.",
    "answers lost": f"Acknowledgements get lost: {_ANSWERS} times written, answer dropped, connection cut.",
    "window found": f"A leader announces its window: {_WINDOW} batches of a producer, over a round trip of "
    f"{_ROUND_TRIP * 1000:.0f} ms, with the order of keys.",
}


def embedded_cluster() -> FakeCluster:
    """Failure if what it needs is not installed."""
    try:
        from safeproducer.testing import FakeCluster  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        way_out = "pip install 'safeproducer[cli]', or name real brokers with --bootstrap-servers"
        sentence = f"The package {error.name}, which the embedded brokers need, is not installed: {way_out}."
        raise Failure(sentence, code="missing-package") from error
    # A rate is measured over two seconds instead of eleven, or a burst would be forgiven too long to watch.
    return FakeCluster(BROKERS, broker_config={"quota.window.num": "2"})


class Proof(NamedTuple):
    """Whether a step happened, in a sentence and in figures."""

    shown: bool
    evidence: str
    facts: Mapping[str, object]


class Steps:
    """Runs the steps one after the other, and says what begins and what came of it. Used by one thread."""

    def __init__(
        self, cluster: FakeCluster, experiment: Experiment, records: Iterable[Line], screen: Screen, client_id: str
    ) -> None:
        self._cluster, self._experiment, self._records = cluster, experiment, iter(records)
        self._screen, self._client_id = screen, client_id
        self._waiting: dict[float, dict[int, int]] = {}
        self._seen = self._number = 0

    def run(self) -> dict[str, Proof]:
        """Run all steps, or until a signal; return the proofs of those that began, by their names."""
        done, works = dict[str, Proof](), (self._flow, self._move, self._throttle, self._lose, self._go_far)
        self._cluster.set_quota("producer_byte_rate", _UNLIMITED, client_id=self._client_id)  # from now on it measures
        for self._number, (work, (name, title)) in enumerate(zip(works, TITLES.items(), strict=True), start=1):
            if self._experiment.ended:
                break
            self._seen = len(self._cluster.journal("Produce"))
            self._say(f"{self._number}  {title}")
            found = done[name] = work()
            if not self._experiment.ended:
                self._say(f"   {'' if found.shown else 'NOT SHOWN: '}{found.evidence}")
        return done

    def _flow(self) -> Proof:
        self._send(4_000, _RATE)
        return of_flow(self._requests(), self._cluster.brokers)

    def _move(self) -> Proof:
        topic, cluster = self._experiment.topic, self._cluster
        old, _ = cluster.leader(topic, _MOVED)
        self._send(_LATER, _RATE)
        moved_at = time.time()
        cluster.move_leader(topic, _MOVED, to=_HOT)
        self._send(4_000 - _LATER, _RATE)
        return of_move(self._requests(), _MOVED, old, _HOT, moved_at)

    def _throttle(self) -> Proof:
        cluster, experiment = self._cluster, self._experiment
        led = [number for number in range(PARTITIONS) if cluster.leader(experiment.topic, number)[0] == _HOT]
        rest = [number for number in range(PARTITIONS) if number not in led]
        rates = [usage.rate for usage in cluster.quota_usage(_HOT) if usage.quota == "producer_byte_rate"]
        first = len(experiment.records)
        cluster.set_quota("producer_byte_rate", max([1, *map(math.ceil, rates)]), client_id=self._client_id)
        self._send(5_000, _BURST_RATE, lambda n: led[n % len(led)] if n % 10 < 8 else rest[n % len(rest)])
        self._send(1_500, _CALM_RATE)
        entries = self._requests()
        cluster.set_quota("producer_byte_rate", None, client_id=self._client_id)
        reported = [record for record in experiment.records[first:] if record.partition is not None]
        # The next step begins with a broker that takes records.
        until = max((entry.time + entry.throttled_ms / 1000 for entry in entries), default=0.0)
        while (left := until - time.time()) > 0 and not experiment.ended:
            experiment.serve(min(left, _SLICE))
        return of_throttle(entries, _HOT, led, self._waiting, reported)

    def _lose(self) -> Proof:
        self._send(_LATER, _RATE)
        self._cluster.lose_acks(_ANSWERS, topic=self._experiment.topic)
        self._send(5_500 - _LATER, _RATE)
        return of_lost_answers(self._requests(), _ANSWERS)

    def _go_far(self) -> Proof:
        """Send as much as goes to the far leader for a while, and read it back."""
        cluster, topic, stop = self._cluster, f"{self._experiment.topic}-far", self._experiment.stop
        cluster.create_topic(topic, partitions=1, config={TOPIC_CONFIG: str(_WINDOW)})
        cluster.delay(_ROUND_TRIP)
        try:
            with SafeProducer({"bootstrap.servers": cluster.bootstrap, **_FAR_SETTINGS}) as producer:
                far = Experiment(producer, BrokerErrors(self._screen), stop, topic, timeout=10)
                end = time.monotonic() + _SECONDS
                records = (Line(number, b"%d" % (number % _KEYS), b"%d" % number) for number in itertools.count())
                while time.monotonic() < end and far.send(next(records), 0):
                    pass
                snapshot = producer.snapshot()
                far.drain()
        finally:
            cluster.delay(0)
        total = total_of(compare(far.records, [(0, record.value or b"") for record in cluster.log(topic)]))
        window = next(iter(snapshot.windows), None)
        size, why = (window.size, window.reason) if window is not None else (0, "its leader was not asked")
        return of_far_leader(total, size, why, snapshot.lanes, far.seconds or _SECONDS)

    def _say(self, text: str) -> None:
        if not (self._screen.json_output or self._screen.quiet):
            self._screen.result("\n".join(textwrap.wrap(text, self._screen.out.width, subsequent_indent="   ")))

    def _send(self, count: int, rate: float, place: Callable[[int], int] = lambda n: n % PARTITIONS) -> None:
        """Send so many, `rate` a second, the n-th (from 0) to its partition, or until the run has to end."""
        started = looked = time.monotonic()
        for number, record in enumerate(itertools.islice(self._records, count)):
            while (early := started + number / rate - time.monotonic()) > 0:
                self._experiment.serve(min(early, _SLICE))
            if time.monotonic() - looked > _SAMPLE_EVERY:
                looked, rows = time.monotonic(), self._experiment.producer.snapshot().partitions
                if held := {row.partition: row.held for row in rows if row.reason in _THROTTLED and row.held}:
                    self._waiting[looked] = held
            record.step = self._number
            if not self._experiment.send(record, place(number)):
                break

    def _requests(self) -> list[JournalEntry]:
        """Wait for what is under way; the Produce requests to the brokers since the step began."""
        self._experiment.drain()
        return self._cluster.journal("Produce")[self._seen :]


def of_flow(entries: Sequence[JournalEntry], brokers: Collection[int]) -> Proof:
    """Whether each broker acknowledged records."""
    taken = [entry for entry in entries if entry.outcome == "answered" and any(not b.error_code for b in entry.batches)]
    served = sorted({entry.broker for entry in taken})
    sentence = f"{len(taken):,} requests acknowledged, by brokers {_listed(served)}."
    return Proof(served == sorted(brokers), sentence, {"requests": len(taken), "brokers": served})


def of_move(entries: Sequence[JournalEntry], partition: int, old: int, new: int, moved_at: float) -> Proof:
    """The old leader took the partition's records before the move, the new one after it. `moved_at`: Unix time."""
    mine = [(entry, batch.error_code) for entry in entries for batch in entry.batches if batch.partition == partition]
    before = any(entry.broker == old and not error for entry, error in mine)
    after = min((entry.time for entry, error in mine if entry.broker == new and not error), default=None)
    refused = sum(entry.broker == old and error == _NOT_LEADER for entry, error in mine)
    gap = None if after is None else round((after - moved_at) * 1000, 1)
    sentence = f"Broker {old} refused {refused} request(s), and after {gap} ms broker {new} took over."
    facts = {"partition": partition, "from": old, "to": new, "refused": refused, "gap_ms": gap}
    return Proof(before and gap is not None and gap > 0, sentence, facts)


def of_throttle(
    entries: Sequence[JournalEntry],
    broker: int,
    led: Collection[int],
    waiting: Mapping[float, Mapping[int, int]],
    records: Sequence[Line],
) -> Proof:
    """One broker told the client to wait, its partitions (`led`) waited as long, and the others went on.

    The last wait that was told may be longer than there were records to send, so nobody has to have waited for it.
    """
    told = [(entry.broker, entry.throttled_ms) for entry in entries if entry.throttled_ms]
    longest = max((milliseconds for _, milliseconds in told[:-1]), default=0) / 1000
    held = {partition for rows in waiting.values() for partition in rows}
    most = max((sum(rows.values()) for rows in waiting.values()), default=0)
    others = [record for record in records if record.partition not in led]
    meanwhile = sum(min(waiting) <= record.reported_at <= max(waiting) for record in others) if waiting else 0
    slowest, fast = _slowest(record for record in records if record.partition in led), _slowest(others)
    facts = {"broker": broker, "partitions": sorted(led), "throttled_answers": len(told), "most_records_held": most}
    facts |= {"longest_throttle_ms": round(longest * 1000), "partitions_held": sorted(held)}
    facts |= {"slowest_ms": round(slowest * 1000, 1), "slowest_of_others_ms": round(fast * 1000, 1)}
    sentence = (
        f"Broker {broker} asked {len(told)} times to wait, {longest:.1f} s at most; up to {most:,} records of "
        f"partitions {_listed(held)} waited in this process, {slowest:.1f} s at most. "
        f"Meanwhile the other partitions had {meanwhile:,} acknowledged, in {fast * 1000:.0f} ms at most."
    )
    alone = {who for who, _ in told} == {broker} and longest > 0
    shown = alone and bool(held) and held <= set(led) and meanwhile > 0 and slowest > fast and slowest >= longest
    return Proof(shown, sentence, facts | {"acknowledged_by_others": meanwhile})


def of_lost_answers(entries: Sequence[JournalEntry], ordered: int) -> Proof:
    """Batches were written and their answers dropped; they came again, and the brokers recognised each of them."""
    answers = [entry for entry in entries if entry.outcome == "lost"]
    lost = {_identity(batch) for entry in answers for batch in entry.batches if not batch.error_code}
    again = [batch for entry in entries if entry.outcome == "answered" for batch in entry.batches if batch.duplicate]
    known = lost & set(map(_identity, again))
    twice = f" The other {len(lost - known)} were written twice." if lost - known else ""
    return Proof(
        len(answers) == ordered and bool(lost) and lost == known,
        f"{len(answers)} answers lost, so {len(lost)} batches that were written came again; the brokers recognised "
        f"{len(known)} by their sequence numbers and did not write them twice.{twice}",
        {"answers_lost": len(answers), "batches_lost": len(lost), "recognised": len(known)},
    )


def of_far_leader(total: Counter[str], window: int, why: str, lanes: int, seconds: float) -> Proof:
    """The announced window was found and used, and each key is in the log in order, once."""
    exact, delivered, in_log, disordered = flawless(total), total["delivered"], total["in_log"], total["reordered"]
    rate, failed = delivered / seconds, total["accepted"] + total["refused"] - delivered
    facts = {"window": window, "lanes": lanes, "records": delivered, "records_per_second": round(rate)}
    sentence = (
        f"{why[:1].upper()}{why[1:]}: {lanes} lanes carried {rate:,.0f} records a second over a "
        f"round trip of {_ROUND_TRIP * 1000:.0f} ms; {in_log:,} read back, "
        + ("each key in order." if exact else f"{disordered} out of order, {failed} failed.")
    )
    shown = exact and window == _WINDOW and LEAST < lanes <= _WINDOW
    return Proof(shown, sentence, facts | {"in_log": in_log, "out_of_order": disordered})


def _slowest(records: Iterable[Line]) -> float:
    return max((record.reported_at - record.accepted_at for record in records), default=0.0)


def _identity(batch: JournalBatch) -> tuple[str, int, int, int, int]:
    return batch.topic, batch.partition, batch.producer_id, batch.epoch, batch.first_sequence


def _listed(numbers: Collection[int]) -> str:
    *most, last = [str(number) for number in sorted(numbers)] or ["none"]
    return f"{', '.join(most)} and {last}" if most else last
