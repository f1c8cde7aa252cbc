"""A producer on scripted brokers that has had an acknowledgement."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.pipeline.rig import Rig, rigged


@contextmanager
def warmed(config: dict[str, Any], *arguments: Any, rest: float = 0.0, **named: Any) -> Iterator[Rig]:
    """Of a record for the first partition of "a", so many seconds ago."""
    with rigged(config, *arguments, **named) as rig:
        assert rig.produce("a", 0)
        rig.flush(10)
        rig.report_queue(rest)
        yield rig


@contextmanager
def direct(config: dict[str, Any]) -> Iterator[Rig]:
    """Of all its records, and the next ones go directly."""
    with rigged(config) as rig:
        while not rig.engine.route.goes_direct or rig.engine.updates.holds.slow_start:
            assert rig.produce("a", 0)
            rig.poll(0.05)
        rig.flush(5)
        yield rig
