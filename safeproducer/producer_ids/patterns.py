"""What a series of permits looks like: a producer for each request, a crash loop and so on. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from safeproducer.policy.permits import Kind
from safeproducer.producer_ids.record import IdRecord
from safeproducer.records import CallSite

PER_REQUEST = "one-per-request"
PER_ERROR = "one-per-error"
MANY = "many-at-once"
CRASH_LOOP = "crash-loop"
SHORT_LIVED = "short-lived-processes"
WORKERS = "pre-fork-workers"
WORKERS_AGAIN = "pre-fork-workers-again"
LANES = "lanes"

_ORDERLY = ("closed", "collected", "exit")
_FAILED = ("failed", "crashed")
_BURST = 5.0
"""Seconds between two workers that one server starts, at most."""

_ONE = "Make one producer, keep it for the life of the process and share it between threads"
_TEXTS = {
    PER_REQUEST: (
        "one after another in the same process, each closed or collected before the next: one a request or batch",
        f"{_ONE}, or set safeproducer.producer.ids.policy to 'reuse'",
    ),
    PER_ERROR: (
        "one after another in the same process, each after the former one had failed: one for each error",
        f"{_ONE}. After an error produce again on the same producer, unless the error is fatal",
    ),
    MANY: ("several in the same process, which keeps them: one for each thread, task or object", _ONE),
    CRASH_LOOP: (
        "one in each of many processes that ended without closing it: a crash loop",
        "Find in the log of the process why it ends, and start it again more slowly. "
        "safeproducer.producer.ids.policy 'refuse' stops it at produce()",
    ),
    SHORT_LIVED: (
        "one in each of many processes that ended in order: short-lived processes",
        "Let a process live for more tasks or events, or write from one that stays. "
        "safeproducer.producer.ids.policy 'delay' spreads them over the hour",
    ),
    WORKERS: (
        "one in each of several processes that one parent started at once: workers of a pre-fork server",
        "This is no churn unless it repeats: raise safeproducer.producer.ids.per.hour to the number of workers",
    ),
    WORKERS_AGAIN: (
        "one in each of many processes that one parent started: workers of a pre-fork server that are replaced",
        "Let a worker live for more requests, or find in its log why it ends. "
        "safeproducer.producer.ids.policy 'delay' spreads them over the hour",
    ),
    LANES: (
        "most of them additional lanes of a producer, each a native producer with an ID of its own",
        "Set safeproducer.lanes to the number that the producer needs, or 1",
    ),
}


@dataclass(frozen=True, slots=True)
class Pattern:
    """`count` permits within `seconds`, at `site`. `code` is stable; `sentence` says what it is, `cure` what to do."""

    code: str
    count: int
    seconds: float
    site: CallSite
    sentence: str
    cure: str


def find(records: Sequence[IdRecord], site: CallSite, is_alive: Callable[[int], bool]) -> Pattern | None:
    """How the permits of a line come about; None for fewer than two. `is_alive(pid)` is asked for siblings only."""
    own = sorted((record for record in records if record.site == site), key=lambda record: record.at.wall)
    if len(own) < 2:
        return None
    code = _code(own, is_alive)
    seconds = own[-1].at.wall - own[0].at.wall
    sentence, cure = _TEXTS[code]
    return Pattern(code, len(own), seconds, site, f"{len(own)} in {_span(seconds)}, {sentence}", f"{cure}.")


def _code(own: list[IdRecord], is_alive: Callable[[int], bool]) -> str:
    if 2 * sum(record.kind is not Kind.FIRST for record in own) > len(own):
        return LANES
    firsts = [record for record in own if record.kind is Kind.FIRST]
    former = [before for before, _ in _followed(firsts)]
    if 2 * len(former) >= len(firsts):
        return _in_one_process(former)
    return _in_many(firsts, is_alive)


def _followed(own: list[IdRecord]) -> list[tuple[IdRecord, IdRecord]]:
    """Those behind which the same process made another one."""
    latest: dict[int, IdRecord] = {}
    found = []
    for record in own:
        before = latest.get(record.process.token)
        if before is not None:
            found.append((before, record))
        latest[record.process.token] = record
    return found


def _in_one_process(former: list[IdRecord]) -> str:
    failed = sum(record.ended in _FAILED for record in former)
    ended = sum(record.ended in _ORDERLY for record in former)
    if 2 * failed >= len(former):
        return PER_ERROR
    return PER_REQUEST if 2 * (ended + failed) >= len(former) else MANY


def _in_many(own: list[IdRecord], is_alive: Callable[[int], bool]) -> str:
    if _are_replaced(own, is_alive):
        return WORKERS_AGAIN
    # The newest one still runs: it has just asked.
    former = own[:-1]
    orderly = sum(record.ended in _ORDERLY for record in former)
    if 2 * orderly > len(former):
        return SHORT_LIVED
    siblings = _siblings(own)
    bursts = _bursts(siblings)
    if 2 * len(siblings) > len(own) and 2 * sum(len(burst) > 1 for burst in bursts) > len(bursts):
        if len(bursts) > 1:
            return WORKERS_AGAIN
        alive = sum(not record.ended and is_alive(record.process.pid) for record in siblings)
        if 2 * alive > len(siblings):
            return WORKERS
    return CRASH_LOOP


def _are_replaced(own: list[IdRecord], is_alive: Callable[[int], bool]) -> bool:
    """Whether they are workers that one parent forks, several at once: in more than one burst, or behind ended ones.

    The token of such a parent is known, see `master`. A worker may end by os._exit() and tell nothing.
    """
    siblings = _siblings(own)
    if not siblings[0].process.parent_token or 2 * len(siblings) <= len(own):
        return False
    bursts, former = _bursts(siblings), siblings[:-1]
    if (len(bursts) < 2 and not any(record.ended for record in former)) or 2 * sum(
        record.ended in _FAILED for record in former
    ) > len(former):
        return False
    return len(bursts) < len(siblings) or any(not record.ended and is_alive(record.process.pid) for record in former)


def _siblings(own: list[IdRecord]) -> list[IdRecord]:
    """Of the parent that has most of them."""
    parents = Counter((record.process.parent, record.process.parent_token) for record in own)
    parent = parents.most_common(1)[0][0]
    return [record for record in own if (record.process.parent, record.process.parent_token) == parent]


def _bursts(own: list[IdRecord]) -> list[list[IdRecord]]:
    found: list[list[IdRecord]] = []
    for record in own:
        if found and record.at.wall - found[-1][-1].at.wall <= _BURST:
            found[-1].append(record)
        else:
            found.append([record])
    return found


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min"
