"""The search for the guilty rows of refused batches, without Kafka."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from safeproducer.spark.guilty_rows import GuiltyRows

Cut = Callable[[Sequence[int]], list[Sequence[int]]]


def search(rows: dict[object, list[int]], guilty: set[int], cut: Cut) -> tuple[list[int], list[int], int]:
    """As a broker that refuses each batch with a guilty row: (found, delivered in their order, rounds)."""
    looks: GuiltyRows[int] = GuiltyRows(rows)
    found: list[int] = []
    delivered: list[int] = []
    of = {row: partition for partition, those in rows.items() for row in those}
    rounds = 0
    while sent := looks.next_round():
        rounds += 1
        again: dict[object, list[int]] = {}
        for partition in rows:
            for batch in cut([row for row in sent if of[row] == partition]):
                if guilty & set(batch):
                    again.setdefault(partition, []).extend(batch)
                else:
                    delivered.extend(batch)
        found += looks.refused(again)
    assert looks.left() == []
    return found, delivered, rounds


def in_pieces_of(size: int) -> Cut:
    """librdkafka makes one batch of what is sent, or several."""
    return lambda rows: [rows[start : start + size] for start in range(0, len(rows), size)]


@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=60), st.sets(st.integers(0, 59)), st.sampled_from([1, 3, 7, 1000])
)
def test_exactly_the_guilty_rows_are_found_and_all_others_delivered_once(
    partitions: list[int], guilty: set[int], size: int
) -> None:
    """Whatever is guilty, and however the producer cuts what is sent."""
    rows: dict[object, list[int]] = {}
    for row, partition in enumerate(partitions):
        rows.setdefault(partition, []).append(row)
    bad = guilty & set(range(len(partitions)))
    found, delivered, _ = search(rows, bad, in_pieces_of(size))
    assert sorted(found) == sorted(bad)
    assert sorted(delivered) == sorted(set(range(len(partitions))) - bad)


@given(st.sets(st.integers(0, 59)), st.integers(2, 60), st.integers(1, 60))
def test_too_many_rows_are_told_from_guilty_ones(guilty: set[int], count: int, most: int) -> None:
    """A broker that takes `most` rows in a batch: what it had refused for that alone is named, and nothing else."""
    most = min(most, count - 1)
    looks: GuiltyRows[int] = GuiltyRows({"a": list(range(count))})
    while not looks.too_many and (sent := looks.next_round()):
        looks.refused({"a": sent} if guilty & set(sent) or len(sent) > most else {})
    together = [row for rows in looks.too_many for row in rows]
    assert max(map(len, looks.too_many), default=0) <= most
    assert not guilty & set(together)
    assert len(together) > most or not together
    assert together or guilty


def test_rows_that_were_too_many_go_in_one_go_once_that_is_known() -> None:
    """After that nothing is searched for; the caller makes smaller batches."""
    looks: GuiltyRows[int] = GuiltyRows({"a": list(range(64)), "b": list(range(64, 128))})
    while not looks.too_many:
        sent = looks.next_round()
        looks.refused({"a": sent[: len(sent) // 2], "b": sent[len(sent) // 2 :]} if len(sent) > 16 else {})
    assert looks.too_many == [[*range(8)], [*range(8, 16)], [*range(64, 72)], [*range(72, 80)]]
    looks.join()
    assert looks.next_round() == [*range(16, 64), *range(80, 128)]


def test_the_rows_of_a_partition_keep_their_order() -> None:
    """Those that are good go in the order in which they came."""
    _, delivered, _ = search({"a": list(range(500))}, {77}, in_pieces_of(1000))
    assert delivered == [row for row in range(500) if row != 77]


def test_one_guilty_row_among_many_takes_few_rounds() -> None:
    """Each costs a round trip: two for each halving at most."""
    _, _, rounds = search({"a": list(range(1000)), "b": list(range(1000, 2000))}, {519, 1998}, in_pieces_of(5000))
    assert rounds <= 20
