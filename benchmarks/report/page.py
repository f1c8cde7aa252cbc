"""The page of the report, and the figures that other documents take from it by name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import fill
from typing import Any

from benchmarks.report.cases import Case
from benchmarks.report.drawing import plot
from benchmarks.report.figures import HIGHER, Figure, slug

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs/benchmarks"
FACTS = FOLDER / "report.json"
HEAD = """\
A figure with a peer is SafeProducer's divided by the peer's: the median of rounds in which both ran in turn, and the
range from the lowest to the highest round; without a range it was measured once. *better* says which way is better.
Below each case stands what other programs did meanwhile. Where they used more than a fifth of the machine, ratios of
speed tell more about them than about producers.
[Benchmarks](../../benchmarks/README.md) says how they are measured.
"""
QUOTED = re.compile(r"\[([^\]\n]+)\]\(((?:[\w./-]*/)?report\.md#([\w-]+))\)")
"""A figure in a document, as the text of a link to its row."""


def figures_of(case: Mapping[str, Any]) -> list[Figure]:
    """Those in the JSON of a case."""
    return [Figure(**each) for each in case["figures"]]


def quoted(text: str, figures: Mapping[str, Figure]) -> str:
    """A document with the figures of now; one that is not there any more stays."""

    def told(match: re.Match[str]) -> str:
        figure = figures.get(match[3])
        return match[0] if figure is None else f"[{figure.text}]({match[2]})"

    return QUOTED.sub(told, text)


def unknown(text: str, figures: Mapping[str, Figure]) -> list[str]:
    """Names in a document that the report does not have."""
    return [match[3] for match in QUOTED.finditer(text) if match[3] not in figures]


def draw(case: Case, figures: list[Figure]) -> str:
    """Write the plot of a case; the line of Markdown that shows it."""
    compared = [each for each in figures if each.peer]
    if not compared:
        return ""
    (FOLDER / f"{case.name}.svg").write_text(plot(case.title, compared), encoding="utf-8")
    ahead = sum(not each.peer_is_better for each in compared)
    return f"![{case.title}: in {ahead} of {len(compared)} figures it is not behind the peer]({case.name}.svg)\n"


def row(figure: Figure) -> str:
    """Of the table of a case."""
    return f'| <a id="{figure.name}"></a>{figure.label} | {figure.text} | {figure.range} | {figure.better} |'


def where_others_are_better(cases: list[tuple[Case, list[Figure]]]) -> Iterator[str]:
    """A row for each figure of a peer that is better, the farthest first."""
    behind = [(each, case) for case, figures in cases for each in figures if each.peer_is_better]
    behind.sort(key=lambda one: -(1 / one[0].value if one[0].better == HIGHER else one[0].value))
    for figure, case in behind:
        where = f"[{case.title}](#{slug(case.title)})"
        yield f"| {figure.label} | {figure.text} | {figure.range} | {figure.better} | {where} |"


def page(facts: Mapping[str, Any], cases: tuple[Case, ...]) -> str:
    """The report, in Markdown."""
    found = [(case, figures_of(facts["cases"][case.name])) for case in cases if case.name in facts["cases"]]
    machine, versions = facts["machine"], facts["versions"]
    parts = [
        "# Report\n",
        f"`scripts/report{' --quick' if facts['quick'] else ''}` wrote this page.\n{HEAD}",
        f"Machine: {machine['cores']} cores, {machine['memory_gb']:g} GB, {machine['system']}. Versions:\n"
        + fill(", ".join(f"{name} {version}" for name, version in versions.items()), 120, break_on_hyphens=False)
        + ".\n",
        "## Where others are better\n",
        "| figure | times the peer's | range | better | case |\n|---|---|---|---|---|",
        *where_others_are_better(found),
        "",
    ]
    for case, figures in found:
        told = facts["cases"][case.name]
        load = " and ".join(f"{each:g}" for each in told["load"])
        parts.append(f"## {case.title}\n")
        if told["failed"]:
            parts.append(f"It failed: `{told['failed']}`\n")
        parts += [f"{peer} failed: `{why}`\n" for peer, why in told.get("peers", {}).items()]
        if figures:
            parts.append(draw(case, figures))
            parts += ["| figure | value | range | better |\n|---|---|---|---|", *map(row, figures), ""]
        others = f"; other programs used {told['others']:.0%} of the machine" if told["others"] is not None else ""
        parts.append(f"    {told['command']}\n\n{told['seconds']:.0f} s; load before and after: {load}{others}.\n")
    return "\n".join(parts).replace("\n\n\n", "\n\n")
