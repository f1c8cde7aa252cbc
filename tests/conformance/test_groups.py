"""Consumer groups of the classic protocol: members, rebalances, offsets, and what admin clients see."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.conformance.target import Target, fresh, topic_id, until
from tests.testing.raw import RawClient

OFFSET_METADATA_TOO_LARGE, INVALID_GROUP_ID, ILLEGAL_GENERATION, INCONSISTENT, UNKNOWN_MEMBER = 12, 24, 22, 23, 25
INVALID_SESSION, REBALANCING, NON_EMPTY, NOT_FOUND, ID_REQUIRED, FENCED = 26, 27, 68, 69, 79, 82
UNKNOWN_TOPIC, UNKNOWN_TOPIC_ID = 3, 100
SESSION = 6_000


class Member:
    """A member on a connection of its own."""

    def __init__(self, cluster: Target, group: str, instance: str | None = None, protocols: str = "range") -> None:
        self.client = cluster.connect(client_id="member")
        self.group, self.instance, self.protocols = group, instance, protocols.split()
        self.id, self.generation, self.version = "", -1, 9

    def __enter__(self) -> "Member":
        return self

    def __exit__(self, *raised: object) -> None:
        self.client.__exit__()

    def post_join(self, **changes: Any) -> None:
        asked = {
            "group_id": self.group,
            "member_id": self.id,
            "group_instance_id": self.instance,
            "session_timeout_ms": SESSION,
            "rebalance_timeout_ms": 9_000,
            "protocol_type": "consumer",
            "protocols": [{"name": name, "metadata": self.metadata(name)} for name in self.protocols],
        }
        self.client.post("JoinGroup", self.version, **{**asked, **changes})

    def metadata(self, protocol: str) -> bytes:
        return f"{protocol}?".encode()

    def joined(self) -> dict[str, Any]:
        answer = self.client.answer("JoinGroup", self.version)
        self.id = answer["member_id"] or self.id
        self.generation = answer["generation_id"]
        return answer

    def try_join(self, **changes: Any) -> dict[str, Any]:
        self.post_join(**changes)
        return self.joined()

    def get_id(self) -> None:
        """Only members without an instance are sent away for one."""
        assert self.try_join()["error_code"] == ID_REQUIRED
        assert self.id.startswith("member-")

    def sync(self, assignments: dict[str, bytes] | None = None, **changes: Any) -> dict[str, Any]:
        self.post_sync(assignments, **changes)
        return self.client.answer("SyncGroup", 5)

    def post_sync(self, assignments: dict[str, bytes] | None = None, **changes: Any) -> None:
        given = [{"member_id": one, "assignment": data} for one, data in (assignments or {}).items()]
        names = {"protocol_type": "consumer", "protocol_name": self.protocols[0]}
        self.client.post("SyncGroup", 5, **{**self.who(), **names, "assignments": given, **changes})

    def who(self) -> dict[str, Any]:
        return {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.id,
            "group_instance_id": self.instance,
        }

    def heartbeat(self, **changes: Any) -> int:
        return int(self.client.ask("Heartbeat", 4, **{**self.who(), **changes})["error_code"])

    def leave(self) -> list[int]:
        who = {"member_id": self.id, "group_instance_id": self.instance}
        answer = self.client.ask("LeaveGroup", 5, group_id=self.group, members=[who])
        assert answer["error_code"] == 0
        return [one["error_code"] for one in answer["members"]]

    def commit(self, topic: str, offset: int, **changes: Any) -> int:
        who = self.who()
        who["generation_id_or_member_epoch"] = who.pop("generation_id")
        return commit(self.client, topic, offset, **{**who, **changes})


def commit(client: RawClient, topic: str, offset: int, *, partition: int = 0, metadata: str = "", **who: Any) -> int:
    at = {"partition_index": partition, "committed_offset": offset, "committed_metadata": metadata}
    answer = client.ask("OffsetCommit", 9, topics=[{"name": topic, "partitions": [at]}], **who)
    return int(answer["topics"][0]["partitions"][0]["error_code"])


def offsets(client: RawClient, group: str, topics: list[dict[str, Any]] | None = None, version: int = 9) -> Any:
    """Each topic's partitions with their offsets and metadata."""
    (answer,) = client.ask("OffsetFetch", version, groups=[{"group_id": group, "topics": topics}])["groups"]
    assert answer["error_code"] == 0
    return {
        (topic["name"], one["partition_index"]): (one["committed_offset"], one["metadata"], one["error_code"])
        for topic in answer["topics"]
        for one in topic["partitions"]
    }


def described(client: RawClient, group: str, version: int = 6) -> dict[str, Any]:
    (found,) = client.ask("DescribeGroups", version, groups=[group])["groups"]
    assert isinstance(found, dict)
    return found


@pytest.fixture
def group(cluster: Target) -> str:
    """A name whose coordinator is there."""
    name = fresh("group")

    def found() -> bool:
        with cluster.connect() as client:
            (answer,) = client.ask("FindCoordinator", 4, key_type=0, coordinator_keys=[name])["coordinators"]
            listed = client.ask("ListGroups", 4)["error_code"]
        return (answer["error_code"], listed) == (0, 0)

    until(found, "there is a coordinator")
    return name


@pytest.fixture
def members(cluster: Target, group: str) -> Iterator[Any]:
    with ExitStack() as stack:
        yield lambda *args: stack.enter_context(Member(cluster, group, *args))


def gathered(*members: Member) -> list[dict[str, Any]]:
    """Let them join, one after the other: the first one leads. Their answers of the last rebalance."""
    answers: list[dict[str, Any]] = []
    for count, newcomer in enumerate(members):
        if newcomer.instance is None:
            newcomer.get_id()
        newcomer.post_join()
        for member in members[:count]:
            until(lambda member=member: member.heartbeat() == REBALANCING, "a rebalance")  # type: ignore[misc]
            member.post_join()
        answers = [member.joined() for member in members[: count + 1]]
        assert {(one["error_code"], one["generation_id"], one["leader"]) for one in answers} == {
            (0, members[0].generation, members[0].id)
        }
    return answers


def stable(*members: Member) -> None:
    """And let them be assigned their own IDs."""
    gathered(*members)
    for member in members[1:]:
        member.post_sync()
    assert (
        members[0].sync({member.id: member.id.encode() for member in members})["assignment"] == members[0].id.encode()
    )
    for member in members[1:]:
        assert member.client.answer("SyncGroup", 5)["assignment"] == member.id.encode()


# ---- members


def test_a_first_member(members: Any, client: RawClient, group: str) -> None:
    """It gets an ID first, then it leads; its assignment comes back, and it is described."""
    (one,) = (members(),)
    answer = one.try_join()
    assert answer["error_code"] == ID_REQUIRED
    told = {name: answer[name] for name in ("generation_id", "protocol_type", "protocol_name", "leader", "members")}
    assert told == {"generation_id": -1, "protocol_type": None, "protocol_name": None, "leader": "", "members": []}
    assert described(client, group)["group_state"] in ("Empty", "Dead")  # Kafka may not keep what nobody has joined
    answer = one.try_join()
    assert (answer["error_code"], answer["generation_id"], answer["leader"]) == (0, 1, one.id)
    assert (answer["protocol_type"], answer["protocol_name"], answer["skip_assignment"]) == ("consumer", "range", False)
    assert answer["members"] == [{"member_id": one.id, "group_instance_id": None, "metadata": b"range?"}]
    assert described(client, group)["group_state"] == "CompletingRebalance"
    assert one.heartbeat() == 0
    answer = one.sync({one.id: b"all"})
    assert (answer["error_code"], answer["assignment"]) == (0, b"all")
    assert (answer["protocol_type"], answer["protocol_name"]) == ("consumer", "range")
    assert one.sync()["assignment"] == b"all"
    found = described(client, group)
    assert (found["error_code"], found["group_state"]) == (0, "Stable")
    assert (found["protocol_type"], found["protocol_data"]) == ("consumer", "range")
    (member,) = found["members"]
    assert (member["member_id"], member["client_id"], member["client_host"]) == (one.id, "member", "/127.0.0.1")
    assert (member["member_metadata"], member["member_assignment"]) == (b"range?", b"all")
    assert one.leave() == [0]
    assert described(client, group)["group_state"] == "Empty"


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_members_of_old_get_in_at_once(members: Any, version: int) -> None:
    """Before version 4 nobody is sent away for an ID."""
    one = members()
    one.version = version
    answer = one.try_join()
    assert (answer["error_code"], answer["generation_id"], answer["protocol_name"]) == (0, 1, "range")
    assert answer["members"][0]["metadata"] == b"range?"


@pytest.mark.parametrize("version", [5, 6, 7])
def test_a_refusal_by_version(members: Any, version: int) -> None:
    """Names are null from version 7 on."""
    one = members()
    one.version = version
    answer = one.try_join(member_id="nobody")
    name = "" if version < 7 else None
    assert (answer["error_code"], answer["protocol_name"], answer["member_id"]) == (UNKNOWN_MEMBER, name, "nobody")


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"session_timeout_ms": 5_999}, INVALID_SESSION),
        ({"session_timeout_ms": 1_800_001}, INVALID_SESSION),
        ({"protocols": []}, INCONSISTENT),
        ({"protocol_type": ""}, INCONSISTENT),
        ({"group_id": ""}, INVALID_GROUP_ID),
        ({"member_id": "somebody"}, UNKNOWN_MEMBER),
    ],
    ids=str,
)
def test_who_may_not_join(members: Any, changes: dict[str, Any], error: int) -> None:
    """An empty group takes everybody who says properly what he can do."""
    answer = members().try_join(**changes)
    assert (answer["error_code"], answer["member_id"]) == (error, changes.get("member_id", ""))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"protocol_type": "connect"}, INCONSISTENT),
        ({"protocols": [{"name": "sticky", "metadata": b""}]}, INCONSISTENT),
        ({"member_id": "somebody"}, UNKNOWN_MEMBER),
        ({"member_id": "somebody", "group_instance_id": "i"}, UNKNOWN_MEMBER),
    ],
    ids=str,
)
def test_who_may_not_join_others(members: Any, changes: dict[str, Any], error: int) -> None:
    """A group with members takes who knows a protocol of theirs."""
    stable(members())
    assert members().try_join(**changes)["error_code"] == error


def test_a_rebalance(members: Any, client: RawClient, group: str) -> None:
    """The first member hears of the second one at its heartbeat, and both join; the leader stays."""
    one, two = members(None, "range sticky"), members(None, "sticky range")
    stable(one)
    two.get_id()
    assert one.heartbeat() == 0
    two.post_join()
    until(lambda: one.heartbeat() == REBALANCING, "the member hears of it")
    found = described(client, group)
    assert (found["group_state"], found["protocol_data"], found["protocol_type"]) == (
        "PreparingRebalance",
        "",
        "consumer",
    )
    told = {(one["member_metadata"], one["member_assignment"]) for one in found["members"]}
    assert told == {(b"", one.id.encode()), (b"", b"")}
    assert one.sync()["error_code"] == REBALANCING
    answers = [one.try_join(), two.joined()]
    assert [(answer["error_code"], answer["generation_id"]) for answer in answers] == [(0, 2)] * 2
    assert {answer["leader"] for answer in answers} == {one.id}
    assert {answer["protocol_name"] for answer in answers} <= {"range", "sticky"}
    assert {member["member_id"] for member in answers[0]["members"]} == {one.id, two.id}
    assert answers[1]["members"] == []
    two.protocols = one.protocols = [answers[0]["protocol_name"]]
    two.post_sync()
    assert one.sync({one.id: b"1", two.id: b"2"})["assignment"] == b"1"
    assert two.client.answer("SyncGroup", 5)["assignment"] == b"2"
    assert two.leave() == [0]
    assert one.heartbeat() == REBALANCING
    assert one.try_join()["generation_id"] == 3


def test_the_protocol_most_members_like_best(members: Any) -> None:
    """Among those that all know."""
    all_of_them = [members(None, names) for names in ("range sticky", "sticky range", "sticky range other")]
    answers = gathered(*all_of_them)
    assert {answer["protocol_name"] for answer in answers} == {"sticky"}


def test_who_joins_again(members: Any) -> None:
    """The leader lets all join anew, another member is told where it is; one that can do other things rebalances."""
    one, two = members(), members()
    stable(one, two)
    assert two.try_join()["generation_id"] == one.generation
    assert one.heartbeat() == 0
    one.post_join()
    until(lambda: two.heartbeat() == REBALANCING, "a rebalance")
    two.post_join()
    assert [member.joined()["error_code"] for member in (one, two)] == [0, 0]
    two.protocols = ["range", "more"]
    two.post_join()
    until(lambda: one.heartbeat() == REBALANCING, "a rebalance")


def test_a_join_amid_a_rebalance_is_answered_again(members: Any) -> None:
    """Whoever has joined, and has not heard of it, is told where it is."""
    one = members()
    one.get_id()
    first = one.try_join()
    assert one.try_join() == first


@pytest.mark.parametrize("what", ["heartbeat", "sync", "commit"])
def test_wrong_members(members: Any, cluster: Target, untouched: str, what: str) -> None:
    one, static = members(), members("i")
    stable(one, static)

    def ask(member: Member, **changes: Any) -> int:
        if what == "sync":
            return int(member.sync(**changes)["error_code"])
        if what == "commit" and "generation_id" in changes:
            changes["generation_id_or_member_epoch"] = changes.pop("generation_id")
        return member.heartbeat(**changes) if what == "heartbeat" else member.commit(untouched, 1, **changes)

    assert ask(one) == 0
    assert ask(one, member_id="nobody") == UNKNOWN_MEMBER
    assert ask(one, generation_id=one.generation + 1) == ILLEGAL_GENERATION
    assert ask(one, generation_id=one.generation - 1) == ILLEGAL_GENERATION
    assert ask(one, group_id=fresh("none")) == (NOT_FOUND if what == "commit" else UNKNOWN_MEMBER)
    assert ask(one, group_instance_id="j") == UNKNOWN_MEMBER
    assert ask(static, member_id="nobody") == FENCED
    if what != "commit":
        assert ask(one, group_id="") == INVALID_GROUP_ID
    if what == "sync":
        assert ask(one, protocol_type="connect") == INCONSISTENT
        assert ask(one, protocol_name="sticky") == INCONSISTENT


def test_a_static_member_comes_back(members: Any) -> None:
    """With a new ID and no rebalance; the old one is fenced (KIP-345)."""
    one, static = members(), members("i")
    stable(one, static)
    again = members("i")
    answer = again.try_join()
    assert (answer["error_code"], answer["generation_id"]) == (0, one.generation)
    assert again.id != static.id
    assert again.id.startswith("i-")
    assert again.sync()["assignment"] == static.id.encode()
    assert static.heartbeat() == FENCED
    assert one.heartbeat() == 0
    assert answer["skip_assignment"] == (answer["leader"] == again.id)


@pytest.mark.parametrize("version", [5, 9])
def test_a_static_leader_comes_back(members: Any, version: int) -> None:
    """It is told not to assign anew, or that another one leads (KIP-814)."""
    static = members("i")
    stable(static)
    again = members("i")
    again.version = version
    answer = again.try_join()
    assert (answer["error_code"], answer["generation_id"]) == (0, 1)
    assert answer["leader"] == (again.id if version == 9 else static.id)
    assert [one["member_id"] for one in answer["members"]] == ([again.id] if version == 9 else [])
    assert answer.get("skip_assignment", True)


def test_members_that_leave(members: Any, client: RawClient, group: str) -> None:
    """One or many at once; strangers fail alone."""
    one, static = members(), members("i")
    stable(one, static)
    asked = [
        {"member_id": "nobody", "group_instance_id": None},
        {"member_id": "", "group_instance_id": "j"},
        {"member_id": "nobody", "group_instance_id": "i"},
        {"member_id": "", "group_instance_id": "i"},
        {"member_id": one.id, "group_instance_id": None},
    ]
    answer = client.ask("LeaveGroup", 5, group_id=group, members=asked)
    assert answer["error_code"] == 0
    found = [(m["member_id"], m["group_instance_id"], m["error_code"]) for m in answer["members"]]
    errors = [UNKNOWN_MEMBER, UNKNOWN_MEMBER, FENCED, 0, 0]
    assert found == [(m["member_id"], m["group_instance_id"], e) for m, e in zip(asked, errors, strict=True)]
    assert described(client, group)["members"] == []
    for version in (0, 2):
        answer = client.ask("LeaveGroup", version, group_id=group, member_id="nobody")
        assert answer["error_code"] == UNKNOWN_MEMBER
    none = client.ask("LeaveGroup", 4, group_id=fresh("none"), members=asked[:1])
    assert (none["error_code"], [m["error_code"] for m in none["members"]]) == (0, [UNKNOWN_MEMBER])
    assert client.ask("LeaveGroup", 4, group_id="", members=asked[:1])["error_code"] == INVALID_GROUP_ID


def test_a_member_with_an_id_alone_leaves(members: Any, client: RawClient, group: str) -> None:
    one = members()
    one.get_id()
    assert one.leave() == [0]
    assert one.try_join(group_instance_id=None)["error_code"] == UNKNOWN_MEMBER


def test_silent_members_are_taken_for_dead(members: Any, client: RawClient, group: str) -> None:
    """After their session time-out; those that live hear of it."""
    one, two = members(), members()
    stable(one, two)
    began = time.monotonic()
    until(lambda: one.heartbeat() == REBALANCING, "a rebalance", 15)
    assert time.monotonic() - began > 4
    assert two.heartbeat() == UNKNOWN_MEMBER
    assert one.try_join()["error_code"] == 0
    assert len(described(client, group)["members"]) == 1


def test_a_rebalance_does_not_wait_for_ever(members: Any, client: RawClient, group: str) -> None:
    """A member that heartbeats and does not join is out when the time for it is over."""
    one, two = members(), members()
    one.get_id()
    one.try_join(rebalance_timeout_ms=1_500)
    one.sync({one.id: b""})
    two.get_id()
    two.post_join(rebalance_timeout_ms=1_500)
    until(lambda: one.heartbeat() == REBALANCING, "a rebalance")
    assert two.joined()["error_code"] == 0
    assert [member["member_id"] for member in described(client, group)["members"]] == [two.id]
    assert one.heartbeat() == UNKNOWN_MEMBER


def test_an_assignment_is_not_waited_for_for_ever(members: Any, client: RawClient, group: str) -> None:
    """A leader that brings none is out."""
    one = members()
    one.get_id()
    one.try_join(rebalance_timeout_ms=1_500)
    until(lambda: one.heartbeat() == UNKNOWN_MEMBER, "the leader is out")
    assert described(client, group)["members"] == []


# ---- offsets


def test_offsets_of_nobody_in_particular(client: RawClient, group: str, untouched: str, cluster: Target) -> None:
    """A consumer with assigned partitions keeps its offsets in an empty group."""
    assert offsets(client, group) == {}
    named = [{"name": untouched, "partition_indexes": [0, 1, 99]}, {"name": "none", "partition_indexes": [0]}]
    missing = dict.fromkeys([(untouched, 0), (untouched, 1), (untouched, 99), ("none", 0)], (-1, "", 0))
    assert offsets(client, group, named) == missing
    assert commit(client, untouched, 5, group_id=group, metadata="here") == 0
    assert commit(client, untouched, 7, group_id=group, partition=1) == 0
    assert offsets(client, group, named) == {**missing, (untouched, 0): (5, "here", 0), (untouched, 1): (7, "", 0)}
    assert offsets(client, group) == {(untouched, 0): (5, "here", 0), (untouched, 1): (7, "", 0)}
    assert described(client, group)["group_state"] == "Empty"
    assert commit(client, untouched, 5, group_id=group, partition=2) == UNKNOWN_TOPIC
    assert commit(client, "none", 5, group_id=group) == UNKNOWN_TOPIC
    assert commit(client, untouched, 5, group_id=group, metadata="x" * 4097) == OFFSET_METADATA_TOO_LARGE
    assert commit(client, untouched, 5, group_id=group, generation_id_or_member_epoch=1) == UNKNOWN_MEMBER
    assert commit(client, untouched, 5, group_id=group, member_id="nobody") == 0
    assert (
        commit(client, untouched, 5, group_id=group, generation_id_or_member_epoch=0, member_id="a") == UNKNOWN_MEMBER
    )


def test_offsets_by_topic_id(client: RawClient, group: str, untouched: str) -> None:
    """From version 10 on topics have IDs."""
    known, unknown = topic_id(client, untouched), topic_id(client, untouched).__class__(int=7)
    at = {"partition_index": 0, "committed_offset": 3, "committed_metadata": ""}
    topics = [{"topic_id": one, "partitions": [at]} for one in (known, unknown)]
    answer = client.ask("OffsetCommit", 10, group_id=group, topics=topics)
    errors = {topic["topic_id"]: topic["partitions"][0]["error_code"] for topic in answer["topics"]}
    assert errors == {known: 0, unknown: UNKNOWN_TOPIC_ID}
    wanted = [{"topic_id": one, "partition_indexes": [0]} for one in (known, unknown)]
    (found,) = client.ask("OffsetFetch", 10, groups=[{"group_id": group, "topics": wanted}])["groups"]
    told = {topic["topic_id"]: topic["partitions"][0] for topic in found["topics"]}
    assert (told[known]["committed_offset"], told[known]["error_code"]) == (3, 0)
    assert (told[unknown]["committed_offset"], told[unknown]["error_code"]) == (-1, UNKNOWN_TOPIC_ID)


@pytest.mark.parametrize("version", range(1, 8))
def test_offsets_in_the_old_form(client: RawClient, group: str, untouched: str, version: int) -> None:
    """One group in a request."""
    assert commit(client, untouched, 5, group_id=group) == 0
    topics = [{"name": untouched, "partition_indexes": [0]}]
    answer = client.ask("OffsetFetch", version, group_id=group, topics=topics)
    (one,) = answer["topics"][0]["partitions"]
    assert (answer.get("error_code", 0), one["committed_offset"], one["error_code"]) == (0, 5, 0)


@pytest.mark.parametrize("version", range(2, 10))
def test_commits_by_version(client: RawClient, group: str, untouched: str, version: int) -> None:
    """The newest one tells a group that is not there from one of another generation."""
    at = {"partition_index": 0, "committed_offset": version, "committed_metadata": None}
    topics = [{"name": untouched, "partitions": [at]}]
    answer = client.ask("OffsetCommit", version, group_id=group, topics=topics, generation_id_or_member_epoch=1)
    expected = NOT_FOUND if version >= 9 else ILLEGAL_GENERATION
    assert answer["topics"][0]["partitions"][0]["error_code"] == expected
    answer = client.ask("OffsetCommit", version, group_id=group, topics=topics)
    assert answer["topics"][0]["partitions"][0]["error_code"] == 0
    assert offsets(client, group) == {(untouched, 0): (version, "", 0)}


def test_offsets_of_members(members: Any, client: RawClient, group: str, untouched: str) -> None:
    """Members commit, nobody else does; not while assignments are awaited."""
    one = members()
    one.get_id()
    one.try_join()
    assert one.commit(untouched, 1) == REBALANCING
    one.sync({one.id: b""})
    assert one.commit(untouched, 2) == 0
    assert commit(client, untouched, 3, group_id=group) == UNKNOWN_MEMBER
    assert one.leave() == [0]
    assert commit(client, untouched, 3, group_id=group) == 0
    assert offsets(client, group) == {(untouched, 0): (3, "", 0)}


# ---- admin clients


def test_groups_that_are_not_there(client: RawClient) -> None:
    """Dead in the old form, an error in the new one."""
    old, new = (described(client, fresh("none"), version) for version in (5, 6))
    assert [(one["error_code"], one["group_state"]) for one in (old, new)] == [(0, "Dead"), (NOT_FOUND, "Dead")]


def test_listed_groups(members: Any, client: RawClient, group: str, untouched: str) -> None:
    def listed(**filters: list[str]) -> list[dict[str, Any]]:
        return [one for one in client.ask("ListGroups", 5, **filters)["groups"] if one["group_id"] == group]

    assert listed() == []
    commit(client, untouched, 1, group_id=group)
    found = {"group_id": group, "protocol_type": "", "group_state": "Empty", "group_type": "classic"}
    assert listed() == [found]
    stable(members())
    assert listed() == [{**found, "protocol_type": "consumer", "group_state": "Stable"}]
    for filters in ({"states_filter": ["stable"]}, {"types_filter": ["Classic"]}):
        assert len(listed(**filters)) == 1
    for filters in ({"states_filter": ["Empty"]}, {"types_filter": ["consumer"]}):
        assert listed(**filters) == []


def test_deleted_groups(members: Any, client: RawClient, group: str, untouched: str) -> None:
    """Only those without members."""
    one = members()
    stable(one)
    one.commit(untouched, 1)
    asked = [group, fresh("none"), ""]
    answer = client.ask("DeleteGroups", 2, groups_names=asked)["results"]
    assert {each["group_id"]: each["error_code"] for each in answer} == dict(
        zip(asked, (NON_EMPTY, NOT_FOUND, NOT_FOUND), strict=True)
    )
    one.leave()
    assert client.ask("DeleteGroups", 2, groups_names=[group])["results"][0]["error_code"] == 0
    assert offsets(client, group) == {}
