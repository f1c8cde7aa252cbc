"""The producers of this Python worker are made in a task, kept for the next ones, and dropped after an error.

In an importable module, because Spark unpickles what it runs for every task anew: only a module's globals live as long
as the process.
"""

from __future__ import annotations

import os
import socket
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pkgutil import resolve_name
from typing import Any, NamedTuple

from safeproducer import FatalError, SafeProducer, SafeProducerError
from safeproducer.kafka.native import KafkaError, ThrottleEvent
from safeproducer.producer import engine_of
from safeproducer.runtime import clock
from safeproducer.settings.own_settings import MAX_BLOCK_MS
from safeproducer.spark import topic_limits
from safeproducer.spark.options import ON_WORKER, Options
from safeproducer.spark.row_check import TopicFacts, askable
from safeproducer.spark.security import VALUE, is_place, no_token

MOST_PRODUCERS = 4
"""In one process, idle ones included: each has threads, connections and a buffer."""
_LEAVES_WITHIN = 1.0
"""Seconds to close a producer of which nothing is left."""
_BATCH_SIZE = 1_000_000
"""Bytes of a batch, where batch.size is not set: librdkafka's default."""
_LOGIN = frozenset({"sasl.username", "sasl.password"})
Key = tuple[object, ...]


class Counts(NamedTuple):
    """Records, as snapshot() counts; `by_topic`: delivered ones. `ids_used`: producer IDs; `known_ids`: of them."""

    delivered: int
    interrupted: int
    unresolved: int
    ids_used: int
    known_ids: frozenset[int]
    by_topic: Counter[str]

    @classmethod
    def of(cls, producer: SafeProducer) -> Counts:
        """The counts of one producer, as in snapshot(), which also says what the records of each wait for."""
        engine = engine_of(producer)
        unresolved, interrupted = engine.counters.outstanding(engine.queued)
        by_topic: Counter[str] = Counter()
        for name, topic in engine.counters.topics.copy().items():
            rows = list(topic.partitions.values())
            by_topic[name] = sum([row.named.delivered + row.placed.delivered for row in rows])
        logs = {lane.log.producer_id for lane in engine.dispatcher.lanes if lane.log is not None}
        known = frozenset(one for one in engine.failures.identities | logs if one is not None)
        return cls(sum(by_topic.values()), interrupted, unresolved, engine.gate.taken, known, by_topic)

    def plus(self, other: Counts) -> Counts:
        """The counts of two producers together."""
        sums = (mine + its for mine, its in zip(self[:4], other[:4], strict=True))
        return Counts._make((*sums, self.known_ids | other.known_ids, self.by_topic + other.by_topic))


class Secrets(dict[str, Any]):
    """Setting -> value: text, and a function for tokens. Tracebacks that show locals show how many there are."""

    def __repr__(self) -> str:
        return f"<{len(self)} secret(s)>"


def key_of(options: Options) -> Key:
    """Which tasks may share a producer. The process is part of it: a forked child cannot use its parent's.

    A secret that was given as it is counts by its name alone: a new one goes to the producer that is there.
    """
    return (
        os.getpid(),
        options.topic,
        options.deadline,
        tuple(sorted(options.config.items())),
        tuple(sorted((name, place if is_place(place) else VALUE) for name, place in options.secrets.items())),
    )


class WorkerProducer:
    """One producer, and what its callbacks noted. One task uses it at a time.

    - `facts`: of the topics that were looked at. They may be outdated: see look_again().
    - `client_errors`, `throttled`, `all_down`, `login_refused` (first and last time, and words): since begin().
    - `outgrown`: a topic has more partitions than this producer was made for, or takes smaller batches.
    """

    def __init__(self, options: Options, names: Sequence[str], secrets: Secrets) -> None:
        self.key = key_of(options)
        self.used, self.idle_until = False, 0.0
        self.facts: dict[str, TopicFacts] = {}
        self.client_errors = 0
        self.throttled: dict[int, float] = {}
        self.all_down = self.outgrown = False
        self.login_refused: tuple[float, float, str] | None = None
        self._earlier = Counts(0, 0, 0, 0, frozenset(), Counter())
        self._secrets = secrets
        config: dict[str, Any] = dict(options.config)
        config["batch.size"] = int(config.get("batch.size", _BATCH_SIZE))
        config[MAX_BLOCK_MS] = 0  # the task waits for room by itself, and knows for how long
        if problem := no_token(secrets):
            raise topic_limits.TaskEndedError("ConfigurationError", problem)
        self._config = config
        self._limits: dict[str, TopicFacts] = {}
        self._read_limits(askable(names))
        self._cut_to_limits(names)
        self.message_max = int(config["message.max.bytes"])
        self.kafka = self._made()

    def _made(self) -> SafeProducer:
        # Of a refused configuration only the message goes on, not the frames that know it.
        try:
            return SafeProducer(
                {**self._config, **self._secrets, "delivery.report.only.error": True},
                error_cb=self._on_error,
                throttle_cb=self._on_throttle,
            )
        except SafeProducerError as error:
            refusal = topic_limits.TaskEndedError(type(error).__name__, f"cannot make a producer: {error}")
        raise refusal

    def begin(self) -> None:
        self.kafka.poll(0)  # errors of earlier tasks, as of a login that has changed since
        self.client_errors, self.all_down, self.login_refused = 0, False, None
        self.throttled.clear()

    def counts(self) -> Counts:
        """Since it was made, over all the producers that it had."""
        return self._earlier.plus(Counts.of(self.kafka))

    def renew_outgrown(self, settle: Callable[[], object]) -> None:
        """Go on with another producer when a topic has got partitions, after `settle()`, which waits for all reports.

        A native producer that has not heard of a new partition would refuse its rows. It goes on with another one, too,
        when a topic takes no batches of the present size: they would be rejected, and sent again behind later rows.
        """
        if self.outgrown:
            if "transactional.id" in self._config:  # another one would end the transaction
                problem = "a topic has got partitions or a smaller limit while its rows were written"
                raise topic_limits.TaskEndedError("OUTGROWN", problem)
            settle()
            self.renew()

    def renew(self) -> None:
        """Go on with another producer. No record may be on its way. Raises TaskEndedError."""
        self.outgrown = False
        made = self._made()
        self._earlier = self.counts()
        self.end(_LEAVES_WITHIN)
        self.kafka = made

    def know(self, names: Sequence[str]) -> dict[str, TopicFacts]:
        """The facts of these topics, whose names are askable(). Raises TaskEndedError for brokers that are silent.

        It does not ask again for facts of an earlier task.
        """
        if missing := [name for name in names if name not in self.facts]:
            self._learn(missing, topic_limits.APPEARS_WITHIN)
        return {name: self.facts[name] for name in names}

    def know_one(self, name: str, again: bool = False) -> TopicFacts:
        """The facts of a topic that has to be there: else it raises TaskEndedError. `again`: as look_again()."""
        found = (self.look_again if again else self.know)([name])[name]
        if found.absent is not None:
            raise topic_limits.not_usable(self.kafka, name, found.absent)
        return found

    def look_again(self, names: Sequence[str]) -> dict[str, TopicFacts]:
        """The facts of these topics, asked anew: limits and partitions may have been changed since.

        A topic that was not there is not waited for again.
        """
        before = {name: self.facts[name] for name in names if name in self.facts}
        self._limits = {name: limit for name, limit in self._limits.items() if name not in names}
        is_absent = any(one.absent is not None for one in before.values())
        self._learn(names, 0.0 if is_absent else topic_limits.APPEARS_WITHIN)
        self.outgrown |= any(0 < one.partitions < self.facts[name].partitions for name, one in before.items())
        return {name: self.facts[name] for name in names}

    def _learn(self, names: Sequence[str], appears_within: float) -> None:
        counts, absent = topic_limits.partition_counts(
            self.kafka, names, appears_within=appears_within, answer_within=topic_limits.ANSWER_WITHIN
        )
        self._read_limits([name for name in counts if name not in self._limits])
        self.outgrown |= self._cut_to_limits(names)
        compressed = self._config.get("compression.type", "none") != "none"
        self.facts |= topic_limits.facts(counts, self._limits, compressed)
        self.facts |= {name: TopicFacts(0, absent=error) for name, error in absent.items()}

    def _read_limits(self, names: Sequence[str]) -> None:
        if names:
            self._limits |= topic_limits.read_limits({**self._config, **self._secrets}, names)

    def _cut_to_limits(self, names: Sequence[str]) -> bool:
        """Have the next producer make batches that these topics take; whether they are smaller than before."""
        before = self._config["batch.size"]
        limits = (self._limits[name].max_bytes for name in names if name in self._limits)
        self._config["batch.size"] = size = min([before, *(limit for limit in limits if limit is not None)])
        return bool(size < before)

    def renewed(self, secrets: Secrets) -> bool:
        """Use these from the next connection on; False when only a new producer can."""
        changed = {name for name in secrets if secrets[name] != self._secrets.get(name)}
        if not changed:
            return True
        if not changed <= _LOGIN:
            return False
        self._secrets = secrets
        login = {**self._config, **secrets}
        self.kafka.set_sasl_credentials(login["sasl.username"], login["sasl.password"])
        return True

    def end(self, timeout: float = 0.0) -> None:
        """Close it. Records that are left get their reports now."""
        with suppress(FatalError):  # raised once it is closed; the reports tell the same
            self.kafka.close(timeout)

    def _on_error(self, error: KafkaError) -> None:
        self.client_errors += 1
        if error.code() == KafkaError._AUTHENTICATION:
            now = clock.monotonic()
            self.login_refused = (self.login_refused or (now,))[0], now, error.str()
        self.all_down |= error.code() == KafkaError._ALL_BROKERS_DOWN

    def _on_throttle(self, event: ThrottleEvent) -> None:
        self.throttled[event.broker_id] = self.throttled.get(event.broker_id, 0.0) + event.throttle_time


class WorkerProducers:
    """The producers that no task uses at the moment; one that a task uses belongs to the task alone.

    Tasks run on one thread; another one closes what was idle for long. Whoever takes a producer out of `_idle` owns it.
    """

    def __init__(self) -> None:
        self._idle: dict[Key, WorkerProducer] = {}
        self._timer: threading.Timer | None = None
        self._begun: set[tuple[int, str]] = set()

    def take(self, options: Options, names: Sequence[str]) -> WorkerProducer:
        """The producer for a task of these options whose first rows go to `names`, made if there is none.

        Secrets are read at their places each time. Raises TaskEndedError.
        """
        try:
            secrets = Secrets(options.resolve_secrets())
        except SafeProducerError as error:
            refusal = topic_limits.TaskEndedError(type(error).__name__, str(error))
        else:
            return self._with(options, names, secrets)
        raise refusal

    def _begin(self, options: Options) -> None:
        """Call what the options name, once in this process, before its first producer. Raises TaskEndedError."""
        name = options.on_worker
        if name is None or (os.getpid(), name) in self._begun:
            return
        try:
            resolve_name(name)()
        except Exception as error:
            problem = f"{ON_WORKER}={name} failed on {socket.gethostname()}: {error}"
            refusal = topic_limits.TaskEndedError(type(error).__name__, problem)
        else:
            self._begun.add((os.getpid(), name))
            return
        raise refusal

    def _with(self, options: Options, names: Sequence[str], secrets: Secrets) -> WorkerProducer:
        self._begin(options)
        found, fits = self._idle.pop(key_of(options), None), False
        if found is not None:
            try:
                fits = found.renewed(secrets)
            finally:
                if not fits:
                    found.end(_LEAVES_WITHIN)
        if found is None or not fits:
            here = self._here()
            for worker in here[: max(0, len(here) - MOST_PRODUCERS + 1)]:  # the one that was used longest ago goes
                self._end(worker)
            found = WorkerProducer(options, names, secrets)
        found.begin()
        return found

    def keep(self, worker: WorkerProducer, idle_ms: int) -> None:
        """A task ended without an error: keep its producer, until nobody has used it for `idle_ms`."""
        worker.used = True
        worker.idle_until = clock.monotonic() + idle_ms / 1000
        if (other := self._idle.pop(worker.key, None)) is not None:
            other.end(_LEAVES_WITHIN)
        self._idle[worker.key] = worker
        self._watch()

    def close_idle(self) -> None:
        """Close those that nobody has used for as long as they may be idle."""
        now = clock.monotonic()
        for worker in self._here():
            if now >= worker.idle_until:
                self._end(worker)
        self._watch()

    # The thread that closes idle producers and the task's thread meet here without a lock. A task may take the producer
    # between the look at it and this call, or keep another one under the same key. A producer that a task uses must not
    # be closed, and none may be forgotten open: whoever gets it out of the dict, in one step, is its owner.
    def _end(self, worker: WorkerProducer) -> None:
        """Unless a task has taken it meanwhile; it may have put another one in its place."""
        found = self._idle.pop(worker.key, None)
        if found is not None and found is not worker:
            found = found if self._idle.setdefault(worker.key, found) is not found else None
        if found is not None:
            found.end(_LEAVES_WITHIN)

    def _watch(self) -> None:
        """Look again when the first one may have been idle for long enough."""
        if self._timer is not None:
            self._timer.cancel()
        if here := self._here():
            left = min(worker.idle_until for worker in here) - clock.monotonic()
            self._timer = timer = threading.Timer(max(0.0, left), self.close_idle)
            timer.daemon = True
            with suppress(RuntimeError):  # no thread is to be had: the end of another task looks again
                timer.start()

    def _here(self) -> list[WorkerProducer]:
        """The producers of this process, the one that was used longest ago first."""
        return [worker for worker in list(self._idle.values()) if worker.key[0] == os.getpid()]


producers = WorkerProducers()
"""The producers of this process."""
