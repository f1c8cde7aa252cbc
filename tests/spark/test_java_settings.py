"""Settings of Java's producer: what each becomes, and that librdkafka takes it."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from safeproducer import ConfigurationError
from safeproducer.kafka.properties import PRODUCER_PROPERTIES
from safeproducer.settings.own_settings import OWN_PREFIX, OWN_SETTINGS
from safeproducer.spark.java_settings import REFUSED, TRANSLATED, WITHOUT_EFFECT
from safeproducer.spark.options import Options

BROKERS = {"kafka.bootstrap.servers": "localhost:1"}
BARE = Options.parse(BROKERS).config

UNCHANGED = {
    "acks": ("all", "1", "0"),
    "batch.size": ("2147483647",),
    "client.dns.lookup": ("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
    "client.id": ("orders",),
    "compression.type": ("none", "gzip", "snappy", "lz4", "zstd"),
    "connections.max.idle.ms": ("540000",),
    "delivery.timeout.ms": ("1", "2147483647"),
    "enable.idempotence": ("false",),
    "enable.metrics.push": ("false",),
    "linger.ms": ("0", "50000"),
    "max.in.flight.requests.per.connection": ("1", "1000000"),
    "retries": ("0", "2147483647"),
    "retry.backoff.max.ms": ("300000",),
    "socket.connection.setup.timeout.ms": ("1000", "2147483647"),
    "metadata.recovery.strategy": ("none", "rebootstrap"),
}
CASES = [
    *((name, value, {name: value}) for name, values in UNCHANGED.items() for value in values),
    ("acks", "-1", {"acks": "all"}),
    ("batch.size", "0", {"batch.size": "1"}),
    ("batch.size", " 131072 ", {"batch.size": "131072"}),
    ("bootstrap.servers", " a:9092,b:9093 ", {"bootstrap.servers": "a:9092,b:9093"}),
    ("buffer.memory", "1", {"queue.buffering.max.kbytes": "1", "queue.buffering.max.messages": "0"}),
    ("buffer.memory", "1025", {"queue.buffering.max.kbytes": "2", "queue.buffering.max.messages": "0"}),
    ("buffer.memory", "33554432", {"queue.buffering.max.kbytes": "32768", "queue.buffering.max.messages": "0"}),
    (
        "buffer.memory",
        str(2_147_483_647 * 1024),
        {"queue.buffering.max.kbytes": "2147483647", "queue.buffering.max.messages": "0"},
    ),
    ("compression.gzip.level", "9", {}),
    ("compression.lz4.level", "12", {}),
    ("compression.zstd.level", "0", {}),
    ("connections.max.idle.ms", "-1", {"connections.max.idle.ms": "0"}),
    ("enable.idempotence", "TRUE", {"enable.idempotence": "true"}),
    ("max.block.ms", "0", {"safeproducer.max.block.ms": "0"}),
    ("max.block.ms", "9223372036854775807", {"safeproducer.max.block.ms": "9223372036854775807"}),
    ("max.request.size", "1000", {"message.max.bytes": "1000"}),
    ("max.request.size", "1000000000", {"message.max.bytes": "1000000000"}),
    ("metadata.max.age.ms", "1", {"topic.metadata.refresh.interval.ms": "1"}),
    ("metadata.max.age.ms", "3600000", {"topic.metadata.refresh.interval.ms": "3600000"}),
    ("partitioner.class", "", {}),
    (
        "partitioner.class",
        "org.apache.kafka.clients.producer.internals.DefaultPartitioner",
        {"partitioner": "murmur2_random"},
    ),
    ("partitioner.class", "org.apache.kafka.clients.producer.UniformStickyPartitioner", {"partitioner": "random"}),
    ("partitioner.class", "consistent_random", {"partitioner": "consistent_random"}),
    ("partitioner.ignore.keys", "false", {}),
    ("partitioner.ignore.keys", "true", {"partitioner": "random"}),
    ("reconnect.backoff.max.ms", "3600000", {"reconnect.backoff.max.ms": "3600000", "reconnect.backoff.ms": "50"}),
    ("reconnect.backoff.max.ms", "20", {"reconnect.backoff.max.ms": "20", "reconnect.backoff.ms": "20"}),
    ("reconnect.backoff.ms", "0", {"reconnect.backoff.max.ms": "0", "reconnect.backoff.ms": "0"}),
    ("reconnect.backoff.ms", "3600000", {"reconnect.backoff.max.ms": "3600000", "reconnect.backoff.ms": "3600000"}),
    ("request.timeout.ms", "10", {"request.timeout.ms": "10", "socket.timeout.ms": "10"}),
    ("request.timeout.ms", "300000", {"request.timeout.ms": "300000", "socket.timeout.ms": "300000"}),
    ("retry.backoff.ms", "0", {"retry.backoff.ms": "1"}),
    ("security.protocol", "PLAINTEXT", {"security.protocol": "plaintext"}),
    ("security.protocol", "SSL", {"security.protocol": "ssl"}),
    ("ssl.enabled.protocols", "TLSv1.2, TLSv1.3", {}),
    ("ssl.endpoint.identification.algorithm", "", {"ssl.endpoint.identification.algorithm": "none"}),
    ("ssl.endpoint.identification.algorithm", "HTTPS", {"ssl.endpoint.identification.algorithm": "https"}),
]
"""Java's name, a value, what becomes of it. Also at the ends of what is taken."""

TOGETHER = {name for name, translation in TRANSLATED.items() if translation.convert is None}
"""In test_security.py."""


@pytest.mark.parametrize(("name", "value", "becomes"), CASES)
def test_each_setting_becomes_what_librdkafka_takes(name: str, value: str, becomes: dict[str, str]) -> None:
    """The native producer is made with it, and the table names every setting that comes out."""
    config = Options.parse({**BROKERS, f"kafka.{name}": value}).config
    assert {key: config[key] for key in becomes} == becomes
    untouched = {key: text for key, text in config.items() if key not in becomes and key != "delivery.timeout.ms"}
    assert untouched.items() <= BARE.items()
    assert set(becomes) <= set(TRANSLATED[name].becomes)
    Producer({key: text for key, text in config.items() if not key.startswith(OWN_PREFIX)}, log_level=0)


def test_every_translated_setting_is_tried() -> None:
    """Here, or in test_security.py together with others."""
    assert {name for name, _, _ in CASES} == TRANSLATED.keys() - TOGETHER
    assert {name.partition(".")[0] for name in TOGETHER} == {"sasl", "ssl"}


def test_the_table_names_settings_that_exist() -> None:
    named = {name for translation in TRANSLATED.values() for name in translation.becomes}
    assert named <= {*PRODUCER_PROPERTIES, *OWN_SETTINGS, "client.dns.lookup"}


@pytest.mark.parametrize(
    ("codec", "name", "value", "expected"),
    [
        ("gzip", "compression.gzip.level", "-1", "-1"),
        ("gzip", "compression.gzip.level", "9", "9"),
        ("lz4", "compression.lz4.level", "1", "1"),
        ("ZSTD", "compression.zstd.level", "12", "12"),
        ("zstd", "compression.gzip.level", "9", None),
        ("none", "compression.lz4.level", "9", None),
    ],
)
def test_a_level_counts_with_its_own_codec(codec: str, name: str, value: str, expected: str | None) -> None:
    """As in Java. librdkafka has one level for all."""
    config = Options.parse({**BROKERS, "kafka.compression.type": codec, f"kafka.{name}": value}).config
    assert config.get("compression.level") == expected
    Producer(config, log_level=0)


@pytest.mark.parametrize(("first", "longest", "expected"), [("200", "1000", "200"), ("2000", "1000", "1000")])
def test_the_first_pause_is_at_most_the_longest(first: str, longest: str, expected: str) -> None:
    """librdkafka would refuse the second pair, and Java takes it."""
    given = {"kafka.reconnect.backoff.ms": first, "kafka.reconnect.backoff.max.ms": longest}
    config = Options.parse({**BROKERS, **given}).config
    assert (config["reconnect.backoff.ms"], config["reconnect.backoff.max.ms"]) == (expected, longest)
    Producer(config, log_level=0)


def test_keys_are_not_ignored_beside_a_named_partitioner() -> None:
    for names in (("class", "ignore.keys"), ("ignore.keys", "class")):
        values = {"class": "murmur2", "ignore.keys": "true"}
        given = {f"kafka.partitioner.{name}": values[name] for name in names}
        assert Options.parse({**BROKERS, **given}).config["partitioner"] == "murmur2"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("acks", "2", "must be one of all, 1, 0, -1"),
        ("batch.size", "-1", "whole number from 0 to 2147483647"),
        ("batch.size", "1e6", "whole number"),
        ("buffer.memory", "0", "whole number from 1"),
        ("client.dns.lookup", "default", "must be one of use_all_dns_ips"),
        ("client.id", " ", "it is empty"),
        ("compression.gzip.level", "10", "from -1 to 9"),
        ("compression.lz4.level", "17", "from 1 to 12.*level of lz4 that librdkafka has"),
        ("compression.type", "lzma", "must be one of none, gzip"),
        ("compression.zstd.level", "-1", "from 0 to 12"),
        ("connections.max.idle.ms", "0", "closed at once.*-1"),
        ("delivery.timeout.ms", "0", "from 1"),
        ("enable.idempotence", "yes", "must be one of true, false"),
        ("linger.ms", "900001", "from 0 to 900000"),
        ("linger.ms", "60000", "no row would be sent before it fails, after 60000 ms"),
        ("max.block.ms", "-1", "from 0"),
        ("max.in.flight.requests.per.connection", "0", "from 1"),
        ("max.request.size", "999", "from 1000 to 1000000000"),
        ("metadata.max.age.ms", "0", "from 1 to 3600000"),
        ("partitioner.class", "com.example.P", "a partitioner in Java.*column 'partition'.*murmur2_random"),
        ("partitioner.class", "org.apache.kafka.clients.producer.RoundRobinPartitioner", "cannot run in Python"),
        ("request.timeout.ms", "300001", "from 10 to 300000"),
        ("retries", "-1", "from 0"),
        ("security.protocol", "TLS", "must be one of plaintext, ssl, sasl_plaintext, sasl_ssl"),
        ("socket.connection.setup.timeout.ms", "999", "from 1000"),
        ("ssl.enabled.protocols", "TLSv1.3", "Restrict ssl.enabled.protocols on the brokers"),
        ("ssl.endpoint.identification.algorithm", "ldap", "must be one of https, none"),
    ],
)
def test_a_value_that_cannot_keep_its_meaning_is_refused(name: str, value: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as caught:
        Options.parse({**BROKERS, f"kafka.{name}": value})
    assert str(caught.value).startswith(f"setting 'kafka.{name}' = {value!r}: ")


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_setting_says_why_and_the_way_out(name: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Options.parse({**BROKERS, f"kafka.{name}": "x"})
    shown = "***" if "***" in str(caught.value) else "'x'"
    assert "password" not in name or shown == "***"
    assert str(caught.value) == f"setting 'kafka.{name}' = {shown}: {REFUSED[name].why}. {REFUSED[name].way_out}"
    assert Options.parse({**BROKERS, f"kafka.{name}": ""}).config == BARE


def test_settings_without_effect_are_told_in_one_sentence() -> None:
    options = Options.parse({**BROKERS, **{f"kafka.{name}": "x" for name in WITHOUT_EFFECT}})
    assert options.config == BARE
    told = next(note for note in options.notes if note.startswith("without effect here: "))
    for name, why in WITHOUT_EFFECT.items():
        assert f"kafka.{name} ({why})" in told
