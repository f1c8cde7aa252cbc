"""Facts about topics that rows need: whether they are there, their partitions, the largest batch."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from safeproducer import SafeProducer
from safeproducer.kafka.admin import ClusterReader
from safeproducer.kafka.native import KafkaError, KafkaException
from safeproducer.kafka.positions import SILENT
from safeproducer.runtime import clock
from safeproducer.spark.errors import UNREACHABLE
from safeproducer.spark.row_check import TopicFacts

ANSWER_WITHIN = 15.0
"""Seconds for a first answer of any broker. With the limits, and what a busy machine adds, a task ends within 30."""
LIMITS_WITHIN = 5.0
"""Seconds for the topics' limits; then they count as unknown, as without the right to read them."""
LOGIN_LASTS = 3.0
"""Seconds for which brokers may refuse a login; then the attempt ends, as repeated logins may lock the account."""
_FEW_LOGINS = {"reconnect.backoff.ms": 2_000, "reconnect.backoff.max.ms": 2_000, "metadata.recovery.strategy": "none"}
"""With it a client tries twice at a broker within that time: one may hear of a new password a moment later."""
APPEARS_WITHIN = 10.0
"""Seconds for a topic that is not there: it may have been made a moment ago, or brokers make it when they are asked."""
_AGAIN_AFTER = 0.2
_FEW = 5
"""Topics up to which each is asked for by itself."""
_SILENCE = frozenset({"_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN", "_AUTHENTICATION"})
_NO_MORE_PATIENCE = frozenset(
    {KafkaError.TOPIC_EXCEPTION, KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}
)
_UNKNOWN = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)


class TaskEndedError(Exception):
    """The task cannot go on, whatever its rows are. `code`: as in Failure.codes; `reason`: a sentence."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason


def unreachable(producer: SafeProducer, seconds: float) -> TaskEndedError:
    """No broker has answered for so long."""
    producer.poll(0)  # the error of the last connection waits for being served
    account = producer.snapshot()
    last = f"; the last error: {account.last_error.rstrip('.')}" if account.last_error else ""
    told = f"no broker of {account.bootstrap_servers} answered {socket.gethostname()} within {seconds:.0f} s"
    return TaskEndedError(UNREACHABLE, f"{told}{last}")


def login_refused(told: str) -> TaskEndedError:
    """Brokers refused the login; `told`: librdkafka's words."""
    cause = KafkaError(KafkaError._AUTHENTICATION).name()
    return TaskEndedError(cause, f"brokers refuse the login of {socket.gethostname()}: {told.rstrip('.')}")


def partition_counts(
    producer: SafeProducer, names: Sequence[str], *, appears_within: float, answer_within: float
) -> tuple[dict[str, int], dict[str, KafkaError]]:
    """Topic -> its number of partitions, of each of these, and why not of others. Raises TaskEndedError.

    A topic that is not there is waited for, `appears_within` seconds, and made where brokers make topics by themselves.
    No broker takes longer than `answer_within` seconds, or all count as unreachable.
    """
    until = clock.monotonic() + appears_within
    found = _listed(producer, None, names, answer_within, {}) if len(names) > _FEW else {}
    absent: dict[str, KafkaError] = {}
    while left := [name for name in names if name not in found and name not in absent]:
        codes: dict[str, KafkaError] = {}
        for name in left:
            found.update(_listed(producer, name, [name], answer_within, codes))
            if codes and clock.monotonic() >= until:  # of hundreds of topics each takes its time
                codes = {name: codes.get(name) or _UNKNOWN for name in left if name not in found}
                break
        is_late = clock.monotonic() >= until
        absent |= {name: error for name, error in codes.items() if is_late or error.code() in _NO_MORE_PATIENCE}
        if codes and not is_late:
            clock.sleep(_AGAIN_AFTER)
    return {name: found[name] for name in names if name in found}, absent


def not_usable(producer: SafeProducer, name: str, error: KafkaError) -> TaskEndedError:
    """The topic is not there, or not for this user."""
    who = f"as {producer.snapshot().bootstrap_servers} told {socket.gethostname()}"
    return TaskEndedError(error.name(), f"topic {name!r} cannot be used: {error.str().rstrip('.')}, {who}")


def _listed(
    producer: SafeProducer, asked: str | None, names: Iterable[str], within: float, codes: dict[str, KafkaError]
) -> dict[str, int]:
    """The topics of `names` that are there; why not, of the others, goes to `codes`."""
    try:
        topics: Mapping[str, Any] = producer.list_topics(asked, timeout=within).topics
    except KafkaException as error:
        if error.args[0].fatal():
            raise
        raise unreachable(producer, within) from None
    found = {}
    for name in names:
        topic = topics.get(name)
        if topic is not None and topic.error is None and topic.partitions:
            found[name] = len(topic.partitions)
        else:
            codes[name] = _UNKNOWN if topic is None or topic.error is None else topic.error
    return found


def limits_of(values: Mapping[str, str | None]) -> TopicFacts:
    """A topic's limits by its configs. Those of timestamps count where brokers do not put their own."""
    own = values.get("message.timestamp.type") == "CreateTime"
    before, after = (_number(values.get(f"message.timestamp.{side}.max.ms")) for side in ("before", "after"))
    compacted = "compact" in (values.get("cleanup.policy") or "").split(",")
    max_bytes = _number(values.get("max.message.bytes"))
    return TopicFacts(0, max_bytes, before if own else None, after if own else None, compacted)


def _number(text: str | None) -> int | None:
    """None, too, for Kafka's largest number, which is no limit."""
    return int(text) if text is not None and text.isdigit() and int(text) < 2**62 else None


def read_limits(config: Mapping[str, Any], names: Sequence[str]) -> dict[str, TopicFacts]:
    """Topic -> its limits, of those that can be read. Raises TaskEndedError for a login that brokers refuse,
    and nothing for other answers."""
    refused: list[str] = []
    few = _FEW_LOGINS if "sasl.mechanism" in config else {}

    def note(error: KafkaError) -> None:
        if error.code() == KafkaError._AUTHENTICATION:
            refused.append(error.str())

    try:
        reader = ClusterReader({**config, **few, "log_level": 0}, error_cb=note, logger=SILENT)
    except (KafkaException, TypeError, ValueError):
        return {}  # the producer's own constructor says what is wrong
    answers = reader.topic_configs(names, min(LOGIN_LASTS, LIMITS_WITHIN))
    reader.poll(0)
    silent = not any(one.values or (one.error and one.error[0] not in _SILENCE) for one in answers.values())
    if silent and refused:
        raise login_refused(refused[-1])
    if silent and LIMITS_WITHIN > LOGIN_LASTS:
        answers = reader.topic_configs(names, LIMITS_WITHIN - LOGIN_LASTS)
    return {name: limits_of(configs.values) for name, configs in answers.items() if configs.values}


def facts(counts: Mapping[str, int], limits: Mapping[str, TopicFacts], compressed: bool) -> dict[str, TopicFacts]:
    """Counts and limits together. The size of a compressed batch is not known before it is made."""
    known = {name: replace(limits.get(name, TopicFacts(0)), partitions=count) for name, count in counts.items()}
    return {name: replace(one, max_bytes=None) for name, one in known.items()} if compressed else known
