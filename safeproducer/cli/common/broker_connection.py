"""A connection to one broker for what librdkafka does not ask: TLS, SASL by PLAIN and SCRAM, one request at a time."""

import base64
import hashlib
import hmac
import itertools
import secrets
import socket
import struct
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from safeproducer.cli.common.admin_settings import AdminSettings, AskError
from safeproducer.kafka.native import KafkaError
from safeproducer.testing.codec import WireError
from safeproducer.testing.wire import api_key, decode_response, encode_request

_VERSIONS = {"SaslHandshake": 1, "Metadata": 4, "DescribeLogDirs": 1}
"""The oldest that Kafka 4 takes and that has what is asked for; 0 for others."""
_ITERATIONS = 4096
"""Kafka has no fewer: a server that asks for less may be after the password."""
_SIZE = struct.Struct(">i")


def refusal(code: int, text: str | None = None) -> AskError:
    """Return what a broker refused by this number of Kafka's; `text` is what it says to it."""
    error = KafkaError(code)
    return AskError(error.name(), text or error.str())


class BrokerConnection:
    """A connection to one broker, opened by the first request. For one thread, but for close().

    After `timeout` seconds without an answer, or a log-in in vain, every request fails at once, and none waits again.
    """

    def __init__(self, address: str, settings: AdminSettings, timeout: float) -> None:
        host, _, port = address.rpartition(":")
        self._address, self._settings, self._timeout = (host.strip("[]"), int(port)), settings, timeout
        self._socket: socket.socket | None = None
        self._error: AskError | None = None
        self._served: frozenset[int] = frozenset()
        self._numbers = itertools.count(1)

    def close(self) -> None:
        """Also while another thread waits for an answer: it has none."""
        if self._socket is not None:
            with suppress(OSError):  # it is closed already
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()

    def request(self, api: str, body: Mapping[str, Any], within: float | None = None) -> dict[str, Any]:
        """Return the answer. Raises AskError if there is none, or if the broker does not know the API."""
        if self._error is not None:
            raise self._error
        ends = time.monotonic() + (self._timeout if within is None else within)
        try:
            connection = self._socket or self._connect(ends)
            if api_key(api) in self._served:
                return self._exchange(connection, api, body, ends)
        except (OSError, EOFError, ValueError, KeyError) as error:
            where, late = "{}:{}".format(*self._address), isinstance(error, TimeoutError)
            why = f"{where} did not answer in time" if late else f"{where}: {error or type(error).__name__}"
            self._error = AskError("_TIMED_OUT" if late else "_TRANSPORT", why)
        except AskError as error:
            self._error = error
        if self._error is None:
            raise refusal(KafkaError.UNSUPPORTED_VERSION)
        self.close()
        raise self._error

    def _connect(self, ends: float) -> socket.socket:
        """Connect and log in. Raises AskError if that is in vain."""
        host, settings = self._address[0], self._settings
        connection = self._socket = socket.create_connection(self._address, max(0.001, ends - time.monotonic()))
        if settings.context is not None:
            connection = self._socket = settings.context.wrap_socket(connection, server_hostname=host)
        served = self._exchange(connection, "ApiVersions", {}, ends)["api_keys"]
        self._served = frozenset(one["api_key"] for one in served)
        if settings.mechanism is None:
            return connection
        answer = self._exchange(connection, "SaslHandshake", {"mechanism": settings.mechanism}, ends)
        if answer["error_code"]:
            offered = f"The broker offers {', '.join(answer['mechanisms'])}, not {settings.mechanism}."
            raise refusal(answer["error_code"], offered)

        def send(token: bytes) -> bytes:
            told = self._exchange(connection, "SaslAuthenticate", {"auth_bytes": token}, ends)
            if told["error_code"]:
                raise refusal(told["error_code"], told["error_message"])
            return bytes(told["auth_bytes"])

        log_in(settings, send)
        return connection

    def _exchange(self, connection: socket.socket, api: str, body: Mapping[str, Any], ends: float) -> dict[str, Any]:
        number, version = next(self._numbers), _VERSIONS.get(api, 0)
        frame = encode_request(api, version, number, self._settings.client_id, dict(body))
        connection.settimeout(max(0.001, ends - time.monotonic()))
        connection.sendall(_SIZE.pack(len(frame)) + frame)
        (size,) = _SIZE.unpack(_read(connection, _SIZE.size, ends))
        told, answer = decode_response(api, version, _read(connection, size, ends))
        if told != number:
            raise WireError(f"the answer to request {told} came, that to {number} was awaited")
        return answer


def _read(connection: socket.socket, size: int, ends: float) -> bytes:
    data = bytearray()
    while len(data) < size:
        connection.settimeout(max(0.001, ends - time.monotonic()))
        part = connection.recv(min(size - len(data), 1 << 20))
        if not part:
            raise EOFError("the broker closed the connection")
        data += part
    return bytes(data)


def log_in(settings: AdminSettings, send: Callable[[bytes], bytes]) -> None:
    """By the mechanism of the settings; `send` gives the broker's answer. Raises ValueError if that is not Kafka's."""
    user, password, mechanism = settings.username, settings.password, str(settings.mechanism)
    if mechanism == "PLAIN":
        send(f"\0{user}\0{password}".encode())
        return
    digest, nonce = mechanism.removeprefix("SCRAM-").replace("-", "").lower(), secrets.token_urlsafe(24)
    begun = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
    challenge = send(f"n,,{begun}".encode()).decode()
    told = _attributes(challenge)
    if not told["r"].startswith(nonce) or int(told["i"]) < _ITERATIONS:
        raise ValueError("the broker's answer is not that of SCRAM")
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), base64.b64decode(told["s"]), int(told["i"]))
    key = hmac.digest(salted, b"Client Key", digest)
    last = f"c=biws,r={told['r']}"
    signed = f"{begun},{challenge},{last}".encode()
    signature = hmac.digest(hashlib.new(digest, key).digest(), signed, digest)
    proof = base64.b64encode(bytes(one ^ other for one, other in zip(key, signature, strict=True)))
    verified = _attributes(send(f"{last},p={proof.decode()}".encode()).decode())
    expected = hmac.digest(hmac.digest(salted, b"Server Key", digest), signed, digest)
    if not hmac.compare_digest(base64.b64decode(verified["v"]), expected):
        raise ValueError("the broker does not know the password")


def _attributes(message: str) -> dict[str, str]:
    return {name: value for name, _, value in (part.partition("=") for part in message.split(","))}
