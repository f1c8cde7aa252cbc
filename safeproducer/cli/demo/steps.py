"""The demonstration on embedded brokers has five steps, each with what is ordered from the cluster.

The last one is about a partition behind a long link, whose leader says how many batches it remembers (KIP-1269). It has
a producer and a topic of its own, because there only the order of each key is kept.
"""

from __future__ import annotations

import itertools
import math
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple

from safeproducer import HoldReason, SafeProducer
from safeproducer.cli.common.connection import BrokerErrors, extra
from safeproducer.cli.common.screen import Screen
from safeproducer.cli.demo.experiment import Experiment, Record, compare, flawless, total_of
from safeproducer.policy.window import MINIMUM, TOPIC_CONFIG

if TYPE_CHECKING:
    from safeproducer.testing import FakeCluster
    from safeproducer.testing.fake.state.cluster_state import JournalBatch, JournalEntry

BROKERS = 3
PARTITIONS = 6
RECORDS = 20_000
"""Records of all steps together."""
# A rate is measured over the last two seconds instead of eleven, or a burst would be forgiven too long to watch.
_BROKER_CONFIG = {"quota.window.num": "2"}

_RATE = 2_000
_BURST_RATE = 3_000
_HOT_IN_TEN = 8
_CALM_RATE = 750
_UNLIMITED = 1e12
_MOVED, _HOT = 0, 2
_NOT_LEADER = 6
_ANSWERS = 3
_SAMPLE_EVERY = 0.1
_SLICE = 0.02
_LATER = 400
"""The fault of a step comes behind this many of its records: while others are on their way."""
_WINDOW = 20
_ROUND_TRIP = 0.04
_SECONDS = 2.5
_KEYS = 500
_FAR_SETTINGS = {
    "safeproducer.ordering": "key",
    "safeproducer.mode": "held",
    "batch.num.messages": 20,
    "queue.buffering.max.messages": 5_000,
    "log_level": 0,
}


def embedded_cluster() -> AbstractContextManager[FakeCluster]:
    """A FakeCluster, which starts when it is entered; Failure if what it needs is not installed."""
    with extra("the embedded brokers need", ", or name real brokers with --bootstrap-servers"):
        from safeproducer.testing import FakeCluster  # noqa: PLC0415 - kafka-python is an extra
    return FakeCluster(BROKERS, broker_config=_BROKER_CONFIG)


class Proof(NamedTuple):
    """Whether a step happened, in a sentence and in figures."""

    shown: bool
    evidence: str
    facts: Mapping[str, object]


class Step(NamedTuple):
    """A step in a word and in a sentence, and what proves it."""

    name: str
    title: str
    proof: Proof


class Steps:
    """Runs the steps one after the other, and says what begins and what came of it. Used by one thread."""

    def __init__(
        self, cluster: FakeCluster, experiment: Experiment, records: Iterator[Record], screen: Screen, client_id: str
    ) -> None:
        self._cluster = cluster
        self._experiment = experiment
        self._records = records
        self._screen = screen
        self._client_id = client_id
        self._next_sample = 0.0
        self._waiting: dict[float, dict[int, int]] = {}
        self._seen = 0
        self._begun = ("", "")
        self._done: list[Step] = []

    def run(self) -> list[Step]:
        """Run all steps, or until a signal; return those that began."""
        self._experiment.tick = self._sample
        self._cluster.set_quota("producer_byte_rate", _UNLIMITED, client_id=self._client_id)  # from now on it measures
        for step in (self._flow, self._move, self._throttle, self._lose, self._go_far):
            if self._experiment.ended:
                break
            found = step()
            self._done.append(Step(*self._begun, found))
            if not self._experiment.ended:
                refuted, style = ("", "") if found.shown else ("NOT SHOWN: ", "bold red")
                self._say(f"   {refuted}{found.evidence}", style)
        return self._done

    # --- steps -------------------------------------------------------------------------------------------------------

    def _flow(self) -> Proof:
        self._begin("flow", f"Records flow: {_RATE:,} a second to {PARTITIONS} partitions on three brokers.")
        self._send(4_000, _RATE)
        self._experiment.drain()
        return of_flow(self._requests(), self._cluster.brokers)

    def _move(self) -> Proof:
        topic = self._experiment.topic
        old, epoch = self._cluster.leader(topic, _MOVED)
        self._begin(
            "leader moved",
            f"A leader moves: partition {_MOVED} goes from broker {old} to broker {_HOT}, in full flow.",
        )
        self._send(_LATER, _RATE)
        moved_at = time.time()
        self._cluster.move_leader(topic, _MOVED, to=_HOT)
        self._send(4_000 - _LATER, _RATE)
        self._experiment.drain()
        new, new_epoch = self._cluster.leader(topic, _MOVED)
        return of_move(self._requests(), _MOVED, old, new, moved_at, (epoch, new_epoch))

    def _throttle(self) -> Proof:
        cluster, experiment = self._cluster, self._experiment
        led = [number for number in range(PARTITIONS) if cluster.leader(experiment.topic, number)[0] == _HOT]
        rest = [number for number in range(PARTITIONS) if number not in led]
        rates = [usage.rate for usage in cluster.quota_usage(_HOT) if usage.quota == "producer_byte_rate"]
        quota = max(1, math.ceil(max(rates, default=0)))
        self._begin(
            "throttled",
            f"A broker throttles: broker {_HOT}, which leads {len(led)} partitions now, is sent a burst, and may take "
            f"{quota / 1000:,.0f} kB/s from this client.",
        )
        self._waiting.clear()
        first = len(experiment.records)
        cluster.set_quota("producer_byte_rate", quota, client_id=self._client_id)
        self._send(5_000, _BURST_RATE, lambda n: led[n % len(led)] if n % 10 < _HOT_IN_TEN else rest[n % len(rest)])
        self._send(1_500, _CALM_RATE)
        experiment.drain()
        entries = self._requests()
        cluster.set_quota("producer_byte_rate", None, client_id=self._client_id)
        reported = [record for record in experiment.records[first:] if record.partition is not None]
        found = of_throttle(entries, _HOT, led, self._waiting, reported)
        # The next step begins with a broker that takes records.
        until = max((entry.time + entry.throttled_ms / 1000 for entry in entries), default=0.0)
        while (left := until - time.time()) > 0 and not experiment.ended:
            experiment.serve(min(left, _SLICE))
        return found

    def _lose(self) -> Proof:
        self._begin(
            "answers lost", f"Acknowledgements get lost: {_ANSWERS} times written, answer dropped, connection cut."
        )
        self._send(_LATER, _RATE)
        self._cluster.lose_acks(_ANSWERS, topic=self._experiment.topic)
        self._send(5_500 - _LATER, _RATE)
        self._experiment.drain()
        return of_lost_answers(self._requests(), _ANSWERS)

    def _go_far(self) -> Proof:
        """Send as much as goes to the far leader for a while, and read it back."""
        self._begin(
            "window found",
            f"A leader announces its window: {_WINDOW} batches of a producer, over a round trip of "
            f"{_ROUND_TRIP * 1000:.0f} ms, with the order of keys.",
        )
        cluster, topic, stop = self._cluster, f"{self._experiment.topic}-far", self._experiment.stop
        cluster.create_topic(topic, partitions=1, config={TOPIC_CONFIG: str(_WINDOW)})
        cluster.delay(_ROUND_TRIP)
        try:
            with SafeProducer({"bootstrap.servers": cluster.bootstrap, **_FAR_SETTINGS}) as producer:
                far = Experiment(producer, BrokerErrors(self._screen), stop, topic, timeout=10)
                end, numbers = time.monotonic() + _SECONDS, itertools.count()
                while time.monotonic() < end:
                    number = next(numbers)
                    if not far.send(Record(number, b"%d" % (number % _KEYS), b"%d" % number), 0):
                        break
                snapshot = producer.snapshot()
                far.drain()
        finally:
            cluster.delay(0)
        log = [(0, record.value or b"") for record in cluster.log(topic)]
        window = next(iter(snapshot.windows), None)
        size, why = (window.size, window.reason) if window is not None else (0, "its leader was not asked")
        return of_far_leader(total_of(compare(far.records, log)), size, why, snapshot.lanes, far.seconds or _SECONDS)

    # --- what they share ---------------------------------------------------------------------------------------------

    def _begin(self, name: str, title: str) -> None:
        self._seen = len(self._cluster.journal("Produce"))
        self._begun = (name, title)
        self._say(f"{len(self._done) + 1}  {title}", "bold")

    def _say(self, text: str, style: str) -> None:
        if self._screen.json_output or self._screen.quiet:
            return
        from rich.text import Text  # noqa: PLC0415 - rich is an extra

        lines = textwrap.wrap(text, self._screen.out.width, subsequent_indent="   ")
        self._screen.result(Text("\n".join(lines), style=style))

    def _send(self, count: int, rate: float, partition_of: Callable[[int], int] = lambda n: n % PARTITIONS) -> None:
        """Send so many, ``rate`` a second, the n-th (from 0) to its partition. Ends early if the run has to end."""
        started = time.monotonic()
        for number, record in enumerate(itertools.islice(self._records, count)):
            while (early := started + number / rate - time.monotonic()) > 0:
                self._experiment.serve(min(early, _SLICE))
            record.step = len(self._done) + 1
            if not self._experiment.send(record, partition_of(number)):
                return

    def _requests(self) -> list[JournalEntry]:
        """The Produce requests to the brokers since the step began."""
        return self._cluster.journal("Produce")[self._seen :]

    def _sample(self) -> None:
        """Look a few times a second which records wait because of a throttle time."""
        if (now := time.monotonic()) < self._next_sample:
            return
        self._next_sample = now + _SAMPLE_EVERY
        held = {
            row.partition: row.held
            for row in self._experiment.producer.snapshot().partitions
            if row.topic == self._experiment.topic and row.reason in (HoldReason.THROTTLED, HoldReason.PROBING)
        }
        if any(held.values()):
            self._waiting[now] = held


# --- whether a step happened: pure -----------------------------------------------------------------------------------


def of_flow(entries: Sequence[JournalEntry], brokers: Collection[int]) -> Proof:
    """Each broker acknowledged records."""
    taken = [entry for entry in entries if entry.outcome == "answered" and any(not b.error_code for b in entry.batches)]
    served = sorted({entry.broker for entry in taken})
    sentence = f"{len(taken):,} requests acknowledged, by brokers {_listed(served)}."
    return Proof(served == sorted(brokers), sentence, {"requests": len(taken), "brokers": served})


def of_move(
    entries: Sequence[JournalEntry], partition: int, old: int, new: int, moved_at: float, epochs: tuple[int, int]
) -> Proof:
    """The old leader took the partition's records before the move, the new one after it. ``moved_at``: Unix time."""
    mine = [(entry, batch.error_code) for entry in entries for batch in entry.batches if batch.partition == partition]
    before = any(entry.broker == old and not error for entry, error in mine)
    after = min((entry.time for entry, error in mine if entry.broker == new and not error), default=None)
    refused = sum(entry.broker == old and error == _NOT_LEADER for entry, error in mine)
    gap = None if after is None else round((after - moved_at) * 1000, 1)
    sentence = f"Broker {new} was given none of its records."
    if gap is not None:
        sentence = (
            f"Leader epoch {epochs[0]} became {epochs[1]}; broker {old} refused {refused} request(s), and after "
            f"{gap:.0f} ms broker {new} took over."
        )
    facts = {"partition": partition, "from": old, "to": new, "epochs": [*epochs], "refused": refused, "gap_ms": gap}
    return Proof(before and after is not None and epochs[1] > epochs[0], sentence, facts)


def of_throttle(
    entries: Sequence[JournalEntry],
    broker: int,
    led: Collection[int],
    waiting: Mapping[float, Mapping[int, int]],
    records: Sequence[Record],
) -> Proof:
    """One broker told the client to wait, its partitions (``led``) waited as long, and the others went on.

    The last wait that was told may be longer than there were records to send, so nobody has to have waited for it.
    """
    told = [(entry.broker, entry.throttled_ms) for entry in entries if entry.throttled_ms]
    longest = max((milliseconds for _, milliseconds in told[:-1]), default=0) / 1000
    held = {partition for rows in waiting.values() for partition, count in rows.items() if count}
    most = max((sum(rows.values()) for rows in waiting.values()), default=0)
    others = [record for record in records if record.partition not in led]
    meanwhile = sum(min(waiting) <= record.reported_at <= max(waiting) for record in others) if waiting else 0
    slowest, fast = _slowest(record for record in records if record.partition in led), _slowest(others)
    alone = {who for who, _ in told} == {broker} and longest > 0
    sentence = f"Broker {broker} asked {len(told)} times to wait, and records of {len(held)} partitions waited for it."
    if told and held:
        sentence = (
            f"Broker {broker} asked {len(told)} times to wait, {longest:.1f} s at most; up to {most:,} records of "
            f"partition{'s' if len(led) > 1 else ''} {_listed(led)} waited in this process, {slowest:.1f} s at most. "
            f"Meanwhile the other partitions had {meanwhile:,} acknowledged, in {fast * 1000:.0f} ms at most."
        )
    facts = {
        "broker": broker,
        "partitions": sorted(led),
        "throttled_answers": len(told),
        "brokers_that_throttled": sorted({who for who, _ in told}),
        "longest_throttle_ms": round(longest * 1000),
        "partitions_held": sorted(held),
        "most_records_held": most,
        "slowest_ms": round(slowest * 1000, 1),
        "slowest_of_others_ms": round(fast * 1000, 1),
        "acknowledged_by_others": meanwhile,
    }
    shown = alone and bool(held) and held <= set(led) and meanwhile > 0 and slowest > fast and slowest >= longest
    return Proof(shown, sentence, facts)


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
    """The announced window was found and used, and each key is in the log in order, once. Pure."""
    exact, delivered, in_log = flawless(total), total["delivered"], total["in_log"]
    failed = total["accepted"] + total["refused"] - delivered
    facts = {
        "window": window,
        "lanes": lanes,
        "records": delivered,
        "records_per_second": round(delivered / seconds),
        "in_log": in_log,
        "out_of_order": total["reordered"],
    }
    sentence = (
        f"{why[:1].upper()}{why[1:]}: {lanes} lanes carried {delivered / seconds:,.0f} records a second over a "
        f"round trip of {_ROUND_TRIP * 1000:.0f} ms; {in_log:,} read back, "
        + ("each key in order." if exact else f"{total['reordered']} out of order, {failed} failed.")
    )
    return Proof(exact and window == _WINDOW and MINIMUM < lanes <= _WINDOW, sentence, facts)


def _slowest(records: Iterable[Record]) -> float:
    return max((record.reported_at - record.accepted_at for record in records), default=0.0)


def _identity(batch: JournalBatch) -> tuple[str, int, int, int, int]:
    return batch.topic, batch.partition, batch.producer_id, batch.epoch, batch.first_sequence


def _listed(numbers: Collection[int]) -> str:
    *most, last = [str(number) for number in sorted(numbers)] or ["none"]
    return f"{', '.join(most)} and {last}" if most else last
