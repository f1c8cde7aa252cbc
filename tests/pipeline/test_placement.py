"""Records of a topic that no broker has told of yet, with a partition and without: they keep their order."""

from __future__ import annotations

import pytest

from tests.pipeline.rig import rigged

CONFIG = {"message.timeout.ms": 30_000, "socket.timeout.ms": 1000, "linger.ms": 0}
BATCHES = [1, 3]
PATTERNS = [(True, False, True, False, False, True), (False, True, False, True, True, False)]


@pytest.mark.parametrize("mode", ["auto", "held"])
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("named", PATTERNS)
def test_both_kinds_keep_their_order(mode: str, batch: int, named: tuple[bool, ...]) -> None:
    """The topic has one partition; rule 6 is checked at the end."""
    with rigged({"safeproducer.mode": mode, "batch.num.messages": batch, **CONFIG}, {1: 0.02}, {"c": 1}) as rig:
        for names in named:
            assert rig.produce("c", 0 if names else -1)
        rig.close()
        assert len(rig.cluster.log["c", 0]) == len(named)
