"""The tests of reuse notice it when a rule of it is broken."""

from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from safeproducer.pipeline import closing, reuse
from safeproducer.pipeline.lanes.direct_lane import DirectLaneCounts
from safeproducer.pipeline.lanes.native_producers import Relay
from safeproducer.pipeline.reuse import ParkedProducers, Parking
from safeproducer.testing import FakeCluster
from tests.pipeline import test_direct_lane_counts, test_parking
from tests.producer_ids import test_reuse
from tests.producer_ids.test_reuse import cluster, config, parking

__all__ = ["cluster", "parking"]

Check = Callable[..., None]


def nobody_hears_of_others(cluster: FakeCluster, parking: Parking) -> None:
    told: dict[str, Counter[Any]] = {kind: Counter() for kind in ("delivered", "error", "stats", "throttle")}
    settings = config(cluster, statistics__interval__ms=5)
    test_reuse.one_after_another(settings, 60, told, lambda number: bool(number % 2))
    assert not any(kinds[False] for kinds in told.values())
    assert told["stats"][True]


def close_parks_once(cluster: FakeCluster, parking: Parking) -> None:
    with pytest.MonkeyPatch.context() as patch:
        test_reuse.test_a_handler_that_raises_in_close_makes_no_second_owner(cluster, parking, patch)


def counts_go_over(*_: Any) -> None:
    test_direct_lane_counts.test_a_new_owners_records_are_waited_for()


PLANTED: dict[str, tuple[Check, Any, str, Any]] = {
    "the relay keeps its owner": (nobody_hears_of_others, Relay, "belong_to", lambda self, owner: None),
    "nobody serves what is parked": (test_reuse.test_statistics_go_on_while_parked,
        ParkedProducers, "serve", lambda self: True),
    "records under way do not matter": (test_reuse.test_one_that_is_collected_with_records_under_way_is_not_parked,
        reuse, "_all_delivered", lambda engine: True),
    "backlogs begin anew": (counts_go_over, DirectLaneCounts, "taken_over",
        lambda self, now: self.__dict__.update(DirectLaneCounts(now).__dict__)),
    "ages begin with the former owner": (counts_go_over, DirectLaneCounts, "taken_over", lambda self, now: None),
    "batch calls of former owners are forgotten": (counts_go_over, DirectLaneCounts, "batches", lambda self, at: {}),
    "taken and left there": (lambda _, parking: test_parking.test_no_two_have_the_same_one(parking), Parking, "take",
        lambda self, key: next((left for left in list(self._parked.values()) if left.key == key), None)),
    "served while its former owner is inside": (
        lambda _, parking: test_parking.test_a_former_owner_that_is_still_inside_is_waited_for(parking),
        test_parking.Lanes, "settled", lambda self, timeout: True),
    "parked at each close()": (close_parks_once, closing.Release, "parks",
        lambda self, ended: self._left is not None and self._left.park()),
    "a purge does not matter": (
        lambda *of: test_reuse.test_a_producer_in_doubt_is_not_parked(*of, "auto", test_reuse.purges), reuse,
        "_all_delivered", lambda engine: True),
}  # fmt: skip


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_noticed(cluster: FakeCluster, parking: Parking, bug: str) -> None:
    check, where, name, broken = PLANTED[bug]
    with mock.patch.object(where, name, broken), pytest.raises((AssertionError, pytest.fail.Exception, ExceptionGroup)):
        check(cluster, parking)


def test_nobody_hears_of_others(cluster: FakeCluster, parking: Parking) -> None:
    nobody_hears_of_others(cluster, parking)
