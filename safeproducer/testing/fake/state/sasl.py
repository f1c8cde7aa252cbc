"""The server's half of SASL, as Kafka speaks it (KIP-43, 84, 255): PLAIN, SCRAM, OAUTHBEARER (RFC 4616, 5802, 7628).

No channel binding and no delegation tokens. Like Kafka, and unlike the RFC, passwords are not prepared with SASLprep.
No text of this module shows a secret.

Kafka's order on a SASL listener: at most one ApiVersions, then SaslHandshake, then the mechanism's messages, and from
then on everything. Whatever else comes too early ends the connection; between handshake and log-in it is answered with
error 34 (ILLEGAL_SASL_STATE) first. Since handshake version 1 (KIP-152) the messages travel in SaslAuthenticate
requests, before it they travel bare, with four bytes of size, and a failure has no answer. A log-in that ends after a
while can be renewed by another handshake, and after its end nothing else is answered (KIP-368).
"""

import base64
import binascii
import hashlib
import hmac
import json
import re
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

SCRAM_DIGESTS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
OAUTHBEARER = "OAUTHBEARER"
ITERATIONS = 4096
"""Iterations that Kafka asks for at least, and makes by default."""
Validate = Callable[[str], str | None]
"""Gives the principal of a token, or None for a token that is not good."""
MECHANISMS = ("PLAIN", *SCRAM_DIGESTS)
_NAME = r"(?:[^=,\0]|=2C|=3D)+"
_NONCE = r"[!-+\--~]+"
_EXTENSIONS = r"(?:,[A-Za-z]+=[^,\0]+)*"
_FIRST = re.compile(rf"n,(?:a=(?P<authzid>{_NAME}))?,(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>{_NONCE}){_EXTENSIONS})")
_FINAL = re.compile(rf"(?P<bare>c=(?P<binding>[^,]+),r=(?P<nonce>{_NONCE}){_EXTENSIONS}),p=(?P<proof>[^,]+)")
_MORE = r"(?:(?!auth=)[A-Za-z]+=[!-~ \t\r\n]+\x01)*"
_BEARER = re.compile(
    rf"n,(?:a=(?P<authzid>{_NAME}))?,\x01{_MORE}auth=(?i:bearer) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)\x01{_MORE}\x01"
)
_REFUSAL = '{"status":"invalid_token"}'
ANONYMOUS = "ANONYMOUS"
MAX_UNAUTHENTICATED = 524_288
"""``sasl.server.max.receive.size``: no stranger may make a broker hold more."""


@dataclass(frozen=True, slots=True)
class ScramKeys:
    """A server's record of one password for one SCRAM mechanism (RFC 5802)."""

    salt: bytes
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


class Credentials:
    """Users with their passwords, and whose tokens are good. It is not thread-safe.

    A log-in ends after ``lifetime`` seconds, if it is given. Raises ValueError for an empty name or password.
    """

    def __init__(
        self, users: Mapping[str, str] | None, tokens: Validate | None = None, lifetime: float | None = None
    ) -> None:
        if not users and (users is not None or tokens is None):
            raise ValueError("users: nobody could log in; give at least one user with a password, or leave it out")
        for user, password in (users or {}).items():
            if not user or not password or "\0" in user + password:
                raise ValueError(f"users: {user!r} needs a name and a password, both without a zero character")
        self._passwords = {user: password.encode() for user, password in (users or {}).items()}
        self._keys: dict[tuple[str, str], ScramKeys] = {}
        self.lifetime = lifetime
        self.tokens = tokens
        self.mechanisms = (*(MECHANISMS if users else ()), *((OAUTHBEARER,) if tokens is not None else ()))

    def __repr__(self) -> str:
        return f"Credentials({len(self._passwords)} users)"

    def verify(self, user: str, password: str) -> bool:
        known = self._passwords.get(user)
        return known is not None and hmac.compare_digest(known, password.encode())

    def scram_keys(self, user: str, mechanism: str) -> ScramKeys | None:
        """The keys for a mechanism of :data:`SCRAM_DIGESTS`, None for an unknown user. Made once, 2 ms."""
        password = self._passwords.get(user)
        if password is None:
            return None
        if (user, mechanism) not in self._keys:
            digest, salt = SCRAM_DIGESTS[mechanism], secrets.token_bytes(16)
            salted = hashlib.pbkdf2_hmac(digest, password, salt, ITERATIONS)
            client_key = hmac.digest(salted, b"Client Key", digest)
            stored_key = hashlib.new(digest, client_key).digest()
            server_key = hmac.digest(salted, b"Server Key", digest)
            self._keys[user, mechanism] = ScramKeys(salt, ITERATIONS, stored_key, server_key)
        return self._keys[user, mechanism]


class SaslError(ValueError):
    """A log-in that failed. The text goes to the client, so it does not tell whether there is such a user."""


class Exchange:
    """The messages of one log-in.

    ``user``: who has logged in, None until it is complete. ``ends``: when what was shown ends, in seconds since the
    Unix epoch. ``reason``: why it failed, for the test alone.
    """

    user: str | None = None
    ends: float | None = None
    reason = ""

    def step(self, token: bytes) -> bytes:
        """The answer to what the client sent. Raises SaslError, after which the exchange is over."""
        raise NotImplementedError


def begin(mechanism: str, credentials: Credentials, now: float | None = None) -> Exchange:
    """A log-in by one of the mechanisms of these credentials, at this time (default: the machine's)."""
    if mechanism == OAUTHBEARER and credentials.tokens is not None:
        return TokenExchange(credentials.tokens, time.time() if now is None else now)
    return PlainExchange(credentials) if mechanism == "PLAIN" else ScramExchange(mechanism, credentials)


class TokenExchange(Exchange):
    """A token in one message. What is wrong with it is told in a good answer, and the log-in fails at the next one."""

    def __init__(self, validate: Validate, now: float) -> None:
        self._validate = validate
        self._now = now

    def step(self, token: bytes) -> bytes:
        if self.reason:
            raise SaslError(_REFUSAL)
        found = _BEARER.fullmatch(token.decode("latin-1"))
        if found is None:
            raise SaslError(f"log-in by {OAUTHBEARER} failed: no message with a token")
        user, self.reason = self._principal(found["token"])
        if user is None:
            return _REFUSAL.encode()
        if _unescape(found["authzid"] or user) != user:
            raise SaslError(f"log-in by {OAUTHBEARER} failed: the token is of {user}, not of the user who was named")
        self.user = user
        return b""

    def _principal(self, token: str) -> tuple[str | None, str]:
        self.ends = expiry(token)
        if self.ends is not None and self.ends <= self._now:
            return None, "the token has expired"
        try:
            user = self._validate(token)
        except Exception as error:
            return None, f"tokens raised {error!r}"
        if user is None or (isinstance(user, str) and user):
            return user, "" if user else "the token is not good"
        return None, f"tokens returned {user!r}, which is neither a principal nor None"


def expiry(token: str) -> float | None:
    """When a JSON Web Token says that it ends, in seconds since the Unix epoch; None if it says nothing of it."""
    try:
        return float(json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))["exp"])
    except (IndexError, KeyError, TypeError, ValueError, RecursionError):
        return None  # another kind of token


class PlainExchange(Exchange):
    """Name and password in the clear, in one message."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

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


class ScramExchange(Exchange):
    """Both sides prove that they know the password, in two rounds, and neither sends it."""

    def __init__(self, mechanism: str, credentials: Credentials) -> None:
        self._mechanism = mechanism
        self._digest = SCRAM_DIGESTS[mechanism]
        self._credentials = credentials
        self._first: tuple[str, ScramKeys, str, str, str] | None = None

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


class _Stage(Enum):
    CONNECTED = frozenset({"ApiVersions", "SaslHandshake"})
    VERSIONS_KNOWN = frozenset({"SaslHandshake"})
    LOGGING_IN = frozenset({"SaslAuthenticate", "SaslHandshake"})
    FAILED = frozenset[str]()


class Session:
    """One connection's log-in; without credentials everybody is ``user`` and may ask everything.

    ``now`` gives the time in seconds since the Unix epoch: log-ins end by it.
    """

    def __init__(
        self, credentials: Credentials | None, now: Callable[[], float] = time.time, user: str = ANONYMOUS
    ) -> None:
        self._credentials = credentials
        self._now = now
        self._stage: _Stage | None = None if credentials is None else _Stage.CONNECTED
        self._exchange: Exchange | None = None
        self._mechanism = ""
        self._ends: float | None = None
        self._renewed = 0.0
        self.lifetime_ms = 0
        """For how long the log-in holds from its begin on; 0: for ever."""
        self.bare = False
        """Whether the next frame is a SASL message without a Kafka header."""
        self.user = user

    @property
    def open(self) -> bool:
        return self._stage is None

    @property
    def over(self) -> bool:
        """Whether the log-in has ended, and nothing but a new one may be asked."""
        return self.open and self._ends is not None and self._now() >= self._ends

    @property
    def mechanisms(self) -> tuple[str, ...]:
        return self._credentials.mechanisms if self._credentials is not None else ()

    @property
    def reason(self) -> str:
        """Why the log-in failed, for the test alone."""
        return self._exchange.reason if self._exchange is not None else ""

    @property
    def failed(self) -> bool:
        """Whether the log-in has failed for good; the connection has to end."""
        return self._stage is _Stage.FAILED

    @property
    def logging_in(self) -> bool:
        """Whether a mechanism is chosen and its messages are not through."""
        return self._stage is _Stage.LOGGING_IN

    def may_ask(self, api: str) -> bool:
        return self._stage is None or api in self._stage.value

    def versions_told(self) -> None:
        if self._stage is _Stage.CONNECTED:
            self._stage = _Stage.VERSIONS_KNOWN

    def renew(self) -> bool:
        """Begin another log-in. False where log-ins do not end, and a second time within a second."""
        if self._ends is None or self._now() - self._renewed < 1:
            return False
        self._renewed, self._exchange, self._stage = self._now(), None, _Stage.VERSIONS_KNOWN
        return True

    def choose(self, mechanism: str, version: int) -> bool:
        """Begin the log-in; False, and the session has failed, for a mechanism that is not offered."""
        if self._credentials is None or mechanism not in self._credentials.mechanisms:
            self._stage = _Stage.FAILED
            return False
        self._exchange = begin(mechanism, self._credentials, self._now())
        self._stage, self.bare = _Stage.LOGGING_IN, version == 0
        if self._mechanism not in ("", mechanism):
            self.fail()  # nobody changes it amid a connection
        self._mechanism = mechanism
        return True

    def step(self, token: bytes) -> bytes:
        """The answer to a SASL message. Raises SaslError, and the session has failed."""
        if self._exchange is None:
            raise SaslError("log-in failed: no mechanism was chosen")
        try:
            answer = self._exchange.step(token)
            if self._exchange.user is not None:
                self._log_in(self._exchange.user, self._exchange.ends)
        except SaslError:
            self.fail()
            raise
        return answer

    def _log_in(self, user: str, ends: float | None) -> None:
        if self._ends is not None and user != self.user:
            raise SaslError(f"log-in failed: a connection of {self.user} cannot become one of {user}")
        now, most = self._now(), self._credentials.lifetime if self._credentials is not None else None
        lifetimes = [None if ends is None else ends - now, most]
        lifetime = min((one for one in lifetimes if one is not None), default=None)
        self._ends, self.lifetime_ms = (None, 0) if lifetime is None else (now + lifetime, int(lifetime * 1000))
        self.user, self._stage, self.bare = user, None, False

    def fail(self) -> None:
        self._stage, self.bare = _Stage.FAILED, False
