"""structlog events with stable names and fields: what an operator of a producer wants to read."""

from __future__ import annotations

import threading
from typing import Any

import structlog

from safeproducer.errors import DeliveryError
from safeproducer.hooks import (
    Hook,
    LanesChanged,
    ProducerChurn,
    ProducerIdLimited,
    RecordsLost,
    ReplicationChanged,
    Throttled,
    WindowChanged,
)
from safeproducer.kafka.native import KafkaError, Message
from safeproducer.records import ProducerInfo, Record
from safeproducer.snapshot import CloseReport
from safeproducer.telemetry.conventions import error_type


class StructlogHook(Hook):
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
        self._lock = threading.RLock()  # a signal handler may produce while this thread holds it
        self.suppressed = 0
        """Events not logged because logging itself caused them."""

    def producer_created(self, producer: ProducerInfo) -> None:
        self._log(
            "info",
            "producer_created",
            client_id=producer.client_id,
            bootstrap_servers=producer.bootstrap_servers,
            principal=producer.principal,
            transactional_id=producer.transactional_id,
            idempotent=producer.idempotent,
            site=str(producer.site),
        )

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
            self._suppress()
            return
        self._log(
            "error",
            "record_failed",
            topic=record.topic,
            partition=partition,
            error_code=error_code,
            outcome=outcome,
            refused=refused,
        )

    def records_lost(self, event: RecordsLost) -> None:
        # Garbage collection may strike inside a logging call, and a producer is lost only once: no loop.
        self._log(
            "error",
            "records_lost",
            even_while_logging=True,
            client_id=event.producer.client_id,
            reason=event.reason,
            count=event.count,
        )

    def client_error(self, producer: ProducerInfo, error: KafkaError, advice: str) -> None:
        self._log(
            "warning",
            "client_error",
            client_id=producer.client_id,
            error_code=error.name(),
            error=error.str(),
            advice=advice,
        )

    def fatal_error(self, producer: ProducerInfo, error: KafkaError) -> None:
        self._log(
            "error",
            "fatal_error",
            even_while_logging=True,
            client_id=producer.client_id,
            error_code=error.name(),
            error=error.str(),
        )

    def throttled(self, event: Throttled) -> None:
        self._log(
            "warning",
            "throttled",
            client_id=event.producer.client_id,
            broker_id=event.broker_id,
            broker_name=event.broker_name,
            seconds=event.seconds,
        )

    def window_changed(self, event: WindowChanged) -> None:
        self._log(
            "info",
            "window_changed",
            client_id=event.producer.client_id,
            topic=event.topic,
            partition=event.partition,
            before=event.before,
            after=event.after,
            reason=event.reason,
        )

    def lanes_changed(self, event: LanesChanged) -> None:
        self._log(
            "info",
            "lanes_changed",
            client_id=event.producer.client_id,
            before=event.before,
            after=event.after,
            reason=event.reason,
        )

    def replication_changed(self, event: ReplicationChanged) -> None:
        names = ("state", "moving", "left_over", "broker", "delays", "sentence", "cure")
        self._log(
            "warning" if event.after.delays else "info",
            "replication_changed",
            client_id=event.producer.client_id,
            topic=event.topic,
            partition=event.partition,
            **{name: getattr(event.after, name) for name in names},
        )

    def producer_churn(self, event: ProducerChurn) -> None:
        self._log(
            "warning",
            "producer_churn",
            cluster=event.cluster,
            principal=event.principal,
            site=str(event.site),
            made_by_site=event.made_by_site,
            made_in_all=event.made_in_all,
            limit_per_hour=event.limit_per_hour,
            advice=event.advice,
            pattern=event.pattern,
        )

    def producer_id_limited(self, event: ProducerIdLimited) -> None:
        self._log(
            "warning",
            "producer_id_limited",
            client_id=event.producer.client_id,
            policy=event.policy,
            retry_after=event.retry_after,
            site=str(event.churn.site),
            advice=event.churn.advice,
        )

    def producer_closed(self, producer: ProducerInfo, report: CloseReport) -> None:
        self._log(
            "warning" if report.left else "info",
            "producer_closed",
            client_id=producer.client_id,
            accepted=report.accepted,
            delivered=report.delivered,
            failed=report.failed,
            left=report.left,
            seconds=report.seconds,
            suppressed=self.suppressed,
        )

    def _logging(self) -> bool:
        return getattr(self._thread, "logging", False)

    def _suppress(self) -> None:
        with self._lock:
            self.suppressed += 1

    def _log(self, level: str, event: str, *, even_while_logging: bool = False, **fields: Any) -> None:
        already = self._logging()
        if already and not even_while_logging:
            self._suppress()
            return
        try:
            self._thread.logging = True
            getattr(self._logger, level)(event, **fields)
        finally:
            self._thread.logging = already
