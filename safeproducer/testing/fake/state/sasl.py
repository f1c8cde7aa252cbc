"""The server's half of SASL: PLAIN (RFC 4616) and SCRAM (RFC 5802, RFC 7677) as Kafka speaks them (KIP-43, KIP-84).

No channel binding and no delegation tokens. Like Kafka, and unlike the RFC, passwords are not prepared with SASLprep.
"""

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from typing import Protocol

from safeproducer.testing.fake.credentials import SCRAM_DIGESTS, Credentials, ScramKeys

__all__ = ["MECHANISMS", "Exchange", "PlainExchange", "SaslError", "ScramExchange", "begin"]

MECHANISMS = ("PLAIN", *SCRAM_DIGESTS)

_NAME = r"(?:[^=,\0]|=2C|=3D)+"
_NONCE = r"[!-+\--~]+"
_EXTENSIONS = r"(?:,[A-Za-z]+=[^,\0]+)*"
_FIRST = re.compile(rf"n,(?:a=(?P<authzid>{_NAME}))?,(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>{_NONCE}){_EXTENSIONS})")
_FINAL = re.compile(rf"(?P<bare>c=(?P<binding>[^,]+),r=(?P<nonce>{_NONCE}){_EXTENSIONS}),p=(?P<proof>[^,]+)")


class SaslError(ValueError):
    """A log-in that failed. The text goes to the client, so it does not tell whether there is such a user."""


class Exchange(Protocol):
    """One log-in in progress."""

    user: str | None
    """The user who has logged in; None until the exchange is complete."""

    def step(self, token: bytes) -> bytes:
        """The answer to what the client sent. Raises SaslError, after which the exchange is over."""


def begin(mechanism: str, credentials: Credentials) -> Exchange:
    """A log-in by one of :data:`MECHANISMS`."""
    return PlainExchange(credentials) if mechanism == "PLAIN" else ScramExchange(mechanism, credentials)


class PlainExchange:
    """Name and password in the clear, in one message."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self.user: str | None = None

    def step(self, token: bytes) -> bytes:
        try:
            fields = token.decode().split("\0")
        except UnicodeDecodeError:
            fields = []
        if len(fields) != 3:
            raise SaslError("log-in failed: a PLAIN message has three fields, with zero bytes between them")
        authorization, user, password = fields
        # One text for a wrong name, a wrong password and a foreign identity: nobody learns which users there are.
        if not self._credentials.verify(user, password) or authorization not in ("", user):
            raise SaslError("log-in by PLAIN failed: wrong user or password")
        self.user = user
        return b""


class ScramExchange:
    """Both sides prove that they know the password, in two rounds, and neither sends it."""

    def __init__(self, mechanism: str, credentials: Credentials) -> None:
        self._mechanism = mechanism
        self._digest = SCRAM_DIGESTS[mechanism]
        self._credentials = credentials
        self._first: tuple[str, ScramKeys, str, str, str] | None = None
        self.user: str | None = None

    def step(self, token: bytes) -> bytes:
        try:
            text = token.decode()
            answer = self._challenge(text) if self._first is None else self._verify(text)
        except (UnicodeDecodeError, binascii.Error):
            answer = None
        if answer is None:
            raise SaslError(f"log-in by {self._mechanism} failed: wrong user or password")
        return answer.encode()

    def _challenge(self, text: str) -> str | None:
        found = _FIRST.fullmatch(text)
        if found is None:
            return None
        user = _unescape(found["name"])
        keys = self._credentials.scram_keys(user, self._mechanism)
        if keys is None or _unescape(found["authzid"] or found["name"]) != user:
            return None
        nonce = found["nonce"] + secrets.token_urlsafe(18)
        challenge = f"r={nonce},s={base64.b64encode(keys.salt).decode()},i={keys.iterations}"
        self._first = user, keys, nonce, text.removesuffix(found["bare"]), f"{found['bare']},{challenge}"
        return challenge

    def _verify(self, text: str) -> str | None:
        found = _FINAL.fullmatch(text)
        if found is None or self._first is None:
            return None
        user, keys, nonce, binding, so_far = self._first
        if found["nonce"] != nonce or base64.b64decode(found["binding"], validate=True) != binding.encode():
            return None
        said = f"{so_far},{found['bare']}".encode()
        signature = hmac.digest(keys.stored_key, said, self._digest)
        proof = base64.b64decode(found["proof"], validate=True)
        if len(proof) != len(signature):
            return None
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(self._digest, client_key).digest(), keys.stored_key):
            return None
        self.user = user
        return "v=" + base64.b64encode(hmac.digest(keys.server_key, said, self._digest)).decode()


def _unescape(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")
