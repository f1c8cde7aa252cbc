"""``safeproducer doctor``: a configuration and this host against a cluster. It only reads."""

import argparse
import os
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from safeproducer.cli.common.connection import refusals
from safeproducer.cli.common.finding import Finding, draw_findings, exit_code, moment, span
from safeproducer.cli.common.screen import Screen
from safeproducer.cli.common.settings import CONFIG_FILE_VARIABLE, add_settings_arguments, read_settings
from safeproducer.cli.common.stop import Failure
from safeproducer.cli.doctor.census import BrokerCensus, ClusterCensus, Configuration, Examined, TopicCensus
from safeproducer.cli.doctor.checks import check
from safeproducer.cli.doctor.cluster import look
from safeproducer.cli.doctor.host import Host, read_host
from safeproducer.policy.hold_reason import HoldReason
from safeproducer.producer_ids.ledger import name_of
from safeproducer.producer_ids.ledger_places import AUTO, SUFFIX
from safeproducer.settings import config
from safeproducer.settings.own_settings import DEFAULT_PRODUCER_IDS_PER_HOUR

PARSER = {
    "help": "show what the producer IDs of a cluster look like, and where they come from",
    "description": "Examine the producer IDs of a cluster, a configuration, and this host's ledger.",
    "epilog": """\
It counts the producer IDs that brokers remember, by topic and partition, and reads this host's ledger of the IDs that
were taken here. A broker keeps neither the client.id nor the user of an ID: the ledger knows the line of code, for
IDs of this host. Without brokers the ledger alone is read. It changes nothing, and takes no producer ID.

With a configuration, time-outs are compared with the time for which each broker remembers a producer ID. Replicas that
are missing or move are named, and replication throttles that no move needs.

The user needs DESCRIBE, READ and DESCRIBE_CONFIGS on the topics, and DESCRIBE and DESCRIBE_CONFIGS on the cluster.

exit status:
  0    no warning and no error
  1    some; see the findings
  2    could not look: wrong usage or configuration, no connection, no such topic
  130  stopped by Ctrl-C

examples:
  safeproducer doctor
  safeproducer doctor --bootstrap-servers localhost:9092
  safeproducer doctor --config-file kafka.properties --topic orders --json
""",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--topic", metavar="T", action="append", default=[], help="topic to look at; repeatable (default: all)")
    add("--no-paths", action="store_true", help="number lines of code instead of naming them")
    add("--json", action="store_true", help="write the report as JSON")
    add("--quiet", action="store_true", help="no tables, no progress; findings are still shown")
    add_settings_arguments(parser, servers_help="brokers to start from (default: this host's ledger alone)")


def run(args: argparse.Namespace, screen: Screen) -> int:
    screen.require_rich()
    settings = read_settings(args, screen, transactions=True)
    named = "bootstrap.servers" in settings
    if args.topic and not named:
        raise Failure("--topic needs brokers: give --bootstrap-servers HOST:PORT, or a --config-file that names them.")
    given = bool(args.config or args.config_file or os.environ.get(CONFIG_FILE_VARIABLE))
    rate, place, configuration, identity, failure = DEFAULT_PRODUCER_IDS_PER_HOUR, AUTO, None, None, None
    try:
        with refusals():
            # An environment variable may name the ledger without any setting.
            parsed = config.parse((dict(settings) or {"client.id": "safeproducer-doctor"},), {})
        rate, place, identity = parsed.producer_ids_per_hour, parsed.ids.ledger, (parsed.cluster, parsed.principal)
        delivery = parsed.delivery
        expires = delivery.own.expiry_ms
        expiration = None if expires is None else expires / 1000
        configuration = Configuration(delivery.timeout, delivery.socket_timeout, parsed.idempotent, expiration)
    except Failure as error:
        failure = error
    names = {name_of(identity).removesuffix(SUFFIX): " as ".join(identity)} if named and identity else {}
    host = read_host(place, names, rate, paths=not args.no_paths)
    cluster = ClusterCensus()
    if named and failure is None:
        asked = {"client.id": "safeproducer-doctor", **settings}
        cluster, failure = look(asked, screen, args.connect_timeout, args.topic, host.lines)
    examined = Examined(rate, configuration if given else None, cluster, host)
    findings = list(check(examined))
    show(examined, findings, failure, screen, by_partition=bool(args.topic))
    return status(findings, failure)


# --- the output: exit status and JSON, or tables on stdout and what failed on stderr ----------------------------------


def status(findings: Sequence[Finding], failure: Failure | None) -> int:
    """0 no warning or error, 1 some, 2 could not look."""
    return exit_code(findings) if failure is None else failure.exit_code


def document(examined: Examined, findings: Sequence[Finding], failure: Failure | None) -> dict[str, Any]:
    """Return the JSON form. Times are seconds, moments ISO 8601 in UTC."""
    host = asdict(examined.host)
    for one in [known for ledger in host["ledgers"] for known in ledger["ids"]]:
        one["at"] = _moment(one["at"])
    found: dict[str, Any] = {
        "command": "doctor",
        "exit_code": status(findings, failure),
        "findings": [finding.document() for finding in findings],
        "brokers": [_broker(broker) for broker in examined.cluster.brokers],
        "topics": [_topic(topic) for topic in examined.cluster.topics],
        "host": host,
    }
    if failure is not None:
        told = {"code": failure.code, "message": str(failure), "cause": _cause(failure.code)}
        found["error"] = {name: value for name, value in told.items() if value}
    return found


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


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def show(
    examined: Examined, findings: Sequence[Finding], failure: Failure | None, screen: Screen, *, by_partition: bool
) -> None:
    """Write what was found; with `by_partition` a table for each topic, too. `failure`: why not all could be read."""
    if failure is not None:
        screen.error(str(failure))
    if screen.json_output:
        screen.result_json(document(examined, findings, failure))
        return
    cluster = examined.cluster
    if not screen.quiet:
        if cluster.brokers:
            times = ["not told" if (time := one.told.producer_id) is None else span(time) for one in cluster.brokers]
            rows = [(str(one.number), one.address, time) for one, time in zip(cluster.brokers, times, strict=True)]
            screen.table("brokers", ("broker", "address", "remembers an idle ID for"), rows)
            _draw_topics(screen, cluster.topics)
        for topic in cluster.topics if by_partition else ():
            _draw_partitions(screen, topic, examined.host)
        _draw_host(screen, examined.host)
    draw_findings(screen, findings, failed=failure is not None)


def _by_size(topic: TopicCensus) -> tuple[int, int, str]:
    """The topics that new producers flood come first."""
    return -topic.busiest_hour.small_ids if topic.busiest_hour else 0, -topic.distinct_ids, topic.topic


def _draw_topics(screen: Screen, topics: Sequence[TopicCensus]) -> None:
    found = sorted((topic for topic in topics if topic.ids), key=_by_size)
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
