"""Reads what this host knows of its own producer IDs, from its ledgers, which it never writes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from safeproducer.producer_ids import ledger_places, ledger_reader
from safeproducer.producer_ids.ledger_places import OFF, Place
from safeproducer.producer_ids.ledger_reader import LedgerReading
from safeproducer.producer_ids.patterns import Pattern


@dataclass(frozen=True, slots=True)
class KnownId:
    """A permit for one ID. `line` is the code that made the producer, `at` seconds since 1970.

    `producer_id` is None while it is not known. `ended`: how the native producer ended, empty while nobody told.
    """

    line: str
    kind: str
    at: float
    process: int
    parent: int
    producer_id: int | None
    ended: str


@dataclass(frozen=True, slots=True)
class LedgerCensus:
    """The count of one cluster and principal. `next_in_seconds`: until the next first ID is allowed; 0 now.

    `asked`: it is that of the configuration.
    """

    name: str
    ids_in_hour: int
    next_in_seconds: float
    ids: Sequence[KnownId] = ()
    patterns: Sequence[Pattern] = ()
    asked: bool = False


@dataclass(frozen=True, slots=True)
class Host:
    """`not_kept`: why producers here are counted by process only. `damaged`: copies that cannot be read.

    Both as sentences. `off`: the settings ask for no ledger.
    """

    ledgers: Sequence[LedgerCensus] = ()
    not_kept: Sequence[str] = ()
    damaged: Sequence[str] = ()
    off: bool = False

    @property
    def asks(self) -> bool:
        """Whether one of them is that of the configuration."""
        return any(ledger.asked for ledger in self.ledgers)

    @property
    def joined(self) -> Sequence[LedgerCensus]:
        """Where IDs of the cluster are looked up. Each cluster counts from 0, so others' have the same numbers.

        All ledgers without one of the configuration: applications may name the cluster by other brokers.
        """
        return [ledger for ledger in self.ledgers if ledger.asked or not self.asks]

    @property
    def lines(self) -> dict[int, str]:
        """Producer ID -> the line of code that took it."""
        known = [one for ledger in self.joined for one in ledger.ids]
        return {one.producer_id: one.line for one in known if one.producer_id is not None}

    def unknown(self, begin: float, end: float) -> list[str]:
        """Lines that took an ID of this cluster in that time whose number is not known, once for each.

        librdkafka tells the number with its statistics: a producer that lives for less than half a second may miss it.
        """
        asked = [one for ledger in self.ledgers if ledger.asked for one in ledger.ids]
        return [one.line for one in asked if one.producer_id is None and begin <= one.at < end]

    @property
    def patterns(self) -> dict[str, Pattern]:
        """Line of code -> what its permits look like."""
        return {pattern.line: pattern for ledger in self.joined for pattern in ledger.patterns}


def read_host(place: Place, names: Mapping[str, str], rate: float, *, paths: bool) -> Host:
    """Read this host's ledgers. `names`: what to call one, by the hash that names its files.

    `rate`: IDs per hour that are allowed. Without `paths` lines of code and directories are numbered instead of named.
    """
    found = ledger_reader.read_ledgers(place)
    show = _Lines(paths)
    return Host(
        tuple(sorted((_ledger(one, names, rate, show) for one in found), key=lambda ledger: not ledger.asked)),
        tuple(show.text(problem, place) for problem in (() if place == OFF else ledger_reader.not_kept(place))),
        tuple(show.text(problem, place) for one in found for problem in one.problems),
        place == OFF,
    )


def _ledger(one: LedgerReading, names: Mapping[str, str], rate: float, show: "_Lines") -> LedgerCensus:
    ids = [
        KnownId(show.line(str(of.site)), of.kind.name.lower(), of.at.wall, *of.process[:2], of.producer_id, of.ended)
        for of in one.records
    ]
    patterns = [replace(pattern, line=show.line(pattern.line)) for pattern in one.patterns()]
    name, wait = names.get(one.name), round(one.wait(rate), 3)
    return LedgerCensus(name or f"ledger {one.name[:8]}", one.taken(rate), wait, ids, patterns, name is not None)


class _Lines:
    """Lines of code as they are shown: named, or numbered in the order in which they are met."""

    def __init__(self, paths: bool) -> None:
        self._paths = paths
        self._numbers: dict[str, int] = {}

    def line(self, of: str) -> str:
        return of if self._paths else f"line {self._numbers.setdefault(of, len(self._numbers) + 1)}"

    def text(self, sentence: str, place: Place) -> str:
        if not self._paths:
            for number, directory in enumerate(ledger_places.directories(place), start=1):
                sentence = sentence.replace(directory, f"directory {number}")
        return sentence
