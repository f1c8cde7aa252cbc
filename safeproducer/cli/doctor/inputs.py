"""The subjects of the checks: a configuration, a cluster and this host, as they were found."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from safeproducer.cli.doctor.census import TopicCensus
from safeproducer.cli.doctor.host import Host
from safeproducer.policy.expiry import Told
from safeproducer.policy.replication import Facts
from safeproducer.policy.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Broker:
    """`told`: for how long it remembers an ID, in seconds. `refused`: the code with which it refused to say."""

    number: int
    address: str
    told: Told
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class Configuration:
    """The application's settings. `timeout` and `socket_timeout` in seconds; no `timeout`: without end.

    `expiration`: what it says of brokers that do not tell for how long they remember an ID, in seconds; None: nothing.
    """

    timeout: float | None
    socket_timeout: float
    idempotent: bool
    expiration: float | None = None


class Unread(NamedTuple):
    """Facts that were not told, the right that shows them, and the code and text of the refusal."""

    what: str
    right: str
    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Replication:
    """`moves`: partition -> the replicas that are being added; None if that was not told."""

    facts: Facts = field(default_factory=lambda: Facts({}))
    moves: Mapping[TopicPartition, Sequence[int]] | None = None
    unread: Sequence[Unread] = ()


@dataclass(frozen=True, slots=True)
class Cluster:
    """`topics` are those that were asked for, else all that this user sees."""

    brokers: Sequence[Broker] = ()
    topics: Sequence[TopicCensus] = ()
    all_topics: bool = False
    replication: Replication = field(default_factory=Replication)


@dataclass(frozen=True, slots=True)
class Examined:
    """`configuration` is None when none was given; `cluster` None when none was named, or none answered."""

    rate: int
    configuration: Configuration | None = None
    cluster: Cluster | None = None
    host: Host = field(default_factory=Host)

    @property
    def brokers(self) -> Sequence[Broker]:
        """None without a cluster."""
        return self.cluster.brokers if self.cluster is not None else ()

    @property
    def topics(self) -> Sequence[TopicCensus]:
        """None without a cluster."""
        return self.cluster.topics if self.cluster is not None else ()

    @property
    def replication(self) -> Replication:
        """Without facts if there is no cluster."""
        return self.cluster.replication if self.cluster is not None else Replication()


def expirations(brokers: Sequence[Broker]) -> Mapping[int, float]:
    """Broker -> seconds for which it remembers a producer ID, of those that tell."""
    return {broker.number: broker.told.producer_id for broker in brokers if broker.told.producer_id is not None}
