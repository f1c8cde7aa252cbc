"""The document of the options is the code's."""

from __future__ import annotations

import re

from safeproducer.settings.own_settings import MAX_BLOCK_MS
from safeproducer.spark import options
from safeproducer.spark.java_settings import REFUSED, TRANSLATED, WITHOUT_EFFECT
from tests.spark.option_tables import DOCUMENT, renewed, tables, told

TEXT = DOCUMENT.read_text(encoding="utf-8")


def test_the_tables_are_those_of_the_code() -> None:
    """Cure: `python -m tests.spark.option_tables`."""
    assert renewed(TEXT, tables()) == TEXT


def test_every_setting_of_java_is_listed_once() -> None:
    rows = re.findall(r"^\| (`.*?`) \|", TEXT, re.MULTILINE)
    listed = [name for cell in rows for name in re.findall(r"`([^`]+)`", cell)]
    assert sorted(name for name in listed if name not in options.SINK_OPTIONS and name != "kafka.") == sorted(
        [*TRANSLATED, *WITHOUT_EFFECT, *REFUSED]
    )


def test_defaults_in_the_document_are_those_of_the_code() -> None:
    """Of the sink's own options, and what is set for librdkafka."""
    given = options.Options.parse({"kafka.bootstrap.servers": "x:1"})
    defaults = options.SINK_OPTIONS
    assert defaults[options.DEADLINE] == f"{given.deadline:g}"
    assert defaults[options.IDLE_MS] == f"{given.idle_ms:,}".replace(",", " ")
    assert (given.topic, given.max_writers) == (None, None)
    for name in ("partitioner", "message.max.bytes"):
        assert f"`{name}={given.config[name]}`" in TEXT
    assert MAX_BLOCK_MS in TEXT


def test_every_option_of_the_sink_is_described() -> None:
    """What it does stands in the document alone."""
    assert all(told(TEXT)[option][0] for option in options.SINK_OPTIONS)
