"""Requests to a guard, its answers, and the sentence of log, hook and error when an hour is used up (KIP-936)."""

from __future__ import annotations

from typing import NamedTuple

from safeproducer.hooks import ProducerChurn
from safeproducer.policy.permits import Kind
from safeproducer.producer_ids.patterns import Pattern
from safeproducer.records import CallSite

ADVICE = (
    "Make one producer, keep it for the life of the process and share it between threads; after an error produce again "
    "on the same producer unless it is fatal. Raise safeproducer.producer.ids.per.hour if this rate is intended."
)
_TOO_FEW = (
    " So few use up the hour when producers with a lower limit took them, when more were taken in the hour before, or "
    "when a damaged ledger was made anew."
)


class Claim(NamedTuple):
    """A native producer that is about to write idempotently for the first time.

    `rate`: permits per hour, 1 or more. With `enforce` False (policies `warn` and `off`, passthrough) the permit is
    always granted, and counted. `site` is the line that made the producer. `transactional_id` is kept as a hash only;
    for one that is known already the permit is granted and not counted.
    """

    kind: Kind
    rate: float
    enforce: bool
    site: CallSite
    transactional_id: str | None = None


class Permit(NamedTuple):
    """A grant. `before` and `after` are what it made of the time up to which the hour is used; equal: not counted.

    `at` is when, by the boot clock. `number` is how many were counted before it and with it, None while the process
    counts alone. `serial` tells the permits of one process apart. `known`: the hash of the transactional ID that was
    learned with it, empty for none.
    """

    serial: int
    kind: Kind
    site: CallSite
    before: float
    after: float
    at: float = 0.0
    number: int | None = None
    known: str = ""


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


def churn_event(answer: Answer, request: Claim, cluster: str, principal: str) -> ProducerChurn:
    pattern = answer.pattern
    return ProducerChurn(
        cluster=cluster,
        principal=principal,
        site=request.site,
        made_by_site=answer.by_site,
        made_in_all=answer.in_hour,
        limit_per_hour=int(request.rate),
        advice=ADVICE if pattern is None else pattern.cure,
        pattern=None if pattern is None else pattern.code,
        seen=None if pattern is None else pattern.sentence,
    )


def churn_sentence(event: ProducerChurn, retry_after: float | None) -> str:
    """For a person. `retry_after`: seconds until the next ID, None where none is waited for."""
    begins = "producer-ID churn"
    if retry_after is not None:
        begins = f"no producer ID is free for another {retry_after:.1f} s, because the hour is used up"
    seen = "" if event.seen is None else f" {event.seen.rstrip('.')}."
    return (
        f"{begins}: {were_taken(event.made_in_all)} within an hour on this host for "
        f"{event.cluster} as {event.principal} (limit {event.limit_per_hour}), {event.made_by_site} of them by "
        f"producers made at {event.site}.{too_few(event.made_in_all, event.limit_per_hour)} Brokers must remember each "
        f"of them, for a day by default.{seen} {event.advice}"
    )


def were_taken(count: int) -> str:
    return f"{count:,} producer {'ID was' if count == 1 else 'IDs were'} taken"


def too_few(count: int, limit: int) -> str:
    """The sentence on what uses up an hour in which fewer than `limit` IDs were taken; empty where none is needed."""
    return "" if count >= limit else _TOO_FEW
