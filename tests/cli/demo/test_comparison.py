"""The oracle finds each planted fault, in the right column and partition, and nothing else."""

from dataclasses import asdict
from typing import Any

import pytest

from safeproducer.cli.common.stop import StopRequest
from safeproducer.cli.demo.experiment import identify
from safeproducer.cli.demo.proof import Counts, Fate, Sent, compare
from safeproducer.cli.demo.result import Result

Log = list[tuple[int, bytes]]


def value(source: str, line: int) -> bytes:
    return f"{source}\t{line}\ttext".encode()


@pytest.fixture
def sent() -> dict[bytes, Sent]:
    """Ten lines of two files, all delivered: file a to partition 0, file b to partition 1."""
    return {
        value(name, line): Sent(Fate.DELIVERED, partition)
        for partition, name in enumerate("ab")
        for line in range(1, 11)
    }


@pytest.fixture
def log() -> Log:
    """The log that belongs to it."""
    return [(partition, value(name, line)) for partition, name in enumerate("ab") for line in range(1, 11)]


def faults(row: Counts) -> dict[str, int]:
    harmless = {"accepted", "delivered", "in_log"}
    return {name: count for name, count in asdict(row).items() if count and name not in harmless}


def test_a_true_log_is_flawless(sent: dict[bytes, Sent], log: Log) -> None:
    """Each record once and in order is no fault, in every partition."""
    rows, total = compare(sent, log, identify)
    assert total.flawless
    assert (total.accepted, total.delivered, total.in_log) == (20, 20, 20)
    assert {number: row.in_log for number, row in rows.items()} == {0: 10, 1: 10}


def test_order_between_partitions_does_not_matter(sent: dict[bytes, Sent], log: Log) -> None:
    """Partitions may be read back in any interleaving."""
    mixed = [record for pair in zip(log[10:], log[:10], strict=True) for record in pair]
    assert compare(sent, mixed, identify)[1].flawless


def test_a_planted_loss_is_found(sent: dict[bytes, Sent], log: Log) -> None:
    """A delivered record that is not in the log is lost."""
    log.remove((1, value("b", 4)))
    rows, total = compare(sent, log, identify)
    assert faults(rows[1]) == {"lost": 1}
    assert faults(rows[0]) == {}
    assert not total.flawless


def test_a_planted_duplicate_is_found(sent: dict[bytes, Sent], log: Log) -> None:
    """A second copy is a duplicate and, late as it is, no reordering."""
    log.append((1, value("b", 4)))
    rows, total = compare(sent, log, identify)
    assert faults(rows[1]) == {"duplicated": 1}
    assert not total.flawless


def test_a_planted_reordering_is_found(sent: dict[bytes, Sent], log: Log) -> None:
    """Two neighbours that changed places are one reordered record."""
    log[2], log[3] = log[3], log[2]
    rows, total = compare(sent, log, identify)
    assert faults(rows[0]) == {"reordered": 1}
    assert not total.flawless


def test_every_record_behind_a_later_one_is_reordered(sent: dict[bytes, Sent], log: Log) -> None:
    """The last line moved to the front puts all the others behind it."""
    log.insert(0, log.pop(9))
    assert faults(compare(sent, log, identify)[0][0]) == {"reordered": 9}


def test_a_foreign_or_damaged_record_is_unexpected(sent: dict[bytes, Sent], log: Log) -> None:
    """A changed byte is one unexpected record and one lost."""
    log[5] = (0, value("a", 6) + b"!")
    rows, total = compare(sent, log, identify)
    assert faults(rows[0]) == {"unexpected": 1, "lost": 1}
    assert not total.flawless


def test_an_unknown_outcome_may_be_in_the_log_once(sent: dict[bytes, Sent], log: Log) -> None:
    """Records of unknown outcome are unconfirmed when present, no further fault when missing, duplicated when twice."""
    sent[value("a", 10)] = Sent(Fate.UNKNOWN, 0)
    sent[value("b", 9)] = Sent(Fate.UNKNOWN, None)
    log.remove((1, value("b", 9)))
    rows, _ = compare(sent, log, identify)
    assert faults(rows[0]) == {"unknown": 1, "unconfirmed": 1}
    assert faults(rows[None]) == {"unknown": 1}
    log.append((0, value("a", 10)))
    assert faults(compare(sent, log, identify)[0][0]) == {"unknown": 1, "unconfirmed": 1, "duplicated": 1}


@pytest.mark.parametrize("fate", [Fate.NOT_WRITTEN, Fate.REFUSED])
def test_a_record_that_is_not_written_must_not_be_in_the_log(fate: Fate, sent: dict[bytes, Sent], log: Log) -> None:
    """Found there, it contradicts what was reported; a refused record was never accepted."""
    sent[value("a", 10)] = Sent(fate, 0)
    rows, _ = compare(sent, log, identify)
    assert faults(rows[0]) == {fate.value: 1, "contradicted": 1}
    assert rows[0].accepted == (10 if fate is Fate.NOT_WRITTEN else 9)
    del log[9]
    assert faults(compare(sent, log, identify)[0][0]) == {fate.value: 1}


@pytest.mark.parametrize("fate", [Fate.NOT_WRITTEN, Fate.REFUSED, Fate.UNKNOWN])
def test_an_undelivered_record_spoils_the_verdict(fate: Fate, sent: dict[bytes, Sent], log: Log) -> None:
    """Nothing lost is not enough: all must be delivered."""
    sent[value("a", 10)] = Sent(fate, 0)
    del log[9]
    assert not compare(sent, log, identify)[1].flawless


def test_rows_may_be_anything_that_a_value_tells(sent: dict[bytes, Sent], log: Log) -> None:
    """Each record, its copies and its loss are counted in the row that is asked for; strangers may have none."""
    log.remove((1, value("b", 4)))
    log += [(1, value("a", 2)), (0, b"stranger")]
    rows, total = compare(sent, log, identify, lambda _, found: int(found.split(b"\t")[1]) if b"\t" in found else None)
    assert {row: faults(counts) for row, counts in rows.items() if faults(counts)} == {
        4: {"lost": 1},
        2: {"duplicated": 1},
        None: {"unexpected": 1},
    }
    assert (total.accepted, total.in_log) == (20, 21)


def test_the_sentence_counts_what_is_zero(sent: dict[bytes, Sent], log: Log) -> None:
    """Lost, duplicated and reordered are the point, whatever the width of the terminal."""
    experiment: Any = None

    def sentence() -> str:
        rows, total = compare(sent, log, identify)
        return Result("here", "t", rows, total, experiment, 0.0, (), StopRequest()).sentence()

    assert sentence().startswith("All 20 records were delivered, 0 lost, 0 duplicated, 0 reordered; the log ")
    log.remove((1, value("b", 9)))
    assert sentence() == "Of 20 records 20 were delivered: 1 lost, 0 duplicated, 0 reordered."
