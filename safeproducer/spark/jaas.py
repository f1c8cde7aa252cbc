"""`sasl.jaas.config` of Java, as far as it names a user and a password: PLAIN and SCRAM.

Read as Kafka's `JaasConfig` reads it, by the rules of Java's `StreamTokenizer`. No message quotes any of the text: with
a quotation mark missing, a password is where a name should be.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from safeproducer.errors import ConfigurationError
from safeproducer.kafka.secrets import HIDDEN

OPTION = "kafka.sasl.jaas.config"
MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
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
_FLAGS = ("required", "requisite", "sufficient", "optional")


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
    if flag.lower() not in _FLAGS:
        raise _refused("behind the login module there is no 'required'")
    options = _options(rest)
    if options.get("tokenauth", "").lower() == "true":
        raise _refused("librdkafka cannot log in with a delegation token (tokenauth)", "Give a user and a password")
    missing = [name for name in ("username", "password") if not options.get(name)]
    if missing:
        raise _refused(f"it has no {' and no '.join(missing)}")
    return Login(options["username"], options["password"])


def _options(tokens: list[tuple[str, str]]) -> dict[str, str]:
    found = {}
    if ("sign", ";") in tokens:
        raise _refused("it has more than one entry")
    if len(tokens) % 3:
        raise _refused('an option is not of the form name="value"')
    for name, equals, value in zip(tokens[::3], tokens[1::3], tokens[2::3], strict=True):
        if equals != ("sign", "=") or "sign" in (name[0], value[0]):
            raise _refused('an option is not of the form name="value"')
        found[name[1]] = value[1]
    return found


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
    return ConfigurationError(OPTION, HIDDEN, problem, way_out or otherwise)
