"""``safeproducer demo``: sends real text, lets brokers go wrong, reads everything back and compares."""

import argparse
import contextlib
import secrets
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from safeproducer import SafeProducer
from safeproducer.cli.common.connection import BrokerErrors, await_topic, open_producer
from safeproducer.cli.common.screen import Progress, Screen
from safeproducer.cli.common.settings import Setting, add_settings_arguments, read_settings, seconds
from safeproducer.cli.common.stop import NOT_ALL_DELIVERED, Failure, StopRequest
from safeproducer.cli.demo.display import Display
from safeproducer.cli.demo.experiment import Experiment, identify, named_files, python_sources, read_corpus
from safeproducer.cli.demo.proof import compare
from safeproducer.cli.demo.result import Result, show
from safeproducer.cli.demo.steps import BROKERS, PARTITIONS, RECORDS, Step, Steps, embedded_cluster
from safeproducer.kafka.advice import advice
from safeproducer.kafka.native import KafkaException
from safeproducer.kafka.readback import ReadbackIncompleteError, ScratchTopic, read_topic

if TYPE_CHECKING:
    from safeproducer.testing import FakeCluster

_CLIENT_ID = "safeproducer-demo"
_LOOK_FOR_STOP_EVERY = 0.1
_LIMITS = (
    "The embedded brokers are FakeCluster: they decide as Kafka's do, but keep the log in memory, and a leader never "
    "loses what it acknowledged. This run shows what the producer does; --bootstrap-servers shows your brokers."
)
_EPILOG = """\
Without brokers, FILE and --records it takes five steps, on a cluster inside this process: records flow, a leader
moves, a broker throttles, acknowledgements get lost, and a leader behind a long link announces its window.
Else it sends all records as fast as they are taken, without faults.

Without FILE the input is the source code of Python's standard library. Each line is one record, keyed by its
file, so the lines of a file must stay in order. On real brokers a topic of its own is created and deleted.

not written: failed, and certainly not in the log.  unknown: failed, in the log once or not at all.
lost: reported delivered, not in the log.  duplicated: further copies of a record.
reordered: stands in the log behind a later record.

exit status: 0 if every record was delivered, none is lost, duplicated or reordered, and every step
             happened; 1 if not; 2 if nothing was sent; 130 after Ctrl-C

examples:
  safeproducer demo
  safeproducer demo --keep
  safeproducer demo --config enable.idempotence=false
  safeproducer demo --bootstrap-servers localhost:9092 --partitions 10 --records 200000
  safeproducer demo --config-file kafka.properties --json /var/log/syslog
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> argparse.ArgumentParser:
    parser = subparsers.add_parser(
        "demo",
        help="send real text, let brokers go wrong, read back and compare",
        description="Send real text through SafeProducer, read everything back and compare record by record.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("file", metavar="FILE", nargs="*", help="input files (default: Python's standard library)")
    parser.add_argument(
        "--records", metavar="N", type=int, help=f"at most N records (default: {RECORDS:,}, or all lines of FILE)"
    )
    parser.add_argument("--partitions", metavar="N", type=int, help=f"default: {PARTITIONS}")
    parser.add_argument(
        "--keep", action="store_true", help="leave the embedded cluster running, until Ctrl-C, and print its address"
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
    parser.add_argument("--quiet", action="store_true", help="only the result; errors are still shown")
    add_settings_arguments(parser, servers_help="real brokers (default: brokers embedded in this process)")
    parser.set_defaults(run=run)
    return parser


class _Run(NamedTuple):
    """The parts of one demonstration. ``cluster`` is None on real brokers."""

    args: argparse.Namespace
    screen: Screen
    stop: StopRequest
    settings: dict[str, Setting]
    topic: str
    partitions: int
    cluster: "FakeCluster | None"

    @property
    def in_steps(self) -> bool:
        return self.cluster is not None and not self.args.file and self.args.records is None


def run(args: argparse.Namespace, screen: Screen) -> int:
    """Run the command and return its exit status."""
    screen.require_rich()
    settings = read_settings(args, screen)
    embedded = "bootstrap.servers" not in settings
    _check(args, embedded)
    with StopRequest() as stop, ExitStack() as stack:
        cluster = stack.enter_context(embedded_cluster()) if embedded else None
        if cluster is not None:
            settings["bootstrap.servers"] = cluster.bootstrap
        settings.setdefault("client.id", _CLIENT_ID)
        topic, partitions = f"{_CLIENT_ID}-{secrets.token_hex(4)}", args.partitions or PARTITIONS
        result = _demonstrate(_Run(args, screen, stop, settings, topic, partitions, cluster), stack)
        status = result.exit_code
        show(result, screen)
        if args.keep and cluster is not None and not stop:
            _stay(cluster, topic, screen, stop)
        return status


def _check(args: argparse.Namespace, embedded: bool) -> None:
    if (args.partitions is not None and args.partitions < 1) or (args.records is not None and args.records < 1):
        raise Failure("--partitions and --records must be at least 1.")
    if embedded and args.partitions not in (None, PARTITIONS) and not args.file and args.records is None:
        raise Failure(
            f"The steps need {PARTITIONS} partitions: leave --partitions out, or give --records or FILE too, for a "
            "run without them."
        )
    if args.keep and not embedded:
        raise Failure("--keep is for the embedded cluster; on real brokers --keep-topic keeps the records.")


def _demonstrate(run: _Run, stack: ExitStack) -> Result:
    args, settings, stop = run.args, run.settings, run.stop
    errors = BrokerErrors(run.screen)
    producer = open_producer(settings, errors)
    stack.callback(_close, producer)
    await_topic(producer, None, settings=settings, errors=errors, timeout=args.connect_timeout, stop=stop)
    if not stop:
        _create_topic(run, stack)
    await_topic(producer, run.topic, settings=settings, errors=errors, timeout=args.connect_timeout, stop=stop)
    if run.in_steps and run.cluster is not None:
        experiment, steps = _run_steps(run, run.cluster, producer, errors)
    else:
        errors.talkative = True
        experiment, steps = _send_all(run, producer, errors), ()
    if not experiment.values and not stop:
        raise Failure("The input has no line to send: name a file with text.", code="input")
    return _result(run, experiment, steps)


def _run_steps(
    run: _Run, cluster: "FakeCluster", producer: SafeProducer, errors: BrokerErrors
) -> tuple[Experiment, Sequence[Step]]:
    steps = Steps(cluster, producer, run.topic, str(run.settings["client.id"]))
    experiment = Experiment(producer, errors, run.stop, run.topic, tick=steps.tick)
    with Display(run.screen) as display:
        steps.run(read_corpus(python_sources(), records=RECORDS), experiment, display, run.args.timeout)
    return experiment, steps.done


def _send_all(run: _Run, producer: SafeProducer, errors: BrokerErrors) -> Experiment:
    files = named_files(run.args.file) if run.args.file else python_sources()
    records = run.args.records if run.args.records is not None or run.args.file else RECORDS
    with Progress(run.screen, "sending", records) as progress:

        def update() -> None:
            progress.update(experiment.tally.sent, experiment.tally.delivered)

        experiment = Experiment(producer, errors, run.stop, run.topic, tick=update)
        experiment.send_all(files, records, run.args.timeout)
    return experiment


def _close(producer: SafeProducer) -> None:
    # A fatal error was told when it came.
    with contextlib.suppress(KafkaException):
        producer.close(0)


def _create_topic(run: _Run, stack: ExitStack) -> None:
    if run.cluster is not None:
        run.cluster.create_topic(run.topic, run.partitions)
        return
    try:
        stack.enter_context(ScratchTopic(run.settings, run.topic, run.partitions, keep=run.args.keep_topic))
    except KafkaException as error:
        reason = error.args[0]
        raise Failure(
            f"The topic {run.topic} cannot be created: {advice(reason.name(), reason.str())}", code=reason.name()
        ) from error


def _result(run: _Run, experiment: Experiment, steps: Sequence[Step]) -> Result:
    started = time.monotonic()
    try:
        log = list(read_topic(run.settings, run.topic, run.partitions))
    except (ReadbackIncompleteError, KafkaException) as error:
        raise Failure(
            f"The records were sent, but the log cannot be read back, so nothing is proved: {error}.",
            code="readback",
            exit_code=NOT_ALL_DELIVERED,
        ) from error
    sent = experiment.sent()
    number_of = {value: number for number, value in enumerate(experiment.values)}

    def place(value: bytes) -> tuple[bytes, int] | None:
        """With steps the order of produce() counts, whatever the file."""
        return (b"", number_of[value]) if value in number_of else None

    def step_of(partition: int | None, value: bytes) -> int | None:
        del partition
        number = number_of.get(value, -1)
        return next((index for index, step in enumerate(steps, start=1) if step.first <= number < step.end), None)

    rows, total = compare(sent, log, place if steps else identify)
    return Result(
        f"{BROKERS} embedded brokers" if run.cluster is not None else str(run.settings["bootstrap.servers"]),
        run.topic,
        rows,
        total,
        experiment,
        seconds_to_read=time.monotonic() - started,
        limits=() if run.cluster is None else (_LIMITS,),
        stop=run.stop,
        steps=steps,
        step_rows=compare(sent, log, place, step_of)[0] if steps else None,
    )


def _stay(cluster: "FakeCluster", topic: str, screen: Screen, stop: StopRequest) -> None:
    """Serve other clients until Ctrl-C, which is then no failure."""
    lines = (
        f"The cluster stays until Ctrl-C, for any client, with the topic {topic}:",
        f"bootstrap.servers = {cluster.bootstrap}",
    )
    for line in lines:
        if screen.json_output:
            screen.note(line)
        else:
            screen.result(line)
    while not stop:
        time.sleep(_LOOK_FOR_STOP_EVERY)
