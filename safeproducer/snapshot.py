"""A producer's account of itself: frozen values, made on request."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from safeproducer.policy.hold_reason import HoldReason
from safeproducer.policy.types import ReplicationState
from safeproducer.records import Value


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ReplicationSnapshot(Value):
    """How far the replicas of one partition are, and what limits them (KIP-73).

    - `state` is the answer in a word, a ReplicationState. `replicas` and `in_sync` are IDs of brokers.
    - `moving`: whether the replica behind (`broker`) is being added; `left_over`: a throttle is set though none is.
    - `minimum`: min.insync.replicas. `side` of the throttle: "leader" or "follower"; `limit`: its rate, and `needed`:
      what this producer alone needs of that, in bytes/s. So "never_ends" is certain, and that it ends is not.
    - `since`: seconds for which it has been so; `age`: seconds since brokers were asked.
    - `delays`: acknowledgements wait because of this, or writes are refused.
    - `sentence` says it, and `cure` what to do, "" for nothing. None where it does not apply or could not be read.
    """

    state: ReplicationState
    moving: bool | None
    left_over: bool
    in_sync: tuple[int, ...]
    replicas: tuple[int, ...]
    minimum: int | None
    broker: int | None
    side: str | None
    limit: float | None
    needed: float | None
    since: float
    age: float
    delays: bool
    sentence: str
    cure: str

    @property
    def unusual(self) -> bool:
        """Whether there is something to say."""
        return self.left_over or self.state is not ReplicationState.IN_SYNC


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PartitionSnapshot(Value):
    """Records of one partition of `topic` since the producer was made.

    `partition` -1 holds records whose partition librdkafka has not chosen yet, or never did (they failed before).
    `accepted` is the sum of `delivered`, `failed` and `unresolved`. Among the unresolved ones `held` wait in this
    process, not handed over to librdkafka, for `reason`, which `why` is as a sentence with the partition as its
    subject; both None when none do, but for a topic that is not there ("unknown_topic"), a leader that acknowledges
    nothing ("leader_silent") and one that throttles ("throttled"): then librdkafka has the records.
    A record that was given no partition is accepted on -1 until its report, but held where it will go.
    `replication`: None before the first look at it, and with safeproducer.replication=off.
    """

    topic: str
    partition: int
    accepted: int
    delivered: int
    failed: int
    unresolved: int
    held: int = 0
    why: str | None = None
    reason: HoldReason | None = None
    replication: ReplicationSnapshot | None = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class WindowSnapshot(Value):
    """How many batches of a `partition` of `topic`, `size`, may be unresolved over all lanes (KIP-1269).

    `source`: "leader" or "topic" (announced by the partition's leader), or "assumed", which is 5. `age`: seconds since
    the leader said so, None when it did not; `reason`: why it is this many. Where safeproducer.window is a number there
    are none of these.
    """

    topic: str
    partition: int
    size: int
    source: str
    age: float | None
    reason: str


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TransactionsSnapshot(Value):
    """How many transactions of a producer were `committed` and `aborted`.

    `unknown`: commits without an answer, counted when the next transaction begins. `renewed`: new producer epochs that
    followed a request of unknown end.
    """

    committed: int
    aborted: int
    unknown: int
    renewed: int


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ProducerState(Value):
    """Whose account a Snapshot is, and whether that producer is open. The fields are explained there."""

    state: str
    client_id: str
    bootstrap_servers: str
    principal: str
    transactional_id: str | None
    idempotent: bool
    known_producer_ids: tuple[int, ...]
    transactions: TransactionsSnapshot | None


@dataclass(frozen=True, slots=True)
class Snapshot(ProducerState):
    """A producer's account at one moment.

    - `state`: "open", "fatal", "closed" or "forked". `client_id`, `bootstrap_servers`, `principal`,
      `transactional_id` and `idempotent` are as in ProducerInfo. `partitions`: one row for each that got records.
    - `known_producer_ids`: the producer IDs of all lanes that there are, ascending. The ID of the first lane is known
      by librdkafka's statistics, half a second after it was taken at the latest.
    - `transactions`: what became of them, None without a `transactional.id` and with safeproducer.mode=passthrough.
    - `accepted`: records for which produce() returned; `delivered` and `failed`: their delivery reports, so far;
      `unresolved`: no report yet; `interrupted`: the report was served, but a signal (Ctrl-C) stopped it before it was
      counted. accepted = delivered + failed + unresolved + interrupted.
    - `not_written` and `unknown`: the failed records by outcome, see DeliveryError. An interrupted record is of unknown
      outcome, too. A record that produce() refused by raising was never accepted and is certainly not written.
    - `held`: unresolved records that wait in this process. `handed_over`: batches that left it as one request each;
      `splits`: requests that librdkafka made of them beyond that.
    - `lanes`: native producers that take such batches, each with a producer ID of its own; 0 while all records go
      directly. `windows`: one for each partition that several lanes may share, if its leader is asked.
    - `producer_ids`: how many producer IDs this producer has used, 0 before its first record and without idempotence.
    - `renewals`: native producers that failed and were replaced.
    - `withdrawn`: records that were taken back before they were handed over; they are among `not_written`.
      `abandoned`: unresolved records that were cancelled too late for that (safeproducer.aio).
    - `queued`: what `len(producer)` says: records and events that wait here or in librdkafka, reports that wait to be
      served included.
    - `last_error`: the last client error with its advice, or None. `throttled_brokers`: broker ID -> the last announced
      throttle time in seconds.
    """

    accepted: int
    delivered: int
    failed: int
    unresolved: int
    interrupted: int
    queued: int
    not_written: int
    unknown: int
    held: int
    handed_over: int
    splits: int
    lanes: int
    windows: tuple[WindowSnapshot, ...]
    partitions: tuple[PartitionSnapshot, ...]
    last_error: str | None
    throttled_brokers: dict[int, float]
    producer_ids: int
    renewals: int
    withdrawn: int
    abandoned: int


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class HealthReason(Value):
    """A thing that a producer waits for, or that ended it.

    - `code`: one of HoldReason; "replication"; "client_error": brokers are not reached, or cut connections; "waiting":
      no more is known; "expired": records of a partition failed at their deadline, and none was delivered since;
      "refused": brokers refused them for good; "refusing": for now; "slow": a broker is; "callback": one blocks;
      "coordinator": that of transactions keeps a call waiting, or no broker gives a producer ID; "not_polled": reports
      wait for poll(); "no_broker": none has answered yet; "fatal", "closed", "forked".
    - `sentence` says it, `cure` what to do, None where there is nothing to do.
    - `since`: seconds for which it has been so, or records have waited, known to half a second; None where it is not.
    """

    code: str
    sentence: str
    since: float | None
    cure: str | None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Health(Value):
    """Whether a producer works, for probes.

    - `ok`: no fatal error, no record has waited too long for what waiting does not mend, none of a partition has failed
      at its deadline since one of it was delivered, and no ten were refused while none was delivered at all.
    - `ready`: it takes records, and brokers have answered, or nothing was asked of them yet.
    - `reasons`: why it is not, and what records have waited for too long, though it ends by itself.
    """

    ok: bool
    ready: bool
    reasons: tuple[HealthReason, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """All of it, as json.dumps() takes it."""
        return {"ok": self.ok, "ready": self.ready, "reasons": [asdict(reason) for reason in self.reasons]}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CloseReport(Value):
    """How a close() ended. True when every accepted record had its delivery report before the deadline.

    `accepted` and `delivered` count records over the producer's whole life. `accepted` is `delivered` plus `failed`,
    but for the case at the end. `left` records had none; they were purged, and their callbacks ran with a _PURGE error
    whose `outcome` is "not_written" for those that were certainly never sent, else "unknown". `failed` counts failed
    reports over the producer's whole life, `left` included. `seconds` is how long close() took until each record had
    its outcome. In a signal handler that interrupted a callback, records whose reports the interrupted call has taken
    are in none of the three: their callbacks run when it goes on.
    """

    accepted: int
    delivered: int
    failed: int
    left: int
    seconds: float

    def __bool__(self) -> bool:
        return self.left == 0
