"""`sasl.jaas.config` is read as Kafka's `JaasConfig` reads it, by the rules of Java's `StreamTokenizer`.

No message quotes any of the text: with a quotation mark missing, a password is where a name should be.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from safeproducer.errors import ConfigurationError
from safeproducer.spark.java_settings import kafka_refused

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
    options = entry(text, mechanism, MODULES[mechanism])
    if options.get("tokenauth", "").lower() == "true":
        raise _refused("librdkafka cannot log in with a delegation token (tokenauth)", "Give a user and a password")
    missing = [name for name in ("username", "password") if not options.get(name)]
    if missing:
        raise _refused(f"it has no {' and no '.join(missing)}")
    return Login(options["username"], options["password"])


def entry(text: str, mechanism: str, wanted: str) -> dict[str, str]:
    """The options of the entry `text`, which is of the login module `wanted`. Raises ConfigurationError."""
    tokens = _tokens(text)
    if len(tokens) < 3 or tokens[-1] != ("sign", ";"):
        raise _refused('it is no entry of the form: module required name="value" ... ;')
    (_, module), (_, flag), *rest = tokens[:-1]
    if module != wanted and not module.endswith("." + wanted):
        raise _refused(f"its login module is not that of sasl.mechanism={mechanism}, {wanted}")
    if flag.lower() not in ("required", "requisite", "sufficient", "optional"):
        raise _refused("behind the login module there is no 'required'")
    if ("sign", ";") in rest:
        raise _refused("it has more than one entry")
    kinds = [kind if kind == "word" else sign for kind, sign in rest]
    if kinds != ["word", "=", "word"] * (len(rest) // 3):
        raise _refused('an option is not of the form name="value"')
    return {name: value for (_, name), (_, value) in zip(rest[::3], rest[2::3], strict=True)}


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
