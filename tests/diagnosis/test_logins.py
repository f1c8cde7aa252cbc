"""A login that cannot work: what is said names the cause, and nobody is called refused who was not looked at."""

import logging
import time

import pytest

from safeproducer import ConfigurationError, SafeProducer
from safeproducer.testing import FakeCluster
from tests.contract.support import poll_until

USER = {"sasl.username": "alice", "sasl.password": "secret"}
BASE = {"security.protocol": "SASL_PLAINTEXT", "log_level": 0}
TOKEN = {**BASE, "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.config": "pass=MARKER"}


class RefusedError(Exception):
    """Only these tests raise it."""


def refuses(_: str) -> tuple[str, float]:
    """As a cloud's signer does for a role that may not be taken."""
    raise RefusedError("AccessDenied: role orders-writer")


def frames_of(error: BaseException) -> str:
    found, entry = "", error.__traceback__
    while entry is not None:
        found += "".join(str(value) for name, value in entry.tb_frame.f_locals.items() if name != "_")
        entry = entry.tb_next
    return found


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_listener_without_sasl_is_told_from_a_wrong_password(mechanism: str) -> None:
    """It has looked at neither user nor password: the port or security.protocol is wrong."""
    with FakeCluster(brokers=1) as cluster:
        config = {**BASE, **USER, "bootstrap.servers": cluster.bootstrap, "sasl.mechanism": mechanism}
        producer = SafeProducer(config)
        producer.produce("t", b"x")
        poll_until(producer, lambda: "did not expect SASL" in producer.explain(), 20)
        said = f"{producer.explain()} {producer.health(unresolved_for=0)} {producer.snapshot().last_error}"
        assert "security.protocol" in said
        assert "password" not in said
        producer.close(0)


def test_the_constructor_raises_from_what_oauth_cb_raised(caplog: pytest.LogCaptureFixture) -> None:
    """The log has its traceback; no frame of ours is in it that knows the configuration."""
    with pytest.raises(ConfigurationError, match="your oauth_cb raised RefusedError: AccessDenied") as caught:
        SafeProducer({**TOKEN, "bootstrap.servers": "127.0.0.1:1", "oauth_cb": refuses})
    assert "CONFIGURATION.md" not in str(caught.value)
    assert isinstance(caught.value.__cause__, RefusedError)
    assert "MARKER" not in frames_of(caught.value.__cause__)
    told = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.exc_info and record.exc_info[0] for record in told] == [RefusedError]


@pytest.mark.parametrize("mode", ["auto", "held"])
def test_explain_tells_what_oauth_cb_raised_at_a_refresh(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    """The first token was there, so the constructor could not raise it."""
    tokens: list[float] = []

    def second_is_refused(text: str) -> tuple[str, float]:
        if tokens:
            refuses(text)
        tokens.append(time.time() + 1.5)
        return "eyJhbGciOiJub25lIn0.eyJzdWIiOiJ4In0.", tokens[0]

    config = {**TOKEN, "bootstrap.servers": "127.0.0.1:1", "oauth_cb": second_is_refused, "safeproducer.mode": mode}
    producer = SafeProducer(config)
    producer.produce("t", b"x")
    poll_until(producer, lambda: "your oauth_cb raised RefusedError: AccessDenied" in producer.explain(), 20)
    assert "password" not in producer.explain()
    assert "RefusedError" in caplog.text
    assert "Traceback" in caplog.text
    producer.close(0)
