"""`sasl.jaas.config` is read as Kafka's `JaasConfig` reads it, by the rules of Java's `StreamTokenizer`.

No message quotes any of the text: with a quotation mark missing, a password is where a name should be.
"""

from __future__ import annotations

import re

from safeproducer.errors import ConfigurationError
from safeproducer.spark.java_settings import kafka_refused

JAAS = "sasl.jaas.config"
MECHANISM = "sasl.mechanism"
OAUTHBEARER = "OAUTHBEARER"
_MODULE = "org.apache.kafka.common.security."
MODULES = {
    "PLAIN": f"{_MODULE}plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_MODULE}scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_MODULE}scram.ScramLoginModule",
    OAUTHBEARER: f"{_MODULE}oauthbearer.OAuthBearerLoginModule",
}
"""Mechanism -> its login module. A prefix is allowed: some platforms bring Kafka's classes under another name."""
BY_CALL = f"kafka.{JAAS}=call:module:function, which returns (token, expiry)"
_EXTENSION = "extension_"

_TOKEN = re.compile(
    r"""(?://[^\n]*|/\*.*?\*/|\s)+"""  # comments and blanks
    r"""|(?P<quoted>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|(?P<word>[A-Za-z_$\u00a0-\uffff][\w.$\-\u00a0-\uffff]*)"""
    r"""|(?P<sign>.)""",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def read(text: str, mechanism: str) -> dict[str, str]:
    """librdkafka's settings for the login in `text`; the last one is the secret. Raises ConfigurationError."""
    options, oauth = _entry(text, mechanism), mechanism == OAUTHBEARER
    if options.get("tokenauth", "").lower() == "true":
        raise _refused("librdkafka cannot log in with a delegation token (tokenauth)", "Give a user and a password")
    user, secret = ("clientId", "clientSecret") if oauth else ("username", "password")
    if missing := [name for name in (user, secret) if not options.get(name)]:
        form = f'Write it as for Java: {MODULES[mechanism]} required {user}="..." {secret}="...";'
        raise _refused(f"it has no {' and no '.join(missing)}", f"{form} or give {BY_CALL}" if oauth else form)
    if not oauth:
        return {"sasl.username": options[user], "sasl.password": options[secret]}
    found = {"sasl.oauthbearer.client.id": options[user]}
    if options.get("scope"):
        found["sasl.oauthbearer.scope"] = options["scope"]
    extensions = {name: text for name, text in options.items() if name.startswith(_EXTENSION)}
    if extensions:
        told = (f"{name.removeprefix(_EXTENSION)}={text}" for name, text in extensions.items())
        found["sasl.oauthbearer.extensions"] = ",".join(told)
    return found | {"sasl.oauthbearer.client.secret": options[secret]}


def _entry(text: str, mechanism: str) -> dict[str, str]:
    """The options of the entry `text`. Raises ConfigurationError."""
    tokens, wanted = _tokens(text), MODULES[mechanism]
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
