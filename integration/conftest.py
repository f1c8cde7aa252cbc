"""Fixtures of the tests against real Kafka: shared clusters and fresh topics.

A node that idles for a minute costs more of a processor than its start: all but `kafka` live as long as a file.
"""

import itertools
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from integration.kafka.cluster import KafkaCluster

TopicFactory = Callable[..., str]
Login = Callable[..., Path]
MARKER = "MARKER-s3cret"
"""The password of `user`, which nothing may show."""


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaCluster]:
    """One node, shared: tests use topics of their own and leave it running."""
    with KafkaCluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def kafka3() -> Iterator[KafkaCluster]:
    """Three nodes, shared; a test that stops or pauses one brings it back."""
    with KafkaCluster(3) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def kafka_tapped() -> Iterator[KafkaCluster]:
    """One node that advertises ports on which a tap is to listen."""
    with KafkaCluster(tapped=True) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def kafka_secure() -> Iterator[KafkaCluster]:
    """One node that also has SASL_SSL listeners and an authorizer."""
    with KafkaCluster(secure=True) as cluster:
        yield cluster


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> TopicFactory:
    """Makes a fresh topic: `topic(partitions=1, replication=1, configs=None, on=cluster)`, on `kafka` by default."""
    numbers = itertools.count(1)

    def make(
        partitions: int = 1, replication: int = 1, configs: dict[str, str] | None = None, on: KafkaCluster | None = None
    ) -> str:
        cluster = on or request.getfixturevalue("kafka")
        name = f"t-{uuid.uuid4().hex[:8]}-{next(numbers)}"
        cluster.admin.create_topic(name, partitions, replication, configs)
        return name

    return make


@pytest.fixture
def _no_idle_producer_left() -> Iterator[None]:
    """What writes as a task of PySpark leaves its producer to the next task of this process."""
    from safeproducer.spark.worker_producers import producers  # noqa: PLC0415 - it needs pyarrow

    yield
    for worker in list(producers._idle.values()):
        producers._idle.pop(worker.key).end()


def properties(path: Path, settings: Mapping[str, str]) -> Path:
    """Write a Java-style properties file."""
    path.write_text("".join(f"{name} = {value}\n" for name, value in settings.items()))
    return path


@pytest.fixture(scope="module")
def user(request: pytest.FixtureRequest, kafka_secure: KafkaCluster) -> str:
    """A SCRAM user of this module without any right, whose password is the marker."""
    name = f"user-of-{request.module.__name__.rpartition('.')[2]}"
    kafka_secure.admin.add_scram_user(name, MARKER)
    return name


@pytest.fixture
def login(kafka_secure: KafkaCluster, user: str, tmp_path: Path) -> Login:
    """Makes a configuration file that logs the user in; keyword arguments change a setting."""

    def make(**changes: str) -> Path:
        settings = {
            "bootstrap.servers": kafka_secure.secure_bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": MARKER,
            "ssl.ca.location": str(kafka_secure.ca_pem),
        }
        settings |= {name.replace("_", "."): value for name, value in changes.items()}
        return properties(tmp_path / "login.properties", settings)

    return make
