"""Secrets are cut out of texts, whole or in part; what is no secret stays readable."""

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeproducer.kafka import properties
from safeproducer.kafka.advice import advice, sentences
from safeproducer.kafka.properties import HIDDEN, LEAST, ORDINARY, scrub
from safeproducer.settings.config import parse

SEPARATORS = " ,=&\"';"
TOKENS = st.text(string.ascii_letters + string.digits + "-_/+.!$%", min_size=1, max_size=24)
SECRETS = st.lists(TOKENS, min_size=1, max_size=5).flatmap(
    lambda tokens: st.sampled_from(SEPARATORS).map(lambda separator: separator.join(tokens))
)
FRAMES = [
    "{} ",
    '{}"',
    "Invalid sasl.oauthbearer.config beginning at: {}",
    'Invalid value "{}" for configuration property',
    "clientSecret={}",
    "'{}' cannot be used",
    "cannot parse `{}`",
]


def pieces(secret: str) -> list[str]:
    """What of a secret must not be seen: parts that mean something by themselves, ordinary words not."""
    split = re.split(f"[{re.escape(SEPARATORS)}]", secret)
    return [piece for piece in split if len(piece) >= LEAST and not is_ordinary(piece)]


def is_ordinary(piece: str) -> bool:
    """Whether it says nothing but words of the texts themselves: `LOG/` does not."""
    words = re.findall(r"[^\W\d_]+", piece)
    return bool(words) and not re.search(r"[\d_]", piece) and all(word.lower() in ORDINARY for word in words)


@given(SECRETS, st.sampled_from(FRAMES), st.data())
def test_no_piece_is_left_wherever_it_was_cut(secret: str, frame: str, data: st.DataObject) -> None:
    """librdkafka quotes a value from any position, up to any."""
    start = data.draw(st.integers(0, len(secret)))
    end = data.draw(st.integers(start, len(secret)))
    before, after = frame.split("{}")
    found = scrub(frame.format(secret[start:end]), [secret])
    for piece in pieces(secret[start:end]):
        alone = re.compile(rf"(?<!\w){re.escape(piece)}(?!\w)")
        if alone.search(before) is None and alone.search(after) is None:
            assert alone.search(found) is None, (piece, found)


@given(SECRETS, st.sampled_from(FRAMES))
def test_a_whole_secret_is_not_left(secret: str, frame: str) -> None:
    """Of any characters, as long as it has 4 and is no ordinary word."""
    if len(secret) >= LEAST and secret.lower() not in ORDINARY and secret not in frame:
        assert secret not in scrub(frame.format(secret), [secret])


@pytest.mark.parametrize("secret", ["true", "kafka", "broker", "password", "bootstrap", "certificate", "abc", ""])
def test_a_secret_that_is_an_ordinary_word_destroys_no_text(secret: str) -> None:
    """Its gaps would tell it."""
    for sentence in (*sentences(), "rdkafka: the kafka broker", "Broker transport failure"):
        assert scrub(sentence, [secret]) == sentence


@pytest.mark.parametrize("secret", ["true", "kafka", "broker", "password"])
def test_an_ordinary_word_that_is_quoted_is_cut_out(secret: str) -> None:
    """There it is the value."""
    text = 'Invalid value "{}" for sasl.password, or sasl.password={}, broker says true'
    assert scrub(text.format(secret, secret), [secret]) == text.format(HIDDEN, HIDDEN)


@given(st.text(string.ascii_lowercase, min_size=20, max_size=2000))
def test_a_long_secret_leaves_words_whole(secret: str) -> None:
    """What it has in common with them by chance is short."""
    for sentence in sentences():
        for word in re.findall(r"\w{9,}", sentence):
            if not any(word[start : start + 8] in secret for start in range(len(word) - 7)) and word not in secret:
                assert word in scrub(sentence, [secret])


def test_the_tail_of_an_oauth_config() -> None:
    """As librdkafka quotes it, and as this library tells it."""
    config = {"sasl.oauthbearer.config": "principal=me lifeSeconds=3600 clientSecret=TOP-SECRET-123"}
    settings = parse((config,), {})
    reason = "Failed to acquire SASL OAUTHBEARER token: Unrecognized sasl.oauthbearer.config beginning at: "
    for tail in ("clientSecret=TOP-SECRET-123", "TOP-SECRET-123", "SECRET-123", "-123"):
        found = settings.scrub(advice("_AUTHENTICATION", reason + tail))
        assert "SECRET" not in found
        assert "123" not in found
        assert "Failed to acquire SASL OAUTHBEARER token" in found


def test_credentials_from_before_stay_secret() -> None:
    """A connection may still be refused with them."""
    settings = parse(({"sasl.username": "ann", "sasl.password": "first-one"},), {})
    settings.set_credentials({"sasl.username": "ann", "sasl.password": "second-one"})
    settings.set_credentials({"sasl.username": "ann", "sasl.password": "third-one"})
    for secret in ("first-one", "second-one", "third-one"):
        assert settings.scrub(f"refused ann with {secret}") == f"refused ann with {HIDDEN}"
    assert "first-one" not in repr(settings)
    assert "third-one" not in repr(settings)


def test_the_sensitive_names_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """To look for similar names takes milliseconds, and each of the many errors of lost brokers is scrubbed."""
    names = ("sasl.pasword", "linger.ms")
    found = [properties.is_sensitive(name) for name in names]
    monkeypatch.setattr(properties, "suggestions", None)
    assert [properties.is_sensitive(name) for name in names] == found == [True, False]
