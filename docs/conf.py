"""How Sphinx makes pages of the documents, and the API reference of docstrings: scripts/docs calls it."""

from __future__ import annotations

import re
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
myst_heading_anchors = 4
default_role = "code"  # docstrings have names in single backquotes
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_preserve_defaults = True
autodoc_mock_imports = ["opentelemetry", "pyarrow", "pyspark", "pytest", "structlog"]  # the environment is small
safeproducer.spark._require_extra = lambda *_: None  # a mock has no version

CONTENTS = """
```{toctree}
:hidden:
:glob:

docs/use/*
docs/operate/*
docs/reference/*
docs/test/*
docs/internals/*
docs/README
*
examples/README
benchmarks/README
```
"""


def _adapt(app: Any, name: str, source: list[str]) -> None:
    """Add the list of pages to the first one; link to a page where it marks a row of a table, as MyST knows no such."""
    if name == root_doc:
        source[0] += CONTENTS
    source[0] = re.sub(r"(measurements\.md)#[\w-]+", r"\1", source[0])


def setup(app: Any) -> None:
    """Sphinx calls this first."""
    app.add_lexer("mermaid", TextLexer)
    app.connect("source-read", _adapt)
