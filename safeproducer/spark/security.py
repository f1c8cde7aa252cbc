"""This module translates settings of TLS and SASL, which are only understood together; `sasl.jaas.config` is one.

Keys, certificates and passwords are given as they are or as places, which an executor reads: `env:NAME`, `file:PATH`,
`call:package.module:function`. A secret that was given as it is becomes a place, too: `value:` and the secret. That one
is never shown.

A user and a password, or a client and its secret, are read from `sasl.jaas.config`: see jaas.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from textwrap import wrap
from typing import Any

from safeproducer.errors import ConfigurationError
from safeproducer.kafka.properties import HIDDEN
from safeproducer.spark.jaas import BY_CALL, JAAS, MECHANISM, MODULES, OAUTHBEARER, read
from safeproducer.spark.java_settings import Given, kafka_refused

ENV, FILE, CALL, VALUE = "env:", "file:", "call:", "value:"
FORMS = "env:NAME, file:PATH or call:package.module:function"
_MILLISECONDS = 1e11
"""Later than any time in seconds, and earlier than any in milliseconds."""
_PEM = re.compile(r"\s*(-+BEGIN [^-]+-+)\s+([A-Za-z0-9/+=\s]*)(-+END [^-]+-+)")
"""Kafka's `DefaultSslEngineFactory.PemParser` finds an entry so. One with parameters before its content stays."""
TOKENS = "oauth_cb"
_TRUST_STORE, _TRUST_PASSWORD = "ssl.truststore.location", "ssl.truststore.password"
_TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105 - its name
_SUBJECT = "sasl.oauthbearer.sub.claim.name"
_HANDLER = "sasl.login.callback.handler.class"
_NEEDED = {
    "PKCS12": {"location": "a PKCS#12 store is a file", "password": "a PKCS#12 store has a password"},
    "PEM": {"certificate.chain": "a key needs its certificates", "key": "certificates need their key"},
}
_KEYTOOL = (
    "Convert it (keytool -importkeystore -deststoretype PKCS12, or openssl pkcs12 for PEM) and say so in "
    "kafka.{}=PEM; for certificates alone: keytool -exportcert -rfc"
)


class Place(str):
    """A place as text. Its repr, as in a traceback that shows locals, hides a secret that was given as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(f"{VALUE}{HIDDEN}") if self.startswith(VALUE) else super().__repr__()


def place_of(text: str) -> Place:
    """`text` when it names a place, else the place of a secret that was given as it is.

    A secret that itself begins like a place can be given behind `value:`.
    """
    return Place(text if is_place(text) or text.startswith(VALUE) else VALUE + text)


def is_place(text: str) -> bool:
    """Whether it names a place on an executor."""
    return text.startswith((ENV, FILE, CALL))


def resolve(place: str) -> str:
    """The secret at this place, read now, in this process. The line's end after the text of a file is no part of it.

    Raises ConfigurationError, which names the place and this host, and nothing of what was found.
    """
    kind, _, name = place.partition(":")
    problem, found = _read(f"{kind}:", name)
    if not problem and found:
        return found
    problem = f"no secret at {place_of(place)!r} on {socket.gethostname()}: {problem or 'it is empty'}"
    raise ConfigurationError("", "", problem, f"Give {FORMS}, present on every executor")


def _read(kind: str, name: str) -> tuple[str, str]:
    """The error, if there is one, and the value."""
    problem = "that is no place of a secret"
    if kind == CALL:
        problem, found = _returned(name)
        if problem or isinstance(found, str):
            return problem, found or ""
        return f"the call returned {type(found).__name__}, not str", ""
    try:
        if kind == VALUE:
            return "", name
        if kind == ENV:
            return "", os.environ[name]
        if kind == FILE:
            return "", Path(name).read_text(encoding="utf-8").rstrip("\r\n")
    except KeyError:
        problem = "there is no such environment variable"
    except OSError as error:
        problem = f"the file cannot be read ({error.strerror})"
    except ValueError:
        problem = "the file is no text in UTF-8"
    return problem, ""


def _returned(name: str) -> tuple[str, Any]:
    """The error, if there is one, and what the function returned."""
    module, _, function = name.partition(":")
    try:
        return "", getattr(import_module(module), function)()
    except Exception as error:  # whatever it raises may hold the secret, and no frame of it may go on
        return f"the call raised {type(error).__name__}", None


@dataclass(frozen=True, slots=True)
class Tokens:
    """`oauth_cb`: calls the function at a place for each token, in the process of the producer. It returns (token,
    expiry), in seconds or milliseconds since the epoch; a principal and a dict of extensions may follow.

    Two are equal when their places are. Raises RuntimeError, which says nothing of what was returned.
    """

    place: str

    def __call__(self, _config: str) -> tuple[Any, ...]:
        problem, found = _returned(self.place.removeprefix(CALL))
        if not problem:
            match found:
                case (str() as token, int() | float() as expiry, *rest) if len(rest) <= 2:
                    return token, expiry / 1000 if expiry > _MILLISECONDS else float(expiry), *rest
            problem = f"the call returned {type(found).__name__}, not (token, expiry)"
        del found
        raise RuntimeError(f"no token from {self.place} on {socket.gethostname()}: {problem}")


def no_token(secrets: Mapping[str, Any]) -> str:
    """Why the function that gives tokens gives none, "" if it does: librdkafka would wait for ten seconds, silently."""
    try:
        if TOKENS in secrets:
            secrets[TOKENS]("")
    except RuntimeError as error:
        return str(error)
    return ""


@dataclass(slots=True)
class Security:
    """The result for security settings: settings of librdkafka, places of secrets, and what is told once."""

    config: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def translate(given: Given) -> Security:
    """All of `security.protocol`, `ssl.*` and `sasl.*`, by Java's names. Raises ConfigurationError."""
    found = Security()
    protocol = given.get("security.protocol", "plaintext").strip().lower()
    if "ssl" in protocol:
        _trust(given, found)
        _keys(given, found)
    if "sasl" in protocol:
        _login(given, found)
    for part in ("ssl", "sasl"):
        unused = [f"kafka.{name}" for name in sorted(given) if name.startswith(f"{part}.") and part not in protocol]
        if unused:
            because = f"not used, because kafka.security.protocol is {protocol.upper()}"
            found.notes.append(f"{because}: {', '.join(unused)}")
    return found


def resolved(config: dict[str, str], secrets: dict[str, str]) -> dict[str, Any]:
    """Settings of librdkafka, with the texts at these places, read now: a JAAS entry becomes a login, PEM has lines,
    and the place of tokens is called by librdkafka."""
    found: dict[str, Any] = {}
    for name, place in secrets.items():
        text = Tokens(place) if name == TOKENS else place if name == _TRUST_STORE else resolve(place)
        found[name] = _in_lines(text) if isinstance(text, str) and name.endswith(".pem") else text
    if _TRUST_STORE in found:
        found["ssl.ca.pem"] = _authorities(found.pop(_TRUST_STORE), found.pop(_TRUST_PASSWORD))
    if JAAS in found:
        found |= read(found.pop(JAAS), config[MECHANISM])
    return found


def _in_lines(pem: str) -> str:
    """PEM in lines, for OpenSSL. Java takes it on one line, too, as files of properties have it, and indented."""
    return _PEM.sub(lambda found: "\n".join(("", found[1], *wrap("".join(found[2].split()), 64), found[3], "")), pem)


def _login(given: Given, found: Security) -> None:
    """A user and a password, a client and its secret, or a function that gives tokens."""
    mechanism = given.get(MECHANISM, "GSSAPI").strip().upper()
    handler, url, text = (given.get(name, "").strip() for name in (_HANDLER, _TOKEN_URL, JAAS))
    oauth = mechanism == OAUTHBEARER
    if handler and not (oauth and handler.endswith(".OAuthBearerLoginCallbackHandler")):
        needed = "" if oauth else ", as delegation tokens and cloud logins need it"
        way_out = f"{'Leave it out,' if oauth else f'Give sasl.mechanism={OAUTHBEARER}'} and give {BY_CALL}"
        raise kafka_refused(_HANDLER, handler, f"a class in Java cannot run in Python{needed}", way_out)
    if mechanism not in MODULES:
        problem = "that mechanism is not supported" if MECHANISM in given else "Java's default is not supported"
        way_out = f"Give one of {', '.join(MODULES)}, or write with Spark's own Kafka sink"
        raise kafka_refused(MECHANISM, mechanism, problem, way_out)
    found.config[MECHANISM] = mechanism
    if oauth and text.startswith(CALL):
        if url:
            found.notes.append(f"kafka.{_TOKEN_URL} is not used: kafka.{JAAS} names a function that returns tokens")
        found.secrets[TOKENS] = Place(text)
        return
    if oauth and not url:
        raise kafka_refused(_TOKEN_URL, url, "OAUTHBEARER needs a token endpoint", f"Set it, or give {BY_CALL}")
    if oauth:
        found.config |= {"sasl.oauthbearer.method": "oidc", _TOKEN_URL: url}
        found.config |= {_SUBJECT: claim} if (claim := given.get(_SUBJECT, "").strip()) else {}
    elif not text:
        way_out = f'Give {MODULES[mechanism]} required username="..." password="...";'
        raise kafka_refused(JAAS, text, f"sasl.mechanism={mechanism} needs a user and a password", way_out)
    if is_place(text):
        found.secrets[JAAS] = Place(text)
        return
    settings = read(text, mechanism)
    name, secret = settings.popitem()
    found.secrets[name] = place_of(secret)
    found.config |= settings


def _trust(given: Given, found: Security) -> None:
    kind, store = _store("ssl.truststore", given, ("certificates",))
    if not kind:
        counts = "the certificate authorities of each executor's system count, not those of its Java"
        found.notes.append(f"kafka.ssl.truststore.location is not set: {counts}")
        return
    if kind == "PKCS12":
        found.secrets |= {_TRUST_STORE: store["location"], _TRUST_PASSWORD: place_of(store["password"])}
        return
    if store["password"]:
        problem = "a trust store in PEM has no password"
        raise kafka_refused(_TRUST_PASSWORD, "", problem, "Leave it out, or give kafka.ssl.truststore.type=PKCS12")
    if store["location"]:
        found.config["ssl.ca.location"] = store["location"]
    else:
        found.secrets["ssl.ca.pem"] = place_of(store["certificates"])


def _authorities(location: str, password: str) -> str:
    """The certificates of a trust store in PKCS#12, in PEM: librdkafka takes such a file for keys alone."""
    problem, pem = "", ""
    try:
        serialization: Any = import_module("cryptography.hazmat.primitives.serialization")
        store = import_module("cryptography.hazmat.primitives.serialization.pkcs12").load_pkcs12(
            Path(location).read_bytes(), password.encode()
        )
        held = [each.certificate for each in (store.cert, *store.additional_certs) if each is not None]
        pem = "".join(each.public_bytes(serialization.Encoding.PEM).decode() for each in held)
    except ImportError:
        problem = "the package cryptography is not installed"
    except OSError as error:
        problem = f"the file cannot be read ({error.strerror})"
    except ValueError:
        problem = "it is no PKCS#12 store, or has another password"
    if pem:
        return pem
    way_out = "Give a trust store with certificates on every executor, and install safeproducer[pkcs12] there"
    host = socket.gethostname()
    raise kafka_refused(_TRUST_STORE, location, f"on {host}: {problem or 'it holds no certificate'}", way_out)


def _keys(given: Given, found: Security) -> None:
    kind, store = _store("ssl.keystore", given, ("certificate.chain", "key"))
    location, password = store["location"], given.get("ssl.key.password", "").strip()
    if not kind:
        return
    if kind == "PKCS12":
        found.config["ssl.keystore.location"] = location
        found.secrets["ssl.keystore.password"] = place_of(store["password"])
        if password:
            found.notes.append("kafka.ssl.key.password is not used: a key in PKCS#12 has the password of its store")
        return
    if store["password"]:
        problem = "a key store in PEM has no password, only its key has one"
        raise kafka_refused("ssl.keystore.password", "", problem, "Give kafka.ssl.key.password instead")
    if location:
        found.config.update({"ssl.certificate.location": location, "ssl.key.location": location})
    else:
        found.secrets["ssl.certificate.pem"] = place_of(store["certificate.chain"])
        found.secrets["ssl.key.pem"] = place_of(store["key"])
    if password:
        found.secrets["ssl.key.password"] = place_of(password)


def _store(store: str, given: Given, texts: tuple[str, ...]) -> tuple[str, dict[str, str]]:
    """Its type, "" for no store, and its settings. Raises ConfigurationError for a type that is not known here, for a
    file beside `texts`, and for what is missing."""
    found = {name: given.get(f"{store}.{name}", "").strip() for name in ("location", "password", *texts)}
    location, has_text = found["location"], any(found[name] for name in texts)
    if not location and not has_text:
        return "", found
    if location and has_text:
        problem = f"kafka.{store}.{texts[-1]} is set as well"
        raise kafka_refused(f"{store}.location", location, problem, "Leave one of the two out")
    kind, setting = given.get(f"{store}.type", "JKS").strip().upper(), f"{store}.type"
    if kind not in _NEEDED:
        default = "" if setting in given else ", Java's default,"
        raise kafka_refused(setting, kind, f"a store of type {kind}{default} cannot be read", _KEYTOOL.format(setting))
    for name, why in () if location and kind == "PEM" else _NEEDED[kind].items():
        if not found.get(name, "given"):
            raise kafka_refused(f"{store}.{name}", "", f"it is not set, and {why}", "Set it")
    return kind, found
