"""The idempotence rules of FakeCluster: a state machine against a model."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from safeproducer.testing.fake.rules.producer_state import Decision, ProducerStates, Sequence

LAST = 2**31 - 1


def test_a_lower_n_counts_at_once_and_a_higher_one_remembers_nothing_back() -> None:
    """Lowering N hides what is still stored; raising it later cannot bring back what an append dropped."""
    states = ProducerStates()
    for number in range(1, 21):
        states.append(Sequence(7, 0, number, number), 100 + number, 1000 + number, 20)
    assert states.decide(Sequence(7, 0, 15, 15), 5)[0] is Decision.OUT_OF_ORDER
    assert states.decide(Sequence(7, 0, 15, 15), 20)[0] is Decision.DUPLICATE
    states.append(Sequence(7, 0, 21, 21), 121, 0, 5)
    assert states.decide(Sequence(7, 0, 15, 15), 20)[0] is Decision.OUT_OF_ORDER


class AgainstModel(RuleBasedStateMachine):
    """Two producers on one replica. The model keeps every batch ever appended and re-derives the window."""

    @initialize(retain=st.integers(5, 8))
    def begin(self, retain: int) -> None:
        self.states, self.retain, self.next_offset = ProducerStates(), retain, 0
        self.history: dict[int, list[tuple[int, list[int], int]]] = {}
        self.remembered: dict[int, int] = {}

    def expected(self, producer: int, epoch: int, numbers: list[int]) -> tuple[Decision, int | None]:
        past = self.history.get(producer, [])
        if not past:
            return Decision.APPEND, None
        newest_epoch, newest, _ = past[-1]
        if epoch < newest_epoch:
            return Decision.FENCED, None
        if epoch > newest_epoch:
            return (Decision.OUT_OF_ORDER if numbers[0] else Decision.APPEND), None
        visible = past[-min(self.remembered[producer], self.retain) :]
        for _, known, offset in reversed(visible):
            if known == numbers:
                return Decision.DUPLICATE, offset
        after = 0 if newest[-1] == LAST else newest[-1] + 1
        return (Decision.APPEND if numbers[0] == after else Decision.OUT_OF_ORDER), None

    def send(self, producer: int, epoch: int, first: int, count: int) -> None:
        numbers = [(first + n) % (LAST + 1) for n in range(count)]
        sequence = Sequence(producer, epoch, numbers[0], numbers[-1])
        decision, copy = self.states.decide(sequence, self.retain)
        assert (decision, copy.offset if copy else None) == self.expected(producer, epoch, numbers)
        if decision is not Decision.APPEND:
            return
        self.states.append(sequence, self.next_offset, 0, self.retain)
        past = self.history.setdefault(producer, [])
        same_epoch = bool(past) and past[-1][0] == epoch
        past.append((epoch, numbers, self.next_offset))
        self.remembered[producer] = min(self.retain, self.remembered[producer] + 1) if same_epoch else 1
        self.next_offset += count

    @rule(producer=st.integers(1, 2), first=st.sampled_from([0, 1, 5, LAST - 3, LAST]), count=st.integers(1, 4))
    def somewhere(self, producer: int, first: int, count: int) -> None:
        self.send(producer, 1, first, count)

    @rule(producer=st.integers(1, 2), count=st.integers(1, 4))
    def next_in_line(self, producer: int, count: int) -> None:
        past = self.history.get(producer, [(0, [LAST], 0)])
        self.send(producer, past[-1][0], (past[-1][1][-1] + 1) % (LAST + 1), count)

    @rule(producer=st.integers(1, 2), back=st.integers(1, 9), cut=st.integers(0, 1), age=st.integers(0, 1))
    def again(self, producer: int, back: int, cut: int, age: int) -> None:
        past = self.history.get(producer, [])
        if len(past) >= back:
            epoch, numbers, _ = past[-back]
            self.send(producer, epoch - age, numbers[0], max(1, len(numbers) - cut))

    @rule(producer=st.integers(1, 2), epoch=st.integers(0, 4), first=st.sampled_from([0, 3]))
    def other_epoch(self, producer: int, epoch: int, first: int) -> None:
        self.send(producer, epoch, first, 2)

    @rule()
    def restart(self) -> None:
        self.states.reload()
        self.remembered = dict.fromkeys(self.remembered, 1)

    @rule(retain=st.integers(5, 8))
    def configure(self, retain: int) -> None:
        self.retain = retain


TestAgainstModel = AgainstModel.TestCase
TestAgainstModel.settings = settings(max_examples=60, stateful_step_count=40)
