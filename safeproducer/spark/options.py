"""The options of sink and data source, one flat mapping: `topic`, `kafka.*`, `safeproducer.*`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from math import ceil
from typing import Any

from safeproducer.errors import ConfigurationError
from safeproducer.kafka.properties import HIDDEN, PRODUCER_PROPERTIES, canonical, suggestions
from safeproducer.settings import id_settings, own_settings
from safeproducer.settings.own_settings import MAX_BLOCK_MS, OWN_PREFIX, OWN_SETTINGS
from safeproducer.spark import java_settings as java
from safeproducer.spark import security
from safeproducer.spark.guarantee import ONCE_OPTIONS, SINK_PREFIX, ExactlyOnce, exactly_once
from safeproducer.spark.java_settings import INT, KAFKA_PREFIX, kafka_refused, number_of, refused, whole_number

TOPIC = "topic"
DEADLINE = f"{SINK_PREFIX}deadline"
MAX_WRITERS = f"{SINK_PREFIX}max.writers"
IDLE_MS = f"{SINK_PREFIX}idle.ms"
ON_BATCH = f"{SINK_PREFIX}on.batch"
ON_WORKER = f"{SINK_PREFIX}on.worker"
BAD_ROWS = f"{SINK_PREFIX}bad.rows"
BAD_ROWS_TOPIC = f"{BAD_ROWS}.topic"
BAD_ROWS_MAX = f"{BAD_ROWS}.max"
ROW_ID = f"{SINK_PREFIX}row.id"
SINK_OPTIONS = {
    TOPIC: "none",
    DEADLINE: "60",
    MAX_WRITERS: "none",
    IDLE_MS: "600 000",
    ON_BATCH: "none",
    ON_WORKER: "none",
    BAD_ROWS: "fail",
    BAD_ROWS_TOPIC: "none",
    BAD_ROWS_MAX: "1%",
    ROW_ID: "none",
    **ONCE_OPTIONS,
}
"""Option -> its default as text. docs/reference/spark-options.md says what each does."""

OF_SPARK = ("checkpointlocation", "queryname")
"""Options that Spark reads itself and passes on to a data source, too."""

DEFAULT_DEADLINE = 60.0
DEFAULT_IDLE_MS = 600_000
_LINGER_MS = 20
_DEFAULTS = {
    "partitioner": java.JAVAS_PARTITIONER,  # or rows of a key change their partition with the sink
    "message.max.bytes": "1048576",  # Java's: librdkafka's is smaller, and would refuse rows that Spark's sink takes
}


FAIL = "fail"
POSITION, COLUMN = "position", "column:"
_ALWAYS = 100
_OF_CONSUMERS = re.compile(
    r"(allow|auto|check|default|exclude|fetch|group|heartbeat|isolation|session)\.|.*(assignment|auto\.commit|deserializer|fetch|poll)"
)
"""Names of Java's settings of a consumer, which no producer has, begin so."""


@dataclass(frozen=True, slots=True)
class BadRows:
    """Says what becomes of bad rows. `most`: how many a micro-batch may have, as a number, or a task, as a share of its
    rows (Decimal). `always`: so many a task may have whatever the share is; none if that is 0."""

    mode: str = FAIL
    topic: str | None = None
    most: Decimal | int = Decimal("0.01")
    always: int = _ALWAYS

    @property
    def is_number(self) -> bool:
        """Whether it is one for the whole micro-batch."""
        return isinstance(self.most, int)

    def allowed(self, rows: int) -> int:
        """How many of so many rows may be bad by this alone. A share is rounded up."""
        return self.most if isinstance(self.most, int) else ceil(rows * self.most)

    @property
    def floor(self) -> int:
        """How many rows of a task may be bad however few it has."""
        return 0 if self.is_number or not self.most else self.always

    def __str__(self) -> str:
        return str(self.most) if isinstance(self.most, int) else f"{self.most:%}"


FAILING = BadRows()


@dataclass(frozen=True)
class Options:
    """Checked options. They can be pickled; the repr shows no secret.

    `config`: settings of librdkafka and `safeproducer.*`, without secrets. `secrets`: setting -> place, see
    resolve_secrets(). `deadline`: seconds that a task waits for its reports. `idle_ms`: how long a producer that no
    task uses is kept. `on_batch`: package.module:function, which gets each report. `on_worker`: one that each Python
    worker calls once. `bad_rows`: what becomes of them. `row_id`: POSITION, or COLUMN and its name. `exactly_once`:
    None for at least once. `notes`: sentences to tell once, on the driver.
    """

    topic: str | None
    config: dict[str, str]
    secrets: dict[str, str] = field(default_factory=dict)
    deadline: float = DEFAULT_DEADLINE
    max_writers: int | None = None
    idle_ms: int = DEFAULT_IDLE_MS
    on_batch: str | None = None
    on_worker: str | None = None
    bad_rows: BadRows = FAILING
    row_id: str | None = None
    exactly_once: ExactlyOnce | None = None
    notes: tuple[str, ...] = ()

    @property
    def id_column(self) -> str | None:
        """The column that has the id of each row."""
        return None if self.row_id in (None, POSITION) else str(self.row_id).removeprefix(COLUMN)

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Options:
        """From what a user gave; names in any case, as Spark takes them. Raises ConfigurationError, with one sentence.

        No broker is asked, and no secret read. No frame of the traceback knows one: Spark may be told to show locals.
        """
        try:
            return cls._parsed(given)
        except ConfigurationError as error:
            refusal = error.with_traceback(None)
        del given
        raise refusal

    @classmethod
    def _parsed(cls, given: Mapping[str, Any]) -> Options:
        options = _texts(given)
        _refuse_unknown(options)
        kafka = {
            name.removeprefix(KAFKA_PREFIX): text for name, text in options.items() if name.startswith(KAFKA_PREFIX)
        }
        config, notes = _translated(kafka)
        safe, weak = security.translate(kafka), weak_settings(config)
        own = {name: text for name, text in options.items() if name in OWN_SETTINGS}
        deadline = _deadline(options, kafka)
        once = exactly_once(options, weak, deadline)
        if MAX_BLOCK_MS in own and config.get(MAX_BLOCK_MS, own[MAX_BLOCK_MS]) != own[MAX_BLOCK_MS]:
            problem = f"kafka.max.block.ms says {config[MAX_BLOCK_MS]}, and means the same"
            raise refused(MAX_BLOCK_MS, own[MAX_BLOCK_MS], problem, "Leave one of the two out")
        # The producer will check the same, and what only an executor knows: whether a directory can be used there.
        id_settings.take({**config, **own}, False, lambda _directory: None, {})
        own_settings.take({**config, **own}, {}).refuse_contradictions(not weak, once is not None)
        times = _times(kafka, deadline)
        _refuse_contradictions(kafka, weak, int(times["delivery.timeout.ms"]))
        if weak:
            told = ", ".join(f"{KAFKA_PREFIX}{name}={config[name]}" for name in weak)
            notes.append(f"{told}: retries may write rows twice, and no report can tell (maybe_twice=None)")
        return cls(
            topic=_topic(options),
            config={**_DEFAULTS, **times, **config, **safe.config, **own},
            secrets=safe.secrets,
            deadline=deadline,
            max_writers=_number(options, MAX_WRITERS, 1) if MAX_WRITERS in options else None,
            idle_ms=_number(options, IDLE_MS, 0) if IDLE_MS in options else DEFAULT_IDLE_MS,
            on_batch=options.get(ON_BATCH),
            on_worker=options.get(ON_WORKER),
            bad_rows=_bad_rows(options),
            row_id=_row_id(options),
            exactly_once=once,
            notes=(*notes, *safe.notes),
        )

    def resolve_secrets(self) -> dict[str, Any]:
        """Settings of librdkafka, read at their places now, in this process, and `oauth_cb` where a function gives
        tokens. Raises ConfigurationError, as parse()."""
        try:
            return security.resolved(self.config, self.secrets)
        except ConfigurationError as error:
            refusal = error.with_traceback(None)
        raise refusal


def _texts(given: Mapping[str, Any]) -> dict[str, str]:
    options: dict[str, str] = {}
    for name, value in given.items():
        if value is None:
            continue
        if not isinstance(value, str | bool | int | float):
            problem = f"it must be text, a number or a truth value, not {type(value).__name__}"
            raise refused(str(name), type(value).__name__, problem, "Correct it, or leave it out")
        option = str(name).lower()
        if f"{name}{value}".encode(errors="ignore").decode() != f"{name}{value}":
            problem = "it holds a character that is no UTF-8"
            raise refused(ascii(option), HIDDEN, problem, "Correct the text it came from")
        if option in options:
            raise refused(option, str(value), "it is given twice", "Leave one of the two out; case does not count")
        options[option] = str(value).lower() if isinstance(value, bool) else str(value)
    return {name: text for name, text in options.items() if name not in OF_SPARK}


def _refuse_unknown(options: Mapping[str, str]) -> None:
    for option, text in options.items():
        if option in SINK_OPTIONS or option in OWN_SETTINGS:
            continue
        name = option.removeprefix(KAFKA_PREFIX)
        if option == name:
            raise refused(option, text, "there is no such option", _similar_option(option))
        if name in java.REFUSED:
            if text.strip():
                raise kafka_refused(name, text, java.REFUSED[name].why, java.REFUSED[name].way_out)
        elif name not in java.TRANSLATED and name not in java.WITHOUT_EFFECT:
            raise kafka_refused(name, text, "Java's producer has no such setting", _javas_name(name))


def _similar_option(option: str) -> str:
    if option == "path":  # of save(), start() and toTable()
        return f"Give the topic as option {TOPIC!r}, and call save() and start() without one"
    if option in java.TRANSLATED or option in java.WITHOUT_EFFECT or option in java.REFUSED:
        return f"Did you mean {KAFKA_PREFIX}{option}?"
    if similar := suggestions(option, (*SINK_OPTIONS, *OWN_SETTINGS)):
        return f"Did you mean {' or '.join(similar)}?"
    return f"Remove it; options of this sink are {TOPIC}, {KAFKA_PREFIX}* with Java's names, and {OWN_PREFIX}*"


def _javas_name(name: str) -> str:
    """The way out for a name that Java has not: librdkafka's are told by what becomes of Java's."""
    if meant := [each for each, it in java.TRANSLATED.items() if canonical(name) in map(canonical, it.becomes)]:
        return f"Java's name is {' or '.join(KAFKA_PREFIX + each for each in meant)}"
    if name in PRODUCER_PROPERTIES:
        return "It is a setting of librdkafka without a counterpart in Java: remove it"
    if _OF_CONSUMERS.match(name):
        return "It is a consumer's setting, of a stream that reads: remove it here"
    if similar := suggestions(name, (*java.TRANSLATED, *java.WITHOUT_EFFECT, *java.REFUSED)):
        return f"Did you mean {' or '.join(KAFKA_PREFIX + each for each in similar)}?"
    return "Remove it; the documents list all settings"


def _translated(kafka: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    if not kafka.get("bootstrap.servers", "").strip():
        raise refused("kafka.bootstrap.servers", "", "it is not set", "Give the brokers, as in host:9092,host2:9092")
    config: dict[str, str] = {}
    for name in kafka:
        config |= java.TRANSLATED[name].settings(kafka, name) if name in java.TRANSLATED else {}
    without = {name: java.WITHOUT_EFFECT[name] for name in sorted(kafka) if name in java.WITHOUT_EFFECT}
    told = ", ".join(f"{KAFKA_PREFIX}{name} ({why})" for name, why in without.items())
    notes = [f"without effect here: {told}"] if told else []
    if config.get("acks") == "0":
        notes.append("kafka.acks=0: a row counts as delivered when it was sent, whatever becomes of it")
    return config, notes


def weak_settings(config: Mapping[str, str]) -> list[str]:
    """The settings with which a producer is not idempotent."""
    found = {
        "acks": config.get("acks", "all") != "all",
        "enable.idempotence": config.get("enable.idempotence") == "false",
        "max.in.flight.requests.per.connection": int(config.get("max.in.flight.requests.per.connection", 1)) > 5,
        "retries": config.get("retries") == "0",
    }
    return [name for name, is_weak in found.items() if is_weak]


def _refuse_contradictions(kafka: Mapping[str, str], weak: list[str], timeout: int) -> None:
    if weak and kafka.get("enable.idempotence", "").strip().lower() == "true":
        problem = "kafka.enable.idempotence=true needs acks=all, retries, and at most 5 requests in flight"
        raise kafka_refused(weak[0], kafka[weak[0]], problem, "Leave one of the two out")
    if int(kafka.get("linger.ms", 0)) >= timeout:
        problem = f"no row would be sent before it fails, after {timeout} ms"
        raise kafka_refused("linger.ms", kafka["linger.ms"], problem, "Make it shorter than delivery.timeout.ms")


def _times(kafka: Mapping[str, str], deadline: float) -> dict[str, str]:
    """The time-out of a row, and linger in place of librdkafka's 5 ms: small batches cost brokers most, and a task
    waits for its last reports anyway."""
    timeout = int(kafka.get("delivery.timeout.ms", round(deadline * 1000)))
    linger = {"linger.ms": str(_LINGER_MS)} if timeout > 2 * _LINGER_MS else {}
    return {"delivery.timeout.ms": str(timeout), **linger}


def _deadline(options: Mapping[str, str], kafka: Mapping[str, str]) -> float:
    timeout = int(kafka["delivery.timeout.ms"]) / 1000 if "delivery.timeout.ms" in kafka else 0.0
    if DEADLINE not in options:
        return max(DEFAULT_DEADLINE, timeout)
    text = options[DEADLINE]
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.001 <= seconds <= INT / 1000:
        way_out = f"Give as long as a row may take, or leave it out for {DEFAULT_DEADLINE:g}"
        raise refused(DEADLINE, text, "it must be a number of seconds above 0", way_out)
    if timeout > seconds:
        problem = f"kafka.delivery.timeout.ms={kafka['delivery.timeout.ms']} lets a row take longer than its task waits"
        raise refused(DEADLINE, text, problem, "Make the time-out shorter or the deadline longer")
    return seconds


def _topic(options: Mapping[str, str]) -> str | None:
    if TOPIC in options and not options[TOPIC].strip():
        raise refused(TOPIC, options[TOPIC], "it is empty", "Name a topic, or leave it out and have a column 'topic'")
    return options.get(TOPIC)


def _bad_rows(options: Mapping[str, str]) -> BadRows:
    mode, topic = options.get(BAD_ROWS, FAIL).strip().lower(), options.get(BAD_ROWS_TOPIC, "").strip() or None
    if mode not in (FAIL, "topic", "skip"):
        raise refused(BAD_ROWS, mode, "it must be one of fail, topic, skip", "Correct it")
    if (topic is None) == (mode == "topic"):
        raise refused(BAD_ROWS_TOPIC, topic or "", f"{BAD_ROWS} is {mode}", "Give it together with topic, or neither")
    if mode == FAIL and BAD_ROWS_MAX in options:
        problem = f"{BAD_ROWS} is {FAIL}, and the first bad row fails its task"
        raise refused(BAD_ROWS_MAX, options[BAD_ROWS_MAX], problem, f"Leave it out, or set {BAD_ROWS} to topic or skip")
    if topic is not None and topic == options.get(TOPIC):
        raise refused(BAD_ROWS_TOPIC, topic, "the good rows go there", "Name another topic for the bad ones")
    text = options.get(BAD_ROWS_MAX, "1%").strip()
    most, comma, floor = (part.strip() for part in text.partition(","))
    is_share = most.endswith("%")
    try:
        number = Decimal(most.removesuffix("%").strip())
        always = whole_number(floor, 0, INT) if comma and is_share else None if comma else _ALWAYS
        fits = 0 <= number <= (100 if is_share else INT) and (is_share or number == int(number))
        if fits and always is not None:
            return BadRows(mode, topic, number / 100 if is_share else int(number), always)
    except InvalidOperation:  # no number, or NaN
        pass
    way_out = "Correct it, as in 100 or 1%, or 1%, 20 for that share and 20 rows of a task always"
    raise refused(BAD_ROWS_MAX, text, "it must be a number of rows or a share of them", way_out)


def _row_id(options: Mapping[str, str]) -> str | None:
    text = options.get(ROW_ID, "").strip()
    if ROW_ID in options and text != POSITION and not (text.startswith(COLUMN) and text != COLUMN):
        raise refused(ROW_ID, text, "it must be position, or column:NAME", "Correct it, or leave it out")
    return text or None


def _number(options: Mapping[str, str], option: str, least: int) -> int:
    way_out = f"Correct it, or leave it out for the default: {SINK_OPTIONS[option]}"
    return number_of(options, option, least, INT, way_out)
