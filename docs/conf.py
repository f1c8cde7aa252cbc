"""How Sphinx makes pages of the documents, and the API reference of docstrings: scripts/docs calls it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pygments.lexers.special import TextLexer

import safeproducer.spark
from safeproducer import __version__

project = "safeproducer"
version = release = __version__
copyright = "The safeproducer authors"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "README"
include_patterns = ["*.md", "docs/**", "examples/README.md", "benchmarks/README.md"]
exclude_patterns = ["docs/conf.py"]
html_theme = "furo"
html_title = f"{project} {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_search_scorer = str(Path(__file__).with_name("scorer.js"))
myst_heading_anchors = 4
default_role = "code"  # docstrings have names in single backquotes
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_preserve_defaults = True
autodoc_mock_imports = [
    "confluent_kafka.schema_registry",
    "opentelemetry",
    "pyarrow",
    "pyspark",
    "pytest",
    "structlog",
]  # the environment is small
safeproducer.spark._require_extra = lambda *_: None  # a mock has no version

# The side bar, by reader: what one wants first stands first. A page's list stands below it.
SIDE_BAR: dict[str, dict[str, list[str]]] = {
    "Use": {
        "docs/use/quickstart": ["examples/README", "docs/use/migrate", "docs/use/why"],
        "docs/use/run": [],
        "docs/use/outcomes-and-errors": ["docs/use/transactions"],
        "docs/use/asyncio": [],
        "docs/use/ordering-and-lanes": [],
        "docs/use/callbacks-signals-threads": [],
        "docs/use/hooks-and-tracing": [],
        "docs/reference/configuration": ["docs/reference/api", "docs/reference/snapshot"],
        "docs/benchmarks/report": ["benchmarks/README"],
        "docs/reference/differences": ["docs/reference/compatibility", "docs/use/leave"],
    },
    "Operate": {
        "docs/operate/symptoms": ["docs/operate/troubleshooting"],
        "docs/operate/metrics": ["docs/reference/metrics"],
        "docs/operate/throttling-and-quotas": [],
        "docs/operate/long-links": [],
        "docs/operate/producer-ids": ["docs/operate/producer-id-recipes"],
        "docs/operate/doctor": ["docs/reference/commands"],
        "docs/operate/rights": [],
        "docs/operate/limits": [],
        "SECURITY": [],
    },
    "Data": {
        "docs/use/spark": [
            "docs/use/poison-row",
            "docs/use/spark-copies",
            "docs/use/spark-exactly-once",
            "docs/reference/spark-options",
        ],
        "docs/operate/spark": ["docs/operate/spark-platforms", "docs/operate/spark-without-pip"],
    },
    "Test": {
        "docs/test/fakecluster": ["docs/test/transactions", "docs/test/conformance"],
        "docs/test/pytest": [],
        "docs/test/spark": [],
    },
    "Develop": {
        "docs/README": ["CHANGELOG"],
        "CONTRIBUTING": ["CODE_OF_CONDUCT"],
        "ARCHITECTURE": [
            "docs/internals/file-map",
            "docs/internals/glossary",
            "docs/internals/holding",
            "docs/internals/sending",
            "docs/internals/deadlines",
            "docs/internals/sequence-gaps",
            "docs/internals/ledger",
            "docs/internals/reuse",
            "docs/internals/interruptions",
        ],
        "docs/internals/invariants": ["docs/internals/librdkafka", "docs/internals/measurements"],
        "docs/internals/kips": [],
    },
}

# What people search for where a page says it in other words, or many pages name it.
KEYWORDS = {
    "docs/use/quickstart": ["install"],
    "docs/use/outcomes-and-errors": ["not written", "unknown outcome"],
    "docs/use/callbacks-signals-threads": ["fork"],
    "docs/operate/symptoms": ["health"],
    "docs/operate/long-links": ["round trip", "latency"],
    "docs/operate/throttling-and-quotas": ["quota"],
    "docs/operate/producer-ids": ["producer id"],
    "docs/operate/spark": ["bad rows"],
}


def _contents(pages: Iterable[str], caption: str = "") -> str:
    """Return a hidden list of pages for the side bar."""
    options = [":hidden:", *([f":caption: {caption}"] if caption else [])]
    return "\n".join(["", "```{toctree}", *options, "", *(f"/{page}" for page in pages), "```", ""])


def _adapt(app: Any, name: str, source: list[str]) -> None:
    """Add its list and words to a page; link to a page where it marks a row of a table: MyST knows no such."""
    if name == root_doc:
        source[0] += "".join(_contents(pages, caption) for caption, pages in SIDE_BAR.items())
    for pages in SIDE_BAR.values():
        if pages.get(name):
            source[0] += _contents(pages[name])
    for words in KEYWORDS.get(name, ()):
        source[0] = f"```{{index}} ! {words}\n```\n\n{source[0]}"  # a main entry: others come behind all pages
    source[0] = re.sub(r"((?:measurements|report)\.md)#[\w-]+", r"\1", source[0])


def setup(app: Any) -> None:
    """Sphinx calls this first."""
    app.add_lexer("mermaid", TextLexer)
    app.connect("source-read", _adapt)
