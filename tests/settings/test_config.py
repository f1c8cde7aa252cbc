"""Configuration: confluent_kafka's forms, our own settings, early refusal, no secret in any text."""

import logging
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.cimpl import KafkaError, KafkaException, Producer

from safeproducer import ConfigurationError, SafeProducer, SafeSerializingProducer
from safeproducer.kafka.properties import ALIASES, PRODUCER_PROPERTIES, REFUSED, is_sensitive
from safeproducer.settings.config import parse
from tests.contract.support import poll_until
from tests.inside import settings_of

MARKER = "marker-Xy7-secret"
BROKER = {"bootstrap.servers": "b:9092,a:9092"}


@pytest.mark.parametrize("name", [*PRODUCER_PROPERTIES, *ALIASES, *ALIASES.values(), *REFUSED])
def test_every_listed_property_exists_in_librdkafka(name: str) -> None:
    """The table of settings names nothing that librdkafka does not know."""
    refusal = ""
    try:
        Producer({name: None, "log_level": 0}).close()
    except (KafkaException, TypeError) as error:
        refusal = str(error)
    assert "No such configuration property" not in refusal


@pytest.mark.parametrize("name", ["error_cb", "throttle_cb", "on_delivery"])
def test_callbacks_are_kept_here(name: str) -> None:
    """Callbacks never reach the lane as the application gave them."""
    settings = parse(({**BROKER, name: print},), {})
    assert name not in settings.lane
    assert getattr(settings, name) is print


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        (({"client.id": "x"},), {}),
        ((), {"client.id": "x"}),
        (({"client.id": "y"},), {"client.id": "x"}),
        (({"default.topic.config": {"client.id": "x"}},), {}),
    ],
)
def test_stock_forms(args: tuple[dict[str, object], ...], kwargs: dict[str, object]) -> None:
    """dict, keywords, both with keywords winning, and default.topic.config give the same settings."""
    assert parse(args, kwargs).client_id == "x"


def test_the_callers_dict_is_not_changed() -> None:
    """The configuration belongs to the application."""
    config = {**BROKER, "on_delivery": print, "default.topic.config": {"acks": "all"}}
    before = {**config, "default.topic.config": {"acks": "all"}}
    SafeProducer(config).close()
    assert config == before


@pytest.mark.parametrize(
    ("setting", "way_out"),
    [
        ({"lingr.ms": 5}, "'linger.ms'"),
        ({"bootstrap_servers": "a:1"}, "'bootstrap.servers'"),
        ({"no.such.thing.at.all": 1}, "safeproducer."),
        ({"safeproducer.producer.id.per.hour": 1}, "safeproducer.producer.ids.per.hour"),
        ({"safeproducer.producer.ids.per.hour": 0}, "100"),
        ({"safeproducer.producer.ids.per.hour": "many"}, "100"),
        ({"acks": "some"}, "CONFIGURATION.md"),
        ({"enable.gapless.guarantee": True}, "Remove it"),
        ({"on_delivery": 5}, "function"),
        ({"delivery.report.only.error": "perhaps"}, "True or False"),
    ],
)
def test_a_refused_setting_is_named_with_its_value_and_the_way_out(setting: dict[str, object], way_out: str) -> None:
    """The error names the setting, shows the value and says what to do, and confluent_kafka's handlers catch it."""
    ((name, value),) = setting.items()
    with pytest.raises(ConfigurationError) as caught:
        SafeProducer({"log_level": 0, **setting})
    assert isinstance(caught.value, KafkaException)
    assert caught.value.args[0].code() == KafkaError._INVALID_ARG
    assert caught.value.setting == name
    assert repr(value) in str(caught.value)
    assert way_out in str(caught.value)


@pytest.mark.parametrize("setting", [{"client.id\ud800": "x"}, {"client.id": "x\ud800"}])
def test_text_that_is_no_utf8_is_refused(setting: dict[str, object]) -> None:
    """The C client crashes on such a name, and fails without a reason on such a value."""
    with pytest.raises(ConfigurationError, match="UTF-8") as caught:
        SafeProducer({"log_level": 0, **setting})
    assert str(caught.value).isascii()


def test_two_settings_that_contradict_each_other_are_both_named() -> None:
    """A contradiction names the setting the user wrote and the other one."""
    with pytest.raises(ConfigurationError, match=r"'acks' = 1.*enable\.idempotence.*Change one") as caught:
        SafeProducer({"acks": 1, "enable.idempotence": True, "log_level": 0})
    assert caught.value.setting == "acks"


def test_a_linger_as_long_as_the_timeout_is_refused() -> None:
    """As by confluent_kafka, in each mode; one of the two that is not set gives way there, and here."""
    settings = {"linger.ms": 50, "message.timeout.ms": 50}
    with pytest.raises(KafkaException, match=r"must be greater than `linger\.ms`"):
        Producer({"log_level": 0, **settings})
    for mode in ("auto", "held", "passthrough"):
        with pytest.raises(ConfigurationError, match=r"must be greater than `linger\.ms`.*Lower linger\.ms") as caught:
            SafeProducer({"log_level": 0, "safeproducer.mode": mode, **settings})
        assert caught.value.setting == "linger.ms"
    for alone in ({"message.timeout.ms": 3}, {"linger.ms": 400_000}):
        Producer({"log_level": 0, **alone})
        SafeProducer({"log_level": 0, **alone}).close(0)


@pytest.mark.parametrize("name", ["transactional.id", "default.topic.config"])
def test_a_transaction_is_not_held_back(name: str) -> None:
    """It would be the direct lane's in silence. The other modes take it."""
    given = {"transactional.id": "t"} if name == "transactional.id" else {name: {"transactional.id": "t"}}
    config = {**BROKER, **given}
    with pytest.raises(ConfigurationError, match=r"'held'.*transactional\.id.*'auto' or 'passthrough'") as caught:
        SafeProducer({**config, "safeproducer.mode": "held"})
    assert caught.value.setting == "safeproducer.mode"
    for mode in ("auto", "passthrough"):
        assert parse((config,), {"safeproducer.mode": mode}).delivery.mode == mode
    parse(({**BROKER, "transactional.id": "", "safeproducer.mode": "held"},), {})


@pytest.mark.parametrize("kind", [TypeError, ConfigurationError])
@pytest.mark.parametrize("args", [(), (5,), ({}, {}), ([("a", "b")],)])
def test_wrong_constructor_arguments(args: tuple[object, ...], kind: type[Exception]) -> None:
    """No dict, no single dict: TypeError as confluent_kafka, and ours as well."""
    with pytest.raises(kind, match="SafeProducer"):
        SafeProducer(*args)


@pytest.mark.parametrize(("name", "kind"), [("error_cb", TypeError), ("throttle_cb", ValueError)])
def test_a_callback_that_is_not_callable(name: str, kind: type[Exception]) -> None:
    """confluent_kafka's exception type for each callback."""
    with pytest.raises(kind) as caught:
        SafeProducer({name: 5})
    assert isinstance(caught.value, ConfigurationError)


@pytest.mark.parametrize(
    ("config", "idempotent"),
    [
        ({}, True),
        ({"acks": "all"}, True),
        ({"acks": -1}, True),
        ({"acks": 1}, False),
        ({"request.required.acks": "0"}, False),
        ({"retries": 0}, False),
        ({"max.in.flight": 6}, False),
        ({"max.in.flight": 5}, True),
        ({"queuing.strategy": "lifo"}, False),
        ({"enable.idempotence": False}, False),
        ({"acks": 1, "default.topic.config": {"acks": "all"}}, True),
        ({"transactional.id": "t"}, True),
    ],
)
def test_idempotence_is_the_default_that_gives_way(config: dict[str, object], idempotent: bool) -> None:
    """Java's rule (KIP-679): on by default, off where the user's own settings rule it out."""
    producer = SafeProducer({"log_level": 0, **config})
    assert producer.snapshot().idempotent is idempotent
    producer.close()


def test_a_backpressure_threshold_gives_way_to_the_default(caplog: pytest.LogCaptureFixture) -> None:
    """librdkafka takes 1 only with idempotence. Our default must refuse no configuration that confluent_kafka takes."""
    name = "queue.buffering.backpressure.threshold"
    for value in (100, "2"):
        caplog.clear()
        with SafeProducer({"log_level": 0, name: value}) as producer:
            assert producer.snapshot().idempotent
        assert name in caplog.text
        assert str(value) in caplog.text
    caplog.clear()
    for settings in ("enable.idempotence", False), ("acks", 1):
        SafeProducer({"log_level": 0, name: 2, settings[0]: settings[1]}).close()
    assert not caplog.text
    for settings in (name, 0), ("enable.idempotence", True), ("transactional.id", "t"):
        with pytest.raises(ConfigurationError, match=name):
            SafeProducer({"log_level": 0, name: 2, settings[0]: settings[1]})


MAY_BE_SECRET = (
    "sasl.password sasl.pasword sasl_password ssl.key.pem my.api.token sasl.jaas.config "
    "schema.registry.basic.auth.user.info cluster.api.key ssl.key.password sasl.oauthbearer.client.secret "
    "sasl.oauthbearer.config basic.auth.credentials sasl.pwd"
)


@pytest.mark.parametrize("name", MAY_BE_SECRET.split())
def test_values_that_may_be_secret_are_never_shown(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """A marker value given to a secret, or to a misspelt one, appears in no text this library makes."""
    assert is_sensitive(name)
    caplog.set_level(logging.DEBUG)
    texts = []
    try:
        producer = SafeProducer({name: MARKER, "log_level": 0, "bootstrap.servers": "127.0.0.1:1"})
        texts += [repr(producer), repr(producer.snapshot()), producer.explain(), repr(settings_of(producer))]
        producer.close(0)
    except ConfigurationError as error:
        texts += [str(error), repr(error), repr(error.args), error.value]
    assert texts
    assert MARKER not in "".join(texts) + caplog.text


@pytest.mark.parametrize("make", [SafeProducer, lambda config: SafeProducer(**config), SafeSerializingProducer])
@pytest.mark.parametrize(
    "wrong",
    [
        {"security.protocol": "SASL_SSL", "ssl.ca.location": "/no/ca.pem"},
        {"ssl.key.pem": MARKER, "security.protocol": "SSL"},
        {"bogus": 1},
        {"linger.ms": "x"},
        {"safeproducer.mode": "wrong"},
        {"safeproducer.mode": "held", "linger.ms": "x"},
        {"default.topic.config": 5},
        {"on_delivery": 5},
    ],
    ids=str,
)
def test_the_frames_of_a_refusal_know_no_secret(make: Callable[[Any], Any], wrong: dict[str, Any]) -> None:
    """Tools print the locals of a traceback's frames, and look into dictionaries themselves."""
    config = {**BROKER, "log_level": 0, "sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": MARKER}
    with pytest.raises(ConfigurationError) as caught:
        make({**config, **wrong})
    seen: list[str] = []
    error: BaseException | None = caught.value
    while error is not None:
        for frame, _ in traceback.walk_tb(error.__traceback__):
            if frame.f_code.co_filename != __file__ and "serializing_producer.py" not in frame.f_code.co_filename:
                seen.append(repr(frame.f_locals))
        error = error.__context__
    assert seen
    assert MARKER not in "".join(seen)


def test_a_secret_that_librdkafka_quotes_in_part_is_never_shown(caplog: pytest.LogCaptureFixture) -> None:
    """It shows an OAUTHBEARER configuration from where it cannot read it."""
    caplog.set_level(logging.DEBUG)
    config = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "enable.sasl.oauthbearer.unsecure.jwt": True,
        "sasl.oauthbearer.config": f"principal=me lifeSeconds=3600 clientSecret={MARKER}",
        "bootstrap.servers": "127.0.0.1:1",
        "log_level": 0,
    }
    producer = SafeProducer(config)
    poll_until(producer, lambda: "beginning at" in str(producer.snapshot().last_error), 20)
    told = [str(producer.snapshot().last_error), producer.explain(), repr(producer.snapshot()), caplog.text]
    assert "beginning at" in told[0]
    assert MARKER not in "".join(told)
    assert "clientSecret" not in "".join(told)
    producer.close(0)


def test_former_credentials_are_never_shown(producer: SafeProducer) -> None:
    """Those from before set_sasl_credentials() may still be in use."""
    producer.set_sasl_credentials("ann", MARKER)
    producer.set_sasl_credentials("ann", "another-one")
    for secret in (MARKER, "another-one"):
        assert settings_of(producer).scrub(f"refused: {secret}") == "refused: ***"


@pytest.mark.parametrize(
    ("config", "principal"),
    [
        ({}, "User:ANONYMOUS"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "ann"}, "User:ann"),
        ({"security.protocol": "sasl_plaintext", "sasl.mechanisms": "PLAIN", "sasl.username": "bob"}, "User:bob"),
        ({"security.protocol": "ssl", "ssl.certificate.location": "/c.pem"}, "User:certificate /c.pem"),
        ({"sasl.username": "unused without sasl"}, "User:ANONYMOUS"),
    ],
)
def test_principal(config: dict[str, object], principal: str) -> None:
    """The user that the broker will see, as far as the configuration tells."""
    assert parse(({**BROKER, **config},), {}).principal == principal


def test_a_cluster_is_the_same_in_any_order_of_brokers() -> None:
    """Churn is counted per cluster, and the order of the bootstrap list does not make another one."""
    assert parse((BROKER,), {}).cluster == parse(({"metadata.broker.list": "a:9092, b:9092"},), {}).cluster


@pytest.mark.parametrize(("setting", "allowed"), [("fatal", "stop, renew"), ("fatal.held", "send, fail")])
def test_another_value_of_what_follows_a_fatal_error_is_refused(setting: str, allowed: str) -> None:
    """The error names the two that are allowed."""
    with pytest.raises(ConfigurationError, match=f"'safeproducer.{setting}' = 'go on': it must be one of {allowed}"):
        SafeProducer({**BROKER, f"safeproducer.{setting}": "go on"})


@pytest.mark.parametrize("given", [{}, {"safeproducer.mode": "held"}, {"safeproducer.ordering": "key"}])
def test_the_off_switch_wins_over_settings(monkeypatch: pytest.MonkeyPatch, given: dict[str, object]) -> None:
    """An incident is no time for a release, nor for a service that does not start; `safeproducer run` has its own."""
    monkeypatch.setenv("SAFEPRODUCER_MODE", "passthrough")
    conf = {"bootstrap.servers": "a:1", **given}
    assert parse((conf,), {}).delivery.mode == "passthrough"
    monkeypatch.setenv("SAFEPRODUCER_RUN_MODE", "auto")
    assert parse((conf,), {}).delivery.mode == given.get("safeproducer.mode", "auto")
    monkeypatch.delenv("SAFEPRODUCER_RUN_MODE")
    monkeypatch.setenv("SAFEPRODUCER_MODE", "held")
    assert parse((conf,), {}).delivery.mode == given.get("safeproducer.mode", "auto"), "no other value counts"


def test_the_off_switch_hides_no_wrong_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAFEPRODUCER_MODE", "passthrough")
    with pytest.raises(ConfigurationError):
        parse(({"bootstrap.servers": "a:1", "safeproducer.mod": "auto"},), {})
