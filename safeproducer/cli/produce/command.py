"""``safeproducer produce``: lines of a file or of stdin become records."""

import argparse
import contextlib
import os
import time

from safeproducer import SafeProducer
from safeproducer.cli.common.config_file import Setting
from safeproducer.cli.common.connection import BrokerErrors, await_topic, open_producer
from safeproducer.cli.common.failure import Failure
from safeproducer.cli.common.feed import Feed
from safeproducer.cli.common.progress import Progress
from safeproducer.cli.common.screen import Screen
from safeproducer.cli.common.settings import add_settings_arguments, read_settings, seconds
from safeproducer.cli.common.stop import StopRequest
from safeproducer.cli.common.tally import Tally
from safeproducer.cli.produce.record_format import RecordFormat
from safeproducer.cli.produce.source import open_source, remaining_bytes
from safeproducer.cli.produce.summary import Summary
from safeproducer.cli.produce.transfer import Transfer
from safeproducer.kafka.advice import advice
from safeproducer.kafka.native import KafkaException

_EPILOG = """\
Each line is one record, as bytes. Only the newline ends a line and it is not part of the record; a carriage
return before it is (as in kcat; kafka-console-producer drops it). An empty line is an empty record, and a last
line without newline counts. With --key-separator a line without separator ends the run and is named.

exit status:
  0    every record was delivered
  1    some record failed, or was without acknowledgement at the end
  2    nothing was sent: wrong usage or configuration, no connection, no such topic
  130  stopped by Ctrl-C (143: by SIGTERM), after waiting for outstanding records; the second Ctrl-C does not wait

examples:
  safeproducer produce --bootstrap-servers localhost:9092 --topic events events.txt
  tail -f app.log | safeproducer produce --config-file kafka.properties --topic logs --header host=web1
  safeproducer produce --bootstrap-servers localhost:9092 --topic t --key-separator '\\t' --json table.tsv
"""
_BUFFER_KBYTES = 64 * 1024
_DEFAULT_LIMIT = 1_000_000  # librdkafka's message.max.bytes


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> argparse.ArgumentParser:
    """Declare the command and its arguments."""
    parser = subparsers.add_parser(
        "produce",
        help="send lines of a file or of standard input to a topic",
        description="Send the lines of a file or of standard input to a topic, and account for every one.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("file", metavar="FILE", nargs="?", default="-", help="input; - or none: standard input")
    parser.add_argument("--topic", required=True, metavar="T", help="topic to write to")
    parser.add_argument(
        "--key-separator",
        metavar="C",
        help=r"what stands before the first C of a line is the record's key; \t, \xHH and \\ are understood",
    )
    parser.add_argument(
        "--header", metavar="NAME=VALUE", action="append", default=[], help="header of every record; repeatable"
    )
    parser.add_argument("--partition", metavar="N", type=int, help="partition for every record (default: by key)")
    parser.add_argument(
        "--timeout",
        metavar="S",
        type=seconds,
        default=30.0,
        help="at the end of the input give up after S seconds without any acknowledgement; "
        "after Ctrl-C wait S seconds at most (default: 30)",
    )
    parser.add_argument("--json", action="store_true", help="write the summary as JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress bar, no notes; errors are still shown")
    add_settings_arguments(parser, servers_help="brokers to start from; or bootstrap.servers in --config-file")
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace, screen: Screen) -> int:
    """Run the command and return its exit status."""
    screen.require_rich()
    settings = read_settings(args, screen)
    if "bootstrap.servers" not in settings:
        raise Failure("No broker is named: give --bootstrap-servers HOST:PORT, or bootstrap.servers in --config-file.")
    settings.setdefault("client.id", "safeproducer-produce")
    # librdkafka's own bound of 1 GiB would let a slow broker turn a large file into memory.
    settings.setdefault("queue.buffering.max.kbytes", max(_BUFFER_KBYTES, 2 * _line_limit(settings) // 1024))
    form = RecordFormat(args.key_separator, args.header, args.partition)
    with open_source(args.file) as descriptor, StopRequest() as stop:
        errors = BrokerErrors(screen)
        producer = open_producer(settings, errors)
        try:
            partitions = await_topic(
                producer, args.topic, settings=settings, errors=errors, timeout=args.connect_timeout, stop=stop
            )
            _check_partition(args, partitions, stop)
            errors.talkative = True
            if os.isatty(descriptor):
                screen.note("reading lines from the terminal; end with Ctrl-D")
            summary = _transfer(args, screen, descriptor, producer, form, settings, errors, stop)
        finally:
            # Quick when all is delivered; what is left has had its time.
            with contextlib.suppress(KafkaException):
                producer.close(0)
        summary.show(screen)
        return summary.exit_code


def _transfer(
    args: argparse.Namespace,
    screen: Screen,
    descriptor: int,
    producer: SafeProducer,
    form: RecordFormat,
    settings: dict[str, Setting],
    errors: BrokerErrors,
    stop: StopRequest,
) -> Summary:
    tally = Tally()
    started = time.monotonic()
    abandoned = False
    why_left = None
    with Progress(screen, args.topic, remaining_bytes(descriptor)) as progress:
        feed = Feed(producer, tally, errors, stop, tick=lambda: transfer.show(progress))
        transfer = Transfer(feed, tally, form, args.topic, _line_limit(settings))
        try:
            transfer.run(descriptor)
            feed.drain(args.timeout)
            why_left = producer.explain(args.topic) if tally.left else None
        except KeyboardInterrupt:
            abandoned = True
        transfer.show(progress, last=True)
    problem = transfer.problem
    if errors.fatal is not None:
        problem = advice(errors.fatal.name(), errors.fatal.str())
    summary = Summary(args.topic, tally, time.monotonic() - started, stop, problem, why_left)
    if abandoned:
        summary.show(screen)
        # The second Ctrl-C means now; closing would wait for librdkafka's threads.
        screen.leave(summary.exit_code)
    return summary


def _check_partition(args: argparse.Namespace, partitions: int, stop: StopRequest) -> None:
    if args.partition is not None and not stop and not 0 <= args.partition < partitions:
        raise Failure(
            f"Topic {args.topic} has the partitions 0 to {partitions - 1}, not {args.partition}: "
            "choose another --partition, or leave it out.",
            code="_UNKNOWN_PARTITION",
        )


def _line_limit(settings: dict[str, Setting]) -> int:
    """Longer lines cannot become records, so no more of a line needs to be kept in memory."""
    value = settings.get("message.max.bytes")
    return int(value) if isinstance(value, int | str) and str(value).isdecimal() else _DEFAULT_LIMIT
