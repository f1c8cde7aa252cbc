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
from typing import Any

from safeproducer.config import Settings
from safeproducer.errors import CallbackReentryError, FatalError, QueueFullError, SafeProducerError
from safeproducer.hooks import Hooks
from safeproducer.kafka.native import KafkaError, KafkaException
from safeproducer.pipeline import stack
from safeproducer.pipeline.aside import aside
from safeproducer.pipeline.events import ClientEvents
from safeproducer.pipeline.failures import Failures
from safeproducer.pipeline.fed_lane import FedLane
from safeproducer.pipeline.feed import Feed
from safeproducer.pipeline.first_question import FirstQuestion
from safeproducer.pipeline.lanes import Lanes
from safeproducer.pipeline.ledger import Ledger
from safeproducer.pipeline.let_go import LetGo
from safeproducer.pipeline.metadata import Metadata
from safeproducer.pipeline.natives import discovery, fed_native, first_native
from safeproducer.pipeline.news import ClientNews
from safeproducer.pipeline.notices import Notices
from safeproducer.pipeline.observed import ObservedSend
from safeproducer.pipeline.refusals import Refusals
from safeproducer.pipeline.report_numbers import ReportNumbers
from safeproducer.pipeline.sender import Sender, get_ident
from safeproducer.pipeline.stale_leaders import STRAIGHT
from safeproducer.pipeline.straight_deadline import StraightDeadline
from safeproducer.pipeline.told_statistics import Elsewhere
from safeproducer.pipeline.unusable import Unusable
from safeproducer.pipeline.windows import REFRESH, Windows
from safeproducer.policy.never import NEVER
from safeproducer.records import ProducerInfo

RECORD_EVENTS = ("record_accepted", "record_refused", "record_resolved")
NO_TIMEOUT = -1.0
_FEW_EVENTS = 4
_SLICE = 0.01
"""How long to wait on the straight lane while the others have records, too."""
_LONG_SLICE = 0.05
"""While they have none, and can only tell of events; and on them, while another thread may use the straight one."""
_ROUND_UP = 0.00099
"""The client counts in whole milliseconds and drops the rest: another round for nothing."""
_PRESENT = 0.01
"""An application that served within this time is there, and the sender leaves the serving to it."""
_ABSENT = 0.1
_AFTER_ERROR = 0.1
_LINGER_OFF = 0.4
"""Seconds for which a round of flush() switches linger off: longer than the round."""
_LAST_TURN = 0.1
"""Seconds that the end of the interpreter waits for the sender."""
_LET_GO_EVERY = 0.5
_NOTED, _TURN = 0.05, 0.001
_FATAL_COMES = 0.1
_PURGE_PATIENCE = 1.0
"""Seconds that close() waits for the next report after a purge."""
_FLUSH_ROUND = 0.15  # below the 0.2 s from which the native call splits the wait itself
_LOST_EXIT = "exception <class 'int'> is not a BaseException subclass"
_LOST_EXCEPTION = "returned NULL without setting an exception"


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
        self._renew = settings.renew
        self._away = ledger.away
        self._serving: set[int] = set()
        """Threads inside a call that serves."""
        self._barred: set[int] = set()
        """Those of them whose call interrupted a native call that is in the middle of a callback: it is not called."""
        self._served_at = self._seen_at = 0.0
        self._polls = self._polls_seen = 0
        self._told_turns: set[str] = set()
        self._failed_then, self._fatal_told = 0, False
        """Whether a poll() or flush() has raised the fatal error that the sender met."""
        self._let_go_at, self._let_go_accepted = 0.0, 0
        self._warned_reentry = False
        self.failures = failures
        self.sender = Sender(self)
        self.notices = Notices(self.sender.is_this_thread)
        self.news = ClientNews(settings, failures, ledger)
        this = weakref.ref(self)
        elsewhere = partial(_elsewhere, this)
        self.events = ClientEvents(
            info, hooks, settings, ledger.errors, ledger.away, self.news, self.notices, elsewhere
        )
        self.state = "open"
        self.holds = self.news.holds
        held = delivery.mode == "held"
        native = first_native(settings, self.events)
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
        make = partial(fed_native, settings, self.events) if delivery.feeds else None
        numbers = ReportNumbers()
        lanes = Lanes(make, delivery.lanes, delivery.spreads, self._away.reports, numbers, self.events.on_lane_not_made)
        if held:
            lanes.adopt(native)
        self.metadata = Metadata(
            partial(_lanes_of, this),
            self.holds.partitions.learn,
            partial(_heard, this),
            self.sender.wake,
            self.events.on_trouble,
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
            partial(discovery, settings.lane),
            self.events.on_window,
            self.sender.wake,
            partial(_is_alive, this),
            self.events.on_trouble,
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
            self.sender.wake,
            self.events.on_limited,
            refusals,
            numbers,
            self.news.sent_once,
        )
        self.feed.met_fatal = partial(_met_fatal, this)
        self._straight_deadline = StraightDeadline(delivery, self.feed, self.news, self._away, self.failures)
        self.direct = self._going = False
        self.send: Callable[..., Any]
        self._go(straight=not delivery.feeds)
        self.news.hold = partial(_hold, this)

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
        if self.state == "closed":  # meanwhile
            self.send = self.native

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
        """Whether the calling thread is inside a callback that this lane runs; a signal handler is none."""
        return get_ident() in self._serving and stack.in_callback()

    @property
    def inside(self) -> bool:
        """Whether the calling code, a signal handler, interrupted a call of this lane."""
        return get_ident() in self._serving

    @stack.calls_natively
    def poll(self, timeout: float) -> int:
        # What serve() does, inline: many applications poll after each record.
        thread = get_ident()
        serving = self._serving
        if thread in serving:
            return self._poll_inside(timeout)
        try:
            serving.add(thread)
            self._polls += 1
            started = time.monotonic() if timeout > 0 else 0.0
            if self.direct and not self._away.thread and not self._away.reports:
                unseen = self.events.unseen
                before = unseen.get(thread, 0)
                served: int = self.native.poll(timeout)
                if self.news.changed:
                    self.sender.wake(0.0)
                if not (hidden := unseen.get(thread, 0) - before):
                    return served
                served -= hidden
                if served > 0 or timeout == 0:
                    return served
                if timeout > 0:
                    timeout = max(0.0, started + timeout - time.monotonic())
            return self._wait(timeout)
        except:  # noqa: E722 - as in _attempt()
            error = self._noted(sys.exc_info()[1])[0]
        finally:
            serving.discard(thread)
        try:
            raise error
        finally:
            del error  # it refers to this frame

    def _poll_inside(self, timeout: float) -> int:
        """A poll() inside another call of this thread: a signal handler's serves, a callback's answers at once."""
        if stack.in_callback():
            return self._inside_callback("poll", 0)
        served, error, _ = self._attempt(self._wait, timeout)
        if error is not None:
            raise error
        return int(served)

    def _wait(self, timeout: float) -> int:
        """Serve the straight lane and the reports kept here for up to `timeout` seconds, until something was served."""
        if self.state not in ("open", "fatal"):
            self.native.poll(timeout)  # raises
        end = time.monotonic() + timeout if timeout >= 0 else NEVER
        if self.news.changed:
            self.sender.wake(0.0)
        self.sender.let_work()
        try:
            while True:
                served = self._serve_now()
                left = end - time.monotonic()
                if served or left <= 0 or self.state not in ("open", "fatal"):
                    return served
                if served := self._wait_once(left):
                    return served
        finally:
            self._served_at = time.monotonic()

    @property
    def _serves_straight(self) -> bool:
        """Whether the calling thread may serve the straight lane now."""
        return not (self.feed.alone or self._away.thread or (self._barred and get_ident() in self._barred))

    def _serve_now(self) -> int:
        """Run callbacks: first those that wait here, the sender may have taken some out of the straight lane."""
        served = self.feed.run_reports() if self._away.reports else 0
        if self._serves_straight and len(self.native):  # records and events: to ask costs less than to serve nothing
            served += self._poll_native(0)
        if self.news.changed:
            self.sender.wake(0.0)
        return served

    def _wait_once(self, left: float) -> int:
        """Wait where the next answer is likely to come, not longer than `left`; how much was served meanwhile."""
        feed = self.feed
        if feed.alone:
            self.sender.wait(left)
            return 0
        straight = self._serves_straight and (self.direct or len(self.native))
        if not straight:
            self.sender.wait(min(left, _LONG_SLICE))
            return 0
        # The sender rings for what it has; here nobody hears it.
        busy = feed.busy or self._away.reports or not self.direct
        return self._poll_native(min(left, _SLICE if busy else _LONG_SLICE) + _ROUND_UP)

    @stack.calls_natively
    def _poll_native(self, timeout: float) -> int:
        """Serve it; how much of what it served poll() counts."""
        unseen, thread = self.events.unseen, get_ident()
        before = unseen.get(thread, 0)
        served: int = self.native.poll(timeout)
        return served - (unseen.get(thread, 0) - before)

    # --- the sender's thread ---------------------------------------------------------------------------------------

    def _mind(self, now: float) -> None:
        """Act on what was heard: hold, hand over, time out, go straight again."""
        feed, holds = self.feed, self.holds
        self.news.read_arrived()
        waiting = feed.waiting
        self.news.catch_up(waiting)
        if holds.warming and holds.warms(self._ledger.resolved + self._away.reports.count, len(self.native)):
            self.news.changed = True
        if holds.pacing or (holds.far and not holds.fed_ready):
            holds.fed_ready = holds.fed_ready or feed.lanes.acquired
            if holds.paces(len(self.native), now):
                self.news.changed = True
        if self.news.rushes(waiting, now):
            self.news.changed = True
        if self.news.changed:
            self.news.changed = False
            self.news.measure(now)
            self._look_for_splits()
            if holds.far:
                feed.lanes.prepare()
            if not holds.warming and not len(self.native):
                feed.forget_refusals()
            feed.recheck(now)
        elif feed.rechecks or holds.throttle_changed():
            feed.recheck(now)
        feed.pump_if_due(now)
        if self._delivery.mode == "auto" and self._delivery.feeds:
            if self._delivery.owns_timeout:
                self._straight_deadline.mind(now, self.hold, self.native.purge)
            self._choose_way(now)

    def _choose_way(self, now: float) -> None:
        # Reports that wait here take room that the native producer does not know of.
        straight = not (self.holds.any(now) or self.feed.rechecks or self._away.reports) and self.feed.empty
        if (straight is not self.direct or self._going) and self.state == "open":
            self._go(straight)
            if straight and self.feed.rechecks:  # a throttle time was announced meanwhile
                self._go(straight=False)

    def hold(self) -> None:
        """Send nothing straight from now on until the sender has looked, not even what a callback produces next.

        Runs inside a native call, so it makes none.
        """
        self.feed.rechecks = True
        if self.direct and self.state == "open":
            if self.sender.is_this_thread():
                self._go(straight=False)
            else:  # the sender does the rest: two threads would undo each other's steps
                self._going = True
                self.direct = False
                if self.observed is None:
                    self.send = self.feed.send
                else:
                    self.observed.send = self.feed.send
        self.sender.wake(0.0)

    def _look_for_splits(self) -> None:
        statistics = self.news.take_fed(self.feed.alone)
        if statistics is not None and (found := self.feed.lanes.observe(statistics)):
            self.events.on_split(found)

    def tend(self, now: float) -> float:
        """For the sender: do what is due, serve when the application does not; when to come again."""
        if self.state not in ("open", "fatal"):
            return NEVER
        try:
            return self._turn(now)
        except:  # noqa: E722 - as in _attempt()
            raised: Any = sys.exc_info()[1]
            error = self._instead_of(raised) or raised
        if self.state not in ("open", "fatal"):  # retired in the middle of it
            return NEVER
        if isinstance(error, FatalError):
            self._away.reports.add_event(self._raise_fatal, error, None)  # for the application's next poll()
        elif (kind := f"{type(error).__name__}: {error}") not in self._told_turns:
            self._told_turns.add(kind)
            self.notices.tell(self.events.on_turn_failed, error)
        return now + _AFTER_ERROR

    def near(self, now: float) -> tuple[FedLane, float] | None:
        """For the sender: the lane whose answer may come at any moment, and how long to wait for it."""
        return self.feed.lanes.near(now) if self.state in ("open", "fatal") else None

    def _turn(self, now: float) -> float:
        feed = self.feed
        again = self.first_question.look(feed.any_topic, now) if self.holds.warming else NEVER
        self._tend_lanes(now)
        if (topic := feed.any_topic) is not None and feed.lanes.ask_for_ids(topic, now):
            again = min(again, now + _PRESENT)
        feed.find_unrung(now)
        feed.serve()
        present = self._is_present(now)
        if not present:
            self._serve_for_the_absent()
        now = time.monotonic()
        self._mind(now)
        if now >= self._let_go_at:
            self._let_go(now)
        due = min(again, feed.alarm.at, feed.lanes.next_look(now))
        if self._expects or (feed.alone and not present):
            return min(due, now + _ABSENT)
        return due

    @property
    def _expects(self) -> bool:
        """Whether a report or an event may come; to count them, as `queued` does, takes long with many lanes."""
        return self.feed.expects or bool(self._away.reports) or bool(not self.feed.alone and len(self.native))

    def _let_go(self, now: float) -> None:
        """For an application that only polls. What is destroyed then may call this producer: not on this thread."""
        self._let_go_at = now + _LET_GO_EVERY
        accepted = self._ledger.accepted
        if accepted != self._let_go_accepted and not self.queued:
            self._let_go_accepted = accepted
            self.notices.tell(self.let_go_of_callbacks)

    def _is_present(self, now: float) -> bool:
        """Whether the application serves, so that its callbacks come when it expects them."""
        if self._polls != self._polls_seen:
            self._polls_seen, self._seen_at = self._polls, now
        busy = self._serving - self._barred
        return bool(busy) or (not self._barred and now - max(self._seen_at, self._served_at) < _PRESENT)

    @stack.calls_natively
    def _serve_for_the_absent(self) -> None:
        """Take the straight lane's reports, so that it has room, and until half of ours is used up."""
        if self.feed.alone or not len(self.native):
            return
        limit = self._delivery.buffer_bytes
        if limit is not None and self._away.bytes > limit / 2:
            return
        if self.direct and self.state == "open":
            self._go(straight=False)  # its room is not the producer's any more
        self._away.serve_on(get_ident())
        try:
            if not self._serving - self._barred:
                self.native.poll(0)
        finally:
            self._away.serve_on(0)

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
        if lanes.first is not None and self.state in ("open", "fatal"):
            self.native = lanes.first.native

    def _grow(self) -> None:
        lanes = self.feed.lanes
        before = len(lanes)
        if lanes.grow():
            self.failures.many_lanes = True
            self.events.on_lanes(before, len(lanes), "batches were ready and waited only for a lane")

    def listen_once(self) -> None:
        """Take the reports that have arrived, for the last account: no callback runs, and nothing is waited for."""
        if self.in_callback:
            return
        self.sender.stop()
        self._away.end(True)
        try:
            if not self.feed.alone:
                self.native.poll(0)
            if self.sender.join(_LAST_TURN):
                self.feed.serve()
        except:  # noqa: E722, S110 - as in _attempt(); what it raises concerns nobody any more
            pass
        finally:
            self._away.end(False)
            self.sender.allow()  # what the application registered for the exit before it imported this comes later

    def flush(self, timeout: float) -> int:
        if self.in_callback:
            return self._inside_callback("flush", self.queued)
        left, raised = self.drain(timeout)
        self.let_go_of_callbacks()
        if raised is not None:
            raise raised
        return left

    def let_go_of_callbacks(self) -> None:
        """Refer to no callback whose records all have their reports. Those under way refer to their own.

        The ledger's reference is the last: what the application has to destroy then is destroyed with no lock held.
        """
        self.feed.let_go_of_reports()
        deadline = time.monotonic() + _NOTED
        while self.sender.alive and self.feed.numbers.reports and time.monotonic() < deadline:
            if self.feed.buffer.records:
                break
            self.sender.wait(_TURN)  # batches refer to callbacks until the sender has taken note of their end
        self._ledger.let_go_of_callbacks()

    def drain(self, timeout: float) -> tuple[int, Exception | None]:
        """(records left, the last exception a callback raised), after a flush of up to `timeout` seconds.

        Stock serves on when a callback raises, and raises at the end. So does this, but in short native calls: inside a
        long one the C client keeps an exception to itself until the end, Ctrl-C included when it lands in a callback.
        """
        deadline = time.monotonic() + timeout if timeout >= 0 else None
        raised: Exception | None = None
        feed = self.feed
        if not feed.buffer.records and self.state == "open":
            return 0, None  # events are for poll(), as in stock
        since = time.monotonic() if self.inside and stack.in_native_callback() else NEVER
        while True:
            feed.flush_until = time.monotonic() + _LINGER_OFF
            feed.alarm.hurry()
            self.sender.wake(0.0)
            remaining = _FLUSH_ROUND if deadline is None else max(0.0, deadline - time.monotonic())
            _, error, from_callback = self._attempt(self._flush_round, min(remaining, _FLUSH_ROUND))
            if error is not None:
                if not isinstance(error, Exception) or not (from_callback or isinstance(error, FatalError)):
                    raise error
                raised = error
                self._fatal_told = self._fatal_told or isinstance(error, FatalError)
            left = feed.buffer.records if feed.alone else self.queued
            if get_ident() in feed.buffer.running:  # a signal handler's flush(): its thread runs that report itself
                left -= 1
            if left <= 0 or remaining == 0.0 or self._all_acknowledged(since):
                feed.flush_until = 0.0  # another thread's flush() sets it again in its next round
                return max(0, left), self._fatal_meanwhile() or raised

    def _fatal_meanwhile(self) -> Exception | None:
        """The fatal error that the sender has met and nobody was told of, for the flush() that it ended."""
        failed = self.failures.not_written + self.failures.unknown
        if self.sender.alive and failed != self._failed_then and self.state == "open":
            self._failed_then = failed
            looks_end = time.monotonic() + (_FATAL_COMES if self.feed.alone else 0.0)
            while True:  # a fatal error may be why they failed, and the sender may be about to note it
                self._attempt(self.sender.run, self.feed.look_everywhere)
                if self.state != "open" or time.monotonic() >= looks_end:
                    break
                self.sender.wait(_TURN)
        if self.state != "fatal" or self._fatal_told:
            return None
        self._fatal_told = True
        return self._fatal_again()

    def _raise_fatal(self, error: FatalError, _: None) -> None:
        if not self._fatal_told:
            self._fatal_told = True
            raise error

    def _all_acknowledged(self, since: float) -> bool:
        """Whether what is left waits only for the callback to return that a signal handler has interrupted.

        Told by statistics of the straight lane from after `since`: librdkafka has given those reports away.
        """
        if self.news.observed_at <= since or self.holds.backlogs.waiting():
            return False
        return self.feed.empty and not self.feed.lanes.inside and not self._away.reports

    @stack.calls_natively
    def _flush_round(self, timeout: float) -> None:
        if self._serves_straight and self.direct and not self._away.reports:
            self.native.flush(timeout)
            if len(self.native):  # events, which flush() does not serve once all reports are
                self.native.poll(0)
            if self.news.changed:
                self.sender.wake(0.0)
            if timeout > 0 and self.feed.lanes.events:
                self.sender.wait(min(timeout, _SLICE))
        elif not self._wait(0) and timeout > 0:
            if self._serves_straight and len(self.native):
                self.native.flush(min(timeout, _SLICE))
            else:
                self._wait(timeout)

    def serve(self, call: Callable[..., Any], *args: Any) -> Any:
        """Run a native call that may run callbacks on this thread."""
        self.refuse_in_callback(getattr(call, "__name__", "this method"))
        result, error, _ = self._attempt(call, *args)
        if error is not None:
            raise error
        return result

    def _attempt(self, call: Callable[..., Any], *args: Any) -> tuple[Any, BaseException | None, bool]:
        """(result, what to raise, whether a callback raised it)."""
        thread, serving = get_ident(), self._serving
        fresh = thread not in serving
        barred = not fresh and thread not in self._barred and stack.in_native_callback()
        try:
            serving.add(thread)
            if barred:
                self._barred.add(thread)
                self.sender.wake(0.0)  # it serves in place of this thread
            return call(*args), None, False
        except:  # noqa: E722 - a pending fatal error can be a KafkaError, which is no BaseException
            return None, *self._noted(sys.exc_info()[1])
        finally:
            if barred:
                self._barred.discard(thread)
            if fresh:
                serving.discard(thread)

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

    def ask(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Make a native call that may come from inside another one, in a callback or a signal handler."""
        return aside(call, *args, **kwargs) if self.inside else call(*args, **kwargs)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Everything that connects uses these from its next connection on, what is made later as well."""
        self.ask(self.native.set_sasl_credentials, username, password)  # first: it raises for what is no text
        self._renew({"sasl.username": username, "sasl.password": password})
        self.feed.lanes.set_sasl_credentials(username, password)
        self.windows.set_sasl_credentials(username, password)

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """As stock's, over the records here and in all lanes."""
        usable = self.state in ("open", "fatal")
        if not (self.feed.alone and usable):  # else it is one of the lanes
            self.native.purge(in_queue, in_flight, blocking)
        if usable:
            self.sender.run(partial(self.feed.purge, in_queue, in_flight, blocking))

    def drain_purged(self) -> Exception | None:
        """Run what a purge reports, for as long as reports come; the last exception that a callback raised."""
        last: Exception | None = None
        while True:
            before = self._ledger.resolved
            left, raised = self.drain(_PURGE_PATIENCE)
            last = raised or last
            if not left or self._ledger.resolved == before:
                return last

    def stop_threads(self, timeout: float | None) -> bool:
        """End the threads of this producer; wait for them up to `timeout` seconds, not at all if that is None.

        Whether they have ended by then.
        """
        if self.state == "forked":  # there are none in the child, and they may have held locks when it was made
            return True
        helpers: tuple[Sender | Metadata | Windows | FirstQuestion, ...] = (
            self.sender,
            self.windows,
            self.metadata,
            self.first_question,
        )
        for helper in helpers:
            helper.stop()
        if timeout is None:
            return False
        deadline = time.monotonic() + timeout
        for helper in helpers:
            helper.join(max(0.0, deadline - time.monotonic()))
        return time.monotonic() < deadline

    def settle(self, timeout: float, unproven: int) -> tuple[float, Exception | None]:
        """Wait for all reports, for a commit; (how much of `timeout` is left, what a callback raised).

        Raises KafkaException whose error demands an abort when a record was not acknowledged though librdkafka takes it
        for delivered, and would commit without it: `unproven` is how many of them there were when it began.
        """
        started = time.monotonic()
        _, raised = self.drain(timeout)
        if (missing := self.failures.unproven - unproven) > 0:
            raise KafkaException(
                KafkaError(
                    KafkaError._INCONSISTENT,
                    f"{missing} record(s) of this transaction were not acknowledged by any broker (see their delivery "
                    f"reports). Call abort_transaction() and produce the records again in a new transaction",
                    retriable=False,
                    txn_requires_abort=True,
                )
            )
        return timeout if timeout < 0 else max(0.0, timeout - (time.monotonic() - started)), raised

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
        if type(error) is SystemError:
            # Before Python 3.12 a signal handler's exception may have no instance yet, and the C client keeps only
            # that: of Ctrl-C's nothing is left, of sys.exit(0) the number's type. Which number it was, nobody knows.
            if _LOST_EXCEPTION in str(error):
                return KeyboardInterrupt()
            if _LOST_EXIT in str(error):
                return SystemExit(0)
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
            self.feed.failing = (KafkaError._FATAL, "Local: Fatal error: it was not sent before the producer failed")
            self.feed.alarm.hurry()
            self.sender.wake(0.0)
        return self._fatal_again()

    def _fatal_again(self) -> FatalError:
        assert self.events.fatal is not None  # noqa: S101 - set before this is called
        return FatalError(self.events.fatal, self._ledger.outstanding(self.queued)[0])

    def let_go(self, closes: bool) -> LetGo:
        """What close() is to end once it has retired the lane; `closes`: by closing the native producers, too."""
        return LetGo(self.feed.lanes, self.native, self._serving, closes)

    def retire(self, state: str, refusal: Callable[[], SafeProducerError]) -> None:
        """Let go of the native producers; from now on every call raises what `refusal` makes.

        One step: a signal handler that raises finds the lane as it was, or retired.
        """
        unusable = Unusable(refusal)
        serving: set[int] = set()
        barred: set[int] = set()  # a fork inside a callback leaves none in the child
        self.state = state
        self.feed.retired = refusal
        self.native = self.send = unusable
        self._serving, self._barred = serving, barred


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
        found.sender.wake(0.0)


def _heard(lane: weakref.ref[Lane], topic: str, number: int, asked_at: float) -> None:
    if (found := lane()) is not None:
        found.holds.stale.heard(topic, number, asked_at)
        found.news.changed = True


def _met_fatal(lane: weakref.ref[Lane], error: KafkaError) -> None:
    if (found := lane()) is not None:
        found._fatal_in(error)


def _is_alive(lane: weakref.ref[Lane]) -> bool:
    return lane() is not None


def _quota_refused(lane: weakref.ref[Lane]) -> None:
    if (found := lane()) is not None:
        found.holds.quota_refused = True
        found.news.changed = True
        found.hold()


def _elsewhere(lane: weakref.ref[Lane]) -> Elsewhere:
    """What is not in the straight lane: records, bytes, and by partition those that are in no native producer."""
    if (found := lane()) is None or found.state not in ("open", "fatal"):
        return 0, 0, {}
    buffer, lanes = found.feed.buffer, found.feed.lanes
    records = buffer.waiting + lanes.records + found.feed.reports.count
    return records, buffer.waiting_bytes + lanes.bytes, found.feed.held()
