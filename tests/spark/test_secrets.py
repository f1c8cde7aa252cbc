"""Secrets are read where a task runs, and shown nowhere."""

from __future__ import annotations

import pickle
import socket
import sys
import traceback
import types
from pathlib import Path

import pytest

from safeproducer import ConfigurationError
from safeproducer.spark.security import is_place, place_of, resolve


@pytest.fixture
def vault(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """An importable module that a test gives functions."""
    module = types.ModuleType("company_vault")
    monkeypatch.setitem(sys.modules, "company_vault", module)
    return module


def test_each_kind_of_place_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vault: types.ModuleType) -> None:
    """Anew each time; of a file only the line's end is left out."""
    monkeypatch.setenv("KAFKA_PASSWORD", "from env ")
    (tmp_path / "password").write_text(" from: file \r\n", encoding="utf-8")
    vault.secret = lambda: "from call"  # type: ignore[attr-defined]
    assert resolve("env:KAFKA_PASSWORD") == "from env "
    assert resolve(f"file:{tmp_path}/password") == " from: file "
    assert resolve("call:company_vault:secret") == "from call"
    monkeypatch.setenv("KAFKA_PASSWORD", "rotated")
    assert resolve("env:KAFKA_PASSWORD") == "rotated"


def test_a_secret_given_as_it_is_has_a_place_that_hides_it() -> None:
    """It can be pickled, and one that looks like a place can be given behind `value:`."""
    for given in ("hunter2", "a:b", "envy", "", "value:x"):
        assert not is_place(given)
    place = place_of("hunter2")
    assert repr(place) == "'value:***'"
    assert repr({"sasl.password": place}) == "{'sasl.password': 'value:***'}"
    copy = pickle.loads(pickle.dumps(place))  # noqa: S301 - our own bytes
    assert resolve(copy) == "hunter2"
    assert repr(copy) == "'value:***'"
    assert resolve(place_of("value:env:HOME")) == "env:HOME"
    assert repr(place_of("env:HOME")) == "'env:HOME'"


def broken(error: Exception) -> object:
    """A function that fails as clients of vaults do: with the secret in its error."""

    def fetch() -> str:
        secret = "marker"
        raise error from ValueError(secret)

    return fetch


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("env:NO_SUCH_NAME", "there is no such environment variable"),
        ("env:EMPTY", "it is empty"),
        ("file:/no/such/file", "the file cannot be read (No such file or directory)"),
        ("file:.", "the file cannot be read (Is a directory)"),
        ("file:latin1", "the file is no text in UTF-8"),
        ("call:no_such_module:secret", "the call raised ModuleNotFoundError"),
        ("call:company_vault:missing", "the call raised AttributeError"),
        ("call:company_vault", "the call raised AttributeError"),
        ("call::", "the call raised ValueError"),
        ("call:company_vault:broken", "the call raised RuntimeError"),
        ("call:company_vault:number", "the call returned int, not str"),
        ("call:company_vault:nothing", "the call returned NoneType, not str"),
        ("vault:x", "that is no place of a secret"),
    ],
)
def test_a_place_without_a_secret_is_named_with_its_host(
    place: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vault: types.ModuleType
) -> None:
    """Place, host, cause and way out; nothing of what a call raised, in any frame or cause."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.delenv("NO_SUCH_NAME", raising=False)
    (tmp_path / "latin1").write_bytes(b"marker\xe9")
    vault.broken = broken(RuntimeError("marker"))  # type: ignore[attr-defined]
    vault.number = lambda: 5  # type: ignore[attr-defined]
    vault.nothing = lambda: None  # type: ignore[attr-defined]
    with pytest.raises(ConfigurationError) as caught:
        resolve(place)
    message = str(caught.value)
    shown = place if place != "vault:x" else "value:***"
    assert message.startswith(f"no secret at '{shown}' on {socket.gethostname()}: {said}. Give env:NAME")
    frames = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    # The test's own frame knows the secret.
    ours = "".join(line for line in frames.format() if "security.py" in line and "test_" not in line)
    assert ours
    assert "marker" not in ours
    assert str(pickle.loads(pickle.dumps(caught.value))) == message  # noqa: S301 - our own bytes
