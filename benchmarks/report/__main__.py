"""Run the benchmarks in turn, and write docs/benchmarks anew: report.json, report.md and the plots.

A case that fails is shown as failed, and the others go on. Figures that other documents take from the report are
written there, too. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import confluent_kafka
import psutil

from benchmarks.report.cases import CASES, Case
from benchmarks.report.page import FACTS, FOLDER, ROOT, figures_of, page, quoted, unknown
from safeproducer import __version__

PEERS = ("confluent-kafka", "aiokafka", "kafka-python", "pyspark")
LIMIT = 4 * 3600
"""Seconds of a case; one of `--quick` takes 3 minutes at most."""


def measured(case: Case, quick: bool) -> dict[str, Any]:
    """What becomes of a case."""
    print(f"{case.name}: {case.command(quick)}", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", f"benchmarks.{case.benchmark}", *case.arguments(quick)]
    load, began, failed = os.getloadavg()[0], time.monotonic(), ""
    figures: list[dict[str, Any]] = []
    others: list[float] = []
    peers: dict[str, str] = {}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    try:
        told = json.loads(done.stdout)
        figures, others = [asdict(each) for each in case.read(told)], list(disturbances(told))
        peers = told.get("failed", {})
    except (ValueError, LookupError) as error:
        failed = (done.stderr.strip() or repr(error)).splitlines()[-1]
    return {
        "command": case.command(quick),
        "seconds": round(time.monotonic() - began),
        "load": [round(load, 1), round(os.getloadavg()[0], 1)],
        "others": max(others, default=None),
        "failed": failed,
        "peers": peers,
        "figures": figures,
    }


def disturbances(told: Any) -> Iterator[float]:
    """The shares of the machine that other programs used, wherever a benchmark says them."""
    if isinstance(told, dict):
        for name, value in told.items():
            if name.endswith("disturbance"):
                yield value
            yield from disturbances(value)
    elif isinstance(told, list):
        for value in told:
            yield from disturbances(value)


def machine() -> dict[str, Any]:
    """Nothing that names it."""
    memory = round(psutil.virtual_memory().total / 2**30)
    return {"cores": os.cpu_count(), "memory_gb": memory, "system": platform.system()}


def versions() -> dict[str, str]:
    """Of all that was measured."""
    peers = {name: importlib.metadata.version(name) for name in PEERS}
    librdkafka = {"librdkafka": str(confluent_kafka.libversion()[0])}
    return {"safeproducer": __version__, **peers, **librdkafka, "Python": platform.python_version()}


def write(facts: dict[str, Any]) -> list[str]:
    """The files of the report, and the figures in other documents; names there that the report lacks."""
    FOLDER.mkdir(exist_ok=True)
    FACTS.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    (FOLDER / "report.md").write_text(page(facts, CASES), encoding="utf-8")
    figures = {each.name: each for case in facts["cases"].values() for each in figures_of(case)}
    missing = []
    for document in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")):
        if document.parent != FOLDER:
            text = document.read_text(encoding="utf-8")
            missing += [f"{document.name}: {name}" for name in unknown(text, figures)]
            document.write_text(quoted(text, figures), encoding="utf-8")
    return missing


def compared(first: dict[str, Any], second: dict[str, Any]) -> tuple[list[str], int]:
    """The ratios of a second report that lie beyond the range of the first, and how many there are in both."""
    ranges, now = (
        {each.name: each for case in facts["cases"].values() for each in figures_of(case)} for facts in (first, second)
    )
    both = [(ranges[name], each) for name, each in now.items() if name in ranges and ranges[name].low is not None]
    beyond = [f"{old.name}: {new.text}, before {old.range}" for old, new in both if not old.covers(new)]
    return beyond, len(both)


def beside(file: str) -> int:
    """1 when more than one of ten ratios lies beyond."""
    first, second = (json.loads(Path(each).read_text(encoding="utf-8")) for each in (file, FACTS))
    beyond, both = compared(first, second)
    print(*beyond, f"{both - len(beyond)} of {both} ratios lie within the range of {file}", sep="\n")
    return 10 * len(beyond) > both


def main() -> int:
    """1 when a case or a peer failed, or a document names a figure that is not there."""
    parser = argparse.ArgumentParser(prog="scripts/report", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and smaller cases: a quarter of an hour")
    parser.add_argument("--only", choices=[case.name for case in CASES], help="only this case; the others stay")
    parser.add_argument("--page", action="store_true", help="measure nothing: write the page and plots of the JSON")
    parser.add_argument("--beside", metavar="FILE", help="measure nothing: compare with an earlier report.json")
    options = parser.parse_args()
    if options.beside:
        return beside(options.beside)
    before = json.loads(FACTS.read_text(encoding="utf-8")) if FACTS.exists() else {"cases": {}}
    facts = before if options.page else {"quick": options.quick, "machine": machine(), "versions": versions()}
    if not options.page:
        facts["cases"] = before["cases"] if options.only else {}
        for case in CASES:
            if options.only in (None, case.name):
                facts["cases"][case.name] = measured(case, options.quick)
                write(facts)
    wrong = [f"{name}: {case['failed']}" for name, case in facts["cases"].items() if case["failed"]] + write(facts)
    wrong += [f"{peer}: {why}" for case in facts["cases"].values() for peer, why in case.get("peers", {}).items()]
    print(*wrong, sep="\n", file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
