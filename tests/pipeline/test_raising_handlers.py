"""A signal handler that raises, at every place where one may come in what the application's thread runs."""

import contextlib
import gc
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

import pytest

from safeproducer import ProducerIdLimitError, SafeProducer
from safeproducer.pipeline import bulk
from safeproducer.pipeline.calls import Calls
from safeproducer.pipeline.closing import Closing, Release
from safeproducer.pipeline.cluster.asker import Asker
from safeproducer.pipeline.cluster.metadata import FirstQuestion, Metadata
from safeproducer.pipeline.cluster.windows import Windows
from safeproducer.pipeline.dispatch.dispatcher import Dispatcher
from safeproducer.pipeline.dispatch.expiry import Expiry
from safeproducer.pipeline.dispatch.intake import Intake
from safeproducer.pipeline.dispatch.record_buffer import RecordBuffer
from safeproducer.pipeline.engine import Engine
from safeproducer.pipeline.polling import Serving
from safeproducer.pipeline.reports.quota_rejections import QuotaRejections
from safeproducer.pipeline.reports.report_queue import ReportQueue, Reports
from safeproducer.pipeline.route import Route, _gated
from safeproducer.pipeline.schedule import Schedule
from safeproducer.pipeline.sender import Sender
from safeproducer.producer_ids.gate import Gate
from safeproducer.producer_ids.guard import Guard
from safeproducer.producer_ids.permit import Answer, Claim, Permit
from safeproducer.runtime.threads import BackgroundThread, InterruptSafeEvent, WakeLock
from safeproducer.settings import delivery
from safeproducer.snapshot import CloseReport
from safeproducer.testing import FakeCluster
from tests.clusters import fake_cluster
from tests.contract.support import wait_until
from tests.inside import engine_of
from tests.pipeline.interleaving import between, codes_of

MODES: dict[str, dict[str, Any]] = {
    "auto": {},
    "held": {"safeproducer.mode": "held"},
    "key": {"safeproducer.mode": "held", "safeproducer.ordering": "key"},
}
FAMILY = [SafeProducer, Intake, Schedule, Dispatcher, Expiry, Engine, Release, Reports, ReportQueue]
FAMILY += [QuotaRejections, RecordBuffer, WakeLock, Sender]
FAMILY += [Route, Calls, Serving, Closing]
FAMILY += [InterruptSafeEvent, BackgroundThread, FirstQuestion, Metadata, Asker, Windows]
FAMILY += [Gate]
FAMILY += [threading.Event, threading.Condition]  # whose lock a handler that raises in set() leaves taken
GATED = {each for each in _gated.__code__.co_consts if isinstance(each, CodeType)}
OF_THE_SENDER = {"_turn", "pump", "sleep", "turn", "live", "end"}
NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
EVERY_DAY = 20
"""Places of close() at which a handler raises, out of a few hundred; with --full at all of them.

Each mode has others, so that all modes together have three times as many.
"""

_numbers = itertools.count()


class LimitError(Exception):
    """What a time limit by SIGALRM raises."""


def codes(*family: type) -> set[Any]:
    """All that may run on the application's thread."""
    found: set[Any] = set()
    for owner in family or FAMILY:
        for name, member in vars(owner).items():
            function = member.fget if isinstance(member, property) else member
            if (
                isinstance(function, FunctionType)
                and (name not in OF_THE_SENDER or owner is Gate)
                and name != "__init__"
            ):
                found |= codes_of(function)
    return found


def interrupt() -> None:
    raise LimitError


@pytest.fixture(autouse=True)
def no_garbage() -> None:
    """Producers that other tests left in cycles would end in the middle of a step, and meet its exception."""
    gc.collect()


cluster = fake_cluster({"t": 2}, scope="module")


class Application:
    """Produces values of its own, and counts their reports."""

    def __init__(self, cluster: FakeCluster, mode: str, begins: bool = True, **more: Any) -> None:
        self.cluster = cluster
        self.natives: list[Any] = []
        self.told: Counter[bytes] = Counter()
        self.values: list[bytes] = []
        config = {"bootstrap.servers": cluster.bootstrap, "linger.ms": 0, "log_level": 0, **MODES[mode], **more}
        self.producer = SafeProducer(config)
        if begins:
            self.produce()
            assert self.producer.flush(10) == 0

    def report(self, error: Any, message: Any) -> None:
        assert error is None
        self.told[message.value()] += 1

    def next(self) -> bytes:
        value = b"%d" % next(_numbers)
        self.values.append(value)
        return value

    def produce(self) -> None:
        self.producer.produce("t", self.next(), b"k", partition=0, on_delivery=self.report)

    def produce_batch(self) -> None:
        messages: list[dict[str, Any]] = [{"value": self.next()} for _ in range(2)]
        self.producer.produce_batch("t", messages, 0, on_delivery=self.report)

    def poll(self) -> None:
        self.produce()
        self.producer.poll(0)
        self.producer.poll(0.01)

    def flush(self) -> None:
        self.produce()
        self.producer.flush(10)

    def check(self) -> None:
        """Everything has ended, what comes later works, and each record is accounted for."""
        assert self.producer.flush(10) == 0
        self.produce()
        assert self.producer.flush(10) == 0
        assert self.told[self.values[-1]] == 1, "what comes later is delivered"
        account = self.producer.snapshot()
        assert account.unresolved == account.failed == 0
        assert account.accepted == account.delivered + account.interrupted

    def check_log(self) -> None:
        written = Counter(record.value for record in self.cluster.log("t", 0))
        assert all(written[value] <= 1 for value in self.values), "nothing is written twice"
        assert all(count == 1 for count in self.told.values()), "nothing is reported twice"
        assert all(written[value] == 1 for value in self.told)

    def close(self) -> None:
        self.check_log()
        lane: Any = engine_of(self.producer)
        deadline = time.monotonic() + 5
        while lane.dispatcher.record_buffer.numbers.reports and time.monotonic() < deadline:
            time.sleep(0.01)  # until the sender has taken note of the last batch
        assert not lane.dispatcher.record_buffer.numbers.reports, "no callback is kept"
        assert not lane.route.threads
        assert self.producer.close(10)

    def check_end(self) -> None:
        """A handler has raised in close(): another one ends the producer, whatever the first one had done."""
        producer, lane = self.producer, engine_of(self.producer)
        if producer.snapshot().state == "open":
            self.check()
        report = producer.close(10)
        assert producer.snapshot().state == "closed"
        account = producer.snapshot()
        assert (report.left, report.failed, account.unresolved) == (0, 0, 0)
        assert report.accepted == report.delivered + account.interrupted == account.accepted
        assert producer.close() is report
        self.check_log()
        assert not lane.sender.alive
        for native in lane.dispatcher.lanes:
            with pytest.raises(RuntimeError, match="closed"):
                native.client.native.poll(0)


@pytest.mark.filterwarnings("ignore:.*records were not reported.*:RuntimeWarning")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("call", ["produce", "produce_batch", "poll", "flush"])
def test_a_handler_may_raise_anywhere(cluster: FakeCluster, mode: str, call: str) -> None:
    application = Application(cluster, mode)
    run: Callable[[], None] = getattr(application, call)
    inside = codes()
    step = 0
    while True:
        try:
            with between(inside, step, interrupt, raises=True):
                run()
        except LimitError:
            step += 1
        else:
            break
        if step % 10 == 0:
            application.check()
    application.check()
    application.close()
    assert step > 3


@pytest.mark.parametrize("call", ["produce", "produce_batch"])
def test_an_interrupted_record_is_not_kept_before_the_first_acknowledgement(call: str) -> None:
    """Until then each record is remembered, for a quota may refuse it."""
    producer = SafeProducer({**NOWHERE, "linger.ms": 60_000})  # all that is on probation is one batch
    arguments: Any = (b"v", b"k", 0) if call == "produce" else ([{"value": b"v", "key": b"k", "headers": {}}], 0)
    inside = codes()
    step, raised = 0, True
    while raised:
        try:
            with between(inside, step, interrupt, raises=True):
                getattr(producer, call)("t", *arguments, on_delivery=lambda error, message: None)
            raised = False
        except LimitError:
            step += 1
    lane: Any = engine_of(producer)
    assert lane.dispatcher.quota_retry.rejections.remembered > 0
    producer.close(0)
    assert not lane.dispatcher.record_buffer.numbers.reports, "no callback is kept"
    assert step > 10


@pytest.mark.parametrize(
    ("call", "arguments"),
    [("produce", ("t", b"v", b"k", 2**40)), ("produce_batch", ("a\0b", [{"value": b"v"}, {"value": b"w"}]))],
)
def test_a_record_that_is_refused_while_a_handler_raises_is_not_accepted(
    cluster: FakeCluster, call: str, arguments: tuple[Any, ...]
) -> None:
    """Nobody will report it: it counts as interrupted at most."""
    application = Application(cluster, "auto")
    inside = codes(SafeProducer, Calls) | codes_of(bulk._native)
    wait_until(lambda: engine_of(application.producer).route.goes_direct)  # the native calls are those of this test
    step, raised = 0, True
    while raised:
        try:
            with between(inside, step, interrupt, raises=True):
                getattr(application.producer, call)(*arguments)
        except LimitError:
            step += 1
        except (OverflowError, ValueError):
            raised = False
        account = application.producer.snapshot()
        assert account.unresolved == 0
        assert account.interrupted <= 2 * step
    assert step > 3
    application.check()


class Permits:
    """In place of the guard: refuses as often as it is to, then grants."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals
        self.granted: list[Permit] = []
        self.back: list[Permit] = []
        self.ended: list[Permit] = []

    def ask(self, request: Claim) -> Answer:
        if self.refusals > 0:
            self.refusals -= 1
            return Answer(None, 0.01, True, 20, 20)
        self.granted.append(Permit(len(self.granted), request.kind, request.site, 0.0, 1.0))
        return Answer(self.granted[-1])

    def give_back(self, permit: Permit) -> None:
        self.back.append(permit)

    def note(self, permit: Permit, producer_id: int | None = None, how: str = "") -> None:
        if how:
            self.ended.append(permit)


@pytest.fixture
def permits(monkeypatch: pytest.MonkeyPatch) -> Permits:
    made = Permits(0)
    monkeypatch.setattr("safeproducer.policy.permits.ask_again_in", lambda *_: 0.01)
    for name in ("ask", "give_back", "note"):
        monkeypatch.setattr(Guard, name, lambda _, *args, of=name, **more: getattr(made, of)(*args, **more))
    return made


@pytest.mark.filterwarnings("ignore:.*records were not reported.*:RuntimeWarning")
@pytest.mark.parametrize(
    ("call", "mode", "policy"),
    [
        ("produce", "auto", "warn"),
        ("produce", "auto", "delay"),
        ("produce", "held", "refuse"),
        ("produce_batch", "held", "warn"),
        ("produce_batch", "held", "delay"),
        ("produce_batch", "auto", "refuse"),
    ],
)
def test_a_handler_may_raise_anywhere_before_the_permit(
    cluster: FakeCluster, permits: Permits, mode: str, call: str, policy: str
) -> None:
    """The next call asks again, from another thread, too: one permit is used, and the handler costs one at most."""
    inside = codes(SafeProducer, Gate, Route) | GATED
    step, raised = 0, True
    while raised:
        permits.__init__(0 if policy == "warn" else 1)  # type: ignore[misc]
        application = Application(cluster, mode, False, **{"safeproducer.producer.ids.policy": policy})
        raised = False
        try:
            with between(inside, step, interrupt, raises=True):
                getattr(application, call)()
        except LimitError:
            raised = True
        except ProducerIdLimitError:
            assert policy == "refuse"
        permits.refusals = 0
        other = threading.Thread(target=application.produce)
        other.start()
        other.join(10)
        assert not other.is_alive()
        application.check()
        gate = engine_of(application.producer).gate
        assert gate.used == 1
        assert 0 <= len(permits.granted) - len(set(permits.back)) - 1 <= raised
        application.close()
        step += 1
    assert step > 10


def close_it(cluster: FakeCluster, mode: str, step: int, other: Callable[[Application], None]) -> tuple[Any, int]:
    """(the application, how many places there were): `other`, then the handler, comes at the given one of close()."""
    application = Application(cluster, mode)
    application.produce()
    application.producer.produce("t", application.next(), b"k", 0, on_delivery=application.report)

    def come() -> None:
        other(application)
        raise LimitError

    with contextlib.suppress(LimitError), between(codes(), step, come, raises=True) as tps:
        application.producer.close(10)
    return application, tps[0]


def sampled(tps: int, full: bool, mode: str = "auto") -> range:
    apart = 1 if full else max(1, tps // EVERY_DAY)
    return range(apart * list(MODES).index(mode) // len(MODES), tps, apart)


@pytest.mark.filterwarnings("ignore:.*records were not reported.*:RuntimeWarning")
@pytest.mark.parametrize("mode", MODES)
def test_a_handler_may_raise_anywhere_in_close(cluster: FakeCluster, mode: str, pytestconfig: pytest.Config) -> None:
    """The producer is open, and works, until another close() ends it; or it is closed, and that says how."""
    _, tps = close_it(cluster, mode, -1, lambda _: None)
    states = Counter()
    for step in sampled(tps, pytestconfig.getoption("--full"), mode):
        application, _ = close_it(cluster, mode, step, lambda _: None)
        states[application.producer.snapshot().state] += 1
        application.check_end()
    assert tps > 50
    assert set(states) == {"open", "closed"}, states


class Second:
    """Another thread that closes, too."""

    def __init__(self) -> None:
        self.report: CloseReport | None = None
        self.thread: threading.Thread | None = None

    def come(self, application: Application) -> None:
        """Be inside close(), or through it."""

        def close() -> None:
            self.report = application.producer.close(10)

        self.thread = thread = threading.Thread(target=close, daemon=True)
        inside = application.producer._SafeProducer__closing.closers  # type: ignore[attr-defined]
        before = len(inside)
        thread.start()
        while len(inside) == before and thread.is_alive():
            time.sleep(0.001)


@pytest.mark.filterwarnings("ignore:.*records were not reported.*:RuntimeWarning")
@pytest.mark.parametrize("mode", MODES)
def test_a_thread_that_closes_meanwhile_ends_the_producer(
    cluster: FakeCluster, mode: str, pytestconfig: pytest.Config
) -> None:
    """Wherever the handler raises in the close() of the main thread, before or while the other one waits for that."""
    _, tps = close_it(cluster, mode, -1, lambda _: None)
    came = 0
    for step in sampled(tps, pytestconfig.getoption("--full"), mode):
        second = Second()
        application, _ = close_it(cluster, mode, step, second.come)
        if second.thread is not None:  # else it took fewer steps this time
            came += 1
            second.thread.join(10)
            assert second.report is not None, "the other close() hangs"
            assert application.producer.snapshot().state == "closed"
        application.check_end()
        assert second.report in (None, application.producer.close())
    assert came > 6


@pytest.mark.filterwarnings("ignore:.*records were not reported.*:RuntimeWarning", "ignore:.*close deadline.*")
def test_records_that_an_interrupted_close_purges_are_left(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another close() reports it as left, whether the first one came to its purge or not."""
    monkeypatch.setattr(delivery, "STATISTICS_MS", 20)  # close() waits for them, half a second each time
    told: Counter[bytes | None] = Counter()

    def report(error: Any, message: Any) -> None:
        told[message.value()] += error is not None

    def play(step: int) -> int:
        producer = SafeProducer(NOWHERE)
        for number in range(3):
            producer.produce("t", b"%d-%d" % (step, number), partition=0, on_delivery=report)
        gc.collect()  # or the handler comes in the destructor of an earlier one, which the C client kept
        with contextlib.suppress(LimitError), between(codes(), step, interrupt, raises=True) as tps:
            producer.close(0)
        ended, account = producer.close(0), producer.snapshot()
        assert (account.state, account.unresolved, account.delivered) == ("closed", 0, 0)
        assert ended.failed == account.failed == 3 - account.interrupted
        assert ended.left in (ended.failed, 3), "all of them, also if the handler came in a report"
        return tps[0]

    tps = play(-1)
    for step in sampled(tps, pytestconfig.getoption("--full")):
        play(step)
    assert set(told.values()) == {1}
    assert tps > 50


@pytest.mark.parametrize("mode", MODES)
def test_records_that_another_close_delivers_are_not_left(cluster: FakeCluster, mode: str) -> None:
    application = Application(cluster, mode)
    cluster.delay(0.2, api="Produce")
    application.produce()
    with pytest.raises(LimitError), between(codes_of(Engine.purge), 0, interrupt, raises=True):
        application.producer.close(0)
    cluster.delay(0)
    assert application.producer.close(10).left == 0
    assert application.told[application.values[-1]] == 1
