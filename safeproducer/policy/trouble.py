"""Whether what a client was told of its brokers is still in the way of its records, or over."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_BROKER = re.compile(r"^(?:[a-z0-9_]+://)?\S+/(?P<id>bootstrap|\d+): ", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Trouble:
    """One thing that went wrong. `clause` says it, with its time.

    `node`: the broker that it is about, None for all of them. `over`: nothing waits because of it any more.
    """

    clause: str
    node: int | None
    over: bool


@dataclass(frozen=True, slots=True)
class ClientError:
    """A client error that was told at `at`, in seconds, when so many records had been `delivered`.

    `node`: the broker it is about, None when it names none. `of_all`: it is about reaching any broker at all. `lasts`:
    it is fatal.
    """

    sentence: str
    node: int | None
    of_all: bool
    lasts: bool
    at: float
    delivered: int

    def is_over(self, connected: Mapping[int, float], delivered: int) -> bool:
        """By when each broker was last seen connected, and how many records have been delivered.

        A broker that is named is over its trouble only when it is connected itself: others may acknowledge meanwhile.
        """
        if self.lasts:
            return False
        if self.node is not None:
            return connected.get(self.node, self.at) > self.at
        return delivered > self.delivered or (self.of_all and any(seen > self.at for seen in connected.values()))


def broker_in(reason: str, all_down: bool) -> tuple[int | None, bool]:
    """(the broker that librdkafka's text names, whether it is about all of them)."""
    found = _BROKER.match(reason)
    if found is None:
        return None, all_down
    name = found["id"]
    return (int(name), False) if name.isdecimal() else (None, True)


def throttling(node: int, until: float, probes: bool, now: float) -> Trouble:
    """A broker announced a throttle time that ends, or ended, at `until`. A negative `node` is one that is not known.

    `calms`: one batch at a time goes to it since.
    """
    who, about = (f"broker {node}", node) if node >= 0 else ("a broker", None)
    if until > now:
        return Trouble(f"the quota of {who} throttles this client for another {until - now:.1f} s", about, over=False)
    ended = f"the quota of {who} throttled this client until {now - until:.1f} s ago, and"
    if probes:
        return Trouble(f"{ended} one batch at a time goes to it for now", about, over=False)
    return Trouble(f"{ended} nothing holds records for it now", about, over=True)
