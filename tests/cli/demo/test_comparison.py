"""The oracle finds each planted fault, in the right column and partition, and nothing else."""

from collections import Counter
from collections.abc import Callable

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
            10 * partition + line - 1, name.encode(), value(name, line), fate="delivered", partition=partition
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
    """Partitions may be read back in any interleaving; two files in one partition may be interleaved as well."""
    mixed = [record for pair in zip(log[10:], log[:10], strict=True) for record in pair]
    assert flawless(compared(sent, mixed)[1])
    for record in sent.values():
        record.partition = 0
    assert flawless(compared(sent, [(0, text) for _, text in mixed])[1])


def fate(sent: Sent, log: Log, how: str) -> None:
    """Of the last record of file a, which is not in the log."""
    sent["a", 10].fate = how
    del log[9]


def unknown(sent: Sent, log: Log, *more: bytes) -> None:
    """One is in the log all the same, one is not and named no partition."""
    sent["a", 10].fate = sent["b", 9].fate = "unknown"
    sent["b", 9].partition = None
    log.remove((1, value("b", 9)))
    log += [(0, one) for one in more]


Rows = dict[int | None, dict[str, int]]
PLANTED: dict[str, tuple[Callable[[Sent, Log], object], Rows]] = {
    "a delivered record that is not in the log": (lambda _, log: log.remove((1, value("b", 4))), {1: {"lost": 1}}),
    "a second copy is, late as it is, no reordering": (
        lambda _, log: log.append((1, value("b", 4))),
        {1: {"duplicated": 1}},
    ),
    "two neighbours that changed places": (lambda _, log: log.insert(2, log.pop(3)), {0: {"reordered": 1}}),
    "the last line in front of all others": (lambda _, log: log.insert(0, log.pop(9)), {0: {"reordered": 9}}),
    "a changed byte": (
        lambda _, log: log.__setitem__(5, (0, value("a", 6) + b"!")),
        {0: {"unexpected": 1, "lost": 1}},
    ),
    "of unknown outcome": (unknown, {0: {"unknown": 1, "unconfirmed": 1}, None: {"unknown": 1}}),
    "of unknown outcome, and there twice": (
        lambda sent, log: unknown(sent, log, value("a", 10)),
        {0: {"unknown": 1, "unconfirmed": 1, "duplicated": 1}, None: {"unknown": 1}},
    ),
    **{
        f"{how}: all must be delivered": (lambda sent, log, how=how: fate(sent, log, how), {0: {how: 1}})
        for how in ("not_written", "refused", "unknown")
    },
    **{
        f"{how}, and there all the same": (
            lambda sent, _, how=how: setattr(sent["a", 10], "fate", how),
            {0: {how: 1, "contradicted": 1}},
        )
        for how in ("not_written", "refused")
    },
}


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_fault_is_found(planted: str, sent: Sent, log: Log) -> None:
    """In its partition and columns, and nowhere else. A refused record was never accepted."""
    plant, expected = PLANTED[planted]
    plant(sent, log)
    rows, total = compared(sent, log)
    assert {number: found for number, row in rows.items() if (found := faults(row))} == expected
    assert not flawless(total)
    assert total["accepted"] == 20 - ("refused" in expected.get(0, {}))


def test_in_steps_the_order_of_produce_counts(sent: Sent, log: Log) -> None:
    """Each record, its copies and its loss are counted in its step; strangers belong to none."""
    for record in sent.values():
        record.step = 2 - record.number % 2
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
