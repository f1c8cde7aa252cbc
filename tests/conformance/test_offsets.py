"""Where records are: ListOffsets and OffsetForLeaderEpoch."""

from typing import Any

import pytest

from tests.conformance.target import Target, fetch, list_offsets, part
from tests.testing.raw import RawClient, make_batch

UNKNOWN_TOPIC, NOT_LEADER, FENCED_EPOCH, UNKNOWN_EPOCH, INVALID_REQUEST = 3, 6, 74, 75, 42
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = range(-1, -7, -1)
BASE = 1_700_000_000_000


@pytest.fixture(scope="module")
def timed(cluster: Target) -> str:
    """Timestamps of records 0 to 4: BASE + 0, 1, 500, 501, 200."""
    name = cluster.topic()
    with cluster.connect() as client:
        for timestamp, values in ((0, [b"a", b"b"]), (500, [b"c", b"d"]), (200, [b"e"])):
            assert client.produce(name, make_batch(values, timestamp=BASE + timestamp))["error_code"] == 0
    return name


@pytest.mark.parametrize("version", range(1, 12))
@pytest.mark.parametrize(("timestamp", "offset"), [(LATEST, 5), (EARLIEST, 0)])
def test_ends_in_every_version(client: RawClient, timed: str, version: int, timestamp: int, offset: int) -> None:
    """An end has no timestamp, and from version 4 on a leader epoch."""
    found = list_offsets(client, timed, timestamp, version=version)
    assert (found["error_code"], found["timestamp"], found["offset"]) == (0, -1, offset)
    assert found.get("leader_epoch", 0) == 0


@pytest.mark.parametrize(
    ("timestamp", "found"),
    [
        pytest.param(0, (BASE, 0), id="long ago"),
        pytest.param(BASE, (BASE, 0), id="first record"),
        pytest.param(BASE + 1, (BASE + 1, 1), id="inside a batch"),
        pytest.param(BASE + 2, (BASE + 500, 2), id="between"),
        pytest.param(BASE + 500, (BASE + 500, 2), id="exactly"),
        pytest.param(BASE + 501, (BASE + 501, 3), id="newest"),
        pytest.param(BASE + 502, (-1, -1), id="later than all"),
        pytest.param(MAX_TIMESTAMP, (BASE + 501, 3), id="of the newest timestamp"),
        pytest.param(EARLIEST_LOCAL, (-1, 0), id="earliest local"),
        pytest.param(LATEST_TIERED, (-1, -1), id="latest tiered, where nothing is"),
        pytest.param(EARLIEST_PENDING, (-1, -1), id="earliest pending upload, where nothing is"),
    ],
)
def test_offsets_of_times(client: RawClient, timed: str, timestamp: int, found: tuple[int, int]) -> None:
    """The first record at or after a time, with its own timestamp; special times have negative numbers."""
    answer = list_offsets(client, timed, timestamp, version=11)
    assert (answer["error_code"], (answer["timestamp"], answer["offset"])) == (0, found)
    assert answer["leader_epoch"] == (-1 if found[1] < 0 else 0)


@pytest.mark.parametrize("timestamp", [LATEST, EARLIEST, MAX_TIMESTAMP, BASE, EARLIEST_LOCAL])
def test_offsets_of_an_empty_log(cluster: Target, client: RawClient, timestamp: int) -> None:
    """Both ends are 0; no time is found."""
    answer = list_offsets(client, cluster.topic(), timestamp, version=8)
    end = timestamp in (LATEST, EARLIEST, EARLIEST_LOCAL)
    assert (answer["error_code"], answer["timestamp"], answer["offset"]) == (0, -1, 0 if end else -1)


def test_a_time_inside_a_packed_batch(cluster: Target, client: RawClient) -> None:
    cramjam = pytest.importorskip("cramjam", reason="cramjam packs the batch")
    name = cluster.topic()
    batch = make_batch(
        [b"a", b"b", b"c"], timestamp=BASE, codec=1, pack=lambda data: bytes(cramjam.gzip.compress(data))
    )
    assert client.produce(name, batch)["error_code"] == 0
    answer = list_offsets(client, name, BASE + 1)
    assert (answer["timestamp"], answer["offset"]) == (BASE + 1, 1)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"topic": "nobody-made-it"}, UNKNOWN_TOPIC),
        ({"partition": 1}, UNKNOWN_TOPIC),
        ({"partition": -1}, UNKNOWN_TOPIC),
        ({"epoch": 0}, 0),
        ({"epoch": 1}, UNKNOWN_EPOCH),
        ({"timestamp": -99}, None),
    ],
    ids=str,
)
def test_error_codes(client: RawClient, timed: str, changes: dict[str, Any], error: int | None) -> None:
    """With neither offset nor time; an unknown special time finds nothing."""
    answer = list_offsets(client, **{"topic": timed, "timestamp": LATEST, "version": 11, **changes})
    if error is None:
        assert (answer["error_code"], answer["offset"]) == (35, -1)
    elif error:
        assert (answer["error_code"], answer["timestamp"], answer["offset"]) == (error, -1, -1)
    else:
        assert (answer["error_code"], answer["offset"]) == (0, 5)


def epoch_end(client: RawClient, topic: str, epoch: int, current: int = -1, **changes: int) -> tuple[int, int, int]:
    version, partition = changes.get("version", 4), changes.get("partition", 0)
    wanted = [{"partition": partition, "current_leader_epoch": current, "leader_epoch": epoch}]
    topics = [{"topic": topic, "partitions": wanted}]
    answer = client.ask("OffsetForLeaderEpoch", version, replica_id=-1, topics=topics)
    (found,) = answer["topics"][0]["partitions"]
    return found["error_code"], found["leader_epoch"], found["end_offset"]


@pytest.mark.parametrize("version", [2, 3, 4])
def test_the_end_of_an_epoch(cluster: Target, client: RawClient, timed: str, version: int) -> None:
    """The running epoch ends at the end of the log; of later ones nothing is known; a wrong current one is told."""
    assert epoch_end(client, timed, 0, version=version) == (0, 0, 5)
    assert epoch_end(client, timed, 1, version=version) == (0, -1, -1)
    assert epoch_end(client, timed, -1, version=version) == (0, -1, -1)
    assert epoch_end(client, timed, 0, 0, version=version) == (0, 0, 5)
    assert epoch_end(client, timed, 0, 1, version=version) == (UNKNOWN_EPOCH, -1, -1)
    assert epoch_end(client, timed, 0, partition=1, version=version) == (UNKNOWN_TOPIC, -1, -1)
    assert epoch_end(client, "nobody-made-it", 0, version=version) == (UNKNOWN_TOPIC, -1, -1)
    assert epoch_end(client, cluster.topic(), 0, version=version) == (0, 0, 0)


def test_epochs_after_a_leader_moved(cluster3: Target) -> None:
    """The old epoch ends where the new one began; who still knows the old one is fenced, by all three APIs."""
    name = cluster3.topic(replication=3)
    leader, old = cluster3.leader(name)
    with cluster3.connect(leader) as client:
        assert client.produce(name, make_batch([b"a", b"b"]))["error_code"] == 0
    other = cluster3.move(name)
    with cluster3.connect(other) as client:
        assert client.produce(name, make_batch([b"c"]))["error_code"] == 0
        _, new = cluster3.leader(name)
        assert epoch_end(client, name, old) == (0, old, 2)
        assert epoch_end(client, name, new) == (0, new, 3)
        assert epoch_end(client, name, old, old)[0] == FENCED_EPOCH
        assert list_offsets(client, name, LATEST, epoch=old)["error_code"] == FENCED_EPOCH
        assert list_offsets(client, name, LATEST, epoch=new + 1)["error_code"] == UNKNOWN_EPOCH
        assert part(fetch(client, 12, name, current_leader_epoch=old))["error_code"] == FENCED_EPOCH
    with cluster3.connect(leader) as client:
        assert epoch_end(client, name, old)[0] == NOT_LEADER
        assert list_offsets(client, name, LATEST)["error_code"] == NOT_LEADER
