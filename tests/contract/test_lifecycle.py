"""From construction to close(): context manager, use after close, second __init__, subclassing, identity."""

import copy
import gc
import pickle
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import cimpl

from tests.contract.support import NOWHERE, Reports, run_script, send_one


def test_closed_producer_still_answers(make: Any) -> None:
    """A closed producer is true and empty, and its context manager methods work."""
    producer = make({"bootstrap.servers": NOWHERE})
    producer.close()
    assert len(producer) == 0
    assert bool(producer) is True
    assert producer.__enter__() is producer
    assert producer.__exit__(None, None, None) is None


def test_every_public_method_of_stock_is_there(producer_class: type) -> None:
    """The class offers every public name of confluent_kafka.Producer, and is one."""
    missing = [name for name in dir(cimpl.Producer) if not hasattr(producer_class, name)]
    assert missing == []
    assert issubclass(producer_class, confluent_kafka.Producer)


def test_close_delivers_what_is_left(make: Any, cluster: Any, topic: str) -> None:
    """close() waits until every record is delivered, runs the callbacks and is truthy."""
    producer = make({"linger.ms": 300})
    reports = Reports()
    for _ in range(10):
        producer.produce(topic, b"v", on_delivery=reports)
    assert producer.close()
    assert reports.codes == [None] * 10
    assert len(cluster.values(topic)) == 10


def test_close_twice_is_allowed(make: Any) -> None:
    """A second close() does nothing and is truthy."""
    producer = make({"bootstrap.servers": NOWHERE})
    assert producer.close()
    assert producer.close()


def test_with_block_gives_the_producer_and_closes_it(make: Any, cluster: Any, topic: str) -> None:
    """`with Producer(...) as p` binds the producer itself; leaving the block delivers and closes."""
    reports = Reports()
    producer = make()
    with producer as entered:
        assert entered is producer
        entered.produce(topic, b"v", on_delivery=reports)
    assert reports.codes == [None]
    assert cluster.values(topic) == [b"v"]
    with pytest.raises(RuntimeError):
        producer.produce(topic, b"v")


def test_with_block_that_raises_closes_and_raises(make: Any, cluster: Any, topic: str) -> None:
    """An exception in the block comes out unchanged after what was produced is delivered."""
    producer = make()

    def fail_inside() -> None:
        with producer:
            producer.produce(topic, b"v")
            raise LookupError("in the block")

    with pytest.raises(LookupError):
        fail_inside()
    assert cluster.values(topic) == [b"v"]
    with pytest.raises(RuntimeError):
        producer.flush()


@pytest.mark.parametrize("arguments", [(), (None,), (None,) * 4], ids=len)
def test_exit_takes_three_arguments(make: Any, arguments: tuple[None, ...]) -> None:
    """__exit__ with any other number of arguments raises TypeError and does not close."""
    producer = make({"bootstrap.servers": NOWHERE})
    with pytest.raises(TypeError):
        producer.__exit__(*arguments)
    producer.poll(0)


def test_producer_without_init_is_a_closed_one(producer_class: type) -> None:
    """An instance whose __init__ never ran (or raised) can be closed; test_messages.py has what it refuses."""
    producer: Any = producer_class.__new__(producer_class)
    assert len(producer) == 0
    assert bool(producer) is True
    assert producer.close()


def test_init_can_be_repeated_after_it_failed(producer_class: type, cluster: Any, topic: str) -> None:
    """After a refused configuration the same instance can be initialised with a right one."""
    producer: Any = producer_class.__new__(producer_class)
    with pytest.raises(confluent_kafka.KafkaException):
        producer.__init__({"no.such.setting": 1})
    producer.__init__({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    send_one(producer, topic, b"v")
    producer.close()


def test_subclass_may_override_and_call_super(make: Any, producer_class: type, cluster: Any, topic: str) -> None:
    """Overridden methods, own attributes and an own constructor work, and super() reaches the real thing."""

    class Counting(producer_class):  # type: ignore[misc]
        def __init__(self, config: dict[str, Any], *, label: str) -> None:
            super().__init__(config)
            self.label = label
            self.produced = 0
            self.polled = 0

        def produce(self, topic: str, *args: Any, **kwargs: Any) -> None:
            super().produce(topic, *args, **kwargs)
            self.produced += 1

        def poll(self, timeout: float = -1) -> int:
            self.polled += 1
            return int(super().poll(timeout))

    producer = make(cls=Counting, label="mine")
    reports = Reports()
    producer.produce(topic, b"v", on_delivery=reports)
    producer.produce(topic, value=b"w", callback=reports)
    producer.poll(0)
    assert producer.flush(10) == 0
    assert (producer.label, producer.produced, producer.polled) == ("mine", 2, 1)
    assert reports.codes == [None, None]
    assert sorted(cluster.values(topic)) == [b"v", b"w"]


def test_batch_does_not_go_through_an_overridden_produce(
    make: Any, producer_class: type, cluster: Any, topic: str
) -> None:
    """produce_batch() of a subclass that overrides produce() does not call the override."""
    calls: list[Any] = []

    class Watching(producer_class):  # type: ignore[misc]
        def produce(self, *args: Any, **kwargs: Any) -> None:
            calls.append(args)
            super().produce(*args, **kwargs)

        def flush(self, *args: Any) -> int:
            calls.append(args)
            return int(super().flush(*args))

    producer = make(cls=Watching)
    assert producer.produce_batch(topic, [{"value": b"v"}, {"value": b"w", "partition": 0}]) == 2
    producer.close()
    assert calls == []
    assert sorted(cluster.values(topic)) == [b"v", b"w"]


def test_producer_is_collected_without_close(producer_class: type, cluster: Any, topic: str) -> None:
    """A producer with nothing left goes away by garbage collection, without warning, even in a cycle."""

    class Tracked(producer_class):  # type: ignore[misc]
        alive = 0

        def __init__(self, config: dict[str, Any]) -> None:
            super().__init__(config)
            Tracked.alive += 1
            self.itself = self

        def __del__(self) -> None:
            Tracked.alive -= 1
            parent = getattr(super(), "__del__", None)
            if parent is not None:
                parent()

    producer = Tracked({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    send_one(producer, topic, b"v")
    del producer
    gc.collect()
    assert Tracked.alive == 0


OWNERS = """
class Owner:
    def __init__(self, records, end):
        self.itself = self
        self.end = end
        self.producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
        self.producer.list_topics(topic, 10)
        for number in range(records):
            self.producer.produce(topic, b"before")

    def __del__(self):
        self.producer.produce(topic, b"at the end")
        self.end(self.producer)


def polled(producer):
    while len(producer):
        producer.poll(0.1)


owners = [
    Owner(0, lambda producer: producer.flush()),
    Owner(30, lambda producer: producer.flush()),
    Owner(30, lambda producer: producer.close()),
    Owner(30, polled),
]
"""


@pytest.mark.parametrize("ends", ["owners.clear(); gc.collect()", ""], ids=["collected", "exit"])
def test_an_owner_that_ends_may_write(producer_class: type, cluster: Any, topic: str, ends: str) -> None:
    """The collector has cleared weak references when a destructor runs, and no thread outlives the interpreter.

    The brokers know the topic, so the first batch leaves at once, and the rest waits for it.
    """
    result = run_script(producer_class, cluster.bootstrap, f"topic = {topic!r}\n{OWNERS}\n{ends}", timeout=60)
    assert result.returncode == 0, result.stderr
    written = cluster.values(topic)
    assert (written.count(b"before"), written.count(b"at the end")) == (90, 4), result.stderr


@pytest.mark.parametrize("operation", [pickle.dumps, copy.copy, copy.deepcopy])
def test_producer_cannot_be_copied(producer: Any, operation: Callable[[Any], Any]) -> None:
    """pickle and copy raise TypeError."""
    with pytest.raises(TypeError):
        operation(producer)


def test_producers_are_equal_to_themselves_only(make: Any) -> None:
    """Producers compare by identity and can be keys of a dict."""
    one, other = make({"bootstrap.servers": NOWHERE}), make({"bootstrap.servers": NOWHERE})
    assert one == one  # noqa: PLR0124
    assert one != other
    assert len({one: 1, other: 2}) == 2


def test_program_ends_although_a_producer_is_open(producer_class: type, mock_cluster: Any) -> None:
    """An open, empty producer does not keep the interpreter from ending."""
    done = run_script(
        producer_class,
        mock_cluster.bootstrap,
        "p = Producer({'bootstrap.servers': bootstrap, 'log_level': 0})\n"
        "p.produce('ending', b'v')\n"
        "print(p.flush(10))\n",
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "0", "")
