"""Which partition may send on a lane that was purged, for counted batches and for records of librdkafka's own."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from safeproducer.policy.sequence_gaps import KEPT_OUT, SequenceGaps

A, B, C = ("a", 0), ("a", 1), ("a", 2)
NOW = 100.0
tps = st.sampled_from([A, B, C])


def purged(*tps: tuple[str, int], epoch: int | None = None) -> SequenceGaps:
    gaps = SequenceGaps()
    gaps.purged(tps, NOW, epoch)
    return gaps


def test_a_lane_without_gaps_takes_all() -> None:
    gaps = SequenceGaps()
    gaps.keep_others_out(NOW + 1)
    assert gaps.takes(A, empty=False, now=NOW)
    assert gaps.lets_in(A, empty=False, now=NOW)
    assert not gaps.closed_to(A, NOW)
    gaps.sent(A)
    assert gaps.exclusive is None


def test_a_batch_waits_for_its_turn_and_keeps_others_out() -> None:
    gaps = purged(A)
    assert not gaps.takes(A, empty=False, now=NOW)
    assert gaps.takes(B, empty=False, now=NOW)
    gaps.keep_others_out(NOW + 1)
    assert not gaps.takes(B, empty=False, now=NOW)
    assert gaps.takes(B, empty=False, now=NOW + 1)
    assert gaps.takes(A, empty=True, now=NOW)


def test_the_gap_is_over_with_an_acknowledgement_alone() -> None:
    """Not with an answer that says nothing of the batch."""
    gaps = purged(A)
    gaps.sent(A)
    gaps.answered(A)
    assert A in gaps
    assert not gaps.takes(A, empty=False, now=NOW)
    gaps.acknowledged(A)
    assert not gaps
    assert gaps.takes(A, empty=False, now=NOW)


def test_partitions_have_the_direct_lane_one_after_the_other() -> None:
    gaps = purged(A, B)
    assert gaps.closed_to(A, NOW)
    assert not gaps.lets_in(A, empty=False, now=NOW)
    assert gaps.lets_in(A, empty=True, now=NOW)
    assert gaps.lets_in(A, empty=False, now=NOW)
    assert not gaps.lets_in(B, empty=False, now=NOW)
    assert not gaps.lets_in(C, empty=False, now=NOW + KEPT_OUT)
    assert gaps.lets_in(B, empty=True, now=NOW)
    assert gaps.closed_to(A, NOW)
    gaps.end_exclusive()
    assert gaps.closed_to(B, NOW)


def test_a_partition_without_a_gap_does_not_wait_for_one_that_has_no_records() -> None:
    """It waited for ever: nothing that came filled the gap."""
    gaps = purged(A)
    assert gaps.lets_in(C, empty=True, now=NOW)
    assert gaps.lets_in(C, empty=False, now=NOW)
    assert not gaps.lets_in(A, empty=False, now=NOW)
    assert not gaps.lets_in(C, empty=True, now=NOW), "it is to be empty for the other one"
    assert gaps.lets_in(C, empty=True, now=NOW + KEPT_OUT)
    assert gaps.lets_in(A, empty=True, now=NOW)
    assert not gaps.lets_in(C, empty=False, now=NOW + KEPT_OUT)
    assert gaps.lets_in(C, empty=True, now=NOW + KEPT_OUT), "the other one has sent nothing"


def test_a_new_epoch_has_no_gaps() -> None:
    """One that is not known, or not later than the purge, says nothing."""
    gaps = purged(A, epoch=3)
    for epoch in (None, 2, 3):
        gaps.in_epoch(epoch)
        assert A in gaps
    gaps.in_epoch(4)
    assert not gaps
    gaps = purged(A)
    gaps.in_epoch(4)
    assert A in gaps


class BatchLaneMachine(RuleBasedStateMachine):
    """Batches go when they may, are answered, and are purged, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.gaps = SequenceGaps()
        self.under_way: list[tuple[tuple[str, int], bool]] = []

    @rule(tp=tps)
    def send(self, tp: tuple[str, int]) -> None:
        if self.gaps.takes(tp, not self.under_way, NOW):
            self.under_way.append((tp, tp in self.gaps))
            self.gaps.sent(tp)

    @precondition(lambda self: self.under_way)
    @rule(data=st.data(), delivered=st.booleans())
    def answer(self, data: st.DataObject, delivered: bool) -> None:
        tp, _ = self.under_way.pop(data.draw(st.integers(0, len(self.under_way) - 1)))
        if delivered:
            self.gaps.acknowledged(tp)
        self.gaps.answered(tp)

    @rule()
    def purge(self) -> None:
        self.gaps.purged([tp for tp, _ in self.under_way], NOW)

    @invariant()
    def what_may_find_a_gap_is_alone(self) -> None:
        assert len(self.under_way) == 1 or not any(finds for _, finds in self.under_way)


class DirectLaneMachine(BatchLaneMachine):
    """Records go when it is their partition's turn; the lane does not tell of the end of one."""

    @rule(tp=tps, later=st.sampled_from([0.0, KEPT_OUT]))
    def send(self, tp: tuple[str, int], later: float = 0.0) -> None:
        if self.gaps.lets_in(tp, not self.under_way, NOW + later):
            self.under_way.append((tp, tp in self.gaps))

    @precondition(lambda self: self.under_way)
    @rule(data=st.data(), delivered=st.booleans())
    def answer(self, data: st.DataObject, delivered: bool) -> None:
        tp, _ = self.under_way.pop(data.draw(st.integers(0, len(self.under_way) - 1)))
        if delivered:
            self.gaps.acknowledged(tp)
            self.under_way = [(other, finds and other != tp) for other, finds in self.under_way]

    @rule()
    def purge(self) -> None:
        super().purge()
        self.under_way = []
        self.gaps.end_exclusive()

    @invariant()
    def what_may_find_a_gap_is_alone(self) -> None:
        assert len({tp for tp, _ in self.under_way}) == 1 or not any(finds for _, finds in self.under_way)


TestBatchLane = BatchLaneMachine.TestCase
TestDirectLane = DirectLaneMachine.TestCase
