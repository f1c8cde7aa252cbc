"""Speed and CPU of an application under `safeproducer run --mode observe`, against the same without it.

As throughput.py, with idempotence and without.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict

from benchmarks import load as forms
from benchmarks.brokers import broker
from benchmarks.table import conclude
from benchmarks.throughput import Comparison, described, run_case
from safeproducer.takeover.producers import Producer

LIMITS: dict[int, tuple[float | None, float | None]] = {100: (0.90, 1.20), 1_000: (0.90, 1.20)}
COMPARISONS = (
    Comparison("observe, keywords", forms.keyword, forms.keyword, LIMITS),
    Comparison("observe, positional", forms.positional, forms.positional, LIMITS),
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.observe", description=__doc__)
    parser.add_argument("--mock", action="store_true", help="librdkafka's mock cluster instead of real Kafka")
    parser.add_argument("--quick", action="store_true", help="9 rounds of values of 100 bytes: no gate")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a bar is missed")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    options = parser.parse_args()
    rounds = 9 if options.quick else 27
    cases = []
    with broker(mock=options.mock) as where:
        for idempotent in (True, False):
            for value_size in (100,) if options.quick else (100, 1_000):
                config = {"enable.idempotence": idempotent}
                cases.append(case := run_case(where, 1, value_size, COMPARISONS, rounds, config, Producer))
                if not options.json:
                    print(f"with idempotence: {idempotent}; {described(case)}", flush=True)
    facts = {"broker": where.kind, "rounds": rounds, "cases": list(map(asdict, cases))}
    text = f"Against {where.kind}; median [quartiles] of {rounds} rounds; first with idempotence, then without."
    conclude(facts, text, [bar for case in cases for bar in case.bars], options.json, options.check)


if __name__ == "__main__":
    main()
