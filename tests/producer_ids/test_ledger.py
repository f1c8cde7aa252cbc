"""The ledger of a host: what processes share, and what damage, clocks and other users do to it."""

import json
import logging
import os
import random
import stat
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any

import pytest

from safeproducer.producer_ids import ledger, ledger_places, permit_log
from safeproducer.producer_ids.guard import AUTO, OFF, Claim, Guard, Kind, Place
from safeproducer.producer_ids.ledger import SIZE
from safeproducer.producer_ids.ledger_reader import not_kept, read_ledgers
from tests.contract.support import wait_until
from tests.producer_ids.host import IDENTITY, SITE, Host, first, taken

HOUR = 3600.0


def said(caplog: pytest.LogCaptureFixture, count: int) -> list[str]:
    """What is wrong with the ledger, as was logged: on a thread of its own, which may be late."""
    wait_until(lambda: len(caplog.records) >= count)
    time.sleep(0.05)
    texts = [record.getMessage() for record in caplog.records]
    assert all("counted by this process alone" in text for text in texts)
    return texts


def test_files_belong_to_their_user_alone_and_can_be_read_by_people(still: Host) -> None:
    """Directory 0700, files 0600, two of the same content: a header, and lines of JSON."""
    guard = still.start()
    permit = guard.ask(first()).permit
    assert permit is not None
    guard.note(permit, 4711, "closed")
    assert len(still.files) == 2
    for file in still.files:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        assert IDENTITY[0].encode() not in file.read_bytes()
    content, other = (file.read_bytes() for file in still.files)
    assert content == other
    counted, noted = map(json.loads, content[SIZE:].decode().split())
    assert (counted["site"], counted["kind"]) == (["app.py", 7, "handler"], "first")
    assert (noted["of"], noted["producer_id"], noted["ended"]) == (counted["permit"], 4711, "closed")


@pytest.mark.parametrize("gone", [0, 1])
def test_one_of_two_copies_deleted_changes_nothing(still: Host, gone: int) -> None:
    """It is made anew from the other one, with all that is in it."""
    assert taken(still.start()) == 20
    before = still.files[gone].read_bytes()
    still.files[gone].unlink()
    assert taken(still.start()) == 0
    assert still.files[gone].read_bytes() == before
    still.files[1 - gone].unlink()
    assert taken(still.start()) == 0, "the new copy is as good as the former"
    for file in still.files:
        file.unlink()
    assert taken(still.start()) == 20, "without both it starts anew"


def damaged(host: Host, content: bytes) -> None:
    for file in host.files:
        file.write_bytes(content)


def allowed(host: Host, content: bytes) -> int:
    damaged(host, content)
    return taken(host.start(), most=30)


def test_a_damaged_header_grants_nothing(still: Host) -> None:
    """In all copies: each of its bits flipped, all of them, cut off anywhere, or random. The hour counts as used up."""
    guard = still.start()
    for _ in range(15):
        guard.ask(first())
    intact = still.files[0].read_bytes()
    assert allowed(still, intact) == 5
    for bit in range(SIZE * 8):
        content = bytearray(intact)
        content[bit // 8] ^= 1 << bit % 8
        assert allowed(still, bytes(content)) == 0, bit
    inverted = bytes(255 - byte for byte in intact[:SIZE]) + intact[SIZE:]
    for content in (inverted, random.Random(3).randbytes(5000), *(intact[:size] for size in range(1, SIZE))):
        assert allowed(still, content) == 0
    assert still.start().ask(first()).retry_after == pytest.approx(180, abs=1)
    still.pass_time(181)
    assert still.start().ask(first()).permit, "it is a ledger again"


def test_damaged_lines_change_no_decision(still: Host) -> None:
    """Cut off, with flipped bits, or of anything: they are for people."""
    guard, source = still.start(), random.Random(17)
    for _ in range(15):
        guard.ask(first())
    intact = still.files[0].read_bytes()
    for _ in range(100):
        content = bytearray(intact)
        for _ in range(20):
            bit = source.randrange(SIZE * 8, len(intact) * 8)
            content[bit // 8] ^= 1 << bit % 8
        assert allowed(still, bytes(content[: source.randrange(SIZE, len(intact))])) == 5
    for line in (b"[" * 100_000, b"7", b'{"permit":7}', b'{"of":[],"ended":7}', b'{"permit":"x-1","pid":[1]}', b"\xff"):
        assert allowed(still, intact[:SIZE] + b"\n" + line + intact[SIZE:]) == 5


class KilledError(BaseException):
    """Nothing that comes behind it is done."""


@pytest.mark.parametrize("counted_before", [0, 1])
def test_a_process_killed_between_two_writes_has_counted_nothing(
    still: Host, counted_before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines are written first, and what decides last, but for a new file. What decides in one copy only counts."""
    counted = []
    for after in range(12):
        for file in still.files:
            file.unlink()
        guard, writes = still.start(), iter(range(100))
        assert all(guard.ask(first()).permit for _ in range(counted_before))

        class Killed(FileIO):
            def write(self, data: Any, writes: Any = writes, after: int = after) -> int:
                if next(writes) == after:
                    raise KilledError
                return super().write(data)

        with monkeypatch.context() as patch:
            patch.setattr(ledger, "FileIO", Killed)
            with suppress(KilledError):
                guard.ask(first())
        counted.append(20 - counted_before - taken(still.start()))
        assert len({file.read_bytes()[:SIZE] for file in still.files}) == 1
    assert counted == sorted(counted)
    assert counted[:2] == [0, 0]
    assert counted[-1] == 1


def test_a_newer_version_is_left_alone(still: Host, caplog: pytest.LogCaptureFixture) -> None:
    """The process counts alone then, and says so once."""
    still.start().ask(first())
    content = bytearray(still.files[0].read_bytes())
    content[4] += 1
    content[60:64] = zlib.crc32(content[:60]).to_bytes(4, "little")
    damaged(still, bytes(content))
    files, guard = still.files, still.start()
    with caplog.at_level(logging.WARNING, "safeproducer"):
        assert taken(guard) == 20
    assert "newer version" in said(caplog, 1)[0]
    assert [file.read_bytes() for file in files] == [content] * 2


DAY, YEAR = 86_400.0, 365 * 86_400.0
CLOCKS: dict[str, tuple[dict[str, float], dict[str, float], float]] = {
    **{f"the clock steps by {step} s": ({}, {"step": step}, 181) for step in (DAY, -DAY, YEAR, -YEAR)},
    "another boot": ({}, {"boot": 30}, 151),  # the copy on the disk is what is left
    **{f"the clock reads {wall}": ({"wall": wall}, {}, 181) for wall in (1e10, -1e10, 1e20)},
    **{f"{step} s, and another boot": ({}, {"step": step, "boot": HOUR}, 181) for step in (-DAY, -YEAR)},
    # What no round can have written comes back from then on. The boots of macOS and Windows have no name.
    **{f"{step} s, without a name": ({"boot_id": 0}, {"step": step}, HOUR + 181) for step in (-DAY, -YEAR)},
}
"""What is so before, what happens then, and after how many seconds a permit is there."""


def happens(host: Host, step: float = 0.0, boot: float = 0.0) -> None:
    """The clock steps, and another boot takes so long."""
    host.wall += step
    if boot:
        host.reboot(seconds=boot)


@pytest.mark.parametrize("clock", CLOCKS)
def test_no_clock_gives_the_hour_back_or_refuses_for_long(still: Host, clock: str) -> None:
    """Within a boot its own clock counts, then that of the day; two hours are the most that is lost."""
    before, then, wait = CLOCKS[clock]
    vars(still).update(before)
    assert taken(still.start()) == 20
    happens(still, **then)
    assert taken(still.start()) == 0
    still.pass_time(wait)
    assert taken(still.start(), most=1) == 1
    assert "without a name" in clock or taken(still.start()) == 0, "the next one has its own time"


def test_known_transactional_ids_are_shared(still: Host) -> None:
    """A fixed one is counted once on this host; only its hash is kept, in each copy."""

    def seconds() -> float:
        permit = still.start().ask(first(2, transactional="orders")).permit
        return permit.after - permit.before

    assert [seconds() for _ in range(5)] == [1800, 0, 0, 0, 0]
    for file in still.files:
        assert b"orders" not in file.read_bytes()
        file.unlink()
        assert seconds() == 0


def test_a_permit_that_is_given_back_is_free_for_others(still: Host) -> None:
    """Once, however often it is asked for. A count that began anew gives nothing back."""
    guard = still.start()
    permits = [guard.ask(first()).permit for _ in range(20)]
    assert permits[0] is not None
    assert permits[-1] is not None
    for _ in range(2):
        guard.give_back(permits[-1])
        guard.note(permits[-1], ended="closed")
    assert read_ledgers()[0].records[-1].ended == "unsent"
    assert taken(still.start()) == 1
    for file in still.files:
        file.unlink()
    assert taken(still.start(), most=20) == 20
    guard.give_back(permits[0])
    assert taken(still.start()) == 0


WRITING = {"read-only": 30, "full": 28}
"""The errors of copies that can only be read."""


@pytest.mark.parametrize("problem", [*WRITING, "symbolic link", "directory", "no directory"])
def test_a_copy_that_cannot_be_used_is_done_without(
    still: Host, problem: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The other one counts, and nothing is said; without both the process counts alone and says so once."""
    spoil(still, still.memory, problem, monkeypatch)
    assert sum(still.start().ask(first()).permit is not None for _ in range(25)) == 20
    assert not caplog.records
    spoil(still, still.disk, problem, monkeypatch)
    if problem in WRITING:
        assert taken(still.start()) == 0, "what cannot be written can be read"
        still.pass_time(2 * HOUR)
    guard = still.start()
    assert taken(guard) == 20
    assert taken(still.start()) == 20, "each process alone"
    assert said(caplog, 3 if problem in WRITING else 2)


def spoil(host: Host, directory: Path, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = directory / ledger.name_of(IDENTITY)
    if problem == "no directory":
        missing = os.environ[ledger_places.AUTO_VARIABLE].replace(str(directory), str(directory / "missing" / "twice"))
        monkeypatch.setenv(ledger_places.AUTO_VARIABLE, missing)
        return
    directory.mkdir(exist_ok=True, mode=0o700)
    if problem in ("symbolic link", "directory"):
        (directory.parent / "target").touch()
        file.unlink(missing_ok=True)
        file.symlink_to(directory.parent / "target") if problem == "symbolic link" else file.mkdir()
    else:
        create, write = os.open, ledger._write

        def opened(path: str, flags: int, mode: int = 0o777) -> int:
            if problem == "read-only" and str(path).startswith(str(directory)) and flags & os.O_ACCMODE:
                raise OSError(WRITING[problem], os.strerror(WRITING[problem]))
            return create(path, flags, mode)

        def full(copy: FileIO, *arguments: Any) -> None:
            if str(copy.name).startswith(str(directory)):
                raise OSError(WRITING[problem], os.strerror(WRITING[problem]))
            write(copy, *arguments)

        monkeypatch.setattr(os, "open", opened)
        monkeypatch.setattr(ledger, "_write", full)


def test_a_disk_that_takes_no_more_lines_counts(still: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """What decides is written in its place."""
    assert still.start().ask(first()).permit

    class Full(FileIO):
        def write(self, data: Any) -> int:
            if self.tell() >= SIZE:
                raise OSError(28, os.strerror(28))
            return super().write(data)

    with monkeypatch.context() as patch:
        patch.setattr(ledger, "FileIO", Full)
        assert taken(still.start()) == 19
    assert taken(still.start()) == 0


def test_a_permit_granted_alone_is_added_when_a_round_succeeds_again(
    still: Host, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, though this comes twice."""
    guard = still.start()
    assert guard.ask(first()).permit
    for alone in (5, 3):
        with monkeypatch.context() as full:
            spoil(still, still.memory, "full", full)
            spoil(still, still.disk, "full", full)
            assert sum(guard.ask(first()).permit is not None for _ in range(alone)) == alone
        assert guard.ask(first()).permit
    assert taken(still.start()) == 9
    (found,) = read_ledgers()
    assert (found.count, len(found.records)) == (20, 20)
    assert len(said(caplog, 1)) == 1


@pytest.mark.parametrize("which", [0, 1])
def test_a_locked_copy_ends_the_round(still: Host, which: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who holds it may have waited in vain for the other one, and be about to grant the same permit."""
    monkeypatch.setattr(ledger, "WAITS", 0.0)
    assert still.start().ask(first()).permit
    with FileIO(still.files[which]) as copy:
        assert ledger._locked(copy)
        permit = still.start().ask(first()).permit
        assert taken(still.start()) == 19, "what cannot be locked can be read"
    assert permit.number is None, "counted by this process alone"


def test_ledgers_whose_hour_is_over_go_when_a_new_one_is_made(still: Host) -> None:
    """Those in which nobody counted for two hours."""
    still.wall = time.time()  # as that of files
    for identity, hours in (("old", 2.1), ("indebted", 1.9)):
        Guard((identity, ""), AUTO).ask(Claim(Kind.FURTHER, 0.5, True, SITE))
        for directory in (still.memory, still.disk):
            os.utime(directory / ledger.name_of((identity, "")), (0, still.wall - hours * HOUR))
    (still.memory / "other").touch()
    os.utime(still.memory / "other", (0, 0))
    Guard(("young", ""), AUTO).ask(first())
    kept = {ledger.name_of((it, "")) for it in ("young", "indebted")}
    assert {file.name for file in still.files} == {*kept, "other"}


def test_a_directory_of_ones_own(still: Host, tmp_path: Path) -> None:
    """Is made if its parent is there; one that can be used by others, or cannot be made, is refused with the reason."""
    named = tmp_path / "ledgers"
    assert ledger_places.unusable(str(named)) is None
    Guard(IDENTITY, Place(str(named))).ask(first())
    assert [file.name for file in named.iterdir()] == [ledger.name_of(IDENTITY)]
    assert not still.files
    assert "cannot be made" in str(ledger_places.unusable(str(tmp_path / "a" / "b")))
    assert "absolute" in str(ledger_places.unusable("ledgers"))
    (tmp_path / "shared").mkdir(mode=0o700)
    (tmp_path / "shared").chmod(0o777)
    assert "other users" in str(ledger_places.unusable(str(tmp_path / "shared")))
    (tmp_path / "file").touch()
    assert "no directory" in str(ledger_places.unusable(str(tmp_path / "file")))
    (tmp_path / "link").symlink_to(named)
    assert "symbolic link" in str(ledger_places.unusable(str(tmp_path / "link")))


def a_link(directory: Path, _: pytest.MonkeyPatch) -> None:
    directory.rename(directory.with_name("elsewhere"))
    directory.symlink_to(directory.with_name("elsewhere"))


@pytest.mark.parametrize(
    "change",
    [
        lambda directory, _: directory.chmod(0o777),
        a_link,
        lambda _, monkeypatch: monkeypatch.setattr(os, "geteuid", lambda: 4711),  # it gave up its rights
    ],
    ids=["opened up", "a link", "of another user"],
)
def test_a_directory_that_was_good_is_refused_once_it_is_not(
    still: Host, tmp_path: Path, change: Callable[[Path, pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is looked at in each round: it may have become another one since."""
    guard = Guard(IDENTITY, Place(str(tmp_path / "named")))
    assert getattr(guard.ask(first()).permit, "number", None) == 1, "counted there"
    change(tmp_path / "named", monkeypatch)
    permit = guard.ask(first()).permit
    assert permit.number is None, "counted by this process alone"


def test_a_network_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the kernel lists it: locks there do not hold off other hosts, or nobody."""
    device = tmp_path.stat().st_dev
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"1 0 {os.major(device)}:{os.minor(device)} / / rw shared:1 - nfs4 server:/export rw\n")
    monkeypatch.setattr(ledger_places, "_MOUNTS", mounts)
    monkeypatch.setattr(ledger_places, "_network", ledger_places._network.__wrapped__)  # without its memory
    assert "nfs4" in str(ledger_places.unusable(str(tmp_path)))
    assert ledger_places.prepared(Place(str(tmp_path)))[0] == []


def test_auto_is_memory_and_the_temporary_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of this user; "off" is none."""
    monkeypatch.delenv(ledger_places.AUTO_VARIABLE)
    monkeypatch.setenv("TMPDIR", "/var/lib")
    user = f"safeproducer-{os.geteuid()}"
    assert ledger_places.directories(AUTO) == [f"/dev/shm/{user}", f"/var/lib/{user}"]  # noqa: S108
    monkeypatch.delenv("TMPDIR")
    assert ledger_places.directories(AUTO)[1] == os.path.join("/tmp", user)  # noqa: S108
    assert ledger_places.directories(Place("off")) == []


def test_a_ledger_tells_count_records_and_patterns(still: Host) -> None:
    """To `safeproducer doctor`: the producer ID, the line, and how each ended; no file is changed by it."""
    for number in range(5):
        guard = still.start()
        permit = guard.ask(first()).permit
        assert permit is not None
        guard.note(permit, 4000 + number)
        guard.note(permit, ended="closed")
        still.pass_time(10)
    before = [file.read_bytes() for file in still.files]
    (found,) = read_ledgers()
    assert found.name + ledger_places.SUFFIX == ledger.name_of(IDENTITY)
    assert (found.count, len(found.records), len(found.in_hour), found.problems) == (5, 5, 5, ())
    assert [(record.producer_id, record.ended, record.site) for record in found.records] == [
        (4000 + number, "closed", SITE) for number in range(5)
    ]
    assert found.used == pytest.approx(5 * 180 - 50)
    assert found.wait(20) == 0
    assert found.wait(1) == pytest.approx(850, abs=0.1)
    (pattern,) = found.patterns()
    assert pattern.count == 5
    assert [file.read_bytes() for file in still.files] == before
    still.files[0].write_bytes(b"nonsense")
    (found,) = read_ledgers()
    assert (found.count, found.problems) == (5, (f"{still.files[0]} is damaged",)), "the other one tells"
    still.pass_time(3601)
    (found,) = read_ledgers()
    assert (found.used, len(found.in_hour), len(found.records)) == (0, 0, 5), "records stay, for people"
    assert read_ledgers(Place("off")) == []


def test_the_reason_is_said_why_no_ledger_is_kept(still: Host) -> None:
    """Nothing while one directory can be used, or can be made."""
    assert not_kept() == []
    assert not still.memory.exists()
    still.memory.write_bytes(b"")
    assert not_kept() == []
    still.disk.write_bytes(b"")
    assert not_kept() == [f"{still.memory} is no directory", f"{still.disk} is no directory"]
    assert "switched off" in not_kept(Place("off"))[0]


HIGH = 720


def told_by_doctor(rate: float) -> int:
    (found,) = read_ledgers(AUTO)
    return found.taken(rate)


@pytest.mark.parametrize("count", [1, 3])
def test_a_permit_at_another_rate_is_one_permit(still: Host, count: int) -> None:
    """It uses more of the hour, or leaves a debt, and is told as one by all."""
    for _ in range(count):
        assert still.start().ask(first(1, enforce=False)).permit
    refused = still.start().ask(first(HIGH))
    assert (refused.permit, refused.in_hour, refused.by_site) == (None, count, count)
    assert told_by_doctor(HIGH) == count


@pytest.mark.parametrize("place", [AUTO, OFF])
def test_an_hour_that_others_used_up_is_no_churn(still: Host, place: Place) -> None:
    """One at 1 an hour, one at 720: the policy `warn` has nothing to tell."""
    guard = Guard(IDENTITY, place)
    assert guard.ask(first(1)).permit
    second = guard.ask(first(HIGH, enforce=False))
    assert second.permit is not None
    assert not second.over_limit


def test_a_count_that_was_damaged_names_nobody(still: Host) -> None:
    """The hour counts as used up; it is not known who used it."""
    assert still.start().ask(first()).permit
    damaged(still, b"x" * 1000)
    refused = still.start().ask(first())
    assert (refused.permit, refused.in_hour, refused.by_site) == (None, 0, 0)
    assert told_by_doctor(20) == 0


@pytest.mark.parametrize("place", [AUTO, OFF])
def test_permits_whose_lines_are_gone_are_told_by_the_hour(still: Host, place: Place) -> None:
    """With a limit above what is kept: 1 501 taken, which is one beyond the limit."""
    guard, rate = Guard(IDENTITY, place), 1500
    answers = [guard.ask(first(rate, enforce=False)) for _ in range(rate + 1)]
    assert [answer.over_limit for answer in answers[-2:]] == [False, True]
    assert answers[-1].in_hour == rate + 1
    if place == AUTO:
        assert told_by_doctor(rate) == rate + 1
        assert all(file.stat().st_size < 1.1 * permit_log.MOST for file in still.files), "they do not grow for ever"
