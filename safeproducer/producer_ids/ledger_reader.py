"""Ledgers as `safeproducer doctor` shows them: read, never written, no lock waited for."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from safeproducer.policy import permits
from safeproducer.policy.permits import Kind
from safeproducer.producer_ids import ledger, ledger_places, patterns, permit_log, permit_record
from safeproducer.producer_ids.ledger_places import AUTO, SUFFIX, Place
from safeproducer.producer_ids.patterns import Pattern
from safeproducer.producer_ids.permit_record import IdRecord


@dataclass(frozen=True, slots=True)
class LedgerReading:
    """The ledger of one cluster and principal.

    `name`: the hash that names its files, see `name_of`. `used`: seconds of the hour that are used, above 3600 in debt.
    `count`: permits counted since it began. `records`: the latest ones, in order. `in_hour`: those of the last hour
    that were not given back. `problems`: one sentence for each copy that cannot be used.
    """

    name: str
    used: float
    count: int
    records: tuple[IdRecord, ...]
    in_hour: tuple[IdRecord, ...]
    problems: tuple[str, ...]

    def taken(self, rate: float) -> int:
        """How many permits were granted within the hour: what a producer with this rate is told."""
        return permit_log.in_hour(self.in_hour, self.used, rate)

    def wait(self, rate: float) -> float:
        """Seconds until the first ID of another producer would be granted, at `rate` per hour."""
        return permits.wait(self.used, Kind.FIRST, rate, 0.0)

    def patterns(self) -> list[Pattern]:
        """The patterns of the hour's permits, for each line that took more than one."""
        found = (patterns.find(self.in_hour, site) for site in dict.fromkeys(record.site for record in self.in_hour))
        return sorted((pattern for pattern in found if pattern is not None), key=lambda found: -found.count)


def read_ledgers(place: Place = AUTO) -> list[LedgerReading]:
    """All ledgers of `place`, by name. Raises nothing."""
    paths: dict[str, list[str]] = {}
    for directory in ledger_places.directories(place):
        with suppress(OSError):
            for name in filter(lambda name: name.endswith(SUFFIX), os.listdir(directory)):
                paths.setdefault(name, []).append(os.path.join(directory, name))
    return [_read(name.removesuffix(SUFFIX), paths[name]) for name in sorted(paths)]


def not_kept(place: Place = AUTO) -> list[str]:
    """Why no ledger of `place` can be used, by directory; nothing while one of them can. Changes nothing."""
    found = [ledger_places.problem(directory, make=False) for directory in ledger_places.directories(place)]
    problems = [problem for problem in found if problem is not None]
    return [] if len(problems) < len(found) else problems or ["ledgers are switched off, or this system has none"]


def _read(name: str, paths: Sequence[str]) -> LedgerReading:
    now, contents = permit_record.now(), [ledger.content_of(path) for path in paths]
    found = [ledger.decode(content) or "not readable" for content in contents]
    until, count = ledger.larger(found, now)
    lines = max((content[ledger.SIZE :] for content in contents), key=permit_log.count)
    return LedgerReading(
        name,
        max(until - now.boot, 0.0),
        count,
        tuple(sorted(permit_log.records(lines), key=lambda record: record.at.wall)),
        tuple(permit_log.records(lines, now)),
        tuple(f"{path} is {wrong}" for path, wrong in zip(paths, found, strict=True) if isinstance(wrong, str)),
    )
