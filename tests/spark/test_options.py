"""One flat mapping for both doors, checked as a whole."""

from __future__ import annotations

import pickle
import re
import traceback
from typing import Any

import pytest

from safeproducer import ConfigurationError
from safeproducer.settings.own_settings import OWN_SETTINGS
from safeproducer.spark.options import Options, weak_settings
from safeproducer.spark.sink import SafeProducerSink

BROKERS = {"kafka.bootstrap.servers": "localhost:1"}
LOGIN = {
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="marker";'
    ),
}


def parse(**options: Any) -> Options:
    """With underscores for dots, and brokers."""
    return Options.parse({**BROKERS, **{name.replace("_", "."): value for name, value in options.items()}})


def refusal(given: dict[str, Any]) -> str:
    with pytest.raises(ConfigurationError) as caught:
        Options.parse(given)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_defaults_are_javas_where_rows_would_differ() -> None:
    """Partitions, and the size of the largest row; a row fails when its task does."""
    assert parse() == Options(
        topic=None,
        config={
            "partitioner": "murmur2_random",
            "message.max.bytes": "1048576",
            "delivery.timeout.ms": "60000",
            "linger.ms": "20",
            "bootstrap.servers": "localhost:1",
        },
        secrets={},
        deadline=60.0,
        max_writers=None,
        idle_ms=600_000,
        notes=(),
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [("acks", "1"), ("acks", "0"), ("enable_idempotence", "false"), ("max_in_flight_requests_per_connection", "6")],
)
def test_settings_with_which_a_retry_may_write_twice_are_told(name: str, value: str) -> None:
    """In one sentence, and nothing is refused that Spark's own sink takes."""
    options = parse(**{f"kafka_{name}": value})
    (note,) = (note for note in options.notes if "maybe_twice=None" in note)
    assert note.startswith(f"kafka.{name.replace('_', '.')}={value}: ")
    assert weak_settings(options.config)
    strong = parse(kafka_acks="-1", kafka_enable_idempotence="true", kafka_max_in_flight_requests_per_connection="5")
    assert (strong.notes, weak_settings(strong.config)) == ((), [])


def test_none_is_as_if_it_were_not_given() -> None:
    """Spark passes options on so."""
    assert parse(topic=None, kafka_linger_ms=None, safeproducer_spark_bad_rows=None) == parse()


def test_the_options_of_the_sink() -> None:
    """Names in any case, values as Spark or Python give them."""
    options = Options.parse(
        {
            "KAFKA.bootstrap.SERVERS": "localhost:1",
            "Topic": "Orders",
            "safeproducer.spark.deadline": 2.5,
            "safeproducer.spark.max.writers": "4",
            "safeproducer.spark.idle.ms": 0,
            "kafka.enable.metrics.push": False,
            "safeproducer.ordering": "key",
            "checkpointLocation": "s3a://x/y",
            "queryName": "q",
        }
    )
    assert (options.topic, options.deadline, options.max_writers, options.idle_ms) == ("Orders", 2.5, 4, 0)
    assert options.config["delivery.timeout.ms"] == "2500"
    assert options.config["enable.metrics.push"] == "false"
    assert options.config["safeproducer.ordering"] == "key"
    assert "checkpointlocation" not in options.config


def test_settings_of_this_library_pass() -> None:
    """Each, and a directory is looked at only where it is used: on the executor."""
    assert len(OWN_SETTINGS) == 14
    options = parse(safeproducer_producer_ids_ledger="/no/such/folder/on/this/host", safeproducer_window="20")
    assert options.config["safeproducer.producer.ids.ledger"] == "/no/such/folder/on/this/host"
    assert "safeproducer.mode" in refusal({**BROKERS, "safeproducer.mode": "fast"})


def test_options_can_be_pickled_and_show_no_secret() -> None:
    """They go to each task; a traceback may show locals."""
    options = Options.parse({**BROKERS, **LOGIN})
    copy = pickle.loads(pickle.dumps(options))  # noqa: S301 - our own bytes
    assert copy == options
    assert copy.resolve_secrets() == {"sasl.password": "marker"}
    for one in (options, copy):
        assert "marker" not in repr(one) + repr(one.secrets) + repr(list(one.secrets.values())) + repr(one.notes)
        assert "marker" not in repr(one.config)


def shown_with_locals(error: BaseException) -> str:
    """A traceback as Spark prints it on demand, but for the frames of the tests, which know the secret."""
    frames = traceback.TracebackException.from_exception(error, capture_locals=True)
    shown = [line for line in frames.format() if f'"{__file__}"' not in line]
    assert any("options.py" in line for line in shown)
    return "".join(shown)


def test_tracebacks_with_locals_show_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a refusal on the driver, whatever it is about, and of one on an executor."""
    broken = {**LOGIN, "kafka.sasl.jaas.config": LOGIN["kafka.sasl.jaas.config"].rstrip(";")}
    for given in ({**BROKERS, **broken}, {**BROKERS, **LOGIN, "kafka.acks": "2"}, {**BROKERS, **LOGIN, "x": "y"}):
        for make in (Options.parse, SafeProducerSink):
            with pytest.raises(ConfigurationError) as caught:
                make(given)
            assert "marker" not in shown_with_locals(caught.value)
    options = Options.parse({**BROKERS, **LOGIN, "kafka.sasl.jaas.config": "env:KAFKA_JAAS"})
    monkeypatch.setenv("KAFKA_JAAS", broken["kafka.sasl.jaas.config"])
    with pytest.raises(ConfigurationError) as caught:
        options.resolve_secrets()
    assert "marker" not in shown_with_locals(caught.value)


def test_a_longer_time_out_makes_a_longer_deadline() -> None:
    """Or a row would have no report when its task ends."""
    assert parse(kafka_delivery_timeout_ms="120000").deadline == 120
    shorter = parse(kafka_delivery_timeout_ms="5000")
    assert (shorter.deadline, shorter.config["delivery.timeout.ms"]) == (60, "5000")
    both = parse(kafka_delivery_timeout_ms="5000", safeproducer_spark_deadline="5")
    assert (both.deadline, both.config["delivery.timeout.ms"]) == (5, "5000")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"path": "orders"}, "there is no such option. Give the topic as option 'topic', and call save"),
        ({"acks": "1"}, "Did you mean kafka.acks?"),
        ({"bootstrap.servers": "x"}, "Did you mean kafka.bootstrap.servers?"),
        ({"topics": "x"}, "Did you mean topic?"),
        ({"safeproducer.spark.deadlines": "x"}, "Did you mean safeproducer.spark.deadline?"),
        ({"safeproducer.orderin": "key"}, "Did you mean safeproducer.ordering?"),
        ({"safeproducer.spark.guarantee": "exactly-once"}, "it must be at_least_once or exactly_once. Correct it"),
        ({"kafka.linger": "5"}, "Java's producer has no such setting. Did you mean kafka.linger.ms?"),
        ({"kafka.session.timeout.ms": "5"}, "Java's producer has no such setting. It is a consumer's setting"),
        ({"kafka.group.id": "g"}, "Java's producer has no such setting. It is a consumer's setting"),
        ({"kafka.queue.buffering.max.ms": "5"}, "Java's producer has no such setting. Java's name is kafka.linger.ms"),
        ({"kafka.message.max.bytes": "5"}, "Java's name is kafka.max.request.size"),
        ({"kafka.queue.buffering.max.kbytes": "5"}, "Java's name is kafka.buffer.memory"),
        ({"kafka.partitioner": "murmur2"}, "Java's name is kafka.partitioner.class"),
        (
            {"kafka.sasl.password": "marker"},
            r"'kafka.sasl.password' = \*\*\*: Java's .* name is kafka.sasl.jaas.config",
        ),
        ({"kafka.sasl.mechanisms": "PLAIN"}, "Java's name is kafka.sasl.mechanism"),
        ({"kafka.ssl.ca.location": "x"}, "Java's name is kafka.ssl.truststore.location"),
        ({"kafka.ssl.key.pem": "marker"}, r"= \*\*\*: Java's .* name is kafka.ssl.keystore.key"),
        ({"kafka.debug": "all"}, "without a counterpart in Java: remove it"),
        ({"kafka.ssl.keystore.keys": "marker"}, r"'kafka.ssl.keystore.keys' = \*\*\*: .*Did you mean kafka.ssl.keysto"),
        ({"kafka.sasl.jas.config": "marker"}, r"= \*\*\*: "),
        ({"topic": " "}, "it is empty. Name a topic"),
        ({"topic": "a\ud800"}, "it holds a character that is no UTF-8"),
        ({"kafka.client.\udfff": "a"}, "it holds a character that is no UTF-8"),
        ({"topic": b"a"}, "it must be text, a number or a truth value, not bytes"),
        ({"topic": "a", "TOPIC": "b"}, "it is given twice"),
        ({"kafka.bootstrap.servers": ""}, "'kafka.bootstrap.servers' = '': it is not set. Give the brokers"),
        *(
            ({"safeproducer.spark.deadline": text}, f"= '{text}': it must be a number of seconds above 0")
            for text in ("0", "-1", "soon", "nan", "inf", "1e10")
        ),
        *(
            ({"safeproducer.spark.max.writers": text}, f"= '{text}': it must be a whole number from 1 to")
            for text in ("0", "1.5", "all")
        ),
        ({"safeproducer.spark.idle.ms": "-1"}, "it must be a whole number from 0 to"),
    ],
)
def test_a_wrong_option_is_refused_with_the_way_out(given: dict[str, Any], said: str) -> None:
    """Spark's own sink ignores unknown ones. Nothing that may be a secret is quoted."""
    message = refusal({**BROKERS, **given})
    assert re.search(said, message), message
    assert "marker" not in message


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"kafka.max.block.ms": "5", "safeproducer.max.block.ms": "6"},
            "kafka.max.block.ms says 5, and means the same",
        ),
        ({"kafka.delivery.timeout.ms": "9000", "safeproducer.spark.deadline": "8"}, "longer than its task waits"),
        ({"kafka.linger.ms": "5000", "kafka.delivery.timeout.ms": "5000"}, "no row would be sent before it fails"),
        ({"kafka.linger.ms": "1000", "safeproducer.spark.deadline": "1"}, "no row would be sent before it fails"),
        *(
            ({"kafka.enable.idempotence": "true", f"kafka.{name}": value}, f"'kafka.{name}' = '{value}': kafka.enable.")
            for name, value in (("acks", "1"), ("retries", "0"), ("max.in.flight.requests.per.connection", "6"))
        ),
        ({"kafka.acks": "1", "safeproducer.ordering": "key"}, "enable.idempotence"),
        ({"kafka.enable.idempotence": "false", "safeproducer.ordering": "none"}, "enable.idempotence"),
        ({"safeproducer.lanes": "3"}, "several lanes keep no order within a partition"),
    ],
)
def test_options_that_contradict_each_other_are_refused(given: dict[str, str], said: str) -> None:
    assert said in refusal({**BROKERS, **given})


def test_an_option_that_is_given_twice_alike_passes() -> None:
    """Idempotence rules nothing out beside what it needs."""
    parse(kafka_max_block_ms="5", safeproducer_max_block_ms="5")
    given = {"kafka.acks": "-1", "kafka.retries": "3", "kafka.max.in.flight.requests.per.connection": "5"}
    options = Options.parse({**BROKERS, **given, "kafka.enable.idempotence": True, "safeproducer.ordering": "key"})
    assert options.config["enable.idempotence"] == "true"


def test_acknowledgements_that_say_nothing_are_told() -> None:
    """With acks=0 a report is no proof."""
    told, _ = parse(kafka_acks="0").notes
    assert told.startswith("kafka.acks=0: ")


ONCE = {"guarantee": "exactly_once", "sink.id": "orders", "slots": "4"}


def once(**more: Any) -> dict[str, Any]:
    """Options of an exactly-once sink, under their short names; None leaves one out."""
    own = {f"safeproducer.spark.{name}": text for name, text in ONCE.items()}
    return {**BROKERS, **own, **more}


def test_exactly_once_has_names_for_slots() -> None:
    """At the brokers. Groups of two numbers of slots do not mix, and no sink has the claim of another one."""
    found = Options.parse(once()).exactly_once
    assert found is not None
    assert (found.group, found.claim, found.marker_topic) == ("orders-4", "orders-slots", "safeproducer-markers")
    assert found.settings(3) == {
        "transactional.id": "orders-3",
        "transaction.timeout.ms": "60000",
        "enable.sparse.connections": "false",  # half of the inits would take 500 ms
    }
    assert found.settings("slots")["transactional.id"] == found.claim
    longer = Options.parse(once(**{"safeproducer.spark.deadline": "90", "safeproducer.spark.adopt.from": 7}))
    assert longer.exactly_once is not None
    assert (longer.exactly_once.transaction_timeout, longer.exactly_once.adopt_from) == (90, 7)
    assert Options.parse(BROKERS).exactly_once is None
    assert Options.parse({**BROKERS, "safeproducer.spark.guarantee": "AT_LEAST_ONCE"}).exactly_once is None


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("sink.id", None, "it is not set, and an exactly-once sink needs it. Give a name that no other query has"),
        ("sink.id", " ", "it is not set, and an exactly-once sink needs it"),
        ("sink.id", "a/b", "it must have 1 to 200 letters"),
        ("slots", None, "it is not set, and an exactly-once sink needs it. Give how many tasks write"),
        *(("slots", text, "it must be a whole number from 1 to 1000") for text in ("0", "1001", "many", "1.5")),
        ("marker.topic", "a b", "it must have 1 to 200 letters"),
        (
            "transaction.timeout",
            "59",
            "a whole number from 60 to 2147483. Correct it: safeproducer.spark.deadline counts, too",
        ),
        ("transaction.timeout", "long", "it must be a whole number from 60"),
        ("adopt.from", "-1", "it must be a whole number from 0"),
        ("max.writers", "2", "safeproducer.spark.slots says how many tasks write. Leave one of the two out"),
        ("bad.rows", "skip", "a row that brokers refuse ends its transaction. Leave one of the two out"),
    ],
)
def test_a_wrong_option_of_exactly_once_is_refused(name: str, value: str | None, said: str) -> None:
    """By one sentence, with its name, its value and the way out."""
    message = refusal(once(**{f"safeproducer.spark.{name}": value}))
    assert f"'safeproducer.spark.{name}' = '{value or ''}': " in message
    assert said in message


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("kafka.enable.idempotence", "false", "needs idempotence, which kafka.enable.idempotence switches off"),
        ("kafka.acks", "1", "needs idempotence, which kafka.acks switches off"),
        ("safeproducer.ordering", "key", "a transaction has one producer ID, and its lane keeps the order"),
        ("safeproducer.ordering", "none", "a transaction has one producer ID, and its lane keeps the order"),
        ("safeproducer.mode", "held", "Set safeproducer.mode to 'auto' or 'passthrough', or leave one of the two out"),
        (
            "safeproducer.spark.guarantee",
            "at_least_once",
            "it counts with safeproducer.spark.guarantee=exactly_once alo",
        ),
        ("safeproducer.spark.guarantee", None, "it counts with safeproducer.spark.guarantee=exactly_once alone"),
    ],
)
def test_what_contradicts_exactly_once_is_refused(name: str, value: str | None, said: str) -> None:
    """On the driver; a row could be twice, or no transaction begin."""
    assert said in refusal(once(**{name: value}))


def test_bad_rows_may_be_said_to_fail() -> None:
    assert Options.parse(once(**{"safeproducer.spark.bad.rows": "fail"})).exactly_once is not None
