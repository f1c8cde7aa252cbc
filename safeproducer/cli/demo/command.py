"""``safeproducer demo``: sends real text, lets brokers go wrong, reads everything back and compares."""

import argparse
import contextlib
import secrets
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from safeproducer import SafeProducer
from safeproducer.cli.common.connection import BrokerErrors, await_topic, open_producer
from safeproducer.cli.common.screen import Screen
from safeproducer.cli.common.settings import Setting, add_settings_arguments, read_settings, seconds
from safeproducer.cli.common.stop import NOT_ALL_DELIVERED, Failure, StopRequest
from safeproducer.cli.demo.experiment import Experiment, Record, read_corpus
from safeproducer.cli.demo.result import Result
from safeproducer.cli.demo.steps import BROKERS, PARTITIONS, RECORDS, Step, Steps, embedded_cluster
from safeproducer.kafka.advice import advice
from safeproducer.kafka.native import KafkaException
from safeproducer.kafka.readback import ReadbackIncompleteError, read_topic, scratch_topic

if TYPE_CHECKING:
    from safeproducer.testing import FakeCluster

_CLIENT_ID = "safeproducer-demo"
_LIMITS = (
    "The embedded brokers are FakeCluster: they decide as Kafka's do, but keep the log in memory, and a leader never "
    "loses what it acknowledged. This run shows what the producer does; --bootstrap-servers shows your brokers."
)
PARSER = {
    "help": "send real text, let brokers go wrong, read back and compare",
    "description": "Send real text through SafeProducer, read everything back and compare record by record.",
    "epilog": """\
Without brokers, FILE and --records it takes five steps, on a cluster inside this process: records flow, a leader
moves, a broker throttles, acknowledgements get lost, and a leader behind a long link announces its window.
Else it sends all records as fast as they are taken, without faults. Each line of the input is one record, keyed by its
file, so the lines of a file must stay in order. On real brokers a topic of its own is created and deleted.

not written: failed, and certainly not in the log.  unknown: failed, in the log once or not at all.
lost: reported delivered, not in the log.  duplicated: further copies of a record.
reordered: stands in the log behind a later record.

exit status: 0 if every record was delivered, none is lost, duplicated or reordered, and every step
             happened; 1 if not; 2 if nothing was sent; 130 after Ctrl-C

examples:
  safeproducer demo --config enable.idempotence=false
  safeproducer demo --bootstrap-servers localhost:9092 --partitions 10 --records 200000
""",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("file", metavar="FILE", nargs="*", help="input files (default: Python's standard library)")
    add("--records", metavar="N", type=int, help=f"at most N records (default: {RECORDS:,}, or all lines of FILE)")
    add("--partitions", metavar="N", type=int, help=f"default: {PARTITIONS}")
    add("--keep", action="store_true", help="leave the embedded cluster running until Ctrl-C, and print its address")
    add("--keep-topic", action="store_true", help="do not delete the topic on real brokers")
    patience = "give up after S seconds without any acknowledgement (default: 30)"
    add("--timeout", metavar="S", type=seconds, default=30.0, help=patience)
    add("--json", action="store_true", help="write the result as JSON")
    add("--quiet", action="store_true", help="only the result; errors are still shown")
    add_settings_arguments(parser, servers_help="real brokers (default: brokers embedded in this process)")


def run(args: argparse.Namespace, screen: Screen) -> int:
    """Run the command and return its exit status."""
    screen.require_rich()
    settings = {"client.id": _CLIENT_ID, **read_settings(args, screen)}
    embedded, in_steps = "bootstrap.servers" not in settings, not args.file and args.records is None
    if min(it for it in (args.partitions, args.records, 1) if it is not None) < 1:
        raise Failure("--partitions and --records must be at least 1.")
    if embedded and in_steps and args.partitions not in (None, PARTITIONS):
        sentence = f"The steps need {PARTITIONS} partitions: leave --partitions out, or give --records or FILE too, for"
        raise Failure(f"{sentence} a run without them.")
    if args.keep and not embedded:
        raise Failure("--keep is for the embedded cluster; on real brokers --keep-topic keeps the records.")
    records = read_corpus(args.file, args.records if args.file or args.records else RECORDS)
    if not records:
        raise Failure("The input has no line to send: name a file with text.", code="input")
    with StopRequest() as stop, ExitStack() as stack:
        cluster = stack.enter_context(embedded_cluster()) if embedded else None
        settings |= {} if cluster is None else {"bootstrap.servers": cluster.bootstrap}
        result = _demonstrate(args, screen, stop, settings, records, cluster, in_steps, stack)
        if cluster is None:
            result.show(screen, str(settings["bootstrap.servers"]), ())
        else:
            result.show(screen, f"{BROKERS} embedded brokers", (_LIMITS,))
            tell = screen.note if screen.json_output else screen.result
            if args.keep and not stop:
                tell(f"The cluster stays until Ctrl-C, for any client, with the topic {result.experiment.topic}:")
                tell(f"bootstrap.servers = {cluster.bootstrap}")
            while args.keep and not stop:  # Ctrl-C is then no failure
                time.sleep(0.1)
        return result.exit_code


def _demonstrate(
    args: argparse.Namespace,
    screen: Screen,
    stop: StopRequest,
    settings: dict[str, Setting],
    records: Sequence[Record],
    cluster: "FakeCluster | None",
    in_steps: bool,
    stack: ExitStack,
) -> Result:
    """Send the records, `in_steps` if there is an embedded cluster, and read them back."""
    topic, partitions = f"{_CLIENT_ID}-{secrets.token_hex(4)}", args.partitions or PARTITIONS
    errors, steps = BrokerErrors(screen), list[Step]()
    producer = open_producer(settings, errors)
    stack.callback(_close, producer)
    wait = partial(await_topic, producer, settings=settings, errors=errors, timeout=args.connect_timeout, stop=stop)
    wait(None)
    if cluster is not None:
        cluster.create_topic(topic, partitions)
    elif not stop:
        _make_topic(stack, settings, topic, partitions, args.keep_topic)
    wait(topic)
    experiment = Experiment(producer, errors, stop, topic, args.timeout)
    if cluster is not None and in_steps:
        steps = Steps(cluster, experiment, records, screen, str(settings["client.id"])).run()
    else:
        errors.talkative = True
        all(map(experiment.send, records))
        experiment.drain()
    started = time.monotonic()
    try:
        log = read_topic(settings, topic, partitions)
    except (ReadbackIncompleteError, KafkaException) as error:
        sentence = f"The records were sent, but the log cannot be read back, so nothing is proved: {error}."
        raise Failure(sentence, code="readback", exit_code=NOT_ALL_DELIVERED) from error
    return Result(experiment, steps, log, time.monotonic() - started)


def _make_topic(stack: ExitStack, settings: dict[str, Setting], topic: str, partitions: int, keep: bool) -> None:
    try:
        stack.enter_context(scratch_topic(settings, topic, partitions, keep=keep))
    except KafkaException as error:
        reason = error.args[0]
        sentence = f"The topic {topic} cannot be created: {advice(reason.name(), reason.str())}"
        raise Failure(sentence, code=reason.name()) from error


def _close(producer: SafeProducer) -> None:
    with contextlib.suppress(KafkaException):  # a fatal error was told when it came
        producer.close(0)
