"""Consumer groups by the classic protocol, as a coordinator keeps them (KIP-62, 345, 394, 559, 814). Pure.

A group is Empty until its first member joins. Each change of members begins a rebalance: all members join (Preparing),
the leader's assignment comes with its SyncGroup (Completing), and then the group is Stable. Answers that have to wait
for other members are :class:`Reply` objects, which get their ``answer`` later. Times are ms of the cluster's clock.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from safeproducer.testing.codec import Body, RefusedError

ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL, UNKNOWN_MEMBER_ID = 22, 23, 25
INVALID_SESSION_TIMEOUT, REBALANCE_IN_PROGRESS = 26, 27
MEMBER_ID_REQUIRED, FENCED_INSTANCE_ID = 79, 82
_SESSIONS = range(6_000, 1_800_001)
_IDS_FIRST, _SKIPS = 4, 9
"""Versions of JoinGroup: from when on members get an ID before they join, and a leader need not assign anew."""


class State(Enum):
    """The state of a group, as Kafka spells it."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


@dataclass(slots=True, eq=False)
class Reply:
    """The answer to one request; None while it has to wait."""

    answer: Body | None = None


class Offset(NamedTuple):
    offset: int
    leader_epoch: int = -1
    metadata: str | None = ""


@dataclass(slots=True, eq=False)
class Member:
    """``expires``: when it is taken for dead; it is not while it waits for a Reply."""

    id: str
    instance: str | None
    client: str
    protocols: Sequence[tuple[str, bytes]]
    session: int
    rebalance: int
    skips: bool
    expires: int = 0
    assignment: bytes = b""
    joining: Reply | None = None
    syncing: Reply | None = None

    def metadata(self, protocol: str | None) -> bytes:
        return dict(self.protocols).get(protocol or "", b"")


@dataclass(slots=True, eq=False)
class Group:
    """One group, at its coordinator. Each method is told the time in ms."""

    id: str
    state: State = State.EMPTY
    generation: int = 0
    type: str = ""
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    pending: dict[str, int] = field(default_factory=dict)
    """Members that have an ID and have not joined yet, and until when they may."""
    unsynced: set[str] = field(default_factory=set)
    offsets: dict[tuple[str, int], Offset] = field(default_factory=dict)
    uncommitted: dict[int, dict[tuple[str, int], Offset]] = field(default_factory=dict)
    """Offsets of transactions that are open, by producer ID."""
    deadline: int | None = None
    """When the rebalance goes on without those that are missing."""

    # ---- time

    @property
    def due(self) -> int | None:
        """When something happens next by itself."""
        times = [*self.pending.values(), *(member.expires for member in self._silent())]
        return min([*times, *([] if self.deadline is None else [self.deadline])], default=None)

    def _silent(self) -> list[Member]:
        return [one for one in self.members.values() if one.joining is None and one.syncing is None]

    def pass_time(self, now: int) -> None:
        """Do all that is due until now, in the order of time."""
        while (due := self.due) is not None and due <= now:
            if self.deadline == due:
                self._time_out(due)
            for member in [one for one in self._silent() if one.expires <= due]:
                self._remove(member, due)
            if over := [one for one, until in self.pending.items() if until <= due]:
                for one in over:
                    del self.pending[one]
                self._complete_join(due)

    def _time_out(self, now: int) -> None:
        self.deadline = None
        if self.state is State.PREPARING:
            for member in [one for one in self.members.values() if one.joining is None and one.instance is None]:
                self._drop(member)
            self.pending.clear()
            self._complete_join(now, late=True)
        else:
            for member in [self.members[one] for one in self.unsynced if one in self.members]:
                self._drop(member)
            self._rebalance(now)

    # ---- joining

    def join(self, body: Body, version: int, client: str, new_id: str, now: int) -> Reply:
        """A member joins, or says again what it can do. Raises RefusedError."""
        member_id, instance = body["member_id"], body.get("group_instance_id")
        protocols = [(one["name"], one["metadata"]) for one in body["protocols"]]
        if body["session_timeout_ms"] not in _SESSIONS:
            raise RefusedError(INVALID_SESSION_TIMEOUT)
        if not self._supports(body["protocol_type"], protocols):
            raise RefusedError(INCONSISTENT_GROUP_PROTOCOL)
        session: int = body["session_timeout_ms"]
        rebalance = session if "rebalance_timeout_ms" not in body else int(body["rebalance_timeout_ms"])
        made = Member(new_id, instance, client, protocols, session, rebalance, version >= _SKIPS)
        if not member_id:
            return self._join_anew(made, body["protocol_type"], version, now)
        if member_id in self.pending:
            made.id = member_id
            return self._add(made, body["protocol_type"], now)
        return self._join_again(self.member(member_id, instance), protocols, body, now)

    def _supports(self, kind: str, protocols: Sequence[tuple[str, bytes]]) -> bool:
        if not self.members:
            return bool(kind and protocols)
        names = {name for name, _ in protocols}
        return kind == self.type and any(name in names for name in self._common())

    def _common(self) -> list[str]:
        known = Counter(name for member in self.members.values() for name in {*dict(member.protocols)})
        return [name for name, count in known.items() if count == len(self.members)]

    def _join_anew(self, made: Member, kind: str, version: int, now: int) -> Reply:
        if made.instance is not None:
            before = self._static(made.instance)
            return self._add(made, kind, now) if before is None else self._replace(before, made, now)
        if version >= _IDS_FIRST:
            self.pending[made.id] = now + made.session
            return Reply(refusal(MEMBER_ID_REQUIRED, made.id))
        return self._add(made, kind, now)

    def _add(self, member: Member, kind: str, now: int) -> Reply:
        self.pending.pop(member.id, None)
        if not self.members:
            self.type = kind
        self.members[member.id] = member
        self.leader = self.leader or member.id
        return self._rejoin(member, now)

    def _rejoin(self, member: Member, now: int) -> Reply:
        reply = member.joining = Reply()
        if self.state is State.PREPARING:
            self._complete_join(now)
        else:
            self._rebalance(now)
        return reply

    def _join_again(self, member: Member, protocols: Sequence[tuple[str, bytes]], body: Body, now: int) -> Reply:
        same = member.protocols == protocols
        leads = self.state is State.STABLE and member.id == self.leader
        if same and not leads and self.state in (State.COMPLETING, State.STABLE):
            return Reply(self._joined(member))
        member.protocols, member.session = protocols, body["session_timeout_ms"]
        member.rebalance = body.get("rebalance_timeout_ms", member.session)
        return self._rejoin(member, now)

    # Two processes may use one instance ID at once: the old one must not go on as if the partitions were its own. So
    # what it waits for is refused, and its ID is gone. The group need not notice: while it is stable and would choose
    # the same protocol, the new one gets the old assignment, and nobody else joins anew.
    def _replace(self, before: Member, made: Member, now: int) -> Reply:
        """A static member is back, under another ID (KIP-345): whoever uses the old one is fenced."""
        for reply in (before.joining, before.syncing):
            if reply is not None:
                reply.answer = refusal(FENCED_INSTANCE_ID, before.id)
        self.members = {
            (made.id if one is before else one.id): made if one is before else one for one in self.members.values()
        }
        led, self.leader = self.leader, made.id if self.leader == before.id else self.leader
        made.assignment, made.expires = before.assignment, now + made.session
        if self.state is State.STABLE and self._chosen() == self.protocol:
            answer = self._joined(made)
            # It did not ask for an assignment: others have theirs. Old clients take another leader for a reason to.
            if made.skips:
                return Reply({**answer, "skip_assignment": made.id == self.leader})
            return Reply({**answer, "leader": led, "members": []})
        self.unsynced.discard(before.id)
        return self._rejoin(made, now)

    def _rebalance(self, now: int) -> None:
        if self.state is State.COMPLETING:
            for member in self.members.values():
                member.assignment = b""
                self._answer_sync(member, REBALANCE_IN_PROGRESS, now)
        self.unsynced.clear()
        self.state = State.PREPARING
        self.deadline = now + max((member.rebalance for member in self.members.values()), default=0)
        self._complete_join(now)

    def rebalance(self, now: int) -> None:
        """As if a member had come or gone."""
        if self.state in (State.STABLE, State.COMPLETING):
            self._rebalance(now)

    def _complete_join(self, now: int, *, late: bool = False) -> None:
        """Begin the next generation, if nobody is missing, or it is too late."""
        if self.state is not State.PREPARING:
            return
        joined = [one for one in self.members.values() if one.joining is not None]
        if not late and (len(joined) < len(self.members) or self.pending):
            return
        if self.members and not joined:
            self.deadline = now + max(member.rebalance for member in self.members.values())
            return
        if self.leader not in {one.id for one in joined}:
            self.leader = joined[0].id if joined else None
        self.generation += 1
        self.protocol = self._chosen() if joined else None
        self.state = State.COMPLETING if joined else State.EMPTY
        self.deadline = now + max(member.rebalance for member in self.members.values()) if joined else None
        self.unsynced = {*self.members}
        for member in self.members.values():
            if member.joining is not None:
                member.joining.answer = self._joined(member)
            member.joining, member.expires = None, now + member.session

    def _chosen(self) -> str:
        """The protocol that most members like best among those that all know."""
        common = self._common()
        votes = (next(name for name, _ in member.protocols if name in common) for member in self.members.values())
        return Counter(votes).most_common(1)[0][0]

    def _joined(self, member: Member) -> Body:
        leads = member.id == self.leader
        others = [
            {"member_id": one.id, "group_instance_id": one.instance, "metadata": one.metadata(self.protocol)}
            for one in (self.members.values() if leads else ())
        ]
        return {
            "error_code": 0,
            "generation_id": self.generation,
            "protocol_type": self.type,
            "protocol_name": self.protocol,
            "leader": self.leader,
            "member_id": member.id,
            "members": others,
        }

    # ---- in a generation

    def member(self, member_id: str, instance: str | None, generation: int | None = None) -> Member:
        """The member who asks. Raises RefusedError."""
        if instance is not None:
            found = self._static(instance)
            if found is not None and found.id != member_id:
                raise RefusedError(FENCED_INSTANCE_ID)
        else:
            found = self.members.get(member_id)
        if found is None:
            raise RefusedError(UNKNOWN_MEMBER_ID)
        if generation not in (None, self.generation):
            raise RefusedError(ILLEGAL_GENERATION)
        return found

    def _static(self, instance: str) -> Member | None:
        return next((member for member in self.members.values() if member.instance == instance), None)

    def sync(self, body: Body, now: int) -> Reply:
        """A member asks for its assignment; the leader brings all. Raises RefusedError."""
        member = self.member(body["member_id"], body.get("group_instance_id"), body["generation_id"])
        for mine, said in ((self.type, body.get("protocol_type")), (self.protocol, body.get("protocol_name"))):
            if said is not None and said != mine:
                raise RefusedError(INCONSISTENT_GROUP_PROTOCOL)
        if self.state is State.PREPARING:
            raise RefusedError(REBALANCE_IN_PROGRESS)
        reply = member.syncing = Reply()
        self.unsynced.discard(member.id)
        if self.state is State.STABLE:
            self._answer_sync(member, 0, now)
        elif member.id == self.leader:
            given = {one["member_id"]: one["assignment"] for one in body["assignments"]}
            self.state = State.STABLE
            for one in self.members.values():
                one.assignment = given.get(one.id, b"")
                self._answer_sync(one, 0, now)
        if not self.unsynced:
            self.deadline = None
        return reply

    def _answer_sync(self, member: Member, error: int, now: int) -> None:
        if member.syncing is not None:
            told = {"protocol_type": self.type, "protocol_name": self.protocol, "assignment": member.assignment}
            member.syncing.answer = refusal(error, member.id) if error else {"error_code": 0, **told}
            member.syncing, member.expires = None, now + member.session

    def heartbeat(self, body: Body, now: int) -> int:
        """The member lives; returns the error code that tells it of a rebalance. Raises RefusedError."""
        member = self.member(body["member_id"], body.get("group_instance_id"), body["generation_id"])
        member.expires = now + member.session
        return REBALANCE_IN_PROGRESS if self.state is State.PREPARING else 0

    def leave(self, member_id: str, instance: str | None, now: int) -> None:
        """A member goes, or one that has not joined yet; with an instance the ID may be empty. Raises RefusedError."""
        if member_id in self.pending and instance is None:
            del self.pending[member_id]
            self._complete_join(now)
            return
        found = self._static(instance) if instance is not None and not member_id else None
        self._remove(found or self.member(member_id, instance), now)

    def _remove(self, member: Member, now: int) -> None:
        self._drop(member)
        if self.state is State.PREPARING:
            self._complete_join(now)
        else:
            self._rebalance(now)

    def _drop(self, member: Member) -> None:
        for reply in (member.joining, member.syncing):
            if reply is not None:
                reply.answer = refusal(UNKNOWN_MEMBER_ID, member.id)
        del self.members[member.id]
        self.unsynced.discard(member.id)
        if self.leader == member.id:
            self.leader = next(iter(self.members), None)

    # ---- offsets

    def may_commit(self, body: Body, generation: int, now: int, *, transactional: bool = False) -> None:
        """Raises RefusedError for who is no member of this generation. Who assigns by itself needs an empty group."""
        member_id, instance = body["member_id"], body.get("group_instance_id")
        if generation < 0 and self.state is State.EMPTY:
            return
        if generation >= 0 or member_id or instance is not None:
            member = self.member(member_id, instance, generation)
            if not transactional:
                member.expires = now + member.session
        elif not transactional:
            raise RefusedError(UNKNOWN_MEMBER_ID)
        if not transactional and self.state is State.COMPLETING:
            raise RefusedError(REBALANCE_IN_PROGRESS)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Its offsets are committed, or forgotten."""
        offsets = self.uncommitted.pop(producer_id, {})
        self.offsets.update(offsets if commit else {})


def refusal(error: int, member_id: str) -> Body:
    """The answer to a JoinGroup or SyncGroup that fails."""
    nobody: Body = {"generation_id": -1, "protocol_type": None, "protocol_name": None, "leader": "", "members": []}
    return {"error_code": error, "member_id": member_id, "assignment": b"", **nobody}
