"""Makes the parts of one producer, from the lowest to the highest, and connects them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from safeproducer.hooks import RECORD_EVENTS, Hook, Hooks
from safeproducer.kafka.properties import whole
from safeproducer.pipeline.bulk import produce_batch
from safeproducer.pipeline.calls import Calls
from safeproducer.pipeline.closing import Closing
from safeproducer.pipeline.cluster import throttles
from safeproducer.pipeline.cluster.asker import Asker
from safeproducer.pipeline.cluster.client_events import ClientEvents, EventCallbacks
from safeproducer.pipeline.cluster.cluster_view import ClusterView
from safeproducer.pipeline.cluster.id_expirations import IdExpirations, Known
from safeproducer.pipeline.cluster.metadata import FirstQuestion, Metadata
from safeproducer.pipeline.cluster.replication import Replication
from safeproducer.pipeline.cluster.round_trip import RoundTrip
from safeproducer.pipeline.cluster.windows import REFRESH, Windows
from safeproducer.pipeline.dispatch.dispatcher import Dispatcher
from safeproducer.pipeline.dispatch.expiry import Expiry
from safeproducer.pipeline.dispatch.flush_timer import FlushTimer
from safeproducer.pipeline.dispatch.hold_facts import HoldFacts
from safeproducer.pipeline.dispatch.intake import Intake
from safeproducer.pipeline.dispatch.lane_choice import LaneChoice
from safeproducer.pipeline.dispatch.placement import Placement
from safeproducer.pipeline.dispatch.quota_retry import QuotaRetry
from safeproducer.pipeline.dispatch.record_buffer import RecordBuffer
from safeproducer.pipeline.dispatch.updates import ClientUpdates
from safeproducer.pipeline.engine import Engine, Questions
from safeproducer.pipeline.health import check
from safeproducer.pipeline.inspection import Inspection
from safeproducer.pipeline.lanes.direct_lane import DirectLane
from safeproducer.pipeline.lanes.lane import Renewing
from safeproducer.pipeline.lanes.lane_pool import LanePool
from safeproducer.pipeline.lanes.native_producers import NativeProducers
from safeproducer.pipeline.notifications import Notifications
from safeproducer.pipeline.polling import Serving
from safeproducer.pipeline.record import ReportNumbers
from safeproducer.pipeline.renewal import DirectRenewal
from safeproducer.pipeline.reports.counters import DeliveryCounters
from safeproducer.pipeline.reports.delivery_errors import Failures
from safeproducer.pipeline.reports.hooked_send import Durations, ObservedSend
from safeproducer.pipeline.reports.quota_rejections import QuotaRejections
from safeproducer.pipeline.reuse import ParkedProducers, release, take
from safeproducer.pipeline.route import Route
from safeproducer.pipeline.schedule import Schedule
from safeproducer.pipeline.sender import Sender
from safeproducer.pipeline.transactions import Transactions
from safeproducer.pipeline.turn import Turns
from safeproducer.policy.diagnosis import told_first
from safeproducer.policy.permits import Kind
from safeproducer.policy.renewals import Renewals
from safeproducer.policy.types import DIRECT_LANE, TopicPartition
from safeproducer.producer_ids.gate import Gate, Terms
from safeproducer.producer_ids.guard import guard_of
from safeproducer.producer_ids.ledger_places import OFF
from safeproducer.producer_ids.permit import Claim
from safeproducer.records import CallSite, ProducerInfo
from safeproducer.runtime import clock, forks
from safeproducer.runtime.threads import Notices
from safeproducer.settings.config import Settings, parse

if TYPE_CHECKING:
    from safeproducer.kafka.admin import Admin

_T = TypeVar("_T")
_TRANSACTION_TIMEOUT_MS = 60_000
MOCK = "mock cluster"


def surface(args: tuple[Any, ...], config: dict[str, Any], given: Iterable[Hook], site: CallSite) -> dict[str, Any]:
    """The parts that SafeProducer calls, by the names that they have there; raises ConfigurationError."""
    settings, hooks = parse(args, config), Hooks(given)
    delivery, names = settings.delivery, (settings.client_id, settings.bootstrap_servers, settings.principal)
    info = ProducerInfo(*names, settings.transactional_id, settings.idempotent, site)
    failures, only_errors = Failures(delivery), settings.only_errors
    durations = [Durations(taker, info) for taker in hooks.durations]
    counters = DeliveryCounters(only_errors, failures.reported, delivery.idempotent, durations)
    engine = assemble(settings, info, hooks, counters, failures)
    transactions = Transactions(engine)
    parts = {"settings": settings, "engine": engine, "route": engine.route}
    parts |= {"counters": counters, "topics": counters.topics, "on_delivery": settings.on_delivery, "blocked": set()}
    parts |= {"closing": Closing(engine, transactions, hooks, info), "transactions": transactions, "release": release}
    parts |= {"inspection": Inspection(engine, info, delivery.linger), "produce_batch": produce_batch, "check": check}
    return parts


def assemble(
    settings: Settings, info: ProducerInfo, hooks: Hooks, counters: DeliveryCounters, failures: Failures
) -> Engine:
    """A new engine; raises ConfigurationError."""
    delivery, report_queue = settings.delivery, counters.report_queue
    sender = Sender()
    notices = Notices(sender.is_this_thread)
    held = "records for its partitions are held back until then"
    meanwhile = held if delivery.holds_back else "records of a transaction are not held back"
    notifications = Notifications(info, hooks, notices, settings.scrub, meanwhile)
    parked, gate = take(settings), gate_of(settings, info, notifications)
    updates = ClientUpdates(delivery, _holds(settings, counters, gate, parked), failures, counters)
    callbacks = EventCallbacks(settings, counters.errors, report_queue, notices)
    events = ClientEvents(settings, notifications, callbacks, updates)
    natives = NativeProducers(settings, events, parked.lanes if parked else ())
    native = natives.first()
    questions = _questions(settings, parked, sender, updates, events, counters)
    refusal_of = sender.asks(lambda engine: engine.calls.refusal_of, None)
    dispatcher = _dispatcher(settings, natives, native, sender, questions, updates, events, counters, refusal_of)
    observed = None
    if hooks.wants(*RECORD_EVENTS):
        dispatcher.record_buffer.numbers.observe()
        shared = failures.reported, report_queue, delivery.idempotent, settings.only_errors
        observed = ObservedSend(dispatcher.intake.send, hooks, info, refusal_of, *shared)
    # Of a transaction that is decided in init_transactions(); without idempotence there is nothing to decide.
    gate_for_records = gate if settings.transactional_id is None and settings.idempotent else None
    route = Route(native, dispatcher, sender, observed, gate_for_records, direct=not delivery.holds_back)
    calls = Calls(route, dispatcher, counters, events)
    serving = Serving(route, dispatcher, updates, report_queue, calls, notices, delivery.buffer.bytes)
    renewal = None
    if updates.holds.direct is not None and delivery.owns_timeout:
        renewal = DirectRenewal(route, dispatcher, updates, counters, natives, questions.metadata.first)
    asks = questions.metadata, questions.replication
    turns = Turns(route, dispatcher, updates, serving, calls, *asks, renewal)
    return Engine(route, dispatcher, serving, calls, updates, questions, turns, natives).awake()


def _holds(settings: Settings, counters: DeliveryCounters, gate: Gate, parked: ParkedProducers | None) -> HoldFacts:
    delivery, round_trip = settings.delivery, RoundTrip(settings.delivery, counters)
    if parked is not None:
        round_trip.guess(parked.distance)
        gate.taken_over()
    direct = None if delivery.only_batch_lanes else DirectLane(delivery, counters, parked.counts if parked else None)
    return HoldFacts(ClusterView(delivery, throttles.of(settings.cluster)), round_trip, direct, gate)


def _why_lost(holds: HoldFacts, topic: str, partition: int, late: bool) -> str:
    cluster = holds.cluster
    if (missing := cluster.partitions.missing_clause(topic)) or not late:
        return missing
    node = cluster.partitions.leader(topic, partition)
    led = [] if node is None else [f"its leader is broker {node}"]
    first = told_first(holds.causes((topic, partition), clock.real()))[:1]
    return cluster.addressed("; ".join([*led, *(one.sentence for one in first)]))


def _waking(sender: Sender, call: Callable[..., _T]) -> Callable[..., _T]:
    """`call`, after which the sender looks."""

    def called(*args: Any) -> _T:
        result = call(*args)
        sender.wake(0.0)
        return result

    return called


def _questions(
    settings: Settings,
    parked: ParkedProducers | None,
    sender: Sender,
    updates: ClientUpdates,
    events: ClientEvents,
    counters: DeliveryCounters,
) -> Questions:
    delivery, holds, partitions = settings.delivery, updates.holds, updates.holds.partitions
    no_lanes: dict[int, Any] = {}
    lanes_to_ask = sender.asks(lambda engine: engine.lanes_to_ask, no_lanes)
    topics, notifications = counters.topics.copy, events.notifications

    def waits_for_id() -> Any:
        return lanes_to_ask().get(DIRECT_LANE) if holds.slow_start else None

    first_question = FirstQuestion(waits_for_id, delivery.waits_for_id and parked is None)
    updates.failures.losses.told_by(partial(_why_lost, updates.holds), updates.delivered_of)

    def admin() -> Admin:  # the admin client takes longer to import than everything else here
        with forks.loading.lock:
            from safeproducer.kafka.admin import Admin  # noqa: PLC0415
        return Admin(settings.lane)

    missing, trouble = partitions.missing, notifications.trouble
    answered, heard = _waking(sender, updates.answered_within), _waking(sender, updates.heard_leaders)
    metadata = Metadata(lanes_to_ask, heard, answered, first_question, admin, trouble, missing)
    known = (parked and parked.id_expiration) or Known(clock.monotonic())
    asker = Asker(admin, answered, sender.works, notifications.trouble)
    expirations = IdExpirations(delivery, holds.cluster, asker, topics, notifications, known)
    refresh = min(REFRESH, delivery.metadata_refresh / 2)
    windows = Windows(delivery.own.window, refresh, holds.cluster, asker, notifications.window)
    holds.cluster.outdated.connect(lanes_to_ask, metadata.tell)
    updates.connect(sender.asks(lambda engine: engine.route.hold, None))
    replication = Replication(delivery, holds.cluster, metadata, asker, topics, notifications)
    return Questions(asker, windows, metadata, expirations, replication)


def _dispatcher(
    settings: Settings,
    natives: NativeProducers,
    native: Any,
    sender: Sender,
    questions: Questions,
    updates: ClientUpdates,
    events: ClientEvents,
    counters: DeliveryCounters,
    refusal_of: Callable[[Exception], Exception | None],
) -> Dispatcher:
    delivery, report_queue, numbers = settings.delivery, counters.report_queue, ReportNumbers()
    make = natives.batch_lane if delivery.holds_back else None
    permits, not_made = updates.holds.gate.lane_permits, events.notifications.lane_not_made
    renewing = _renewing(settings, updates.holds, counters, events.notifications)
    lanes = LanePool(make, delivery, report_queue.reports, numbers, permits, not_made, renewing)
    if delivery.only_batch_lanes:
        lanes.adopt(native, new=not natives.took(native))
    for further, log in natives.further():
        lanes.adopt(further, log, new=False)
        updates.failures.sent_by_many()
    rejections = QuotaRejections(updates.quota_rejected, numbers)
    if delivery.holds_back:
        report_queue.rejections = rejections
    holds, failures, metadata, wake = updates.holds, updates.failures, questions.metadata, sender.wake
    direct, queue = None if delivery.only_batch_lanes else native, report_queue
    when = Schedule(delivery, wake, sender.tell_waiting)
    buffer = RecordBuffer(delivery, holds, direct, lanes, queue, rejections, numbers)
    retry = QuotaRetry(delivery, buffer, rejections, queue, failures, when, updates.sent_once)
    expiry = Expiry(delivery, holds, lanes, buffer, retry, when, failures, queue, refusal_of, questions.expirations)
    records, size = delivery.batch_records, max(1, delivery.batch_bytes)
    placement = Placement(holds.cluster, buffer, lanes, metadata, when)
    intake = Intake(records, size, holds, buffer, rejections, queue, lanes, placement, when)
    choice = LaneChoice(delivery, holds, lanes, questions.windows, wake, events.notifications.limited)
    timer = FlushTimer(holds, lanes, delivery.guard_ms / 1000, when.alarm.hurry)
    parts = buffer, when, choice, retry, intake, timer, expiry, queue.reports
    return Dispatcher(delivery, holds, lanes, placement, *parts)


def _renewing(
    settings: Settings, holds: HoldFacts, counters: DeliveryCounters, notifications: Notifications
) -> Renewing:
    def delivered(tp: TopicPartition | None) -> int:
        return counters.totals()[1] if tp is None else counters.answers(tp)[0]

    refuses, limit = settings.ids.policy == "refuse", Renewals(settings.producer_ids_per_hour)
    parts = holds.gate.lane_permits, settings.delivery.renews, refuses, limit, delivered
    return Renewing(*parts, notifications.renewed, holds.apart)


def gate_of(settings: Settings, info: ProducerInfo, notifications: Notifications) -> Gate:
    """Without idempotence a producer takes no ID, and there is nothing to guard."""
    return Gate(settings.idempotent, partial(_terms, settings, info), notifications)


def _terms(settings: Settings, info: ProducerInfo) -> Terms:
    ids, delivery = settings.ids, settings.delivery
    enforces, rate = ids.enforces and delivery.mode != "passthrough", settings.producer_ids_per_hour
    request = Claim(Kind.FIRST, rate, enforces, info.site, settings.transactional_id)
    place = OFF if settings.bootstrap_servers == MOCK else ids.ledger
    guard = guard_of((settings.cluster, settings.principal), place) if settings.idempotent else None
    lanes = Kind.LANE if delivery.own.lanes is None else Kind.FIXED_LANE
    timeout_ms = whole(settings.lane.get("transaction.timeout.ms"))
    longest = 2 * (_TRANSACTION_TIMEOUT_MS if timeout_ms is None else timeout_ms) / 1000
    patience = 0.0 if settings.transactional_id is None else longest
    return Terms(guard, request, lanes, info, settings.cluster, ids.policy, delivery.holds_back, patience)
