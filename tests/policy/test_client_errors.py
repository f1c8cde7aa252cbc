"""When a client error and a throttle time are over."""

from dataclasses import replace

import pytest

from safeproducer.policy.diagnosis import ClientError, broker_in, cut, of_errors, throttling
from safeproducer.policy.hold_reason import HoldReason

TOLD_AT = 100.0
BEFORE, AFTER = TOLD_AT - 1, TOLD_AT + 1


def error(node: int | None = None, of_all: bool = False, lasts: bool = False) -> ClientError:
    return ClientError("It refuses.", node, of_all, lasts, TOLD_AT, delivered=7)


@pytest.mark.parametrize(
    ("reason", "all_down", "told"),
    [
        ("127.0.0.1:9092/1: Connect to ipv4#127.0.0.1:9092 failed: Connection refused", False, (1, False)),
        ("sasl_ssl://kafka-3.example:9093/103: Disconnected (after 5ms in state UP)", False, (103, False)),
        ("ssl://[::1]:9093/bootstrap: SSL handshake failed", False, (None, True)),
        ("3/3 brokers are down", True, (None, True)),
        ("TxnCoordinator: Failed to find it", False, (None, False)),
        ("", False, (None, False)),
    ],
)
def test_the_broker_is_read_from_the_text(reason: str, all_down: bool, told: tuple[int | None, bool]) -> None:
    """By its ID; what a bootstrap address tells is about reaching any broker."""
    assert broker_in(reason, all_down) == told


@pytest.mark.parametrize(
    ("told", "connected", "delivered", "over"),
    [
        (error(node=1), {}, 7, False),
        (error(node=1), {1: BEFORE}, 7, False),
        (error(node=1), {1: TOLD_AT}, 7, False),
        (error(node=1), {2: AFTER}, 99, False),  # another one acknowledges
        (error(node=1), {1: AFTER}, 7, True),
        (error(of_all=True), {1: BEFORE}, 7, False),
        (error(of_all=True), {1: AFTER}, 7, True),
        (error(of_all=True), {}, 8, True),
        (error(), {1: AFTER}, 7, False),
        (error(), {}, 8, True),
        (error(lasts=True), {1: AFTER}, 99, False),
    ],
)
def test_an_error_is_over_when_what_it_was_about_works_again(
    told: ClientError, connected: dict[int, float], delivered: int, over: bool
) -> None:
    """A broker that is named must be connected again itself; a fatal error is never over."""
    assert told.is_over(connected, delivered, AFTER + 60) is over


def test_an_error_that_comes_again_and_again_is_told_so_and_not_over() -> None:
    """Brokers are connected again before each. It is over when it is not due again and records are delivered."""
    first = error(of_all=True).after(None)
    assert (first.times, first.since) == (1, TOLD_AT)
    assert first.is_over({1: TOLD_AT + 0.5}, 8, TOLD_AT + 0.6)
    again = replace(first, at=TOLD_AT + 1).after(first)
    third = replace(first, at=TOLD_AT + 2).after(again)
    assert (third.times, third.since) == (3, TOLD_AT)
    connected = {1: third.at + 0.5}
    assert not third.is_over(connected, 8, third.at + 1.9)
    assert not third.is_over(connected, 7, third.at + 60)
    assert third.is_over(connected, 8, third.at + 2.1)
    assert replace(first, at=third.at + 11).after(third).times == 1


def test_a_throttle_time_that_has_ended_is_no_cause() -> None:
    """Nor while one batch at a time goes there: what is held for that has a reason of its own."""
    lasting = throttling(1, until=102.0, now=100.0)
    assert (lasting.over, lasting.node, lasting.code) == (False, 1, "throttled")
    assert lasting.sentence == "the quota of broker 1 throttles this client for another 2.0 s"
    assert lasting.cure == HoldReason.THROTTLED.cure
    ended = throttling(1, until=98.0, now=100.0)
    assert ended.over
    assert ended.sentence.endswith("throttled this client until 2.0 s ago")
    unknown = throttling(-1, until=102.0, now=100.0)
    assert unknown.node is None
    assert "a broker" in unknown.sentence


def test_what_a_broker_answers_is_told_before_the_connections_that_it_cuts_then() -> None:
    """One that refuses the login ends each connection: its cure is not to look at the network."""
    cuts, vague = {1: cut(1, 4, since=7.0, last=3.0)}, replace(error(of_all=True), vague=True)
    told = list(of_errors([vague, error(node=1)], cuts, {1: AFTER}, False, 99, AFTER))
    assert [one.sentence.partition(" was")[0] for one in told] == [
        "the last client error of broker 1",
        "the connection to broker 1",
    ]
    told = list(of_errors([vague], cuts, {1: AFTER}, False, 7, AFTER))
    assert [one.what.kind for one in told] == ["broker", "cluster"]


@pytest.mark.parametrize("away", [False, True])
def test_that_no_broker_is_connected_is_said_once_statistics_show_it(away: bool) -> None:
    """In its first half second a producer with a connection was told to have none."""
    (told,) = of_errors([error(node=1)], {}, {}, away, 0, AFTER)
    assert ("no broker is connected" in told.sentence) is away
