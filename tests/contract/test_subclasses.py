"""Subclasses: names of their own, methods they override, how they compare, dataclasses and slots."""

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.contract.support import NOWHERE, Reports, reports_of, run_script, send_one


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_attribute_of_any_name(make: Any, producer_class: type, cluster: Any, topic: str, before: bool) -> None:
    """An attribute that a subclass sets before or after super().__init__() stays, and everything goes on working."""
    mine = ["mine"]

    class Named(producer_class):  # type: ignore[misc]
        def __init__(self, config: dict[str, Any]) -> None:
            if before:
                self._native = mine
            super().__init__(config)
            if not before:
                self._native = mine

    producer = make(cls=Named)
    reports = Reports()
    producer.produce(topic, b"v", on_delivery=reports)
    assert producer.produce_batch(topic, [{"value": b"w"}], on_delivery=reports) == 1
    assert producer.flush(10) == 0
    assert len(producer) == 0
    assert repr(producer)
    assert reports.codes == [None, None]
    assert producer._native is mine
    assert producer.close()
    assert sorted(cluster.values(topic)) == [b"v", b"w"]


def test_method_of_any_name(make: Any, producer_class: type, cluster: Any, topic: str) -> None:
    """A method of a subclass is a callback as good as any, and nobody else calls it."""
    reports = Reports()

    class Named(producer_class):  # type: ignore[misc]
        def send(self, value: bytes) -> None:
            self.produce(topic, value, on_delivery=self._native)

        def _native(self, *report: Any) -> None:
            reports(*report)

    producer = make(cls=Named)
    producer.send(b"v")
    assert producer.flush(10) == 0
    assert producer.close()
    assert reports.codes == [None]
    assert cluster.values(topic) == [b"v"]


def test_no_name_is_taken(make: Any, producer_class: type, topic: str) -> None:
    """Beyond Python's own, a subclass meets no private name: neither on the class nor on an instance that was used."""
    producer = make()
    producer.produce_batch(topic, [{"value": b"v"}, {"value": b"w", "partition": 0}])
    send_one(producer, topic, b"v", headers={"a": b"b"})
    producer.close()
    plain = [
        name
        for name in dir(producer)
        if name.startswith("_") and not name.startswith(("__", f"_{producer_class.__name__}__", "_SafeProducer__"))
    ]
    assert plain == []


def test_overridden_methods_are_the_subclass_s_affair(make: Any, producer_class: type, topic: str) -> None:
    """No method calls another public one by way of the instance: an override with other arguments disturbs nobody."""
    called: list[str] = []

    class Overriding(producer_class):  # type: ignore[misc]
        pass

    def override(name: str) -> Callable[..., None]:
        def method(*_: Any) -> None:
            called.append(name)

        return method

    public = [name for name in dir(producer_class) if not name.startswith("_")]
    for name in public:
        setattr(Overriding, name, override(name))
    producer = make({"transactional.id": f"id-{topic}", "enable.idempotence": True}, cls=Overriding)
    with producer as entered:
        assert repr(entered)
        for use in (
            lambda: producer_class.init_transactions(entered, 10),  # type: ignore[attr-defined]
            lambda: producer_class.begin_transaction(entered),  # type: ignore[attr-defined]
            lambda: producer_class.produce(entered, topic, b"v"),  # type: ignore[attr-defined]
            lambda: producer_class.produce_batch(entered, topic, [{"value": b"v"}]),  # type: ignore[attr-defined]
            lambda: producer_class.poll(entered, 0),  # type: ignore[attr-defined]
            lambda: producer_class.abort_transaction(entered, 10),  # type: ignore[attr-defined]
        ):
            use()
        if hasattr(producer_class, "explain"):
            assert producer_class.explain(entered)
    assert called == []
    with pytest.raises(RuntimeError):
        producer_class.poll(producer, 0)  # type: ignore[attr-defined]
    for name in public:
        delattr(Overriding, name)


def test_subclass_without_hash(make: Any, producer_class: type, topic: str) -> None:
    """A subclass that says when its instances are equal has no hash, and needs none."""

    class Equal(producer_class):  # type: ignore[misc]
        __hash__ = None

        def __eq__(self, other: object) -> bool:
            return True

    one, other = make(cls=Equal), make(cls=Equal)
    assert one == other
    for producer in (one, other):
        reports = reports_of(producer, topic, b"v")
        assert reports.codes == [None]


def test_equal_producers_are_all_known_at_a_fork(make: Any, producer_class: type, is_stock: bool) -> None:
    """In a forked child each of several equal producers refuses work. (confluent_kafka does not notice the fork.)"""

    class Equal(producer_class):  # type: ignore[misc]
        __hash__ = None

        def __eq__(self, other: object) -> bool:
            return True

    producers = [make({"bootstrap.servers": NOWHERE}, cls=Equal) for _ in range(3)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads, which is what is tested
        child = os.fork()
    if child == 0:
        refused = 0
        for producer in producers:
            try:
                producer.poll(0)
            except RuntimeError:
                refused += 1
        os._exit(refused)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == (0 if is_stock else 3)


EQUAL_AT_EXIT = """
class Equal(Producer):
    def __eq__(self, other): return True
one, other = (Equal({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}) for _ in range(2))
one.produce("t", b"v")
other.produce("t", b"v")
warnings.simplefilter("always")
"""


def test_equal_producers_are_all_known_at_exit(producer_class: type, mock_cluster: Any, is_stock: bool) -> None:
    """At interpreter exit the loss of each of two equal producers is told. (confluent_kafka loses in silence.)"""
    done = run_script(producer_class, mock_cluster.bootstrap, EQUAL_AT_EXIT)
    assert done.returncode == 0
    assert done.stderr.count("ResourceWarning") == (0 if is_stock else 2)


@pytest.mark.parametrize("frozen", [False, True], ids=["", "frozen"])
@pytest.mark.parametrize("eq", [False, True], ids=["", "eq"])
def test_dataclass(make: Any, producer_class: type, topic: str, eq: bool, frozen: bool) -> None:
    """A dataclass that initialises the producer after its own fields, a frozen and an unhashable one, too."""

    class Data(producer_class):  # type: ignore[misc]
        config: dict[str, Any]
        label: str = field(default="mine", kw_only=True)

        def __post_init__(self) -> None:
            super().__init__(self.config)

    cls = dataclass(eq=eq, frozen=frozen)(Data)
    producer = make(cls=cls, label="yours")
    reports = reports_of(producer, topic, b"v")
    assert reports.codes == [None]
    assert producer.label == "yours"
    assert producer.close()
    with pytest.raises(RuntimeError):
        producer.poll(0)


def test_slots(make: Any, producer_class: type, topic: str) -> None:
    """A subclass with __slots__, of a name that was taken once."""

    class Slotted(producer_class):  # type: ignore[misc]
        __slots__ = ("_lane", "label")

        def __init__(self, config: dict[str, Any]) -> None:
            self._lane = "left"
            self.label = "mine"
            super().__init__(config)

    producer = make(cls=Slotted)
    reports = reports_of(producer, topic, b"v")
    assert reports.codes == [None]
    assert (producer._lane, producer.label) == ("left", "mine")


def test_attributes_from_nowhere(make: Any, producer_class: type, topic: str) -> None:
    """A subclass that answers for attributes it does not have, and keeps what is set somewhere else."""
    elsewhere: dict[str, Any] = {}

    class Keeping(producer_class):  # type: ignore[misc]
        def __getattr__(self, name: str) -> Any:
            return elsewhere.get(name, "nothing")

        def __setattr__(self, name: str, value: Any) -> None:
            elsewhere[name] = value

    producer = make(cls=Keeping)
    producer.label = "mine"
    reports = reports_of(producer, topic, b"v")
    assert reports.codes == [None]
    assert (producer.label, producer.other) == ("mine", "nothing")
    assert list(elsewhere) == ["label"]
