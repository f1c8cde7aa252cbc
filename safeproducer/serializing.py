"""SafeSerializingProducer: confluent_kafka.SerializingProducer on top of SafeProducer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from safeproducer.errors import ConfigurationError
from safeproducer.hooks import Hook
from safeproducer.kafka.native import SerializingProducer
from safeproducer.producer import SafeProducer
from safeproducer.snapshot import CloseReport


class _Hooked(SafeProducer):
    """Takes from attributes what confluent_kafka's SerializingProducer, above it, does not pass on."""

    __hooks: tuple[Hook, ...] = ()
    __close_timeout: float | None = None

    def __init__(self, conf: dict[str, Any]) -> None:
        super().__init__(conf, hooks=self.__hooks)

    def close(self, timeout: float | None = None) -> CloseReport:  # type: ignore[override]
        return super().close(self.__close_timeout if timeout is None else timeout)


class SafeSerializingProducer(SerializingProducer, _Hooked):  # type: ignore[misc]
    """A SafeProducer whose produce() serializes keys and values first.

    It is confluent_kafka's SerializingProducer with a SafeProducer in place of its base class: the same extra settings
    (`key.serializer`, `value.serializer` and their builders), the same produce(topic, key, value, ...), which takes the
    key first, and the same KeySerializationError and ValueSerializationError. `conf` is a dict of settings; `hooks` as
    for SafeProducer.
    """

    def __init__(self, conf: dict[str, Any], hooks: Iterable[Hook] = ()) -> None:
        self._Hooked__hooks = tuple(hooks)
        try:
            super().__init__(conf)
        except ConfigurationError as error:
            raise error.with_traceback(None) from None  # as in SafeProducer
        finally:
            del conf

    def close(self, timeout: float | None = None) -> CloseReport:  # type: ignore[override]
        """As SafeProducer.close(), with its `timeout`; then closes the serializers that this producer built."""
        self._Hooked__close_timeout = timeout
        return super().close()  # type: ignore[return-value]
