"""The sentences for people when the producer IDs of an hour are used up: the same in log, hook and error (KIP-936)."""

from __future__ import annotations

from safeproducer.hooks import ProducerChurn, ProducerIdLimited
from safeproducer.producer_ids.permit import Answer, Request
from safeproducer.records import ProducerInfo

ADVICE = (
    "Make one producer, keep it for the life of the process and share it between threads; after an error produce again "
    "on the same producer unless it is fatal. Raise safeproducer.producer.ids.per.hour if this rate is intended."
)

_TOO_FEW = (
    " So few use up the hour when producers with a lower limit took them, when more were taken in the hour before, or "
    "when a damaged ledger was made anew."
)


def churn(answer: Answer, request: Request, cluster: str, principal: str) -> ProducerChurn:
    """The event for an answer that is over the limit."""
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


def limited(answer: Answer, event: ProducerChurn, producer: ProducerInfo, policy: str) -> ProducerIdLimited:
    """The event for an answer that refuses."""
    return ProducerIdLimited(producer, policy, answer.retry_after, event)


def sentence(event: ProducerChurn, retry_after: float | None) -> str:
    """For a person. `retry_after`: seconds until the next ID, None where none is waited for."""
    begins = (
        "producer-ID churn"
        if retry_after is None
        else f"no producer ID is free for another {retry_after:.1f} s, because the hour is used up"
    )
    seen = "" if event.seen is None else f" {event.seen.rstrip('.')}."
    return (
        f"{begins}: {were_taken(event.made_in_all)} within an hour on this host for "
        f"{event.cluster} as {event.principal} (limit {event.limit_per_hour}), {event.made_by_site} of them by "
        f"producers made at {event.site}.{too_few(event.made_in_all, event.limit_per_hour)} Brokers must remember each "
        f"of them, for a day by default.{seen} {event.advice}"
    )


def were_taken(count: int) -> str:
    """This number of producer IDs."""
    return f"{count:,} producer {'ID was' if count == 1 else 'IDs were'} taken"


def too_few(count: int, limit: int) -> str:
    """The sentence on what uses up an hour in which fewer than `limit` IDs were taken; empty where none is needed."""
    return "" if count >= limit else _TOO_FEW
