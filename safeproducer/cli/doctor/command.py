"""``safeproducer doctor``: a configuration and this host against a cluster. It only reads."""

import argparse
import os

from safeproducer.cli.common.connection import refusals
from safeproducer.cli.common.screen import Screen
from safeproducer.cli.common.settings import CONFIG_FILE_VARIABLE, add_settings_arguments, read_settings
from safeproducer.cli.common.stop import Failure
from safeproducer.cli.doctor.census import ClusterCensus, Configuration, Examined
from safeproducer.cli.doctor.checks import check
from safeproducer.cli.doctor.cluster import look
from safeproducer.cli.doctor.host import read_host
from safeproducer.cli.doctor.report import show, status
from safeproducer.kafka.properties import whole
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
        expires = whole(settings.get("safeproducer.expiry.ms"))  # a number, or "discover"
        expiration, delivery = None if expires is None else expires / 1000, parsed.delivery
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
