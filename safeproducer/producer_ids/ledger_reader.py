"""Ledgers as `safeproducer doctor` shows them: read, never written, no lock waited for."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from safeproducer.policy import permits
from safeproducer.policy.permits import Kind
from safeproducer.producer_ids import ledger_file, ledger_header, ledger_places, patterns, permit_log, permit_record
from safeproducer.producer_ids.ledger_file import RING_AT
from safeproducer.producer_ids.ledger_header import Header, Unreadable
from safeproducer.producer_ids.ledger_places import AUTO, Place
from safeproducer.producer_ids.patterns import Pattern
from safeproducer.producer_ids.permit_record import UNSENT, IdRecord
from safeproducer.records import CallSite


@dataclass(frozen=True, slots=True)
class LedgerReading:
    """The ledger of one cluster and principal.

    `name`: the hash that names its files, see `Ledger.name_of`. `paths`: its copies. `used`: seconds of the hour that
    are used, above 3600 in debt. `count`: permits counted since it began. `records`: the latest ones, in order.
    `young`: those of them of the last hour. `problems`: one sentence for each copy that cannot be used.
    """

    name: str
    paths: tuple[str, ...]
    used: float
    count: int
    records: tuple[IdRecord, ...]
    young: tuple[IdRecord, ...]
    problems: tuple[str, ...]

    @property
    def in_hour(self) -> tuple[IdRecord, ...]:
        """Those of `young` that were not given back."""
        return tuple(record for record in self.young if record.ended != UNSENT)

    def taken(self, rate: float) -> int:
        """How many permits were granted within the hour: what a producer with this rate is told."""
        return permit_log.in_hour(self.young, self.used, rate)

    def wait(self, rate: float) -> float:
        """Seconds until the first ID of another producer would be granted, at `rate` per hour."""
        return permits.wait(self.used, Kind.FIRST, rate, 0.0)

    def patterns(self) -> list[Pattern]:
        """The patterns of the hour's permits, for each line that took more than one."""
        in_hour = self.in_hour
        sites: dict[CallSite, None] = dict.fromkeys(record.site for record in in_hour)
        found = (patterns.find(in_hour, site) for site in sites)
        return sorted((pattern for pattern in found if pattern is not None), key=lambda found: -found.count)


def read_ledgers(place: Place = AUTO) -> list[LedgerReading]:
    """All ledgers of `place`, by name. Raises nothing."""
    paths: dict[str, list[str]] = {}
    for directory in ledger_places.directories(place):
        try:
            names = os.listdir(directory)
        except OSError:
            continue
        for name in names:
            if name.endswith(ledger_places.SUFFIX):
                paths.setdefault(name, []).append(os.path.join(directory, name))
    return [_read(name.removesuffix(ledger_places.SUFFIX), paths[name]) for name in sorted(paths)]


def not_kept(place: Place = AUTO) -> list[str]:
    """Why no ledger of `place` can be used, by directory; nothing while one of them can. Changes nothing."""
    found = [
        (directory, ledger_places.problem(directory, make=False)) for directory in ledger_places.directories(place)
    ]
    if not found:
        return ["ledgers are switched off, or this system is neither Linux nor macOS"]
    problems = [problem for _, problem in found if problem is not None]
    return problems if len(problems) == len(found) else []


def _read(name: str, paths: Sequence[str]) -> LedgerReading:
    now, boot_id = permit_record.now(), permit_record.boot_id()
    headers, records, problems = [], {}, []
    for path in paths:
        data = ledger_file.content_of(path)
        found = ledger_header.decode(data)
        if isinstance(found, Header):
            headers.append(found)
        else:
            problems.append(f"{path} is {found.value if data or found is Unreadable.NEWER else 'not readable'}")
        if found is not Unreadable.NEWER:
            records.update({record.key: record for record in permit_log.records(data[RING_AT:])})
    ordered = tuple(sorted(records.values(), key=lambda record: record.at.wall))
    return LedgerReading(
        name,
        tuple(paths),
        max([0.0, *(found.used_until(now, boot_id) - now.boot for found in headers)]),
        max([0, *(found.count for found in headers)]),
        ordered,
        tuple(record for record in ordered if record.age(now, boot_id) < permits.HOUR),
        tuple(problems),
    )
