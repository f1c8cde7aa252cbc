"""This module translates settings of TLS and SASL, which are only understood together; `sasl.jaas.config` is one.

Keys, certificates and passwords are given as they are or as places, which an executor reads: `env:NAME`, `file:PATH`,
`call:package.module:function`. A secret that was given as it is becomes a place, too: `value:` and the secret. That one
is never shown.

A user and a password are read from `sasl.jaas.config`, for PLAIN and SCRAM, as Kafka's `JaasConfig` reads it, by the
rules of Java's `StreamTokenizer`. No message quotes any of the text: with a quotation mark missing, a password is where
a name should be.
"""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from textwrap import wrap

from safeproducer.errors import ConfigurationError
from safeproducer.kafka.properties import HIDDEN
from safeproducer.spark.java_settings import Given, kafka_refused

ENV, FILE, CALL, VALUE = "env:", "file:", "call:", "value:"
FORMS = "env:NAME, file:PATH or call:package.module:function"


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
    raise ConfigurationError(
        "",
        "",
        f"no secret at {place_of(place)!r} on {socket.gethostname()}: {problem or 'it is empty'}",
        f"Give {FORMS}, present on every executor",
    )


def _read(kind: str, name: str) -> tuple[str, str]:
    """The error, if there is one, and the value."""
    if kind in (VALUE, CALL):
        return ("", name) if kind == VALUE else _called(name)
    problem = "that is no place of a secret"
    try:
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


def _called(name: str) -> tuple[str, str]:
    module, _, function = name.partition(":")
    try:
        found = getattr(import_module(module), function)()
    except Exception as error:  # whatever it raises may hold the secret, and no frame of it may go on
        return f"the call raised {type(error).__name__}", ""
    return ("", found) if isinstance(found, str) else (f"the call returned {type(found).__name__}, not str", "")


JAAS = "sasl.jaas.config"
MECHANISM = "sasl.mechanism"
_MODULE = "org.apache.kafka.common.security."
MODULES = {
    "PLAIN": f"{_MODULE}plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_MODULE}scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_MODULE}scram.ScramLoginModule",
}
"""Mechanism -> its login module. A prefix is allowed: some platforms bring Kafka's classes under another name."""

_TOKEN = re.compile(
    r"""(?://[^\n]*|/\*.*?\*/|\s)+"""  # comments and blanks
    r"""|(?P<quoted>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|(?P<word>[A-Za-z_$\u00a0-\uffff][\w.$\-\u00a0-\uffff]*)"""
    r"""|(?P<sign>.)""",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True, slots=True)
class Login:
    """A user and a password; the repr shows neither."""

    username: str = field(repr=False)
    password: str = field(repr=False)


def read(text: str, mechanism: str) -> Login:
    """The login that `text` describes for this mechanism, one of MODULES. Raises ConfigurationError."""
    tokens = _tokens(text)
    if len(tokens) < 3 or tokens[-1] != ("sign", ";"):
        raise _refused('it is no entry of the form: module required name="value" ... ;')
    (_, module), (_, flag), *rest = tokens[:-1]
    wanted = MODULES[mechanism]
    if module != wanted and not module.endswith("." + wanted):
        raise _refused(f"its login module is not that of sasl.mechanism={mechanism}, {wanted}")
    if flag.lower() not in ("required", "requisite", "sufficient", "optional"):
        raise _refused("behind the login module there is no 'required'")
    if ("sign", ";") in rest:
        raise _refused("it has more than one entry")
    kinds = [kind if kind == "word" else sign for kind, sign in rest]
    if kinds != ["word", "=", "word"] * (len(rest) // 3):
        raise _refused('an option is not of the form name="value"')
    options = {name: value for (_, name), (_, value) in zip(rest[::3], rest[2::3], strict=True)}
    if options.get("tokenauth", "").lower() == "true":
        raise _refused("librdkafka cannot log in with a delegation token (tokenauth)", "Give a user and a password")
    missing = [name for name in ("username", "password") if not options.get(name)]
    if missing:
        raise _refused(f"it has no {' and no '.join(missing)}")
    return Login(options["username"], options["password"])


def _tokens(text: str) -> list[tuple[str, str]]:
    found = []
    for match in _TOKEN.finditer(text):
        if match.lastgroup == "quoted":
            found.append(("word", _ESCAPE.sub(_unescaped, match["quoted"][1:-1])))
        elif match.lastgroup:
            found.append((match.lastgroup, match[match.lastgroup]))
    return found


def _unescaped(match: re.Match[str]) -> str:
    sign = match[1]
    return chr(int(sign, 8)) if sign[0] in "01234567" else _LETTERS.get(sign, sign)


def _refused(problem: str, way_out: str = "") -> ConfigurationError:
    otherwise = f'Write it as for Java: {MODULES["PLAIN"]} required username="..." password="...";'
    return kafka_refused(JAAS, "", problem, way_out or otherwise)


_PEM = re.compile(r"\s*(-+BEGIN [^-]+-+)\s+([A-Za-z0-9/+=\s]*)(-+END [^-]+-+)")
"""Kafka's `DefaultSslEngineFactory.PemParser` finds an entry so. One with parameters before its content stays."""


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


def resolved(config: dict[str, str], secrets: dict[str, str]) -> dict[str, str]:
    """Settings of librdkafka from texts that were read at their places: a JAAS entry becomes user and password, and
    PEM has lines."""
    found = {name: _in_lines(text) if name.endswith(".pem") else text for name, text in secrets.items()}
    if JAAS in found:
        login = read(found.pop(JAAS), config[MECHANISM])
        found.update({"sasl.username": login.username, "sasl.password": login.password})
    return found


def _in_lines(pem: str) -> str:
    """PEM in lines, for OpenSSL. Java takes it on one line, too, as files of properties have it, and indented."""
    return _PEM.sub(lambda found: "\n".join(("", found[1], *wrap("".join(found[2].split()), 64), found[3], "")), pem)


def _login(given: Given, found: Security) -> None:
    mechanism = given.get(MECHANISM, "GSSAPI").strip().upper()
    if mechanism not in MODULES:
        raise kafka_refused(
            MECHANISM,
            mechanism,
            "that mechanism is not supported" if MECHANISM in given else "Java's default is not supported",
            f"Give one of {', '.join(MODULES)}, or write with Spark's own Kafka sink",
        )
    text = given.get(JAAS, "")
    if not text.strip():
        way_out = f'Give {MODULES[mechanism]} required username="..." password="...";'
        raise kafka_refused(JAAS, text, f"sasl.mechanism={mechanism} needs a user and a password", way_out)
    found.config[MECHANISM] = mechanism
    if is_place(text):
        found.secrets[JAAS] = Place(text)
        return
    login = read(text, mechanism)
    found.config["sasl.username"] = login.username
    found.secrets["sasl.password"] = place_of(login.password)


def _trust(given: Given, found: Security) -> None:
    location, texts = (given.get(f"ssl.truststore.{name}", "").strip() for name in ("location", "certificates"))
    if not location and not texts:
        found.notes.append(
            "kafka.ssl.truststore.location is not set: the certificate authorities of each executor's system count, "
            "not those of its Java"
        )
        return
    _store_type("ssl.truststore", given, ("PEM",), texts, "certificates")
    if location:
        found.config["ssl.ca.location"] = location
    else:
        found.secrets["ssl.ca.pem"] = place_of(texts)


def _keys(given: Given, found: Security) -> None:
    store = {name: given.get(f"ssl.keystore.{name}", "").strip() for name in _KEY_STORE}
    location, password = store["location"], given.get("ssl.key.password", "").strip()
    if not (location or store["certificate.chain"] or store["key"]):
        return
    kind = _store_type("ssl.keystore", given, ("PEM", "PKCS12"), store["certificate.chain"] or store["key"], "key")
    needed = {} if location and kind == "PEM" else _NEEDED[kind]
    for name, why in needed.items():
        if not store[name]:
            raise kafka_refused(f"ssl.keystore.{name}", "", f"it is not set, and {why}", "Set it")
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


_KEY_STORE = ("location", "certificate.chain", "key", "password")
_NEEDED = {
    "PKCS12": {"location": "a PKCS#12 key store is a file", "password": "a PKCS#12 key store has a password"},
    "PEM": {"certificate.chain": "a key needs its certificates", "key": "certificates need their key"},
}
_KEYTOOL = (
    "Convert it (keytool -importkeystore -deststoretype PKCS12, or openssl pkcs12 for PEM) and say so in "
    "kafka.{}=PEM; for certificates alone: keytool -exportcert -rfc"
)


def _store_type(store: str, given: Given, known: tuple[str, ...], text: str, setting: str) -> str:
    """Its type. Raises ConfigurationError for one that is not known here, and for a file beside `text`."""
    location, name = given.get(f"{store}.location", "").strip(), f"{store}.type"
    if location and text:
        problem = f"kafka.{store}.{setting} is set as well"
        raise kafka_refused(f"{store}.location", location, problem, "Leave one of the two out")
    kind = given.get(name, "JKS").strip().upper()
    if kind not in known:
        default = "" if name in given else ", Java's default,"
        raise kafka_refused(name, kind, f"a store of type {kind}{default} cannot be read", _KEYTOOL.format(name))
    return kind
