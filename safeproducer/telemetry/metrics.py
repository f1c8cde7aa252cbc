"""OpenTelemetry metrics: the messaging conventions' own, and ours beside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from safeproducer.telemetry.opentelemetry import (
    DESTINATION_NAME,
    ERROR_TYPE,
    OPERATION_NAME,
    OPERATION_TYPE,
    SERVER_ADDRESS,
    SERVER_PORT,
    SYSTEM,
)

OUTCOME = "safeproducer.outcome"
HOLD_REASON = "safeproducer.hold.reason"
WINDOW_SOURCE = "safeproducer.window.source"
PRINCIPAL = "safeproducer.principal"

Kind = Literal["counter", "up-down counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class Instrument:
    """One row of the reference of metrics. `attributes`: those it always may have; `partitions` and `client_ids` of
    `OpenTelemetryMetrics` add theirs."""

    name: str
    kind: Kind
    unit: str
    attributes: tuple[str, ...]
    description: str


_SENT = (SYSTEM, OPERATION_NAME, DESTINATION_NAME, ERROR_TYPE)
_TOPIC = (SYSTEM, DESTINATION_NAME)
_BROKER = (SYSTEM, SERVER_ADDRESS, SERVER_PORT)

INSTRUMENTS: tuple[Instrument, ...] = (
    Instrument(
        "messaging.client.sent.messages",
        "counter",
        "{message}",
        _SENT,
        "Records handed to librdkafka that ended; never those that were not sent.",
    ),
    Instrument(
        "messaging.client.operation.duration",
        "histogram",
        "s",
        (*_SENT, OPERATION_TYPE),
        "Time from produce() to the end of a record, of a fair sample.",
    ),
    Instrument("safeproducer.records.accepted", "counter", "{record}", _TOPIC, "Records that produce() accepted."),
    Instrument(
        "safeproducer.records.ended", "counter", "{record}", (*_TOPIC, OUTCOME), "Records that ended, by outcome."
    ),
    Instrument(
        "safeproducer.records.unresolved", "up-down counter", "{record}", _TOPIC, "Accepted records without an end."
    ),
    Instrument(
        "safeproducer.records.held",
        "up-down counter",
        "{record}",
        (*_TOPIC, HOLD_REASON),
        "Records that wait in this process, by reason.",
    ),
    Instrument(
        "safeproducer.hold.time",
        "counter",
        "s",
        (*_TOPIC, HOLD_REASON),
        "Time that partitions were held, summed over partitions.",
    ),
    Instrument("safeproducer.throttle.time", "counter", "s", _BROKER, "Throttle times that brokers announced."),
    Instrument("safeproducer.throttle.remaining", "gauge", "s", _BROKER, "Time until a broker's throttle is over."),
    Instrument(
        "safeproducer.window",
        "gauge",
        "{batch}",
        (*_TOPIC, WINDOW_SOURCE),
        "Batches that may be in flight to one partition; of several partitions the smallest.",
    ),
    Instrument("safeproducer.lanes", "up-down counter", "{lane}", (SYSTEM,), "Batch lanes that exist."),
    Instrument("safeproducer.batches", "counter", "{batch}", _TOPIC, "Batches that were formed for batch lanes."),
    Instrument(
        "safeproducer.splits", "counter", "{split}", _TOPIC, "Batches that were split since their broker refused them."
    ),
    Instrument(
        "safeproducer.producer_ids", "counter", "{producer_id}", (SYSTEM, PRINCIPAL), "New producer IDs, of all lanes."
    ),
    Instrument(
        "safeproducer.renewals", "counter", "{renewal}", (SYSTEM, ERROR_TYPE), "Native producers made anew, by cause."
    ),
    Instrument(
        "safeproducer.buffer.records", "gauge", "{record}", (SYSTEM,), "Records in the buffers of all producers."
    ),
    Instrument("safeproducer.buffer.bytes", "gauge", "By", (SYSTEM,), "Bytes in the buffers of all producers."),
    Instrument("safeproducer.buffer.limit", "gauge", "By", (SYSTEM,), "Bytes that the buffers have room for."),
    Instrument("safeproducer.broker.rtt", "gauge", "s", _BROKER, "Round trip to a broker; the longest of producers."),
)
