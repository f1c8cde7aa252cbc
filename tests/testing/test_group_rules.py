"""Rules of consumer groups that no client shows at will: who is missing in a rebalance, and for how long."""

from typing import Any

import pytest

from safeproducer.testing.fake.rules.groups import Group, Reply, State

SESSION, REBALANCE = 6_000, 1_000
MEMBER_ID_REQUIRED, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID = 79, 25, 82


@pytest.fixture
def group() -> Group:
    return Group("g")


def join(group: Group, new_id: str, now: int, *, version: int = 3, rebalance: int = REBALANCE, **said: Any) -> Reply:
    """A new member, or one that says its ID."""
    body = {"member_id": "", "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}], **said}
    times = {"session_timeout_ms": SESSION, "rebalance_timeout_ms": rebalance}
    return group.join({**body, **times}, version, "client", new_id, now)


def error(reply: Reply) -> Any:
    """The error code of its answer; None while it has none."""
    return None if reply.answer is None else reply.answer["error_code"]


def test_nobody_waits_for_a_member_that_only_took_an_id(group: Group) -> None:
    """Longer than for its session: then the rebalance is complete without it."""
    assert error(join(group, "one", 0, rebalance=2 * SESSION)) == 0
    assert error(join(group, "two", 0, version=4)) == MEMBER_ID_REQUIRED
    three, again = join(group, "three", 1), join(group, "one", 2, member_id="one")
    group.pass_time(SESSION - 1)
    assert (error(three), error(again)) == (None, None)
    group.pass_time(SESSION)
    assert (error(three), error(again), group.pending) == (0, 0, {})


def test_a_static_member_that_is_back_fences_the_request_that_waits(group: Group) -> None:
    """It takes the place of the one before it, and the rebalance goes on with both."""
    join(group, "one", 0)
    before = join(group, "two", 1, group_instance_id="i")
    assert error(before) is None
    after = join(group, "three", 2, group_instance_id="i")
    assert (error(before), error(after)) == (FENCED_INSTANCE_ID, None)
    assert error(join(group, "one", 3, member_id="one")) == 0
    assert (error(after), [*group.members]) == (0, ["one", "three"])


def test_a_rebalance_waits_on_for_static_members_alone(group: Group) -> None:
    """Whoever leaves meanwhile has its answer; a static member is not dropped when the time to join is over."""
    join(group, "static", 0, group_instance_id="i")
    waiting = join(group, "two", 1)
    group.leave("two", None, 2)
    assert error(waiting) == UNKNOWN_MEMBER_ID
    group.pass_time(1 + REBALANCE)
    assert (group.state, [*group.members], group.deadline) == (State.PREPARING, ["static"], 1 + 2 * REBALANCE)
    assert error(join(group, "", 2 + REBALANCE, member_id="static", group_instance_id="i")) == 0
