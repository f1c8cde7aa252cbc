"""``safeproducer doctor``: a configuration and this host against a cluster. It only reads."""

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from safeproducer.cli.common.connection import refusals
from safeproducer.cli.common.screen import Screen
from safeproducer.cli.common.settings import CONFIG_FILE_VARIABLE, Setting, add_settings_arguments, read_settings
from safeproducer.cli.common.stop import Failure
from safeproducer.cli.doctor.census import Configuration, Examined
from safeproducer.cli.doctor.checks import check
from safeproducer.cli.doctor.cluster import ClusterLook
from safeproducer.cli.doctor.host import read_host
from safeproducer.cli.doctor.report import Report, show
from safeproducer.kafka.properties import whole
from safeproducer.producer_ids.ledger import name_of
from safeproducer.producer_ids.ledger_places import AUTO, SUFFIX, Place
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
    parser.add_argument(
        "--topic", metavar="T", action="append", default=[], help="topic to look at; repeatable (default: all)"
    )
    parser.add_argument("--no-paths", action="store_true", help="number lines of code instead of naming them")
    parser.add_argument("--json", action="store_true", help="write the report as JSON")
    parser.add_argument("--quiet", action="store_true", help="no tables, no progress; findings are still shown")
    add_settings_arguments(parser, servers_help="brokers to start from (default: this host's ledger alone)")


def run(args: argparse.Namespace, screen: Screen) -> int:
    screen.require_rich()
    settings = read_settings(args, screen, transactions=True)
    named = "bootstrap.servers" in settings
    if args.topic and not named:
        raise Failure("--topic needs brokers: give --bootstrap-servers HOST:PORT, or a --config-file that names them.")
    given = bool(args.config or args.config_file or os.environ.get(CONFIG_FILE_VARIABLE))
    asked = _Scope()
    failure = None
    try:
        asked = _asked(settings)
    except Failure as error:
        failure = error
    host = read_host(asked.place, asked.names, asked.rate, paths=not args.no_paths)
    look = ClusterLook({"client.id": "safeproducer-doctor", **settings}, screen, args.connect_timeout)
    if named and failure is None:
        try:
            look.run(args.topic, host.lines)
        except Failure as error:
            failure = error
    examined = Examined(asked.rate, asked.configuration if given else None, look.cluster, host)
    report = Report(examined, check(examined), failure)
    show(report, screen, by_partition=bool(args.topic))
    return report.exit_code


@dataclass(frozen=True, slots=True)
class _Scope:
    """The relevant settings: IDs per hour, time-outs, where the ledger is, and how this cluster's is called."""

    rate: int = DEFAULT_PRODUCER_IDS_PER_HOUR
    configuration: Configuration | None = None
    place: Place = AUTO
    names: Mapping[str, str] = field(default_factory=dict)


def _asked(settings: Mapping[str, Setting]) -> _Scope:
    with refusals():
        # An environment variable may name the ledger without any setting.
        parsed = config.parse((dict(settings) or {"client.id": "safeproducer-doctor"},), {})
    delivery = parsed.delivery
    given = whole(settings.get("safeproducer.expiry.ms"))  # a number, or "discover"
    expiration = None if given is None else given / 1000
    configuration = Configuration(delivery.timeout, delivery.socket_timeout, parsed.idempotent, expiration)
    identity = (parsed.cluster, parsed.principal)
    names = {name_of(identity).removesuffix(SUFFIX): " as ".join(identity)} if "bootstrap.servers" in settings else {}
    return _Scope(parsed.producer_ids_per_hour, configuration, parsed.ids.ledger, names)
