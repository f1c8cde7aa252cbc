"""Key affinity: a key with records under way stays on its lane, and so does one with a record of unknown outcome."""

import time
from collections.abc import Callable
from unittest import mock

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run

from safeproducer.policy.affinity import Affinity

KEYS = [b"a", b"b", b""]
keys = st.sampled_from(KEYS)
lanes = st.integers(0, 2)


def lane_of(affinity: Affinity, key: bytes) -> int | None:
    """The lane this key is bound to; None when it may take any."""
    return affinity._bound.get(key, (None, 0))[0]


def test_a_step_takes_the_same_time_however_much_is_bound() -> None:
    def seconds(bound: int) -> float:
        keys = Affinity()
        for number in range(bound):
            keys.bind(b"%d" % number, number % 20)
        best = 1.0
        for _ in range(20):
            began = time.perf_counter()
            for _ in range(1000):
                keys.bind(b"key", 1)
                keys.release(b"key")
            best = min(best, time.perf_counter() - began)
        return best

    assert seconds(200_000) < 5 * seconds(10)


class AffinityMachine(RuleBasedStateMachine):
    """Against a plain list of records, each with its key, its lane and whether it is in doubt."""

    @initialize()
    def start(self) -> None:
        self.affinity = Affinity()
        self.records: list[tuple[bytes, int, bool]] = []

    def owner(self, key: bytes) -> int | None:
        return next((lane for of, lane, _ in self.records if of == key), None)

    @rule(key=keys, lane=lanes)
    def take(self, key: bytes, lane: int) -> None:
        """As the partition buffer does: whichever lane asks, it goes where the key is bound to, or by that lane."""
        bound = self.owner(key)
        owner = lane if bound is None else bound
        assert self.affinity.bind(key, lane) == owner
        self.records.append((key, owner, False))

    def under_way(self, lane: int | None = None) -> list[tuple[bytes, int, bool]]:
        return [record for record in self.records if not record[2] and lane in (None, record[1])]

    @precondition(lambda self: self.under_way())
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        record = data.draw(st.sampled_from(self.under_way()))
        self.affinity.release(record[0])
        self.records.remove(record)

    @precondition(lambda self: self.under_way())
    @rule(data=st.data())
    def note_unknown(self, data: st.DataObject) -> None:
        lane = data.draw(st.sampled_from(sorted({record[1] for record in self.under_way()})))
        batch = self.under_way(lane)
        self.affinity.note_unknown([key for key, _, _ in batch], lane)
        for record in batch:
            self.records[self.records.index(record)] = (*record[:2], True)

    @rule(lane=lanes)
    def acknowledge(self, lane: int) -> None:
        self.affinity.acknowledged(lane)
        self.records = [record for record in self.records if not (record[2] and record[1] == lane)]

    @rule(lane=lanes)
    def forget(self, lane: int) -> None:
        self.affinity.forget(lane)
        self.records = [record for record in self.records if record[1] != lane]

    @invariant()
    def agrees(self) -> None:
        for key in KEYS:
            assert lane_of(self.affinity, key) == self.owner(key)
        assert len(self.affinity._bound) == len({record[0] for record in self.records})
        assert self.affinity.unknown_outcome == any(record[2] for record in self.records)
        for lane in range(3):
            assert self.affinity.has_unknown(lane) == any(record[2] and record[1] == lane for record in self.records)


def test_keys_are_bound_as_a_plain_list_of_records_says() -> None:
    run(AffinityMachine)


def no_doubt(self: Affinity, keys: list[bytes], lane: int) -> None:
    for key in keys:
        real_release(self, key)


def any_acknowledgement(self: Affinity, lane: int) -> None:
    for unknown_outcome in tuple(self._unknown_outcomes):
        real_acknowledged(self, unknown_outcome)


TO_FIND = settings(
    max_examples=400, database=None, derandomize=True, report_multiple_bugs=False, phases=[Phase.generate]
)
real_release, real_acknowledged = Affinity.release, Affinity.acknowledged


@pytest.mark.parametrize(
    ("method", "bug"),
    [
        ("release", lambda self, key: self._bound.pop(key, None)),
        ("note_unknown", no_doubt),
        ("acknowledged", any_acknowledgement),
        ("forget", real_acknowledged),
    ],
    ids=["released early", "unknown outcomes forgotten", "acknowledged by any lane", "keys of a dead lane stay"],
)
def test_the_model_notices(method: str, bug: Callable[..., None]) -> None:
    with mock.patch.object(Affinity, method, bug), pytest.raises((AssertionError, KeyError, ExceptionGroup)):
        run(AffinityMachine, settings=TO_FIND)
