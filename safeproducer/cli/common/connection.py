"""This module opens clients, and makes sure within seconds that a broker answers, or says why not."""

import logging
import re
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from safeproducer import SafeProducer
from safeproducer.cli.common.admin_settings import admin_settings
from safeproducer.cli.common.screen import Screen
from safeproducer.cli.common.settings import Setting
from safeproducer.cli.common.stop import Failure
from safeproducer.kafka.admin import ClusterReader, ConfigWriter
from safeproducer.kafka.advice import advice
from safeproducer.kafka.native import KafkaError, KafkaException

_ADDRESS = re.compile(r"^(?:\w+://)?\[?([^\]/\s]+?)\]?:(\d+)/")
_TIMEOUT = 3.0
# Reported for one connection attempt, but no later attempt with the same settings can end otherwise.
_CERTAIN = frozenset({"_AUTHENTICATION", "_SSL"})
# From the most telling to the least: a person needs the cause, not its consequences.
_TELLING = ("_AUTHENTICATION", "_SSL", "_RESOLVE", "_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT")
_CONSEQUENCES = frozenset({"_ALL_BROKERS_DOWN", "_TIMED_OUT"})
_HANG_UP = re.compile(r"FAIL \[[^\]]*\] \[[^\]]*\]: (.*Disconnected.*)", re.DOTALL)
_SLICE = 0.25
_REPEAT_AFTER = 30.0
_Client = TypeVar("_Client", SafeProducer, ClusterReader, ConfigWriter)


def why_refused(reason: str, settings: Mapping[str, Setting]) -> str | None:
    """Return OpenSSL's words for the fault in the certificate, None if they cannot be had.

    ``reason`` is librdkafka's, which begins with the broker's address. Makes one TLS handshake with that broker by the
    same settings, and sends nothing over it.
    """
    address = _ADDRESS.match(reason)
    if address is None:
        return None
    try:
        context = admin_settings(settings).context or ssl.create_default_context()
        with (
            socket.create_connection((address[1], int(address[2])), _TIMEOUT) as connection,
            context.wrap_socket(connection, server_hostname=address[1]),
        ):
            return None
    except ssl.SSLCertVerificationError as error:
        return error.verify_message
    except (Failure, OSError, ValueError):
        return None


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
            sentence, now = advice(error.name(), error.str()), time.monotonic()
            # Once in a while, not at each of the many attempts to connect.
            if now - self._told.get(sentence, -_REPEAT_AFTER) >= _REPEAT_AFTER:
                self._told[sentence] = now
                self._screen.warn(sentence)

    def log(self, record: logging.LogRecord) -> bool:
        """Take a line of librdkafka's log, and keep it off stderr, where it would repeat each failed attempt.

        A hang-up during the first exchange is reported nowhere else.
        """
        if found := _HANG_UP.match(record.getMessage()):
            self._hang_up = found[1]
        return False

    def cause(self) -> tuple[str, str] | None:
        """Return code and words of the error that tells a person most, or None if there was none."""
        told = next((self._newest[name] for name in _TELLING if name in self._newest), None)
        if self._hang_up is not None and (told is None or told.name() in _CONSEQUENCES):
            return "_TRANSPORT", self._hang_up
        return None if told is None else (told.name(), told.str())


def opened(kind: type[_Client], settings: Mapping[str, Setting], errors: BrokerErrors) -> _Client:
    """Create a client; a setting that it refuses is a Failure with the way out."""
    logger = logging.Logger("safeproducer.cli.client")
    logger.addFilter(errors.log)
    with refusals():
        return kind(dict(settings), error_cb=errors, logger=logger)


def opened_reader(settings: Mapping[str, Setting], screen: Screen, timeout: float) -> ClusterReader:
    """Create a client that only reads, and wait until a broker answers it.

    Raises Failure as soon as waiting is pointless (password, certificate), at the latest after ``timeout`` seconds,
    with the cause that the connection attempts gave.
    """
    errors = BrokerErrors(screen)
    reader, ends = opened(ClusterReader, settings, errors), time.monotonic() + timeout
    while (left := ends - time.monotonic()) > 0:
        try:
            reader.list_topics(max(0.01, min(_SLICE, left)))
            return reader
        except KafkaException as error:
            # The two generic ones say only that no answer came; why, the error callback tells.
            if error.args[0].name() not in {"_TRANSPORT", "_TIMED_OUT"}:
                errors(error.args[0])
        reader.poll(0)
        if (cause := errors.cause()) is not None and cause[0] in _CERTAIN:
            break
    code, reason = errors.cause() or ("_TIMED_OUT", f"no answer within {timeout:g} s")
    if "certificate verify failed" in reason and (fault := why_refused(reason, settings)) is not None:
        reason = f"{reason}: {fault}"
    raise Failure(advice(code, reason), code=code)


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


def topic_failure(topic: str, code: str, reason: str) -> Failure:
    return Failure(f"Topic {topic}: {advice(code, reason)}", code=code)
