"""The users who may log in: user names and what checks a password, for PLAIN and SCRAM. Prints no secret, ever."""

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["SCRAM_DIGESTS", "Credentials", "ScramKeys"]

SCRAM_DIGESTS = {"SCRAM-SHA-256": "sha256"}
ITERATIONS = 4096
"""Iterations that Kafka asks for at least, and makes by default."""


@dataclass(frozen=True, slots=True)
class ScramKeys:
    """A server's record of one password for one SCRAM mechanism (RFC 5802)."""

    salt: bytes
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


class Credentials:
    """Users and their passwords. It is not thread-safe. Raises ValueError for an empty name or password."""

    def __init__(self, users: Mapping[str, str]) -> None:
        if not users:
            raise ValueError("users: nobody could log in; give at least one user with a password, or leave it out")
        for user, password in users.items():
            if not user or not password or "\0" in user + password:
                raise ValueError(f"users: {user!r} needs a name and a password, both without a zero character")
        self._passwords = {user: password.encode() for user, password in users.items()}
        self._keys: dict[tuple[str, str], ScramKeys] = {}

    def __repr__(self) -> str:
        return f"Credentials({len(self._passwords)} users)"

    def verify(self, user: str, password: str) -> bool:
        """Whether this is the user's password."""
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
