"""Value types that travel between the producer, its hooks and its policies."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any, NamedTuple

HeaderValue = str | bytes | None

_PACKAGES = (__name__.removesuffix("records"), "confluent_kafka.", "ddtrace.", "opentelemetry.")
"""None of their lines made a producer: an application called them."""
_MOST_NAMES = 100
_new = tuple.__new__  # a third of the time of the class's own


class Value:
    """Is equal, and shown, by the fields of a dataclass: one that makes these methods takes twice as long to load."""

    __slots__ = ()
    __match_args__: tuple[str, ...]

    def _fields(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self.__match_args__)

    def __eq__(self, other: object) -> bool:
        return self._fields() == other._fields() if isinstance(other, type(self)) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._fields())

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
        return f"{type(self).__qualname__}({shown})"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CallSite(Value):
    """A line of the application's code: `filename`, number of the `line`, name of the `function` around it."""

    filename: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.filename}:{self.line} in {self.function}"


def call_site() -> CallSite:
    """The line of the application's code that is running this package."""
    frame = sys._getframe(1)
    # By the names of modules: bytecode that was compiled elsewhere, or frozen, has other file names.
    while frame.f_back is not None and f"{frame.f_globals.get('__name__')}.".startswith(_PACKAGES):
        frame = frame.f_back
    return CallSite(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ProducerInfo(Value):
    """The producer of an event: the same for every event of one producer. Holds no secret.

    `client_id`, `bootstrap_servers` and `transactional_id` are its settings, `principal` is the user that it logs in
    as, `idempotent` whether brokers recognise its retries, and `site` the line that made it.
    """

    client_id: str
    bootstrap_servers: str
    principal: str
    transactional_id: str | None
    idempotent: bool
    site: CallSite


@dataclass(slots=True, eq=False)
class Record:
    """A record as hooks see it, from produce() to its end. Made only when a hook asks for records.

    `topic`, `value`, `key` and `timestamp` (0: now) are what produce() of the `producer` got. `partition` is the one
    asked for, -1 when librdkafka chooses. `headers` is a copy: what a hook adds never reaches the caller's own list.
    `headers_changed`: whether a hook added one. `state` is for hooks: a place to keep what belongs to this record,
    keyed by the hook itself. `hold`: why it was held longest (a HoldReason), and for how many seconds in all; None
    while it has not been.
    """

    producer: ProducerInfo
    topic: str
    value: Any
    key: Any
    partition: int
    timestamp: int
    headers: list[tuple[str, HeaderValue]]
    state: dict[object, Any] = field(default_factory=dict)
    headers_changed: bool = False
    hold: tuple[str, float] | None = None

    def add_header(self, name: str, value: HeaderValue) -> None:
        """Append a header, `name` and `value`, to what will be sent with this record."""
        self.headers.append((name, value))
        self.headers_changed = True

    @staticmethod
    def copied_headers(headers: dict[str, HeaderValue] | list[tuple[str, HeaderValue]] | None) -> list[Any]:
        """A new list of (name, value) pairs."""
        return list(headers.items()) if isinstance(headers, dict) else list(headers or ())


def refuse_names(headers: Any) -> None:
    """Raise UnicodeEncodeError for a header name that cannot be UTF-8, where the C client would crash (2.16.1), and
    ValueError for one with a NUL character, where it would cut the name off.

    Says nothing about headers of a wrong form: the native call refuses those.
    """
    for header in headers if isinstance(headers, (dict, list)) else ():
        name = header[0] if isinstance(header, tuple) and header else header
        if isinstance(name, str) and b"\0" in str.encode(name):  # not a subclass's own method
            raise ValueError(f"a header's name holds a NUL character, where the client would cut it off: {name!r}")


def checked_names(headers: Any, known: frozenset[str]) -> frozenset[str]:
    """Refuse names as refuse_names(); the `known` ones, with these while they are few, for are_known()."""
    refuse_names(headers)
    if len(known) >= _MOST_NAMES or type(headers) is not list:
        return known
    return known | {pair[0] for pair in headers if type(pair) is tuple and pair and type(pair[0]) is str}


def are_known(headers: Any, names: frozenset[str]) -> bool:
    """Whether `headers` is a list with no other names than those: none of them needs a look."""
    if type(headers) is not list:
        return False
    for header in headers:
        if type(header) is not tuple or not header or type(name := header[0]) is not str or name not in names:
            return False
    return True


class DeliveredRecord(NamedTuple):
    """Where a record is: `topic`, `partition` and `offset`, which is None where brokers do not tell it (acks=0).

    `timestamp` in ms since the Unix epoch, as it is in the log; `latency`: seconds from the acceptance of the record to
    its acknowledgement.
    """

    topic: str
    partition: int
    offset: int | None
    timestamp: int
    latency: float


DeliveredRecord.__module__ = "safeproducer.aio"


def delivered(message: Any) -> DeliveredRecord:
    """The record in a report, of its Message; it was delivered."""
    return _new(
        DeliveredRecord,
        (message.topic(), message.partition(), message.offset(), message.timestamp()[1], message.latency()),
    )
