"""Callbacks, hooks and log handlers of the application run with no lock of a lane held: its native calls run them.

They may take a lock of their own that another thread holds which waits for ours: a logging handler that ships lines to
Kafka does, and stopped the whole application. In tests/reentry such handlers call the producer.
"""

from typing import Any

from safeproducer.kafka.lane_client import LaneClient


def test_no_call_that_serves_holds_the_lock_of_its_lane() -> None:
    """It is for questions alone, so that none is asked of a native producer that is being closed."""
    held: dict[str, bool] = {}

    class Native:
        def __getattr__(self, name: str) -> Any:
            return lambda *_: held.update({name: lane._asking.locked()})

    native: Any = Native()
    lane = LaneClient(native)
    lane.serve()
    lane.wait(0)
    lane.trigger_flush()
    lane.list_topics("t", 0)
    assert held == {"poll": False, "flush": False, "list_topics": True}
