"""The dispatcher of hooks: silent when nobody listens, unharmed by a hook that raises."""

import logging
import threading
from functools import partial

import pytest

from safeproducer.hooks import Hook, Hooks
from safeproducer.records import CallSite, ProducerInfo, Record
from tests.contract.support import together


def a_record() -> Record:
    producer = ProducerInfo("billing", "kafka-1:9092", "alice", None, True, CallSite("app.py", 7, "main"))
    return Record(producer, "orders", b"v", b"k", -1, 0, [])


class Counting(Hook):
    def __init__(self) -> None:
        self.accepted = 0

    def record_accepted(self, record: Record) -> None:
        self.accepted += 1


class Raising(Hook):
    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.calls = 0

    def record_accepted(self, record: Record) -> None:
        self.calls += 1
        raise self.error

    def records_lost(self, event: object) -> None:
        self.calls += 1


def events() -> list[str]:
    return [name for name in vars(Hook) if not name.startswith("_")]


def test_no_hook_wants_nothing():
    hooks = Hooks([])
    assert not hooks.wants(*events())
    hooks.call("record_accepted", a_record())


def test_a_hook_that_overrides_nothing_wants_nothing():
    assert not Hooks([Hook()]).wants(*events())


def test_only_overridden_events_are_wanted():
    hooks = Hooks([Counting()])
    assert [event for event in events() if hooks.wants(event)] == ["record_accepted"]
    assert hooks.wants("record_resolved", "record_accepted")


def test_an_override_inherited_from_a_base_class_is_wanted():
    class Derived(Counting):
        pass

    hook = Derived()
    Hooks([hook]).call("record_accepted", a_record())
    assert hook.accepted == 1


def test_hooks_are_called_in_the_order_given():
    heard: list[str] = []

    class Named(Hook):
        def __init__(self, name: str) -> None:
            self.name = name

        def record_accepted(self, record: Record) -> None:
            heard.append(self.name)

    Hooks([Named("a"), Named("b"), Named("c")]).call("record_accepted", a_record())
    assert heard == ["a", "b", "c"]


def test_a_raising_hook_is_reported_once_and_switched_off(caplog: pytest.LogCaptureFixture):
    before, bad, after = Counting(), Raising(ValueError("broken hook")), Counting()
    hooks = Hooks([before, bad, after])
    with caplog.at_level(logging.ERROR, logger="safeproducer"):
        for _ in range(3):
            hooks.call("record_accepted", a_record())
    assert (before.accepted, bad.calls, after.accepted) == (3, 1, 3)
    assert not hooks.wants("records_lost")
    (report,) = caplog.records
    assert "Raising" in report.getMessage()
    assert "record_accepted" in report.getMessage()
    assert report.exc_info[1] is bad.error


def test_the_last_raising_hook_leaves_nothing_wanted(caplog: pytest.LogCaptureFixture):
    hooks = Hooks([Raising(RuntimeError())])
    hooks.call("record_accepted", a_record())
    assert not hooks.wants(*events())
    assert len(caplog.records) == 1


def test_switching_off_is_for_one_producer_only(caplog: pytest.LogCaptureFixture):
    shared = Raising(RuntimeError())
    first, second = Hooks([shared]), Hooks([shared])
    first.call("record_accepted", a_record())
    assert not first.wants("record_accepted")
    assert second.wants("record_accepted")
    assert len(caplog.records) == 1


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_passes_through(interrupt: type[BaseException], caplog: pytest.LogCaptureFixture):
    hook = Raising(interrupt())
    hooks = Hooks([hook])
    with pytest.raises(interrupt):
        hooks.call("record_accepted", a_record())
    assert hooks.wants("record_accepted")
    assert caplog.records == []


@pytest.mark.parametrize("wrong", [object(), Counting, print, None])
def test_an_object_that_is_no_hook_is_refused(wrong: object):
    with pytest.raises(TypeError, match=r"derive its class from safeproducer\.Hook"):
        Hooks([wrong])  # type: ignore[list-item]


BOTH = threading.Barrier(2, timeout=10)


class RaisesWhenCreated(Hook):
    def producer_created(self, producer: object) -> None:
        BOTH.wait()
        raise ValueError


class RaisesWhenClosed(Hook):
    def producer_closed(self, producer: object, report: object) -> None:
        BOTH.wait()
        raise ValueError


@pytest.mark.parametrize(
    ("raising", "calls"),
    [
        ([RaisesWhenCreated, RaisesWhenClosed], [("producer_created", None), ("producer_closed", None, None)]),
        ([RaisesWhenCreated], [("producer_created", None)] * 2),
    ],
    ids=["two hooks", "one hook"],
)
def test_hooks_that_raise_on_two_threads_at_once_are_reported_once_each(
    raising: list[type[Hook]], calls: list[tuple[str | None, ...]], caplog: pytest.LogCaptureFixture
):
    """Both calls were under way before either raised. They are switched off; another hook keeps hearing."""
    good = Counting()
    hooks = Hooks([*(each() for each in raising), good])
    together(*(partial(hooks.call, *call) for call in calls))  # type: ignore[arg-type]
    assert not hooks.wants(*{str(call[0]) for call in calls})
    hooks.call("record_accepted", a_record())
    assert good.accepted == 1
    assert len(caplog.records) == len(raising)
