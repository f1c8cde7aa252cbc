"""Situations in which records wait or fail: how each begins and ends, and what a producer tells of it meanwhile."""

from __future__ import annotations

import contextlib
import logging
import operator
import re
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from safeproducer import Health, HoldReason, SafeProducer
from safeproducer.errors import FatalError
from tests.exported import BLAMES, Exported
from tests.producer_ids.test_producer_id_quota import use_up

LONG = 10.0
"""Seconds for which a situation that does not end by itself is looked at with --full."""
AGE_KNOWN = 1.0
"""Seconds: statistics tell of records twice a second, and when the first one came only since then."""
SOON = 15.0
"""Seconds for what is told within two of them on a machine that is not busy."""
MARKS = {
    "throttle": r"\bquota of|\bthrottles this client",
    "silent": r"acknowledges nothing",
    "refused": r"answers, with errors",
    "cut": r"the connection to broker|hung up|closed the connection|lost the connection",
    "unreachable": r"refuses the connection|cannot be reached",
    "name": r"is not known to this machine's name service",
    "tls": r"TLS",
    "password": r"user name or the password",
    "topic": r"is not there|describes its topic",
    "replicas": r"is not in the cluster",
    "poll": r"wait for poll\(\)",
    "linger": r"linger\.ms lets a batch gather|gathers a batch for another (?!0\.00)",  # each record does for 5 ms
    "far": r"the round trip is longer|so long a round trip",
    "window": r"as many of its batches are under way",
    "lanes": r"each has a batch of it under way|its new lane is ready",
    "ids": r"used up those of the hour",
    "id quota": r"a quota on producer IDs rejected|a quota rejected a batch",
    "callback": r"the callback ",
    "slow": r"takes [\d.]+ s for each answer",
    "away": r"no broker is connected|no broker has answered",
    "sasl": r"did not expect SASL",
    "login": r"your oauth_cb raised",
    "coordinator": r"nothing is sent until|transaction coordinator|gives this client a producer ID",
}
"""A word of each cause: where it is not the cause, it is not said."""


_numbers = count()


class Lines(logging.Handler):
    """What producers with this client.id log: (when, the sentence)."""

    def __init__(self) -> None:
        super().__init__()
        self.name, self.lines = f"scene-{next(_numbers)}", list[tuple[float, str]]()

    def emit(self, record: logging.LogRecord) -> None:
        name, _, sentence = record.getMessage().partition(": ")
        if name == self.name:
            self.lines.append((time.monotonic(), sentence))


@dataclass
class Scene:
    """One situation under way. `cluster`: None where no broker is there; `control` has FakeCluster's methods.

    `full`: look for LONG seconds. `sends`: records to partition 0 of "t" go on. `free`: lets callbacks return.
    """

    bootstrap: str
    control: Any = None
    config: dict[str, Any] = field(default_factory=dict)
    producers: list[SafeProducer] = field(default_factory=list)
    errors: list[Any] = field(default_factory=list)
    polls: bool = True
    sends: bool = False
    full: bool = False
    free: threading.Event = field(default_factory=threading.Event)
    log: Lines = field(default_factory=Lines)
    exported: Exported = field(default_factory=Exported)
    began: float = field(default_factory=time.monotonic)

    def make(self, **config: Any) -> SafeProducer:
        """A producer, which is closed with the scene."""
        common = {"bootstrap.servers": self.bootstrap, "log_level": 0, "client.id": self.log.name}
        common["reconnect.backoff.max.ms"] = 200
        self.producers.append(SafeProducer({**common, **self.config, **config}, hooks=self.exported.hooks))
        return self.producers[-1]

    def warm(self, **config: Any) -> SafeProducer:
        """One that has had acknowledgements for both partitions of "t", and knows who leads them."""
        producer = self.make(**config)
        for partition in (0, 1):
            producer.produce("t", b"warm", partition=partition)
        assert producer.flush(SOON) == 0
        return producer

    def send(self, topic: str = "t", partition: int = 0, **more: Any) -> None:
        """By the last producer."""
        self.producers[-1].produce(topic, partition=partition, on_delivery=self._report, **{"value": b"x", **more})

    def offer(self, *where: Any) -> bool:
        """Whether it was taken: that it is refused may be known at once."""
        with contextlib.suppress(KafkaException):
            self.send(*where)
            return True
        return False

    def _report(self, error: Any, _: Any) -> None:
        if error is not None:
            self.errors.append(error)

    def turn(self) -> None:
        if self.sends:
            self.offer()
        if self.polls:
            self.producers[-1].poll(0.05)
        else:
            time.sleep(0.05)

    def until(self, true: Callable[[], object], timeout: float = SOON) -> None:
        deadline = time.monotonic() + timeout
        while not true():
            assert time.monotonic() < deadline, (self.producers[-1].explain(), self.producers[-1].health(), self.errors)
            self.turn()

    def until_delivered(self) -> None:
        self.until(lambda: not self.producers[-1].snapshot().unresolved)

    def end(self) -> None:
        self.free.set()
        for producer in self.producers:
            with contextlib.suppress(FatalError):
                producer.close(0)


@dataclass(frozen=True)
class Case:
    """`says`: what explain() comes to say and goes on saying for `lasts` seconds; `marks`: what else it may name.

    - `code`: of a row of snapshot(). `health`: a code of health(unresolved_for=0), which is `ok` and `ready` or not.
    - `cure`: in explain() or a reason of health(); `never` is not in it.
    - `held`: what its span says that a record waited for in this process, and hold.time of its partition.
    - `before`: marks of what records waited for until then, which metrics and spans go on to tell.
    - `logs`: a line of the log says so, too.
    - `end`: ends it; the records are delivered then, or fail with `error`.
    """

    begin: Callable[[Scene], object]
    says: str
    marks: str = ""
    code: str | None = None
    health: str | None = None
    ok: bool = False
    ready: bool = True
    cure: str = ""
    never: str = "no such words"
    lasts: float = 2.0
    before: str = ""
    logs: str = ""
    end: Callable[[Scene], object] = lambda scene: None
    error: str | None = None
    over: str = "Nothing waits"
    brokers: int | None = 2
    fake: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    asked: tuple[str, int] | None = None
    held: str = ""

    @property
    def lost(self) -> bool:
        """Whether records end at their deadlines, and none gets through."""
        return "within message.timeout.ms" in (self.error or "")


def play(case: Case, scene: Scene) -> None:
    """Ask all the time, from its beginning to after its end."""
    logger = logging.getLogger("safeproducer")
    logger.addHandler(scene.log)
    try:
        scene.config.update(case.config)
        case.begin(scene)
        scene.exported.begin()
        begun_at = time.monotonic()
        producer = scene.producers[-1]
        _while_it_lasts(case, scene, producer)
        scene.sends = False
        case.end(scene)
        scene.polls = True
        scene.until(lambda: not producer.snapshot().unresolved, 30)
        over_at = time.monotonic()
        scene.until(lambda: "is not in the cluster" not in producer.explain())  # replicas are looked at each 5 s
        told, health = producer.explain(), producer.health(unresolved_for=0)
        assert told.startswith(case.over), told
        cause = _cause(told)
        allowed = case.marks.split(", ") if case.lost else []
        assert [mark for mark, words in MARKS.items() if mark not in allowed and re.search(words, cause)] == [], told
        assert {row.reason for row in producer.snapshot().partitions} <= {None}
        assert (health.ok, health.ready) == (not case.lost, case.ready), health
        codes = {reason.code for reason in health.reasons}
        assert codes - {case.health} == {
            code for code, told in (("expired", case.lost), ("no_broker", not case.ready)) if told
        }, health
        scene.until(lambda: not scene.exported.throttles())
        scene.exported.over(f"{case.marks}, {case.before}", case.code, case.held)
        if case.error is None:
            assert not scene.errors
        else:
            assert re.search(case.error, scene.errors[0].str()), scene.errors[0].str()
            assert case.ready or {error.outcome for error in scene.errors} == {"not_written"}
        _same_by_the_log(case, scene.log.lines, begun_at, over_at)
    finally:
        logger.removeHandler(scene.log)
        scene.end()


def _same_by_the_log(case: Case, lines: list[tuple[float, str]], begun_at: float, over_at: float) -> None:
    """Its lines name this cause, no other one, and not when it is over."""
    assert not case.logs or any(re.search(case.logs, line) for _, line in lines), lines
    for at, line in lines:
        allowed = case.marks.split(", ") if case.lost or at < over_at else []
        wrong = [mark for mark, words in MARKS.items() if mark not in allowed and re.search(words, line)]
        assert at < begun_at or not wrong, line


def _cause(told: str) -> str:
    return re.sub(r" \(127\.0\.0\.1:\d+\)", "", told).partition("Over by now")[0]


def _while_it_lasts(case: Case, scene: Scene, producer: SafeProducer) -> None:
    known: list[float] = []

    def told() -> bool:
        before, asked_at = producer.snapshot().unresolved, time.monotonic()
        text, health = producer.explain(*(case.asked or ())), producer.health(unresolved_for=0)
        ages = [one.since for one in health.reasons if one.code == case.health and one.since is not None]
        rows = producer.snapshot().partitions
        cause = _cause(text)
        allowed = [*case.marks.split(", "), *["poll"] * case.lost]
        wrong = [mark for mark, words in MARKS.items() if mark not in allowed and re.search(words, cause)]
        assert not wrong, (wrong, text)
        assert {BLAMES[row.reason] for row in rows if row.reason in BLAMES} <= {*allowed}, rows
        complete = _complete(case, cause, rows, health)
        scene.exported.agree(scene.producers, f"{case.marks}, {case.before}")
        if known and ((before and producer.snapshot().unresolved) or (case.lost and case.code is None)):
            assert complete, (text, health, rows)
        if complete and not known:
            known.append(time.monotonic())
        if known and case.lasts >= 2.0 and ages:
            assert asked_at - known[0] - AGE_KNOWN <= max(ages) <= time.monotonic() - scene.began, (known, health)
        old = not case.health or not lasts or ages or case.lost
        return bool(known and old) and time.monotonic() >= known[0] + lasts

    # With --full what does not end by itself is looked at for longer, and what failed meanwhile, too.
    stays = case.lasts == 2.0 and (case.end is not Case.end or (case.lost and case.code is None))
    lasts = LONG if scene.full and stays else case.lasts
    scene.until(told, SOON + lasts)


def _complete(case: Case, cause: str, rows: Any, health: Health) -> bool:
    codes = {row.reason.value for row in rows if row.reason}
    reasons = {reason.code for reason in health.reasons}
    cures = cause + " ".join(reason.cure or "" for reason in health.reasons)
    return (
        re.search(case.says, cause) is not None
        and (case.code is None or codes == {case.code})
        and (not case.health or case.health in reasons)
        and (health.ok, health.ready) == (case.ok, case.ready)
        and case.cure in cures
        and case.never not in cures
    )


def _once(
    act: Callable[[Any], object], warm: bool = True, polls: bool = True, sends: bool = False, **config: Any
) -> Callable[[Scene], None]:
    """`act` on a cluster that a producer knows, or is about to meet, and produce a record; `sends`: and more."""

    def begin(scene: Scene) -> None:
        (scene.warm if warm else scene.make)(**config)
        act(scene.control)
        scene.polls = polls
        scene.send()
        scene.sends = sends

    return begin


def _held(act: Callable[[Any], object]) -> Callable[[Scene], None]:
    """A batch is under way then, and a record waits behind it."""
    of_one = _once(act, **{"safeproducer.mode": "held", "linger.ms": 0})

    def begin(scene: Scene) -> None:
        of_one(scene)
        scene.until(lambda: not scene.producers[-1].snapshot().held)
        scene.send()

    return begin


def _fails(code: int, api: str = "Produce", warm: bool = True) -> Callable[[Scene], None]:
    """Brokers answer so from now on, or from the first batch on."""
    return _once(lambda control: control.fail_next(api, code, n=10**6), warm, sends=True)


def _throttled(scene: Scene) -> None:
    producer = scene.warm()
    scene.control.set_throttle(4_000, broker=1)
    scene.send()
    scene.until(lambda: producer.snapshot().throttled_brokers)
    scene.control.set_throttle(0, broker=1)
    scene.until_delivered()
    scene.send()


def _works_again(scene: Scene) -> None:
    scene.control.end_faults()
    scene.until(scene.offer)


def _advertised(scene: Scene) -> None:
    for broker in scene.control._state.brokers.values():
        broker.port = 1  # what it tells clients; it goes on listening where it does
    of_nobody()(scene)


def _deleted(scene: Scene) -> None:
    scene.control.create_topic("d")
    scene.warm()
    scene.send("d")
    scene.until_delivered()
    admin = AdminClient({"bootstrap.servers": scene.bootstrap})
    admin.delete_topics(["d"])["d"].result()
    scene.send("d")


def _blocks(scene: Scene) -> None:
    producer = scene.warm()
    scene.polls = False
    for _ in range(5):
        producer.produce("t", b"x", partition=0, on_delivery=lambda *_: scene.free.wait(60))
    threading.Thread(target=producer.flush, args=(60,)).start()


def _behind_another(scene: Scene) -> None:
    """librdkafka takes another epoch after a refusal, once broker 2 has answered what is under way."""
    producer = scene.warm()
    scene.control.pause(2)
    scene.send(partition=1)
    for _ in range(50):
        producer.poll(0.02)
    scene.control.fail_next("Produce", 10, topic="t", partition=0)
    scene.send()
    scene.until(lambda: scene.errors)
    scene.send()


_SASL = {"security.protocol": "SASL_PLAINTEXT"}


def _oauth(scene: Scene) -> None:
    tokens = list[float]()

    def token(_: str) -> tuple[str, float]:
        if tokens:
            raise RuntimeError("AccessDenied")
        tokens.append(time.time() + 1.5)
        return "eyJhbGciOiJub25lIn0.eyJzdWIiOiJ4In0.", tokens[0]

    of_nobody(**_SASL, **{"sasl.mechanism": "OAUTHBEARER", "oauth_cb": token})(scene)


def small_records(topic: str, limit: dict[str, str], value: bytes, *keys: str | None) -> Callable[[Scene], None]:
    """One batch of them."""

    def begin(scene: Scene) -> None:
        scene.control.create_topic(topic, 1, config=limit)
        scene.make(**{"linger.ms": 300})
        for key in keys:
            scene.send(topic, key=key, value=value)

    return begin


def _resume(scene: Scene) -> None:
    scene.control.resume(1)


def _moved(scene: Scene) -> None:
    scene.control.create_topic("r", 1, replication_factor=2)
    scene.warm()
    scene.send("r")
    scene.until_delivered()
    scene.control.move_leader("r")
    scene.send("r")
    scene.until_delivered()


def of_nobody(**config: Any) -> Callable[[Scene], None]:
    return _once(lambda _: None, False, **{"message.timeout.ms": 5_000, **config})


def _no_partition(scene: Scene) -> None:
    scene.warm()
    with contextlib.suppress(Exception):
        scene.send(partition=7)


def _too_few(scene: Scene, throttle: int = 0) -> None:
    scene.control.create_topic("r", 1, replication_factor=2, config={"min.insync.replicas": "2"})
    scene.control.move_leader("r", to=1)
    producer = scene.warm()
    scene.control.set_throttle(throttle, broker=1)
    scene.send("r")
    scene.until(
        lambda: not producer.snapshot().unresolved and len(producer.snapshot().throttled_brokers) == bool(throttle)
    )
    scene.control.set_throttle(0, broker=1)
    scene.send("r")
    scene.until_delivered()
    scene.control.stop(2)
    scene.send("r")


def _full(scene: Scene) -> None:
    scene.warm(**{"queue.buffering.max.messages": 10})
    scene.control.pause(1)
    with contextlib.suppress(BufferError):
        for _ in range(100):
            scene.send()


def _held_for(reason: HoldReason, delay: float, api: str | None = None, **config: Any) -> Callable[[Scene], None]:
    """With so late answers, and a key of its own for each record where there is an order of keys."""

    def begin(scene: Scene) -> None:
        scene.warm()
        scene.control.delay(delay, api=api)
        producer, keys = scene.make(**{"linger.ms": 0, **config}), count()

        def held() -> bool:
            scene.send(key=str(next(keys)) if config else None)
            return any(row.reason is reason for row in producer.snapshot().partitions)

        scene.until(held)

    return begin


def _id_limit(scene: Scene) -> None:
    with tempfile.TemporaryDirectory() as folder:
        limit = {"safeproducer.producer.ids.policy": "delay", "safeproducer.producer.ids.ledger": folder}
        scene.warm(**limit, **{"safeproducer.producer.ids.per.hour": 1})
        scene.make(**limit, **{"safeproducer.producer.ids.per.hour": 720})
        scene.send()


def _id_quota(scene: Scene) -> None:
    scene.control.create_topic("used")
    use_up(scene.control, scene.bootstrap)
    scene.make()
    scene.send()


def _undelay(scene: Scene) -> None:
    scene.control.delay(0)
    scene.control.delay(0, api="Produce")


_LEADER_CURE = "Look at that broker, at the followers of the partition"
_LOGIN = _SASL | {"sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "wrong"}
_SCRAM = _LOGIN | {"sasl.mechanism": "SCRAM-SHA-256"}
_KEYED = {"safeproducer.mode": "held", "safeproducer.ordering": "key", "safeproducer.lanes": 8}
_pause_1 = operator.methodcaller("pause", 1)
_silent_leader = partial(Case, code="leader_silent", health="leader_silent", cure=_LEADER_CURE)
_unreached = partial(Case, health="client_error", ready=False, error="within message.timeout.ms")
_no_token = partial(
    _unreached,
    _oauth,
    "your oauth_cb raised RuntimeError: AccessDenied",
    "login, unreachable, away",
    never="password",
    brokers=None,
    logs=r"your oauth_cb raised",
)
_no_id = partial(
    Case,
    _fails(14, "InitProducerId", warm=False),
    "wait: no broker (gives|has given) this client a producer ID.*answers with errors that librdkafka tries again",
    "coordinator",
    health="coordinator",
    lasts=6.0,
    end=_works_again,
    logs="a producer ID.*answers with errors",
)
CASES = {
    "throttled": Case(_throttled, "broker 1, its leader, throttles", "throttle", code="throttled", health="throttled",
        ok=True, cure="Produce less"),
    "throttle time over, not enough replicas": Case(lambda scene: _too_few(scene, throttle=1_500),
        r"min.insync.replicas is 2: writes with acks=all are refused \(NOT_ENOUGH_REPLICAS\)",
        "replicas, refused, silent, unreachable", health="replication", cure="Bring broker 2 back", before="throttle",
        end=lambda scene: scene.control.start(2)),
    "leader silent": _silent_leader(_once(_pause_1), r"broker 1 acknowledges nothing of t \[0\]", "silent",
        end=_resume),
    "leader silent, held": _silent_leader(_held(_pause_1), "broker 1, its leader, acknowledges nothing", "silent",
        end=_resume, held="leader_silent"),
    "leader refuses, held": Case(_held(lambda control: control.fail_next("Produce", 19, n=10**6, topic="t")),
        "broker 1 answers, with errors", "silent, refused",
        code="leader_silent", health="refusing", cure=_LEADER_CURE, lasts=3.0,
        end=lambda scene: scene.control.end_faults(), held="refusing"),
    "leader silent, expiry": _silent_leader(_once(_pause_1, **{"message.timeout.ms": 6_000}),
        "broker 1 acknowledges nothing", "silent",
        error=r"no broker acknowledged it within message.timeout.ms: its leader is broker 1 \(127"),
    "leader moved": Case(_moved, r"^Nothing waits", ok=True),
    "connection cut again and again": Case(_once(lambda control: control.lose_acks(12, broker=1)),
        r"the connection to broker 1 was lost \d+ times",
        "cut, silent, unreachable", health="client_error"),
    "broker down": Case(_once(lambda control: control._await(control._brokers[1].stop)),
        "the last client error of broker 1 was: The broker .* refuses the connection",
        "unreachable, silent, cut", health="client_error", cure="Check the host and port",
        end=lambda scene: scene.control.start(1), logs=r"refuses the connection"),
    "name not resolvable": _unreached(of_nobody(**{"bootstrap.servers": "no-such-host.invalid:9092"}),
        "host name of the broker no-such-host.invalid:9092 is not known", "name, away, unreachable",
        cure="Check the spelling in bootstrap.servers", brokers=None, logs=r"no-such-host.invalid:9092 is not known"),
    "wrong port": _unreached(of_nobody(), "127.0.0.1:1 refuses the connection", "away, unreachable",
        cure="Check the host and port in bootstrap.servers", brokers=None, logs=r"127.0.0.1:1 refuses"),
    "wrong port, held": _unreached(of_nobody(**{"safeproducer.mode": "held"}), "127.0.0.1:1 refuses the connection",
        "away, unreachable, topic", cure="Check the host and port in bootstrap.servers", never="Create the topic",
        brokers=None, logs=r"127.0.0.1:1 refuses"),
    "TLS against plain": _unreached(of_nobody(**{"security.protocol": "ssl"}),
        "closed the TLS handshake|TLS connection", "tls, away, unreachable, cut", cure="security.protocol",
        logs=r"closed the TLS handshake|TLS connection"),
    "wrong password": _unreached(of_nobody(**_LOGIN), "refused the user name or the password",
        "password, unreachable, away", cure="Check sasl.username", fake={"users": {"u": "right"}},
        logs=r"refused the user name"),
    "SASL where none is": _unreached(of_nobody(**_SCRAM), "did not expect SASL", "sasl, unreachable, cut, away",
        cure="security.protocol", never="password", logs=r"did not expect SASL"),
    "oauth_cb raises": _no_token(),
    "oauth_cb raises, held": _no_token(config={"safeproducer.mode": "held"}),
    "all brokers stop": Case(_once(lambda control: [control.stop(number) for number in control.brokers]),
        "no broker is connected", "unreachable, cut, silent, away",
        health="client_error", cure="that the broker runs", never="Create the topic",
        end=lambda scene: [scene.control.start(number) for number in (1, 2)],  # those that are there
        logs=r"cannot be reached|refuses the connection"),
    "advertised wrongly": Case(_advertised, "127.0.0.1:1 refuses the connection", "unreachable, away, silent",
        health="client_error", cure="advertised.listeners of broker", never="bootstrap.servers",
        error="within message.timeout.ms", logs=r"advertised.listeners"),
    "topic deleted": Case(_deleted, "topic 'd' is not there",
        "topic, refused",  # for a moment: the answer may be that of a deleted topic
        code="unknown_topic", health="unknown_topic", cure="Create the topic, or grant DESCRIBE on it",
        end=lambda scene: scene.control.create_topic("d"), logs=r"topic 'd' is not there"),
    "callback blocks": Case(_blocks, r"the callback \S+ \(\S+:\d+\) has been running for \d+ s, and 4 report",
        "callback", health="callback", cure="Let callbacks return soon", never="Call poll()", lasts=3.0,
        end=lambda scene: scene.free.set(), logs=r"the callback \S+ \(\S+:\d+\) has been running"),
    "all refused": Case(_fails(29), "refused with TOPIC_AUTHORIZATION_FAILED, .* may not write to the topic",
        "lanes, far",  # on a busy machine
        health="refused", cure="Have an administrator grant WRITE", end=_works_again,
        error="this user may not write to the topic", lasts=0.2),
    "producer ID refused": Case(_fails(49), "refused with INVALID_PRODUCER_ID_MAPPING", "lanes, far", health="refused",
        cure="producer ID", never="transactional.id", end=_works_again, error="producer ID", lasts=0.2),
    "leader refuses from the first batch on": Case(_fails(19, warm=False), "broker 1 answers, with errors",
        "silent, refused", health="refusing", cure=_LEADER_CURE, end=_works_again,
        logs=r"broker 1 .*answers, with errors"),
    "leader is none": Case(_fails(6), "NOT_LEADER_OR_FOLLOWER", "silent, refused", health="refusing",
        cure="the cluster says that it leads", never="NOT_ENOUGH_REPLICAS", end=_works_again,
        logs=r"NOT_LEADER_OR_FOLLOWER"),
    "no producer ID": _no_id(),
    # "silent": behind its end a busy machine answers the first batch late.
    "no producer ID, held": _no_id(config={"safeproducer.mode": "held"}, before="silent"),
    "slow broker": Case(_once(lambda control: control.delay(1.5, broker=1), sends=True, **{"linger.ms": 0}),
        r"broker 1 takes \d\.\d s for each answer, and so for acknowledgements of t \[0\]",
        "slow, lanes, far", health="slow", ok=True, cure="Look at that broker's load and disks", lasts=4.0,
        end=_undelay, logs=r"broker 1 .*takes \d\.\d s for each answer"),
    "behind another partition": Case(_behind_another, "nothing is sent until broker 2 has answered",
        "coordinator, silent, slow", health="coordinator", end=lambda scene: scene.control.resume(2),
        error="too large", logs=r"nothing is sent until broker 2"),
    "batch of small records too large": Case(
        small_records("tiny", {"max.message.bytes": "1000"}, b"x" * 100, *"abcdefghijkl"),
        r"12 failed, lately .*12 record.s. of tiny \[0\] were refused with MSG_SIZE_TOO_LARGE", "", health="refused",
        cure="Lower batch.size to that limit",
        error="batch of the record is larger than max.message.bytes of the topic",
        end=lambda scene: scene.send("tiny"), lasts=0.2),
    "rights missing": Case(_once(lambda control: control.fail_next("Produce", 29)),
        "2 record.s. delivered, 1 failed, lately with TOPIC_AUTHORIZATION_FAILED",
        health="refused", ok=True, cure="Have an administrator grant WRITE and DESCRIBE",
        error="authorization failed: this user may not write to the topic: have an administrator", lasts=0.2),
    "misspelt topic": Case(
        lambda scene: (scene.control.create_topic("orders"), scene.warm(), scene.send("ordres", -1)),
        r"topic 'ordres' is not there \(nearest name: 'orders'\)", "topic",
        code="unknown_topic", health="unknown_topic", cure="Create the topic, or grant DESCRIBE on it",
        end=lambda scene: scene.control.create_topic("ordres"), logs=r"topic 'ordres' is not there"),
    "partition missing": Case(_no_partition, "There is no partition 7 of t: it has 2, 0 to 1", ok=True, lasts=0.2,
        asked=("t", 7)),
    "not enough replicas": Case(_too_few,
        r"min.insync.replicas is 2: writes with acks=all are refused \(NOT_ENOUGH_REPLICAS\)",
        "replicas, refused, silent, unreachable", health="replication", cure="Bring broker 2 back",
        end=lambda scene: scene.control.start(2), logs=r"NOT_ENOUGH_REPLICAS"),
    "too large": Case(small_records("small", {"max.message.bytes": "1000"}, b"x" * 5_000, None),
        "1 failed, lately with MSG_SIZE_TOO_LARGE", health="refused", ok=True,
        cure="Lower batch.size to that limit", error="[Mm]essage size too large", lasts=0.2),
    "buffer full": _silent_leader(_full,
        "broker 1 acknowledges nothing of t|broker 1, its leader, acknowledges nothing", "silent", end=_resume),
    "poll() not called": Case(_once(lambda _: None, polls=False), r"1 report.s. wait for poll\(\)", "poll",
        health="not_polled", cure="Call poll() or flush()"),
    "linger": Case(lambda scene: (scene.warm(), scene.make(**{"linger.ms": 5_000}), scene.send()),
        "linger.ms lets a batch gather for 5 s", "linger", health="waiting", ok=True),
    "far": Case(_held_for(HoldReason.IN_FLIGHT, 0.3), "waits for the acknowledgement of the batch before it",
        "lanes, far", code="in_flight", health="in_flight", ok=True, cure="safeproducer.ordering=key", lasts=0.0,
        end=_undelay),
    "window full": Case(_held_for(HoldReason.WINDOW, 1.2, "Produce", **_KEYED),
        "as many of its batches are under way as its leader remembers", "window, lanes",
        code="window", health="window", ok=True, cure="Have the brokers remember", lasts=0.0, end=_undelay),
    "ID limit": Case(_id_limit, "waits for a producer ID", "ids", code="producer_id_limit", health="producer_id_limit",
        ok=True, cure="Make fewer producers and keep them", lasts=1.0, logs=r"no producer ID is free"),
    "quota on IDs": Case(_id_quota,
        "quota of broker 1 throttles this client|quota on producer IDs rejected|a quota rejected a batch of it",
        "id quota, throttle", ok=True, lasts=0.0, brokers=1),
    "nothing wrong": Case(Scene.warm, "^Nothing waits: 2 record.s. delivered, 0 failed", ok=True),
}  # fmt: skip
