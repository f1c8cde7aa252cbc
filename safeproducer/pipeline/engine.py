"""The engine of one SafeProducer: its parts, and the calls that concern all native producers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from safeproducer.kafka.lane_client import LaneClient
from safeproducer.kafka.native import KNOWS_CLUSTER_ID, KafkaException
from safeproducer.pipeline.buffer.partition_buffer import Ticket
from safeproducer.pipeline.calls import Calls
from safeproducer.pipeline.cluster.asker import Asker
from safeproducer.pipeline.cluster.client_events import ClientEvents
from safeproducer.pipeline.cluster.id_expirations import IdExpirations
from safeproducer.pipeline.cluster.metadata import Metadata
from safeproducer.pipeline.cluster.replication import Replication
from safeproducer.pipeline.cluster.windows import Windows
from safeproducer.pipeline.dispatch.dispatcher import Dispatcher
from safeproducer.pipeline.dispatch.hold_facts import HoldFacts
from safeproducer.pipeline.dispatch.updates import ClientUpdates
from safeproducer.pipeline.lanes.native_producers import NativeProducers
from safeproducer.pipeline.notifications import Notifications
from safeproducer.pipeline.polling import Serving
from safeproducer.pipeline.reports.counters import DeliveryCounters
from safeproducer.pipeline.reports.delivery_errors import Failures
from safeproducer.pipeline.route import Route
from safeproducer.pipeline.sender import Sender
from safeproducer.pipeline.turn import Turns
from safeproducer.policy.cluster_metadata import partitions_of
from safeproducer.policy.types import DIRECT_LANE
from safeproducer.producer_ids.gate import Gate
from safeproducer.runtime import clock

_LAST_TURN = 2.0
"""Seconds that the end of the interpreter waits for the sender, which ends at once, but on a busy machine. Stopped
inside librdkafka it would take reports with it, and a destructor's flush() would wait for them for ever."""


@dataclass(slots=True, eq=False, repr=False)
class Questions:
    """Brokers are asked on two threads: `metadata` asks who leads and for replicas, `asker` all else."""

    asker: Asker
    windows: Windows
    metadata: Metadata
    expirations: IdExpirations
    replication: Replication


@dataclass(eq=False, repr=False)
class Engine:
    """Made by `assembly`; it alone keeps its parts alive."""

    route: Route
    dispatcher: Dispatcher
    serving: Serving
    calls: Calls
    updates: ClientUpdates
    questions: Questions
    turns: Turns
    native_producers: NativeProducers

    def awake(self) -> Engine:
        """Itself, known to its sender again: the collector clears weak references before it runs a destructor."""
        if not self.sender.works():
            self.sender.work_for(self)
        return self

    def turn(self, now: float) -> float:
        return self.turns.turn(now)

    def near(self, now: float) -> tuple[LaneClient, float] | None:
        """The lane whose answer may come at any moment, and how long to wait for it."""
        return self.dispatcher.lanes.near(now) if self.route.usable else None

    @property
    def counters(self) -> DeliveryCounters:
        return self.calls.counters

    @property
    def events(self) -> ClientEvents:
        """The events of librdkafka that are not one record's report."""
        return self.calls.events

    @property
    def sender(self) -> Sender:
        return self.route.sender

    @property
    def gate(self) -> Gate:
        """Whether this producer may write."""
        return self.holds.gate

    @property
    def holds(self) -> HoldFacts:
        """The reasons to hold records, and the cluster as it is known."""
        return self.updates.holds

    @property
    def failures(self) -> Failures:
        """The fate of records that were not delivered."""
        return self.updates.failures

    @property
    def notifications(self) -> Notifications:
        return self.events.notifications

    @property
    def native(self) -> Any:
        """The native producer that calls of the application go to, or an Unusable."""
        return self.route.native

    @property
    def queued(self) -> int:
        """Records and events that wait here or in librdkafka."""
        return self.awake().calls.queued

    @property
    def natives(self) -> list[Any]:
        """The native producers, the one that was swapped for an Unusable excepted."""
        native = self.native
        others = *self.dispatcher.lanes.natives, *self.native_producers.former
        return [native, *(other for other in others if other is not native)]

    @property
    def reached_nobody(self) -> bool:
        """Whether no native producer has had an answer of a broker: librdkafka sends to leaders, which only those tell.
        Once the producer is closed it is not known any more."""
        known = self.route.state != "open" or self.holds.partitions.nodes()
        return not (known or any(_knows_its_cluster(self.calls, native) for native in self.natives))

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Everything that connects uses these from its next connection on, what is made later as well."""
        # First: it raises for what is no text.
        self.calls.ask(self.native.set_sasl_credentials, username, password)
        self.native_producers.set_credentials({"sasl.username": username, "sasl.password": password})
        self.dispatcher.lanes.set_sasl_credentials(username, password)
        self.questions.asker.set_sasl_credentials(username, password)

    def list_topics(self, *args: Any, **kwargs: Any) -> Any:
        """Ask the native producer; what it says of a single topic counts here as well."""
        asked_at = clock.real()
        found = self.calls.ask(self.native.list_topics, *args, **kwargs)
        for topic, entry in found.topics.items() if len(found.topics) == 1 else ():
            if entry.error is None and entry.partitions:
                self.updates.heard_leaders(topic, None, asked_at, partitions_of(found, topic))
        return found

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Purge the records here and in all lanes, as confluent_kafka does."""
        usable = self.route.usable
        if not (self.dispatcher.only_batch_lanes and usable):  # else it is one of the lanes
            self.native.purge(in_queue, in_flight, blocking)
        if usable:
            self.awake().sender.run(partial(self.dispatcher.expiry.purge, in_queue, in_flight, blocking))

    def subscribe(self, wake: Callable[[], object]) -> None:
        self.dispatcher.reports.subscribe(wake)

    def unsubscribe(self, wake: Callable[[], object]) -> None:
        self.dispatcher.reports.unsubscribe(wake)

    def when_room(self, wake: Callable[[], object]) -> None:
        self.awake().dispatcher.record_buffer.when_room(wake)
        self.sender.wake(0.0)

    def withdraw_soon(self, ticket: Ticket, callback: object, told: Callable[[bool], object]) -> None:
        self.awake().dispatcher.expiry.withdraw_soon(ticket, callback, told)

    def place_of(self, topic: str, key: Any) -> int:
        return self.dispatcher.intake.place_of(topic, key)

    def run_reports(self, most: int) -> bool:
        """Run up to `most` of the reports that wait here; whether more do. Raises what callbacks raise."""
        return bool(self.calls.run(self.serving.run_reports, most))

    def take_last_reports(self) -> None:
        """Take the reports that have arrived, for the last account: no callback runs, and no report is waited for.

        There is no sender from then on. The end of the interpreter would stop it anywhere. Whoever waits works in its
        place: a destructor, or what the application registered for the exit before it imported this.
        """
        if self.route.in_callback:
            return
        sender, report_queue = self.sender, self.counters.report_queue
        sender.stop()
        report_queue.end(True)
        try:
            if not self.dispatcher.only_batch_lanes:
                self.native.poll(0)
            if sender.join(_LAST_TURN):
                self.dispatcher.serve()
        except:  # noqa: E722, S110 - as in Calls.attempt(); what it raises concerns nobody any more
            pass
        finally:
            report_queue.end(False)

    def stop_threads(self, timeout: float | None) -> bool:
        """End them; wait for them up to `timeout` seconds, not at all if that is None. Whether they have ended."""
        if self.route.state == "forked":  # there are none in the child, and they may have held locks when it was made
            return True
        threads = self.sender, self.questions.asker, self.questions.metadata
        for thread in threads:
            thread.stop()
        if timeout is None:
            return False
        deadline = clock.monotonic() + timeout
        # Not the calling one, which a destructor may have interrupted inside the native producer that is to be closed.
        ended = [thread.join(max(0.0, deadline - clock.monotonic())) for thread in threads]
        return all(ended)

    def unresolved(self) -> int:
        return self.awake().calls.unresolved()

    def lanes_to_ask(self) -> dict[int, Any]:
        """By number, the lanes that may be asked for metadata."""
        if self.route.state != "open":
            return {}
        lanes: dict[int, Any] = {} if self.dispatcher.only_batch_lanes else {DIRECT_LANE: self.native}
        lanes.update((lane.number, lane.client) for lane in self.dispatcher.lanes if not lane.client.failed)
        return lanes


def _knows_its_cluster(calls: Calls, native: Any) -> bool:
    if not KNOWS_CLUSTER_ID:
        return True  # it may
    try:
        calls.ask(native.cluster_id, 0)  # asks nobody: of the first metadata
    except KafkaException:
        return False
    except RuntimeError as error:  # a thread has closed it meanwhile
        if type(error) is not RuntimeError:  # a time limit
            raise
    return True
