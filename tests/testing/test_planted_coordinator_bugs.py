"""Each rule of the coordinator of transactions is broken here on purpose, and a test of the suite that also runs on
Kafka must find it."""

from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest

from safeproducer.testing import FakeCluster
from safeproducer.testing.codec import RefusedError
from safeproducer.testing.fake.handlers import transactions as handlers
from safeproducer.testing.fake.rules.groups import Group
from safeproducer.testing.fake.rules.transactions import OpenTransactions, State, Transaction
from safeproducer.testing.fake.state import markers
from tests.conformance import target, test_groups
from tests.conformance import test_transactions as suite
from tests.conformance.target import Target
from tests.conformance.test_transactions import ABORT, COMMIT, Tx
from tests.testing.raw import RawClient

SOON = 0.5
Find = Callable[[Tx, Target, RawClient], None]

real_begin, real_prepare, real_end = Transaction.begin, Transaction.prepare, Transaction.end
real_admit = handlers.admit
real_write, real_end_transaction = markers.write, Group.end_transaction


def no_new_epoch(self: Transaction, new_id: Any) -> None:
    self.epoch = max(self.epoch, 0)


def forgetting_what_is_open(self: Transaction, *asked: Any) -> None:
    self.state = State.EMPTY
    real_begin(self, *asked)


def no_epoch_of_an_end(self: Transaction, *, commit: bool, raises: bool) -> None:
    real_prepare(self, commit=commit, raises=False)
    self.ended = (self.producer_id, self.epoch) if raises else None


def no_fence(self: Transaction, producer_id: int, epoch: int) -> None:
    if producer_id != self.producer_id:
        raise RefusedError(handlers.INVALID_PRODUCER_ID_MAPPING)


def no_fence_of_an_end(self: Transaction, producer_id: int, epoch: int, *, commit: bool, raises: bool) -> bool:
    return real_end(self, producer_id, self.epoch, commit=commit, raises=raises)


def no_marker(cluster: Any, topic: Any, partition: Any, producer: tuple[int, int], *rest: Any, commit: bool) -> None:
    partition.transactions.end(producer[0], partition.log.end_offset, commit=commit)


def no_abort(cluster: Any, topic: Any, partition: Any, producer: tuple[int, int], *rest: Any, commit: bool) -> None:
    real_write(cluster, topic, partition, producer, *rest, commit=True)


def with_an_abort_too(self: Group, producer_id: int, *, commit: bool) -> None:
    real_end_transaction(self, producer_id, commit=True)


def verified(request: Any, *place: Any) -> int:
    return real_admit(request, *place) and 0


def taken(state: str) -> Find:
    return lambda tx, *_: suite.test_who_begins_anew_raises_the_epoch(tx, state)


def of_version_two(test: Callable[..., None], *row: Any) -> Find:
    return lambda tx, _, client: test(Tx(client, tx.topic, 5), *row)


def readers(tx: Tx, cluster: Target, client: RawClient) -> None:
    suite.test_what_readers_see(cluster, client, tx)


def offsets(committed: bool) -> Find:
    def find(tx: Tx, _: Target, client: RawClient) -> None:
        assert test_groups.commit(client, tx.topic, 1, group_id=tx.group) == 0
        tx.in_state("Empty")
        suite.test_offsets_of_a_transaction(tx, client, tx.topic, committed)

    return find


def offsets_outside(tx: Tx, *_: object) -> None:
    tx.in_state("Empty")
    suite.test_offsets_of_a_group_that_was_not_added(tx, 4, suite.ABORTABLE)


ends_of_version_two = of_version_two(suite.test_ends, "Ongoing", COMMIT, (0, 0))
late_end = of_version_two(suite.test_a_late_end)


def strangers(tx: Tx, *_: object) -> None:
    suite.test_strangers(tx, "Ongoing", {"producer_epoch": 7}, suite.FENCED)


def all_markers(tx: Tx, cluster: Target, client: RawClient) -> None:
    suite.test_markers(cluster, client, tx)


def outside(tx: Tx, *_: object) -> None:
    suite.test_a_batch_outside_a_transaction(tx, "Empty", 11, suite.ABORTABLE)


def too_long(tx: Tx, _: Target, client: RawClient) -> None:
    suite.test_a_transaction_that_takes_too_long(client, tx.topic)


PLANTS: dict[str, tuple[Find, Any, str, Any]] = {
    "epoch not raised by who begins anew": (taken("Empty"), Transaction, "_raise_epoch", no_new_epoch),
    "epoch not raised by an end": (ends_of_version_two, Transaction, "prepare", no_epoch_of_an_end),
    "what is open is not aborted": (taken("Ongoing"), Transaction, "begin", forgetting_what_is_open),
    "fence missing": (strangers, Transaction, "check", no_fence),
    "fence missing at an end": (late_end, Transaction, "end", no_fence_of_an_end),
    "marker missing": (all_markers, markers, "write", no_marker),
    "aborted as if committed": (readers, markers, "write", no_abort),
    "stable offset ahead": (readers, OpenTransactions, "stable", lambda self, end: end),
    "aborted ones not told": (readers, OpenTransactions, "aborted", lambda self, start, end: []),
    "offsets of what is aborted": (offsets(ABORT), Group, "end_transaction", with_an_abort_too),
    "offsets lost with a commit": (offsets(COMMIT), Group, "end_transaction", lambda *_, commit: None),
    "offsets outside the transaction": (offsets_outside, handlers, "_outside", lambda _: 0),
    "batch outside the transaction": (outside, handlers, "admit", verified),
    "transaction without end": (too_long, Transaction, "due", None),
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Target]:
    with FakeCluster(1) as fake:
        yield Target("fake", fake.bootstrap)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "until", lambda condition, what, timeout=SOON: target.until(condition, what, SOON))


@pytest.mark.parametrize("version", [4, 5], ids=["v1", "v2"])
@pytest.mark.parametrize("bug", PLANTS)
def test_the_suite_finds_a_planted_bug(cluster: Target, bug: str, version: int) -> None:
    find, owner, name, planted = PLANTS[bug]
    with cluster.connect() as client:
        find(Tx(client, cluster.topic(2), version), cluster, client)
        with mock.patch.object(owner, name, planted), pytest.raises((AssertionError, ConnectionError)):
            find(Tx(client, cluster.topic(2), version), cluster, client)
