"""The options of `safeproducer.spark.guarantee=exactly_once`, and the names at the brokers that follow from them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from safeproducer.spark.java_settings import INT, number_of, refused

SINK_PREFIX = "safeproducer.spark."
GUARANTEE = f"{SINK_PREFIX}guarantee"
SINK_ID = f"{SINK_PREFIX}sink.id"
SLOTS = f"{SINK_PREFIX}slots"
MARKER_TOPIC = f"{SINK_PREFIX}marker.topic"
TRANSACTION_TIMEOUT = f"{SINK_PREFIX}transaction.timeout"
ADOPT_FROM = f"{SINK_PREFIX}adopt.from"
AT_LEAST_ONCE, EXACTLY_ONCE = "at_least_once", "exactly_once"
_MARKERS = "safeproducer-markers"
ONCE_OPTIONS = {
    GUARANTEE: AT_LEAST_ONCE,
    SINK_ID: "none",
    SLOTS: "none",
    MARKER_TOPIC: _MARKERS,
    TRANSACTION_TIMEOUT: "the deadline",
    ADOPT_FROM: "none",
}
"""Option -> its default as text."""
_AGAINST = {
    f"{SINK_PREFIX}bad.rows": "a row that brokers refuse ends its transaction",
    f"{SINK_PREFIX}max.writers": f"{SLOTS} says how many tasks write",
}
DENIED = "TOPIC_AUTHORIZATION_FAILED"
_RIGHTS = {
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "Write --transactional-id '{0.sink_id}-' ",
    "GROUP_AUTHORIZATION_FAILED": "Read --group '{0.sink_id}-' ",
    DENIED: "Read --topic '{0.marker_topic}'",
}
FENCED = frozenset({"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"})
"""Codes of a transactional.id that another one has taken over."""
_MOST_SLOTS = 1_000
_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")
_NEEDS = "an exactly-once sink needs"


@dataclass(frozen=True, slots=True)
class ExactlyOnce:
    """The options. `transaction_timeout`: seconds. `adopt_from`: the micro-batch at which it takes over."""

    sink_id: str
    slots: int
    marker_topic: str
    transaction_timeout: int
    adopt_from: int | None = None

    @property
    def group(self) -> str:
        """The consumer group whose offsets are the markers of the slots. It holds their number: no markers mix."""
        return f"{self.sink_id}-{self.slots}"

    @property
    def claim(self) -> str:
        """The group whose one offset says how many slots there are, and the transactional.id that commits it. It ends
        in no number: no sink has it for its slots."""
        return f"{self.sink_id}-slots"

    def settings(self, slot: int | str) -> dict[str, str]:
        """Settings of librdkafka, for the producer of this slot."""
        return {
            "transactional.id": f"{self.sink_id}-{slot}",
            "transaction.timeout.ms": str(self.transaction_timeout * 1000),
            # Else half of them ask for their coordinator over the connection that the first answer ends, and again
            # after 500 ms.
            "enable.sparse.connections": "false",
        }


def exactly_once(options: Mapping[str, str], weak: Sequence[str], deadline: float) -> ExactlyOnce | None:
    """None for at least once. Raises ConfigurationError.

    `weak`: settings with which a producer is not idempotent. `deadline`: of a row, in seconds.
    """
    text = options.get(GUARANTEE, AT_LEAST_ONCE).strip().lower()
    if text not in (AT_LEAST_ONCE, EXACTLY_ONCE):
        problem = f"it must be {AT_LEAST_ONCE} or {EXACTLY_ONCE}"
        raise refused(GUARANTEE, options[GUARANTEE], problem, "Correct it")
    if text == AT_LEAST_ONCE:
        for name in ONCE_OPTIONS:
            if name in options and name != GUARANTEE:
                problem = f"it counts with {GUARANTEE}={EXACTLY_ONCE} alone"
                raise refused(name, options[name], problem, f"Set {GUARANTEE}, or leave it out")
        return None
    for name, why in _AGAINST.items():
        if options.get(name, "fail").strip().lower() != "fail":  # which is the default for bad rows
            raise refused(name, options[name], f"{GUARANTEE} is {EXACTLY_ONCE}, and {why}", "Leave one of the two out")
    if weak:
        problem = f"{_NEEDS} idempotence, which kafka.{weak[0]} switches off"
        raise refused(GUARANTEE, text, problem, f"Leave kafka.{weak[0]} out")
    for name, way_out in ((SINK_ID, "a name that no other query has"), (SLOTS, "how many tasks write, as in 4")):
        if not options.get(name, "").strip():
            raise refused(name, options.get(name, ""), f"it is not set, and {_NEEDS} it", f"Give {way_out}")
    seconds = ceil(deadline)
    return ExactlyOnce(
        _name(options, SINK_ID, ""),
        number_of(options, SLOTS, 1, _MOST_SLOTS, "Correct it"),
        _name(options, MARKER_TOPIC, _MARKERS),
        number_of(options, TRANSACTION_TIMEOUT, seconds, INT // 1000, f"Correct it: {SINK_PREFIX}deadline counts, too")
        if TRANSACTION_TIMEOUT in options
        else seconds,
        number_of(options, ADOPT_FROM, 0, INT, "Correct it") if ADOPT_FROM in options else None,
    )


def _name(options: Mapping[str, str], option: str, default: str) -> str:
    text = options.get(option, default).strip()
    if not _NAME.fullmatch(text):
        problem = "it must have 1 to 200 letters, digits, '.', '_' and '-'"
        raise refused(option, options.get(option, ""), problem, "Correct it")
    return text


def explained(code: str, text: str, sink: ExactlyOnce, topic: str | None = None) -> str:
    """Why brokers refused; of a right that is missing also the command that grants it. `topic`: for rows."""
    text, right = text.rstrip("."), _RIGHTS.get(code) if topic is None else f"Write --topic '{topic}'"
    if code == "INVALID_TRANSACTION_TIMEOUT":
        limit = f"{TRANSACTION_TIMEOUT}={sink.transaction_timeout:g} is above the brokers' transaction.max.timeout.ms"
        return f"{text}: {limit}. Make it shorter"
    if right is None:
        return text
    prefixed = "--resource-pattern-type prefixed" * right.endswith(" ")
    command = "kafka-acls.sh --bootstrap-server HOST:PORT --add --allow-principal User:NAME --operation Describe"
    return f"{text}. Grant it: {command} --operation {right.format(sink)}{prefixed}"
