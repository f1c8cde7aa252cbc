"""Topics made, grown and deleted, and what is refused."""

import uuid
from typing import Any

import pytest

from tests.conformance.target import Target, fresh, topic_id, until
from tests.testing.raw import RawClient, make_batch

UNKNOWN_TOPIC, INVALID_TOPIC, EXISTS, INVALID_PARTITIONS, INVALID_FACTOR = 3, 17, 36, 37, 38
INVALID_ASSIGNMENT, INVALID_CONFIG, INVALID_REQUEST, UNKNOWN_TOPIC_ID = 39, 40, 42, 100

BY_ASSIGNMENT = {"num_partitions": -1, "replication_factor": -1}


def create(
    client: RawClient, name: str, *, version: int = 7, validate_only: bool = False, **changes: Any
) -> dict[str, Any]:
    """The answer for one topic of one partition."""
    wanted = {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": [], **changes}
    body = {"topics": [wanted], "timeout_ms": 10_000, "validate_only": validate_only}
    (found,) = client.ask("CreateTopics", version, **body)["topics"]
    assert isinstance(found, dict)
    return found


def partitions(client: RawClient, topic: str) -> int:
    """How many there are, 0 for a topic there is not."""
    (found,) = client.ask("Metadata", 12, topics=[{"name": topic}])["topics"]
    return len(found["partitions"])


@pytest.mark.parametrize("version", range(2, 8))
def test_topics_are_made_in_every_version(client: RawClient, version: int) -> None:
    """From version 5 on the answer describes the topic, from version 7 on with its ID."""
    name = fresh("made")
    configs = [{"name": "retention.ms", "value": "1234567"}]
    assert create(client, name, version=version, validate_only=True)["error_code"] == 0
    assert partitions(client, name) == 0
    made = create(client, name, version=version, num_partitions=2, configs=configs)
    assert (made["name"], made["error_code"], made["error_message"]) == (name, 0, None)
    until(lambda: partitions(client, name) == 2, "it is there")
    if version >= 5:
        assert (made["num_partitions"], made["replication_factor"]) == (2, 1)
        described = {entry["name"]: (entry["value"], entry["config_source"]) for entry in made["configs"]}
        assert described["retention.ms"] == ("1234567", 1)
        assert described["max.message.bytes"] == ("1048588", 5)
    if version >= 7:
        assert made["topic_id"] == topic_id(client, name)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        *(({"name": name}, INVALID_TOPIC) for name in ("a b", "", ".", "..", "a" * 250, "ä")),
        ({"name": "a" * 249}, 0),
        *(({"num_partitions": count}, INVALID_PARTITIONS) for count in (0, -2)),
        ({"num_partitions": -1}, 0),
        *(({"replication_factor": factor}, INVALID_FACTOR) for factor in (0, -2, 2)),
        ({"replication_factor": -1}, 0),
        ({"configs": [{"name": "no.such", "value": "1"}]}, INVALID_CONFIG),
        *(({"configs": [{"name": "retention.ms", "value": value}]}, INVALID_CONFIG) for value in ("x", None)),
        ({"assignments": [(0, [1])]}, INVALID_REQUEST),
        ({**BY_ASSIGNMENT, "assignments": [(0, [1])]}, 0),
        *(
            ({**BY_ASSIGNMENT, "assignments": given}, INVALID_ASSIGNMENT)
            for given in ([(1, [1])], [(0, [])], [(0, [1, 1])], [(0, [9])], [(0, [1]), (0, [1])])
        ),
    ],
    ids=str,
)
def test_error_codes_of_creation(client: RawClient, changes: dict[str, Any], error: int) -> None:
    """Names, numbers, configs, assignments. Every creation is a rehearsal."""
    wanted = dict(changes)
    if "assignments" in wanted:
        given = wanted["assignments"]
        wanted["assignments"] = [{"partition_index": index, "broker_ids": brokers} for index, brokers in given]
    answer = create(client, wanted.pop("name", fresh("refused")), validate_only=True, **wanted)
    assert answer["error_code"] == error
    assert (answer["error_message"] is None) == (error == 0)


def test_a_topic_there_is_and_one_named_twice(cluster: Target, client: RawClient) -> None:
    """The first is refused as existing, both of the other as ambiguous; a good one beside them is made."""
    old, twice, good = cluster.topic(), fresh("twice"), fresh("good")
    names = [old, twice, twice, good]
    topics = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in names]
    answers = client.ask("CreateTopics", 7, topics=topics, timeout_ms=10_000)["topics"]
    found = sorted((answer["name"], answer["error_code"]) for answer in answers)
    assert found == sorted([(old, EXISTS), (twice, INVALID_REQUEST), (good, 0)])


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        ({"name": "nobody-made-it", "count": 3}, UNKNOWN_TOPIC),
        *(({"count": count}, INVALID_PARTITIONS) for count in (2, 1, 0, -1)),
        ({"count": 3}, 0),
        ({"count": 4, "assignments": [{"broker_ids": [1]}]}, INVALID_ASSIGNMENT),
        *(({"count": 3, "assignments": [{"broker_ids": to}]}, INVALID_ASSIGNMENT) for to in ([9], [], [1, 1])),
        ({"count": 3, "assignments": [{"broker_ids": [1]}]}, 0),
    ],
    ids=str,
)
def test_more_partitions(cluster: Target, client: RawClient, wanted: dict[str, Any], error: int) -> None:
    """What is refused and what is not; a rehearsal makes none."""
    name = cluster.topic(2)
    for rehearsal, expected in ((True, 2), (False, 2 if error else wanted["count"])):
        topics = [{"name": name, "assignments": None, **wanted}]
        body = {"topics": topics, "timeout_ms": 10_000, "validate_only": rehearsal}
        (answer,) = client.ask("CreatePartitions", 3, **body)["results"]
        assert answer["error_code"] == error
        until(lambda expected=expected: partitions(client, name) == expected, f"{expected} partitions")


def test_a_topic_grown_twice_in_a_request(client: RawClient, name: str) -> None:
    topics = [{"name": name, "count": count, "assignments": None} for count in (2, 3)]
    answers = client.ask("CreatePartitions", 3, topics=topics, timeout_ms=10_000)["results"]
    assert [(answer["name"], answer["error_code"]) for answer in answers] == [(name, INVALID_REQUEST)]


def test_topics_are_deleted_by_name_and_by_id(cluster: Target, client: RawClient) -> None:
    first, second, third = cluster.topic(), cluster.topic(), cluster.topic()
    stranger = uuid.uuid4()
    ids = {name: topic_id(client, name) for name in (first, second, third)}
    wanted = [
        {"name": first},
        {"name": None, "topic_id": ids[second]},
        {"name": "nobody-made-it"},
        {"name": None, "topic_id": stranger},
    ]
    answers = client.ask("DeleteTopics", 6, topics=wanted, timeout_ms=10_000)["responses"]
    found = {(answer["name"], answer["topic_id"]): answer["error_code"] for answer in answers}
    assert found == {
        (first, ids[first]): 0,
        (second, ids[second]): 0,
        ("nobody-made-it", uuid.UUID(int=0)): UNKNOWN_TOPIC,
        (None, stranger): UNKNOWN_TOPIC_ID,
    }
    for name in (first, second):
        until(lambda name=name: partitions(client, name) == 0, "it is gone")
    assert client.produce(first, make_batch([b"a"]))["error_code"] == UNKNOWN_TOPIC
    assert client.produce(third, make_batch([b"a"]))["error_code"] == 0


def test_a_wrong_deletion_deletes_nothing(client: RawClient, name: str) -> None:
    """A topic both named and identified, neither, or named twice: nothing is deleted."""
    wanted = [{"name": name, "topic_id": topic_id(client, name)}, {"name": None}]
    answers = client.ask("DeleteTopics", 6, topics=wanted, timeout_ms=10_000)["responses"]
    assert [answer["error_code"] for answer in answers] == [INVALID_REQUEST, INVALID_REQUEST]
    twice = client.ask("DeleteTopics", 5, topic_names=[name, name], timeout_ms=10_000)["responses"]
    assert {answer["error_code"] for answer in twice} == {INVALID_REQUEST}
    assert partitions(client, name) == 1


def test_a_topic_made_again_is_another_one(cluster: Target, client: RawClient, name: str) -> None:
    """It has another ID and no records, and remembers no producer."""
    before = topic_id(client, name)
    first, third = (make_batch([b"a"], producer_id=7, epoch=0, sequence=sequence) for sequence in (0, 2))
    assert [client.produce(name, batch)["error_code"] for batch in (first, third)] == [0, 45]
    assert client.ask("DeleteTopics", 6, topics=[{"name": name}], timeout_ms=10_000)["responses"][0]["error_code"] == 0
    until(lambda: partitions(client, name) == 0, "it is gone")
    assert create(client, name)["error_code"] == 0
    cluster.wait_for_leader(name)
    assert topic_id(client, name) != before
    answer = client.produce(name, third)
    assert (answer["error_code"], answer["base_offset"]) == (0, 0)
