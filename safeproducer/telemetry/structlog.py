"""structlog events with stable names and fields: what an operator of a producer wants to read."""

from __future__ import annotations

import threading
from typing import Any

import structlog

from safeproducer import hooks
from safeproducer.errors import DeliveryError
from safeproducer.kafka.native import KafkaError, Message
from safeproducer.records import ProducerInfo, Record
from safeproducer.snapshot import CloseReport
from safeproducer.telemetry.conventions import error_type


class StructlogHook(hooks.Hook):
    """Logs what happens to a producer and every record that fails; records that succeed are not logged.

    `logger`: a structlog logger, default `structlog.get_logger("safeproducer")`.

    | event               | level   | fields                                                                          |
    | producer_created    | info    | client_id bootstrap_servers principal transactional_id idempotent site          |
    | record_failed       | error   | topic partition (-1: not chosen) error_code outcome refused                     |
    | records_lost        | error   | client_id reason count                                                          |
    | client_error        | warning | client_id error_code error advice                                               |
    | fatal_error         | error   | client_id error_code error                                                      |
    | throttled           | warning | client_id broker_id broker_name seconds                                         |
    | replication_changed | info    | client_id topic partition state moving left_over broker delays sentence cure    |
    | producer_churn      | warning | cluster principal site made_by_site made_in_all limit_per_hour advice pattern   |
    | producer_id_limited | warning | client_id policy retry_after site advice                                        |
    | producer_closed     | info    | client_id accepted delivered failed left seconds suppressed                     |

    producer_closed is a warning when records were `left`, replication_changed when acknowledgements wait for it.
    `refused` says that produce() raised: the record is not written. `outcome` is that of its DeliveryError otherwise.
    Keys, values and headers never appear.

    Safe to use when log lines are themselves produced through the same producer: what happens inside a logging call
    of this hook, and the failure of a record that such a call produced, is counted in `suppressed` and not logged,
    for a failed line would otherwise make the next one, without end. This knows only what happens on the thread of
    the call: a handler that hands lines to a thread of its own must use a producer without this hook.

    Thread-safe; one hook may serve many producers.
    """

    def __init__(self, logger: Any = None) -> None:
        self._logger = structlog.get_logger("safeproducer") if logger is None else logger
        self._thread = threading.local()
        self.suppressed = 0
        """Events not logged because logging itself caused them."""

    def producer_created(self, producer: ProducerInfo) -> None:
        names = "client_id", "bootstrap_servers", "principal", "transactional_id", "idempotent"
        self._log("info", "producer_created", **_fields(producer, names), site=str(producer.site))

    def record_accepted(self, record: Record) -> None:
        if self._logging():
            record.state[self] = "made by logging"

    def record_refused(self, record: Record, error: BaseException) -> None:
        self._record_failed(record, record.partition, error_type(error), "not_written", refused=True)

    def record_resolved(self, record: Record, error: KafkaError | None, message: Message) -> None:
        if error is None:
            return
        partition = -1 if (found := message.partition()) is None else found
        outcome = error.outcome.value if isinstance(error, DeliveryError) else "unknown"
        self._record_failed(record, partition, error_type(error), outcome, refused=False)

    def _record_failed(self, record: Record, partition: int, error_code: str, outcome: str, *, refused: bool) -> None:
        if self in record.state:
            self.suppressed += 1  # one step under the interpreter lock
            return
        told: dict[str, Any] = {"topic": record.topic, "partition": partition, "outcome": outcome}
        self._log("error", "record_failed", error_code=error_code, **told, refused=refused)

    def records_lost(self, event: hooks.RecordsLost) -> None:
        # Garbage collection may strike inside a logging call, and a producer is lost only once: no loop.
        self._event("error", "records_lost", event, ("reason", "count"), even_while_logging=True)

    def client_error(self, producer: ProducerInfo, error: KafkaError, advice: str) -> None:
        self._log("warning", "client_error", client_id=producer.client_id, **_told(error), advice=advice)

    def fatal_error(self, producer: ProducerInfo, error: KafkaError) -> None:
        self._log("error", "fatal_error", even_while_logging=True, client_id=producer.client_id, **_told(error))

    def throttled(self, event: hooks.Throttled) -> None:
        self._event("warning", "throttled", event, ("broker_id", "broker_name", "seconds"))

    def window_changed(self, event: hooks.WindowChanged) -> None:
        self._event("info", "window_changed", event, ("topic", "partition", "before", "after", "reason"))

    def lanes_changed(self, event: hooks.LanesChanged) -> None:
        self._event("info", "lanes_changed", event, ("before", "after", "reason"))

    def replication_changed(self, event: hooks.ReplicationChanged) -> None:
        after = _fields(event.after, ("state", "moving", "left_over", "broker", "delays", "sentence", "cure"))
        level = "warning" if event.after.delays else "info"
        self._event(level, "replication_changed", event, ("topic", "partition"), **after)

    def producer_churn(self, event: hooks.ProducerChurn) -> None:
        names = "cluster", "principal", "made_by_site", "made_in_all", "limit_per_hour", "advice", "pattern"
        self._log("warning", "producer_churn", **_fields(event, names), site=str(event.site))

    def producer_id_limited(self, event: hooks.ProducerIdLimited) -> None:
        told = {"site": str(event.churn.site), "advice": event.churn.advice}
        self._event("warning", "producer_id_limited", event, ("policy", "retry_after"), **told)

    def producer_closed(self, producer: ProducerInfo, report: CloseReport) -> None:
        told = _fields(report, ("accepted", "delivered", "failed", "left", "seconds"))
        level = "warning" if report.left else "info"
        self._log(level, "producer_closed", client_id=producer.client_id, **told, suppressed=self.suppressed)

    def _logging(self) -> bool:
        return getattr(self._thread, "logging", False)

    def _event(self, level: str, name: str, event: Any, names: tuple[str, ...], **fields: Any) -> None:
        self._log(level, name, client_id=event.producer.client_id, **_fields(event, names), **fields)

    def _log(self, level: str, event: str, *, even_while_logging: bool = False, **fields: Any) -> None:
        already = self._logging()
        if already and not even_while_logging:
            self.suppressed += 1  # one step under the interpreter lock
            return
        try:
            self._thread.logging = True
            getattr(self._logger, level)(event, **fields)
        finally:
            self._thread.logging = already


def _fields(of: object, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(of, name) for name in names}


def _told(error: KafkaError) -> dict[str, Any]:
    return {"error_code": error.name(), "error": error.str()}
