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
from safeproducer.pipeline.batch_lane import BatchLane
from safeproducer.pipeline.delivery_counters import DeliveryCounters
from safeproducer.pipeline.direct_deadline import DirectDeadline
from safeproducer.pipeline.dispatcher import Dispatcher
from safeproducer.pipeline.events import ClientEvents
from safeproducer.pipeline.failures import Failures
from safeproducer.pipeline.first_question import FirstQuestion
from safeproducer.pipeline.lane_pool import LanePool
from safeproducer.pipeline.metadata import Metadata
from safeproducer.pipeline.natives import batch_native, discovery, first_native
from safeproducer.pipeline.notices import Notices
from safeproducer.pipeline.observed import ObservedSend
from safeproducer.pipeline.outdated_leaders import DIRECT
from safeproducer.pipeline.quota_rejections import QuotaRejections
from safeproducer.pipeline.release import Release
from safeproducer.pipeline.report_numbers import ReportNumbers
from safeproducer.pipeline.sender import Sender, get_ident
from safeproducer.pipeline.told_statistics import Elsewhere
from safeproducer.pipeline.unusable import Unusable
from safeproducer.pipeline.updates import ClientUpdates
from safeproducer.pipeline.windows import REFRESH, Windows
from safeproducer.policy.never import NEVER
from safeproducer.records import ProducerInfo

RECORD_EVENTS = ("record_accepted", "record_refused", "record_resolved")
NO_TIMEOUT = -1.0
_FEW_EVENTS = 4
_SLICE = 0.01
"""How long to wait on the direct lane while the others have records, too."""
_LONG_SLICE = 0.05
"""While they have none, and can only tell of events; and on them, while another thread may use the directly one."""
_ROUND_UP = 0.00099
"""The client counts in whole milliseconds and drops the rest: another round for nothing."""
_POLLING = 0.01
"""An application that served within this time is there, and the sender leaves the serving to it."""
_NOT_POLLING = 0.1
_AFTER_ERROR = 0.1
_LINGER_OFF = 0.4
"""Seconds for which a round of flush() switches linger off: longer than the round."""
_LAST_TURN = 0.1
"""Seconds that the end of the interpreter waits for the sender."""
_RELEASE_EVERY = 0.5
_NOTED, _TURN = 0.05, 0.001
_FATAL_COMES = 0.1
_PURGE_PATIENCE = 1.0
"""Seconds that close() waits for the next report after a purge."""
_FLUSH_ROUND = 0.15  # below the 0.2 s from which the native call splits the wait itself
_LOST_EXIT = "exception <class 'int'> is not a BaseException subclass"
_LOST_EXCEPTION = "returned NULL without setting an exception"


class Engine:
    """Owns the native producers of one SafeProducer and decides which way records go. Thread-safe.

    - `send` takes one record: (topic, value, key, partition, report[, None, timestamp, headers]).
    - `native` is the native producer of the direct lane, or the batch lane when everything is held back, or an
      Unusable.
    - `state` is "open", "fatal", "closed" or "forked".
    """

    def __init__(
        self, settings: Settings, info: ProducerInfo, hooks: Hooks, counters: DeliveryCounters, failures: Failures
    ) -> None:
        self._counters = counters
        self._delivery = delivery = settings.delivery
        self._renew = settings.renew
        self._report_queue = counters.report_queue
        self._serving: set[int] = set()
        """Threads inside a call that serves."""
        self._barred: set[int] = set()
        """Those of them whose call interrupted a native call that is in the middle of a callback: it is not called."""
        self._served_at = self._seen_at = 0.0
        self._polls = self._polls_seen = 0
        self._told_turns: set[str] = set()
        self._failed_then, self._fatal_told = 0, False
        """Whether a poll() or flush() has raised the fatal error that the sender met."""
        self._release_at, self._release_accepted = 0.0, 0
        self._warned_reentry = False
        self.failures = failures
        self.sender = Sender(self)
        self.notices = Notices(self.sender.is_this_thread)
        self.updates = ClientUpdates(settings, failures, counters)
        this = weakref.ref(self)
        elsewhere = partial(_elsewhere, this)
        self.events = ClientEvents(
            info, hooks, settings, counters.errors, counters.report_queue, self.updates, self.notices, elsewhere
        )
        self.state = "open"
        self.holds = self.updates.holds
        held = delivery.mode == "held"
        native = first_native(settings, self.events)
        self.observed = (
            ObservedSend(
                native.produce,
                hooks,
                info,
                self.refusal_of,
                self.failures.reported,
                counters.report_queue,
                offset_proves=delivery.idempotent,
            )
            if hooks.wants(*RECORD_EVENTS)
            else None
        )
        self.native: Any = native
        make = partial(batch_native, settings, self.events) if delivery.holds_back else None
        numbers = ReportNumbers()
        lanes = LanePool(
            make, delivery.lanes, delivery.spreads, self._report_queue.reports, numbers, self.events.on_lane_not_made
        )
        if held:
            lanes.adopt(native)
        self.metadata = Metadata(
            partial(_lanes_of, this),
            self.holds.partitions.update,
            partial(_heard, this),
            self.sender.wake,
            self.events.on_trouble,
        )
        self.first_question = FirstQuestion(
            partial(_waits_for_id, this), partial(_answered_within, this), delivery.waits_for_id
        )
        self.holds.cluster.outdated.lanes = partial(_lanes_of, this)
        self.holds.cluster.outdated.ask = self.metadata.tell
        self.windows = Windows(
            delivery.window,
            min(REFRESH, delivery.metadata_refresh / 2),
            partial(discovery, settings.lane),
            self.events.on_window,
            self.sender.wake,
            partial(_is_alive, this),
            self.events.on_trouble,
        )
        self.updates.windows = self.windows
        rejections = QuotaRejections(partial(_quota_rejected, this), numbers)
        if delivery.holds_back:
            self._report_queue.rejections = rejections
        self.dispatcher = Dispatcher(
            delivery,
            self.holds,
            None if held else native,
            lanes,
            self.windows,
            self._report_queue,
            self.failures,
            self.metadata,
            self.sender.wake,
            self.events.on_limited,
            rejections,
            numbers,
            self.updates.sent_once,
        )
        self.dispatcher.met_fatal = partial(_met_fatal, this)
        self._direct_deadline = DirectDeadline(
            delivery, self.dispatcher, self.updates, self._report_queue, self.failures
        )
        self.goes_direct = self._going = False
        self.send: Callable[..., Any]
        self._go(direct=not delivery.holds_back)
        self.updates.hold = partial(_hold, this)

    def _go(self, direct: bool) -> None:
        """Which way the next record goes. Ctrl-C may end this anywhere; then the next _act() does it again."""
        way = self.native.produce if direct else self.dispatcher.send
        leaves_direct_path = self.goes_direct or self._going
        self._going = True
        if leaves_direct_path:
            self.dispatcher.leave_direct_path(NEVER)  # until the last record has gone directly
        self.goes_direct = direct
        if self.observed is None:
            self.send = way
        else:
            self.observed.send = way
            self.send = self.observed
        if leaves_direct_path:
            self.dispatcher.leave_direct_path(time.monotonic())
        self._going = False
        if self.state == "closed":  # meanwhile
            self.send = self.native

    @property
    def queued(self) -> int:
        """Records and events that wait here or in librdkafka."""
        if self.state not in ("open", "fatal"):
            return 0
        count = self.dispatcher.record_buffer.queued
        if 0 < count <= _FEW_EVENTS and not self._serving and not self.events.wanted:
            # Records, or statistics that the application did not ask for? In a callback its own record counts, too.
            if self.dispatcher.alone and not self.dispatcher.record_buffer.records:
                return 0  # as the delivery counters would say, after adding up all partitions
            return count if self._counters.outstanding(count)[0] else 0
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
            if self.goes_direct and not self._report_queue.thread and not self._report_queue.reports:
                unseen = self.events.unseen
                before = unseen.get(thread, 0)
                served: int = self.native.poll(timeout)
                if self.updates.changed:
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
        """Serve the direct lane and the reports kept here for up to `timeout` seconds, until something was served."""
        if self.state not in ("open", "fatal"):
            self.native.poll(timeout)  # raises
        end = time.monotonic() + timeout if timeout >= 0 else NEVER
        if self.updates.changed:
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
    def _serves_direct(self) -> bool:
        """Whether the calling thread may serve the direct lane now."""
        return not (
            self.dispatcher.alone or self._report_queue.thread or (self._barred and get_ident() in self._barred)
        )

    def _serve_now(self) -> int:
        """Run callbacks: first those that wait here, the sender may have taken some out of the direct lane."""
        served = self.dispatcher.run_reports() if self._report_queue.reports else 0
        if self._serves_direct and len(self.native):  # records and events: to ask costs less than to serve nothing
            served += self._poll_native(0)
        if self.updates.changed:
            self.sender.wake(0.0)
        return served

    def _wait_once(self, left: float) -> int:
        """Wait where the next answer is likely to come, not longer than `left`; how much was served meanwhile."""
        dispatcher = self.dispatcher
        if dispatcher.alone:
            self.sender.wait(left)
            return 0
        direct = self._serves_direct and (self.goes_direct or len(self.native))
        if not direct:
            self.sender.wait(min(left, _LONG_SLICE))
            return 0
        # The sender rings for what it has; here nobody hears it.
        busy = dispatcher.busy or self._report_queue.reports or not self.goes_direct
        return self._poll_native(min(left, _SLICE if busy else _LONG_SLICE) + _ROUND_UP)

    @stack.calls_natively
    def _poll_native(self, timeout: float) -> int:
        """Serve it; how much of what it served poll() counts."""
        unseen, thread = self.events.unseen, get_ident()
        before = unseen.get(thread, 0)
        served: int = self.native.poll(timeout)
        return served - (unseen.get(thread, 0) - before)

    # --- the sender's thread ---------------------------------------------------------------------------------------

    def _act(self, now: float) -> None:
        """Act on what was heard: hold, hand over, time out, go directly again."""
        dispatcher, holds = self.dispatcher, self.holds
        self.updates.read_arrived()
        waiting = dispatcher.waiting
        self.updates.catch_up(waiting)
        resolved = self._counters.resolved + self._report_queue.reports.count if holds.slow_start else 0
        if holds.slow_start and holds.ends_slow_start(resolved, len(self.native), self.first_question.open):
            self.updates.changed = True
        if holds.pacing or (holds.round_trip.long and not holds.lanes_ready):
            holds.lanes_ready = holds.lanes_ready or dispatcher.lanes.acquired
            if holds.paces(len(self.native), now):
                self.updates.changed = True
        if holds.round_trip.has_high_rate(waiting, now):
            self.updates.changed = True
        if self.updates.changed:
            self.updates.changed = False
            holds.round_trip.measure(now)
            self._look_for_splits()
            if holds.round_trip.long:
                dispatcher.lanes.prepare()
            if not holds.slow_start and not len(self.native):
                dispatcher.forget_rejections()
            dispatcher.recheck(now)
        elif dispatcher.rechecks or holds.cluster.throttle_changed():
            dispatcher.recheck(now)
        dispatcher.pump_if_due(now)
        if self._delivery.mode == "auto" and self._delivery.holds_back:
            if self._delivery.owns_timeout:
                self._direct_deadline.act(now, self.hold, self.native.purge)
            self._choose_way(now)

    def _choose_way(self, now: float) -> None:
        # Reports that wait here take room that the native producer does not know of.
        direct = (
            not (self.holds.any(now) or self.dispatcher.rechecks or self._report_queue.reports)
            and self.dispatcher.empty
        )
        if (direct is not self.goes_direct or self._going) and self.state == "open":
            self._go(direct)
            if direct and self.dispatcher.rechecks:  # a throttle time was announced meanwhile
                self._go(direct=False)

    def hold(self) -> None:
        """Send nothing directly from now on until the sender has looked, not even what a callback produces next.

        Runs inside a native call, so it makes none.
        """
        self.dispatcher.rechecks = True
        if self.goes_direct and self.state == "open":
            if self.sender.is_this_thread():
                self._go(direct=False)
            else:  # the sender does the rest: two threads would undo each other's steps
                self._going = True
                self.goes_direct = False
                if self.observed is None:
                    self.send = self.dispatcher.send
                else:
                    self.observed.send = self.dispatcher.send
        self.sender.wake(0.0)

    def _look_for_splits(self) -> None:
        statistics = self.updates.take_batch_statistics(self.dispatcher.alone)
        if statistics is not None and (found := self.dispatcher.lanes.observe(statistics)):
            self.events.on_split(found)

    def turn(self, now: float) -> float:
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
            self._report_queue.reports.add_event(self._raise_fatal, error, None)  # for the application's next poll()
        elif (kind := f"{type(error).__name__}: {error}") not in self._told_turns:
            self._told_turns.add(kind)
            self.notices.tell(self.events.on_turn_failed, error)
        return now + _AFTER_ERROR

    def near(self, now: float) -> tuple[BatchLane, float] | None:
        """For the sender: the lane whose answer may come at any moment, and how long to wait for it."""
        return self.dispatcher.lanes.near(now) if self.state in ("open", "fatal") else None

    def _turn(self, now: float) -> float:
        dispatcher = self.dispatcher
        again = self.first_question.look(dispatcher.any_topic, now) if self.holds.slow_start else NEVER
        self._resize_lanes(now)
        if (topic := dispatcher.any_topic) is not None and dispatcher.lanes.ask_for_ids(topic, now):
            again = min(again, now + _POLLING)
        dispatcher.find_unrung(now)
        dispatcher.serve()
        present = self._is_polling(now)
        if not present:
            self._serve_instead()
        now = time.monotonic()
        self._act(now)
        if now >= self._release_at:
            self._release(now)
        due = min(again, dispatcher.alarm.at, dispatcher.lanes.next_look(now))
        if self._expects or (dispatcher.alone and not present):
            return min(due, now + _NOT_POLLING)
        return due

    @property
    def _expects(self) -> bool:
        """Whether a report or an event may come; to count them, as `queued` does, takes long with many lanes."""
        return (
            self.dispatcher.expects
            or bool(self._report_queue.reports)
            or bool(not self.dispatcher.alone and len(self.native))
        )

    def _release(self, now: float) -> None:
        """For an application that only polls. What is destroyed then may call this producer: not on this thread."""
        self._release_at = now + _RELEASE_EVERY
        accepted = self._counters.accepted
        if accepted != self._release_accepted and not self.queued:
            self._release_accepted = accepted
            self.notices.tell(self.release_callbacks)

    def _is_polling(self, now: float) -> bool:
        """Whether the application serves, so that its callbacks come when it expects them."""
        if self._polls != self._polls_seen:
            self._polls_seen, self._seen_at = self._polls, now
        busy = self._serving - self._barred
        return bool(busy) or (not self._barred and now - max(self._seen_at, self._served_at) < _POLLING)

    @stack.calls_natively
    def _serve_instead(self) -> None:
        """Take the direct lane's reports, so that it has room, and until half of ours is used up."""
        if self.dispatcher.alone or not len(self.native):
            return
        limit = self._delivery.buffer_bytes
        if limit is not None and self._report_queue.bytes > limit / 2:
            return
        if self.goes_direct and self.state == "open":
            self._go(direct=False)  # its room is not the producer's any more
        self._report_queue.serve_on(get_ident())
        try:
            if not self._serving - self._barred:
                self.native.poll(0)
        finally:
            self._report_queue.serve_on(0)

    def _resize_lanes(self, now: float) -> None:
        """Make the lanes that are wanted, released those that are not."""
        lanes = self.dispatcher.lanes
        self._grow()
        if (spare := lanes.spare(now)) is None or not self.dispatcher.release(spare):
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
        lanes = self.dispatcher.lanes
        before = len(lanes)
        if lanes.grow():
            self.failures.many_lanes = True
            self.events.on_lanes(before, len(lanes), "batches were ready and waited only for a lane")

    def listen_once(self) -> None:
        """Take the reports that have arrived, for the last account: no callback runs, and nothing is waited for."""
        if self.in_callback:
            return
        self.sender.stop()
        self._report_queue.end(True)
        try:
            if not self.dispatcher.alone:
                self.native.poll(0)
            if self.sender.join(_LAST_TURN):
                self.dispatcher.serve()
        except:  # noqa: E722, S110 - as in _attempt(); what it raises concerns nobody any more
            pass
        finally:
            self._report_queue.end(False)
            self.sender.allow()  # what the application registered for the exit before it imported this comes later

    def flush(self, timeout: float) -> int:
        if self.in_callback:
            return self._inside_callback("flush", self.queued)
        left, raised = self.drain(timeout)
        self.release_callbacks()
        if raised is not None:
            raise raised
        return left

    def release_callbacks(self) -> None:
        """Refer to no callback whose records all have their reports. Those under way refer to their own.

        The delivery counters' reference is the last: what the application has to destroy then is destroyed with no lock
        held.
        """
        self.dispatcher.release_reports()
        deadline = time.monotonic() + _NOTED
        while self.sender.alive and self.dispatcher.numbers.reports and time.monotonic() < deadline:
            if self.dispatcher.record_buffer.records:
                break
            self.sender.wait(_TURN)  # batches refer to callbacks until the sender has taken note of their end
        self._counters.release_callbacks()

    def drain(self, timeout: float) -> tuple[int, Exception | None]:
        """(records left, the last exception a callback raised), after a flush of up to `timeout` seconds.

        confluent_kafka serves on when a callback raises, and raises at the end. So does this, but in short native
        calls: inside a long one the C client keeps an exception to itself until the end, Ctrl-C included when it lands
        in a callback.
        """
        deadline = time.monotonic() + timeout if timeout >= 0 else None
        raised: Exception | None = None
        dispatcher = self.dispatcher
        if not dispatcher.record_buffer.records and self.state == "open":
            return 0, None  # events are for poll(), as in confluent_kafka
        since = time.monotonic() if self.inside and stack.in_native_callback() else NEVER
        while True:
            dispatcher.flush_until = time.monotonic() + _LINGER_OFF
            dispatcher.alarm.hurry()
            self.sender.wake(0.0)
            remaining = _FLUSH_ROUND if deadline is None else max(0.0, deadline - time.monotonic())
            _, error, from_callback = self._attempt(self._flush_round, min(remaining, _FLUSH_ROUND))
            if error is not None:
                if not isinstance(error, Exception) or not (from_callback or isinstance(error, FatalError)):
                    raise error
                raised = error
                self._fatal_told = self._fatal_told or isinstance(error, FatalError)
            left = dispatcher.record_buffer.records if dispatcher.alone else self.queued
            if (
                get_ident() in dispatcher.record_buffer.running
            ):  # a signal handler's flush(): its thread runs that report itself
                left -= 1
            if left <= 0 or remaining == 0.0 or self._all_acknowledged(since):
                dispatcher.flush_until = 0.0  # another thread's flush() sets it again in its next round
                return max(0, left), self._fatal_meanwhile() or raised

    def _fatal_meanwhile(self) -> Exception | None:
        """The fatal error that the sender has met and nobody was told of, for the flush() that it ended."""
        failed = self.failures.not_written + self.failures.unknown
        if self.sender.alive and failed != self._failed_then and self.state == "open":
            self._failed_then = failed
            looks_end = time.monotonic() + (_FATAL_COMES if self.dispatcher.alone else 0.0)
            while True:  # a fatal error may be why they failed, and the sender may be about to note it
                self._attempt(self.sender.run, self.dispatcher.look_everywhere)
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

        Told by statistics of the direct lane from after `since`: librdkafka has given those reports away.
        """
        if self.updates.observed_at <= since or self.holds.backlogs.waiting():
            return False
        return self.dispatcher.empty and not self.dispatcher.lanes.inside and not self._report_queue.reports

    @stack.calls_natively
    def _flush_round(self, timeout: float) -> None:
        if self._serves_direct and self.goes_direct and not self._report_queue.reports:
            self.native.flush(timeout)
            if len(self.native):  # events, which flush() does not serve once all reports are
                self.native.poll(0)
            if self.updates.changed:
                self.sender.wake(0.0)
            if timeout > 0 and self.dispatcher.lanes.events:
                self.sender.wait(min(timeout, _SLICE))
        elif not self._wait(0) and timeout > 0:
            if self._serves_direct and len(self.native):
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
        return [self.native, *(lane.native for lane in self.dispatcher.lanes if lane.native is not self.native)]

    def ask(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Make a native call that may come from inside another one, in a callback or a signal handler."""
        return aside(call, *args, **kwargs) if self.inside else call(*args, **kwargs)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Everything that connects uses these from its next connection on, what is made later as well."""
        self.ask(self.native.set_sasl_credentials, username, password)  # first: it raises for what is no text
        self._renew({"sasl.username": username, "sasl.password": password})
        self.dispatcher.lanes.set_sasl_credentials(username, password)
        self.windows.set_sasl_credentials(username, password)

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """As confluent_kafka's, over the records here and in all lanes."""
        usable = self.state in ("open", "fatal")
        if not (self.dispatcher.alone and usable):  # else it is one of the lanes
            self.native.purge(in_queue, in_flight, blocking)
        if usable:
            self.sender.run(partial(self.dispatcher.purge, in_queue, in_flight, blocking))

    def drain_purged(self) -> Exception | None:
        """Run what a purge reports, for as long as reports come; the last exception that a callback raised."""
        last: Exception | None = None
        while True:
            before = self._counters.resolved
            left, raised = self.drain(_PURGE_PATIENCE)
            last = raised or last
            if not left or self._counters.resolved == before:
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

    def settle(self, timeout: float, without_offset: int) -> tuple[float, Exception | None]:
        """Wait for all reports, for a commit; (how much of `timeout` is left, what a callback raised).

        Raises KafkaException whose error demands an abort when a record was not acknowledged though librdkafka takes it
        for delivered, and would commit without it: `unproven` is how many of them there were when it began.
        """
        started = time.monotonic()
        _, raised = self.drain(timeout)
        if (missing := self.failures.without_offset - without_offset) > 0:
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
        """What the application should see when the native produce() raised `error`."""
        if isinstance(error, BufferError) and not isinstance(error, SafeProducerError):
            return QueueFullError(self.dispatcher.record_buffer.full())
        return self._fatal_in(error) or error

    def _noted(self, error: Any) -> tuple[BaseException, bool]:
        """(what to raise, whether a callback raised it) for what a serving native call raised."""
        self._counters.interrupts += 1
        return self._instead_of(error) or error, self._counters.errors.claim(error)

    def _instead_of(self, error: Any) -> BaseException | None:
        """What to raise instead of what a serving native call raised; None to raise it as it is."""
        if type(error) is SystemError:
            # Before Python 3.12 a signal handler's exception may have no instance yet, and the C client keeps only
            # that: of Ctrl-C's nothing is left, of sys.exit(0) the number's type. Which number it was is not known.
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
            self.dispatcher.failing = (
                KafkaError._FATAL,
                "Local: Fatal error: it was not sent before the producer failed",
            )
            self.dispatcher.alarm.hurry()
            self.sender.wake(0.0)
        return self._fatal_again()

    def _fatal_again(self) -> FatalError:
        assert self.events.fatal is not None  # noqa: S101 - set before this is called
        return FatalError(self.events.fatal, self._counters.outstanding(self.queued)[0])

    def release(self, closes: bool) -> Release:
        """What close() is to end once it has retired the lane; `closes`: by closing the native producers, too."""
        return Release(self.dispatcher.lanes, self.native, self._serving, closes)

    def retire(self, state: str, refusal: Callable[[], SafeProducerError]) -> None:
        """Release the native producers; from now on every call raises what `refusal` makes.

        One step: a signal handler that raises finds the lane as it was, or retired.
        """
        unusable = Unusable(refusal)
        serving: set[int] = set()
        barred: set[int] = set()  # a fork inside a callback leaves none in the child
        self.state = state
        self.dispatcher.retired = refusal
        self.native = self.send = unusable
        self._serving, self._barred = serving, barred


def _hold(lane: weakref.ref[Engine]) -> None:
    # The native producer holds its callbacks, and must not hold the lane by them.
    if (found := lane()) is not None:
        found.hold()


def _lanes_of(lane: weakref.ref[Engine]) -> dict[int, Any]:
    """By number, the lanes that may be asked for metadata."""
    found = lane()
    if found is None or found.state != "open":
        return {}
    lanes: dict[int, Any] = {} if found.dispatcher.alone else {DIRECT: found.native}
    lanes.update((fed.number, fed) for fed in found.dispatcher.lanes if not fed.failed)
    return lanes


def _waits_for_id(lane: weakref.ref[Engine]) -> Any:
    """The native producer of the direct lane, until what was sent by it first has been answered."""
    found = lane()
    return found.native if found is not None and found.state == "open" and found.holds.slow_start else None


def _answered_within(lane: weakref.ref[Engine], seconds: float | None) -> None:
    if (found := lane()) is not None:
        if seconds is not None:
            found.holds.round_trip.guess(seconds)
        found.updates.changed = True
        found.sender.wake(0.0)


def _heard(lane: weakref.ref[Engine], topic: str, number: int, asked_at: float) -> None:
    if (found := lane()) is not None:
        found.holds.cluster.outdated.heard(topic, number, asked_at)
        found.updates.changed = True


def _met_fatal(lane: weakref.ref[Engine], error: KafkaError) -> None:
    if (found := lane()) is not None:
        found._fatal_in(error)


def _is_alive(lane: weakref.ref[Engine]) -> bool:
    return lane() is not None


def _quota_rejected(lane: weakref.ref[Engine]) -> None:
    if (found := lane()) is not None:
        found.holds.quota_rejected = True
        found.updates.changed = True
        found.hold()


def _elsewhere(lane: weakref.ref[Engine]) -> Elsewhere:
    """What is not in the direct lane: records, bytes, and by partition those that are in no native producer."""
    if (found := lane()) is None or found.state not in ("open", "fatal"):
        return 0, 0, {}
    record_buffer, lanes = found.dispatcher.record_buffer, found.dispatcher.lanes
    records = record_buffer.waiting + lanes.records + found.dispatcher.reports.count
    return records, record_buffer.waiting_bytes + lanes.bytes, found.dispatcher.held()
