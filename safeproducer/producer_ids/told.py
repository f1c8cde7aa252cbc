"""What people are told when the producer IDs of an hour are used up: the same in log, hook and error (KIP-936)."""

from __future__ import annotations

from safeproducer.hooks import ProducerChurn, ProducerIdLimited
from safeproducer.producer_ids.permit import Answer, Request
from safeproducer.records import ProducerInfo

ADVICE = (
    "Make one producer, keep it for the life of the process and share it between threads; after an error produce again "
    "on the same producer unless it is fatal. Raise safeproducer.producer.ids.per.hour if this rate is intended."
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
    begins = "producer-ID churn" if retry_after is None else f"no producer ID is free for another {retry_after:.1f} s"
    seen = "" if event.seen is None else f" {event.seen.rstrip('.')}."
    return (
        f"{begins}: {event.made_in_all} producer IDs were taken within an hour on this host for "
        f"{event.cluster} as {event.principal} (limit {event.limit_per_hour}), {event.made_by_site} of them by "
        f"producers made at {event.site}. Brokers must remember each of them, for a day by default.{seen} "
        f"{event.advice}"
    )
