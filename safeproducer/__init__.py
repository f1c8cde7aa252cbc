"""safeproducer: a drop-in confluent_kafka.Producer that accounts for every record."""

import safeproducer.kafka  # noqa: F401 - first: under `safeproducer run` it imports this package, and finds no half of it
from safeproducer.errors import (
    CallbackReentryError,
    ConfigurationError,
    ConfigurationTypeError,
    ConfigurationValueError,
    DeliveryError,
    FatalError,
    ForkedProducerError,
    ProducerClosedError,
    ProducerIdLimitError,
    QueueFullError,
    SafeProducerError,
    TransactionAborted,
    TransactionError,
    TransactionUnknown,
)
from safeproducer.hooks import (
    Hook,
    LanesChanged,
    ProducerChurn,
    ProducerIdLimited,
    ProducerRenewed,
    RecordAbandoned,
    RecordsLost,
    ReplicationChanged,
    Throttled,
    TransactionEnded,
    WindowChanged,
)
from safeproducer.policy.hold_reason import HoldReason
from safeproducer.policy.outcome import Outcome
from safeproducer.policy.types import ReplicationState
from safeproducer.producer import SafeProducer
from safeproducer.records import CallSite, ProducerInfo, Record
from safeproducer.serializing import SafeSerializingProducer
from safeproducer.snapshot import (
    CloseReport,
    Health,
    HealthReason,
    PartitionSnapshot,
    ReplicationSnapshot,
    Snapshot,
    TransactionsSnapshot,
    WindowSnapshot,
)

__version__ = "0.1.0"

__all__ = [
    "CallSite",
    "CallbackReentryError",
    "CloseReport",
    "ConfigurationError",
    "ConfigurationTypeError",
    "ConfigurationValueError",
    "DeliveryError",
    "FatalError",
    "ForkedProducerError",
    "Health",
    "HealthReason",
    "HoldReason",
    "Hook",
    "LanesChanged",
    "Outcome",
    "PartitionSnapshot",
    "ProducerChurn",
    "ProducerClosedError",
    "ProducerIdLimitError",
    "ProducerIdLimited",
    "ProducerInfo",
    "ProducerRenewed",
    "QueueFullError",
    "Record",
    "RecordAbandoned",
    "RecordsLost",
    "ReplicationChanged",
    "ReplicationSnapshot",
    "ReplicationState",
    "SafeProducer",
    "SafeProducerError",
    "SafeSerializingProducer",
    "Snapshot",
    "Throttled",
    "TransactionAborted",
    "TransactionEnded",
    "TransactionError",
    "TransactionUnknown",
    "TransactionsSnapshot",
    "WindowChanged",
    "WindowSnapshot",
]
