"""A login that cannot work: what is said names the cause, and nobody is called refused who was not looked at."""

import logging

import pytest

from safeproducer import ConfigurationError, SafeProducer

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


def test_the_constructor_raises_from_what_oauth_cb_raised(caplog: pytest.LogCaptureFixture) -> None:
    """The log has its traceback; no frame of ours is in it that knows the configuration."""
    with pytest.raises(ConfigurationError, match="your oauth_cb raised RefusedError: AccessDenied") as caught:
        SafeProducer({**TOKEN, "bootstrap.servers": "127.0.0.1:1", "oauth_cb": refuses})
    assert "CONFIGURATION.md" not in str(caught.value)
    assert isinstance(caught.value.__cause__, RefusedError)
    assert "MARKER" not in frames_of(caught.value.__cause__)
    told = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.exc_info and record.exc_info[0] for record in told] == [RefusedError]
