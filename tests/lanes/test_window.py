"""The discovered window on the wire: how many batches of a partition the journal shows unresolved over all lanes."""

import re
import time
from collections.abc import Iterator
from enum import Enum
from itertools import pairwise
from unittest import mock

import pytest

from safeproducer import SafeProducer
from safeproducer.pipeline.cluster import windows
from safeproducer.pipeline.cluster.cluster_view import ClusterView
from safeproducer.snapshot import WindowSnapshot
from safeproducer.testing import FakeCluster
from tests.lanes.conftest import BATCH, LATE, RETAIN, Changes, Make
from tests.lanes.traffic import Traffic, most_unresolved
from tests.pipeline.test_lane_pool import of_whoever_said_most

BACKLOG = 60 * BATCH
"""Records that wait while a load goes on, so that batches are always ready."""
BROKER_RETAIN = "log." + RETAIN
TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED = 29, 31
ON_ITS_WAY = 0.1
"""A batch may have been handed over just before a change was known, and come a little later on a busy machine."""


@pytest.fixture
def impatient() -> Iterator[None]:
    """A leader that announces nothing is asked again soon."""
    with mock.patch.object(windows, "_SILENT_FOR", 0.2):
        yield


def window(producer: SafeProducer, topic: str) -> WindowSnapshot | None:
    """What the producer thinks of the topic's partition 0; None when it has not thought of it yet."""
    return next((found for found in producer.snapshot().windows if (found.topic, found.partition) == (topic, 0)), None)


def size(producer: SafeProducer, topic: str = "wide") -> int:
    found = window(producer, topic)
    return 0 if found is None else found.size


def led_by(cluster: FakeCluster, topic: str, broker: int) -> None:
    """Create a topic that this broker leads and the other one follows."""
    cluster.create_topic(topic)
    if cluster.leader(topic)[0] != broker:
        cluster.move_leader(topic, to=broker)


def wide(cluster: FakeCluster, value: str = "20") -> None:
    """Create a topic with a window of its own, led by broker 1."""
    led_by(cluster, "wide", 1)
    cluster.set_topic_config("wide", RETAIN, value)


def busy(cluster: FakeCluster, producer: SafeProducer, depth: int = 20) -> Traffic:
    """A load on "wide" that has found its window and its lanes, and fills them."""
    load = Traffic(producer, "wide")
    load.until(lambda: most_unresolved(cluster, "wide", LATE) >= depth, backlog=BACKLOG)
    return load


def test_a_topic_may_be_a_member_of_an_enumeration(cluster: FakeCluster, make: Make) -> None:
    """Admin clients take nothing that is derived from str: its window was never known."""

    class Topic(str, Enum):  # noqa: UP042 - as applications have it
        WIDE = "wide"

    wide(cluster)
    producer = make()
    load = Traffic(producer, Topic.WIDE)
    load.until(lambda: size(producer) == 20, backlog=BACKLOG)
    load.finish()
    account = producer.snapshot()
    assert account.last_error is None
    assert {type(row.topic) for row in (*account.partitions, *account.windows)} == {str}


def test_the_window_of_a_broker_that_does_not_lead_is_not_used(cluster: FakeCluster, make: Make) -> None:
    """The follower remembers 20; the leader remembers 5, and says so."""
    led_by(cluster, "wide", 1)
    cluster.set_broker_config(2, BROKER_RETAIN, "20")
    producer = make()
    load = busy(cluster, producer, 5)
    load.until(lambda: (found := window(producer, "wide")) is not None and found.age is not None)
    load.keep(0.5, BACKLOG)
    load.finish()
    found = window(producer, "wide")
    assert found is not None
    assert (found.size, found.source) == (5, "leader")
    assert most_unresolved(cluster, "wide", LATE) == 5
    assert {entry.broker for entry in cluster.journal("DescribeConfigs")} == {1}


@pytest.mark.parametrize("code", [TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED])
def test_without_rights_it_is_five_and_the_reason_is_told(cluster: FakeCluster, make: Make, code: int) -> None:
    """In snapshot().windows and in explain(); it is not asked again at once."""
    wide(cluster)
    cluster.fail_next("DescribeConfigs", code, 1000)
    producer = make()
    load = busy(cluster, producer, 5)
    load.until(lambda: "AUTHORIZATION_FAILED" in (found.reason if (found := window(producer, "wide")) else ""))
    load.send(BACKLOG)
    found, told = window(producer, "wide"), producer.explain("wide", 0)
    assert found is not None
    assert (found.size, found.source, found.age) == (5, "assumed", None)
    assert found.reason.startswith("broker 1 did not tell: ")
    told = re.sub(r" \(127\.0\.0\.1:\d+\)", "", told)  # the broker's address, once statistics have told it
    assert f"up to 5 batches may be under way, because {found.reason}" in told
    load.finish()
    assert most_unresolved(cluster, "wide", LATE) == 5
    asked = [entry.time for entry in cluster.journal("DescribeConfigs")]
    assert all(later > earlier + 0.9 * windows._SILENT_FOR for earlier, later in pairwise(asked))


def move_to_an_old_broker(cluster: FakeCluster, make: Make, changes: Changes) -> None:
    """AssertionError when more than 5 are unresolved after the move is known. The new leader is slow to say what it
    remembers, and what the old one said would be believed for long."""
    wide(cluster)
    cluster.set_kip_1269(2, False)
    cluster.delay(2.5, broker=2, api="DescribeConfigs")
    producer = make(topic_metadata_refresh_interval_ms=20_000)
    load = busy(cluster, producer)
    moved_at = time.time()
    cluster.move_leader("wide", to=2)
    load.until(lambda: cluster.journal("DescribeConfigs", broker=2), backlog=BACKLOG)
    known_at = time.time()
    load.keep(1.0, BACKLOG)
    load.finish()
    load.check(cluster)
    assert most_unresolved(cluster, "wide", LATE, moved_at) > 0
    since = (changes.window_changed_at if len(changes.windows) > 1 else known_at) + ON_ITS_WAY
    depth = most_unresolved(cluster, "wide", LATE, since)
    assert depth > 0
    assert depth <= 5
    told = [(event.before, event.after) for event in changes.windows]  # a busy machine may lose a connection meanwhile
    assert told == [(5, 20), (20, 5)] * (len(told) // 2)
    assert "leader changed" in changes.windows[-1].reason
    codes = {batch.error_code for entry in cluster.journal("Produce", broker=2) for batch in entry.batches}
    assert codes == {0}, "a broker that remembers five refused a batch as out of order"


def test_five_from_the_moment_a_change_of_the_leader_is_known(
    cluster: FakeCluster, make: Make, changes: Changes
) -> None:
    """From a broker that knows KIP-1269 to one that does not: nothing handed over that makes it more than 5."""
    move_to_an_old_broker(cluster, make, changes)


def test_without_the_reset_it_would_stay_at_twenty(cluster: FakeCluster, make: Make, changes: Changes) -> None:
    """The test above can fail: what the old leader announced is believed of the new one when nothing resets it."""
    with (
        mock.patch.object(ClusterView, "window", of_whoever_said_most),
        pytest.raises(AssertionError, match=r"\d\d <= 5"),
    ):
        move_to_an_old_broker(cluster, make, changes)


def test_brokers_are_upgraded_and_downgraded_while_it_runs(
    cluster: FakeCluster, make: Make, changes: Changes, impatient: None
) -> None:
    """The window follows: 5 with old brokers, 20 with new ones, 5 again; nothing is lost or moved out of order."""
    wide(cluster)
    for broker in (1, 2):
        cluster.set_kip_1269(broker, False)
    producer = make()
    load = busy(cluster, producer, 5)
    load.until(lambda: cluster.journal("DescribeConfigs"), backlog=BACKLOG)
    assert size(producer) == 5
    for broker in (1, 2):  # its leader is restarted last in an upgrade
        cluster.move_leader("wide", to=3 - broker)
        cluster.set_kip_1269(broker, True)
    load.until(lambda: size(producer) == 20 and producer.snapshot().lanes == 20, backlog=BACKLOG)
    before = time.time()
    load.until(lambda: most_unresolved(cluster, "wide", LATE, before) >= 20, backlog=BACKLOG)
    load.keep(5 * LATE, BACKLOG)
    assert most_unresolved(cluster, "wide", LATE, before) == 20
    cluster.set_kip_1269(cluster.leader("wide")[0], False)
    load.until(lambda: size(producer) == 5, backlog=BACKLOG)
    load.keep(5 * LATE, BACKLOG)
    load.finish()
    assert most_unresolved(cluster, "wide", LATE, changes.window_changed_at + ON_ITS_WAY) == 5
    load.check(cluster)


def test_a_lowered_and_raised_config_is_followed_under_load(cluster: FakeCluster, make: Make, changes: Changes) -> None:
    """From 20 to 8 what is under way is waited for, without a deadlock; then to 12."""
    wide(cluster)
    producer = make(topic_metadata_refresh_interval_ms=1600)
    load = busy(cluster, producer)
    for value in (8, 12):
        cluster.set_topic_config("wide", RETAIN, str(value))
        load.until(lambda value=value: changes.windows[-1].after == value, backlog=BACKLOG)  # type: ignore[misc]
        known_at = changes.window_changed_at + ON_ITS_WAY
        load.until(
            lambda at=known_at, value=value: most_unresolved(cluster, "wide", LATE, at) >= value, backlog=BACKLOG
        )  # type: ignore[misc]
        load.keep(6 * LATE, BACKLOG)
        assert most_unresolved(cluster, "wide", LATE, known_at) == value
    assert set(load.finish()) == {"delivered"}
    assert [(event.before, event.after) for event in changes.windows] == [(5, 20), (20, 8), (8, 12)]
    load.check(cluster)


def test_one_question_for_each_leader_and_topic(cluster: FakeCluster, make: Make) -> None:
    """However many lanes and partitions there are: one each half metadata interval."""
    cluster.create_topic("many", 12, config={RETAIN: "20"})
    producer = make(safeproducer_lanes=6)
    load = Traffic(producer, "many")
    load.until(lambda: [window.size for window in producer.snapshot().windows] == [20] * 12, backlog=10 * BACKLOG)
    began = time.time()
    load.keep(2.0, 10 * BACKLOG)
    load.finish()
    journal = cluster.journal("DescribeConfigs")
    times = {broker: [entry.time for entry in journal if entry.broker == broker] for broker in (1, 2)}
    for asked in times.values():
        steady = [at for at in asked if at >= began]
        assert len(steady) > 1
        assert len(steady) - 1 <= (steady[-1] - steady[0]) / 0.4 + 1, asked  # a busy broker notes one late
        # At first also when statistics told of an epoch, or of a connection, while a question was on its way.
        assert len(asked) - len(steady) <= 3 + (began - asked[0]) / 0.4, asked
    assert began < journal[-1].time
    assert len({entry.client_id for entry in cluster.journal("InitProducerId")}) == 1
