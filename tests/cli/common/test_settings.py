"""Settings from files and arguments."""

import argparse
import json
from pathlib import Path

import pytest

from safeproducer.cli.common.screen import Screen
from safeproducer.cli.common.settings import parse_properties, read_config_file, read_settings
from safeproducer.cli.common.stop import Failure

MARKER = "MARKER-s3cret"


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("a=b", {"a": "b"}),
        ("a = b c ", {"a": "b c "}),
        ("a: b=c", {"a": "b=c"}),
        ("a b", {"a": "b"}),
        ("a", {"a": ""}),
        ("# c\n! d\n\n  a=1\r\nb=2", {"a": "1", "b": "2"}),
        ("a=1,\\\n   2", {"a": "1,2"}),
        ("a=x\\\\\nb=y", {"a": "x\\", "b": "y"}),
        (r"a\:b\=c=\u00e9\t.", {"a:b=c": "é\t."}),
        ("a=1\na=2", {"a": "2"}),
        ("p=#not!a comment", {"p": "#not!a comment"}),
        ("a=1\n \t\n\\\n#b", {"a": "1", "#b": ""}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, settings: dict[str, str]) -> None:
    """Separators, comments, continuation lines and escapes follow java.util.Properties."""
    assert parse_properties(text) == settings


def test_json_keeps_types(tmp_path: Path) -> None:
    """A file that begins with a brace is JSON; numbers and booleans stay what they are."""
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"linger.ms": 5, "enable.idempotence": True, "acks": "all"}))
    assert read_config_file(str(path)) == {"linger.ms": 5, "enable.idempotence": True, "acks": "all"}


@pytest.mark.parametrize(
    "content", [b'{"sasl.password": "MARKER-s3cret",', b'{"sasl.password": ["MARKER-s3cret"]}', b"\xff\xfe"]
)
def test_a_bad_file_is_named_and_not_quoted(content: bytes, tmp_path: Path) -> None:
    """The sentence names the file and shows nothing of its content."""
    path = tmp_path / "bad.conf"
    path.write_bytes(content)
    with pytest.raises(Failure, match=r"bad\.conf") as failure:
        read_config_file(str(path))
    assert MARKER not in str(failure.value)


def test_priority_is_servers_argument_then_config_then_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment names the file; --config wins over it and --bootstrap-servers over both."""
    path = tmp_path / "c.properties"
    path.write_text("bootstrap.servers=file:1\nlinger.ms=1\nacks=all\n")
    monkeypatch.setenv("SAFEPRODUCER_CONFIG_FILE", str(path))
    args = argparse.Namespace(
        config_file=None, config=["linger.ms=2", "bootstrap.servers=c:1"], bootstrap_servers="a:1"
    )
    settings = read_settings(args, Screen(json_output=False, quiet=True))
    assert settings == {"bootstrap.servers": "a:1", "linger.ms": "2", "acks": "all"}


@pytest.mark.parametrize("servers", ["", ",", "host:9092,", ":9092", "a b:9092"])
def test_servers_without_a_name_are_refused(servers: str) -> None:
    """librdkafka would wait for ever for a broker that cannot exist."""
    args = argparse.Namespace(config_file=None, config=[], bootstrap_servers=servers)
    with pytest.raises(Failure, match="names no broker"):
        read_settings(args, Screen(json_output=False, quiet=True))
