"""Makes the gate of one producer: whether it needs a permit at all, whom it asks, and what a refusal means to it."""

from __future__ import annotations

from functools import partial

from safeproducer.announcements import Announcements
from safeproducer.config import Settings
from safeproducer.kafka.numbers import whole
from safeproducer.policy.permits import Kind
from safeproducer.producer_ids.gate import Gate, Terms
from safeproducer.producer_ids.guard import guard_of
from safeproducer.producer_ids.permit import Request
from safeproducer.producer_ids.place import OFF
from safeproducer.records import ProducerInfo

_TRANSACTION_TIMEOUT_MS = 60_000
MOCK = "mock cluster"


def gate_of(settings: Settings, info: ProducerInfo, announcements: Announcements) -> Gate:
    """Without idempotence a producer takes no ID, and there is nothing to guard."""
    return Gate(settings.idempotent, partial(_terms, settings, info), announcements)


def _terms(settings: Settings, info: ProducerInfo) -> Terms:
    ids, delivery = settings.ids, settings.delivery
    request = Request(
        Kind.FIRST,
        settings.producer_ids_per_hour,
        ids.enforces and delivery.mode != "passthrough",
        info.site,
        settings.transactional_id,
        [],
    )
    place = OFF if settings.bootstrap_servers == MOCK else ids.ledger
    guard = guard_of((settings.cluster, settings.principal), place) if settings.idempotent else None
    lanes = Kind.LANE if delivery.own.lanes is None else Kind.FIXED_LANE
    patience = 0.0 if settings.transactional_id is None else _patience(settings)
    return Terms(guard, request, lanes, info, settings.cluster, ids.policy, delivery.holds_back, patience)


def _patience(settings: Settings) -> float:
    timeout_ms = whole(settings.lane.get("transaction.timeout.ms"))
    return 2 * (_TRANSACTION_TIMEOUT_MS if timeout_ms is None else timeout_ms) / 1000
