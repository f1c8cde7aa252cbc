"""The tables of docs/reference/spark-options.md, from the code.

`python -m tests.spark.option_tables` writes them anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path

from safeproducer.spark.java_settings import REFUSED, TRANSLATED, WITHOUT_EFFECT
from safeproducer.spark.options import SINK_OPTIONS

DOCUMENT = Path(__file__).resolve().parents[2] / "docs/reference/spark-options.md"


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """In Markdown."""
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines).replace("|  |", "| |")


def names(each: Iterable[str]) -> str:
    """As code."""
    return ", ".join(f"`{name}`" for name in each)


def told(text: str) -> dict[str, tuple[str, str]]:
    """The second and the third cell of each row with one name: what the document alone says is kept."""
    rows = re.findall(r"^\| `([^`]+)` \|(?: ([^|]+))? \|(?: ([^|]+))? \|$", text, re.MULTILINE)
    return {name: (second, third) for name, second, third in rows}


def tables() -> dict[str, str]:
    """By the name between the marks of the document. Settings with the same reason share a row."""
    cells = told(DOCUMENT.read_text(encoding="utf-8"))
    without = sorted(WITHOUT_EFFECT, key=lambda name: (WITHOUT_EFFECT[name], name))
    refused = sorted(REFUSED, key=lambda name: (REFUSED[name].why, REFUSED[name].way_out, name))
    return {
        "sink": table(
            ("option", "what it does", "default"),
            ((f"`{option}`", cells.get(option, ("", ""))[0], default) for option, default in SINK_OPTIONS.items()),
        ),
        "translated": table(
            ("`kafka.`", "becomes", "note"),
            ((f"`{name}`", names(it.becomes), cells.get(name, ("", ""))[1]) for name, it in TRANSLATED.items()),
        ),
        "without effect": table(
            ("`kafka.`", "why"), ((names(same), why) for why, same in groupby(without, WITHOUT_EFFECT.__getitem__))
        ),
        "refused": table(
            ("`kafka.`", "why", "what to do"),
            ((names(same), it.why, it.way_out) for it, same in groupby(refused, REFUSED.__getitem__)),
        ),
    }


def renewed(text: str, now: Mapping[str, str]) -> str:
    """The document with the tables as they are now; each stands between two marks that name it."""
    for name, content in now.items():
        begin, found, rest = text.partition(f"<!-- {name} -->\n")
        _, end, rest = rest.partition("<!-- end -->\n")
        assert found, name
        assert end, name
        text = f"{begin}{found}\n{content}\n{end}{rest}"
    return text


if __name__ == "__main__":
    DOCUMENT.write_text(renewed(DOCUMENT.read_text(encoding="utf-8"), tables()), encoding="utf-8")
