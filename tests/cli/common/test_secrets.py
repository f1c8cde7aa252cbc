"""Secret values of the settings stay out of what a command prints."""

import json

import pytest

from safeproducer.cli.common.screen import REDACTED, Redactor

MARKER = "MARKER-s3cret"


def test_secret_values_are_redacted() -> None:
    """In text and at any depth of a document."""
    redact = Redactor({"sasl.pasword": MARKER})
    assert redact(f"before {MARKER} after") == f"before {REDACTED} after"
    assert MARKER not in json.dumps(redact.tree({"a": [f"x{MARKER}", {"b": MARKER}], "n": 1}))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sasl.mechanism", "SCRAM-SHA-512"),
        ("sasl.username", "alice"),
        ("ssl.ca.location", "ca.pem"),
        ("ssl.key.location", "key.pem"),
        ("security.protocol", "SASL_SSL"),
        ("linger.ms", "5"),
    ],
)
def test_other_values_stay_readable(name: str, value: str) -> None:
    """What a person needs to find a mistake is not hidden."""
    assert Redactor({name: value})(f"see {value}") == f"see {value}"


def test_one_secret_inside_another_leaves_no_remainder() -> None:
    """The longer secret is replaced first, so no tail of it remains."""
    redact = Redactor({"sasl.password": "abc", "ssl.key.password": "abcdef"})
    assert redact("abcdef abc") == f"{REDACTED} {REDACTED}"
