"""The classes that stand for confluent_kafka's in an application under `safeproducer run`.

They add settings and count. `observe` leaves the client as the application configured it, and asks brokers nothing.

The account of the records of a process is told when the process ends. Totals of producers that are gone are folded in.
A forked child begins at zero. SIGKILL and os._exit() tell nothing.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib.abc import MetaPathFinder
from importlib.util import find_spec
from typing import Any

import safeproducer.pipeline.assembly  # noqa: F401 - while the application can still go on without it
from safeproducer.errors import ConfigurationError
from safeproducer.hooks import Hook, Throttled
from safeproducer.kafka.native import KafkaError
from safeproducer.producer import SafeProducer
from safeproducer.runtime import clock, forks, lifetime
from safeproducer.runtime.totals import Totals, added
from safeproducer.serializing import SafeSerializingProducer
from safeproducer.settings import own_settings
from safeproducer.settings.id_settings import LEDGER_VARIABLE, POLICY_VARIABLE

MODE_VARIABLE, SUMMARY_VARIABLE = "SAFEPRODUCER_RUN_MODE", "SAFEPRODUCER_RUN_SUMMARY"
OBSERVE = "observe"
_COUNTS = ("accepted", "delivered", "unknown", "not_written", "producer_ids")
_LINE = (
    "safeproducer run: process {pid}, {mode}: {producers} producer(s), {accepted} accepted, {delivered} delivered, "
    "{unknown} unknown, {not_written} not written, {without_report} without a report; {producer_ids} producer ID(s); "
    "throttled for {throttled_seconds} s of {seconds} s"
)
_OBSERVED = {
    own_settings.MODE: "passthrough",
    own_settings.PRODUCER_IDS_POLICY: "warn",
    own_settings.EXPIRY: "off",
    own_settings.REPLICATION: "off",
}
_BY_THEMSELVES = (LEDGER_VARIABLE, POLICY_VARIABLE)
"""Variables that win over settings, with or without this command."""


class RunAccount(Hook):
    """Any thread. One for each process."""

    def __init__(self) -> None:
        self.renew()
        forks.in_child(self.renew)
        lifetime.at_end(self.tell)

    def renew(self) -> None:
        """In a child, which has made nothing yet."""
        self._began = clock.real()
        self._totals: Totals[str] = Totals(_counts)
        self._made, self._throttled, self._told = 0, 0.0, False

    def throttled(self, event: Throttled) -> None:
        self._throttled += event.seconds

    def _producer_began(self, engine: Any) -> None:
        self._made += 1
        self._totals.join(engine)

    def _producer_ended(self, engine: Any) -> None:
        self._totals.leave(engine)

    def totals(self) -> dict[str, Any]:
        found = added(dict.fromkeys(_COUNTS, 0), self._totals.now())
        without = found["accepted"] - found["delivered"] - found["unknown"] - found["not_written"]
        ids = found.pop("producer_ids")
        return {
            "pid": os.getpid(),
            "command": sys.orig_argv,
            "mode": os.environ.get(MODE_VARIABLE, OBSERVE),
            "producers": self._made,
            **found,
            "without_report": without,
            "producer_ids": ids,
            "throttled_seconds": round(self._throttled, 3),
            "seconds": round(clock.real() - self._began, 3),
        }

    def tell(self) -> None:
        """Write the summary: once, if there is something to tell."""
        if not self._made or self._told:
            return
        self._told = True
        found, path = self.totals(), os.environ.get(SUMMARY_VARIABLE)
        if path:
            try:
                with open(path, "ab", buffering=0) as file:  # one call: several processes append
                    file.write(json.dumps(found).encode() + b"\n")
                return
            except OSError as error:
                _say(f"safeproducer run: {path} cannot be written ({error.strerror}); so here:")
        _say(_LINE.format(**found))


def _counts(engine: Any) -> dict[str, int]:
    counters, failures = engine.counters, engine.failures
    accepted, delivered, _ = counters.totals()
    waiting = counters.written().total()  # and not polled
    counts = accepted, delivered + waiting, failures.unknown, failures.not_written, engine.gate.taken
    return dict(zip(_COUNTS, counts, strict=True))


def _say(text: str) -> None:
    with suppress(OSError, ValueError, AttributeError):  # it is closed, or there is none
        print(text, file=sys.__stderr__, flush=True)


account = RunAccount()


def _given(args: tuple[Any, ...], config: Mapping[str, Any]) -> dict[str, Any] | None:
    """The application's settings in one dict; None for what confluent_kafka refuses."""
    if not args:
        return dict(config) or None
    return {**args[0], **config} if len(args) == 1 and isinstance(args[0], dict) else None


def _added(conf: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """(the settings, with those of the command and of the environment; by setting the variable that it came from)."""
    mode = os.environ.get(MODE_VARIABLE, OBSERVE)
    names, added = set(own_settings.OWN_SETTINGS), {own_settings.MODE: mode, **conf}
    if mode == OBSERVE:  # all else would change what the client does
        names, added = {own_settings.PRODUCER_IDS_PER_HOUR}, {**conf, **_OBSERVED}
        if not conf.get("transactional.id"):
            added = {"enable.idempotence": False, **added}
    variables = {name: name.upper().replace(".", "_") for name in names if name not in added}
    found = {name: it for name, it in variables.items() if os.environ.get(it) and it not in _BY_THEMSELVES}
    return {**added, **{name: os.environ[variable] for name, variable in found.items()}}, found


def _naming(error: ConfigurationError, variables: Mapping[str, str]) -> ConfigurationError:
    """The error, with the environment variable that it is about."""
    if error.setting in variables:
        error.message += f". It comes from the environment variable {variables[error.setting]}"
        error.args = (KafkaError(KafkaError._INVALID_ARG, error.message),)
    return error.with_traceback(None)  # frames that know secrets, as in SafeProducer


class Producer(SafeProducer):
    """Takes the place of confluent_kafka.Producer under `safeproducer run`."""

    def __init__(self, *args: Any, **config: Any) -> None:
        variables: dict[str, str] = {}
        try:
            if (conf := _given(args, config)) is not None:
                added, variables = _added(conf)
                args, config = (added,), {}
            super().__init__(*args, hooks=(account,), **config)
        except ConfigurationError as error:
            raise _naming(error, variables) from None
        finally:
            args, conf, added = (), None, {}
            del config


class SerializingProducer(SafeSerializingProducer):
    """Takes the place of confluent_kafka.SerializingProducer under `safeproducer run`."""

    def __init__(self, conf: dict[str, Any]) -> None:
        variables: dict[str, str] = {}
        try:
            if isinstance(conf, dict):
                conf, variables = _added(conf)
            super().__init__(conf, hooks=(account,))
        except ConfigurationError as error:
            raise _naming(error, variables) from None
        finally:
            del conf


def replace(module: Any) -> None:
    """Put them into `module`, which is confluent_kafka. Its submodules need their own names themselves."""
    module.Producer, module.SerializingProducer = Producer, SerializingProducer
    if os.environ.get(MODE_VARIABLE, OBSERVE) != OBSERVE:  # else its own AIOProducer, with the Producer above in it
        sys.meta_path.insert(0, _AioFinder())


class _AioFinder(MetaPathFinder):
    """Puts AIOProducer into the package of confluent_kafka's one, before confluent_kafka.aio reads it there.

    So AsyncSerializingProducer derives from it, too.
    """

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        """The spec of the real package, whose loader replaces the class when the code has run."""
        if name != "confluent_kafka.aio.producer":
            return None
        with suppress(ValueError):  # another thread was quicker
            sys.meta_path.remove(self)
        spec: Any = find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                module.AIOProducer = _aio_producer()

            spec.loader.exec_module = exec_module
        return spec


def _aio_producer() -> Any:
    from safeproducer.aio import AIOProducer as SafeAIOProducer  # noqa: PLC0415 - it loads asyncio

    class AIOProducer(SafeAIOProducer):
        """Takes the place of confluent_kafka.aio.AIOProducer under `safeproducer run`."""

        def __init__(self, producer_conf: dict[str, Any], *args: Any, **more: Any) -> None:
            variables: dict[str, str] = {}
            try:
                added, variables = _added(producer_conf)
                super().__init__(added, *args, hooks=(account,), **more)
            except ConfigurationError as error:
                raise _naming(error, variables) from None
            finally:
                del producer_conf
                added = {}

    return AIOProducer
