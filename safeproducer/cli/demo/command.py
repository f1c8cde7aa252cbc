"""``safeproducer demo``: sends real text, lets brokers go wrong, reads everything back and compares."""

import argparse
import math
import secrets
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any

from safeproducer import SafeProducer
from safeproducer.cli.common.connection import BrokerErrors, opened, opened_reader, topic_failure
from safeproducer.cli.common.screen import Screen
from safeproducer.cli.common.settings import add_settings_arguments, read_settings, seconds
from safeproducer.cli.common.stop import NOT_ALL_DELIVERED, Failure, StopRequest
from safeproducer.cli.demo.experiment import FLAWS, Experiment, Line, Log, compare, flawless, read_lines, total_of
from safeproducer.cli.demo.steps import BROKERS, PARTITIONS, RECORDS, TITLES, Proof, Steps, embedded_cluster
from safeproducer.kafka.native import KafkaException
from safeproducer.kafka.readback import read_topic, scratch_topic

_CLIENT_ID = "safeproducer-demo"
_TOLD = ("lost", "duplicated", "reordered")
"""Told where they are 0, too."""
_TIMELINE_WIDTH = 80
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
    embedded = "bootstrap.servers" not in settings
    in_steps = embedded and not args.file and args.records is None
    records, partitions = _records(args, in_steps, embedded), args.partitions or PARTITIONS
    with ExitStack() as stack:
        cluster = stack.enter_context(embedded_cluster()) if embedded else None
        settings |= {} if cluster is None else {"bootstrap.servers": cluster.bootstrap}
        errors, topic = BrokerErrors(screen), f"{_CLIENT_ID}-{secrets.token_hex(4)}"
        producer = opened(SafeProducer, settings, errors)
        stack.callback(_close, producer)
        opened_reader(settings, screen, args.connect_timeout)  # raises Failure if no broker answers
        stop = stack.enter_context(StopRequest())
        if cluster is not None:
            cluster.create_topic(topic, partitions)
        else:
            try:
                stack.enter_context(scratch_topic(settings, topic, partitions, keep=args.keep_topic))
            except KafkaException as error:
                raise topic_failure(topic, error.args[0].name(), error.args[0].str()) from error
        experiment, steps = Experiment(producer, errors, stop, topic, args.timeout), dict[str, Proof]()
        if cluster is not None and in_steps:
            steps = Steps(cluster, experiment, records, screen, str(settings["client.id"])).run()
        else:
            errors.talkative = True
            all(map(experiment.send, records))
            experiment.drain()
        brokers = str(settings["bootstrap.servers"]) if cluster is None else f"{BROKERS} embedded brokers"
        found = document(experiment, steps, *_read_back(settings, topic, partitions))
        found |= {"cluster": brokers, "limits": [_LIMITS] if embedded else []}
        show(experiment, found, screen)
        if args.keep and not stop:
            tell = screen.note if screen.json_output else screen.result
            tell(f"The cluster stays until Ctrl-C, for any client, with the topic {topic}:")
            tell(f"bootstrap.servers = {settings['bootstrap.servers']}")
        while args.keep and not stop:  # Ctrl-C is then no failure
            time.sleep(0.1)
    return int(found["exit_code"])


def _records(args: argparse.Namespace, in_steps: bool, embedded: bool) -> list[Line]:
    """Return what to send. Raises Failure for arguments that do not fit together."""
    if min(it for it in (args.partitions, args.records, 1) if it is not None) < 1:
        raise Failure("--partitions and --records must be at least 1.")
    if in_steps and args.partitions not in (None, PARTITIONS):
        sentence = f"The steps need {PARTITIONS} partitions: leave --partitions out, or give --records or FILE too, for"
        raise Failure(f"{sentence} a run without them.")
    if args.keep and not embedded:
        raise Failure("--keep is for the embedded cluster; on real brokers --keep-topic keeps the records.")
    records = read_lines(args.file, args.records if args.file or args.records else RECORDS)
    if not records:
        raise Failure("The input has no line to send: name a file with text.", code="input")
    return records


def _read_back(settings: Mapping[str, Any], topic: str, partitions: int) -> tuple[Log, float]:
    """The log, and how many seconds it took to read it."""
    started = time.monotonic()
    try:
        return read_topic(settings, topic, partitions), time.monotonic() - started
    except (EOFError, KafkaException) as error:
        sentence = f"The records were sent, but the log cannot be read back, so nothing is proved: {error}."
        raise Failure(sentence, code="readback", exit_code=NOT_ALL_DELIVERED) from error


def _close(producer: SafeProducer) -> None:
    with suppress(KafkaException):  # a fatal error was told when it came
        producer.close(0)


# --- how it ended ----------------------------------------------------------------------------------------------------


def document(experiment: Experiment, steps: Mapping[str, Proof], log: Log, took: float) -> dict[str, Any]:
    """Compare what was sent with the log that was read back in so many seconds."""
    records, stop = experiment.records, experiment.stop
    partitions, by_step = compare(records, log), compare(records, log, by_step=True)
    total, delivered = total_of(partitions), [record for record in records if record.fate == "delivered"]
    latencies = sorted((record.reported_at - record.accepted_at) * 1000 for record in delivered)
    good = flawless(total) and all(proof.shown for proof in steps.values())
    return {
        "command": "demo",
        "topic": experiment.topic,
        "files": len({record.key for record in records}),
        "steps": [
            {"step": at, "name": name, "title": TITLES[name], **proof._asdict(), **by_step.get(at, total_of({}))}
            for at, (name, proof) in enumerate(steps.items(), start=1)
        ],
        "partitions": [{"partition": number, **row} for number, row in partitions.items()],
        "total": total,
        "bytes": sum(len(record.value) + len(record.key) for record in delivered),
        "seconds": round(experiment.seconds, 3),
        "seconds_to_read_back": round(took, 3),
        "records_per_second": round(len(delivered) / experiment.seconds, 1) if delivered else 0.0,
        "latency_ms": {f"p{percent}": percentile(latencies, percent) for percent in (50, 95)},
        "errors": [
            {"code": code, "count": count, "advice": experiment.advised[code]}
            for code, count in experiment.failures.most_common()
        ],
        "stopped_by": None if stop.signal is None else stop.signal.name,
        "verdict": verdict(total, in_steps=bool(steps)),
        "exit_code": stop.exit_code or (0 if good else NOT_ALL_DELIVERED),
    }


def percentile(ranked: Sequence[float], percent: int) -> float | None:
    """The nearest-rank one; None of nothing."""
    return round(ranked[math.ceil(len(ranked) * percent / 100) - 1], 3) if ranked else None


def verdict(total: Counter[str], *, in_steps: bool) -> str:
    if not flawless(total):
        flaws = ", ".join(f"{total[it]:,} {it.replace('_', ' ')}" for it in FLAWS if total[it] or it in _TOLD)
        return f"Of {total['accepted'] + total['refused']:,} records {total['delivered']:,} were delivered: {flaws}."
    order = "each partition in the order of produce()" if in_steps else "each file's lines in order"
    told = ", ".join(f"{total[name]:,} {name}" for name in _TOLD)
    exact = f"the log holds each of them exactly once and {order}"
    return f"All {total['accepted']:,} records were delivered, {told}; {exact}."


def show(experiment: Experiment, found: Mapping[str, Any], screen: Screen) -> None:
    """Write the document, or what a person reads, to stdout, and what went wrong to stderr."""
    for error in found["errors"]:
        screen.error(f"{error['count']:,} failed with {error['code']}: {error['advice']}")
    if experiment.why_left is not None:
        screen.error(f"{experiment.left:,} left without acknowledgement. {experiment.why_left}")
    if found["stopped_by"] is not None:
        screen.warn(f"Stopped by {found['stopped_by']}; what was sent until then has been compared.")
    elif not_shown := [str(step["step"]) for step in found["steps"] if not step["shown"]]:
        screen.error(f"No proof by step {', '.join(not_shown)}: what it was to show did not happen.")
    if screen.json_output:
        screen.result_json(found)
        return
    _draw(experiment, found, screen)
    good = flawless(found["total"])
    for text in (*[found["verdict"]] * good, *found["limits"]):
        screen.result(text)
    if not good:
        screen.error(found["verdict"])


def _draw(experiment: Experiment, found: Mapping[str, Any], screen: Screen) -> None:
    """A table with a row for each step, or for each partition, and the time line of the steps."""
    total, kind = found["total"], "step" if found["steps"] else "partition"
    # On a narrow terminal every column has to fit: those of flaws are there where something is in them.
    names = [name for name in total if name in ("accepted", "delivered") or name in _TOLD or total[name]]
    if screen.out.width < 100:
        names = [name for name in names if total[name] or name == "delivered"]
    rows = [*found[f"{kind}s"], {kind: "total", **total}]
    labels = ["none" if row[kind] is None else f"{row[kind]} {row.get('name', '')}".rstrip() for row in rows]
    cells = [[label, *(f"{row[name]:,}" for name in names)] for label, row in zip(labels, rows, strict=True)]
    title = f"{found['files']:,} files to {found['cluster']}, topic {found['topic']}"
    screen.table(title, [kind, *(name.replace("_", " ") for name in names)], cells, None)
    if found["steps"] and experiment.records:
        plain = not screen.out.encoding.lower().startswith("utf")
        for line in timeline(experiment, min(_TIMELINE_WIDTH, screen.out.width - 3), plain=plain):
            screen.result(line)
    latency = found["latency_ms"]
    if found["records_per_second"]:
        screen.result(
            f"throughput  {found['records_per_second']:,.0f} records/s, {found['bytes']:,} bytes in "
            f"{found['seconds']:.2f} s; read back in {found['seconds_to_read_back']:.2f} s\n"
            f"latency     p50 {latency['p50']:.1f} ms, p95 {latency['p95']:.1f} ms to the report"
        )


def timeline(experiment: Experiment, width: int, *, plain: bool) -> Iterator[str]:
    """A line for each partition: when its records were acknowledged. Above it, where each step began."""
    records, start = experiment.records, experiment.records[0].accepted_at

    def column(moment: float) -> int:
        return min(width - 1, int((moment - start) / max(experiment.seconds, 1e-9) * width))

    marks = {column(record.accepted_at): record.step for record in {one.step: one for one in records[::-1]}.values()}
    counts = Counter((one.partition, column(one.reported_at)) for one in records if one.partition is not None)
    yield f"acknowledged during the {experiment.seconds:.1f} s, by partition; above, where each step begins"
    yield f"   {''.join(str(marks.get(at, ' ')) for at in range(width)).rstrip()}"
    for partition in sorted({partition for partition, _ in counts}):
        row = (counts[partition, at] for at in range(width))
        yield f"{partition:>2} {picture(row, max(counts.values()), plain=plain)}"


def picture(values: Iterable[float], largest: float, *, plain: bool) -> str:
    """One character for each value; the first one is for none at all.

    Heights go by the square root, or a burst would make everything else look flat.
    """
    glyphs = " .:-=+*#@" if plain else "·▁▂▃▄▅▆▇█"
    scale = (len(glyphs) - 1) / math.sqrt(largest) if largest > 0 else 0.0
    return "".join(glyphs[min(len(glyphs) - 1, math.ceil(math.sqrt(value) * scale))] for value in values)
