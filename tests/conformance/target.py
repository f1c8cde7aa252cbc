"""What the suite runs on: FakeCluster or real Kafka, asked by raw requests, which leave no client in between."""

import ssl
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from tests.testing.raw import RawClient, fetch_body, produce_body

T = TypeVar("T")

NOT_LEADER = 6
NOT_THERE_YET = (3, NOT_LEADER, 78)  # UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, OFFSET_NOT_AVAILABLE
TOPICS_AT_ONCE = 60
"""Plain topics are made in advance: one at a time they would take longer than the tests that use them."""

CONFIGS = {
    "auto.create.topics.enable": "false",
    "connection.failed.authentication.delay.ms": "10",
    "producer.id.expiration.check.interval.ms": "200",
    "quota.window.size.seconds": "1",
}
"""What the properties file of the single broker says, in both clusters."""
PLAIN_USER, PLAIN_PASSWORD = "plain-user", "plain-password"
SCRAM_USER, SCRAM_PASSWORD = "scram-user", "scram-password"
LOGIN_SECONDS = 2
"""For how long a log-in with a token holds."""


def until(condition: Callable[[], T], what: str, timeout: float = 15) -> T:
    """The first true result of `condition`; fails the test after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {timeout} s: {what} (last seen: {found!r})"
        time.sleep(0.005)
    return found


def fresh(prefix: str) -> str:
    """A name that nobody has used."""
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


@dataclass
class Target:
    """One cluster: its address, and how the few things are done that requests alone do not do."""

    kind: Literal["fake", "kafka"]
    bootstrap: str
    move_leader: Callable[[str, int], object] | None = None
    """Makes a broker lead partition 0 of a topic."""
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    listeners: Callable[[str], str] | None = None
    """The address with the certificate of this kind: good, expired, early, misnamed, mutual."""
    files: Mapping[str, str] = field(default_factory=dict)
    """ca, other_ca: certificates of authorities; certificate, key: of a client."""
    _spare: list[str] = field(default_factory=list, repr=False)

    @property
    def brokers(self) -> list[int]:
        return list(range(1, self.bootstrap.count(",") + 2))

    def connect(self, broker: int = 1, client_id: str = "conformance") -> RawClient:
        return RawClient(self.bootstrap, broker, client_id=client_id, tls=self.tls)

    def differs(self, *, fake: T, kafka: T) -> T:
        """The expectation where the two differ on purpose; only the tests of test_differences.py ask for it."""
        return fake if self.kind == "fake" else kafka

    def topic(self, partitions: int = 1, replication: int = 1, configs: Mapping[str, str] | None = None) -> str:
        """A new topic; returns when all its leaders serve it, and all brokers know of it."""
        if (partitions, replication) != (1, 1) or configs:
            return self._make(1, partitions, replication, configs or {})[0]
        if not self._spare:
            self._spare = self._make(TOPICS_AT_ONCE, 1, 1, {})
        return self._spare.pop()

    def _make(self, count: int, partitions: int, replication: int, configs: Mapping[str, str]) -> list[str]:
        names = [fresh("conformance") for _ in range(count)]
        alike = {
            "num_partitions": partitions,
            "replication_factor": replication,
            "configs": [{"name": key, "value": value} for key, value in configs.items()],
        }
        with self.connect() as client:
            topics = [{"name": name, **alike} for name in names]
            made = client.ask("CreateTopics", 7, topics=topics, timeout_ms=10_000)["topics"]
            assert {one["error_code"] for one in made} == {0}, made
        for name in names:
            for partition in range(partitions):
                self.wait_for_leader(name, partition)
        return names

    def leader(self, topic: str, partition: int = 0, broker: int = 1) -> tuple[int, int]:
        """Leader and leader epoch of a partition, as this broker knows it; -1 while unknown."""
        with self.connect(broker) as client:
            (found,) = client.ask("Metadata", 12, topics=[{"name": topic}])["topics"]
        views = [one for one in found["partitions"] if one["partition_index"] == partition]
        return (views[0]["leader_id"], views[0]["leader_epoch"]) if views else (-1, -1)

    def another(self, broker: int) -> int:
        """The first broker that is not this one."""
        return next(one for one in self.brokers if one != broker)

    def move(self, topic: str) -> int:
        """Have another broker lead partition 0; returns it when it does."""
        other = self.another(self.leader(topic)[0])
        assert self.move_leader is not None
        self.move_leader(topic, other)
        assert self.wait_for_leader(topic) == other
        return other

    def wait_for_leader(self, topic: str, partition: int = 0) -> int:
        """Returns the leader, when it knows that it leads and the others know it, too: each is told for itself."""

        def served() -> int:
            ((leader, _), *others) = {self.leader(topic, partition, broker) for broker in self.brokers}
            if leader < 0 or others:
                return 0
            for broker in self.brokers:
                with self.connect(broker) as client:
                    error = list_offsets(client, topic, -1, partition=partition)["error_code"]
                assert error in (0, *NOT_THERE_YET)
                if error != (0 if broker == leader else NOT_LEADER):
                    return 0
            return leader

        return until(served, f"{topic}-{partition} has a leader that serves, and all brokers know it")


def list_offsets(
    client: RawClient, topic: str, timestamp: int, *, partition: int = 0, version: int = 7, epoch: int = -1, **more: int
) -> dict[str, Any]:
    wanted = [{"partition_index": partition, "current_leader_epoch": epoch, "timestamp": timestamp}]
    body = {"isolation_level": 0, "topics": [{"name": topic, "partitions": wanted}], "timeout_ms": 1000, **more}
    found: dict[str, Any] = client.ask("ListOffsets", version, replica_id=-1, **body)["topics"][0]["partitions"][0]
    return found


def produce(
    client: RawClient, version: int, topic: Any, records: bytes | None, *, partition: int = 0, **changes: Any
) -> dict[str, Any]:
    """The whole answer to one batch; from version 13 on the topic is its ID."""
    return client.ask("Produce", version, **produce_body(topic, records, partition, **changes))


def fetch(client: RawClient, version: int, topic: Any, offset: int = 0, **changes: Any) -> dict[str, Any]:
    """The whole answer for partition 0; from version 13 on the topic is its ID."""
    return client.ask("Fetch", version, **fetch_body(topic, offset, **changes))


def part(answer: dict[str, Any]) -> dict[str, Any]:
    """The one partition of an answer to Produce or Fetch."""
    (topic,) = answer["responses"]
    (found,) = topic.get("partition_responses") or topic["partitions"]
    assert isinstance(found, dict)
    return found


def topic_id(client: RawClient, topic: str) -> uuid.UUID:
    (found,) = client.ask("Metadata", 12, topics=[{"name": topic}])["topics"]
    assert isinstance(found["topic_id"], uuid.UUID)
    return found["topic_id"]


def end_offset(client: RawClient, topic: str, partition: int = 0) -> int:
    """Where the next record goes."""
    answer = list_offsets(client, topic, -1, partition=partition)
    assert answer["error_code"] == 0
    assert isinstance(answer["offset"], int)
    return answer["offset"]
