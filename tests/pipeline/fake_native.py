"""A native client that needs no network: as much of librdkafka as the buffered path relies upon.

What it keeps of librdkafka 2.16 and of the C client: one batch of a partition in flight, and five requests of a
connection, for which partitions wait in turn; a batch leaves when it has
`batch.num.messages` records, when its first is older than `linger.ms`, or during a flush() that lasts; a request that
is not answered in `socket.timeout.ms` is sent again after a back-off with the same numbers; throttle events are served
before the reports of the same answer; a purge() of what is on its way, an expiry of its own, and a batch that a broker
refuses because a purge() of what waited left a gap before it raise the epoch, after which what waits for a retry goes
out under a new sequence; poll() stops at a callback that raises, flush() goes on and raises at the end; what waited
for a topic to be known is in its partitions before any of it is sent.

Not kept: that a refused batch raises the epoch, too. With answers of other partitions lost at the same time that writes
twice, and nothing above librdkafka can prevent it.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from confluent_kafka.cimpl import KafkaError, KafkaException, Message

from safeproducer.kafka.native import ThrottleEvent
from safeproducer.policy.partitioner import ANY, partitioner
from tests.pipeline.cluster import ScriptedCluster, TopicPartition

CONNECT = 0.02
"""Seconds until a new client knows the cluster and has a producer ID."""
_EXPIRY_SCAN = 1.0
_ASKS_AGAIN = 0.1
"""Seconds between two questions for a topic that is not there."""
_CREATE_TIME = 1
SPINNING = 20_000
SPLITS_FROM = 0.2
"""Seconds from which, and without a limit, the C client runs signal handlers in the middle of poll() and flush(). When
one of them calls poll(), the next callback of the call that it interrupted aborts the process.
"""


class SpinError(AssertionError):
    """Somebody asks again and again without waiting."""


@dataclass
class NativeMessage:
    topic: str
    value: Any
    key: Any
    report: Callable[..., None]
    timestamp: int
    enqueued: float
    named: int = -1
    """The partition that the caller named."""
    number: int = 0

    @property
    def bytes(self) -> int:
        return len(self.value or b"") + len(self.key or b"")


@dataclass
class Attempt:
    batch: Batch
    producer_id: int
    epoch: int
    sequence: int
    over: bool = False
    node: int | None = None
    """Whose connection it takes up, until its answer or its time-out."""

    @property
    def tp(self) -> TopicPartition:
        return self.batch.toppar.tp

    @property
    def messages(self) -> list[NativeMessage]:
        return self.batch.messages

    @property
    def last_sequence(self) -> int:
        return self.sequence + len(self.messages) - 1

    def answered(self, code: int, throttle: float) -> None:
        self.batch.native.answered(self, code, throttle)


@dataclass
class Batch:
    native: FakeNative
    toppar: Toppar
    messages: list[NativeMessage]
    attempt: Attempt | None = None


class Toppar:
    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.queue: deque[NativeMessage] = deque()
        self.batch: Batch | None = None
        self.accepted = 0
        self.uncounted = 0
        self.acknowledged = 0
        self.sent = self.sent_bytes = 0
        self.epoch, self.base = 0, 1
        """The first record of an epoch has sequence number 0."""

    @property
    def in_request(self) -> int:
        """Records of a request that is under way: one that waits for another try is in none."""
        return 0 if self.batch is None or self.batch.attempt is None else len(self.batch.messages)


class FakeNative:
    """See the module. `lane` is whatever the test calls it; `on_produce` sees every record before it is taken."""

    def __init__(self, config: dict[str, Any], cluster: ScriptedCluster, observer: Any) -> None:
        self.cluster = cluster
        self.time = cluster.time
        self.observer = observer
        self._error_cb, self._throttle_cb = config["error_cb"], config["throttle_cb"]
        self._stats_cb = config["stats_cb"]
        self.linger = config.get("linger.ms", 5) / 1000
        self.batch_records = config.get("batch.num.messages", 10_000)
        self.limit = config.get("queue.buffering.max.messages", 100_000)
        self.timeout = config.get("message.timeout.ms", 300_000) / 1000
        self.socket_timeout = config.get("socket.timeout.ms", 60_000) / 1000
        self.backoff = config.get("retry.backoff.ms", 100) / 1000
        self._partitioner = partitioner(config.get("partitioner", "consistent_random"))
        self.fed = config.get("enable.sparse.connections") is False
        self.producer_id = cluster.new_producer_id()
        self.epoch = 0
        self.expired_inside = 0
        self.produce_requests: dict[int, int] = dict.fromkeys(cluster.brokers, 0)
        self.sent_bytes: dict[int, int] = dict.fromkeys(cluster.brokers, 0)
        self._most_in_flight = min(5, config.get("max.in.flight.requests.per.connection", 5))
        self._in_flight: Counter[int] = Counter()
        self._received: Counter[int] = Counter()
        self._turns: dict[int, deque[Toppar]] = defaultdict(deque)
        """Broker -> partitions whose next request waits for its connection, and during a flush() goes first."""
        self._round_trips: dict[int, float] = {}
        self._toppars: dict[TopicPartition, Toppar] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._epochs: dict[TopicPartition, int] = {}
        self._metadata: dict[str, float] = {}
        """Topic -> when it heard of it last."""
        self._asks: set[str] = set()
        self._urgent: deque[Callable[[], None]] = deque()
        self._events: deque[tuple[bool, Callable[[], None]]] = deque()
        """(whether it is the report of a record, what runs it)."""
        self._inside = self._inside_bytes = 0
        self._flushing = 0
        self._misses = 0
        self._fatal: KafkaError | None = None
        self._drains = False
        """Nothing is sent before all answers are there: a new epoch begins then."""
        self.closed = False
        self._calls: deque[float] = deque(maxlen=SPINNING)
        self._interval = config.get("statistics.interval.ms", 0) / 1000
        if self._interval:
            self.time.after(self._interval, self._tick)
        self._scanned_at = self.time.now
        self._scanning = False
        if (log := config.get("logger")) is not None and "eos" in config.get("debug", ""):
            acquired = ("GETPID", "rdkafka", f"Acquired PID{{Id:{self.producer_id},Epoch:0}}")
            self.time.after(CONNECT, lambda: self._urgent.append(lambda: log.log(10, "%s [%s] %s", *acquired)))

    # --- the C client's surface ---------------------------------------------------------------------------------------

    def produce(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int = -1,
        report: Any = None,
        _: Any = None,
        timestamp: int = 0,
        headers: Any = None,
    ) -> None:
        self.time.catch_up()
        if self._fatal is not None:
            raise KafkaException(KafkaError(KafkaError._FATAL))
        if self.limit and self._inside >= self.limit:
            raise BufferError("Local: Queue full")
        known = self.cluster.topic(topic) if topic in self._metadata else None
        if known is not None and partition not in (-1, *known):
            code = KafkaError._UNKNOWN_PARTITION if known else KafkaError._UNKNOWN_TOPIC
            raise KafkaException(KafkaError(code))
        self.observer.handed_over(self, topic, partition, value)
        message = NativeMessage(topic, value, key, report, timestamp, self.time.now, partition)
        self._inside += 1
        self._inside_bytes += message.bytes
        self._scan_later()
        if known is None:
            partition = -1  # whatever it is: librdkafka keeps a new topic's records in one queue
        elif partition < 0 and known:
            partition = self._choose(message)
        self._enqueue(message, (topic, partition))
        if known is None and topic not in self._asks:
            self._asks.add(topic)
            until = self.time.now + self.cluster.propagation
            self.time.after(CONNECT, lambda: self._connected(topic, until))

    def produce_batch(self, topic: str, messages: list[dict[str, Any]], partition: int, report: Any) -> int:
        """As rd_kafka_produce_batch(): what goes to a named partition is left out of the count of accepted records.

        In a new topic it is left out of what waits without a partition, and counted when it gets its own.
        """
        for taken, message in enumerate(messages):
            known = topic in self._metadata
            try:
                self.produce(topic, message["value"], message.get("key"), partition, report)
            except BufferError:
                return taken
            if partition >= 0:
                self._toppar((topic, partition if known else -1)).uncounted += 1
        return len(messages)

    def poll(self, timeout: float = -1.0) -> int:
        self._count_call()
        assert 0 <= timeout < SPLITS_FROM
        served = self._serve(raise_at_once=True)
        end = self.time.now + timeout
        while not served and self.time.step(end):
            served = self._serve(raise_at_once=True)
        return served or self._serve(raise_at_once=True)

    def flush(self, timeout: float = -1.0) -> int:
        self._count_call()
        assert 0 <= timeout < SPLITS_FROM
        end = self.time.now + timeout
        self._flushing += 1
        errors: list[BaseException] = []
        try:
            if timeout > 0 and self._misses:
                self._misses -= 1
            elif timeout != 0:
                waits = [toppar for turns in self._turns.values() for toppar in turns]
                for toppar in (*waits, *self._toppars.values()):
                    self._send(toppar)
            while True:
                self._serve(raise_at_once=False, errors=errors)
                if not self._inside or not self.time.step(end):
                    break
            self._serve(raise_at_once=False, errors=errors)
        finally:
            self._flushing -= 1
        if errors:
            raise errors[-1]
        return len(self)

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        self.time.catch_up()
        for toppar in tuple(self._toppars.values()):
            if in_queue:  # first, as rd_kafka_purge() does with what the broker's thread has not taken over
                queued, toppar.queue = list(toppar.queue), deque()
                self._fail(toppar, queued, KafkaError._PURGE_QUEUE)
            batch = toppar.batch
            if batch is not None and (in_flight if batch.attempt is not None else in_queue):
                code = KafkaError._PURGE_INFLIGHT if batch.attempt is not None else KafkaError._PURGE_QUEUE
                if batch.attempt is not None:
                    batch.attempt.over = True
                    self._drains = True
                toppar.batch = None
                self._fail(toppar, batch.messages, code)
        self._bump()

    def cluster_id(self, timeout: float) -> str:
        return "virtual"

    def list_topics(self, topic: str, timeout: float) -> None:
        """Asked without waiting, so nothing is heard; the producer ID comes by itself."""
        assert timeout == 0
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def __len__(self) -> int:
        return self._inside + len(self._urgent) + sum(not is_report for is_report, _ in self._events)

    def close(self) -> None:
        self.closed = True

    # --- what tests do to it ---------------------------------------------------------------------

    def miss_kicks(self, count: int) -> None:
        """The broker's thread is busy: the next flushes that last do not release anything."""
        self._misses = count

    def queue_events(self, count: int) -> None:
        """Statistics, say, that nobody has served."""
        self._events.extend([(False, lambda: None)] * count)

    def fail_fatally(self, in_flight: bool = True, tell: bool = True, reason: str = "planted") -> None:
        """The next poll() raises (`tell`), no record is taken or sent any more, and what is inside fails."""
        self._fatal = KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, reason, fatal=True)

        def raise_it() -> None:
            raise KafkaException(self._fatal)

        if tell:
            self._urgent.append(raise_it)
        self.purge(in_flight=in_flight)

    @property
    def failed(self) -> bool:
        return self._fatal is not None

    def batches(self, tp: TopicPartition) -> int:
        """How many of this partition it has that are not reported: one on its way, and what waits behind it."""
        return (self._toppar(tp).batch is not None) + (not self.begins(tp))

    def begins(self, tp: TopicPartition) -> bool:
        """Whether the next record for this partition would be the first of a batch."""
        unplaced = self._toppar((tp[0], -1)).queue
        return not (self._toppar(tp).queue or any(message.named == tp[1] for message in unplaced))

    # --- inside ---------------------------------------------------------------------

    def _count_call(self) -> None:
        self.time.catch_up()
        calls = self._calls
        calls.append(self.time.monotonic())
        if len(calls) == calls.maxlen and calls[-1] - calls[0] < 1.0:
            raise SpinError(f"{len(calls)} calls within {calls[-1] - calls[0]:.4f} s")

    def _serve(self, raise_at_once: bool, errors: list[BaseException] | None = None) -> int:
        served = 0
        while self._urgent or self._events:
            event = self._urgent.popleft() if self._urgent else self._events.popleft()[1]
            served += 1
            try:
                event()
            except BaseException as error:
                if raise_at_once or errors is None:
                    raise
                errors.append(error)
        return served

    def _choose(self, message: NativeMessage) -> int:
        count = len(self.cluster.topic(message.topic))
        chosen = self._partitioner(message.key, count)
        return chosen if chosen != ANY else 0

    def _toppar(self, tp: TopicPartition) -> Toppar:
        if (found := self._toppars.get(tp)) is None:
            found = self._toppars[tp] = Toppar(tp)
        return found

    def _append(self, message: NativeMessage, tp: TopicPartition) -> Toppar:
        toppar = self._toppar(tp)
        toppar.accepted += 1
        message.number = toppar.accepted
        toppar.queue.append(message)
        return toppar

    def _enqueue(self, message: NativeMessage, tp: TopicPartition) -> None:
        toppar = self._append(message, tp)
        if tp[1] >= 0:
            self._look(toppar)
            if len(toppar.queue) == 1:
                self.time.after(self.linger, lambda: self._look(toppar))

    def _look_now_and_later(self, toppar: Toppar) -> None:
        self._look(toppar)
        if toppar.queue:
            self.time.after(self.linger, lambda: self._look(toppar))

    def hears_of(self, topic: str) -> None:
        """It was told who leads the partitions of this topic."""
        if topic in self._metadata:
            self._learn(topic)

    def _learn(self, topic: str) -> None:
        self._metadata[topic] = self.time.now
        for number, leader in self.cluster.topic(topic).items():
            self._leaders[topic, number] = leader
            self._epochs[topic, number] = self.cluster.leader_epochs[topic, number]

    def _connected(self, topic: str, until: float) -> None:
        if topic in self._metadata:
            return
        if self.time.now < until and not self.cluster.topic(topic):
            self.time.after(_ASKS_AGAIN, lambda: self._connected(topic, until))
            return
        self._learn(topic)
        known = self.cluster.topic(topic)
        for tp, toppar in tuple(self._toppars.items()):
            if tp[0] != topic or tp[1] in known:
                continue
            waiting, toppar.queue = list(toppar.queue), deque()
            if known and tp[1] < 0:
                for message in waiting:
                    self._append(message, (topic, message.named if message.named >= 0 else self._choose(message)))
            else:
                self._fail(toppar, waiting, KafkaError._UNKNOWN_PARTITION if known else KafkaError._UNKNOWN_TOPIC)
        # Not sooner: what waited for its topic leaves as one batch, also during a flush(). Real broker threads do not
        # take the first record alone either (tests/lanes/test_batch_to_a_new_topic.py).
        for number in known:
            self._look_now_and_later(self._toppar((topic, number)))

    def _look(self, toppar: Toppar) -> None:
        queue = toppar.queue
        if queue and (
            self._flushing
            or len(queue) >= self.batch_records
            or queue[0].enqueued + self.linger <= self.time.now + 1e-9
        ):
            self._send(toppar)

    def _send(self, toppar: Toppar) -> None:
        if toppar.batch is not None or not toppar.queue or toppar.tp not in self._leaders or self._fatal is not None:
            return
        if self._drains or self._waits_for_turn(toppar):
            return
        taken = [toppar.queue.popleft() for _ in range(min(len(toppar.queue), self.batch_records))]
        if toppar.queue:
            self.time.at(toppar.queue[0].enqueued + self.linger, lambda: self._look(toppar))
        toppar.batch = Batch(self, toppar, taken)
        self._transmit(toppar.batch)

    def _transmit(self, batch: Batch) -> None:
        if batch.toppar.batch is not batch or batch.attempt is not None or self._drains:  # purged, sent, or to wait
            return
        if self._fatal is not None or self._waits_for_turn(batch.toppar):
            return
        if batch.toppar.epoch != self.epoch:
            batch.toppar.epoch, batch.toppar.base = self.epoch, batch.messages[0].number
        sequence = batch.messages[0].number - batch.toppar.base
        node = self._leaders[batch.toppar.tp]
        attempt = batch.attempt = Attempt(batch, self.producer_id, self.epoch, sequence, node=node)
        self._in_flight[node] += 1
        batch.toppar.sent += len(batch.messages)
        batch.toppar.sent_bytes += (size := sum(message.bytes for message in batch.messages))
        self.sent_bytes[node] += size
        self.produce_requests[node] += 1
        sent_at = self.time.now

        def give_up() -> None:
            if not attempt.over and self.time.now - sent_at >= self.socket_timeout - 1e-9:
                self._retry(attempt)
            self._free(attempt)

        self.time.after(self.socket_timeout, give_up)
        self.cluster.send(node, attempt)
        self._round_trips[node] = self.cluster.brokers[node].round_trip

    def _waits_for_turn(self, toppar: Toppar) -> bool:
        """Whether the connection to its leader takes no more requests now; then it is asked again when one is over."""
        node = self._leaders[toppar.tp]
        turns, full = self._turns[node], self._in_flight[node] >= self._most_in_flight
        if full and toppar not in turns:
            turns.append(toppar)
        elif not full and toppar in turns:
            turns.remove(toppar)
        return full

    def _free(self, attempt: Attempt) -> None:
        """Its request is over: the connection takes another one."""
        if (node := attempt.node) is None:
            return
        attempt.node = None
        self._in_flight[node] -= 1
        for toppar in tuple(self._turns[node]):
            if toppar.batch is not None:
                self._transmit(toppar.batch)
            else:
                self._look(toppar)

    def _retry(self, attempt: Attempt) -> None:
        attempt.over = True
        attempt.batch.attempt = None
        self.time.after(self.backoff, lambda: self._transmit(attempt.batch))
        self._bump()

    def _bump(self) -> None:
        """Begin a new epoch, if one is to begin and nothing is under way; what waits for a retry goes in it."""
        if not self._drains or any(one.batch and one.batch.attempt for one in self._toppars.values()):
            return
        self._drains = False
        self.epoch += 1
        for toppar in tuple(self._toppars.values()):
            if toppar.batch is not None:
                self._transmit(toppar.batch)
            else:
                self._look(toppar)

    def answered(self, attempt: Attempt, code: int, throttle: float) -> None:
        self._received[self._leaders[attempt.tp]] += 1
        self._take_answer(attempt, code, throttle)
        self._free(attempt)

    def _take_answer(self, attempt: Attempt, code: int, throttle: float) -> None:
        if throttle > 0:
            node = self._leaders[attempt.tp]
            self._urgent.append(lambda: self._throttled(node, throttle))
        if attempt.over:
            return
        toppar = attempt.batch.toppar
        if code == KafkaError.NOT_LEADER_FOR_PARTITION:
            self._learn(attempt.tp[0])
            self._retry(attempt)
            return
        if code == KafkaError.NOT_ENOUGH_REPLICAS:
            self._retry(attempt)
            return
        if code == KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER:
            assert attempt.messages[0].number > toppar.acknowledged + 1, "librdkafka would fail for good"
            self._drains = True
            self._retry(attempt)
            return
        attempt.over = True
        toppar.batch = None
        if code:
            if attempt.epoch == toppar.epoch:  # what follows leaves no gap
                toppar.base = attempt.messages[-1].number + 1 - self.cluster.expected(attempt)
            self._fail(toppar, attempt.messages, code)
        else:
            toppar.acknowledged = attempt.messages[-1].number
            for message in attempt.messages:
                self._report(toppar, message, None)
        self._look(toppar)
        self._bump()

    def _throttled(self, node: int, seconds: float) -> None:
        self.observer.throttled(node, self.time.now + seconds)
        self._throttle_cb(ThrottleEvent(f"broker-{node}", node, seconds))

    def _fail(self, toppar: Toppar, messages: list[NativeMessage], code: int) -> None:
        for message in messages:
            self._report(toppar, message, KafkaError(code))

    def _report(self, toppar: Toppar, message: NativeMessage, error: KafkaError | None) -> None:
        def run() -> None:
            tp: dict[str, Any] = {} if toppar.tp[1] < 0 else {"partition": toppar.tp[1]}
            if error is None:
                tp["offset"] = message.number
                self.observer.acknowledged(message.value, toppar.tp[1])
            report = Message(
                topic=message.topic,
                **tp,
                value=message.value,
                key=message.key,
                error=error,
                timestamp=(_CREATE_TIME, message.timestamp or int(self.time.time() * 1000)),
                latency=self.time.now - message.enqueued,
            )
            try:
                message.report(error, report)
            finally:
                self._inside -= 1
                self._inside_bytes -= message.bytes

        self._events.append((True, run))

    def _scan_later(self) -> None:
        """At the next whole second of its life, while anything is inside: to look at nothing takes the test's time."""
        if not self._scanning:
            self._scanning = True
            since = (self.time.now - self._scanned_at) % _EXPIRY_SCAN
            self.time.after(_EXPIRY_SCAN - since, self._scan)

    def _scan(self) -> None:
        """librdkafka's own delivery deadline, which this library must never let happen: it starts a new epoch for
        everything."""
        self._scanning, self._scanned_at = False, self.time.now
        if self.closed:
            return
        for toppar in tuple(self._toppars.values()):
            late: list[NativeMessage] = []
            batch = toppar.batch
            while self.timeout and toppar.queue and toppar.queue[0].enqueued + self.timeout <= self.time.now:
                late.append(toppar.queue.popleft())
            if late:
                self._expire(toppar, late)
            if self.timeout and batch is not None and batch.messages[0].enqueued + self.timeout <= self.time.now:
                if batch.attempt is not None:
                    batch.attempt.over = True
                toppar.batch = None
                self._expire(toppar, batch.messages)
                self._look(toppar)
        if self._inside:
            self._scan_later()

    def _expire(self, toppar: Toppar, messages: list[NativeMessage]) -> None:
        self.expired_inside += len(messages)
        self._drains = True
        self._bump()
        self._fail(toppar, messages, KafkaError._MSG_TIMED_OUT)

    def _tick(self) -> None:
        if self.closed:
            return
        text = self.statistics()
        told = [
            (tp, self._leaders.get(tp, -1), self._epochs.get(tp, -1)) for tp in self._toppars if tp[0] in self._metadata
        ]
        self._events.append((False, lambda: self._tell(text, told)))
        self.time.after(self._interval, self._tick)

    def _tell(self, text: str, told: list[tuple[TopicPartition, int, int]]) -> None:
        for each in told:
            self.observer.told_of_leader(*each)
        self._stats_cb(text)

    def statistics(self) -> str:
        """The document that stats_cb gets, as far as it is read."""
        topics: dict[str, Any] = {}
        for topic in self._metadata:
            for number, _ in self.cluster.topic(topic).items():
                self._toppar((topic, number))
        for (topic, number), toppar in self._toppars.items():
            if number >= 0 and topic not in self._metadata:
                continue
            leader = self._leaders.get((topic, number), -1)
            age = int(1000 * (self.time.now - self._metadata.get(topic, self.time.now)))
            topics.setdefault(topic, {"metadata_age": age, "partitions": {}})["partitions"][str(number)] = {
                "partition": number,
                "leader": leader,
                "leader_epoch": self._epochs.get((topic, number), -1),
                "msgs_inflight": toppar.in_request,
                "msgq_cnt": len(toppar.queue),
                "txmsgs": toppar.sent,
                "msgs": toppar.accepted - toppar.uncounted,
                "acked_msgid": toppar.acknowledged,
                "txbytes": toppar.sent_bytes,
            }
        round_trips, self._round_trips = self._round_trips, {}
        brokers = {
            f"b{node}": {
                "nodeid": node,
                "name": f"b{node}",
                "state": "UP",
                "waitresp_cnt": 0,
                "rx": self._received[node],
                "tx": 0,
                "txbytes": self.sent_bytes[node],
                "req": {"Produce": self.produce_requests[node]},
                "txretries": 0,
                "req_timeouts": 0,
                "rtt": {"cnt": int(node in round_trips), "min": int(round_trips.get(node, 0) * 1e6), "p50": 0},
                "throttle": {"cnt": 0, "max": 0},
            }
            for node in self.produce_requests
        }
        return json.dumps(
            {
                "ts": int(self.time.now * 1e6),
                "msg_cnt": self._inside,
                "msg_size": self._inside_bytes,
                "eos": {"producer_id": self.producer_id, "producer_epoch": self.epoch},
                "brokers": brokers,
                "topics": topics,
            }
        )
