"""The user of a connection, and which requests it may make before the log-in.

Kafka's order on a SASL listener: at most one ApiVersions, then SaslHandshake, then the mechanism's messages, and from
then on everything. Whatever else comes too early ends the connection; between handshake and log-in it is answered with
error 34 (ILLEGAL_SASL_STATE) first. Since handshake version 1 (KIP-152) the
messages travel in SaslAuthenticate requests, before it they travel bare, with four bytes of size, and a failure has no
answer.
"""

from enum import Enum

from safeproducer.testing.fake.credentials import Credentials
from safeproducer.testing.fake.state.sasl import MECHANISMS, Exchange, SaslError, begin

__all__ = ["ANONYMOUS", "MAX_UNAUTHENTICATED", "Session"]

ANONYMOUS = "ANONYMOUS"
MAX_UNAUTHENTICATED = 524_288
"""``sasl.server.max.receive.size``: no stranger may make a broker hold more."""


class _Stage(Enum):
    CONNECTED = frozenset({"ApiVersions", "SaslHandshake"})
    VERSIONS_KNOWN = frozenset({"SaslHandshake"})
    LOGGING_IN = frozenset({"SaslAuthenticate", "SaslHandshake"})
    FAILED = frozenset[str]()


class Session:
    """One connection's log-in; without credentials everybody is ANONYMOUS and may ask everything."""

    def __init__(self, credentials: Credentials | None) -> None:
        self._credentials = credentials
        self._stage: _Stage | None = None if credentials is None else _Stage.CONNECTED
        self._exchange: Exchange | None = None
        self.bare = False
        """Whether the next frame is a SASL message without a Kafka header."""
        self.user = ANONYMOUS

    @property
    def open(self) -> bool:
        """Whether everything may be asked."""
        return self._stage is None

    @property
    def failed(self) -> bool:
        """Whether the log-in has failed for good; the connection has to end."""
        return self._stage is _Stage.FAILED

    @property
    def chosen(self) -> bool:
        """Whether there is a mechanism already, and no second handshake is in order."""
        return self._exchange is not None

    @property
    def logging_in(self) -> bool:
        """Whether a mechanism is chosen and its messages are not through."""
        return self._stage is _Stage.LOGGING_IN

    def may_ask(self, api: str) -> bool:
        """Whether this API is in order now."""
        return self._stage is None or api in self._stage.value

    def versions_told(self) -> None:
        """ApiVersions was answered."""
        if self._stage is _Stage.CONNECTED:
            self._stage = _Stage.VERSIONS_KNOWN

    def choose(self, mechanism: str, version: int) -> bool:
        """Begin the log-in; False, and the session has failed, for a mechanism that is not offered."""
        if self._credentials is None or mechanism not in MECHANISMS:
            self._stage = _Stage.FAILED
            return False
        self._stage, self._exchange, self.bare = _Stage.LOGGING_IN, begin(mechanism, self._credentials), version == 0
        return True

    def step(self, token: bytes) -> bytes:
        """The answer to a SASL message. Raises SaslError, and the session has failed."""
        if self._exchange is None:
            raise SaslError("log-in failed: no mechanism was chosen")
        try:
            answer = self._exchange.step(token)
        except SaslError:
            self.fail()
            raise
        if self._exchange.user is not None:
            self.user, self._stage, self.bare = self._exchange.user, None, False
        return answer

    def fail(self) -> None:
        """No more of this."""
        self._stage, self.bare = _Stage.FAILED, False
