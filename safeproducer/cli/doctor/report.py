"""The output of ``doctor``: exit status and JSON. Pure; ``report_tables`` draws it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from safeproducer.cli.common.failure import Failure
from safeproducer.cli.common.finding import Finding, exit_code
from safeproducer.cli.doctor.census import Idle, PartitionCensus, TopicCensus
from safeproducer.cli.doctor.examined import Broker, Examined
from safeproducer.cli.doctor.host import Host


@dataclass(frozen=True, slots=True)
class Report:
    """`failure`: why the cluster, or part of it, could not be looked at."""

    examined: Examined
    findings: Sequence[Finding]
    failure: Failure | None = None

    @property
    def exit_code(self) -> int:
        """0 no warning or error, 1 some, 2 could not look."""
        return self.failure.exit_code if self.failure is not None else exit_code(self.findings)

    def document(self) -> dict[str, Any]:
        """Return the JSON form. Times are seconds, moments ISO 8601 in UTC."""
        examined = self.examined
        document: dict[str, Any] = {
            "command": "doctor",
            "exit_code": self.exit_code,
            "findings": [finding.document() for finding in self.findings],
            "brokers": [_broker(broker) for broker in examined.brokers],
            "topics": [_topic(topic) for topic in examined.topics],
            "host": _host(examined.host),
        }
        if self.failure is not None:
            document["error"] = {"code": self.failure.code, "message": str(self.failure)}
        return document


def _broker(broker: Broker) -> dict[str, Any]:
    told = broker.told
    return {
        "broker": broker.number,
        "address": broker.address,
        "expiration_seconds": told.producer_id,
        "config": told.config if told.producer_id is not None else None,
        "error": told.reason or None,
    }


def _topic(topic: TopicCensus) -> dict[str, Any]:
    busiest = topic.busiest
    return {
        "topic": topic.topic,
        "ids": topic.entries,
        "distinct_ids": topic.ids,
        "small_ids": topic.small,
        "transactional_ids": topic.transactional,
        "about_to_expire": topic.expiring,
        "idle_seconds": _idle(topic.idle),
        "busiest_hour": None if busiest is None else {"start": _moment(busiest.start), "small_ids": busiest.ids},
        "of_this_host": [
            {"line": line, "ids": len(ids), "producer_ids": list(ids)} for line, ids in (topic.of_host or {}).items()
        ],
        "partitions": [_partition(one) for one in topic.partitions],
        "error": None if topic.error is None else dict(zip(("code", "message"), topic.error, strict=True)),
    }


def _partition(one: PartitionCensus) -> dict[str, Any]:
    return {
        "partition": one.partition,
        "leader": one.leader,
        "ids": one.ids,
        "small_ids": one.small,
        "about_to_expire": one.expiring,
        "idle_seconds": _idle(one.idle),
        "error": None if one.error is None else dict(zip(("code", "message"), one.error, strict=True)),
    }


def _idle(idle: Idle | None) -> dict[str, float] | None:
    return None if idle is None else {name: round(value, 3) for name, value in idle._asdict().items()}


def _host(host: Host) -> dict[str, Any]:
    return {
        "ledgers": [
            {
                "name": ledger.name,
                "asked": ledger.asked,
                "ids_in_hour": ledger.in_hour,
                "next_in_seconds": round(ledger.wait, 3),
                "patterns": [asdict(pattern) for pattern in ledger.patterns],
                "ids": [{**asdict(one), "at": _moment(one.at)} for one in ledger.ids],
            }
            for ledger in host.ledgers
        ],
        "not_kept": list(host.not_kept),
        "damaged": list(host.damaged),
        "off": host.off,
    }


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
