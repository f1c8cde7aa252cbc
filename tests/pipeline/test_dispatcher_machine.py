"""Whatever happens in whatever order: throttle times honoured, order kept, each record ends once, memory bounded."""

import os

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from tests.pipeline.machine import (
    CalmHeldMachine,
    CalmKeyedMachine,
    CalmMachine,
    CountedMachine,
    ExpiryMachine,
    FeedMachine,
    HeldExpiryMachine,
    HeldMachine,
    HeldRenewedMachine,
    KeyedAutoMachine,
    KeyedMachine,
    KeyedRenewedMachine,
    RenewedMachine,
)

EFFORT = settings(
    max_examples=int(os.environ.get("FEED_EXAMPLES", "15")),
    stateful_step_count=30,
    derandomize="FEED_EXAMPLES" not in os.environ,
    database=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
    phases=[Phase.explicit, Phase.generate],  # shrinking a history takes minutes
)
"""FEED_EXAMPLES: how many histories to try, others each time; more find more. Without it they are always the same."""


@pytest.mark.timeout(0 if "FEED_EXAMPLES" in os.environ else 600)
@pytest.mark.parametrize(
    "machine",
    [
        FeedMachine,
        HeldMachine,
        CalmMachine,
        CalmHeldMachine,
        KeyedMachine,
        KeyedAutoMachine,
        CalmKeyedMachine,
        CountedMachine,
        ExpiryMachine,
        HeldExpiryMachine,
        RenewedMachine,
        HeldRenewedMachine,
        KeyedRenewedMachine,
    ],
)
def test_the_rules_hold(machine: type[RuleBasedStateMachine]) -> None:
    """In both modes, on good days and on bad ones."""
    run_state_machine_as_test(machine, settings=EFFORT)
