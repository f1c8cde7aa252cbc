"""The ledger of a host: what processes share, and what damage, clocks and other users do to it."""

from __future__ import annotations

import logging
import os
import random
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from safeproducer.policy import permits
from safeproducer.producer_ids import ledger, ledger_file, ledger_header, ledger_places, permit_log
from safeproducer.producer_ids.guard import AUTO, Guard, Kind, Place, Request
from safeproducer.producer_ids.ledger_file import RING_AT, WHOLE, LedgerCopy
from safeproducer.producer_ids.ledger_transaction import LedgerRound
from tests.contract.support import wait_until
from tests.producer_ids.host import IDENTITY, SITE, Host, first, taken

HOUR = 3600.0


def said(caplog: pytest.LogCaptureFixture, count: int) -> list[str]:
    """What is wrong with the ledger, as was logged: on a thread of its own, which may be late."""
    wait_until(lambda: len(caplog.records) >= count)
    time.sleep(0.05)
    texts = [record.getMessage() for record in caplog.records]
    assert all("counted by this process alone" in text for text in texts)
    return ["newer version" if "newer version" in text else text for text in texts]


def test_processes_share_the_hour(still: Host) -> None:
    """One after another, each with a guard of its own."""
    assert [still.start().ask(first(3)).permit is not None for _ in range(5)] == [True, True, True, False, False]
    refused = still.start().ask(first(3))
    assert refused.retry_after == pytest.approx(1200, abs=0.1)
    assert (refused.in_hour, refused.by_site) == (3, 3)
    still.pass_time(1201)
    assert still.start().ask(first(3)).permit


def test_different_rates_share_one_number(still: Host) -> None:
    """A grant at 1 an hour uses the hour up, and a process at 720 an hour then waits 5 s."""
    assert still.start().ask(first(1)).permit
    refused = still.start().ask(first(720))
    assert refused.permit is None
    assert refused.retry_after == pytest.approx(5, abs=0.1)
    still.pass_time(5.01)
    assert still.start().ask(first(720)).permit


def test_files_belong_to_their_user_alone(still: Host) -> None:
    """Directory 0700, files 0600, two of the same content, nothing half made left behind."""
    still.start().ask(first())
    assert len(still.files) == 2
    for file in still.files:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        assert file.stat().st_size == WHOLE
        assert IDENTITY[0].encode() not in file.read_bytes()
    assert still.files[0].read_bytes() == still.files[1].read_bytes()


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


def test_the_ledger_starts_anew_when_both_copies_are_deleted(still: Host) -> None:
    """As the documents say."""
    assert taken(still.start()) == 20
    for file in still.files:
        file.unlink()
    assert taken(still.start()) == 20


def test_the_first_64_bytes_inverted_refuse_the_next_start(still: Host) -> None:
    """Of every file: the records tell how far the hour was used."""
    assert taken(still.start()) == 20
    for file in still.files:
        data = file.read_bytes()
        file.write_bytes(bytes(255 - byte for byte in data[:64]) + data[64:])
    refused = still.start().ask(first())
    assert refused.permit is None
    assert refused.retry_after == pytest.approx(180, abs=1)
    still.pass_time(181)
    assert still.start().ask(first()).permit


def damaged(host: Host, content: bytes) -> None:
    for file in host.files:
        file.write_bytes(content)


def allowed(host: Host, content: bytes) -> int:
    damaged(host, content)
    return taken(host.start(), most=30)


def test_a_flipped_bit_of_the_header_grants_no_more(still: Host) -> None:
    """Each of its bits, in all copies."""
    guard = still.start()
    for _ in range(15):
        guard.ask(first())
    intact = still.files[0].read_bytes()
    assert allowed(still, intact) == 5
    for bit in range(ledger_header.SIZE * 8):
        content = bytearray(intact)
        content[bit // 8] ^= 1 << bit % 8
        assert allowed(still, bytes(content)) <= 5, bit


def test_flipped_bits_of_the_ring_change_no_decision(still: Host) -> None:
    """1 000 of them, one at a time; with a damaged header, too, nothing more is granted than from the intact file."""
    guard = still.start()
    for _ in range(15):
        guard.ask(first())
    intact = still.files[0].read_bytes()
    source = random.Random(17)
    for number in range(1_000):
        last = WHOLE if number % 2 else RING_AT + 20 * permit_log.SIZE  # half of them where records are
        bit = source.randrange(RING_AT * 8, last * 8)
        content = bytearray(intact)
        content[bit // 8] ^= 1 << bit % 8
        assert free_in(bytes(content), bytes(content)) == 5, bit
        content[5] ^= 1
        assert free_in(bytes(content), bytes(content)) <= 5, bit
        if number % 100 == 0:
            assert allowed(still, bytes(content)) <= 5, bit


def test_a_truncated_file_grants_no_more(still: Host) -> None:
    """With files, at every byte of the header, and at many behind it; the test below has more in memory."""
    guard = still.start()
    for _ in range(15):
        guard.ask(first())
    intact = still.files[0].read_bytes()
    for size in (*range(70), *range(RING_AT - 2, RING_AT + 2 * permit_log.SIZE, 29), *range(130, WHOLE, 997)):
        assert allowed(still, intact[:size]) <= 5, size


class CopyInMemory(LedgerCopy):
    """A copy without a file, of which a round reads as much as is left."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.content = ledger_header.decode(data[: ledger_header.SIZE])

    def read(self, offset: int, size: int) -> bytes:
        return self.data[offset : offset + size]

    def write(self, offset: int, data: bytes) -> None:
        self.data = self.data[:offset].ljust(offset, b"\0") + data + self.data[offset + len(data) :]

    def close(self) -> None:
        """There is nothing to close."""


def free_in(*copies: bytes) -> int:
    """How many permits the round of a ledger with these copies would grant."""
    with LedgerRound(lambda: [CopyInMemory(data) for data in copies]) as round_:
        return permits.room(round_.until, Kind.FIRST, 20, round_.now.boot, 30)


def test_a_file_that_is_truncated_anywhere_grants_no_more(still: Host) -> None:
    """Both copies or one; without the whole header, and with a damaged one, nothing that the records do not prove."""
    guard = still.start()
    for _ in range(15):
        guard.ask(first())
    intact = still.files[0].read_bytes()
    inverted = bytes(255 - byte for byte in intact[: ledger_header.SIZE]) + intact[ledger_header.SIZE :]
    assert (free_in(intact), free_in(inverted)) == (5, 5)
    for size in (*range(ledger_header.SIZE + 2), *range(ledger_header.SIZE + 2, WHOLE, 31)):
        left = intact[:size]
        assert free_in(left, left) == (5 if size >= ledger_header.SIZE else 0), size
        assert free_in(intact, left) == 5, size
    for size in (*range(ledger_header.SIZE), *range(RING_AT, RING_AT + 17 * permit_log.SIZE), WHOLE - 1):
        assert free_in(inverted[:size]) == 0, size


class KilledError(BaseException):
    """Nothing that comes behind it is done."""


def test_a_process_killed_between_two_writes_has_counted_nothing(still: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records are written first, and what decides last."""
    guard, written = still.start(), 0
    assert all(guard.ask(first()).permit for _ in range(3))
    real = os.pwrite

    def once(*arguments: Any) -> int:
        nonlocal written
        written += 1
        if written > 1:
            raise KilledError
        return real(*arguments)

    with monkeypatch.context() as killed:
        killed.setattr(os, "pwrite", once)
        with pytest.raises(KilledError):
            guard.ask(first())
    assert taken(still.start()) == 17


def test_random_content_counts_as_a_used_hour(still: Host) -> None:
    """And is a ledger again afterwards."""
    still.start().ask(first())
    damaged(still, random.Random(3).randbytes(WHOLE))
    guard = still.start()
    assert guard.ask(first()).retry_after == pytest.approx(180, abs=1)
    still.pass_time(181)
    assert still.start().ask(first()).permit


def test_a_newer_version_is_left_alone(still: Host, caplog: pytest.LogCaptureFixture) -> None:
    """The process counts alone then, and says so once."""
    still.start().ask(first())
    content = made_newer(still)
    guard = still.start()
    with caplog.at_level(logging.WARNING, "safeproducer"):
        assert taken(guard) == 20
    assert [file.read_bytes() for file in still.files] == [content] * 2
    assert said(caplog, 1) == ["newer version"]


def made_newer(host: Host) -> bytes:
    """What all files are then."""
    content = bytearray(host.files[0].read_bytes())
    content[4] = ledger_header.VERSION + 1
    content[60:64] = ledger_header.zlib.crc32(content[:60]).to_bytes(4, "little")
    damaged(host, bytes(content))
    return bytes(content)


def test_a_newer_version_is_not_deleted_either(still: Host) -> None:
    """When its hour is over, and when there are too many: nobody here knows what is in it."""
    still.start().ask(first())
    content, files = made_newer(still), still.files
    still.pass_time(3 * HOUR)
    for number in range(70):
        Guard((f"other-{number}", ""), AUTO).ask(first())
    assert [file.read_bytes() for file in files] == [content] * 2


@pytest.mark.parametrize("step", [86_400.0, -86_400.0, 365 * 86_400.0, -365 * 86_400.0])
def test_steps_of_the_clock_of_the_day_change_nothing(still: Host, step: float) -> None:
    """The boot clock counts."""
    assert taken(still.start()) == 20
    still.wall += step
    assert taken(still.start()) == 0
    still.pass_time(181)
    assert taken(still.start()) == 1


def test_another_boot_goes_on_by_the_clock_of_the_day(still: Host) -> None:
    """The copy on the disk is what is left."""
    assert taken(still.start()) == 20
    still.reboot(seconds=30)
    assert taken(still.start()) == 0
    still.pass_time(151)
    assert taken(still.start()) == 1


@pytest.mark.parametrize("step", [-86_400.0, -365 * 86_400.0])
def test_a_clock_set_back_before_another_boot_costs_two_hours_at_most(still: Host, step: float) -> None:
    """Nobody is refused for a year."""
    assert taken(still.start()) == 20
    still.wall += step
    still.reboot(seconds=0)
    assert still.start().ask(first()).permit is None
    still.pass_time(HOUR + 181)
    assert still.start().ask(first()).permit


def test_known_transactional_ids_are_shared(still: Host) -> None:
    """A fixed one is counted once on this host; only its hash is kept, in each copy."""
    assert still.start().ask(first(2, transactional="orders")).permit
    for _ in range(5):
        permit = still.start().ask(first(2, transactional="orders")).permit
        assert permit is not None
        assert permit.after == permit.before
    still.files[0].unlink()
    assert taken(still.start(), 2) == 1
    assert still.start().ask(first(2, transactional="orders")).permit
    assert still.start().ask(first(2, transactional="random-1")).permit is None
    assert all(b"orders" not in file.read_bytes() for file in still.files)


def test_a_transactional_id_whose_permit_went_back_is_forgotten_by_all(still: Host) -> None:
    """In both copies: the next process that writes with it is counted."""
    here = still.start()
    unused = here.ask(first(2, transactional="orders")).permit
    assert unused is not None
    here.give_back(unused)
    there = still.start().ask(first(2, transactional="orders")).permit
    assert there is not None
    assert there.after > there.before
    again = still.start().ask(first(2, transactional="orders")).permit
    assert again is not None
    assert again.after == again.before


def test_random_transactional_ids_do_not_push_out_one_that_comes_back(still: Host) -> None:
    """Five thousand of them, at any rate."""
    guard = still.start()
    for number in range(5000):
        guard.ask(first(1e6, transactional=f"random-{number}"))
        if number % 50 == 0:
            still.pass_time(1)
            guard.ask(first(1e6, transactional="orders"))
    still.pass_time(3 * HOUR)
    assert taken(still.start(), 1) == 1
    assert still.start().ask(first(1, transactional="orders")).permit


def test_a_permit_that_is_given_back_is_free_for_others(still: Host) -> None:
    """Once: a second count, after both copies were deleted, gets nothing back."""
    guard = still.start()
    permits = [guard.ask(first()).permit for _ in range(20)]
    last = permits[-1]
    assert last is not None
    guard.give_back(last)
    assert taken(still.start()) == 1
    for file in still.files:
        file.unlink()
    assert taken(still.start(), most=20) == 20
    assert permits[0] is not None
    guard.give_back(permits[0])
    assert taken(still.start()) == 0


def test_hundred_clean_starts_that_sent_nothing_use_no_permit(still: Host) -> None:
    """And none of them is told."""
    for _ in range(100):
        guard = still.start()
        answer = guard.ask(first())
        assert answer.permit is not None
        assert not answer.over_limit
        guard.give_back(answer.permit)
        still.pass_time(1)
    assert taken(still.start()) == 20


def test_warning_counts_and_names_from_the_first_beyond_the_limit(still: Host) -> None:
    """Every 10 s with a limit of 100: from the 101st on, though there is room for a few more."""
    for number in range(1, 106):
        answer = still.start().ask(first(100, enforce=False))
        assert answer.permit is not None
        assert answer.over_limit == (number > 100), number
        still.pass_time(10)
    assert answer.in_hour == 105


@pytest.mark.parametrize(
    "problem", ["read-only", "foreign owner", "symbolic link", "directory", "no directory", "full"]
)
def test_a_copy_that_cannot_be_used_is_done_without(
    still: Host, problem: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The other one counts, and nothing is said; without both the process counts alone and says so once."""
    spoil(still, still.memory, problem, monkeypatch)
    assert sum(still.start().ask(first()).permit is not None for _ in range(25)) == 20
    assert not caplog.records
    spoil(still, still.disk, problem, monkeypatch)
    if problem == "full":
        assert taken(still.start()) == 0, "what cannot be written can be read"
        still.pass_time(2 * HOUR)
    guard = still.start()
    assert taken(guard) == 20
    assert taken(still.start()) == 20, "each process alone"
    assert len(said(caplog, 2)) == 2


def spoil(host: Host, directory: Path, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = ledger.name_of(IDENTITY)
    if problem == "no directory":
        monkeypatch.setenv(
            ledger_places.AUTO_VARIABLE,
            os.environ[ledger_places.AUTO_VARIABLE].replace(str(directory), str(directory / "missing" / "twice")),
        )
        return
    directory.mkdir(exist_ok=True)
    if problem == "symbolic link":
        target = directory.parent / f"target-{directory.name}"
        target.write_bytes(b"")
        (directory / name).unlink(missing_ok=True)
        (directory / name).symlink_to(target)
    elif problem == "directory":
        (directory / name).unlink(missing_ok=True)
        (directory / name).mkdir()
    elif problem == "foreign owner":
        real = os.fstat

        def foreign(descriptor: int) -> os.stat_result:
            found = list(real(descriptor))
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            return os.stat_result([*found[:4], found[4] + (path.startswith(str(directory))), *found[5:]])

        monkeypatch.setattr(os, "fstat", foreign)
    elif problem in ("read-only", "full"):
        code = {"read-only": 30, "full": 28}[problem]
        write, create = os.pwrite, os.open

        def pwrite(descriptor: int, data: bytes, offset: int) -> int:
            if os.readlink(f"/proc/self/fd/{descriptor}").startswith(str(directory)):
                raise OSError(code, os.strerror(code))
            return write(descriptor, data, offset)

        def opened(path: str, flags: int, mode: int = 0o777) -> int:
            if problem == "read-only" and str(path).startswith(str(directory)) and flags & os.O_ACCMODE:
                raise OSError(code, os.strerror(code))
            return create(path, flags, mode)

        monkeypatch.setattr(os, "pwrite", pwrite)
        monkeypatch.setattr(os, "open", opened)


def test_a_permit_granted_alone_is_added_when_a_round_succeeds_again(
    still: Host, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With its records."""
    guard = still.start()
    assert guard.ask(first()).permit
    with monkeypatch.context() as full:
        spoil(still, still.memory, "full", full)
        spoil(still, still.disk, "full", full)
        assert sum(guard.ask(first()).permit is not None for _ in range(5)) == 5
    assert guard.ask(first()).permit
    assert taken(still.start()) == 13
    records = still.start()._ledger.records() if still.start()._ledger else []
    assert len(records) in (0, 20)
    assert len({record.number for record in permit_log.records(still.files[0].read_bytes()[RING_AT:])}) == 20
    assert len(said(caplog, 1)) == 1


def test_a_permit_granted_alone_goes_back_when_the_ledger_has_it(still: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its record is looked for: the process did not know its number when it granted it."""
    monkeypatch.setattr("safeproducer.producer_ids.ledger.WAITS", 0.0)
    guard = still.start()
    with ledger.Ledger(IDENTITY, AUTO).round():
        alone = guard.ask(first()).permit
    assert alone is not None
    assert alone.number is None
    assert guard.ask(first()).permit
    guard.give_back(alone)
    assert taken(still.start()) == 19


def test_ledgers_whose_hour_is_over_go_when_a_new_one_is_made(still: Host) -> None:
    """And 64 stay at most."""
    Guard(("old", ""), AUTO).ask(first(1))
    still.pass_time(1.5 * HOUR)
    Guard(("young", ""), AUTO).ask(first())
    Guard(("indebted", ""), AUTO).ask(Request(Kind.FURTHER, 1, True, SITE))
    names = {file.name for file in still.files}
    assert names == {ledger.name_of((identity, "")) for identity in ("young", "indebted")}
    for number in range(80):
        Guard((f"fake-{number}", ""), AUTO).ask(first())
    assert len(list(still.memory.iterdir())) <= ledger_file.MOST
    assert len(list(still.disk.iterdir())) <= ledger_file.MOST
    assert (still.disk / ledger.name_of(("fake-79", ""))).exists()


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
