"""Every error text that librdkafka gives becomes one sentence with a way out."""

import pytest
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st

from safeproducer.kafka import advice as module
from safeproducer.kafka.advice import advice, is_permanent, joined, told_apart
from safeproducer.kafka.arguments import WAYS_OUT, unable

CODES = sorted({KafkaError(getattr(KafkaError, name)).name() for name in dir(KafkaError) if name.isupper()})


@pytest.mark.parametrize(
    ("code", "reason", "words"),
    [
        (
            "_TRANSPORT",
            "127.0.0.1:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed: Connection refused (after 0ms in state "
            "CONNECT)",
            ["127.0.0.1:1", "refuses the connection", "bootstrap.servers"],
        ),
        (
            "_RESOLVE",
            "nohost.invalid:9092/bootstrap: Failed to resolve 'nohost.invalid:9092': Name or service not known "
            "(after 0ms in state CONNECT)",
            ["nohost.invalid:9092", "spelling"],
        ),
        (
            "_AUTHENTICATION",
            "sasl_ssl://127.0.0.1:9/bootstrap: SASL authentication error: Authentication failed during authentication "
            "due to invalid credentials with SASL mechanism SCRAM-SHA-512 (after 9ms in state AUTH_REQ)",
            ["127.0.0.1:9", "password", "sasl.username"],
        ),
        (
            "_SSL",
            "ssl://127.0.0.1:9/bootstrap: SSL handshake failed: error:0A000086:SSL routines::certificate verify "
            "failed: broker certificate could not be verified, verify that ssl.ca.location is correctly configured "
            "(after 4ms in state SSL_HANDSHAKE)",
            ["127.0.0.1:9 was refused", "ssl.ca.location", "out of date", "another host name"],
        ),
        (
            "_SSL",
            "ssl://x.example:9/1: certificate verify failed: unable to get local issuer certificate",
            ["not signed by an authority", "ssl.ca.location"],
        ),
        (
            "_TRANSPORT",
            "ssl://127.0.0.1:9/bootstrap: Disconnected: SSL connection closed by peer (after 2ms in state UP)",
            ["hung up", "security.protocol"],
        ),
        # Every two hundredth hang-up of a real SASL listener: the client was about to send.
        (
            "_TRANSPORT",
            "ssl://127.0.0.1:9/bootstrap: Send failed: error:80000020:system library::Broken pipe: "
            "tls_retry_write_records failure (after 2ms in state UP)",
            ["hung up", "security.protocol"],
        ),
        (
            "_TRANSPORT",
            "ssl://127.0.0.1:9/1: Send failed: error:80000020:system library::Broken pipe: "
            "tls_retry_write_records failure (after 61000ms in state UP)",
            ["cannot be reached", "firewall"],
        ),
        (
            "_TRANSPORT",
            "127.0.0.1:9/bootstrap: Disconnected: connection closed by peer: receive 0 after POLLIN (after 2ms in "
            "state APIVERSION_QUERY)",
            ["hung up", "security.protocol"],
        ),
        (
            "_SSL",
            "ssl://x.example:9/1: SSL handshake failed: certificate verify failed: hostname mismatch",
            ["x.example:9", "another host name"],
        ),
        (
            "_SSL",
            "ssl://x.example:9/1: SSL handshake failed: certificate verify failed: certificate has expired",
            ["out of date", "renew"],
        ),
        (
            "_TRANSPORT",
            "ssl://127.0.0.1:9/bootstrap: SSL handshake failed: Disconnected: connection reset by peer: connecting to "
            "a PLAINTEXT broker listener? (after 0ms in state SSL_HANDSHAKE)",
            ["without TLS", "security.protocol"],
        ),
        (
            "_TRANSPORT",
            "127.0.0.1:9/bootstrap: Disconnected while requesting ApiVersion: might be caused by incorrect "
            "security.protocol configuration (connecting to a SSL listener?) or broker version is < 0.10",
            ["SASL_SSL", "security.protocol"],
        ),
        (
            "_TRANSPORT",
            "ssl://127.0.0.1:9/bootstrap: Disconnected: connection reset by peer (after 1ms in state SSL_HANDSHAKE)",
            ["without TLS", "security.protocol"],
        ),
        (
            "_TRANSPORT",
            "127.0.0.1:9/bootstrap: Receive failed: Invalid response size 1213486160 (0..100000000): increase "
            "receive.message.max.bytes",
            ["127.0.0.1:9 speaks HTTP", "bootstrap.servers"],
        ),
        ("_TIMED_OUT", "no answer within 10 s", ["cannot be reached", "firewall"]),
        ("_INVALID_ARG", 'No such configuration property: "lingerms"', ["lingerms", "correct its name"]),
        ("_INVALID_ARG", 'Invalid value for configuration property "acks"', ["acks", "correct the value"]),
        ("_INVALID_ARG", "Failed to create producer: ssl.ca.location failed: error:05880020", ["PEM", "exists"]),
        ("TOPIC_AUTHORIZATION_FAILED", "Broker: Topic authorization failed", ["may not write", "WRITE"]),
        ("CLUSTER_AUTHORIZATION_FAILED", "", ["IDEMPOTENT_WRITE", "enable.idempotence"]),
        (
            "_AUTHENTICATION",
            "sasl_plaintext://127.0.0.1:9/bootstrap: SASL PLAIN mechanism handshake failed: Broker: Request not valid "
            "in current SASL state: broker's supported mechanisms:  (after 0ms in state AUTH_HANDSHAKE)",
            ["127.0.0.1:9 did not expect SASL", "security.protocol"],
        ),
        ("_AUTHENTICATION", "your oauth_cb raised KeyError: 'role'", ["no token", "KeyError: 'role'", "mend oauth_cb"]),
        ("INVALID_PRODUCER_EPOCH", "Broker: Producer attempted an operation with an old epoch", ["producer ID"]),
        ("INVALID_PRODUCER_ID_MAPPING", "Broker: Producer attempted to use a producer id", ["producer ID", "make one"]),
        ("INVALID_PRODUCER_ID_MAPPING", "", ["coordinator", "abort_transaction()"]),
        ("MSG_SIZE_TOO_LARGE", "Broker: Message size too large", ["batch", "batch.size", "max.message.bytes"]),
        ("_INVALID_DIFFERENT_RECORD", "Local: Invalid record", ["neighbour", "compacted", "produce this one again"]),
        ("UNKNOWN_TOPIC_OR_PART", "", ["does not exist", "create"]),
        ("MSG_SIZE_TOO_LARGE", "", ["message.max.bytes", "max.message.bytes"]),
        ("_MSG_TIMED_OUT", "", ["may or may not be in the log"]),
        ("NOT_ENOUGH_REPLICAS", "", ["min.insync.replicas"]),
        ("_FATAL", "fenced", ["create a new producer", "fenced"]),
    ],
)
def test_the_sentence_says_what_and_what_to_do(code: str, reason: str, words: list[str]) -> None:
    """The cause, the broker where one is named, and the setting or action that helps are in it."""
    sentence = advice(code, reason)
    for word in words:
        assert word in sentence
    assert sentence.endswith(".")
    assert "(after " not in sentence
    meaning, cure = told_apart(code, reason)
    assert sentence == joined(meaning, cure)
    assert cure[:1].isupper()


@given(code=st.sampled_from(CODES) | st.from_regex(r"[A-Z_]{1,20}", fullmatch=True), reason=st.text(max_size=60))
def test_any_code_and_reason_give_one_line(code: str, reason: str) -> None:
    """Unknown codes, empty reasons and braces in reasons never break it."""
    sentence = advice(code, reason)
    assert sentence.strip()
    assert "\n" not in sentence
    assert sentence.endswith(".")


@pytest.mark.parametrize("code", WAYS_OUT)
def test_a_refusal_of_produce_ends_with_the_same_advice(code: int) -> None:
    """Its beginning is confluent_kafka's."""
    refused = unable(code).args[0]
    begin, _, end = refused.str().rpartition(f"{KafkaError(code).str()}: ")
    assert begin == "Unable to produce message: "
    assert end
    assert advice(refused.name()).endswith(f": {end}.")


def test_an_unknown_code_keeps_the_reason() -> None:
    """Nothing is known about the code, so librdkafka's own words are shown with its name."""
    assert advice("SOMETHING_NEW", "It broke.") == "It broke (SOMETHING_NEW)."


def test_the_table_names_only_codes_that_exist() -> None:
    """A misspelt code would silently never match."""
    named = set().union(*(rule.codes for rule in module._RULES)) | module._PERMANENT
    assert named <= set(CODES)


def test_one_record_s_own_fault_is_not_hopeless() -> None:
    """A large or late record says nothing about the next; missing rights do."""
    assert is_permanent("TOPIC_AUTHORIZATION_FAILED")
    assert not is_permanent("MSG_SIZE_TOO_LARGE")
    assert not is_permanent("_MSG_TIMED_OUT")


def test_only_a_transaction_is_told_of_its_transactional_id() -> None:
    """The leader of a partition gives the same codes to an idempotent producer, which has no such ID."""
    for code in (KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.INVALID_PRODUCER_ID_MAPPING):
        error = KafkaError(code)
        assert "transactional.id" not in advice(error.name(), error.str())
