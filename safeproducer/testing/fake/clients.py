"""What clients need or do: certificates of TLS, consumer groups, transactions."""

import struct
from dataclasses import dataclass
from datetime import datetime

from safeproducer.testing.fake.control import Runtime, on_cluster
from safeproducer.testing.fake.rules.groups import Group
from safeproducer.testing.fake.rules.transactions import Transaction
from safeproducer.testing.fake.state import markers
from safeproducer.testing.fake.state.certificates import NAMES, Authority


class TlsControl(Runtime):
    """The certificates of a cluster with ``tls``. Each method raises ValueError without."""

    @property
    def ca_file(self) -> str:
        """The certificate of the authority that signed all others, for ``ssl.ca.location``. Made at each start."""
        return self._authority.ca_file

    @on_cluster
    def client_files(self, name: str) -> tuple[str, str]:
        """Make a client's certificate whose common name is ``name``; returns its file, and that of its key.

        They are for ``ssl.certificate.location`` and ``ssl.key.location``, and gone with the cluster. With
        ``tls="mutual"`` and no log-in the user in quotas and journal is the certificate's subject, ``CN=name,OU=...``.
        """
        return self._authority.client_files(name)

    @on_cluster
    def set_certificate(
        self, *names: str, not_before: datetime | None = None, not_after: datetime | None = None
    ) -> None:
        """Let all brokers show new connections another certificate, as one that has expired.

        It is for these ``names`` and addresses, without any for 127.0.0.1 and localhost, and holds from ``not_before``
        to ``not_after``; None is from the year 2000, and to 2038.
        """
        self._authority.present(names or NAMES, not_before, not_after)

    @property
    def _authority(self) -> Authority:
        if self._state.access.authority is None:
            raise ValueError("tls: this FakeCluster has no certificates; give tls=True")
        return self._state.access.authority


@dataclass(frozen=True, slots=True)
class MemberInfo:
    """A member of a group; ``assignment`` is empty before it has one."""

    id: str
    instance: str | None
    client_id: str
    assignment: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A group as its coordinator has it. ``offsets`` and ``lag`` are by topic and partition, in records."""

    state: str
    generation: int
    coordinator: int
    members: tuple[MemberInfo, ...]
    offsets: dict[tuple[str, int], int]
    lag: dict[tuple[str, int], int]


class GroupControl(Runtime):
    """Shows consumer groups, and disturbs them."""

    @on_cluster
    def groups(self) -> dict[str, GroupInfo]:
        """All groups, by ID: members, what each is assigned, committed offsets, and how far these are behind."""
        return {group.id: self._info(group) for group in self._now()}

    def _now(self) -> list[Group]:
        groups, clock = [*self._state.groups.values()], self._state.clock
        for group in groups:
            group.pass_time(clock.now_ms())
        return groups

    def _info(self, group: Group) -> GroupInfo:
        offsets = {place: committed.offset for place, committed in group.offsets.items()}
        lag = {}
        for (name, index), offset in offsets.items():
            topic = self._state.topics.get(name)
            if topic is not None and index < len(topic.partitions):
                lag[name, index] = max(topic.partitions[index].high_watermark - offset, 0)
        members = tuple(
            MemberInfo(one.id, one.instance, one.client, _assigned(one.assignment)) for one in group.members.values()
        )
        coordinator = self._state.coordinator(group.id)
        return GroupInfo(group.state.value, group.generation, coordinator, members, offsets, lag)

    @on_cluster
    def rebalance(self, group: str) -> None:
        """Let all members of this ``group`` join anew, as if one had come. They hear of it at their next heartbeat."""
        found = {one.id: one for one in self._now()}
        if group not in found:
            raise ValueError(f"group: there is no {group!r}, only {sorted(found)}")
        clock = self._state.clock
        found[group].rebalance(clock.now_ms())
        self._state.changed()

    @on_cluster
    def move_coordinator(self, key: str) -> int:
        """Let another living broker coordinate the group, or the transactional ID, ``key``; returns it.

        Members, offsets and what is open move with it.

        Whoever asks the old one gets NOT_COORDINATOR. Raises ValueError where no other broker lives.
        """
        now = self._state.coordinator(key)
        others = [broker.id for broker in self._state.alive if broker.id != now]
        if not others:
            raise ValueError(f"key: no other broker lives that could coordinate {key!r}")
        to = next((broker for broker in others if broker > now), others[0])
        self._state.coordinators.move(key, to)
        self._state.changed()
        return to


@dataclass(frozen=True, slots=True)
class TransactionInfo:
    """The newest transaction of a transactional ID; ``since`` is when it began, in seconds since the Unix epoch."""

    producer_id: int
    epoch: int
    state: str
    coordinator: int
    partitions: tuple[tuple[str, int], ...]
    groups: tuple[str, ...]
    since: float | None


class TransactionControl(GroupControl):
    """Shows the transactions that the cluster knows, for tests to look at."""

    @on_cluster
    def transactions(self) -> dict[str, TransactionInfo]:
        """The newest transaction of each ``transactional.id``: producer ID, epoch, state, partitions and groups."""
        markers.pass_time(self._state)
        return {one.id: self._transaction(one) for one in self._state.coordinators.transactions.values()}

    def _transaction(self, one: Transaction) -> TransactionInfo:
        since = None if one.since < 0 else one.since / 1000
        where = self._state.coordinator(one.id), tuple(sorted(one.partitions)), tuple(sorted(one.groups))
        return TransactionInfo(one.producer_id, one.epoch, one.state.value, *where, since)


def _assigned(data: bytes) -> tuple[tuple[str, int], ...]:
    """The partitions in an assignment of the protocol `consumer`; none in what other protocols say."""
    places: list[tuple[str, int]] = []
    try:
        (topics,), pos = struct.unpack_from(">i", data, 2), 6
        for _ in range(topics):
            (length,) = struct.unpack_from(">h", data, pos)
            name, pos = str(data[pos + 2 : pos + 2 + length], "utf-8"), pos + 2 + length
            (count,) = struct.unpack_from(">i", data, pos)
            places += [(name, index) for index in struct.unpack_from(f">{count}i", data, pos + 4)]
            pos += 4 + 4 * count
    except (struct.error, UnicodeDecodeError):
        return ()
    return tuple(sorted(places))
