"""This host's ledgers as doctor sees them."""

from pathlib import Path

import pytest

from safeproducer.cli.doctor.host import Host, read_host
from safeproducer.policy.permits import Kind
from safeproducer.producer_ids.guard import Guard, guard_of
from safeproducer.producer_ids.ledger import name_of
from safeproducer.producer_ids.ledger_places import OFF, SUFFIX, Place
from safeproducer.producer_ids.permit import Claim
from safeproducer.records import CallSite

IDENTITY = ("k1:9092", "User:a")
HERE = CallSite("/srv/secret/app.py", 12, "view")
THERE = CallSite("/srv/secret/job.py", 3, "run")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A ledger of this test."""
    return Place(str(tmp_path / "ledger"))


@pytest.fixture
def guard(place: Place) -> Guard:
    """What producers ask."""
    return guard_of(IDENTITY, place)


def take(guard: Guard, site: CallSite, producer_id: int | None = None, ended: str | None = None) -> None:
    """One permit, and what became of it."""
    permit = guard.ask(Claim(Kind.FIRST, 20, False, site)).permit
    assert permit is not None
    guard.note(permit, producer_id, ended)


def read(place: Place, *, rate: float = 20, paths: bool = True) -> Host:
    return read_host(place, {name_of(IDENTITY).removesuffix(SUFFIX): "k1:9092 as User:a"}, rate, paths=paths)


def test_a_host_without_a_ledger(place: Place) -> None:
    """None was taken here: nothing is wrong, and nothing is made by looking."""
    assert read(place) == Host()
    assert not Path(place).exists()


def test_ids_have_their_line(place: Place, guard: Guard) -> None:
    """With how they ended; the pattern of a line that took several."""
    take(guard, HERE, 7, "closed")
    take(guard, HERE, 8, "closed")
    take(guard, THERE)
    host = read(place)
    (ledger,) = host.ledgers
    assert (ledger.name, ledger.ids_in_hour, ledger.next_in_seconds) == ("k1:9092 as User:a", 3, 0.0)
    assert [(one.producer_id, one.line, one.kind, one.ended) for one in ledger.ids] == [
        (7, str(HERE), "first", "closed"),
        (8, str(HERE), "first", "closed"),
        (None, str(THERE), "first", ""),
    ]
    assert host.lines == {7: str(HERE), 8: str(HERE)}
    assert [(pattern.line, pattern.count, pattern.code) for pattern in ledger.patterns] == [
        (str(HERE), 2, "one-per-request")
    ]
    assert list(host.patterns) == [str(HERE)]


OTHER = ("k2:9092", "User:a")
"""Another cluster: it counts from 0 as well."""


def test_an_id_is_looked_up_in_the_ledger_of_its_cluster(place: Place, guard: Guard) -> None:
    """Another one on this host knows the same number."""
    for _ in range(2):
        take(guard_of(OTHER, place), THERE, 7)
    assert not read(place).asks
    assert read(place).lines == {7: str(THERE)}, "no ledger is that of the configuration: it may be any"
    assert list(read(place).patterns) == [str(THERE)]
    take(guard, HERE, 7)
    take(guard, HERE, 8)
    host = read(place)
    assert host.asks
    assert host.lines == {7: str(HERE), 8: str(HERE)}
    assert list(host.patterns) == [str(HERE)]
    assert len(host.ledgers) == 2
    for name in (OTHER, IDENTITY):
        asked = read_host(place, {name_of(name).removesuffix(SUFFIX): "asked"}, 20, paths=True)
        assert [ledger.asked for ledger in asked.ledgers] == [True, False], "it comes first, or a table may not show it"


def test_the_hour_is_used_up_by_the_rate_that_is_given(place: Place, guard: Guard) -> None:
    """The same ledger, by two rates."""
    for _ in range(20):
        take(guard, HERE)
    assert 0 < read(place).ledgers[0].next_in_seconds <= 180
    assert read(place, rate=720).ledgers[0].next_in_seconds <= 5


def test_without_paths_lines_are_numbered(place: Place, guard: Guard) -> None:
    """The same line has the same number, and no path is anywhere; not of a damaged copy either."""
    take(guard, HERE, 7)
    take(guard, THERE, 8)
    take(guard, HERE, 9)
    for copy in Path(place).glob("*.ledger"):
        with copy.open("r+b") as file:
            file.write(b"x" * 64)
    host = read(place, paths=False)
    assert host.lines == {7: "line 1", 8: "line 2", 9: "line 1"}
    assert host.damaged
    assert "secret" not in str(host)
    assert place not in str(host)


def test_places_that_cannot_be_used(tmp_path: Path) -> None:
    """A file in its place; switched off."""
    (tmp_path / "file").write_text("")
    assert any("no directory" in reason for reason in read(Place(str(tmp_path / "file"))).not_kept)
    assert read(OFF) == Host(off=True)
