"""KIP-854: for how long the leaders of a producer's partitions remember its ID, and what that rules out.

A leader forgets a producer ID `producer.id.expiration.ms` after the newest record timestamp of its last batch. Idling
loses nothing: the next batch is taken as a new beginning. A *retry* that arrives later does: the leader does not know
that it has the batch already, and appends it once more, without an error. Therefore less than that time may pass from
the first attempt to the last one, by a margin. The *horizon* is the smallest such time of all leaders in use. A leader
looks now and then only (`producer.id.expiration.check.interval.ms`), which adds time and never takes any away: it is
not counted. Times are seconds, unless a name says otherwise.

A record's time T (`message.timeout.ms`, `delivery.timeout.ms`) counts from produce(). This library keeps it; librdkafka
must not, because an expiry inside librdkafka raises the epoch of the whole producer and writes batches of other
partitions twice whose acknowledgements were lost. Each lane therefore gets a *backstop* as its `message.timeout.ms`:
late enough that a lost acknowledgement is noticed (`socket.timeout.ms`), retried and noticed again before it, and a
lane that comes near it is purged. T = 0 means no limit, as in librdkafka.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from safeproducer.policy.types import NEVER

LONGEST_TIMEOUT = 2_147_483.647  # librdkafka's maximum of `message.timeout.ms`, almost 25 days
BACKSTOP_MARGIN = 10.0
"""Seconds to purge a stalled lane in. librdkafka looks for expired records once a second, and the machine may be
busy."""
DAY = 86_400.0  # Kafka's default of producer.id.expiration.ms, and what is assumed of brokers that do not tell
WEEK = 7 * DAY  # the same of transactional.id.expiration.ms
MARGIN = 10.0  # for a request on its way, and clocks that differ: the leader compares its own with timestamps
_MOST_MARGIN = 0.25  # share of the horizon: a short one leaves no more
LEAST_LIMIT = 2.0  # ages of direct records are known to half a second: a shorter limit would purge what is healthy
_LEAST_HORIZON = 60.0  # seconds: brokers are not asked before, and none that is in use remembers a producer for less
_FIRST_ATTEMPT = 0.25  # share of the limit that a batch may take whose records have waited here for most of it
_WITHOUT_END = "for ever (message.timeout.ms is 0)"
PRODUCER_ID_CONFIG = "producer.id.expiration.ms"
TRANSACTIONAL_ID_CONFIG = "transactional.id.expiration.ms"  # before Kafka 3.4 of producer IDs as well


def backstop(delivery_timeout: float, socket_timeout: float) -> float:
    """The lane's `message.timeout.ms`, in seconds: T + 2 x `socket.timeout.ms` + a margin, 0 when T is 0.

    A T so near to librdkafka's maximum that the backstop does not fit gives that: then librdkafka may expire records
    itself.
    """
    if delivery_timeout == 0:
        return 0.0
    return min(delivery_timeout + 2 * socket_timeout + BACKSTOP_MARGIN, LONGEST_TIMEOUT)


class Purge(NamedTuple):
    """A lane takes nothing from `closes` on, and is purged `at` a time, because nothing was answered `within`."""

    at: float
    closes: float
    within: str


@dataclass(frozen=True, slots=True)
class Told:
    """A broker's expiration times. `producer_id` and `transactional_id`: for how long it remembers one, None when
    that cannot be read, for `reason`. `config`: which one `producer_id` is the value of."""

    node: int
    producer_id: float | None
    transactional_id: float | None = None
    config: str = PRODUCER_ID_CONFIG
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Horizon:
    """`seconds`: the smallest expiration; `said` names who says so. `unreadable`: why brokers did not tell, by node."""

    seconds: float
    said: str
    unreadable: Mapping[int, str]

    @property
    def margin(self) -> float:
        return margin(self.seconds)

    @property
    def limit(self) -> float:
        """The age at which what has no acknowledgement must not be sent again."""
        return max(LEAST_LIMIT, self.seconds - self.margin)


@dataclass(frozen=True, slots=True)
class Unsafe:
    """A configuration whose retries may outlive a horizon; `longest` None: without end.

    `least_expiration_ms`: what producer.id.expiration.ms must be above; None when none is enough. `most_timeout_ms`:
    what message.timeout.ms + 2 x socket.timeout.ms must be below; None when nothing is.
    """

    timeout: float | None
    socket_timeout: float
    horizon: float
    longest: float | None
    least_expiration_ms: int | None
    most_timeout_ms: int | None

    @property
    def sentence(self) -> str:
        way = (
            _WITHOUT_END
            if self.timeout is None or self.longest is None
            else f"for {self.longest:g} s (message.timeout.ms {self.timeout:g} s, 2 x socket.timeout.ms "
            f"{self.socket_timeout:g} s, and {BACKSTOP_MARGIN:g} s)"
        )
        return (
            f"a record may be under way {way}, which with a margin of {margin(self.horizon):g} s is not less than the "
            f"{self.horizon:g} s for which a leader remembers a producer ID: a retry after that is written twice, and "
            f"reported as delivered (KIP-854)"
        )

    @property
    def cure(self) -> str:
        raised = f"{PRODUCER_ID_CONFIG} on every broker"
        lowered = (
            f"set message.timeout.ms and socket.timeout.ms so that message.timeout.ms + 2 x socket.timeout.ms is below "
            f"{self.most_timeout_ms}"
        )
        if self.least_expiration_ms is None:
            cure = f"{lowered}" if self.most_timeout_ms is not None else f"then set {raised} well above it"
            return f"Give message.timeout.ms a limit: {cure}"
        if self.most_timeout_ms is None:
            return f"Set {raised} to more than {self.least_expiration_ms}: no message.timeout.ms is short enough for it"
        return f"Set {raised} to more than {self.least_expiration_ms}, or {lowered}"


def told(node: int, values: Mapping[str, str | None]) -> Told:
    """The expiration times of `node`, from the values of its configs by name; a sensitive one is None."""
    transactional = _seconds(values.get(TRANSACTIONAL_ID_CONFIG))
    if (own := _seconds(values.get(PRODUCER_ID_CONFIG))) is not None:
        return Told(node, own, transactional)
    if transactional is not None:
        return Told(node, transactional, transactional, TRANSACTIONAL_ID_CONFIG)
    return unreadable(node, f"it lists neither {PRODUCER_ID_CONFIG} nor {TRANSACTIONAL_ID_CONFIG}")


def unreadable(node: int, reason: str) -> Told:
    """A broker that does not tell."""
    return Told(node, None, None, PRODUCER_ID_CONFIG, reason)


def horizon(answers: Iterable[Told], transactional: bool = False) -> Horizon:
    """The smallest expiration of these brokers: of producer IDs, or of a transactional.id.

    A broker that does not tell counts as one with Kafka's default, and so do no brokers at all.
    """
    assumed, words = (WEEK, "seven days") if transactional else (DAY, "a day")
    found = list(answers)
    known = [
        (seconds, one.node, TRANSACTIONAL_ID_CONFIG if transactional else one.config)
        for one in found
        if (seconds := one.transactional_id if transactional else one.producer_id) is not None
    ]
    silent = {one.node: one.reason for one in found if one.producer_id is None}
    if not known or (silent and min(known)[0] > assumed):
        return Horizon(assumed, f"{words}, Kafka's default, is assumed", silent)
    seconds, node, config = min(known)
    return Horizon(seconds, f"{config} of broker {node} is {seconds * 1000:.0f}", silent)


def given(seconds: float, setting: str) -> Horizon:
    """The horizon that the application gives."""
    return Horizon(seconds, f"{setting} is {seconds * 1000:.0f}", {})


def rest(known: Horizon | None) -> float:
    """Seconds without a record after which leaders may have forgotten the producer: half of what they remember.

    Clocks differ, and records had their timestamps before they were sent. Who has not told remembers for a minute.
    """
    return min(_LEAST_HORIZON, _LEAST_HORIZON if known is None else known.limit) / 2


def margin(seconds: float) -> float:
    """How much earlier than a horizon of so many seconds the last attempt must be."""
    return min(MARGIN, seconds * _MOST_MARGIN)


def longest(timeout: float | None, socket_timeout: float) -> float | None:
    """For how long a record may be under way, to the end of its `backstop()`; None without a message.timeout.ms."""
    return None if timeout is None else timeout + 2 * socket_timeout + BACKSTOP_MARGIN


def unsafe(timeout: float | None, socket_timeout: float, seconds: float) -> Unsafe | None:
    """Whether a retry may outlive a horizon of so many seconds; None when it may not.

    The static rule: `longest()` and the margin together are *strictly* below the horizon.
    """
    longest_way = longest(timeout, socket_timeout)
    if longest_way is not None and longest_way + margin(seconds) < seconds:
        return None
    least = None if longest_way is None else min(longest_way + MARGIN, longest_way / (1 - _MOST_MARGIN))
    most = seconds - margin(seconds) - BACKSTOP_MARGIN
    return Unsafe(
        timeout,
        socket_timeout,
        seconds,
        longest_way,
        None if least is None else ceil(least * 1000),
        int(most * 1000) if most > 0 else None,
    )


def purge_at(handed_over: float, accepted: float, limit: float, stamped: float = NEVER) -> float:
    """When a batch without an acknowledgement is to be purged, so that no later attempt is made.

    The leader counts from the newest record timestamp: that is when the batch's newest record was `accepted`, or
    `stamped` by the application. A batch that had waited here for long still gets time for a first attempt.
    """
    first = max(LEAST_LIMIT, limit * _FIRST_ATTEMPT)
    at = max(min(handed_over, accepted) + limit, handed_over + min(first, limit))
    return min(at, max(stamped + limit, handed_over + LEAST_LIMIT))


def is_too_old(age: float, seconds: float) -> bool:
    """Whether a timestamp so old has a leader forget the producer ID at its next look, whichever clock is right."""
    return age > seconds + margin(seconds)


def _seconds(value: str | None) -> float | None:
    return int(value) / 1000 if value is not None and value.isdecimal() and int(value) > 0 else None
