"""The settings of the guard on producer IDs: what is refused, and what the environment variables do."""

from pathlib import Path
from typing import Any

import pytest

from safeproducer import ConfigurationError, SafeProducer
from safeproducer.pipeline import reuse
from safeproducer.pipeline.cluster import id_expirations
from safeproducer.producer_ids import ledger
from safeproducer.producer_ids.guard import OFF, Claim, Kind, Place, guard_of
from safeproducer.records import CallSite
from safeproducer.settings.id_settings import LEDGER_VARIABLE, POLICY_VARIABLE, IdSettings
from tests.clusters import cluster_of
from tests.inside import settings_of

POLICY = "safeproducer.producer.ids.policy"
LEDGER = "safeproducer.producer.ids.ledger"
REUSE = "safeproducer.producer.ids.reuse.ms"
BROKER = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}


def ids_of(config: dict[str, Any]) -> IdSettings:
    """As a producer reads them."""
    with SafeProducer({**BROKER, **config}) as producer:
        found: IdSettings = settings_of(producer).ids
        return found


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the test run are none of these tests' concern."""
    monkeypatch.delenv(POLICY_VARIABLE, raising=False)
    monkeypatch.setenv(LEDGER_VARIABLE, "off")


def test_by_default_a_producer_is_told() -> None:
    """No record waits and none is refused unless the application asks for it."""
    found = ids_of({})
    assert (found.policy, found.reuse, found.enforces) == ("warn", 300.0, False)


def test_the_settings_are_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All three, with the time in seconds."""
    monkeypatch.delenv(LEDGER_VARIABLE)
    found = ids_of({POLICY: "refuse", LEDGER: str(tmp_path), REUSE: 1500})
    assert found == IdSettings("refuse", Place(str(tmp_path)), 1.5)
    assert found.enforces


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({POLICY: "deny"}, "off, warn, delay, reuse, refuse"),
        ({POLICY: None}, "off, warn, delay, reuse, refuse"),
        ({REUSE: -1}, "300000"),
        ({REUSE: "long"}, "300000"),
        ({LEDGER: "ledgers"}, "absolute path"),
        ({LEDGER: "./ledgers"}, "absolute path"),
        ({LEDGER: 5}, "absolute path"),
        ({"safeproducer.producer.ids.polcy": "warn"}, POLICY),
    ],
)
def test_a_wrong_setting_is_refused(setting: dict[str, Any], says: str) -> None:
    """With the setting, its value, and the way out."""
    ((name, value),) = setting.items()
    with pytest.raises(ConfigurationError, match=name.replace(".", r"\.")) as caught:
        SafeProducer({**BROKER, **setting})
    assert caught.value.setting == name
    assert repr(value) in str(caught.value)
    assert says in str(caught.value)


def test_a_directory_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    """With the reason: the setting names one place, and no other is taken."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match=r"no directory.*Name a directory") as caught:
        SafeProducer({**BROKER, LEDGER: str(tmp_path / "file")})
    assert (caught.value.setting, caught.value.value) == (LEDGER, repr(str(tmp_path / "file")))


def test_a_directory_is_made_with_the_first_permit(tmp_path: Path) -> None:
    """If its parent is there, and for its owner alone; a configuration that names it only reads."""
    named = tmp_path / "ids"
    ids_of({LEDGER: str(named)})
    assert not named.exists()
    guard_of(("k1:9092", "User:a"), Place(str(named))).ask(Claim(Kind.FIRST, 1, True, CallSite("a.py", 1, "f")))
    assert named.stat().st_mode & 0o777 == 0o700


def test_fixed_numbers_are_those_that_are_promised() -> None:
    """Ledgers in a directory, parked producers, seconds before brokers are asked, and seconds to wait for a ledger."""
    assert (reuse.MOST, id_expirations.NOT_BEFORE, ledger.WAITS) == (16, 60, 0.05)


def test_no_secret_and_no_configuration_goes_into_a_ledger(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nor into its name: lines of code are all that it tells of the application."""
    monkeypatch.delenv(LEDGER_VARIABLE)
    with cluster_of({"MARKER-topic": 1}, users={"MARKER-user": "MARKER-secret"}) as cluster:
        login = {"sasl.mechanism": "PLAIN", "sasl.username": "MARKER-user", "sasl.password": "MARKER-secret"}
        config = {"security.protocol": "SASL_PLAINTEXT", "client.id": "MARKER-client", **login}
        servers = {"bootstrap.servers": cluster.bootstrap, "log_level": 0}
        with SafeProducer({**servers, **config, LEDGER: str(tmp_path / "ids")}) as producer:
            producer.produce("MARKER-topic", b"MARKER-value", b"MARKER-key")
            assert producer.flush(10) == 0
        (file,) = (tmp_path / "ids").iterdir()
        content = file.read_bytes()
        assert b"test_id_settings.py" in content, "the line of code"
        for marker in ("MARKER", cluster.bootstrap):
            assert marker.encode() not in content
            assert marker not in file.name


def test_reuse_needs_a_producer_that_can_be_handed_on() -> None:
    """One with a transactional.id never is."""
    with pytest.raises(ConfigurationError, match=r"transactional\.id") as caught:
        SafeProducer({**BROKER, "transactional.id": "t", POLICY: "reuse"})
    assert caught.value.setting == POLICY


@pytest.mark.parametrize("policy", ["off", "warn", "delay", "reuse", "refuse"])
def test_the_environment_wins(monkeypatch: pytest.MonkeyPatch, policy: str, tmp_path: Path) -> None:
    """In an incident no release is needed."""
    monkeypatch.setenv(POLICY_VARIABLE, policy)
    monkeypatch.setenv(LEDGER_VARIABLE, str(tmp_path))
    found = ids_of({POLICY: "warn", LEDGER: "off"})
    assert (found.policy, found.ledger) == (policy, Place(str(tmp_path)))


def test_reuse_by_the_environment_delays_a_transactional_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator sets the variable for all producers of a process."""
    monkeypatch.setenv(POLICY_VARIABLE, "reuse")
    assert ids_of({"transactional.id": "t"}).policy == "delay"


@pytest.mark.parametrize(
    ("variable", "value", "setting", "holds", "way_out"),
    [
        (POLICY_VARIABLE, "denied", POLICY, "refuse", "off, warn, delay, reuse, refuse"),
        (LEDGER_VARIABLE, "relative/path", LEDGER, "off", "Name a directory of a local file system"),
    ],
)
def test_a_wrong_variable_is_warned_of_and_the_setting_holds(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    variable: str,
    value: str,
    setting: str,
    holds: str,
    way_out: str,
) -> None:
    """A typing error in an incident must not keep an application from starting."""
    monkeypatch.setenv(variable, value)
    found = ids_of({POLICY: "refuse", LEDGER: "off"})
    assert (found.policy, found.ledger) == ("refuse", OFF)
    (warning,) = [record.getMessage() for record in caplog.records if variable in record.getMessage()]
    assert all(part in warning for part in (value, setting, repr(holds), way_out))
