"""`sasl.jaas.config` is read as Kafka's own parser reads it, and never quoted."""

from __future__ import annotations

import pytest

from safeproducer import ConfigurationError
from safeproducer.spark.jaas import MODULES, OAUTHBEARER, read

PLAIN, SCRAM = MODULES["PLAIN"], MODULES["SCRAM-SHA-512"]


@pytest.mark.parametrize(
    ("options", "username", "password"),
    [
        ('username="u" password="p"', "u", "p"),
        ("password='p' username='u'", "u", "p"),
        ("username=u-1 password=p.w_$", "u-1", "p.w_$"),
        ('username = "u"\n  password= "p" serviceName="kafka"', "u", "p"),
        ('/* who */ username="u" // the rest\n password="p"', "u", "p"),
        (r'username="a\"b\\c" password="t\tn\nx\qo\101\61\0612"', 'a"b\\c', "t\tn\nxqoA1" + "12"),
        ('username="é" password="ü;=//#/*"', "é", "ü;=//#/*"),
        ('username="first" username="last" password="it\'s"', "last", "it's"),
        ('username="u" password="p" tokenauth="false"', "u", "p"),
    ],
)
def test_user_and_password_are_read_as_java_reads_them(options: str, username: str, password: str) -> None:
    """Checked against Kafka's `JaasContext`, with 12 000 texts made at random beside these."""
    login = read(f"{PLAIN} required {options};", "PLAIN")
    assert list(login.items()) == [("sasl.username", username), ("sasl.password", password)], "the secret is the last"


@pytest.mark.parametrize("mechanism", sorted(MODULES.keys() - {OAUTHBEARER}))
def test_each_mechanism_has_its_module(mechanism: str) -> None:
    """Under Kafka's name, or under that of a platform that renames Kafka's classes."""
    for prefix in ("", "kafkashaded."):
        text = f'{prefix}{MODULES[mechanism]} Required username="u" password="p" ;'
        assert read(text, mechanism)["sasl.username"] == "u"


@pytest.mark.parametrize(
    ("text", "mechanism", "said"),
    [
        ("", "PLAIN", "no entry of the form"),
        ("marker", "PLAIN", "no entry of the form"),
        (f'{PLAIN} required username="u" password="marker"', "PLAIN", "no entry of the form"),
        (f'{PLAIN} required username="u" password="marker;', "PLAIN", "not of the form name="),
        (f'{PLAIN} required username="u" password=1marker;', "PLAIN", "not of the form name="),
        (f'{PLAIN} required username "u" password="marker";', "PLAIN", "not of the form name="),
        (f'{PLAIN} username="u" password="marker";', "PLAIN", "there is no 'required'"),
        (f'{PLAIN} required username="u" password="marker"; x required;', "PLAIN", "more than one entry"),
        (f'{PLAIN} required password="marker";', "PLAIN", "has no username"),
        (f'{PLAIN} required username="marker" password="";', "PLAIN", "has no password"),
        (f"{PLAIN} required;", "PLAIN", "no username and no password"),
        (f'{SCRAM} required username="u" password="marker";', "PLAIN", f"not that of sasl.mechanism=PLAIN, {PLAIN}"),
        (f'x{PLAIN} required username="u" password="marker";', "PLAIN", "not that of sasl.mechanism"),
        (f'{SCRAM} required username="u" password="marker" tokenauth="true";', "SCRAM-SHA-512", "delegation token"),
    ],
)
def test_a_text_that_is_no_login_is_refused_without_quoting_it(text: str, mechanism: str, said: str) -> None:
    """The setting's name and the way out, and nothing of the text."""
    with pytest.raises(ConfigurationError) as caught:
        read(text, mechanism)
    message = str(caught.value)
    assert said in message
    assert "setting 'kafka.sasl.jaas.config' = ***: " in message
    assert "marker" not in message
