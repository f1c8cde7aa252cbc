"""Names of the OpenTelemetry conventions, and ours beside them."""

from __future__ import annotations

from safeproducer.kafka.native import KafkaError, KafkaException

# The messaging conventions are not stable, so the names are pinned here, with the version that defines them.
SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
SYSTEM = "messaging.system"
OPERATION_NAME = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
DESTINATION_NAME = "messaging.destination.name"
PARTITION_ID = "messaging.destination.partition.id"
OFFSET = "messaging.kafka.offset"
TOMBSTONE = "messaging.kafka.message.tombstone"
CLIENT_ID = "messaging.client.id"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"
ERROR_TYPE = "error.type"
BATCH_COUNT = "messaging.batch.message_count"
FAILED_COUNT = "safeproducer.batch.failed_count"  # how many of these messages failed, were refused or lost

RECORD_LOST = "delivery_report_lost"  # `error.type` of a record that went away without a delivery report

SENT = "messaging.client.sent.messages"
DURATION = "messaging.client.operation.duration"
ACCEPTED = "safeproducer.records.accepted"
ENDED = "safeproducer.records.ended"
UNRESOLVED = "safeproducer.records.unresolved"
DISCONNECTED = "safeproducer.records.disconnected"
HELD = "safeproducer.records.held"
HOLD_TIME = "safeproducer.hold.time"
DEADLINE_USED = "safeproducer.deadline.used"
THROTTLE_TIME = "safeproducer.throttle.time"
THROTTLE_REMAINING = "safeproducer.throttle.remaining"
WINDOW = "safeproducer.window"
LANES = "safeproducer.lanes"
BATCHES = "safeproducer.batches"
SPLITS = "safeproducer.splits"
PRODUCER_IDS = "safeproducer.producer_ids"
RENEWALS = "safeproducer.renewals"
BUFFER_RECORDS = "safeproducer.buffer.records"
BUFFER_BYTES = "safeproducer.buffer.bytes"
BUFFER_LIMIT = "safeproducer.buffer.limit"
LOGINS_REFUSED = "safeproducer.logins.refused"
TRANSACTIONS = "safeproducer.transactions"
EPOCHS = "safeproducer.epochs.renewed"
BROKER_RTT = "safeproducer.broker.rtt"

OUTCOME = "safeproducer.outcome"
HOLD_REASON = "safeproducer.hold.reason"
"""A `HoldReason`; of a span the one for which its record waited longest before librdkafka had it."""
HOLD_DURATION = "safeproducer.hold.duration"  # for how many seconds it waited in all
WINDOW_SOURCE = "safeproducer.window.source"
PRINCIPAL = "safeproducer.principal"
TRANSACTIONAL_ID = "safeproducer.transactional_id"
DOUBT = "safeproducer.doubt"  # of a transaction, why the next one has a new producer epoch


def error_type(error: KafkaError | BaseException) -> str:
    """librdkafka's name of the error code (`_MSG_TIMED_OUT`, `UNKNOWN_TOPIC_OR_PART`), else the exception's class.

    The error's text is left out on purpose: that of a refused record may quote its key or value.
    """
    if isinstance(error, KafkaException) and error.args and isinstance(error.args[0], KafkaError):
        error = error.args[0]
    if isinstance(error, KafkaError):
        return str(error.name())
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
