"""Patterns in a series of permits: a producer for each request, a crash loop and so on. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from safeproducer.policy.permits import Kind
from safeproducer.producer_ids.permit_record import IdRecord
from safeproducer.records import CallSite

PER_REQUEST = "one-per-request"
PER_ERROR = "one-per-error"
CRASH_LOOP = "crash-loop"
PER_PROCESS = "one-per-process"
MANY = "many-at-once"
LANES = "lanes"
"""The first four are churn. Of the last two all producers may be in use."""

_ORDERLY = ("closed", "collected", "exit")
_FAILED = ("failed", "crashed")
_AFTER_ERRORS = (*_FAILED, "error")

_ONE = "Make one producer, keep it for the life of the process and share it between threads"
_TEXTS = {
    PER_REQUEST: (
        "one after another in the same process, each closed or collected before the next: one a request, batch, "
        "test or run of a notebook's cell",
        f"{_ONE}, or set safeproducer.producer.ids.policy to 'reuse'",
    ),
    PER_ERROR: (
        "one after another in the same process, each after the former one, or a record of it, had failed: one for each "
        "error",
        f"{_ONE}. After an error produce again on the same producer, unless the error is fatal",
    ),
    CRASH_LOOP: (
        "one in each of many processes, most of which an error ended: a crash loop",
        "Find in the log of the process why it ends, and start it again more slowly. "
        "safeproducer.producer.ids.policy 'refuse' stops it at produce()",
    ),
    PER_PROCESS: (
        "one in each of several processes: workers of a server or of Spark, commands, or a program that is killed and "
        "started again",
        "If so many are intended, raise safeproducer.producer.ids.per.hour to their number in an hour. Else let a "
        "process live for more requests, tasks or events, or find out what kills it. "
        "safeproducer.producer.ids.policy 'delay' spreads them over the hour, and 'refuse' stops a crash loop",
    ),
    MANY: ("several in the same process, which keeps them: one for each thread, task or object", _ONE),
    LANES: (
        "additional lanes of a producer, each a native producer with an ID of its own",
        "Set safeproducer.lanes to the number that the producer needs, or 1",
    ),
}


@dataclass(frozen=True, slots=True)
class Pattern:
    """`count` permits for a `line` of code make it. `code` is stable, `sentence` says what it is, `cure` what to do."""

    code: str
    line: str
    count: int
    sentence: str
    cure: str


def find(records: Sequence[IdRecord], site: CallSite) -> Pattern | None:
    """How the permits of a line come about; None for fewer than two."""
    own = [record for record in records if record.site == site]
    if len(own) < 2:
        return None
    one_start = own[0].boot_id and len({record.boot_id for record in own}) == 1
    own = sorted(own, key=lambda record: record.at.boot if one_start else record.at.wall)  # which somebody may set
    code, (began, ended) = _code(own), (own[0].at, own[-1].at)
    seconds = ended.boot - began.boot if one_start else ended.wall - began.wall
    sentence, cure = _TEXTS[code]
    return Pattern(code, str(site), len(own), f"{len(own)} in {_span(seconds)}, {sentence}", f"{cure}.")


def _code(own: list[IdRecord]) -> str:
    firsts = [record for record in own if record.kind is Kind.FIRST]
    if len(firsts) < 2 or 2 * len(firsts) < len(own):
        return LANES
    former = _followed(firsts)
    if 2 * len(former) >= len(firsts):
        failed = sum(record.ended in _AFTER_ERRORS for record in former)
        ended = sum(record.ended in _ORDERLY for record in former)
        return PER_ERROR if 2 * failed >= len(former) else PER_REQUEST if 2 * (ended + failed) >= len(former) else MANY
    others = firsts[:-1]  # the newest one still runs: it has just asked
    return CRASH_LOOP if 2 * sum(record.ended in _FAILED for record in others) > len(others) else PER_PROCESS


def _followed(own: list[IdRecord]) -> list[IdRecord]:
    """The permits behind which the same process made another one."""
    latest: dict[int, IdRecord] = {}
    found = []
    for record in own:
        if record.process.token in latest:
            found.append(latest[record.process.token])
        latest[record.process.token] = record
    return found


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min"
