"""What librdkafka says that is not one record's report: errors, throttle times, the fatal error."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from safeproducer.config import Settings
from safeproducer.hooks import Hooks, Throttled
from safeproducer.kafka.advice import advice
from safeproducer.kafka.native import KafkaError, ThrottleEvent
from safeproducer.pipeline.callbacks import CallbackErrors
from safeproducer.records import ProducerInfo

logger = logging.getLogger("safeproducer")


class ClientEvents:
    """Notes what happened to one native producer and passes it on. Called on the thread that polls.

    It holds no reference to the native producer: the native producer holds one to it, and a cycle would keep records
    in memory after the application has let go of the producer.
    """

    def __init__(self, info: ProducerInfo, hooks: Hooks, settings: Settings, errors: CallbackErrors) -> None:
        self.last_error: str | None = None
        self.throttled: dict[int, float] = {}
        self.fatal: KafkaError | None = None
        self._info = info
        self._hooks = hooks
        self._scrub = settings.scrub
        self._error_cb = settings.error_cb
        self._throttle_cb = settings.throttle_cb
        self._errors = errors
        self._told: set[int] = set()

    def on_error(self, error: KafkaError) -> None:
        sentence = self._scrub(advice(error.name(), error.str()))
        self.last_error = sentence
        if error.code() not in self._told:
            self._told.add(error.code())
            logger.warning("%s: %s", self._info.client_id, sentence)
        self._hooks.call("client_error", self._info, error, sentence)
        self._call(self._error_cb, error)

    def on_throttle(self, event: ThrottleEvent) -> None:
        # A zero tells only that some connection of this client is no longer throttled, not which (KIP-219 notes).
        if event.throttle_time > 0:
            self.throttled[event.broker_id] = event.throttle_time
            self._hooks.call(
                "throttled", Throttled(self._info, event.broker_id, event.broker_name, event.throttle_time)
            )
        self._call(self._throttle_cb, event)

    def _call(self, callback: Callable[..., Any] | None, event: Any) -> None:
        if callback is not None:
            try:
                callback(event)
            except BaseException as raised:
                self._errors.note(raised)
                raise

    def on_fatal(self, error: KafkaError) -> None:
        """Note a fatal error. produce() only learns that there was one; poll() brings the error itself."""
        first = self.fatal is None
        if self.fatal is None or not self.fatal.fatal():
            self.fatal = error
        if first:
            logger.critical("%s: fatal error %s: %s", self._info.client_id, error.name(), error.str())
            self._hooks.call("fatal_error", self._info, error)
