"""The oracle finds each planted fault, in the right column and partition, and nothing else."""

from collections import Counter

import pytest

from safeproducer.cli.demo.command import verdict
from safeproducer.cli.demo.experiment import Line, compare, flawless, total_of

Log = list[tuple[int, bytes]]
Sent = dict[tuple[str, int], Line]


def value(source: str, line: int) -> bytes:
    return f"{source}\t{line}\ttext".encode()


@pytest.fixture
def sent() -> Sent:
    """Ten lines of two files, all delivered: file a to partition 0, file b to partition 1."""
    return {
        (name, line): Line(
            10 * partition + line, name.encode(), value(name, line), fate="delivered", partition=partition
        )
        for partition, name in enumerate("ab")
        for line in range(1, 11)
    }


@pytest.fixture
def log() -> Log:
    """The log that belongs to it."""
    return [(partition, value(name, line)) for partition, name in enumerate("ab") for line in range(1, 11)]


def compared(sent: Sent, log: Log) -> tuple[dict[int | None, Counter[str]], Counter[str]]:
    rows = compare(sent.values(), log)
    return dict(rows), total_of(rows)


def faults(row: Counter[str]) -> dict[str, int]:
    harmless = {"accepted", "delivered", "in_log"}
    return {name: count for name, count in row.items() if count and name not in harmless}


def test_a_true_log_is_flawless(sent: Sent, log: Log) -> None:
    """Each record once and in order is no fault, in every partition."""
    rows, total = compared(sent, log)
    assert flawless(total)
    assert (total["accepted"], total["delivered"], total["in_log"]) == (20, 20, 20)
    assert {number: row["in_log"] for number, row in rows.items()} == {0: 10, 1: 10}


def test_order_between_partitions_does_not_matter(sent: Sent, log: Log) -> None:
    """Partitions may be read back in any interleaving."""
    mixed = [record for pair in zip(log[10:], log[:10], strict=True) for record in pair]
    assert flawless(compared(sent, mixed)[1])


def test_a_planted_loss_is_found(sent: Sent, log: Log) -> None:
    """A delivered record that is not in the log is lost."""
    log.remove((1, value("b", 4)))
    rows, total = compared(sent, log)
    assert faults(rows[1]) == {"lost": 1}
    assert faults(rows[0]) == {}
    assert not flawless(total)


def test_a_planted_duplicate_is_found(sent: Sent, log: Log) -> None:
    """A second copy is a duplicate and, late as it is, no reordering."""
    log.append((1, value("b", 4)))
    rows, total = compared(sent, log)
    assert faults(rows[1]) == {"duplicated": 1}
    assert not flawless(total)


def test_a_planted_reordering_is_found(sent: Sent, log: Log) -> None:
    """Two neighbours that changed places are one reordered record."""
    log[2], log[3] = log[3], log[2]
    rows, total = compared(sent, log)
    assert faults(rows[0]) == {"reordered": 1}
    assert not flawless(total)


def test_every_record_behind_a_later_one_is_reordered(sent: Sent, log: Log) -> None:
    """The last line moved to the front puts all the others behind it."""
    log.insert(0, log.pop(9))
    assert faults(compared(sent, log)[0][0]) == {"reordered": 9}


def test_a_foreign_or_damaged_record_is_unexpected(sent: Sent, log: Log) -> None:
    """A changed byte is one unexpected record and one lost."""
    log[5] = (0, value("a", 6) + b"!")
    rows, total = compared(sent, log)
    assert faults(rows[0]) == {"unexpected": 1, "lost": 1}
    assert not flawless(total)


def test_an_unknown_outcome_may_be_in_the_log_once(sent: Sent, log: Log) -> None:
    """Records of unknown outcome are unconfirmed when present, no further fault when missing, duplicated when twice."""
    sent["a", 10].fate = sent["b", 9].fate = "unknown"
    sent["b", 9].partition = None
    log.remove((1, value("b", 9)))
    rows, _ = compared(sent, log)
    assert faults(rows[0]) == {"unknown": 1, "unconfirmed": 1}
    assert faults(rows[None]) == {"unknown": 1}
    log.append((0, value("a", 10)))
    assert faults(compared(sent, log)[0][0]) == {"unknown": 1, "unconfirmed": 1, "duplicated": 1}


@pytest.mark.parametrize("fate", ["not_written", "refused"])
def test_a_record_that_is_not_written_must_not_be_in_the_log(fate: str, sent: Sent, log: Log) -> None:
    """Found there, it contradicts what was reported; a refused record was never accepted."""
    sent["a", 10].fate = fate
    rows, _ = compared(sent, log)
    assert faults(rows[0]) == {fate: 1, "contradicted": 1}
    assert rows[0]["accepted"] == (10 if fate == "not_written" else 9)
    del log[9]
    assert faults(compared(sent, log)[0][0]) == {fate: 1}


@pytest.mark.parametrize("fate", ["not_written", "refused", "unknown"])
def test_an_undelivered_record_spoils_the_verdict(fate: str, sent: Sent, log: Log) -> None:
    """Nothing lost is not enough: all must be delivered."""
    sent["a", 10].fate = fate
    del log[9]
    assert not flawless(compared(sent, log)[1])


def test_in_steps_the_order_of_produce_counts(sent: Sent, log: Log) -> None:
    """Each record, its copies and its loss are counted in its step; strangers belong to none."""
    for record in sent.values():
        record.step = 1 + record.number % 2
    assert flawless(compared(sent, log)[1])
    log.remove((1, value("b", 4)))
    log += [(1, value("a", 2)), (0, b"stranger"), (1, value("b", 10))]
    rows = compare(sent.values(), log, by_step=True)
    assert {row: faults(counts) for row, counts in rows.items()} == {
        1: {"lost": 1, "duplicated": 2},
        2: {},
        None: {"unexpected": 1},
    }
    other_file = [(0, value("b", 1)), *((0, value("a", line)) for line in (1, 2))]
    assert faults(total_of(compare(sent.values(), other_file, by_step=True)))["reordered"] == 2


def test_the_sentence_counts_what_is_zero(sent: Sent, log: Log) -> None:
    """Lost, duplicated and reordered are the point, whatever the width of the terminal."""

    def sentence() -> str:
        return verdict(compared(sent, log)[1], in_steps=False)

    assert sentence().startswith("All 20 records were delivered, 0 lost, 0 duplicated, 0 reordered; the log ")
    log.remove((1, value("b", 9)))
    assert sentence() == "Of 20 records 20 were delivered: 1 lost, 0 duplicated, 0 reordered."
