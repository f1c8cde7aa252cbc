"""The report for a person: tables and findings on stdout, what failed on stderr."""

from collections.abc import Sequence

from safeproducer.cli.common.finding import draw_findings
from safeproducer.cli.common.screen import Screen
from safeproducer.cli.common.words import moment, span
from safeproducer.cli.doctor.census import Idle, TopicCensus
from safeproducer.cli.doctor.examined import Broker
from safeproducer.cli.doctor.host import Host
from safeproducer.cli.doctor.report import Report


def show(report: Report, screen: Screen, *, by_partition: bool) -> None:
    """Write the report; with `by_partition` a table for each topic, too."""
    if report.failure is not None:
        screen.error(str(report.failure))
    if screen.json_output:
        screen.result_json(report.document())
        return
    if report.examined.brokers and not screen.quiet:
        _draw_brokers(screen, report.examined.brokers)
        _draw_topics(screen, report.examined.topics)
        for topic in report.examined.topics if by_partition else ():
            _draw_partitions(screen, topic, report.examined.host)
    if not screen.quiet:
        _draw_host(screen, report.examined.host)
    draw_findings(screen, report.findings, failed=report.failure is not None)


def _draw_brokers(screen: Screen, brokers: Sequence[Broker]) -> None:
    rows = [
        (
            str(broker.number),
            broker.address,
            "not told" if broker.told.producer_id is None else span(broker.told.producer_id),
        )
        for broker in brokers
    ]
    screen.table("brokers", ("broker", "address", "remembers an idle ID for"), rows)


def _draw_topics(screen: Screen, topics: Sequence[TopicCensus]) -> None:
    found = [topic for topic in topics if topic.ids]
    found.sort(key=lambda topic: (-(topic.busiest.ids if topic.busiest is not None else 0), -topic.ids, topic.topic))
    columns = (
        "topic",
        "IDs",
        "distinct",
        "small",
        "transactional",
        "expire within 1 h",
        "idle (median)",
        "busiest hour of small IDs",
    )
    rows = [
        (
            topic.topic,
            f"{topic.entries:,}",
            f"{topic.ids:,}",
            f"{topic.small:,}",
            f"{topic.transactional:,}",
            f"{topic.expiring:,}",
            _age(topic.idle),
            "" if topic.busiest is None else f"{topic.busiest.ids:,} from {moment(topic.busiest.start)}",
        )
        for topic in found
    ]
    screen.table("producer IDs by topic", columns, rows)
    if len(found) < len(topics):
        screen.note(f"{len(topics) - len(found):,} of {len(topics):,} topics without producer IDs")


def _draw_partitions(screen: Screen, topic: TopicCensus, host: Host) -> None:
    rows = [
        (
            str(one.partition),
            "none" if one.leader is None else str(one.leader),
            "not read" if one.error is not None else f"{one.ids:,}",
            f"{one.small:,}",
            f"{one.expiring:,}",
            "" if one.idle is None else f"{span(one.idle.shortest)} to {span(one.idle.longest)}",
        )
        for one in topic.partitions
    ]
    screen.table(topic.topic, ("partition", "leader", "IDs", "small", "expire within 1 h", "idle"), rows)
    lines = sorted((topic.of_host or {}).items(), key=lambda item: -len(item[1]))
    title = f"{topic.topic}: IDs of this host{'' if host.asks else ', or of another cluster'}"
    screen.table(title, ("line", "IDs"), [(line, f"{len(ids):,}") for line, ids in lines])


def _draw_host(screen: Screen, host: Host) -> None:
    rows = [
        (
            f"{ledger.name} (of this configuration)" if ledger.asked else ledger.name,
            f"{ledger.in_hour:,}",
            "now" if ledger.wait <= 0 else f"in {span(ledger.wait)}",
        )
        for ledger in host.ledgers
    ]
    screen.table("this host, by cluster and user", ("ledger", "IDs in the hour", "next one"), rows)
    patterns = [
        (pattern.line, f"{pattern.count:,}", pattern.sentence) for ledger in host.ledgers for pattern in ledger.patterns
    ]
    screen.table("this host, by line of code", ("line", "IDs in the hour", "pattern"), patterns)


def _age(idle: Idle | None) -> str:
    return "" if idle is None else span(idle.median)
