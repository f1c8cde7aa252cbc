"""This module opens a producer, and makes sure within seconds that it can reach its topic, or says why not."""

import logging
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from safeproducer import SafeProducer
from safeproducer.cli.common.screen import Screen
from safeproducer.cli.common.settings import Setting
from safeproducer.cli.common.stop import Failure, StopRequest
from safeproducer.kafka.admin import ClusterReader, ConfigWriter
from safeproducer.kafka.advice import advice
from safeproducer.kafka.native import KafkaError, KafkaException

_ADDRESS = re.compile(r"^(?:\w+://)?\[?([^\]/\s]+?)\]?:(\d+)/")
_TIMEOUT = 3.0


def why_refused(reason: str, settings: Mapping[str, Setting]) -> str | None:
    """Return OpenSSL's words for the fault in the certificate, None if they cannot be had.

    ``reason`` is librdkafka's, which begins with the broker's address. Makes one TLS handshake with that broker,
    verified by the same authority, and sends nothing over it.
    """
    address = _ADDRESS.match(reason)
    if address is None:
        return None
    authority = settings.get("ssl.ca.location")
    try:
        context = ssl.create_default_context(cafile=authority if isinstance(authority, str) else None)
        with (
            socket.create_connection((address[1], int(address[2])), _TIMEOUT) as connection,
            context.wrap_socket(connection, server_hostname=address[1]),
        ):
            return None
    except ssl.SSLCertVerificationError as error:
        return error.verify_message
    except (OSError, ValueError):
        return None


# A topic that is created on first use, or was created a moment ago, is not known at once.
_TOPIC_APPEARS_WITHIN = 3.0
_NOT_KNOWN_YET = frozenset({"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "LEADER_NOT_AVAILABLE"})
# Reported for one connection attempt, but no later attempt with the same settings can end otherwise.
_CERTAIN = frozenset({"_AUTHENTICATION", "_SSL"})
# From the most telling to the least: a person needs the cause, not its consequences.
_TELLING = ("_AUTHENTICATION", "_SSL", "_RESOLVE", "_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT")
_CONSEQUENCES = frozenset({"_ALL_BROKERS_DOWN", "_TIMED_OUT"})
_HANG_UP = re.compile(r"FAIL \[[^\]]*\] \[[^\]]*\]: (.*Disconnected.*)", re.DOTALL)
_SLICE = 0.25
_REPEAT_AFTER = 30.0


class ConnectionCause(NamedTuple):
    """Why no connection came about: the name of the error's code, and librdkafka's words."""

    code: str
    reason: str


class BrokerErrors:
    """The producer's ``error_cb``: remembers what the brokers or the network refuse, and why.

    Called on the thread that polls. ``fatal`` is the error after which the producer takes no more records.
    """

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._newest: dict[str, KafkaError] = {}
        self._told: dict[str, float] = {}
        self._hang_up: str | None = None
        self.fatal: KafkaError | None = None
        self.talkative = False

    def __call__(self, error: KafkaError) -> None:
        self._newest[error.name()] = error
        if error.fatal():
            self.fatal = error
        elif self.talkative and error.name() != "_ALL_BROKERS_DOWN":
            self._tell(advice(error.name(), error.str()))

    def log(self, message: str) -> None:
        """Take a line of librdkafka's log: a hang-up during the first exchange is reported nowhere else."""
        found = _HANG_UP.match(message)
        if found:
            self._hang_up = found[1]

    def certain(self) -> ConnectionCause | None:
        """Return an error that no waiting will cure."""
        cause = self.cause()
        return cause if self.fatal is not None or (cause is not None and cause.code in _CERTAIN) else None

    def cause(self) -> ConnectionCause | None:
        """Return the error that tells a person most, or None if there was none."""
        if self.fatal is not None:
            return ConnectionCause(self.fatal.name(), self.fatal.str())
        told = next((self._newest[name] for name in _TELLING if name in self._newest), None)
        if self._hang_up is not None and (told is None or told.name() in _CONSEQUENCES):
            return ConnectionCause("_TRANSPORT", self._hang_up)
        return None if told is None else ConnectionCause(told.name(), told.str())

    def _tell(self, sentence: str) -> None:
        """Warn once in a while, not at each of the many attempts to connect."""
        now = time.monotonic()
        if now - self._told.get(sentence, -_REPEAT_AFTER) >= _REPEAT_AFTER:
            self._told[sentence] = now
            self._screen.warn(sentence)


_Client = TypeVar("_Client", SafeProducer, ClusterReader, ConfigWriter)


def opened(kind: type[_Client], settings: Mapping[str, Setting], errors: BrokerErrors) -> _Client:
    """Create a client; a setting that it refuses is a Failure with the way out."""
    logger = logging.Logger("safeproducer.cli.client")
    logger.addHandler(_LogReader(errors))
    with refusals():
        return kind(dict(settings), error_cb=errors, logger=logger)


def opened_reader(settings: Mapping[str, Setting], screen: Screen, timeout: float) -> ClusterReader:
    """Create a client that only reads, and wait for a broker. Raises Failure."""
    errors = BrokerErrors(screen)
    reader = opened(ClusterReader, settings, errors)
    await_topic(reader, None, settings=settings, errors=errors, timeout=timeout, stop=StopRequest())
    return reader


@contextmanager
def refusals() -> Iterator[None]:
    """Turn the refusal of a configuration into a Failure with the way out."""
    try:
        yield
    except KafkaException as error:
        # An error made by this library carries its own advice; one of librdkafka's has only a reason.
        own = getattr(error, "message", None)
        sentence = own if isinstance(own, str) else advice(error.args[0].name(), error.args[0].str())
        raise Failure(sentence, code="configuration") from error
    except (TypeError, ValueError) as error:
        sentence = f"The configuration cannot be used ({error}): correct that setting."
        raise Failure(sentence, code="configuration") from error


@contextmanager
def extra(purpose: str, otherwise: str = "") -> Iterator[None]:
    """Turn an import that fails into a Failure. `purpose`: why it is needed; `otherwise`: the way without it."""
    try:
        yield
    except ModuleNotFoundError as error:
        way_out = f"pip install 'safeproducer[cli]'{otherwise}"
        sentence = f"The package {error.name}, which {purpose}, is not installed: {way_out}."
        raise Failure(sentence, code="missing-package") from error


def await_topic(
    producer: SafeProducer | ClusterReader,
    topic: str | None,
    *,
    settings: Mapping[str, Setting],
    errors: BrokerErrors,
    timeout: float,
    stop: StopRequest,
) -> None:
    """Wait until a broker describes the topic, or a stop was asked for. Without a topic, wait only for a broker.

    Raises Failure as soon as waiting is pointless (password, certificate, rights), at the latest after ``timeout``
    seconds, with the cause that the connection attempts gave.
    """
    started = time.monotonic()
    refusal: KafkaError | None = None
    while not stop:
        waited = time.monotonic() - started
        is_late = waited >= min(timeout, _TOPIC_APPEARS_WITHIN)
        if topic is not None and refusal is not None and (is_late or refusal.name() not in _NOT_KNOWN_YET):
            raise topic_failure(topic, refusal.name(), refusal.str())
        if waited >= timeout:
            raise _connection_failure(errors.cause(), timeout, settings)
        named, patience = {} if topic is None else {"topic": topic}, max(0.01, min(_SLICE, timeout - waited))
        try:
            metadata = producer.list_topics(**named, timeout=patience)
        except KafkaException as error:
            # The two generic ones say only that no answer came; why, the error callback tells.
            if error.args[0].name() not in {"_TRANSPORT", "_TIMED_OUT"}:
                errors(error.args[0])
            serve(producer.poll, errors, 0)
            if (certain := errors.certain()) is not None:
                raise _connection_failure(certain, timeout, settings) from error
            continue
        if topic is None:
            return
        refusal = metadata.topics[topic].error
        if refusal is None and metadata.topics[topic].partitions:
            return
        serve(producer.poll, errors, 0.1)


def serve(call: Callable[[float], int], errors: BrokerErrors, timeout: float) -> None:
    """Call ``poll`` or ``flush`` for reports; a fatal error, which they raise, is noted like any other error."""
    try:
        call(timeout)
    except KafkaException as error:
        errors(error.args[0])


def topic_failure(topic: str, code: str, reason: str) -> Failure:
    return Failure(f"Topic {topic}: {advice(code, reason)}", code=code)


def _connection_failure(cause: ConnectionCause | None, timeout: float, settings: Mapping[str, Setting]) -> Failure:
    code, reason = cause or ConnectionCause("_TIMED_OUT", f"no answer within {timeout:g} s")
    if "certificate verify failed" in reason and (fault := why_refused(reason, settings)) is not None:
        reason = f"{reason}: {fault}"
    return Failure(advice(code, reason), code=code)


class _LogReader(logging.Handler):
    """Keeps librdkafka's log off stderr, where it would repeat each failed attempt, and shows it to BrokerErrors."""

    def __init__(self, errors: BrokerErrors) -> None:
        super().__init__()
        self._errors = errors

    def emit(self, record: logging.LogRecord) -> None:
        self._errors.log(record.getMessage())
