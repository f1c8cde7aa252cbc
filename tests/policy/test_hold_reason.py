"""The reasons to hold records back: stable codes for programs, whole sentences for people."""

import re

import pytest

from safeproducer import HoldReason
from safeproducer.policy.decision import Hold

NOW = 100.0
CODES = """
    throttled probing max_in_flight window in_flight linger mode_held first_acknowledgement long_round_trip
    preparing_lane producer_id_quota quota_retry leader_silent backlog outdated_metadata unknown_topic unknown_outcome
    sequence_gap expiry lane_change lanes_busy lanes_limited key_order producer_id_limit renewing turn no_broker
"""


def test_codes_are_frozen() -> None:
    """Metrics and alerts of users have them as labels: adding, renaming or removing one is a decision."""
    assert sorted(reason.value for reason in HoldReason) == sorted(CODES.split())
    assert len(HoldReason.__members__) == len(HoldReason), "two names for one code"


@pytest.mark.parametrize("reason", HoldReason)
@pytest.mark.parametrize("until", [None, NOW - 1, NOW + 2.5])
@pytest.mark.parametrize("node", [None, 1])
def test_each_sentence_is_whole(reason: HoldReason, until: float | None, node: int | None) -> None:
    """It fits behind "the partition", whatever is known."""
    sentence = Hold(until, reason, node).sentence(NOW)
    assert re.match(r"(waits|gathers|is held back|stays) ", sentence)
    assert not re.search(r"[{}]|None|-\d", sentence)
    assert not sentence.endswith(".")


@pytest.mark.parametrize("reason", HoldReason)
def test_each_cure_is_a_sentence_and_each_kip_a_number(reason: HoldReason) -> None:
    """Both go into explain() and the table of reasons as they are."""
    assert reason.cure is None or re.fullmatch(r"[A-Z].*[^.]\.", reason.cure)
    assert reason.kip is None or re.fullmatch(r"KIP-\d+", reason.kip)


def test_a_member_is_its_code() -> None:
    """As a label it needs no conversion, and what a program stored finds the member again."""
    assert f"{HoldReason.THROTTLED}" == "throttled"
    assert HoldReason("throttled") is HoldReason.THROTTLED


def test_a_throttle_time_counts_down_and_names_its_broker() -> None:
    """The sentence is made when somebody asks, not when the hold began."""
    hold = Hold(NOW + 3, HoldReason.THROTTLED, 2)
    assert hold.sentence(NOW) == "waits because broker 2, its leader, throttles this client for another 3.0 s (quota)"
    assert "for another 1.5 s" in hold.sentence(NOW + 1.5)
    assert "for another 0.0 s" in hold.sentence(NOW + 4)


def test_a_leader_that_is_not_known_is_not_named() -> None:
    """Then the throttle time of any broker counts."""
    assert "because a broker (its own is not known yet) throttles" in Hold(NOW, HoldReason.THROTTLED).sentence(NOW)
