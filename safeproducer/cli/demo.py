"""``safeproducer demo``: sends real text, reads everything back and compares."""

import argparse
import contextlib
import secrets
import time
from contextlib import ExitStack
from typing import NamedTuple

from safeproducer import SafeProducer
from safeproducer.cli.comparison import compare
from safeproducer.cli.config_file import Setting
from safeproducer.cli.connection import BrokerErrors, await_topic, open_producer
from safeproducer.cli.corpus import identify, named_files, python_sources
from safeproducer.cli.experiment import Experiment
from safeproducer.cli.failure import NOT_ALL_DELIVERED, Failure
from safeproducer.cli.progress import Progress
from safeproducer.cli.screen import Screen
from safeproducer.cli.settings import add_settings_arguments, read_settings, seconds
from safeproducer.cli.stop import StopRequest
from safeproducer.cli.verdict import Verdict
from safeproducer.kafka.advice import advice
from safeproducer.kafka.embedded import BROKERS, PARTITIONS, RETAINED_BYTES, EmbeddedCluster
from safeproducer.kafka.native import KafkaException
from safeproducer.kafka.readback import ReadbackIncompleteError, read_topic
from safeproducer.kafka.scratch_topic import ScratchTopic

_DEFAULT_RECORDS = 20_000
# All records may fall on one partition, and each takes some bytes beside its value and key.
_EMBEDDED_BYTES = RETAINED_BYTES // 2
_CUT = (
    "The input was cut: the embedded brokers keep little in memory, so only its first part was sent. "
    "Name real brokers with --bootstrap-servers to send all of it."
)
_MOCK_LIMITS = (
    "The embedded brokers are librdkafka's mock: they keep one copy in memory, never detect a duplicate, and know "
    "no users, rights or quotas. This run shows what the producer does; only --bootstrap-servers shows what brokers do."
)
_EPILOG = """\
Without FILE the input is the source code of Python's standard library. Each line is one record, keyed by its
file, so the lines of a file must stay in order. On real brokers a topic of its own is created and deleted.

lost: reported delivered, absent from the log.  duplicated: further copies of a record.
reordered: stands in the log behind a later line of its file.

exit status: 0 if every record was delivered and none is lost, duplicated or reordered; 1 if not;
             2 if nothing was sent; 130 after Ctrl-C

examples:
  safeproducer demo
  safeproducer demo --bootstrap-servers localhost:9092 --partitions 10 --records 200000
  safeproducer demo --config-file kafka.properties --json /var/log/syslog
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> argparse.ArgumentParser:
    """Declare the command and its arguments."""
    parser = subparsers.add_parser(
        "demo",
        help="send real text, read it back and compare",
        description="Send real text through SafeProducer, read everything back and compare record by record.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("file", metavar="FILE", nargs="*", help="input files (default: Python's standard library)")
    parser.add_argument(
        "--records",
        metavar="N",
        type=int,
        help=f"at most N records (default: {_DEFAULT_RECORDS:,}, or all lines of FILE)",
    )
    parser.add_argument(
        "--partitions", metavar="N", type=int, default=PARTITIONS, help=f"default: {PARTITIONS} (the mock's number)"
    )
    parser.add_argument("--keep-topic", action="store_true", help="do not delete the topic on real brokers")
    parser.add_argument(
        "--timeout",
        metavar="S",
        type=seconds,
        default=30.0,
        help="give up after S seconds without any acknowledgement (default: 30)",
    )
    parser.add_argument("--json", action="store_true", help="write the result as JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress bar, no notes; errors are still shown")
    add_settings_arguments(parser, servers_help="real brokers (default: brokers embedded in this process)")
    parser.set_defaults(run=run)
    return parser


class _Place(NamedTuple):
    """Where the demonstration runs."""

    cluster: str
    topic: str
    embedded: bool


def run(args: argparse.Namespace, screen: Screen) -> int:
    """Run the command and return its exit status."""
    screen.require_rich()
    settings = read_settings(args, screen)
    embedded = "bootstrap.servers" not in settings
    _check(args, embedded)
    files = named_files(args.file) if args.file else python_sources()
    records = args.records if args.records is not None or args.file else _DEFAULT_RECORDS
    with StopRequest() as stop, ExitStack() as stack:
        if embedded:
            settings["bootstrap.servers"] = stack.enter_context(EmbeddedCluster()).bootstrap
        cluster = f"{BROKERS} embedded mock brokers" if embedded else str(settings["bootstrap.servers"])
        place = _Place(cluster, f"safeproducer-demo-{secrets.token_hex(4)}", embedded)
        settings.setdefault("client.id", "safeproducer-demo")
        errors = BrokerErrors(screen)
        producer = open_producer(settings, errors)
        stack.callback(_close, producer)
        await_topic(producer, None, settings=settings, errors=errors, timeout=args.connect_timeout, stop=stop)
        if not embedded and not stop:
            _create_topic(args, settings, place.topic, stack)
        await_topic(producer, place.topic, settings=settings, errors=errors, timeout=args.connect_timeout, stop=stop)
        errors.talkative = True
        experiment = Experiment(producer, errors, stop, place.topic)
        with Progress(screen, "sending", records) as progress:
            experiment.send(
                files,
                records=records,
                max_bytes=_EMBEDDED_BYTES if embedded else None,
                timeout=args.timeout,
                show=progress.update,
            )
            progress.update(experiment.tally.sent, experiment.tally.delivered, title="reading back")
            verdict = _verdict(args, settings, place, experiment, stop)
        verdict.show(screen)
        return verdict.exit_code


def _close(producer: SafeProducer) -> None:
    # A fatal error was told when it came.
    with contextlib.suppress(KafkaException):
        producer.close(0)


def _check(args: argparse.Namespace, embedded: bool) -> None:
    if args.partitions < 1 or (args.records is not None and args.records < 1):
        raise Failure("--partitions and --records must be at least 1.")
    if embedded and args.partitions != PARTITIONS:
        raise Failure(
            f"The embedded brokers give every topic {PARTITIONS} partitions: leave --partitions out, or name real "
            "brokers with --bootstrap-servers."
        )


def _create_topic(args: argparse.Namespace, settings: dict[str, Setting], topic: str, stack: ExitStack) -> None:
    try:
        stack.enter_context(ScratchTopic(settings, topic, args.partitions, keep=args.keep_topic))
    except KafkaException as error:
        reason = error.args[0]
        raise Failure(
            f"The topic {topic} cannot be created: {advice(reason.name(), reason.str())}", code=reason.name()
        ) from error


def _verdict(
    args: argparse.Namespace,
    settings: dict[str, Setting],
    place: _Place,
    experiment: Experiment,
    stop: StopRequest,
) -> Verdict:
    if not experiment.tally.sent and not stop:
        raise Failure("The input has no line to send: name a file with text.", code="input")
    started = time.monotonic()
    try:
        log = [(record.partition, record.value or b"") for record in read_topic(settings, place.topic, args.partitions)]
    except (ReadbackIncompleteError, KafkaException) as error:
        raise Failure(
            f"The records were sent, but the log cannot be read back, so nothing is proved: {error}.",
            code="readback",
            exit_code=NOT_ALL_DELIVERED,
        ) from error
    rows, total = compare(experiment.sent(), log, identify)
    return Verdict(
        place.cluster,
        place.topic,
        rows,
        total,
        experiment,
        seconds_to_read=time.monotonic() - started,
        limits=_limits(place, experiment),
        stop=stop,
    )


def _limits(place: _Place, experiment: Experiment) -> tuple[str, ...]:
    """What this run cannot show, in sentences."""
    cut = (_CUT,) if experiment.was_cut else ()
    return (_MOCK_LIMITS, *cut) if place.embedded else cut
