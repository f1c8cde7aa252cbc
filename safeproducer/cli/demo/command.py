"""``safeproducer demo``: sends real text, lets brokers go wrong, reads everything back and compares."""

import argparse
import contextlib
import math
import secrets
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from safeproducer import SafeProducer
from safeproducer.cli.common.connection import BrokerErrors, await_topic, opened, topic_failure
from safeproducer.cli.common.screen import Screen
from safeproducer.cli.common.settings import Setting, add_settings_arguments, read_settings, seconds
from safeproducer.cli.common.stop import NOT_ALL_DELIVERED, Failure, StopRequest
from safeproducer.cli.demo.experiment import COLUMNS, FLAWS, Experiment, Line, compare, flawless, read_lines, total_of
from safeproducer.cli.demo.steps import BROKERS, PARTITIONS, RECORDS, TITLES, Proof, Steps, embedded_cluster
from safeproducer.kafka.native import KafkaException
from safeproducer.kafka.readback import read_topic, scratch_topic

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
    records = read_lines(args.file, args.records if args.file or args.records else RECORDS)
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
    records: Sequence[Line],
    cluster: "FakeCluster | None",
    in_steps: bool,
    stack: ExitStack,
) -> "Result":
    """Send the records, `in_steps` if there is an embedded cluster, and read them back."""
    topic, partitions = f"{_CLIENT_ID}-{secrets.token_hex(4)}", args.partitions or PARTITIONS
    errors, steps = BrokerErrors(screen), dict[str, Proof]()
    producer = opened(SafeProducer, settings, errors)
    stack.callback(_close, producer)
    wait = partial(await_topic, producer, settings=settings, errors=errors, timeout=args.connect_timeout, stop=stop)
    wait(None)
    if cluster is not None:
        cluster.create_topic(topic, partitions)
    elif not stop:
        try:
            stack.enter_context(scratch_topic(settings, topic, partitions, keep=args.keep_topic))
        except KafkaException as error:
            raise topic_failure(topic, error.args[0].name(), error.args[0].str()) from error
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
    except (EOFError, KafkaException) as error:
        sentence = f"The records were sent, but the log cannot be read back, so nothing is proved: {error}."
        raise Failure(sentence, code="readback", exit_code=NOT_ALL_DELIVERED) from error
    return Result(experiment, steps, log, time.monotonic() - started)


def _close(producer: SafeProducer) -> None:
    with contextlib.suppress(KafkaException):  # a fatal error was told when it came
        producer.close(0)


# --- how it ended ----------------------------------------------------------------------------------------------------

_TOLD = ("lost", "duplicated", "reordered")
"""Told where they are 0, too."""
_TIMELINE_WIDTH = 80


class Result:
    """The comparison of an experiment with the log that was read back, and what a person needs around it."""

    def __init__(
        self,
        experiment: Experiment,
        steps: Mapping[str, Proof],
        log: Sequence[tuple[int, bytes]],
        seconds_to_read: float,
    ) -> None:
        self.experiment, self.steps, self.seconds_to_read = experiment, steps, seconds_to_read
        self.partitions = compare(experiment.records, log)
        by_step = compare(experiment.records, log, by_step=True)
        self.by_step = [by_step.get(number, total_of({})) for number in range(1, len(steps) + 1)]
        self.total = total_of(self.partitions)
        self.not_shown = [number for number, proof in enumerate(steps.values(), start=1) if not proof.shown]
        good = flawless(self.total) and not self.not_shown
        self.exit_code = experiment.stop.exit_code or (0 if good else NOT_ALL_DELIVERED)
        self.verdict = verdict(self.total, in_steps=bool(steps))
        delivered = [record for record in experiment.records if record.fate == "delivered"]
        self.bytes = sum(len(record.value) + len(record.key) for record in delivered)
        self.rate = len(delivered) / experiment.seconds if delivered else 0.0
        self._latencies = sorted((record.reported_at - record.accepted_at) * 1000 for record in delivered)

    def percentile(self, percent: int) -> float | None:
        """The nearest-rank percentile of milliseconds from produce() to the report."""
        ranked = self._latencies
        return round(ranked[math.ceil(len(ranked) * percent / 100) - 1], 3) if ranked else None

    def document(self, cluster: str, limits: Sequence[str]) -> dict[str, Any]:
        experiment, stopped_by = self.experiment, self.experiment.stop.signal
        steps = zip(self.steps.items(), self.by_step, strict=True)
        return {
            "command": "demo",
            "cluster": cluster,
            "topic": experiment.topic,
            "files": len({record.key for record in experiment.records}),
            "steps": [
                {"step": number, "name": name, "title": TITLES[name], **proof._asdict(), **row}
                for number, ((name, proof), row) in enumerate(steps, start=1)
            ],
            "partitions": [{"partition": number, **row} for number, row in self.partitions.items()],
            "total": self.total,
            "bytes": self.bytes,
            "seconds": round(experiment.seconds, 3),
            "seconds_to_read_back": round(self.seconds_to_read, 3),
            "records_per_second": round(self.rate, 1),
            "latency_ms": {f"p{percent}": self.percentile(percent) for percent in (50, 95)},
            "errors": [
                {"code": code, "count": count, "advice": experiment.advised[code]}
                for code, count in experiment.failures.most_common()
            ],
            "limits": list(limits),
            "stopped_by": None if stopped_by is None else stopped_by.name,
            "verdict": self.verdict,
            "exit_code": self.exit_code,
        }

    def show(self, screen: Screen, cluster: str, limits: Sequence[str]) -> None:
        """Write the result to stdout and what went wrong to stderr. `limits` say what this cluster cannot show."""
        experiment = self.experiment
        for code, count in experiment.failures.most_common():
            screen.error(f"{count:,} failed with {code}: {experiment.advised[code]}")
        if experiment.why_left is not None:
            screen.error(f"{experiment.left:,} left without acknowledgement. {experiment.why_left}")
        if experiment.stop.signal is not None:
            screen.warn(f"Stopped by {experiment.stop.signal.name}; what was sent until then has been compared.")
        elif self.not_shown:
            steps = ", ".join(map(str, self.not_shown))
            screen.error(f"No proof by step {steps}: what it was to show did not happen.")
        if screen.json_output:
            screen.result_json(self.document(cluster, limits))
            return
        self._draw(screen, cluster)
        for text in (*([self.verdict] if flawless(self.total) else []), *limits):
            screen.result(text)
        if not flawless(self.total):
            screen.error(self.verdict)

    def _draw(self, screen: Screen, cluster: str) -> None:
        """A table with a row for each step, or for each partition, and the time line of the steps."""
        # On a narrow terminal every column has to fit: those of flaws are there where something is in them.
        names = [name for name in COLUMNS if name in ("accepted", "delivered") or name in _TOLD or self.total[name]]
        if screen.out.width < 100:
            names = [name for name in names if self.total[name] or name == "delivered"]
        rows = {"none" if number is None else str(number): row for number, row in self.partitions.items()}
        if self.steps:
            names_of_steps = (f"{number} {name}" for number, name in enumerate(self.steps, start=1))
            rows = dict(zip(names_of_steps, self.by_step, strict=True))
        rows["total"] = self.total
        columns = ["step" if self.steps else "partition", *(name.replace("_", " ") for name in names)]
        cells = [[label, *(f"{row[name]:,}" for name in names)] for label, row in rows.items()]
        files = len({record.key for record in self.experiment.records})
        screen.table(f"{files:,} files to {cluster}, topic {self.experiment.topic}", columns, cells, None)
        if self.steps and self.experiment.records:
            _draw_timeline(self.experiment, screen)
        if self.rate:
            screen.result(
                f"throughput  {self.rate:,.0f} records/s, {self.bytes:,} bytes in {self.experiment.seconds:.2f} s; "
                f"read back in {self.seconds_to_read:.2f} s\n"
                f"latency     p50 {self.percentile(50):.1f} ms, p95 {self.percentile(95):.1f} ms to the report"
            )


def verdict(total: Counter[str], *, in_steps: bool) -> str:
    if not flawless(total):
        flaws = ", ".join(f"{total[it]:,} {it.replace('_', ' ')}" for it in FLAWS if total[it] or it in _TOLD)
        return f"Of {total['accepted'] + total['refused']:,} records {total['delivered']:,} were delivered: {flaws}."
    order = "each partition in the order of produce()" if in_steps else "each file's lines in order"
    told = ", ".join(f"{total[name]:,} {name}" for name in _TOLD)
    exact = f"the log holds each of them exactly once and {order}"
    return f"All {total['accepted']:,} records were delivered, {told}; {exact}."


def picture(values: Iterable[float], largest: float, *, plain: bool) -> str:
    """One character for each value; the first one is for none at all.

    Heights go by the square root, or a burst would make everything else look flat.
    """
    glyphs = " .:-=+*#@" if plain else "·▁▂▃▄▅▆▇█"
    scale = (len(glyphs) - 1) / math.sqrt(largest) if largest > 0 else 0.0
    return "".join(glyphs[min(len(glyphs) - 1, math.ceil(math.sqrt(value) * scale))] for value in values)


def _draw_timeline(experiment: Experiment, screen: Screen) -> None:
    """A line for each partition: when its records were acknowledged. Above it, where each step began."""
    start, width = experiment.records[0].accepted_at, min(_TIMELINE_WIDTH, screen.out.width - 3)
    marks, counts = [" "] * width, defaultdict[int, Counter[int]](Counter)

    def column(moment: float) -> int:
        return min(width - 1, int((moment - start) / max(experiment.seconds, 1e-9) * width))

    for first in {record.step: record for record in reversed(experiment.records)}.values():
        marks[column(first.accepted_at)] = str(first.step)
    for record in experiment.records:
        if record.partition is not None:
            counts[record.partition][column(record.reported_at)] += 1
    largest = max((max(row.values()) for row in counts.values()), default=0)
    plain = not screen.out.encoding.lower().startswith("utf")
    screen.result(f"acknowledged during the {experiment.seconds:.1f} s, by partition; above, where each step begins")
    screen.result(f"   {''.join(marks).rstrip()}")
    for partition, row in sorted(counts.items()):
        screen.result(f"{partition:>2} {picture(map(row.__getitem__, range(width)), largest, plain=plain)}")
