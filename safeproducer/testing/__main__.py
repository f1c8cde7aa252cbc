"""`python -m safeproducer.testing` serves a FakeCluster to programs in any language, which order its faults.

Each line of its input is a call in JSON: `{"method": "lose_acks", "api": "EndTxn"}`. Each line of its output is what
came of it: `{"result": null}` or `{"error": "ValueError: ..."}`. The first line has the addresses.
"""

import argparse
import json
import signal
import sys
import threading
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TextIO

from safeproducer.testing import FakeCluster

_WAITS = "wait"
"""The method that cannot be called from here: its argument is a function, which no line can hold."""


def main(arguments: list[str] | None = None) -> int:
    """Serve until the input ends, or with --stay until a signal."""
    parser = argparse.ArgumentParser(prog="python -m safeproducer.testing", description=__doc__, allow_abbrev=False)
    options = 'arguments of FakeCluster in JSON, as {"brokers": 1, "tls": true}'
    parser.add_argument("options", nargs="?", default="{}", type=json.loads, help=options)
    parser.add_argument("--stay", action="store_true", help="go on when the input ends, until a signal")
    asked = parser.parse_args(arguments)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        made = FakeCluster(**asked.options)
    except (TypeError, ValueError) as error:
        parser.error(str(error))
    try:
        with made as cluster:
            _tell(
                {"bootstrap": cluster.bootstrap, **({"ca_file": cluster.ca_file} if asked.options.get("tls") else {})}
            )
            _serve(cluster, sys.stdin)
            if asked.stay:
                threading.Event().wait()
    except KeyboardInterrupt:
        pass
    return 0


def _serve(cluster: FakeCluster, calls: TextIO) -> None:
    for line in calls:
        try:
            asked = json.loads(line)
            name = asked.pop("method")
            if name.startswith("_") or name == _WAITS or not hasattr(FakeCluster, name):
                raise ValueError(f"method: FakeCluster has no {name!r} for a line of input")
            found = getattr(cluster, name)
            _tell({"result": plain(found(**asked) if callable(found) else found)})
        except Exception as error:
            _tell({"error": f"{type(error).__name__}: {error}"})


def plain(value: Any) -> Any:
    """The value as JSON has it: bytes as text, a topic and its partition as `topic-partition`."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, Mapping):
        keys = ("-".join(map(str, key)) if isinstance(key, tuple) else str(key) for key in value)
        return dict(zip(keys, map(plain, value.values()), strict=True))
    names = [field.name for field in fields(value)] if is_dataclass(value) else getattr(value, "_fields", ())
    if names:
        return {name: plain(getattr(value, name)) for name in names}
    return [plain(item) for item in value] if isinstance(value, Iterable) and not isinstance(value, str) else value


def _tell(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
