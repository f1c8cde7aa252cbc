"""The documents are right: what they list exists, and what exists is listed."""

import argparse
import ast
import dataclasses
import importlib.util
import inspect
import pkgutil
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import MethodType
from typing import Any

import pytest

import pytest_safeproducer
import safeproducer
from safeproducer import aio, spark, telemetry, testing
from safeproducer.cli import main
from safeproducer.kafka.native import KafkaError
from safeproducer.kafka.properties import REFUSED
from safeproducer.policy.decision import BATCH, CHANGE, DIRECT, RULES, Hold
from safeproducer.settings.own_settings import OWN_SETTINGS
from tests import measures

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(ROOT.glob("*.md")) + sorted(ROOT.glob("[a-z]*/**/*.md"))


def read(name: str) -> str:
    """The text of a document of this repository."""
    return (ROOT / name).read_text(encoding="utf-8")


def sections(name: str) -> dict[str, str]:
    """Heading of the second level -> what is below it."""
    return dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", read(name), re.MULTILINE | re.DOTALL))


def test_each_difference_from_stock_has_its_test_and_each_test_its_line() -> None:
    """The tables of differences and tests/contract/test_differences.py name each other completely."""
    source = read("tests/contract/test_differences.py")
    tests = set(re.findall(r"^def (test_\w+)", source, re.MULTILINE)) - {"test_this_file_is_run_for_both_classes"}
    listed = re.findall(r"\| `(test_\w+)` \|$", read("docs/reference/differences.md"), re.MULTILINE)
    assert sorted(listed) == sorted(tests)


def test_every_setting_that_is_not_passed_on_is_in_the_table() -> None:
    """Settings that do not reach librdkafka as the application wrote them, are refused, or are our own."""
    configuration = read("docs/reference/configuration.md")
    callbacks = "on_delivery", "error_cb", "throttle_cb"
    changed = "delivery.report.only.error", "message.timeout.ms", "statistics.interval.ms", "enable.idempotence"
    for name in (*callbacks, *changed, *REFUSED, *OWN_SETTINGS):
        assert re.search(rf"^\|.*`{re.escape(name)}`.*\|.*\|.*\|$", configuration, re.MULTILINE), name


def test_every_error_is_in_the_table() -> None:
    """Each public exception class is documented."""
    errors = read("docs/use/outcomes-and-errors.md")
    for name in safeproducer.__all__:
        kind = getattr(safeproducer, name)
        if isinstance(kind, type) and issubclass(kind, Exception):
            assert name.replace("Configuration", "...", 1) in errors or f"`{name}`" in errors, name


def test_each_reason_to_hold_records_back_is_in_the_table() -> None:
    """Code, sentence, KIP and cure, in the order of the enumeration, as explain() says them."""
    listed = re.findall(
        r"^\| `(\w+)` \| (.*?) \| (.*?) ?\| (.*?) ?\|$", read("docs/operate/troubleshooting.md"), re.MULTILINE
    )
    assert listed == [
        (reason.value, Hold(2.5, reason, 1).sentence(0.0), reason.kip or "", reason.cure or "")
        for reason in safeproducer.HoldReason
    ]


def test_each_reason_to_hold_is_explained_to_developers() -> None:
    """Those of a partition in the table, those of the next batch in the list, and the rules of each path in order."""
    holding = read("docs/internals/holding.md")
    table = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", holding, re.MULTILINE)
    explained = [code for cell in table for code in re.findall(r"\w+", cell)]
    of_a_batch, *ordered = (
        re.findall(r"`(\w+)`", re.findall(rf"{words}(.*?)\.\n", holding, re.DOTALL)[0])
        for words in (
            "say what the next batch waits for: ",
            "The direct path is closed in this order: ",
            "The batch lanes are closed in this order: ",
            "The way from one to the other is closed in this order: ",
        )
    )
    assert sorted(explained + of_a_batch) == sorted(safeproducer.HoldReason)
    assert ordered == [[rule.reason for rule in RULES if rule.closes & way] for way in (DIRECT, BATCH, CHANGE)]


def test_the_front_page_compares_what_the_example_counts() -> None:
    """A row for each problem, and figures of cost that are as old as this version at most."""
    page = sections("README.md")["Beside other clients"]
    problems = re.findall(r'^    "([\w-]+)": [a-z_]+,$', read("examples/four_clients.py"), re.MULTILINE)
    assert len(problems) == 6
    assert re.findall(r"^\| `([\w-]+)`", page, re.MULTILINE) == problems
    assert f"Cost of safeproducer {safeproducer.__version__} beside" in page
    commands = re.findall(r"`scripts/bench (\w+)", page)
    assert len(commands) == 3
    assert all((ROOT / f"benchmarks/{command}.py").exists() for command in commands)


def test_every_hook_method_is_in_the_table() -> None:
    """With its arguments, in the order of the class."""
    listed = re.findall(r"^\| `(\w+)\((.*?)\)` \|", read("docs/use/hooks-and-tracing.md"), re.MULTILINE)
    assert listed == [
        (name, ", ".join(list(inspect.signature(method).parameters)[1:]))
        for name, method in vars(safeproducer.Hook).items()
        if not name.startswith("_")
    ]


@pytest.mark.parametrize(
    "event",
    [
        *(safeproducer.ProducerInfo, safeproducer.CallSite, safeproducer.Record, safeproducer.RecordsLost),
        *(safeproducer.Throttled, safeproducer.WindowChanged, safeproducer.LanesChanged),
        *(safeproducer.ReplicationChanged, safeproducer.ProducerChurn, safeproducer.ProducerIdLimited),
    ],
)
def test_every_field_that_a_hook_gets_is_in_the_table(event: type[Any]) -> None:
    """In the order of the class."""
    row = re.findall(rf"^\| `{event.__name__}` \| (.*) \|$", read("docs/use/hooks-and-tracing.md"), re.MULTILINE)
    assert re.findall(r"`(\w+)`", row[0]) == [field.name for field in dataclasses.fields(event)]


@pytest.mark.parametrize(
    "kind",
    [
        *(safeproducer.CloseReport, safeproducer.Snapshot, safeproducer.PartitionSnapshot),
        *(safeproducer.ReplicationSnapshot, safeproducer.WindowSnapshot),
    ],
)
def test_every_field_of_a_snapshot_is_in_its_table(kind: type[Any]) -> None:
    """One row for each field, in the order of the class."""
    section = sections("docs/reference/snapshot.md")[kind.__name__]
    listed = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    assert listed == [field.name for field in dataclasses.fields(kind)]


def test_every_option_of_a_command_is_in_its_section() -> None:
    """Or among those that all commands have."""
    told = sections("docs/reference/commands.md")
    (commands,) = (each for each in main._parser()._actions if isinstance(each, argparse._SubParsersAction))
    for command, parser in commands.choices.items():
        section = told["Options of all commands"] + told[command]
        options = {option for action in parser._actions for option in action.option_strings} - {"-h", "--help"}
        assert sorted(option for option in options if not re.search(rf"`{option}[ `]", section)) == []


def test_each_case_of_an_invariant_ends_with_its_tests() -> None:
    """Rules are numbered from 1 to 40 at most, and each has cases."""
    cases = [rule.split("\n- ")[1:] for rule in read("docs/internals/invariants.md").split("\n### ")[1:]]
    numbers = re.findall(r"^### (\d+)\. ", read("docs/internals/invariants.md"), re.MULTILINE)
    assert numbers == [str(number) for number in range(1, len(cases) + 1)]
    assert len(cases) <= 40
    assert all(cases)
    assert [case for rule in cases for case in rule if not re.search(r"`(?:tests|integration)/[\w/.]+`", case)] == []


@pytest.mark.parametrize("kip", ["13, 124, 219", "73", "854", "936", "1269"])
def test_the_five_kips_are_in_their_table_and_on_the_front_page(kip: str) -> None:
    """None of them is a footnote."""
    assert re.search(rf"^\| {kip} \|", read("docs/internals/kips.md"), re.MULTILINE)
    assert f"[{kip}](" in read("README.md")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_file_a_document_names_exists(document: Path) -> None:
    """Paths in backquotes that look like files of this repository; modules by their path in the package."""
    text = document.read_text(encoding="utf-8")
    folders = "safeproducer|tests|integration|examples|scripts|benchmarks|docs"
    for path in re.findall(rf"`((?:{folders})/[\w/.-]+)`", text):
        assert (ROOT / path).exists(), path
    for module in re.findall(r"`((?:policy|pipeline|kafka|telemetry|testing|cli)/[\w/]+\.py)`", text):
        assert (ROOT / "safeproducer" / module).exists(), module


@pytest.fixture(scope="module")
def attributes() -> dict[str, set[str]]:
    """Class of the package -> names that its body mentions; of classes of the same name all."""
    found: dict[str, set[str]] = {}
    for tree in measures.trees().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, set()).update(re.findall(r"\w+", ast.unparse(node)))
    return found


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_attribute_a_document_names_exists(document: Path, attributes: dict[str, set[str]]) -> None:
    """`Class.name` in backquotes, of classes that the package has."""
    for code in re.findall(r"`([^`\n]+)`", document.read_text(encoding="utf-8")):
        for owner, name in re.findall(r"(?<![\w.])([A-Z]\w+)\.(\w+)", code):
            assert owner not in attributes or name in attributes[owner], code


def anchors(text: str) -> set[str]:
    """What can be linked to: headings by the name that GitHub makes of them, and marked rows of tables."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    names = {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
    return names | set(re.findall(r'<a id="([\w-]+)">', text))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_link_leads_to_a_file_and_a_heading(document: Path) -> None:
    """Relative links between the documents, not those to the web."""
    text = document.read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!\w+:)([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        found = (document.parent / path).resolve() if path else document
        assert found.exists(), target
        if anchor:
            assert anchor in anchors(found.read_text(encoding="utf-8")), target


def test_every_document_is_reached_from_the_front_page() -> None:
    """No document is known to its writer alone."""
    reached, unread = set(), [ROOT / "README.md"]
    while unread:
        document = unread.pop()
        if document in reached or document.suffix != ".md":
            continue
        reached.add(document)
        for target in re.findall(r"\]\((?!\w+:)([^)#\s]+)", document.read_text(encoding="utf-8")):
            unread.append((document.parent / target).resolve())
    assert {path.relative_to(ROOT) for path in ROOT.glob("docs/**/*.md")} <= {
        path.relative_to(ROOT) for path in reached
    }


def python_in(name: str) -> list[str]:
    """The examples of a document that are marked as Python."""
    return re.findall(r"^```python\n(.*?)^```", read(name), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_python_example_can_be_compiled_and_finds_what_it_imports(document: Path) -> None:
    """Those without Spark are run in tests/project/test_documents_run.py."""
    for example in python_in(document.relative_to(ROOT).as_posix()):
        compile(example, str(document), "exec")
        for node in ast.walk(ast.parse(example)):
            if isinstance(node, ast.ImportFrom):
                module = importlib.import_module(node.module or "")
                assert [one.name for one in node.names if not hasattr(module, one.name)] == []
            elif isinstance(node, ast.Import):
                assert all(importlib.util.find_spec(one.name) for one in node.names)


# --- the API reference ---------------------------------------------------------------------------------------------


def public() -> dict[str, Any]:
    """Public name with its module -> what it is. Of telemetry: the classes; the plug-in has one name to use."""
    found = {
        f"{module.__name__}.{name}": getattr(module, name)
        for module in (safeproducer, aio, testing, spark)
        for name in module.__all__
    }
    for module in pkgutil.iter_modules(telemetry.__path__, f"{telemetry.__name__}."):
        if module.name.endswith(".figures"):  # what metrics.py reads
            continue
        for name, kind in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if kind.__module__ == module.name and not name.startswith("_"):
                found[f"{module.name}.{name}"] = kind
    return {**found, "pytest_safeproducer.kafka_cluster": pytest_safeproducer.kafka_cluster}


PUBLIC = public()


def test_every_public_name_is_in_the_reference() -> None:
    """Once each, and no other."""
    listed = re.findall(
        r"^\.\. auto\w+:: (\w*safeproducer[\w.]+)(?:\(\))?$", read("docs/reference/api.md"), re.MULTILINE
    )
    assert sorted(listed) == sorted(PUBLIC)


def described(kind: Any) -> Iterator[tuple[str, str, str | None]]:
    """(where, name of a parameter or field, the text that is to have it); the name is "" for a text as such."""
    yield str(kind), "", vars(kind).get("__doc__") if isinstance(kind, type) else kind.__doc__
    if not isinstance(kind, type):
        return
    texts = " ".join(each.__doc__ or "" for each in kind.__mro__ if each.__module__.startswith("safeproducer"))
    for field in dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ():
        yield kind.__name__, field.name, texts
    for name, member in inspect.getmembers(kind):
        method = member.fget if isinstance(member, property) else member
        own = getattr(method, "__module__", None) or ""
        hidden = name.startswith("_") and name != "__call__"
        if hidden or not callable(method) or not own.startswith("safeproducer"):
            continue
        owner = next((each for each in kind.__mro__ if getattr(vars(each).get(name), "__doc__", None)), kind)
        text = getattr(vars(owner).get(name), "__doc__", None)
        yield f"{kind.__name__}.{name}", "", text
        for parameter in list(inspect.signature(method).parameters.values())[not isinstance(member, MethodType) :]:
            if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                yield f"{kind.__name__}.{name}", parameter.name, f"{text} {owner.__doc__}"
    if not issubclass(kind, (Enum, Exception, KafkaError)) and not dataclasses.is_dataclass(kind):  # users make these
        for parameter in inspect.signature(kind).parameters.values():
            if parameter.kind is not parameter.VAR_POSITIONAL:
                yield kind.__name__, parameter.name, texts


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_and_parameter_has_a_description(name: str) -> None:
    """In backquotes in the docstring of its method, or of the class."""
    missing = [
        f"{where} {wanted}"
        for where, wanted, text in described(PUBLIC[name])
        if not text or wanted not in {*re.findall(r"\w+", " ".join(re.findall(r"`+([^`]+)`+", text))), ""}
    ]
    assert missing == []
