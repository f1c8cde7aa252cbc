"""What a program is given by its test: the class of the producer, settings, a topic, and a journal to tell what it did.

The journal is a file, one line each, because it must survive any end of the program and of its children.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import time
import weakref
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

TOPIC = os.environ["APPLICATION_TOPIC"]
SETTINGS: dict[str, Any] = json.loads(os.environ["APPLICATION_SETTINGS"])
_FOLDER = Path(os.environ["APPLICATION_FOLDER"])


def make(**settings: Any) -> Producer:
    """The producer under test. Its account is told when the program ends, behind whatever the program does at exit."""
    module, name = os.environ["APPLICATION_PRODUCER"].split(":")
    producer: Producer = getattr(importlib.import_module(module), name)({**SETTINGS, **settings})
    if hasattr(producer, "snapshot"):
        this = weakref.ref(producer)
        maker = os.getpid()
        # A forked child inherits this, and has nothing to tell of its parent's producer.
        atexit.register(lambda: account(this()) if os.getpid() == maker else None)
    return producer


def say(did: str, **what: Any) -> None:
    """Write a line into the journal: at once, whole, and whoever else writes."""
    line = json.dumps({"did": did, "pid": os.getpid(), **what}) + "\n"
    file = os.open(_FOLDER / "journal", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


def wait_for(step: str) -> None:
    """Go on when the test has made this step."""
    while not (_FOLDER / step).exists():
        time.sleep(0.005)


def accepted(value: str) -> None:
    """`produce()` has taken this record."""
    say("accepted", value=value)


def reported(error: Any, message: Any) -> None:
    """A delivery callback that tells."""
    say("reported", value=message.value().decode(), error=None if error is None else error.name())


def account(producer: Any) -> None:
    """Tell what the producer says of itself; confluent_kafka's says nothing."""
    if hasattr(producer, "snapshot"):
        now = producer.snapshot()
        names = ("accepted", "delivered", "failed", "unresolved", "interrupted")
        say("account", producer=id(producer), **{name: getattr(now, name) for name in names})
