"""Explains Kafka errors to people, and says what to do.

This is the one place where error codes and librdkafka's reason texts become advice. It is pure: text in,
text out, so both the producer (``explain()``, exceptions) and the commands can use it anywhere.
"""

import re
from functools import lru_cache
from typing import NamedTuple

_ADDRESS = re.compile(r"^(?:[a-z_]+://)?(?P<address>\[[^\]]+\]:\d+|[^/\s:]+:\d+)/\w+: ", re.IGNORECASE)
_STATE_SUFFIX = re.compile(r"\s*\(after \d+ms in state \w+(?:, \d+ identical error\(s\) suppressed)?\)")
_NONE_DOWN = re.compile(r"\b0/\d+ brokers are down")
"""librdkafka's text when each connection was lost, and is tried again by now."""
_SETTING = re.compile(r"configuration property:? \"(?P<setting>[^\"]+)\"", re.IGNORECASE)
_CONNECTION = "_TRANSPORT _ALL_BROKERS_DOWN _TIMED_OUT _SSL NETWORK_EXCEPTION BROKER_NOT_AVAILABLE"
_CREDENTIALS = "_AUTHENTICATION SASL_AUTHENTICATION_FAILED"


class _Rule(NamedTuple):
    """One row of the table: it applies if a code name and, if given, the reason match."""

    codes: frozenset[str]
    reason: str | None
    sentence: str


def _rule(codes: str, sentence: str, reason: str | None = None) -> _Rule:
    return _Rule(_codes(codes), reason, sentence)


def _codes(names: str) -> frozenset[str]:
    return frozenset(names.split())


# The first row that matches wins, so rows with a reason stand before the row without one.
_RULES = (
    _rule(
        "_INVALID_ARG",
        "There is no setting called {setting}: correct its name or remove it (names are librdkafka's, or begin with "
        "safeproducer.).",
        r"no such configuration property",
    ),
    _rule(
        "_INVALID_ARG",
        "A TLS setting cannot be used ({reason}): check that the file exists, is readable and is in PEM format.",
        r"(ssl\.[a-z.]+) failed",
    ),
    _rule(
        "_INVALID_ARG",
        "The SASL mechanism needs a user: set both sasl.username and sasl.password, best in a --config-file.",
        r"sasl\.username and sasl\.password must be set",
    ),
    _rule(
        "_INVALID_ARG",
        "The setting {setting} has a value it cannot take ({reason}): correct the value.",
        r"invalid value|outside allowed range",
    ),
    _rule("_INVALID_ARG", "The configuration cannot be used ({reason}): correct the setting it names."),
    _rule(
        "_RESOLVE",
        "The host name of {address} is not known to this machine's name service: check the spelling in "
        "bootstrap.servers, and the DNS or hosts file.",
    ),
    _rule(
        _CONNECTION,
        "{address} closed the TLS handshake, as a listener without TLS does: use its TLS port in bootstrap.servers, "
        "or set security.protocol to PLAINTEXT or SASL_PLAINTEXT.",
        r"plaintext broker listener|wrong version number|disconnected.*state SSL_HANDSHAKE",
    ),
    _rule(
        _CONNECTION,
        "{address} hung up before it answered, as a TLS or SASL listener does with a client that does not speak it: "
        "set security.protocol to what that listener expects (SSL, SASL_SSL or SASL_PLAINTEXT).",
        r"security\.protocol|ssl listener|sasl listener|requesting apiversion|"
        r"disconnected.*in state APIVERSION|(closed by peer|send failed).*after \d{1,3}ms in state UP",
    ),
    _rule(
        f"{_CONNECTION} _BAD_MSG",
        "{address} speaks HTTP and not Kafka: check the port in bootstrap.servers.",
        r"invalid response size 1213486160",  # "HTTP"
    ),
    _rule(
        _CONNECTION,
        "The certificate of {address} was issued for another host name: use the name in the certificate in "
        "bootstrap.servers, or have a certificate issued with this name in it.",
        r"host ?name mismatch|ip address mismatch|certificate is not valid for|doesn't match",
    ),
    _rule(
        _CONNECTION,
        "The certificate of {address} is out of date (or this machine's clock is): renew the certificate or correct "
        "the clock.",
        r"certificate has expired|certificate is not yet valid",
    ),
    _rule(
        _CONNECTION,
        "The certificate of {address} is not signed by an authority that this client trusts: set ssl.ca.location to "
        "the PEM file of the authority that issued it.",
        r"unable to get.*issuer|self.signed|unable to verify the first",
    ),
    # librdkafka gives this one text for all three faults.
    _rule(
        _CONNECTION,
        "The certificate of {address} was refused: set ssl.ca.location to the PEM file of the authority that issued "
        "it; if that is right, the certificate is out of date or was issued for another host name.",
        r"certificate verify failed|certificate could not be verified",
    ),
    _rule(
        _CONNECTION,
        "{address} refused this client's certificate ({reason}): set ssl.certificate.location and ssl.key.location to "
        "a certificate that the broker trusts.",
        r"alert (bad |unknown |no )?(certificate|ca)|certificate required|peer did not return a certificate",
    ),
    _rule("_SSL", "The TLS connection to {address} failed ({reason}): check security.protocol and the ssl.* settings."),
    _rule(
        _CONNECTION + " " + _CREDENTIALS + " UNSUPPORTED_SASL_MECHANISM",
        "{address} does not offer this SASL mechanism ({reason}): set sasl.mechanism to one that it offers.",
        r"unsupported (sasl )?mechanism|mechanism.{0,80}not (supported|enabled)",
    ),
    _rule(
        _CREDENTIALS + " ILLEGAL_SASL_STATE",
        "{address} did not expect SASL: use the port of a listener with SASL, or set security.protocol to PLAINTEXT "
        "or SSL, as that listener expects it.",
        r"current sasl state|ILLEGAL_SASL_STATE",
    ),
    _rule(
        _CREDENTIALS,
        "This client has no token to log in with ({reason}): mend oauth_cb, or the sasl.oauthbearer.* settings.",
        r"your oauth_cb|oauth token not set|acquire SASL OAUTHBEARER token",
    ),
    _rule(
        _CREDENTIALS,
        "{address} refused the user name or the password ({reason}): check sasl.username, sasl.password and "
        "sasl.mechanism.",
    ),
    _rule(
        _CONNECTION,
        "{address} refuses the connection, as if nothing listened there: check the host and port in bootstrap.servers "
        "and that the broker runs.",
        r"connection refused",
    ),
    _rule(
        "_TIMED_OUT _TRANSPORT _ALL_BROKERS_DOWN REQUEST_TIMED_OUT NETWORK_EXCEPTION BROKER_NOT_AVAILABLE",
        "{address} cannot be reached or does not answer ({reason}): check bootstrap.servers, that the broker runs, "
        "that security.protocol is what its port expects, and that no firewall is in between.",
    ),
    _rule(
        "TOPIC_AUTHORIZATION_FAILED",
        "This user may not write to the topic: have an administrator grant WRITE and DESCRIBE on it (kafka-acls --add "
        "--producer).",
    ),
    _rule(
        "CLUSTER_AUTHORIZATION_FAILED",
        "This user has no right to write idempotently, so brokers give the producer no ID: have an administrator "
        "grant WRITE on the topic (brokers before 2.8: IDEMPOTENT_WRITE on the cluster), or set enable.idempotence to "
        "false.",
    ),
    _rule(
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "This user may not use that transactional.id: have an administrator grant WRITE and DESCRIBE on it.",
    ),
    _rule(
        "GROUP_AUTHORIZATION_FAILED",
        "This user may not use that consumer group: have an administrator grant READ on it.",
    ),
    _rule(
        "UNKNOWN_TOPIC_OR_PART _UNKNOWN_TOPIC UNKNOWN_TOPIC_ID",
        "The topic does not exist, or this user may not see it: create it first, or correct its name.",
    ),
    _rule("TOPIC_EXCEPTION", "That is no valid name for a topic: correct it."),
    _rule(
        "_UNKNOWN_PARTITION",
        "The topic has no such partition: use a smaller number, or leave the choice to the partitioner.",
    ),
    _rule(
        "LEADER_NOT_AVAILABLE NOT_LEADER_FOR_PARTITION",
        "The partition has no leader at present: see whether its brokers run, and try again.",
    ),
    # what this client refuses is one record
    _rule(
        "MSG_SIZE_TOO_LARGE RECORD_LIST_TOO_LARGE INVALID_MSG_SIZE",
        "The batch of the record is larger than max.message.bytes of the topic: lower batch.size to that limit, make "
        "a record that is larger by itself smaller, or have the limit raised.",
        r"^Broker: ",
    ),
    _rule(
        "MSG_SIZE_TOO_LARGE RECORD_LIST_TOO_LARGE INVALID_MSG_SIZE",
        "The record is larger than allowed: make it smaller, or raise message.max.bytes here and max.message.bytes on "
        "the topic.",
    ),
    _rule(
        "_MSG_TIMED_OUT",
        "No acknowledgement came within message.timeout.ms, so the record may or may not be in the log: see whether "
        "the partition's leader runs and is reachable, and look before sending it again.",
    ),
    _rule(
        "NOT_ENOUGH_REPLICAS NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        "Fewer replicas are in sync than min.insync.replicas asks for: bring the missing brokers back.",
    ),
    _rule(
        "INVALID_RECORD",
        "The broker refused the batch of this record, because of it or of a neighbour ({reason}): give every record "
        "of a compacted topic a key, and none a timestamp that its topic does not take; produce neighbours again.",
    ),
    _rule(
        "_INVALID_DIFFERENT_RECORD",
        "The broker refused a neighbour of this record, and with it the whole batch ({reason}): give every record of "
        "a compacted topic a key, and none a timestamp that its topic does not take; produce this one again.",
    ),
    _rule("THROTTLING_QUOTA_EXCEEDED", "A limit on producer IDs is used up: keep producers, or have it raised."),
    _rule("INVALID_TIMESTAMP", "The topic does not take the record's timestamp: correct it, or this machine's clock."),
    _rule("UNSUPPORTED_COMPRESSION_TYPE", "The broker does not know this compression: set another compression.type."),
    _rule("UNKNOWN", "The broker met an error of its own: look into its log."),
    _rule("POLICY_VIOLATION", "A policy of the cluster forbids it ({reason}): ask its administrator."),
    _rule("KAFKA_STORAGE_ERROR", "The broker cannot write to its disk: its administrator must free or replace it."),
    _rule("_FENCED", "Another producer with the same transactional.id took over: stop this one, or give it its own."),
    # to a batch; a coordinator answers commit_transaction()
    _rule(
        "INVALID_PRODUCER_EPOCH INVALID_PRODUCER_ID_MAPPING",
        "The leader of the partition does not take the producer ID, or the epoch of it, that this producer has: close "
        "this producer, and make one new one, which gets another producer ID.",
        r"^Broker: ",
    ),
    _rule(
        "INVALID_PRODUCER_ID_MAPPING",
        "The coordinator has forgotten this transactional.id, which rested for transactional.id.expiration.ms: abort "
        "it and run it again (abort_transaction(), then all of the transaction from begin_transaction() on).",
    ),
    _rule(
        "OUT_OF_ORDER_SEQUENCE_NUMBER UNKNOWN_PRODUCER_ID DUPLICATE_SEQUENCE_NUMBER _FATAL",
        "The producer can no longer promise order without duplicates and takes no more records ({reason}): create a "
        "new producer; records without a report may or may not be in the log.",
    ),
    _rule(
        "_QUEUE_FULL",
        "The producer's buffer is full: call poll() and try again, or raise queue.buffering.max.kbytes.",
    ),
    _rule(
        "_PURGE_QUEUE _PURGE_INFLIGHT",
        "The record was given up before an acknowledgement came, so it may or may not be in the log.",
    ),
)

# Errors that the next record to the same topic by the same user will meet as well.
_PERMANENT = _codes(
    "TOPIC_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED TRANSACTIONAL_ID_AUTHORIZATION_FAILED "
    "UNKNOWN_TOPIC_OR_PART _UNKNOWN_TOPIC _UNKNOWN_PARTITION TOPIC_EXCEPTION _AUTHENTICATION "
    "SASL_AUTHENTICATION_FAILED UNSUPPORTED_SASL_MECHANISM _FATAL _FENCED"
)


def advice(code_name: str, reason: str = "") -> str:
    """Say in one sentence what an error means and what to do.

    ``code_name`` is ``KafkaError.name()`` (``"_AUTHENTICATION"``), ``reason`` is ``KafkaError.str()``.
    An unknown code gives the reason itself with the code's name, never an empty text. The reason is
    quoted: a caller whose configuration holds secrets redacts the answer.
    """
    return joined(*told_apart(code_name, reason))


def advice_to(code_name: str, reason: str) -> str:
    """The advice as a clause beside the reason, of an error that a broker gave; "" for those of librdkafka."""
    if code_name.startswith("_") and code_name not in ("_INVALID_DIFFERENT_RECORD", "_UNKNOWN_PARTITION"):
        return ""
    told = advice(code_name, reason).replace(f" ({_clean(reason)})", "")
    return told[:1].lower() + told[1:-1]


def joined(meaning: str, cure: str) -> str:
    """Meaning and cure as one sentence."""
    return f"{meaning}: {cure[0].lower()}{cure[1:]}" if cure else f"{meaning}."


@lru_cache(maxsize=64)
def told_apart(code_name: str, reason: str = "") -> tuple[str, str]:
    """The advice as two texts: what it means, without a full stop, and what to do, "" for nothing."""
    clean = _clean(reason)
    for rule in _RULES:
        if code_name in rule.codes and (rule.reason is None or re.search(rule.reason, reason, re.IGNORECASE)):
            meaning, _, cure = rule.sentence.partition(": ")
            values = {"reason": clean or code_name, "address": _address(reason), "setting": _setting(reason)}
            return _fill(meaning.rstrip("."), **values), _fill(f"{cure[:1].upper()}{cure[1:]}", **values)
    return (f"{clean} ({code_name})" if clean else f"Kafka reported the error {code_name}"), ""


def way_out(code_name: str) -> str:
    """The cure, as the end of a sentence."""
    return advice(code_name).partition(": ")[2].rstrip(".")


def sentences() -> list[str]:
    """All that advice() may say, without what it fills in."""
    return [rule.sentence for rule in _RULES]


def is_permanent(code_name: str) -> bool:
    """Tell whether the error concerns the user or the topic, so that every further record fails like it."""
    return code_name in _PERMANENT


def _clean(reason: str) -> str:
    """Return the reason as one line, without the broker's address and librdkafka's state remark."""
    said = _NONE_DOWN.sub("each connection was lost", _STATE_SUFFIX.sub("", _ADDRESS.sub("", reason)))
    return " ".join(said.split()).rstrip(".")


def _address(reason: str) -> str:
    found = _ADDRESS.match(reason)
    return f"The broker {found['address']}" if found else "The broker"


def _setting(reason: str) -> str:
    found = _SETTING.search(reason)
    return found["setting"] if found else "that name"


def _fill(sentence: str, **values: str) -> str:
    """Put values into a sentence; an address inside the sentence begins with a small letter."""
    if not sentence.startswith("{address}"):
        values["address"] = values["address"].replace("The broker", "the broker", 1)
    return sentence.format(**values)
