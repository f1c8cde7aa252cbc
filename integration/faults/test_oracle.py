"""The oracle notices every kind of lie: falsified logs and falsified accounts."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from integration.faults.account import Account, Told
from integration.faults.oracle import judge
from integration.faults.records import Records

RECORDS = Records(count=600, streams=3)
NOT_WRITTEN, UNKNOWN_THERE, UNKNOWN_AWAY, REFUSED = 31, 62, 93, 124

Log = list[list[bytes | None]]


class Message:
    """What the account asks of a message."""

    def __init__(self, value: bytes, partition: int) -> None:
        self._value, self._partition = value, partition

    def value(self) -> bytes:
        return self._value

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return 7


class Error:
    """An error, with or without an outcome."""

    def __init__(self, outcome: str | None = None) -> None:
        if outcome is not None:
            self.outcome = outcome

    def name(self) -> str:
        return "_MSG_TIMED_OUT"


def report(account: Account, index: int, error: Error | None = None) -> None:
    account.report(error, Message(account.records.value(index), account.records.stream(index)))


def honest(records: Records = RECORDS) -> tuple[Account, Log]:
    """An account and a log that agree; one record of each outcome besides the delivered."""
    account = Account(records)
    log: Log = [[] for _ in range(3)]
    errors = {NOT_WRITTEN: Error("not_written"), UNKNOWN_THERE: Error("unknown"), UNKNOWN_AWAY: Error()}
    for index in range(records.count):
        account.accept(index)
        if index == REFUSED:
            account.take_back(index, RuntimeError())
            continue
        report(account, index, errors.get(index))
        if index not in (NOT_WRITTEN, UNKNOWN_AWAY):
            log[records.stream(index) % 3].append(records.value(index))
    return account, log


@pytest.mark.parametrize("records", [RECORDS, replace(RECORDS, streams=17, keyed=True)], ids=["partitions", "keys"])
def test_honest_account_is_believed(records: Records) -> None:
    """Where account and log agree nothing is broken and everybody is counted once."""
    verdict = judge(*honest(records))
    assert verdict.broken == []
    assert verdict.examples == ()
    assert (verdict.accepted, verdict.delivered, verdict.not_written) == (599, 596, 1)
    assert (verdict.unknown_present, verdict.unknown_absent, verdict.unknown, verdict.refused) == (1, 1, 2, 1)


FOREIGN, DAMAGED = b"b/0/5/".ljust(100, b"."), b"a/0/5/".ljust(99, b".")
LIES: list[tuple[str, Callable[[Account, Log], object], str]] = [
    ("lose", lambda _, log: log[0].pop(50), "lost"),
    ("duplicate", lambda _, log: log[0].insert(50, log[0][50]), "duplicated"),
    ("duplicate later", lambda _, log: log[0].append(log[0][50]), "duplicated"),
    ("duplicate an unknown one", lambda _, log: log[2].append(RECORDS.value(UNKNOWN_THERE)), "duplicated"),
    ("swap", lambda _, log: log[1].insert(10, log[1].pop(11)), "reordered"),
    ("be late", lambda _, log: log[0].append(RECORDS.value(UNKNOWN_AWAY)), "reordered"),
    ("write what is not written", lambda _, log: log[1].insert(10, RECORDS.value(NOT_WRITTEN)), "phantom"),
    ("write what is refused", lambda _, log: log[1].insert(40, RECORDS.value(REFUSED)), "phantom"),
    ("write elsewhere", lambda _, log: log[2].insert(50, log[0].pop(50)), "misplaced"),
    ("write a foreign one", lambda _, log: log[0].insert(5, FOREIGN), "foreign"),
    ("write a damaged one", lambda _, log: log[0].insert(5, DAMAGED), "foreign"),
    ("forget", lambda account, _: account.told.__setitem__(7, Told.ACCEPTED), "unreported"),
    ("report twice", lambda account, _: report(account, 7), "reported again"),
    ("report a stranger", lambda account, _: account.report(None, Message(b"?", 0)), "reported again"),
]


@pytest.mark.parametrize(("falsify", "kind"), [pytest.param(lie, kind, id=name) for name, lie, kind in LIES])
def test_falsified_account_is_noticed(falsify: Callable[[Account, Log], object], kind: str) -> None:
    """Each kind of disagreement is counted, alone, and shown by an example where a record can be named."""
    account, log = honest()
    falsify(account, log)
    verdict = judge(account, log)
    assert verdict.broken == [f"1 {kind}"]
    assert len(verdict.examples) == (0 if kind in ("foreign", "reported again") else 1)


def test_key_in_two_partitions_is_noticed() -> None:
    """A keyed stream lives where its first record was found."""
    account, log = honest(replace(RECORDS, streams=17, keyed=True))
    log[1].insert(0, log[0].pop())
    assert "1 misplaced" in judge(account, log).broken


def test_outcome_of_a_string_enum_is_understood() -> None:
    """The outcome may be a str enum; what is no `not_written` is unknown."""
    account = Account(RECORDS)
    outcomes: list[Any] = ["not_written", "unknown", None, "delivered"]
    for index, outcome in enumerate(outcomes):
        account.accept(index)
        report(account, index, Error(outcome))
    assert list(account.told[:4]) == [Told.NOT_WRITTEN, Told.UNKNOWN, Told.UNKNOWN, Told.UNKNOWN]
    assert account.errors == {"_MSG_TIMED_OUT": 4}


def test_values_name_their_record() -> None:
    """Every value belongs to exactly one record; nothing else is taken for one."""
    assert [RECORDS.index(RECORDS.value(index)) for index in range(600)] == list(range(600))
    assert len({RECORDS.value(index) for index in range(600)}) == 600
    for stranger in (None, b"", b"a/0/0", b"a/0/200/".ljust(100, b"."), b"a/-1/1/".ljust(100, b"."), b"a/00/1/"):
        assert RECORDS.index(stranger) is None
