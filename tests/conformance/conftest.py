"""The suite on FakeCluster; `integration/conformance` runs the same tests on real Kafka."""

import pytest

pytest.register_assert_rewrite("tests.conformance.fixtures", "tests.conformance.target")

import json  # noqa: E402
from base64 import urlsafe_b64decode  # noqa: E402
from collections.abc import Iterator  # noqa: E402
from datetime import UTC, datetime, timedelta  # noqa: E402
from pathlib import Path  # noqa: E402

import trustme  # noqa: E402

from safeproducer.testing import FakeCluster  # noqa: E402
from tests.conformance.fixtures import client, name, untouched  # noqa: E402 - after its asserts are known to pytest
from tests.conformance.target import (  # noqa: E402
    CONFIGS,
    LOGIN_SECONDS,
    PLAIN_PASSWORD,
    PLAIN_USER,
    SCRAM_PASSWORD,
    SCRAM_USER,
    Target,
)

__all__ = ["client", "cluster", "cluster3", "encrypted", "name", "secure", "tokens", "untouched"]
DAY = timedelta(days=1)
USERS = {PLAIN_USER: PLAIN_PASSWORD, SCRAM_USER: SCRAM_PASSWORD}


def principal(token: str) -> str | None:
    """Takes all tokens that nobody has signed, as Kafka does that is not told how to check them."""
    try:
        head, claims, _ = (json.loads(urlsafe_b64decode(part + "==") or b"{}") for part in token.split("."))
    except ValueError:
        return None
    begun = datetime.fromtimestamp(claims["iat"], UTC) <= datetime.now(UTC)
    return str(claims["sub"]) if head == {"alg": "none"} and begun else None


@pytest.fixture(scope="session")
def cluster() -> Iterator[Target]:
    """One broker, as users get it: it knows KIP-1269."""
    with FakeCluster(1, broker_config=CONFIGS) as fake:
        yield Target("fake", fake.bootstrap)


@pytest.fixture(scope="session")
def cluster3() -> Iterator[Target]:
    """Three brokers, whose followers fetch."""
    with FakeCluster(3, replica_link=100_000_000) as fake:
        yield Target("fake", fake.bootstrap, lambda topic, broker: fake.move_leader(topic, to=broker))


@pytest.fixture(scope="session")
def secure() -> Iterator[Target]:
    """One broker that lets nobody in without a log-in."""
    with FakeCluster(1, broker_config=CONFIGS, users=USERS, tokens=principal) as fake:
        yield Target("fake", fake.bootstrap)


@pytest.fixture(scope="session")
def tokens() -> Iterator[Target]:
    with FakeCluster(1, broker_config=CONFIGS, users=USERS, tokens=principal, reauthentication=LOGIN_SECONDS) as fake:
        yield Target("fake", fake.bootstrap)


@pytest.fixture(scope="session")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    other = tmp_path_factory.mktemp("ca") / "other-ca.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    now, names = datetime.now(UTC), ("127.0.0.1", "localhost")
    with (
        FakeCluster(1, broker_config=CONFIGS, users=USERS, tls=True) as fake,
        FakeCluster(1, broker_config=CONFIGS, users=USERS, tls="mutual") as mutual,
    ):
        files = {"ca": fake.ca_file, "other_ca": str(other)}
        files |= dict(zip(("certificate", "key"), mutual.client_files("client"), strict=True))
        both = other.with_name("both.pem")
        both.write_text(Path(fake.ca_file).read_text() + Path(mutual.ca_file).read_text())

        def listener(kind: str) -> str:
            if kind == "mutual":
                return mutual.bootstrap
            spans = {"expired": (now - 2 * DAY, now - DAY), "early": (now + DAY, now + 2 * DAY)}
            not_before, not_after = spans.get(kind, (None, None))
            named = ("broker.elsewhere.test",) if kind == "misnamed" else names
            fake.set_certificate(*named, not_before=not_before, not_after=not_after)
            return fake.bootstrap

        yield Target("fake", fake.bootstrap, listeners=listener, files={**files, "ca": str(both)})
