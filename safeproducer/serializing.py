"""SafeSerializingProducer: confluent_kafka.SerializingProducer on top of SafeProducer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from safeproducer.kafka.native import (
    KeySerializationError,
    MessageField,
    SerializationContext,
    ValueSerializationError,
)
from safeproducer.producer import SafeProducer


class SafeSerializingProducer(SafeProducer):
    """A SafeProducer whose produce() serializes keys and values first.

    Takes stock's two extra settings, `key.serializer` and `value.serializer`: callables (object, SerializationContext)
    -> bytes, such as those of confluent_kafka.serialization and confluent_kafka.schema_registry. Note that produce()
    takes `key` before `value`, as stock's does.
    """

    def __init__(self, conf: dict[str, Any], **kwargs: Any) -> None:
        config = dict(conf)
        self._key_serializer = config.pop("key.serializer", None)
        self._value_serializer = config.pop("value.serializer", None)
        super().__init__(config, **kwargs)

    def produce(  # type: ignore[override]
        self,
        topic: str,
        key: Any = None,
        value: Any = None,
        partition: int = -1,
        on_delivery: Callable[..., Any] | None = None,
        timestamp: int = 0,
        headers: Any = None,
    ) -> None:
        """Serialize and accept one record. Raises KeySerializationError, ValueSerializationError, or as its base."""
        context = SerializationContext(topic, MessageField.KEY, headers)
        if self._key_serializer is not None:
            try:
                key = self._key_serializer(key, context)
            except Exception as error:
                raise KeySerializationError(error) from error
        context.field = MessageField.VALUE
        if self._value_serializer is not None:
            try:
                value = self._value_serializer(value, context)
            except Exception as error:
                raise ValueSerializationError(error) from error
        super().produce(topic, value, key, partition, None, on_delivery, timestamp, headers)
