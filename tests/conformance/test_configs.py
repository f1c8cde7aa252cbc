"""Configs of topics and brokers: where a value comes from, how it is changed, and what is refused."""

from typing import Any

import pytest

from tests.conformance.target import until
from tests.testing.raw import RawClient

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
OF_TOPIC, OF_BROKER, OF_ALL_BROKERS, STATIC, DEFAULT = range(1, 6)
BOOLEAN, INT, LONG, LIST = 1, 3, 5, 7
UNKNOWN, INVALID_TOPIC, INVALID_CONFIG, INVALID_REQUEST = 3, 17, 40, 42

TOPIC_CONFIGS: dict[str, tuple[str, int, int, list[tuple[str, str, int]]]] = {
    "cleanup.policy": ("delete", DEFAULT, LIST, [("log.cleanup.policy", "delete", DEFAULT)]),
    "max.message.bytes": ("1048588", DEFAULT, INT, [("message.max.bytes", "1048588", DEFAULT)]),
    "message.timestamp.after.max.ms": (
        "3600000",
        DEFAULT,
        LONG,
        [("log.message.timestamp.after.max.ms", "3600000", DEFAULT)],
    ),
    "retention.bytes": ("-1", DEFAULT, LONG, [("log.retention.bytes", "-1", DEFAULT)]),
}
BROKER_CONFIGS: dict[str, tuple[str, int, int, bool]] = {
    "auto.create.topics.enable": ("false", STATIC, BOOLEAN, True),
    "connection.failed.authentication.delay.ms": ("10", STATIC, INT, True),
    "log.cleanup.policy": ("delete", DEFAULT, LIST, False),
    "log.retention.bytes": ("-1", DEFAULT, LONG, False),
    "log.message.timestamp.after.max.ms": ("3600000", DEFAULT, LONG, False),
    "message.max.bytes": ("1048588", DEFAULT, INT, False),
    "producer.id.expiration.ms": ("86400000", DEFAULT, INT, False),
    "quota.window.num": ("11", DEFAULT, INT, True),
    "quota.window.size.seconds": ("1", STATIC, INT, True),
}
"""Value, source, type, read-only."""


def describe(
    client: RawClient, kind: int, name: str, keys: list[str] | None = None, version: int = 4
) -> tuple[int, dict[str, dict[str, Any]]]:
    """Error code and entries by name."""
    resources = [{"resource_type": kind, "resource_name": name, "configuration_keys": keys}]
    (result,) = client.ask("DescribeConfigs", version, resources=resources, include_synonyms=True)["results"]
    assert (result["resource_type"], result["resource_name"]) == (kind, name)
    return result["error_code"], {config["name"]: config for config in result["configs"]}


def value(client: RawClient, kind: int, name: str, key: str) -> tuple[str | None, int]:
    _, found = describe(client, kind, name, [key])
    return found[key]["value"], found[key]["config_source"]


def altered(
    client: RawClient, kind: int, name: str, *changes: tuple[str, int, str | None], validate: bool = False
) -> dict[str, Any]:
    """The answer to changes of one resource."""
    configs = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in changes]
    resources = [{"resource_type": kind, "resource_name": name, "configs": configs}]
    (answer,) = client.ask("IncrementalAlterConfigs", 1, resources=resources, validate_only=validate)["responses"]
    assert isinstance(answer, dict)
    return answer


def alter(
    client: RawClient, kind: int, name: str, *changes: tuple[str, int, str | None], validate: bool = False
) -> int:
    return int(altered(client, kind, name, *changes, validate=validate)["error_code"])


def synonyms(entry: dict[str, Any]) -> list[tuple[str, str, int]]:
    """Strongest first."""
    return [(one["name"], one["value"], one["source"]) for one in entry["synonyms"]]


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_a_topic_is_described(untouched: str, client: RawClient, version: int) -> None:
    """Values, where they come from, and what is behind them."""
    error, found = describe(client, TOPIC, untouched, list(TOPIC_CONFIGS), version)
    assert (error, found.keys()) == (0, TOPIC_CONFIGS.keys())
    for key, (wanted, source, kind, behind) in TOPIC_CONFIGS.items():
        entry = found[key]
        assert (entry["value"], entry["config_source"]) == (wanted, source), key
        assert (entry["read_only"], entry["is_sensitive"]) == (False, False), key
        assert synonyms(entry) == behind, key
        assert version < 3 or entry["config_type"] == kind, key


def test_a_broker_is_described(client: RawClient) -> None:
    """What it was started with, and what cannot be changed at run time."""
    error, found = describe(client, BROKER, "1", list(BROKER_CONFIGS))
    assert (error, found.keys()) == (0, BROKER_CONFIGS.keys())
    for key, wanted in BROKER_CONFIGS.items():
        entry = found[key]
        assert (entry["value"], entry["config_source"], entry["config_type"], entry["read_only"]) == wanted, key


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        (TOPIC, "nobody-made-it", UNKNOWN),
        (TOPIC, "a b", INVALID_TOPIC),
        (TOPIC, "", INVALID_TOPIC),
        (BROKER, "2", INVALID_REQUEST),
        (BROKER, "x", INVALID_REQUEST),
        (BROKER, "", 0),
        (9, "1", INVALID_REQUEST),
    ],
)
def test_error_codes_of_descriptions(client: RawClient, kind: int, name: str, error: int) -> None:
    """Unknown topics, other brokers, kinds that have no configs."""
    assert describe(client, kind, name)[0] == error


def test_only_what_is_asked_for_is_described(untouched: str, client: RawClient) -> None:
    """Unknown names are left out; an empty list asks for everything, as none does."""
    name = untouched
    assert describe(client, TOPIC, name, ["retention.ms", "no.such"])[1].keys() == {"retention.ms"}
    assert describe(client, TOPIC, name, []) == describe(client, TOPIC, name)


def test_the_nearest_value_wins(client: RawClient, name: str) -> None:
    """Topic before broker before all brokers before the default; each is listed behind the one that wins."""
    broker, key = "message.max.bytes", "max.message.bytes"
    try:
        for kind, where, which, number, source in (
            (BROKER, "", broker, "900001", OF_ALL_BROKERS),
            (BROKER, "1", broker, "900002", OF_BROKER),
            (TOPIC, name, key, "900003", OF_TOPIC),
        ):
            assert alter(client, kind, where, (which, SET, number)) == 0
            expected = (number, source)
            until(lambda expected=expected: value(client, TOPIC, name, key) == expected, f"{number} is known")
        assert synonyms(describe(client, TOPIC, name, [key])[1][key]) == [
            (key, "900003", OF_TOPIC),
            (broker, "900002", OF_BROKER),
            (broker, "900001", OF_ALL_BROKERS),
            (broker, "1048588", DEFAULT),
        ]
        assert value(client, BROKER, "1", broker) == ("900002", OF_BROKER)
        assert describe(client, BROKER, "", [broker])[1][broker]["value"] == "900001"
    finally:
        assert alter(client, BROKER, "", (broker, DELETE, None)) == 0
        assert alter(client, BROKER, "1", (broker, DELETE, None)) == 0
    until(lambda: value(client, BROKER, "1", broker) == ("1048588", DEFAULT), "the broker is as before")
    assert alter(client, TOPIC, name, (key, DELETE, None)) == 0
    until(lambda: value(client, TOPIC, name, key) == ("1048588", DEFAULT), "the topic is as before")


BAD_VALUES = [
    *(("retention.ms", value) for value in ("x", "-2", str(2**63), "")),
    *(("max.message.bytes", value) for value in ("-5", str(2**31))),
    *(("min.insync.replicas", "0"), ("no.such", "1")),
]


@pytest.mark.parametrize(
    ("kind", "name", "changes", "error"),
    [
        (TOPIC, "nobody-made-it", [("retention.ms", SET, "1")], UNKNOWN),
        (TOPIC, "", [("retention.ms", SET, "1")], INVALID_REQUEST),
        *((TOPIC, "t", [(key, SET, value)], INVALID_CONFIG) for key, value in BAD_VALUES),
        (TOPIC, "t", [("no.such", DELETE, None)], 0),
        (TOPIC, "t", [("retention.ms", SET, None)], INVALID_REQUEST),
        (TOPIC, "t", [("retention.ms", APPEND, "5")], INVALID_CONFIG),
        (TOPIC, "t", [("retention.ms", 7, "5")], -1),
        (TOPIC, "t", [("retention.ms", SET, "5"), ("retention.ms", SET, "6")], INVALID_REQUEST),
        (TOPIC, "t", [("retention.ms", SET, "5"), ("no.such", SET, "6")], INVALID_CONFIG),
        (TOPIC, "t", [("retention.ms", SET, "5")], 0),
        (TOPIC, "t", [], 0),
        *((BROKER, name, [("message.max.bytes", SET, "9")], INVALID_REQUEST) for name in ("2", "x")),
        (BROKER, "1", [("no.such", SET, "9")], 0),
        (BROKER, "1", [("auto.create.topics.enable", SET, "false")], INVALID_REQUEST),
        *((BROKER, "1", [("message.max.bytes", SET, value)], INVALID_REQUEST) for value in ("x", "-5")),
        (BROKER, "1", [("producer.id.expiration.ms", SET, "0")], INVALID_REQUEST),
        (9, "t", [("a", SET, "b")], INVALID_REQUEST),
    ],
)
def test_error_codes_of_changes(
    untouched: str, client: RawClient, kind: int, name: str, changes: list[tuple[str, int, str | None]], error: int
) -> None:
    """Each is tried as a rehearsal, which changes nothing."""
    name = untouched if name == "t" else name
    assert alter(client, kind, name, *changes, validate=True) == error
    if name != "nobody-made-it" and kind == TOPIC and name:
        assert value(client, TOPIC, name, "retention.ms") == ("604800000", DEFAULT)


def test_a_resource_named_twice_is_refused_twice(client: RawClient, name: str) -> None:
    configs = [{"name": "retention.ms", "config_operation": SET, "value": "9"}]
    twice = [{"resource_type": TOPIC, "resource_name": name, "configs": configs}] * 2
    answers = client.ask("IncrementalAlterConfigs", 0, resources=twice)["responses"]
    assert {answer["error_code"] for answer in answers} == {INVALID_REQUEST}
