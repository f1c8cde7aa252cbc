"""What `safeproducer.spark.on.worker` names in test_spark_exactly_once.py: workers that die, or stand still, at the
steps of their slot. Each notes it first."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from typing import Any

from integration.spark_faults import REPORTS
from safeproducer.spark import slot
from safeproducer.spark.markers import Step

CHANCE = 0.03
"""To die before a step, and behind it; of an Arrow batch a tenth of it."""
STOP, STOPPED, DEATHS = "stop", "stopped", "deaths"
_dice = random.Random()


def stand_still() -> None:
    """As arm(), and none dies."""
    global CHANCE  # noqa: PLW0603 - of this worker
    CHANCE = 0.0
    arm()


def arm() -> None:
    """In each worker, once."""
    folder = Path(os.environ[REPORTS]).parent
    carry_out, note = slot._Session.carry_out, slot._Session._note

    def perhaps_die(where: str, part: float = 1) -> None:
        if _dice.random() < CHANCE * part:
            with (folder / DEATHS).open("a") as file:
                file.write(f"{where}\n")
            os.kill(os.getpid(), signal.SIGKILL)

    def step(session: Any, command: Any) -> Any:
        name = command.value if isinstance(command, Step) else "commit"
        perhaps_die(f"before {name}")
        if name == "commit" and (folder / STOP).exists():
            (folder / STOP).unlink()
            (folder / STOPPED).touch()
            os.kill(os.getpid(), signal.SIGSTOP)
        answer = carry_out(session, command)
        perhaps_die(f"behind {name}")
        return answer

    def noted(session: Any, batch: Any) -> Any:
        perhaps_die("among rows", 0.1)
        return note(session, batch)

    setattr(slot._Session, "carry_out", step)  # noqa: B010 - it is another function
    setattr(slot._Session, "_note", noted)  # noqa: B010
