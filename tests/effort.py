"""How hard a state machine searches for a planted bug: until the first one, and the same way each time."""

from hypothesis import HealthCheck, Phase, settings


def effort(max_examples: int, steps: int) -> settings:
    """So many histories of so many steps at most."""
    return settings(
        max_examples=max_examples,
        stateful_step_count=steps,
        database=None,
        derandomize=True,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
