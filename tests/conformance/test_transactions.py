"""Transactions: each state, who is fenced, what belongs to which one, and what readers see of it."""

import time
from typing import Any

import pytest

from safeproducer.testing.produce import read_batch_headers
from tests.conformance.target import Target, fetch, fresh, list_offsets, part, produce, until
from tests.conformance.test_groups import commit, offsets
from tests.conformance.test_produce import patched
from tests.testing.raw import RawClient, make_batch

NOT_ENOUGH_REPLICAS, UNKNOWN_TOPIC, INVALID_GROUP_ID, INVALID_REQUEST, OUT_OF_ORDER = 19, 3, 24, 42, 45
INVALID_EPOCH, INVALID_STATE, INVALID_MAPPING, INVALID_TIMEOUT, CONCURRENT = 47, 48, 49, 50, 51
NO_RIGHTS, NOT_ATTEMPTED, UNSTABLE, FENCED, NOT_FOUND, ABORTABLE = 53, 55, 88, 90, 105, 120
UNKNOWN_MEMBER, ILLEGAL_GENERATION = 25, 22
COMMIT, ABORT = True, False
LOADING = (14, 15, 16)


class Tx:
    """One producer with a transactional ID, by raw requests. `version` is that of EndTxn: 4, or 5 with a new epoch."""

    def __init__(self, client: RawClient, topic: str, version: int = 4) -> None:
        self.client, self.topic, self.version = client, topic, version
        self.id, self.group = fresh("tx"), fresh("group")
        self.pid, self.epoch, self.sequence = -1, -1, 0

    def try_init(self, version: int = 5, **changes: Any) -> dict[str, Any]:
        asked = {"transactional_id": self.id, "transaction_timeout_ms": 60_000, **changes}
        return self.client.ask("InitProducerId", version, **asked)

    def init(self, **changes: Any) -> dict[str, Any]:
        """Tried again while an end is in progress, or the coordinator loads."""
        found = until(
            lambda: (
                answer if (answer := self.try_init(**changes))["error_code"] not in (*LOADING, CONCURRENT) else None
            ),
            "an ID",
        )
        assert found["error_code"] == 0
        self.pid, self.epoch, self.sequence = found["producer_id"], found["producer_epoch"], 0
        return found

    def who(self, **changes: Any) -> dict[str, Any]:
        return {"transactional_id": self.id, "producer_id": self.pid, "producer_epoch": self.epoch, **changes}

    def add(self, *partitions: int, version: int = 3, topic: str = "", **changes: Any) -> Any:
        topics = [{"name": topic or self.topic, "partitions": list(partitions or (0,))}]
        asked = {f"v3_and_below_{name}": value for name, value in self.who(**changes).items()}
        answer = self.client.ask("AddPartitionsToTxn", version, **asked, v3_and_below_topics=topics)
        errors = [
            one["partition_error_code"] for one in answer["results_by_topic_v3_and_below"][0]["results_by_partition"]
        ]
        return errors[0] if len(partitions) < 2 else errors

    def add_many(self, *, verify: bool, version: int = 5, **changes: Any) -> int:
        topics = [{"name": self.topic, "partitions": [0]}]
        asked = {**self.who(**changes), "verify_only": verify, "topics": topics}
        answer = self.client.ask("AddPartitionsToTxn", version, transactions=[asked])
        assert answer["error_code"] == 0
        (found,) = answer["results_by_transaction"][0]["topic_results"][0]["results_by_partition"]
        return int(found["partition_error_code"])

    def write(self, value: bytes = b"x", *, version: int = 10, partition: int = 0, **changes: Any) -> int:
        numbers = {"producer_id": self.pid, "epoch": self.epoch, "sequence": self.sequence, **changes}
        batch = patched(make_batch([value], **numbers), 21, ">h", 0x10)
        named = {"transactional_id": self.id, "timeout_ms": 4000}
        answer = produce(self.client, version, self.topic, batch, partition=partition, **named)
        error = int(part(answer)["error_code"])
        self.sequence += error == 0
        return error

    def try_end(self, committed: bool, *, version: int = 0, **changes: Any) -> dict[str, Any]:
        return self.client.ask("EndTxn", version or self.version, **self.who(**changes), committed=committed)

    def end(self, committed: bool) -> None:
        answer = self.try_end(committed)
        assert answer["error_code"] == 0
        if self.version >= 5:
            assert (answer["producer_id"], answer["producer_epoch"]) == (self.pid, self.epoch + 1)
            self.epoch, self.sequence = answer["producer_epoch"], 0
        self.settle()

    def settle(self) -> str:
        """The state, once no end is in progress."""
        return until(
            lambda: state if "Prepare" not in (state := self.described()["transaction_state"]) else "", "an end"
        )

    def described(self) -> dict[str, Any]:
        (found,) = self.client.ask("DescribeTransactions", 0, transactional_ids=[self.id])["transaction_states"]
        assert isinstance(found, dict)
        return found

    def add_offsets(self, *, version: int = 4, group: str | None = None, **changes: Any) -> int:
        group = self.group if group is None else group
        return int(self.client.ask("AddOffsetsToTxn", version, **self.who(**changes), group_id=group)["error_code"])

    def commit_offset(self, offset: int, *, version: int = 4, topic: str = "", **changes: Any) -> int:
        at = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
        topics = [{"name": topic or self.topic, "partitions": [at]}]
        asked = {**self.who(), "group_id": self.group, **changes}
        answer = self.client.ask("TxnOffsetCommit", version, **asked, topics=topics)
        return int(answer["topics"][0]["partitions"][0]["error_code"])

    def in_state(self, state: str) -> None:
        self.init()
        if state != "Empty":
            assert self.add() == 0
            assert self.write() == 0
        if state.startswith("Complete"):
            self.end(state == "CompleteCommit")
        assert self.described()["transaction_state"] == state


@pytest.fixture(scope="module")
def topic(cluster: Target) -> str:
    """Two partitions, to which all write."""
    return cluster.topic(2)


@pytest.fixture(params=[4, 5], ids=["v1", "v2"])
def tx(client: RawClient, topic: str, request: pytest.FixtureRequest) -> Tx:
    """Of both versions of transactions."""
    return Tx(client, topic, request.param)


@pytest.fixture
def old(client: RawClient, topic: str) -> Tx:
    made = Tx(client, topic, 4)
    made.init()
    return made


STATES = ("Empty", "Ongoing", "CompleteCommit", "CompleteAbort")


# ---- beginning


@pytest.mark.parametrize("state", STATES)
def test_who_begins_anew_raises_the_epoch(tx: Tx, state: str) -> None:
    """By one, and by one more for the end of what was open; whoever has the old one is fenced."""
    tx.in_state(state)
    pid, epoch = tx.pid, tx.epoch
    if state == "Ongoing":
        assert tx.try_init()["error_code"] == CONCURRENT
        assert tx.settle() == "CompleteAbort"
    tx.init()
    assert (tx.pid, tx.epoch) == (pid, epoch + (2 if state == "Ongoing" else 1))
    found = tx.described()
    assert (found["transaction_state"], found["transaction_start_time_ms"]) == ("Empty", -1)
    assert tx.add(producer_epoch=epoch) == FENCED
    assert tx.try_end(COMMIT, producer_epoch=epoch)["error_code"] == FENCED
    assert tx.add() == 0


@pytest.mark.parametrize("state", ["Empty", "CompleteCommit", "CompleteAbort"])
def test_a_producer_raises_its_own_epoch(tx: Tx, state: str) -> None:
    """KIP-360: it says what it has; a request that comes again gets the same answer, an older one is fenced."""
    tx.in_state(state)
    pid, epoch = tx.pid, tx.epoch
    tx.init(producer_id=pid, producer_epoch=epoch)
    assert (tx.pid, tx.epoch) == (pid, epoch + 1)
    again = tx.try_init(producer_id=pid, producer_epoch=epoch)
    assert (again["error_code"], again["producer_epoch"]) == (0, epoch + 1)
    tx.init(producer_id=pid, producer_epoch=epoch + 1)
    assert tx.epoch == epoch + 2
    assert tx.try_init(producer_id=pid, producer_epoch=epoch)["error_code"] == FENCED
    assert tx.try_init(producer_id=pid + 1_000_000, producer_epoch=epoch)["error_code"] == FENCED
    assert tx.try_init(3, producer_id=pid, producer_epoch=epoch)["error_code"] == INVALID_EPOCH


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"transactional_id": ""}, INVALID_REQUEST),
        ({"transaction_timeout_ms": 0}, INVALID_TIMEOUT),
        ({"transaction_timeout_ms": -1}, INVALID_TIMEOUT),
        ({"transaction_timeout_ms": 900_001}, INVALID_TIMEOUT),
        ({"producer_id": 5}, INVALID_REQUEST),
        ({"producer_epoch": 5}, INVALID_REQUEST),
        ({"producer_id": 5, "producer_epoch": 0}, 0),
    ],
    ids=str,
)
def test_who_may_begin(old: Tx, changes: dict[str, Any], error: int) -> None:
    old.id = fresh("tx")
    answer = until(lambda: (a := old.try_init(**changes)) and a["error_code"] not in LOADING and a, "an answer")
    assert (answer["error_code"], answer["producer_id"] < 0) == (error, error != 0)


@pytest.mark.parametrize("version", range(6))
def test_versions_of_init(old: Tx, version: int) -> None:
    answer = old.try_init(version)
    assert (answer["error_code"], answer["producer_id"], answer["producer_epoch"]) == (0, old.pid, old.epoch + 1)


# ---- ends


@pytest.mark.parametrize(
    ("state", "committed", "errors"),
    [
        ("Empty", COMMIT, (INVALID_STATE, INVALID_STATE)),
        ("Empty", ABORT, (INVALID_STATE, 0)),
        ("Ongoing", COMMIT, (0, 0)),
        ("Ongoing", ABORT, (0, 0)),
        ("CompleteCommit", COMMIT, (0, INVALID_STATE)),
        ("CompleteCommit", ABORT, (INVALID_STATE, 0)),
        ("CompleteAbort", COMMIT, (INVALID_STATE, INVALID_STATE)),
        ("CompleteAbort", ABORT, (0, 0)),
    ],
)
def test_ends(tx: Tx, state: str, committed: bool, errors: tuple[int, int]) -> None:
    """The epoch stays, and an end that comes again is a success; or each raises it, that of nothing, too."""
    error, second = errors[tx.version == 5], tx.version == 5
    tx.in_state(state)
    answer = tx.try_end(committed)
    assert answer["error_code"] == error
    if second:
        told = (answer["producer_id"], answer["producer_epoch"])
        assert told == ((-1, -1) if error else (tx.pid, tx.epoch + 1))
    assert tx.settle() == (state if error else "CompleteCommit" if committed else "CompleteAbort")
    assert tx.described()["producer_epoch"] == tx.epoch + (second and not error)


@pytest.mark.parametrize("first", [COMMIT, ABORT])
@pytest.mark.parametrize("second", [COMMIT, ABORT])
def test_an_end_of_version_two_that_comes_again(client: RawClient, topic: str, first: bool, second: bool) -> None:
    """It is known by its epoch: the same end is a success, with the epoch that is new; the other one is not."""
    tx = Tx(client, topic, 5)
    tx.in_state("Ongoing")
    tx.try_end(first)
    tx.settle()
    answer = tx.try_end(second)
    assert answer["error_code"] == (0 if first == second else INVALID_STATE)
    assert answer["producer_epoch"] == (tx.epoch + 1 if first == second else -1)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"producer_epoch": 7}, FENCED),
        ({"producer_id": 5}, INVALID_MAPPING),
        ({"transactional_id": "nobody"}, INVALID_MAPPING),
        ({"transactional_id": ""}, INVALID_REQUEST),
    ],
    ids=str,
)
def test_strangers(tx: Tx, state: str, changes: dict[str, Any], error: int) -> None:
    tx.in_state(state)
    assert tx.add(**changes) == error
    assert tx.add_offsets(**changes) == error
    assert tx.try_end(COMMIT, **changes)["error_code"] == error
    old = INVALID_EPOCH if error == FENCED else error
    assert tx.add(version=1, **changes) == old
    assert tx.add_offsets(version=1, **changes) == old
    assert tx.try_end(COMMIT, version=1, **changes)["error_code"] == old


# ---- parts


def test_partitions_of_a_transaction(tx: Tx, topic: str) -> None:
    """All or none of a request."""
    tx.in_state("CompleteCommit")
    began = time.time() * 1000
    assert tx.add(0, 1) == [0, 0]
    assert tx.add(0) == 0
    found = tx.described()
    assert (found["error_code"], found["transaction_state"]) == (0, "Ongoing")
    ((told, partitions),) = [(one["topic"], sorted(one["partitions"])) for one in found["topics"]]  # in any order
    assert (told, partitions) == (topic, [0, 1])
    assert (found["producer_id"], found["producer_epoch"], found["transaction_timeout_ms"]) == (
        tx.pid,
        tx.epoch,
        60_000,
    )
    assert -2000 < found["transaction_start_time_ms"] - began < 10_000
    tx.end(ABORT)
    assert tx.described()["topics"] == []
    assert sorted(tx.add(0, 99)) == sorted([NOT_ATTEMPTED, UNKNOWN_TOPIC])
    assert tx.described()["transaction_state"] == "CompleteAbort"
    assert tx.add(topic="nowhere") == UNKNOWN_TOPIC


def test_partitions_by_brokers(tx: Tx) -> None:
    """In the form from version 4 on; such a request may only ask."""
    tx.in_state("Empty")
    assert tx.add_many(verify=True) == ABORTABLE
    assert tx.add_many(verify=False) == 0
    assert tx.add_many(verify=True) == 0
    assert tx.add_many(verify=True, producer_epoch=7) == FENCED
    assert tx.add_many(verify=True, producer_id=5) == INVALID_MAPPING


@pytest.mark.parametrize(("version", "error"), [(9, INVALID_STATE), (10, INVALID_STATE), (11, ABORTABLE)])
@pytest.mark.parametrize("state", STATES)
def test_a_batch_outside_a_transaction(tx: Tx, state: str, version: int, error: int) -> None:
    """KIP-890: its partition was not added; in one that was, it is taken."""
    tx.in_state(state)
    assert tx.write(partition=1, version=version, sequence=0) == error
    assert tx.add(1) == 0
    assert tx.write(partition=1, version=version, sequence=0) == 0


@pytest.mark.parametrize("state", STATES)
def test_a_batch_that_adds_its_partition(tx: Tx, topic: str, state: str) -> None:
    """From Produce version 12 on; AddPartitionsToTxn is not needed then."""
    tx.in_state(state)
    assert tx.write(partition=1, version=12, sequence=0) == 0
    found = tx.described()
    assert found["transaction_state"] == "Ongoing"
    told = [(one["topic"], sorted(one["partitions"])) for one in found["topics"]]  # Kafka tells them in any order
    assert told == [(topic, [0, 1] if state == "Ongoing" else [1])]


@pytest.mark.parametrize("version", [10, 11, 12])
@pytest.mark.parametrize(
    ("changes", "error"), [({"epoch": 7}, INVALID_EPOCH), ({"producer_id": 5}, INVALID_MAPPING)], ids=str
)
def test_batches_of_strangers(tx: Tx, version: int, changes: dict[str, Any], error: int) -> None:
    """Another epoch, another producer, another transaction."""
    tx.in_state("Empty")
    tx.add()
    assert tx.write(version=version, **changes) == error
    tx.id = "nobody"
    assert tx.write(version=version) == INVALID_MAPPING


def test_a_batch_of_a_transaction_without_its_id(old: Tx, client: RawClient) -> None:
    """It has no rights."""
    old.in_state("Empty")
    old.add()
    old.id = None  # type: ignore[assignment]
    assert old.write() == NO_RIGHTS


def test_a_late_batch(tx: Tx) -> None:
    """After the end of its transaction it is refused; with a new epoch by each end for good, else until the next one
    has the partition: that is how it gets into a transaction it does not belong to."""
    tx.in_state("Ongoing")
    late = {"epoch": tx.epoch, "sequence": tx.sequence}
    tx.end(ABORT)
    assert tx.write(**late) == (INVALID_EPOCH if tx.version == 5 else INVALID_STATE)
    assert tx.add() == 0
    assert tx.write(**late) == (INVALID_EPOCH if tx.version == 5 else 0)


def test_a_late_end(tx: Tx) -> None:
    """It comes when the next transaction has begun: it ends that one, unless each end has a new epoch."""
    tx.in_state("Ongoing")
    late = {"producer_epoch": tx.epoch}
    tx.end(ABORT)
    assert tx.add() == 0
    assert tx.try_end(COMMIT, **late)["error_code"] == (FENCED if tx.version == 5 else 0)
    assert tx.settle() == ("Ongoing" if tx.version == 5 else "CompleteCommit")


def test_sequences_after_an_end(tx: Tx) -> None:
    """They go on, or with a new epoch begin at 0."""
    tx.in_state("CompleteCommit")
    tx.add()
    right, wrong = (0, 1) if tx.version == 5 else (1, 0)
    assert tx.write(sequence=wrong + 5) == OUT_OF_ORDER
    assert tx.write(sequence=right) == 0


# ---- readers


def fetched(client: RawClient, topic: str, offset: int, isolation: int) -> dict[str, Any]:
    return part(fetch(client, 12, topic, offset, isolation_level=isolation))


def latest(client: RawClient, topic: str, isolation: int) -> int:
    return int(list_offsets(client, topic, -1, isolation_level=isolation)["offset"])


def test_what_readers_see(cluster: Target, client: RawClient, tx: Tx) -> None:
    """Readers of committed records end at the last stable offset, and are told what was aborted."""
    tx.topic = name = cluster.topic()
    tx.in_state("Ongoing")
    open_one = fetched(client, name, 0, 1)
    assert (open_one["high_watermark"], open_one["last_stable_offset"]) == (1, 0)
    assert (bytes(open_one["records"] or b""), open_one["aborted_transactions"]) == (b"", [])
    whole = fetched(client, name, 0, 0)
    assert (whole["last_stable_offset"], whole["aborted_transactions"]) == (0, None)
    assert len(whole["records"]) > 61
    assert (latest(client, name, 0), latest(client, name, 1)) == (1, 0)
    tx.end(ABORT)
    until(lambda: latest(client, name, 1) == 2, "a marker")
    for offset in (0, 1, 2):
        found = fetched(client, name, offset, 1)
        aborted = [(one["producer_id"], one["first_offset"]) for one in found["aborted_transactions"]]
        assert (found["last_stable_offset"], aborted) == (2, [(tx.pid, 0)] if offset < 2 else [])
    tx.add()
    assert tx.write(b"y") == 0
    assert latest(client, name, 1) == 2
    assert client.produce(name, make_batch([b"plain"]))["error_code"] == 0
    assert (latest(client, name, 0), latest(client, name, 1)) == (4, 2)
    tx.end(COMMIT)
    until(lambda: latest(client, name, 1) == 5, "a marker")
    found = fetched(client, name, 2, 1)
    assert (found["last_stable_offset"], found["aborted_transactions"]) == (5, [])


def test_markers(cluster: Target, client: RawClient, tx: Tx) -> None:
    """Control batches with one record, in the new epoch where an end has one."""
    tx.topic = name = cluster.topic()
    tx.in_state("Ongoing")
    tx.end(ABORT)
    tx.add()
    tx.write()
    tx.end(COMMIT)
    until(lambda: latest(client, name, 1) == 4, "both markers")
    batches = [*read_batch_headers(fetched(client, name, 0, 0)["records"])]
    raised = tx.version == 5
    seen = [(one.control, one.transactional, one.epoch, one.base_sequence, one.count) for one, _ in batches]
    first = 1 if raised else 0
    assert seen == [
        (False, True, 0, 0, 1),
        (True, True, first, -1, 1),
        (False, True, first, 0 if raised else 1, 1),
        (True, True, 2 * first, -1, 1),
    ]
    keys = [bytes(data[61:])[5:9] for header, data in batches if header.control]
    assert keys == [b"\0\0\0\0", b"\0\0\0\1"]
    assert {one.producer_id for one, _ in batches} == {tx.pid}


def test_producers_with_open_transactions(cluster: Target, client: RawClient, tx: Tx) -> None:
    """DescribeProducers tells where each began."""
    tx.topic = name = cluster.topic()
    tx.in_state("Ongoing")
    topics = [{"name": name, "partition_indexes": [0]}]

    def described() -> Any:
        (found,) = client.ask("DescribeProducers", 0, topics=topics)["topics"][0]["partitions"][0]["active_producers"]
        return found

    found = described()
    assert (found["producer_id"], found["producer_epoch"], found["last_sequence"]) == (tx.pid, 0, 0)
    assert (found["current_txn_start_offset"], found["coordinator_epoch"]) == (0, -1)
    tx.end(COMMIT)
    found = until(lambda: one if (one := described())["current_txn_start_offset"] < 0 else None, "a marker")
    assert (found["producer_epoch"], found["last_sequence"]) == ((1, -1) if tx.version == 5 else (0, 0))
    assert found["coordinator_epoch"] >= 0


# ---- offsets


@pytest.fixture
def grouped(tx: Tx, client: RawClient, topic: str) -> Tx:
    """Its group has an offset."""
    until(lambda: commit(client, topic, 1, group_id=tx.group) == 0, "a coordinator")
    tx.in_state("Empty")
    return tx


@pytest.mark.parametrize("committed", [COMMIT, ABORT])
def test_offsets_of_a_transaction(grouped: Tx, client: RawClient, topic: str, committed: bool) -> None:
    """They count from its commit on; who wants stable ones is sent away before."""
    assert grouped.add_offsets() == 0
    assert grouped.commit_offset(7) == 0
    assert offsets(client, grouped.group) == {(topic, 0): (1, "", 0)}

    def stable() -> list[tuple[int, int]]:
        wanted = [{"group_id": grouped.group, "topics": [{"name": topic, "partition_indexes": [0, 1]}]}]
        (found,) = client.ask("OffsetFetch", 9, groups=wanted, require_stable=True)["groups"]
        return [(one["committed_offset"], one["error_code"]) for one in found["topics"][0]["partitions"]]

    assert stable() == [(-1, UNSTABLE), (-1, 0)]
    grouped.end(committed)
    until(lambda: stable()[0][1] == 0, "stable offsets")
    assert offsets(client, grouped.group) == {(topic, 0): (7 if committed else 1, "", 0)}


@pytest.mark.parametrize(("version", "error"), [(3, INVALID_STATE), (4, ABORTABLE), (5, 0)])
def test_offsets_of_a_group_that_was_not_added(grouped: Tx, version: int, error: int) -> None:
    """From version 5 on they add it themselves."""
    assert grouped.commit_offset(7, version=version) == error
    assert grouped.described()["transaction_state"] == ("Empty" if error else "Ongoing")


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"producer_epoch": 7}, INVALID_EPOCH),
        ({"producer_id": 5}, INVALID_MAPPING),
        ({"transactional_id": "nobody"}, INVALID_MAPPING),
        ({"group_id": ""}, INVALID_GROUP_ID),
        ({"generation_id_or_member_epoch": 5, "member_id": "nobody"}, UNKNOWN_MEMBER),
        ({"topic": "nowhere"}, UNKNOWN_TOPIC),
    ],
    ids=str,
)
def test_offsets_of_strangers(grouped: Tx, changes: dict[str, Any], error: int) -> None:
    grouped.add_offsets()
    assert grouped.commit_offset(7, **changes) == error


def test_a_group_without_a_name(grouped: Tx) -> None:
    """It is taken, as any other."""
    assert grouped.add_offsets(group="") == 0


# ---- time


def test_a_transaction_that_takes_too_long(client: RawClient, topic: str) -> None:
    tx = Tx(client, topic, 4)
    tx.init(transaction_timeout_ms=100)
    assert tx.add() == 0
    assert tx.write() == 0
    until(lambda: tx.described()["transaction_state"] == "CompleteAbort", "an abort", 30)
    assert tx.described()["producer_epoch"] == tx.epoch + 1
    assert tx.add() == FENCED
    assert tx.try_end(COMMIT)["error_code"] == FENCED
    assert tx.write() == INVALID_EPOCH


# ---- admin clients


def test_listed_transactions(tx: Tx, client: RawClient) -> None:
    tx.in_state("Ongoing")

    def listed(**filters: Any) -> list[Any]:
        answer = client.ask("ListTransactions", 2, **filters)
        assert (answer["error_code"], answer["unknown_state_filters"]) == (0, [])
        return [one for one in answer["transaction_states"] if one["transactional_id"] == tx.id]

    found = {"transactional_id": tx.id, "producer_id": tx.pid, "transaction_state": "Ongoing"}
    assert listed() == [found]
    for filters in (
        {"state_filters": ["Ongoing", "Empty"]},
        {"producer_id_filters": [tx.pid]},
        {"duration_filter": 0},
        {"transactional_id_pattern": tx.id[:-3] + ".*"},
    ):
        time.sleep(0.002)
        assert listed(**filters) == [found], filters
    for filters in (
        {"state_filters": ["Empty"]},
        {"producer_id_filters": [5]},
        {"duration_filter": 3_600_000},
        {"transactional_id_pattern": tx.id[:-3]},
    ):
        assert listed(**filters) == [], filters
    answer = client.ask("ListTransactions", 2, state_filters=["Nothing"])
    assert answer["unknown_state_filters"] == ["Nothing"]
    assert client.ask("ListTransactions", 2, transactional_id_pattern="(")["error_code"] == 128


def test_transactions_that_are_not_there(client: RawClient, old: Tx) -> None:
    states = client.ask("DescribeTransactions", 0, transactional_ids=["nobody", old.id, ""])["transaction_states"]
    assert {one["transactional_id"]: one["error_code"] for one in states} == {
        "nobody": NOT_FOUND,
        old.id: 0,
        "": INVALID_REQUEST,
    }


@pytest.mark.parametrize("version", [1, 2])
def test_markers_by_an_admin_client(cluster: Target, client: RawClient, old: Tx, version: int) -> None:
    """They end what hangs in a partition."""
    old.topic = name = cluster.topic()
    old.in_state("Ongoing")

    def mark(**changes: Any) -> int:
        one = {
            "producer_id": old.pid,
            "producer_epoch": old.epoch,
            "transaction_result": False,
            "topics": [{"name": name, "partition_indexes": [0]}],
            "coordinator_epoch": 0,
            **changes,
        }
        (answer,) = client.ask("WriteTxnMarkers", version, markers=[one])["markers"]
        assert answer["producer_id"] == old.pid
        (found,) = answer["topics"][0]["partitions"]
        return int(found["error_code"])

    assert latest(client, name, 1) == 0
    assert mark(topics=[{"name": "nowhere", "partition_indexes": [0]}]) == UNKNOWN_TOPIC
    assert mark() == 0
    assert latest(client, name, 1) == 2


@pytest.fixture(autouse=True, scope="module")
def loaded(cluster: Target) -> None:
    with cluster.connect() as client:
        made = Tx(client, "", 4)
        for kind in (0, 1):
            asked = {"key_type": kind, "coordinator_keys": [made.id]}
            until(
                lambda asked=asked: client.ask("FindCoordinator", 4, **asked)["coordinators"][0]["node_id"] >= 0, "one"
            )  # type: ignore[misc]
        until(lambda: made.try_init()["error_code"] == 0, "a coordinator", 60)
