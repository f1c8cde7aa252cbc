"""A lane: one native producer for its whole life, which for an idempotent one is one producer ID.

The lane serves callbacks, turns what the native producer raises into this library's errors, and ends: fatal, closed, or
cut off by a fork.
"""

from __future__ import annotations

import sys
import time
import warnings
import weakref
from collections.abc import Callable
from functools import partial
from threading import Lock, get_ident
from typing import Any, NoReturn

from safeproducer.config import Settings, explain_refusal
from safeproducer.errors import CallbackReentryError, FatalError, ProducerClosedError, QueueFullError, SafeProducerError
from safeproducer.hooks import Hooks
from safeproducer.kafka.native import KafkaError, KafkaException, NativeProducer
from safeproducer.pipeline.alarm import NEVER
from safeproducer.pipeline.events import ClientEvents
from safeproducer.pipeline.failures import Failures
from safeproducer.pipeline.feed import Feed
from safeproducer.pipeline.first_question import FirstQuestion
from safeproducer.pipeline.lane_log import LaneLog
from safeproducer.pipeline.lanes import Lanes
from safeproducer.pipeline.ledger import Ledger
from safeproducer.pipeline.metadata import Metadata
from safeproducer.pipeline.news import ClientNews
from safeproducer.pipeline.observed import ObservedSend
from safeproducer.pipeline.refusals import Refusals
from safeproducer.pipeline.report_numbers import ReportNumbers
from safeproducer.pipeline.stale_leaders import STRAIGHT
from safeproducer.pipeline.straight_deadline import StraightDeadline
from safeproducer.pipeline.watchdog import Watchdog
from safeproducer.pipeline.windows import REFRESH, Asks, Windows
from safeproducer.records import ProducerInfo

RECORD_EVENTS = ("record_accepted", "record_refused", "record_resolved")
NO_TIMEOUT = -1.0
_FEW_EVENTS = 4
_SLICE = 0.01
"""How long to wait on one lane while the other has records, too."""
_LONG_SLICE = 0.05
"""While it has none, and can only tell of events."""
_SHORTEST_WAIT = 0.001
_ROUND_UP = 0.00099
"""The client counts in whole milliseconds and drops the rest: another round for nothing."""
_PRESENT = 0.01
"""An application that served within this time is there, and the watchdog leaves the serving to it."""
_ABSENT = 0.1
_FAREWELL = 2.0
_FLUSH_ROUND = 0.15  # below the 0.2 s from which the native call splits the wait itself
_LOST_EXCEPTION = "returned NULL without setting an exception"


class Unusable:
    """Stands where a native producer was once it must not be called any more: whatever is called raises."""

    def __init__(self, refusal: Callable[[], SafeProducerError]) -> None:
        self._refusal = refusal

    def __getattr__(self, name: str) -> Callable[..., NoReturn]:
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise self._refusal()

    def __getitem__(self, key: object) -> NoReturn:
        raise self._refusal()

    def __len__(self) -> int:
        return 0

    @property
    def queued(self) -> int:
        return 0


UNINITIALISED = Unusable(
    lambda: ProducerClosedError("this SafeProducer is not initialised: call super().__init__(config) in its subclass")
)


class Lane:
    """Owns the native producers of one SafeProducer and decides which way records go. Thread-safe.

    - `send` takes one record: (topic, value, key, partition, report[, None, timestamp, headers]).
    - `native` is the straight native producer, or the fed one when everything is held back, or an Unusable.
    - `state` is "open", "fatal", "closed" or "forked".
    """

    def __init__(
        self, settings: Settings, info: ProducerInfo, hooks: Hooks, ledger: Ledger, failures: Failures
    ) -> None:
        self._ledger = ledger
        self._delivery = delivery = settings.delivery
        self._away = ledger.away
        self._away_lock = Lock()
        self._serving: set[int] = set()
        self._served_at = 0.0
        self._polls = self._polls_seen = 0
        self._warned_reentry = False
        self.failures = failures
        self.news = ClientNews(info, hooks, settings, failures, ledger)
        self.events = ClientEvents(info, hooks, settings, ledger.errors, ledger.away, self.news)
        self.state = "open"
        self.holds = self.news.holds
        self.watchdog = Watchdog(self)
        held = delivery.mode == "held"
        native = self._made(settings, delivery.fed_lane(settings.lane) if held else delivery.lane(settings.lane), False)
        self.observed = (
            ObservedSend(
                native.produce,
                hooks,
                info,
                self.refusal_of,
                self.failures.reported,
                ledger.away,
                offset_proves=delivery.idempotent,
            )
            if hooks.wants(*RECORD_EVENTS)
            else None
        )
        self.native: Any = native
        make = partial(_fed_native, settings, self.events) if delivery.feeds else None
        numbers = ReportNumbers()
        lanes = Lanes(make, delivery.lanes, delivery.spreads, self._away.reports, numbers)
        if held:
            lanes.adopt(native)
        this = weakref.ref(self)
        self.metadata = Metadata(
            partial(_lanes_of, this), self.holds.partitions.learn, partial(_heard, this), self.watchdog.wake
        )
        self.first_question = FirstQuestion(
            partial(_waits_for_id, this), partial(_answered_within, this), delivery.waits_for_id
        )
        self.holds.measuring = self.first_question
        self.holds.stale.lanes = partial(_lanes_of, this)
        self.holds.stale.ask = self.metadata.tell
        self.windows = Windows(
            delivery.window,
            min(REFRESH, delivery.metadata_refresh / 2),
            partial(_discovery, settings.lane),
            self.events.on_window,
            self.watchdog.wake,
            partial(_is_alive, this),
        )
        self.news.windows = self.windows
        refusals = Refusals(partial(_quota_refused, this), numbers)
        if delivery.feeds:
            self._away.refusals = refusals
        self.feed = Feed(
            delivery,
            self.holds,
            None if held else native,
            lanes,
            self.windows,
            self._away,
            self.failures,
            self.metadata,
            self.watchdog.wake,
            self.events.on_limited,
            refusals,
            numbers,
            self.news.sent_once,
        )
        self._straight_deadline = StraightDeadline(delivery, self.feed, self.news, self._away, self.failures)
        self.direct = self._going = False
        self.send: Callable[..., Any]
        self._go(straight=delivery.mode == "passthrough")
        self.news.hold = partial(_hold, this)

    def _made(self, settings: Settings, config: dict[str, Any], fed: bool) -> NativeProducer:
        try:
            return NativeProducer(_with_callbacks(config, self.events, fed))
        except (KafkaException, TypeError, ValueError) as error:
            refusal = explain_refusal(error, settings)
            if refusal is None:
                raise
            raise refusal from None

    def _go(self, straight: bool) -> None:
        """Which way the next record goes. Ctrl-C may end this anywhere; then the next _mind() does it again."""
        way = self.native.produce if straight else self.feed.send
        leaves_straight = self.direct or self._going
        self._going = True
        if leaves_straight:
            self.feed.leave_straight(NEVER)  # until the last record has gone straight
        self.direct = straight
        if self.observed is None:
            self.send = way
        else:
            self.observed.send = way
            self.send = self.observed
        if leaves_straight:
            self.feed.leave_straight(time.monotonic())
        self._going = False

    @property
    def queued(self) -> int:
        """Records and events that wait here or in librdkafka."""
        if self.state not in ("open", "fatal"):
            return 0
        count = self.feed.buffer.queued
        if 0 < count <= _FEW_EVENTS and not self._serving and not self.events.wanted:
            # Records, or statistics that the application did not ask for? In a callback its own record counts, too.
            if self.feed.alone and not self.feed.buffer.records:
                return 0  # as the ledger would say, after adding up all partitions
            return count if self._ledger.outstanding(count)[0] else 0
        return count

    # --- serving ---------------------------------------------------------------------------------------------------

    @property
    def in_callback(self) -> bool:
        """Whether the calling thread is inside a callback that this lane runs."""
        return get_ident() in self._serving

    def poll(self, timeout: float) -> int:
        # What serve() does, inline: many applications poll after each record.
        thread = get_ident()
        serving = self._serving
        if thread in serving:
            return self._inside_callback("poll", 0)
        serving.add(thread)
        self._polls += 1
        try:
            if self.direct and not self._away.thread and not self._away.reports.count:
                unseen = self.events.unseen
                before = unseen.get(thread, 0)
                served: int = self.native.poll(timeout)
                if not self.news.changed:
                    return served
                served -= unseen.get(thread, 0) - before
                if served > 0 or timeout == 0:
                    self._mind(time.monotonic())
                    return served
            return self._wait(timeout)
        except:  # noqa: E722 - as in _attempt()
            error = self._noted(sys.exc_info()[1])[0]
        finally:
            serving.discard(thread)
        raise error

    def _wait(self, timeout: float) -> int:
        """Serve both lanes and the reports kept here for up to `timeout` seconds, until something was served."""
        if self.state not in ("open", "fatal"):
            # Raises. In a forked child the watchdog may have been serving at that moment, and holds its lock for ever.
            self.native.poll(timeout)
        if self._away.thread:
            with self._away_lock:  # what the watchdog is serving comes first
                pass
        try:
            return self._wait_for(timeout)
        finally:
            self._served_at = time.monotonic()

    def _wait_for(self, timeout: float) -> int:
        started = time.monotonic()
        end = started + timeout if timeout >= 0 else NEVER
        served = 0
        now = started
        feed = self.feed
        while True:
            busy = feed.busy
            if timeout == 0 or not busy:  # else the wait looks first
                feed.serve(0)
            served += self._serve_now(now)
            now = time.monotonic()
            if served or now >= end or self.state not in ("open", "fatal"):
                return served
            both = busy and not feed.alone and len(self.native)
            pause = min(end, feed.alarm.at, now + (_SLICE if both else _LONG_SLICE)) - now
            pause = max(_SHORTEST_WAIT, pause + _ROUND_UP)
            # Another thread may produce meanwhile: wait where the answers to its records will come.
            if feed.busy or (feed.lanes and not self.direct and not len(self.native)):
                feed.serve(pause)
            else:
                served += self._poll_native(pause)
            now = time.monotonic()

    def _poll_native(self, timeout: float) -> int:
        """Serve it; how much of what it served poll() counts."""
        unseen, thread = self.events.unseen, get_ident()
        before = unseen.get(thread, 0)
        served: int = self.native.poll(timeout)
        return served - (unseen.get(thread, 0) - before)

    def _serve_now(self, now: float) -> int:
        """Act on what was heard, and run callbacks: batches first, so that the next ones leave before callbacks run."""
        self._mind(now)
        served = self.feed.run_reports()
        if not self.feed.alone and len(self.native):  # records and events: to ask costs less than to serve nothing
            served += self._poll_native(0)
            if self.news.changed:
                self._mind(now)
        return served

    def _mind(self, now: float) -> None:
        """Act on what was heard: hold, hand over, time out, go straight again."""
        feed, holds = self.feed, self.holds
        self.news.catch_up(feed.buffer.waiting)
        if holds.warming and holds.warms(self._ledger.resolved + self._away.reports.count, len(self.native)):
            self.news.changed = True
        if holds.pacing or (holds.far and not holds.fed_ready):
            holds.fed_ready = holds.fed_ready or feed.lanes.acquired
            if holds.paces(len(self.native), now):
                self.news.changed = True
        if self.news.rushes(feed.buffer.waiting, now):
            self.news.changed = True
        if self.news.changed:
            if self.direct:
                feed.serve(0)  # nobody else asks a fed lane that is not in use for its events
            self.news.changed = False
            self.news.measure(now)
            self._look_for_splits()
            if holds.far:
                feed.lanes.prepare()
            if not holds.warming and not len(self.native):
                feed.forget_refusals()
            feed.recheck(now)
        feed.pump_if_due(now)
        if self._delivery.mode == "auto":
            if self._delivery.owns_timeout:
                self._straight_deadline.mind(now, self.hold, self.native.purge)
            # Reports that wait here take room that the native producer does not know of.
            straight = not holds.any(now) and feed.empty and not self._away.reports.count
            if (straight is not self.direct or self._going) and self.state == "open":
                self._go(straight)

    def hold(self) -> None:
        """Send nothing straight to a broker that throttles from now on, not even for a callback served before _mind().

        Runs inside a native call, so it makes none.
        """
        if self.direct and self.state == "open":
            self._go(straight=False)
        self.feed.recheck(time.monotonic())

    def _look_for_splits(self) -> None:
        statistics = self.news.take_fed(self.feed.alone)
        if statistics is not None and (found := self.feed.lanes.observe(statistics)):
            self.events.on_split(found)

    def tend(self, now: float) -> float:
        """For the watchdog: do what is due, serve when the application does not; when to come again."""
        if self.state not in ("open", "fatal"):
            return NEVER
        again = self.first_question.look(self.feed.any_topic, now) if self.holds.warming else NEVER
        self._tend_lanes(now)
        if (topic := self.feed.any_topic) is not None and self.feed.lanes.ask_for_ids(topic, now):
            again = min(again, now + _PRESENT)
        self.news.catch_up(self.feed.buffer.waiting)
        present = self._polls != self._polls_seen or now - self._served_at < _PRESENT
        self._polls_seen = self._polls
        if self._serving or present:
            if not self.direct:
                self.feed.pump_if_due(now)
            return min(again, max(self.feed.alarm.at, now + _PRESENT))
        with self._away_lock:
            self._away.serve_on(get_ident())
            try:
                self._serve_for_the_absent()
            except:  # noqa: E722 - as in _attempt()
                error = self._noted(sys.exc_info()[1])[0]
                self._away.reports.add(_raise, error, None)  # for the application's next poll()
            finally:
                self._away.serve_on(0)
        if self.feed.busy and self.feed.lanes.inside:
            return now
        return min(again, self.feed.alarm.at, now + (_ABSENT if self.queued or self.feed.alone else NEVER))

    def _tend_lanes(self, now: float) -> None:
        """Make the lanes that are wanted, let go of those that are not."""
        lanes = self.feed.lanes
        self._grow()
        if (spare := lanes.spare(now)) is None or not self.feed.let_go(spare):
            return
        why = "it was not needed any more" if spare.failed is None else f"one failed: {spare.failed.str()}"
        self.events.on_lanes(len(lanes) + 1, len(lanes), why)
        if spare.native is not self.native:
            spare.close()
            return
        # Not closed: another thread may be inside a call of it. The last one that refers to it destroys it.
        self._grow()
        if lanes.first is not None:
            self.native = lanes.first.native

    def _grow(self) -> None:
        lanes = self.feed.lanes
        before = len(lanes)
        if lanes.grow():
            self.failures.many_lanes = True
            self.events.on_lanes(before, len(lanes), "batches were ready and waited only for a lane")

    def _serve_for_the_absent(self) -> None:
        if not self._serving and not self.feed.alone:
            self.native.poll(0)
        if not self._serving:
            self.feed.serve(_SLICE if self.feed.lanes.inside else 0)
        self._mind(time.monotonic())

    def flush(self, timeout: float) -> int:
        if self.in_callback:
            return self._inside_callback("flush", self.queued)
        left, raised = self.drain(timeout)
        if raised is not None:
            raise raised
        return left

    def drain(self, timeout: float) -> tuple[int, Exception | None]:
        """(records left, the last exception a callback raised), after a flush of up to `timeout` seconds.

        Stock serves on when a callback raises, and raises at the end. So does this, but in short native calls: inside a
        long one the C client keeps an exception to itself until the end, Ctrl-C included when it lands in a callback.
        """
        deadline = time.monotonic() + timeout if timeout >= 0 else None
        raised: Exception | None = None
        feed = self.feed
        if feed.alone and not feed.buffer.records and self.state == "open":
            return 0, None  # events are for poll(), as in stock
        feed.flushing += 1
        feed.alarm.hurry()
        try:
            while True:
                remaining = _FLUSH_ROUND if deadline is None else max(0.0, deadline - time.monotonic())
                _, error, from_callback = self._attempt(self._flush_round, min(remaining, _FLUSH_ROUND))
                if error is not None:
                    if not isinstance(error, Exception) or not (from_callback or isinstance(error, FatalError)):
                        raise error
                    raised = error
                left = self.feed.buffer.records if self.feed.alone else self.queued
                if not left or remaining == 0.0:
                    return left, raised
        finally:
            feed.flushing -= 1

    def _flush_round(self, timeout: float) -> None:
        if self.direct and not self._away.thread and not self._away.reports.count:
            self.native.flush(timeout)
            self.feed.serve(0)
            if len(self.native):  # events, which flush() does not serve once all reports are
                self.native.poll(0)
            if self.news.changed:
                self._mind(time.monotonic())
            return
        if not self._wait(0) and timeout > 0:
            if self.feed.busy or not len(self.native) or self.feed.alone:
                self._wait(min(timeout, _SLICE))
            else:
                self.native.flush(min(timeout, _SLICE))

    def serve(self, call: Callable[..., Any], *args: Any) -> Any:
        """Run a native call that may run callbacks on this thread."""
        self.refuse_in_callback(getattr(call, "__name__", "this method"))
        result, error, _ = self._attempt(call, *args)
        if error is not None:
            raise error
        return result

    def _attempt(self, call: Callable[..., Any], *args: Any) -> tuple[Any, BaseException | None, bool]:
        """(result, what to raise, whether a callback raised it)."""
        thread = get_ident()
        self._serving.add(thread)
        try:
            return call(*args), None, False
        except:  # noqa: E722 - a pending fatal error can be a KafkaError, which is no BaseException
            return None, *self._noted(sys.exc_info()[1])
        finally:
            self._serving.discard(thread)

    def refuse_in_callback(self, method: str) -> None:
        """Raise CallbackReentryError when the calling thread is inside a callback."""
        if self.in_callback:
            raise CallbackReentryError(
                f"{method}() was called inside a callback, where it could never finish. Return from the callback and "
                f"call it outside"
            )

    def _inside_callback(self, method: str, answer: int) -> int:
        if not self._warned_reentry:
            self._warned_reentry = True
            warnings.warn(
                f"{method}() was called inside a callback: it serves nothing there and returned {answer}. "
                f"Return from the callback; the poll() or flush() that runs it serves the rest",
                RuntimeWarning,
                stacklevel=4,
            )
        return answer

    @property
    def natives(self) -> list[Any]:
        """The native producers, the one that was swapped for an Unusable excepted."""
        return [self.native, *(lane.native for lane in self.feed.lanes if lane.native is not self.native)]

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """As stock's, over the records here and in all lanes."""
        self.feed.purge(in_queue, in_flight, blocking)
        self.native.purge(in_queue, in_flight, blocking)

    def stop_threads(self, timeout: float | None) -> None:
        """End the threads of this producer; wait for them up to `timeout` seconds, not at all if that is None."""
        if self.state == "forked":  # there are none in the child, and they may have held locks when it was made
            return
        helpers: tuple[Watchdog | Metadata | Windows | FirstQuestion, ...] = (
            self.watchdog,
            self.windows,
            self.metadata,
            self.first_question,
        )
        for helper in helpers:
            helper.stop()
        if timeout is not None:
            for helper in helpers:
                helper.join(timeout)

    def close_natives(self) -> None:
        """Close the native producers. A fed lane that still has records reported as unknown is purged of them first."""
        lanes = self.feed.lanes
        if lanes.inside:
            lanes.purge()
            deadline = time.monotonic() + _FAREWELL
            while lanes.inside and time.monotonic() < deadline:
                lanes.serve(_SLICE)
        full = [lane.native for lane in lanes if lane.inside]
        for native in self.natives:
            if not any(native is other for other in full):
                native.close()  # with records in it, it would wait for ever; letting go of it does not

    def settle(self, timeout: float) -> float:
        """Hand over everything that is held, for a commit; how much of `timeout` is left.

        Raises KafkaException whose error demands an abort when records are held for longer than that.
        """
        deadline = time.monotonic() + timeout if timeout >= 0 else NEVER
        feed = self.feed
        feed.flushing += 1
        try:
            while feed.buffer.waiting and (now := time.monotonic()) < deadline:
                self.serve(self._wait, min(_SLICE, deadline - now))
        finally:
            feed.flushing -= 1
        if feed.buffer.waiting:
            raise KafkaException(
                KafkaError(
                    KafkaError._TIMED_OUT,
                    f"{feed.buffer.waiting} record(s) of this transaction are still held back; abort it and try again",
                    retriable=False,
                    txn_requires_abort=True,
                )
            )
        return timeout if timeout < 0 else max(0.0, deadline - time.monotonic())

    # --- errors ----------------------------------------------------------------------------------------------------

    def refusal_of(self, error: Exception) -> Exception:
        """What the application should see when the native hand-over raised `error`."""
        if isinstance(error, BufferError) and not isinstance(error, SafeProducerError):
            return QueueFullError(self.feed.buffer.full())
        return self._fatal_in(error) or error

    def _noted(self, error: Any) -> tuple[BaseException, bool]:
        """(what to raise, whether a callback raised it) for what a serving native call raised."""
        self._ledger.interrupts += 1
        return self._instead_of(error) or error, self._ledger.errors.claim(error)

    def _instead_of(self, error: Any) -> BaseException | None:
        """What to raise instead of what a serving native call raised; None to raise it as it is."""
        if type(error) is SystemError and _LOST_EXCEPTION in str(error):
            # Before Python 3.12 Ctrl-C raises an exception without an instance, and the C client, which keeps only the
            # instance of what a callback raised, forgets it. What other callbacks raise has one by then.
            return KeyboardInterrupt()
        return self._fatal_in(error)

    def _fatal_in(self, error: Any) -> FatalError | None:
        """The FatalError to raise for what a native call raised; notes it. None when it is not fatal."""
        cause = error if isinstance(error, KafkaError) else None
        if isinstance(error, KafkaException) and error.args and isinstance(error.args[0], KafkaError):
            cause = error.args[0]
        if isinstance(error, FatalError) or cause is None or not (cause.fatal() or cause.code() == KafkaError._FATAL):
            return None
        self.events.on_fatal(cause)
        if self.state == "open":
            self.state = "fatal"
            self.send = Unusable(self._fatal_again)
            self.feed.fail_all(KafkaError._FATAL, "Local: Fatal error: it was not sent before the producer failed")
        return self._fatal_again()

    def _fatal_again(self) -> FatalError:
        assert self.events.fatal is not None  # noqa: S101 - set before this is called
        return FatalError(self.events.fatal, self._ledger.outstanding(self.queued)[0])

    def retire(self, state: str, refusal: Callable[[], SafeProducerError]) -> None:
        """Let go of the native producer; from now on every call raises what `refusal` makes."""
        self.state = state
        self.stop_threads(None)
        self.native = self.send = Unusable(refusal)
        self._serving = set()  # a fork inside a callback leaves none in the child


def _hold(lane: weakref.ref[Lane]) -> None:
    # The native producer holds its callbacks, and must not hold the lane by them.
    if (found := lane()) is not None:
        found.hold()


def _lanes_of(lane: weakref.ref[Lane]) -> dict[int, Any]:
    """By number, the lanes that may be asked for metadata."""
    found = lane()
    if found is None or found.state != "open":
        return {}
    lanes: dict[int, Any] = {} if found.feed.alone else {STRAIGHT: found.native}
    lanes.update((fed.number, fed) for fed in found.feed.lanes if not fed.failed)
    return lanes


def _waits_for_id(lane: weakref.ref[Lane]) -> Any:
    """The straight native producer, until what was sent by it first has been answered."""
    found = lane()
    return found.native if found is not None and found.state == "open" and found.holds.warming else None


def _answered_within(lane: weakref.ref[Lane], seconds: float | None) -> None:
    if (found := lane()) is not None:
        if seconds is not None:
            found.holds.guess(seconds)
        found.news.changed = True
        found.watchdog.wake(0.0)


def _heard(lane: weakref.ref[Lane], topic: str, number: int, asked_at: float) -> None:
    if (found := lane()) is not None:
        found.holds.stale.heard(topic, number, asked_at)
        found.news.changed = True


def _is_alive(lane: weakref.ref[Lane]) -> bool:
    return lane() is not None


def _quota_refused(lane: weakref.ref[Lane]) -> None:
    if (found := lane()) is not None:
        found.holds.quota_refused = True
        found.news.changed = True
        found.hold()


def _raise(error: BaseException, _: None) -> NoReturn:
    raise error


def _with_callbacks(config: dict[str, Any], events: ClientEvents, fed: bool) -> dict[str, Any]:
    if fed:
        callbacks = (events.on_fed_error, events.on_fed_throttle, events.on_fed_statistics)
    else:
        callbacks = (events.on_error, events.on_throttle, events.on_statistics)
    return {**config, **dict(zip(("error_cb", "throttle_cb", "stats_cb"), callbacks, strict=True))}


def _discovery(config: dict[str, Any], sleep: Callable[[float], object]) -> Asks:
    # Not before the first question: the admin client takes longer to import than everything else here.
    from safeproducer.kafka.discovery import Discovery  # noqa: PLC0415

    return Discovery(config, sleep)


def _fed_native(settings: Settings, events: ClientEvents, log: LaneLog | None) -> NativeProducer:
    """A fed lane that tells of the cluster by its statistics; with a log that does not tell, one more."""
    delivery = settings.delivery
    if log is None:
        return NativeProducer(_with_callbacks(delivery.fed_lane(settings.lane), events, fed=True))
    log.application = settings.lane.get("logger")
    config = delivery.told_lane(settings.lane) if log.tells else delivery.more_lanes(settings.lane)
    return NativeProducer({**_with_callbacks(config, events, fed=True), "logger": log})
