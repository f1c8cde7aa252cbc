"""asyncio: AsyncSafeProducer, and AIOProducer in place of confluent_kafka's. `import safeproducer` does not load it."""

from safeproducer.aio.aio_producer import AIOProducer
from safeproducer.aio.batch import BatchDelivery, BatchResult
from safeproducer.aio.delivery import Delivery
from safeproducer.aio.producer import AsyncSafeProducer
from safeproducer.errors import (
    DeliveryFailed,
    EventLoopError,
    NotWritten,
    OutcomeUnknown,
    RecordTypeError,
    TransactionAborted,
    TransactionError,
    TransactionUnknown,
)
from safeproducer.records import DeliveredRecord

__all__ = [
    "AIOProducer",
    "AsyncSafeProducer",
    "BatchDelivery",
    "BatchResult",
    "DeliveredRecord",
    "Delivery",
    "DeliveryFailed",
    "EventLoopError",
    "NotWritten",
    "OutcomeUnknown",
    "RecordTypeError",
    "TransactionAborted",
    "TransactionError",
    "TransactionUnknown",
]
