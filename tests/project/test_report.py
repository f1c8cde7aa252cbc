"""The report: its page, its plots and the figures in other documents are those of its JSON."""

import json
import re
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import pytest

from benchmarks.interleaved import Spread
from benchmarks.report import __main__ as report
from benchmarks.report.cases import CASES, Case
from benchmarks.report.drawing import DARK, LETTERS, LIGHT, described, plot
from benchmarks.report.figures import HIGHER, LOWER, Figure, aio, figure, peers, quota, scale, spark
from benchmarks.report.page import FACTS, FOLDER, ROOT, figures_of, page, quoted, unknown, where_others_are_better

DOCUMENTS = sorted({*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")} - set(FOLDER.glob("*.md")))
NUMBER = re.compile(r"\d+\.\d+")
FIGURES = [
    Figure("a-speed", "speed", "a peer", 4.94, HIGHER, 4.5, 5.0),
    Figure("a-cpu", "CPU", "a peer", 1.234, LOWER, 1.1, 1.3),
    Figure("a-noise", "noise", "a peer", 1.02, LOWER, 0.9, 1.1),
    Figure("a-count", "count", "", 20, LOWER),
]


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    """The report that is committed."""
    found: dict[str, Any] = json.loads(FACTS.read_text(encoding="utf-8"))
    return found


def test_page_and_plots_are_those_of_the_figures(facts: dict[str, Any]) -> None:
    """Somebody who edits a figure by hand, or forgets one of the files, fails this."""
    before = {file.name: file.read_text(encoding="utf-8") for file in FOLDER.iterdir()}
    written = page(facts, CASES)
    assert before["report.md"] == written
    compared = {f"{name}.svg" for name, case in facts["cases"].items() if any(each["peer"] for each in case["figures"])}
    assert set(before) == {"report.md", "report.json", *compared}
    for case in CASES:
        told = [each for each in figures_of(facts["cases"][case.name]) if each.peer]
        assert not told or before[f"{case.name}.svg"] == plot(case.title, told)


def test_figures_of_documents_are_those_of_the_report(facts: dict[str, Any]) -> None:
    """A link to a row of the report has the row's figure as its text, and the front page has no other ones."""
    figures = {each.name: each for case in facts["cases"].values() for each in figures_of(case)}
    assert len(figures) == sum(len(case["figures"]) for case in facts["cases"].values()), "a name stands twice"
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        assert unknown(text, figures) == []
        assert quoted(text, figures) == text, document.name
    front = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"\d\.\d+ times\b", front) == []
    assert len(re.findall(r"report\.md#", front)) > 3


def test_other_figures_of_users_pages_are_measured_ones() -> None:
    """Each "x times" is linked: to the report, or to the row of the measurements that has the figure."""
    text = (ROOT / "docs/internals/measurements.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r'^\| <a id="([\w-]+)">(.*)', text, re.MULTILINE))
    pages = [page.read_text(encoding="utf-8") for page in ROOT.glob("docs/[!bi]*/*.md")]
    assert [told for page in pages for told in re.findall(r"\d\.\d+ times\b", page)] == []
    told = [each for page in pages for each in re.findall(r"\[([\d.]+.*?)\]\([\w./]*measurements\.md#([\w-]+)\)", page)]
    wrong = [
        (figure, row)
        for figure, row in told
        for each in NUMBER.findall(figure)
        if each not in NUMBER.findall(rows[row])
    ]
    assert wrong == []
    assert len(told) > 5


def test_report_tells_the_machine_and_its_load(facts: dict[str, Any]) -> None:
    """And the command of each case, and nothing that names the machine."""
    assert set(facts["machine"]) == {"cores", "memory_gb", "system"}
    assert set(facts["cases"]) == {case.name for case in CASES}
    for case in facts["cases"].values():
        assert case["command"].startswith("scripts/bench ")
        assert len(case["load"]) == 2


def test_page_begins_with_what_peers_do_better() -> None:
    """The farthest first; nobody is better by less than is shown."""
    case = replace(CASES[0], name="a", title="A")
    others = [
        *FIGURES,
        Figure("a-slow", "slow", "a peer", 0.5, HIGHER),
        Figure("a-same", "same", "a peer", 1.004, LOWER),
    ]
    rows = list(where_others_are_better([(case, others)]))
    assert [row.split(" | ")[0] for row in rows] == ["| slow", "| CPU", "| noise"]
    told = {"command": "scripts/bench a", "seconds": 1, "load": [1, 2], "others": 0.5, "failed": "", "figures": []}
    made = {"quick": False, "machine": {"cores": 1, "memory_gb": 1, "system": "x"}, "versions": {"x": "1"}}
    text = page({**made, "cases": {"a": {**told, "failed": "no broker"}}}, (case,))
    assert re.findall(r"^## (.*)", text, re.MULTILINE) == ["Where others are better", "A"]
    assert "It failed: `no broker`" in text
    text = page({**made, "cases": {"a": {**told, "peers": {"a client": "no such setting"}}}}, (case,))
    assert "a client failed: `no such setting`" in text


def test_two_reports_are_compared_by_their_ratios(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As they are printed, those that have a range; more than one of ten beyond it is too many."""

    def facts(*values: float) -> dict[str, Any]:
        figures = [Figure(f"f{number}", "f", "a peer", value, LOWER, 0.9, 1.1) for number, value in enumerate(values)]
        others = [Figure("a-count", "count", "", values[0], LOWER), Figure("alone", "f", "a peer", values[0], LOWER)]
        return {"cases": {"a": {"figures": [asdict(each) for each in (*figures, *others)]}}}

    first, second = tmp_path / "first.json", tmp_path / "second.json"
    first.write_text(json.dumps(facts(*[1.0] * 10)))
    monkeypatch.setattr(report, "FACTS", second)
    for values, status in (((1.2, *[1.104] * 9), 0), ((1.2, 1.106, *[1.0] * 8), 1)):
        second.write_text(json.dumps(facts(*values)))
        assert report.beside(str(first)) == status
    assert capsys.readouterr().out.splitlines()[:2] == [
        "f0: 1.20, before 0.90 to 1.10",
        f"9 of 10 ratios lie within the range of {first}",
    ]


def test_each_case_has_its_figures() -> None:
    """Of what the benchmarks print: names that documents may link to."""
    spread = asdict(Spread.of([1.0, 2.0, 3.0]))
    both = {"defaults": {"kafka-python": spread}, "at its best": {}}
    told = {"cases": [{"rtt": 5.0, "speed": both, "cpu": both}]}
    assert [each.name for each in peers(told)] == [
        f"peers-kafka-python-defaults-round-trip-5-ms-{what}" for what in ("speed", "cpu")
    ]
    one = {"batches": 8, "requests": 9, "retries": 1}
    beside = {"crowded": 100.0, "others": 50.0}
    under = {"batches": {"stock": one, "safe": one}, "neighbours": {"stock": beside, "safe": beside}}
    assert [each.value for each in quota(under)] == [9, 1, 9, 1, 1.0, 1.0]
    one = {"side": "a peer", "what": "1/s", "figure": "p50", "spread": spread}
    told = [
        *aio({"ratios": [one]}),
        *scale({"runs": [ran("stock", 1), ran("auto", 2), ran("stock", 2), ran("auto", 6)]}),
    ]
    assert [(each.value, each.low, each.high) for each in told] == [(2, 1, 3), *[(2.5, 2, 3)] * 2]
    assert [each.low for each in scale({"runs": [ran("stock", 1), ran("auto", 2)]})] == [None, None]
    assert [*scale({"runs": [ran("stock", 1), ran("auto", 2, missing=1)]})] == []
    door = {"name": "a door", "to_idle": spread, "p90_to_idle": None}
    writes = {"rows": 5, "ratios": [{"title": "a / b", "throughput": spread, "cpu": spread}]}
    assert [(each.better, each.high) for each in spark({"writes": [writes], "triggers": [door]})] == [
        (HIGHER, 3),
        (LOWER, 3),
        (LOWER, 3),
    ]


def ran(way: str, took: float, missing: int = 0) -> dict[str, Any]:
    phase = {"wall": took, "cpu": took, "missing": missing}
    return {"way": way, "case": {"topics": 1, "partitions": 2, "rtt": 0}, "phases": {"first": phase}}


def test_documents_get_the_figures_by_name() -> None:
    """One that the report does not have stays, and is told."""
    figures = {each.name: each for each in (*FIGURES, Figure("tiny", "tiny", "a peer", 0.00182, LOWER))}
    text = "[5](docs/benchmarks/report.md#a-speed), [9](../benchmarks/report.md#a-count), [7](report.md#gone)"
    assert quoted(text, figures) == text.replace("[5]", "[4.9]").replace("[9]", "[20]")
    assert quoted("[0](report.md#tiny)", figures) == "[0.0018](report.md#tiny)"
    assert unknown(text, figures) == ["gone"]


def test_plot_is_read_aloud_and_has_contrast() -> None:
    """It has a title and a description, and each text can be read on its ground, light and dark."""
    assert described(FIGURES[:2]) == "speed: 4.9 times; CPU: 1.23 times"
    figures = [*FIGURES[:2], replace(FIGURES[2], label=f"noise{12 * ' of a word'}")]
    drawn = Xml.fromstring(plot("Plot & more", figures))  # noqa: S314 - our own
    space = {"s": "http://www.w3.org/2000/svg"}
    assert drawn.findtext("s:title", namespaces=space) == "Plot & more"
    assert drawn.findtext("s:desc", namespaces=space) == described(figures)
    assert [each.get("class") for each in drawn.findall("s:circle", space)] == ["ahead", "behind", "behind"]
    assert max(len(each.text or "") for each in drawn.findall("s:text", space)) <= LETTERS, "one is cut off"
    for theme in (LIGHT, DARK):
        for colour in (theme.text, theme.ahead, theme.behind):
            lights = sorted(map(luminance, (colour, theme.ground)))
            assert (lights[1] + 0.05) / (lights[0] + 0.05) >= 4.5


def luminance(colour: str) -> float:
    """As WCAG defines it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize(
    ("program", "failed", "values"),
    [
        ('print(\'{"rows": [{"x": 2}], "disturbance": 0.25, "failed": {"b": "why"}}\')', "", [2]),
        ("import sys; sys.exit('first\\nno broker came up')", "no broker came up", []),
        ("print('{}')", "KeyError('rows')", []),
    ],
)
def test_case_that_fails_is_shown_with_its_message(
    monkeypatch: pytest.MonkeyPatch, program: str, failed: str, values: list[float]
) -> None:
    """And the others go on."""
    real = report.subprocess.run

    def run(_: list[str], **options: Any) -> Any:
        return real([sys.executable, "-c", program], **options)

    monkeypatch.setattr(report.subprocess, "run", run)
    case = Case("a", "A", "a", "", "--few", lambda told: iter([figure("a", "x", "", told["rows"][0]["x"], LOWER)]))
    told = report.measured(case, quick=True)
    assert (told["command"], told["failed"]) == ("scripts/bench a --few", failed)
    assert [each["value"] for each in told["figures"]] == values
    assert told["others"] == (None if failed else 0.25)
    assert told["peers"] == ({} if failed else {"b": "why"})
