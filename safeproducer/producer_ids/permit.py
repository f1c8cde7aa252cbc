"""Requests to a guard, and its answers."""

from __future__ import annotations

from typing import NamedTuple

from safeproducer.policy.permits import Kind
from safeproducer.producer_ids.patterns import Pattern
from safeproducer.records import CallSite


class Request(NamedTuple):
    """A native producer that is about to write idempotently for the first time.

    `rate`: permits per hour, 1 or more. With `enforce` False (policies `warn` and `off`, passthrough) the permit is
    always granted, and counted. `site` is the line that made the producer. `transactional_id` is kept as a hash only;
    for one that is known already the permit is granted and not counted. `asked` gets each permit before it is counted:
    a signal handler may raise before the answer arrives. One of them that was counted is the next answer.
    """

    kind: Kind
    rate: float
    enforce: bool
    site: CallSite
    transactional_id: str | None = None
    asked: list[Permit] | None = None


class Permit(NamedTuple):
    """A grant. `before` and `after` are what it made of the time up to which the hour is used; equal: not counted.

    `number` is how many were counted before it and with it, `generation` which count that is: both None while the
    process counts alone. `serial` tells the permits of one process apart. `known`: the hash of the transactional ID
    that was learned with it, 0 for none.
    """

    serial: int
    kind: Kind
    site: CallSite
    before: float
    after: float
    number: int | None = None
    generation: int | None = None
    known: int = 0


class Answer(NamedTuple):
    """Whether a native producer may write.

    `permit` is None when the request is refused: the next one may come in `retry_after` seconds, which reserves
    nothing. `over_limit`: refused, or more than `rate` were granted within the hour with this one; then `in_hour` is
    how many, in all processes that share the count (a lower bound for rates above 255), `by_site` how many of them for
    the line of the request, and `pattern` what they look like. Else these are 0, 0 and None. `told_before`: an answer
    of this process was over the limit for this line already.
    """

    permit: Permit | None
    retry_after: float = 0.0
    over_limit: bool = False
    in_hour: int = 0
    by_site: int = 0
    pattern: Pattern | None = None
    told_before: bool = False
