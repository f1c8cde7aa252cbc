"""The output of ``doctor``: exit status and JSON, or tables on stdout and what failed on stderr."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from safeproducer.cli.common.finding import Finding, draw_findings, exit_code, moment, span
from safeproducer.cli.common.screen import Screen
from safeproducer.cli.common.stop import Failure
from safeproducer.cli.doctor.census import BrokerCensus, Examined, TopicCensus
from safeproducer.cli.doctor.host import Host
from safeproducer.policy.hold_reason import HoldReason


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
            "brokers": [_broker(broker) for broker in examined.cluster.brokers],
            "topics": [_topic(topic) for topic in examined.cluster.topics],
            "host": _host(examined.host),
        }
        if self.failure is not None:
            told = {"code": self.failure.code, "message": str(self.failure), "cause": _cause(self.failure.code)}
            document["error"] = {name: value for name, value in told.items() if value}
        return document


def _cause(code: str) -> str:
    """The code of the reason of health() for which records of a producer wait; "" for what concerns the command."""
    if code == "UNKNOWN_TOPIC_OR_PART":
        return HoldReason.UNKNOWN_TOPIC
    return "client_error" if code[0] == "_" or code.isupper() else ""


def _broker(broker: BrokerCensus) -> dict[str, Any]:
    told = broker.told
    return {
        "broker": broker.number,
        "address": broker.address,
        "expiration_seconds": told.producer_id,
        "config": told.config if told.producer_id is not None else None,
        "error": told.reason or None,
    }


def _topic(topic: TopicCensus) -> dict[str, Any]:
    known = [{"line": line, "ids": len(ids), "producer_ids": ids} for line, ids in topic.of_this_host.items()]
    document = {**asdict(topic), "of_this_host": known}
    if topic.busiest_hour is not None:
        document["busiest_hour"]["start"] = _moment(topic.busiest_hour.start)
    return document


def _host(host: Host) -> dict[str, Any]:
    document = asdict(host)
    for one in [known for ledger in document["ledgers"] for known in ledger["ids"]]:
        one["at"] = _moment(one["at"])
    return document


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def show(report: Report, screen: Screen, *, by_partition: bool) -> None:
    """Write the report; with `by_partition` a table for each topic, too."""
    if report.failure is not None:
        screen.error(str(report.failure))
    if screen.json_output:
        screen.result_json(report.document())
        return
    cluster = report.examined.cluster
    if cluster.brokers and not screen.quiet:
        _draw_brokers(screen, cluster.brokers)
        _draw_topics(screen, cluster.topics)
        for topic in cluster.topics if by_partition else ():
            _draw_partitions(screen, topic, report.examined.host)
    if not screen.quiet:
        _draw_host(screen, report.examined.host)
    draw_findings(screen, report.findings, failed=report.failure is not None)


def _draw_brokers(screen: Screen, brokers: Sequence[BrokerCensus]) -> None:
    times = ["not told" if (time := broker.told.producer_id) is None else span(time) for broker in brokers]
    rows = [(str(broker.number), broker.address, time) for broker, time in zip(brokers, times, strict=True)]
    screen.table("brokers", ("broker", "address", "remembers an idle ID for"), rows)


def _draw_topics(screen: Screen, topics: Sequence[TopicCensus]) -> None:
    found = [topic for topic in topics if topic.ids]
    found.sort(
        key=lambda topic: (
            -(topic.busiest_hour.small_ids if topic.busiest_hour else 0),
            -topic.distinct_ids,
            topic.topic,
        )
    )
    counted = ("IDs", "distinct", "small", "transactional", "expire within 1 h")
    rows = []
    for topic in found:
        counts = topic.ids, topic.distinct_ids, topic.small_ids, topic.transactional_ids, topic.about_to_expire
        idle = "" if topic.idle_seconds is None else span(topic.idle_seconds.median)
        hour = topic.busiest_hour
        busiest = "" if hour is None else f"{hour.small_ids:,} from {moment(hour.start)}"
        rows.append((topic.topic, *(f"{count:,}" for count in counts), idle, busiest))
    columns = ("topic", *counted, "idle (median)", "busiest hour of small IDs")
    screen.table("producer IDs by topic", columns, rows)
    if len(found) < len(topics):
        screen.note(f"{len(topics) - len(found):,} of {len(topics):,} topics without producer IDs")


def _draw_partitions(screen: Screen, topic: TopicCensus, host: Host) -> None:
    rows = [
        (
            str(one.partition),
            "none" if one.leader is None else str(one.leader),
            "not read" if one.error is not None else f"{one.ids:,}",
            f"{one.small_ids:,}",
            f"{one.about_to_expire:,}",
            "" if (idle := one.idle_seconds) is None else f"{span(idle.shortest)} to {span(idle.longest)}",
        )
        for one in topic.partitions
    ]
    screen.table(topic.topic, ("partition", "leader", "IDs", "small", "expire within 1 h", "idle"), rows)
    lines = sorted(topic.of_this_host.items(), key=lambda item: -len(item[1]))
    title = f"{topic.topic}: IDs of this host{'' if host.asks else ', or of another cluster'}"
    screen.table(title, ("line", "IDs"), [(line, f"{len(ids):,}") for line, ids in lines])


def _draw_host(screen: Screen, host: Host) -> None:
    rows = [
        (
            f"{ledger.name} (of this configuration)" if ledger.asked else ledger.name,
            f"{ledger.ids_in_hour:,}",
            "now" if ledger.next_in_seconds <= 0 else f"in {span(ledger.next_in_seconds)}",
        )
        for ledger in host.ledgers
    ]
    screen.table("this host, by cluster and user", ("ledger", "IDs in the hour", "next one"), rows)
    patterns = [
        (pattern.line, f"{pattern.count:,}", pattern.sentence) for ledger in host.ledgers for pattern in ledger.patterns
    ]
    screen.table("this host, by line of code", ("line", "IDs in the hour", "pattern"), patterns)
