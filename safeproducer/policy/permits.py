"""KIP-936 (under discussion upstream): this module says who may take another producer ID now, and when to ask again.

Every leader that a producer ID wrote to remembers it for `producer.id.expiration.ms` (KIP-854, a day by default). Each
native producer that writes idempotently needs one permit in its life. The state is one number, `used_until`: the time
up to which the hour is used. A grant adds 3600 / rate seconds and is allowed while the sum stays within an hour from
now. A whole hour is free at first and comes back evenly, and processes with different rates can share the number. The
KIP's bucket admits while it is not empty; this one is a token stricter, so that the broker never has to refuse.

Times are seconds of one clock that never goes back; a rate is producer IDs per hour and above zero. Waiting changes
nothing: who asks when a permit is there gets it.
"""

from __future__ import annotations

from enum import Enum

HOUR = 3600.0

MOST_DEBT = HOUR
"""Seconds by which permits that are always granted may use more than the hour. Use beyond it is not counted."""

_SLACK = 1e-3
"""Seconds. A hundred sums of 36 s are not 3600 s to the last bit, and the hundredth permit is within the hour."""
JITTER = 0.1  # share of the time in which one ID comes back: who was refused together shall not ask together
LONGEST_JITTER = 1.0  # seconds of jitter at most, however slowly IDs come back
LONGEST_WAIT = 30.0  # seconds: an ID that another process gives back is found by then


class Kind(Enum):
    """The part of a native producer in its SafeProducer."""

    FIRST = "first"  # the first one that writes: what `safeproducer.producer.ids.policy` decides about
    FURTHER = "further"  # one more that it needs: a batch lane beside the direct one, or for a failed lane
    LANE = "lane"  # an additional lane with `lanes=auto`
    FIXED_LANE = "fixed lane"  # an additional lane with `lanes=n`, or in place of another with `fatal=renew`


def cost(rate: float) -> float:
    """Seconds of the hour that one permit uses."""
    return HOUR / rate


def granted(used_until: float, kind: Kind, rate: float, now: float) -> float | None:
    """The new `used_until` if a permit is granted at `now`, else None.

    FIRST and FIXED_LANE need room for one permit, LANE needs more than half of the hour free as well. FURTHER is always
    granted, and counted with at most an hour of debt.
    """
    if kind is Kind.FURTHER:
        return counted(used_until, rate, now)
    return counted(used_until, rate, now) if _excess(used_until, kind, rate, now) <= 0.0 else None


def counted(used_until: float, rate: float, now: float) -> float:
    """The new `used_until` when a permit is granted in any case: at most an hour of debt."""
    return min(max(used_until, now) + cost(rate), now + HOUR + MOST_DEBT)


def wait(used_until: float, kind: Kind, rate: float, now: float) -> float:
    """Seconds until a permit would be granted if nobody else took one: 0.0 for now. Infinite if the rate is below 1."""
    if kind is Kind.FURTHER:
        return 0.0
    if cost(rate) > HOUR + _SLACK:
        return float("inf")
    excess = _excess(used_until, kind, rate, now)
    # The sum of the answer and `now` is rounded, too: who waits for exactly so long must not find one bit missing.
    return excess + _SLACK if excess > 0.0 else 0.0


def room(used_until: float, kind: Kind, rate: float, now: float, most: int) -> int:
    """How many permits in a row would be granted at `now`, up to `most`. It reserves none."""
    count, until = 0, granted(used_until, kind, rate, now)
    while count < most and until is not None:
        count, until = count + 1, granted(until, kind, rate, now)
    return count


def given_back(used_until: float, seconds: float, age: float) -> float:
    """The new `used_until` when nothing was sent with a permit that used so many seconds of the hour `age` seconds ago.

    Time since then came back already, by the clock: of this permit, unless others were before it and still are.
    """
    return used_until - max(seconds - max(age, 0.0), 0.0)


def in_hour(used_until: float, rate: float, now: float) -> int:
    """Permits at `rate` that the used part of the hour stands for, rounded down."""
    return int((max(used_until, now) - now + _SLACK) / cost(rate))


def _excess(used_until: float, kind: Kind, rate: float, now: float) -> float:
    """Seconds by which `used_until` is too late for a permit."""
    used = max(used_until - now, 0.0)
    over = used + cost(rate) - HOUR - _SLACK
    if kind is Kind.LANE:  # exactly half is not more than half
        return max(over, used - HOUR / 2 + _SLACK)
    return over


def ask_again_in(retry_after: float, rate: float, share: float) -> float:
    """Seconds until a producer asks again. `rate`: IDs per hour, above 0; `share`: a random number from 0 to 1."""
    return min(retry_after, LONGEST_WAIT) + share * min(LONGEST_JITTER, JITTER * HOUR / rate)
