"""Quotas of users and clients: changed and described by request, and the times for which they throttle."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from safeproducer.testing.wire import encode_request
from tests.conformance.target import Target, fetch, fresh, part, until
from tests.testing.raw import RawClient, make_batch, produce_body

UNSUPPORTED_VERSION, INVALID_REQUEST = 35, 42
EXACT, NAMELESS, ANY = 0, 1, 2
WINDOWS_MS = 10_000
"""Ten whole windows of a second: what a burst is spread over by a client that was quiet before."""

Entity = list[dict[str, str | None]]


def entity(**names: str | None) -> Entity:
    return [{"entity_type": kind.replace("_", "-"), "entity_name": name} for kind, name in names.items()]


def alter(client: RawClient, who: Entity, *, version: int = 1, validate_only: bool = False, **quotas: Any) -> int:
    """The error code of one change; None takes a quota away."""
    changes = [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in quotas.items()]
    entries = [{"entity": who, "ops": changes}]
    (answer,) = client.ask("AlterClientQuotas", version, entries=entries, validate_only=validate_only)["entries"]
    assert (answer["error_code"] == 0) == (answer["error_message"] is None)
    error = answer["error_code"]
    assert isinstance(error, int)
    return error


def described(client: RawClient, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    """What matches: by entity, the quotas; or an error code."""
    wanted = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in components]
    answer = client.ask("DescribeClientQuotas", 1, components=wanted, strict=strict)
    if answer["error_code"]:
        assert answer["entries"] is None
        return answer["error_code"]
    return {
        frozenset((part["entity_type"], part["entity_name"]) for part in entry["entity"]): {
            value["key"]: value["value"] for value in entry["values"]
        }
        for entry in answer["entries"]
    }


@contextmanager
def limited(cluster: Target, **quotas: float) -> Iterator[RawClient]:
    """A client whose ID nobody used before, with quotas that the broker knows."""
    name = fresh("quota")
    with cluster.connect() as admin, cluster.connect(client_id=name) as client:
        assert alter(admin, entity(client_id=name), **quotas) == 0
        until(lambda: described(admin, ("client-id", EXACT, name)), "the quota is known")
        yield client
        assert alter(admin, entity(client_id=name), **dict.fromkeys(quotas)) == 0


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_are_set_described_and_taken_away(cluster: Target, client: RawClient, version: int) -> None:
    """A rehearsal changes nothing; what is left of an entity without quotas is nothing."""
    name, user = fresh("client"), fresh("user")
    who, both = entity(client_id=name), entity(user=user, client_id=name)
    mine = ("client-id", EXACT, name)
    key, pair = frozenset({("client-id", name)}), frozenset({("client-id", name), ("user", user)})
    assert alter(client, who, producer_byte_rate=5.0, validate_only=True, version=version) == 0
    assert described(client, mine) == {}
    assert alter(client, who, producer_byte_rate=5.0, request_percentage=0.5, version=version) == 0
    assert alter(client, both, consumer_byte_rate=7.0, version=version) == 0
    all_of_it = {key: {"producer_byte_rate": 5.0, "request_percentage": 0.5}, pair: {"consumer_byte_rate": 7.0}}
    until(lambda: described(client, mine) == all_of_it, "both are known")
    assert described(client, mine, strict=True) == {key: all_of_it[key]}
    assert described(client, mine, ("user", ANY, None)) == {pair: all_of_it[pair]}
    assert described(client, mine, ("user", NAMELESS, None)) == {}
    assert alter(client, who, producer_byte_rate=None, request_percentage=None, version=version) == 0
    assert alter(client, both, consumer_byte_rate=None, version=version) == 0
    until(lambda: described(client, mine) == {}, "both are gone")


def test_the_default_entity_has_no_name(client: RawClient) -> None:
    """It is described by the match type of its own."""
    assert alter(client, entity(client_id=None), request_percentage=5000.0) == 0
    key = frozenset({("client-id", None)})
    expected = {key: {"request_percentage": 5000.0}}
    until(lambda: described(client, ("client-id", NAMELESS, None), strict=True) == expected, "it is known")
    assert alter(client, entity(client_id=None), request_percentage=None) == 0
    until(lambda: described(client, ("client-id", NAMELESS, None), strict=True) == {}, "it is gone")


@pytest.mark.parametrize(
    ("who", "quotas", "error"),
    [
        (entity(user="a"), {"no_such_rate": 1.0}, INVALID_REQUEST),
        *(
            (entity(user="a"), {"producer_byte_rate": rate}, INVALID_REQUEST)
            for rate in (-1.0, 0.0, 1.5, 1e30, math.nan, math.inf)
        ),
        *(
            (entity(user="a"), {"request_percentage": share}, INVALID_REQUEST)
            for share in (0.0, -math.inf, math.nan, math.inf)
        ),
        (entity(user="a"), {"request_percentage": 1.5}, 0),
        (entity(user=""), {"producer_byte_rate": 1.0}, INVALID_REQUEST),
        (entity(planet="a"), {"producer_byte_rate": 1.0}, INVALID_REQUEST),
        ([], {"producer_byte_rate": 1.0}, INVALID_REQUEST),
        (entity(user="a"), {}, 0),
    ],
    ids=str,
)
def test_error_codes_of_changes(client: RawClient, who: Entity, quotas: dict[str, float], error: int) -> None:
    """Unknown names, values out of range, entities that are nobody. Every change is a rehearsal."""
    assert alter(client, who, validate_only=True, **quotas) == error


def test_a_quota_that_is_named_twice_is_refused(client: RawClient) -> None:
    twice = [{"key": "producer_byte_rate", "value": value, "remove": False} for value in (4.0, 5.0)]
    entries = [{"entity": entity(user="a"), "ops": twice}]
    (answer,) = client.ask("AlterClientQuotas", 1, entries=entries, validate_only=True)["entries"]
    assert answer["error_code"] == INVALID_REQUEST


@pytest.mark.parametrize(
    ("components", "error"),
    [
        ([("planet", ANY, None)], UNSUPPORTED_VERSION),
        ([("", ANY, None)], INVALID_REQUEST),
        ([("user", 7, None)], INVALID_REQUEST),
        ([("user", EXACT, None)], INVALID_REQUEST),
        ([("user", ANY, "a")], INVALID_REQUEST),
        ([("user", NAMELESS, "a")], INVALID_REQUEST),
        ([("user", ANY, None), ("user", ANY, None)], INVALID_REQUEST),
        ([("ip", ANY, None), ("user", ANY, None)], INVALID_REQUEST),
        ([("user", EXACT, "nobody")], {}),
    ],
    ids=str,
)
def test_error_codes_of_filters(client: RawClient, components: list[Any], error: Any) -> None:
    assert described(client, *components) == error


def produce(client: RawClient, topic: str, size: int) -> tuple[int, int]:
    """One batch with about `size` bytes: the throttle time told, and the bytes of the request."""
    body = produce_body(topic, make_batch([bytes(size)]))
    answer = client.ask("Produce", 9, **body)
    assert part(answer)["error_code"] == 0
    return answer["throttle_time_ms"], len(encode_request("Produce", 9, 1, client.client_id, body))


def test_a_burst_of_bytes_is_throttled(cluster: Target, name: str) -> None:
    """For as long as it exceeds ten windows; the answer comes at once, and the connection is read after the delay."""
    with limited(cluster, producer_byte_rate=98_500.0) as client:
        began = time.monotonic()
        throttle, length = produce(client, name, 1_045_000)
        told = time.monotonic() - began
        assert throttle == pytest.approx(length / 98.5 - WINDOWS_MS, rel=0.1)
        client.ask("ApiVersions", 0)
        waited = time.monotonic() - began
    assert told < throttle / 1000 <= waited < throttle / 1000 + 1


def test_bursts_in_two_windows_add_up(cluster: Target, name: str) -> None:
    """The second is judged with the first, over the ten windows and what has passed of them."""
    with limited(cluster, producer_byte_rate=10_000.0) as client:
        began = time.monotonic()
        free, first = produce(client, name, 60_000)
        time.sleep(1.05)  # the next window has to begin
        throttle, second = produce(client, name, 60_000)
        passed = (time.monotonic() - began) * 1000
    # What has passed of the running window lengthens the ten; a whole one does not.
    expected = (first + second) / 10 - WINDOWS_MS - passed % 1000
    assert free == 0
    assert throttle == pytest.approx(expected, rel=0.1)


def test_a_burst_of_exactly_the_quota_is_free(cluster: Target, name: str) -> None:
    """Ten windows of bytes at once are no violation; one byte a second less is."""
    with cluster.connect(client_id=fresh("quota")) as unlimited:
        _, length = produce(unlimited, name, 50_000)
    for rate, throttled in ((math.ceil(length / 10), False), (length // 10 - 5, True)):
        with limited(cluster, producer_byte_rate=float(rate)) as client:
            assert (produce(client, name, 50_000)[0] > 0) == throttled


def test_a_throttled_fetch_gets_nothing(cluster: Target, client: RawClient, name: str) -> None:
    """Its answer is empty and tells the delay, which its bytes would have caused; they are not charged."""
    assert client.produce(name, make_batch([bytes(9_600)]))["error_code"] == 0
    with limited(cluster, consumer_byte_rate=1000.0) as throttled:
        full = fetch(throttled, 12, name, max_bytes=10_000)
        size = len(part(full)["records"])
        assert (full["throttle_time_ms"], size > 9_600) == (0, True)
        empty = fetch(throttled, 12, name, max_bytes=700)  # the first batch comes whole, or would
        assert (empty["error_code"], empty["responses"]) == (0, [])
        assert empty["throttle_time_ms"] == pytest.approx(2 * size - WINDOWS_MS, rel=0.1)


def test_a_fetch_is_cut_to_the_largest_burst(cluster: Target, client: RawClient, name: str) -> None:
    """It would get nothing for ever otherwise; what is around the records still throttles it once."""
    for _ in range(3):
        assert client.produce(name, make_batch([bytes(4000)]))["error_code"] == 0
    with limited(cluster, consumer_byte_rate=900.0) as throttled:
        first = fetch(throttled, 12, name)
        assert (first["responses"], 50 < first["throttle_time_ms"] < 200) == ([], True)
        second = fetch(throttled, 12, name)
        assert second["throttle_time_ms"] == 0
        assert len(part(second)["records"]) == 9000


@pytest.mark.parametrize("api", ["Metadata", "ListOffsets", "Produce"])
def test_request_time_is_throttled_for_one_window_at_most(cluster: Target, api: str, name: str) -> None:
    """Every API is charged; however far over, the delay is a second."""
    bodies: dict[str, tuple[int, dict[str, Any]]] = {
        "Metadata": (12, {"topics": []}),
        "ListOffsets": (7, {"replica_id": -1, "topics": []}),
        "Produce": (9, produce_body(name, make_batch([b"a"]))),
    }
    version, body = bodies[api]
    with limited(cluster, request_percentage=1e-9) as client:
        assert client.ask(api, version, **body)["throttle_time_ms"] == 1000
