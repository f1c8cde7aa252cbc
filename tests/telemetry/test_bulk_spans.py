"""produce_batch() with the OpenTelemetry hook: a few spans for many messages, and no trace that is lost."""

import gc
import logging
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry import context, trace
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.semconv._incubating.attributes import messaging_attributes as names
from opentelemetry.trace import SpanKind, StatusCode

from safeproducer import Hook, Record, SafeProducer
from safeproducer.telemetry import conventions
from safeproducer.telemetry.opentelemetry import OpenTelemetryHook
from safeproducer.testing import FakeCluster
from tests.clusters import fake_cluster
from tests.contract.support import send_one
from tests.telemetry.test_opentelemetry import attached
from tests.telemetry.tracing import Tracing, attributes, context_of, traceparent

DEADLINE = 30
INVALID_RECORD = 87
OWN = "00-{:032x}-{:016x}-01"
TIMES_OUT = {"message.timeout.ms": 300, "enable.idempotence": False}


def send_batch(producer: SafeProducer, *arguments: Any, **named: Any) -> None:
    producer.produce_batch(*arguments, **named)
    assert producer.flush(DEADLINE) == 0


Make = Callable[..., SafeProducer]


cluster = fake_cluster({"t": 2})


@pytest.fixture
def make(cluster: FakeCluster) -> Iterator[Make]:
    made: list[SafeProducer] = []

    def make(*hooks: Hook, **settings: Any) -> SafeProducer:
        config = {"bootstrap.servers": cluster.bootstrap, "linger.ms": 0, "log_level": 0, "client.id": "billing"}
        made.append(SafeProducer({**config, **settings.pop("config", {})}, hooks=hooks))
        return made[-1]

    yield make
    for producer in made:
        producer.close(5)


@pytest.fixture
def producer(make: Make, tracing: Tracing) -> SafeProducer:
    return make(tracing.hook)


def plain(count: int) -> list[dict[str, Any]]:
    return [{"value": b"%d" % number} for number in range(count)]


def own(number: int) -> str:
    """A context that other code has put into the headers of a message."""
    return OWN.format(number + 1, number + 1)


def sent(cluster: FakeCluster) -> dict[bytes | None, list[tuple[str, bytes | None]]]:
    """The headers of each record in the log, by its value."""
    return {row.value: list(row.headers) for number in (0, 1) for row in cluster.log("t", number)}


def failure(span: ReadableSpan) -> tuple[int, str | None, str | None]:
    """How many of its records failed, the error of all of them, and what its status says."""
    found = attributes(span)
    failed: int = found["safeproducer.batch.failed_count"]
    assert span.status.status_code is (StatusCode.ERROR if failed else StatusCode.UNSET)
    return failed, found.get("error.type"), span.status.description


def links_of(span: ReadableSpan) -> list[str]:
    return [traceparent(link.context) for link in span.links]


def contexts(cluster: FakeCluster) -> set[str]:
    return {(dict(headers)["traceparent"] or b"").decode() for headers in sent(cluster).values()}


def test_the_names_of_a_batch_are_those_of_the_conventions():
    """Ours begin with our own name."""
    assert conventions.BATCH_COUNT == names.MESSAGING_BATCH_MESSAGE_COUNT
    ours = (conventions.FAILED_COUNT, conventions.HOLD_REASON, conventions.HOLD_DURATION)
    assert all(name.startswith("safeproducer.") for name in ours)


@pytest.mark.parametrize("mode", ["auto", "held", "passthrough"])
def test_a_call_is_one_span_until_its_last_report(cluster: FakeCluster, make: Make, mode: str):
    """Each message carries its context; callbacks are called as ever."""
    tracing, reported = Tracing(), Counter[object]()
    producer = make(tracing.hook, config={"safeproducer.mode": mode})
    messages = [*plain(50), {"value": b"own", "on_delivery": lambda error, message: reported.update([message.value()])}]
    with tracing.provider.get_tracer("app").start_as_current_span("checkout") as parent:
        taken = producer.produce_batch("t", messages, on_delivery=lambda error, message: reported.update([error]))
    assert taken == 51
    assert [span.name for span in tracing.ended] == ["checkout"]
    assert producer.flush(DEADLINE) == 0
    _, span = tracing.ended
    assert (span.name, span.kind) == ("send t", SpanKind.PRODUCER)
    assert span.parent.span_id == parent.get_span_context().span_id
    assert span.status.status_code is StatusCode.UNSET
    assert not span.links
    found = attributes(span)
    held = {name: found.pop(name, None) for name in (conventions.HOLD_REASON, conventions.HOLD_DURATION)}
    host, _, port = cluster.bootstrap.partition(":")
    assert found == {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "t",
        "messaging.client.id": "billing",
        "server.address": host,
        "server.port": int(port),
        "messaging.batch.message_count": 51,
        "safeproducer.batch.failed_count": 0,
    }
    assert mode != "held" or None not in held.values()
    assert mode != "passthrough" or set(held.values()) == {None}
    assert contexts(cluster) == {context_of(span)}
    assert len(sent(cluster)) == 51
    assert reported == {None: 50, b"own": 1}
    assert not any("headers" in message for message in messages)


def test_all_failed_alike(cluster: FakeCluster, tracing: Tracing, producer: SafeProducer):
    errors = list[Any]()
    cluster.fail_next("Produce", INVALID_RECORD, n=100)
    send_batch(producer, "t", plain(10), on_delivery=lambda error, message: errors.append(error.name()))
    (span,) = tracing.ended
    assert errors == ["INVALID_RECORD"] * 10
    assert failure(span) == (10, "INVALID_RECORD", "10 of 10 records failed: INVALID_RECORD 10")


def test_some_failed(cluster: FakeCluster, tracing: Tracing, producer: SafeProducer):
    """The span has their number, and no error that would be that of all."""
    cluster.fail_next("Produce", INVALID_RECORD, n=100, topic="t", partition=1)
    send_batch(producer, "t", [{**message, "partition": at % 4 // 3} for at, message in enumerate(plain(20))])
    (span,) = tracing.ended
    assert failure(span) == (5, None, "5 of 20 records failed: INVALID_RECORD 5")
    assert len(contexts(cluster)) == 1


def test_refused_messages_count_as_failed(cluster: FakeCluster, make: Make, tracing: Tracing):
    """A full queue and a partition that is not there: of each message the caller learns, and the span of all."""
    producer = make(tracing.hook, config={"queue.buffering.max.messages": 3, "safeproducer.max.block.ms": 0})
    producer.list_topics("t", timeout=DEADLINE)
    messages = [{"value": b"nowhere", "partition": 99}, *plain(5)]
    taken = producer.produce_batch("t", messages)
    assert producer.flush(DEADLINE) == 0
    (span,) = tracing.ended
    assert taken == 6 - sum("_error" in message for message in messages)
    assert "_error" in messages[0]
    assert taken < 6
    assert attributes(span)["messaging.batch.message_count"] == 6
    assert failure(span)[:2] == (6 - taken, None)
    assert len(sent(cluster)) == taken


def test_a_call_that_raises_leaves_no_span_open(make: Make, tracing: Tracing):
    """What was accepted before goes on; the rest ends with the exception. Malformed messages are no call at all."""
    config = {"queue.buffering.max.messages": 2, "safeproducer.max.block.ms": DEADLINE * 1000}
    producer = make(tracing.hook, config=config)
    with pytest.raises(TypeError):
        producer.produce_batch("t", [*plain(2), {"value": 5}])

    def broken(error: object, message: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        producer.produce_batch("t", plain(9), on_delivery=broken)
    while len(producer):
        try:
            producer.flush(DEADLINE)
        except ZeroDivisionError:
            continue
    (span,) = tracing.ended
    failed = attributes(span)["safeproducer.batch.failed_count"]
    assert failed == 9 - producer.snapshot().delivered
    assert span.status.description == f"{failed} of 9 records failed: ZeroDivisionError {failed}"


def test_suppressed_instrumentation_makes_nothing(cluster: FakeCluster, tracing: Tracing, producer: SafeProducer):
    with attached(context.set_value(_SUPPRESS_INSTRUMENTATION_KEY, True)):
        producer.produce_batch("t", plain(5))
    assert producer.flush(DEADLINE) == 0
    assert tracing.ended == []
    assert list(sent(cluster).values()) == [[]] * 5


@pytest.mark.parametrize("bulk", ["send", "create"])
def test_sampled_out_messages_tell_the_consumer(cluster: FakeCluster, make: Make, bulk: str):
    """No span, but a context that says so."""
    tracing = Tracing(ALWAYS_OFF, bulk=bulk)
    producer = make(tracing.hook)
    send_batch(producer, "t", plain(5))
    assert tracing.ended == []
    assert not any(int(found[-2:], 16) & trace.TraceFlags.SAMPLED for found in contexts(cluster))
    assert len(contexts(cluster)) == (1 if bulk == "send" else 5)


@pytest.mark.parametrize("bulk", ["send", "create"])
def test_without_an_sdk_only_a_context_of_others_travels(cluster: FakeCluster, make: Make, bulk: str):
    """Messages are left as they are, unless the current context came from another process."""
    producer = make(OpenTelemetryHook(trace.NoOpTracerProvider(), bulk=bulk))
    send_batch(producer, "t", plain(5))
    assert list(sent(cluster).values()) == [[]] * 5
    remote = trace.SpanContext(1, 1, True, trace.TraceFlags(1))
    with attached(trace.set_span_in_context(trace.NonRecordingSpan(remote))):
        producer.produce_batch("t", [{"value": b"%d" % number} for number in range(5, 10)])
    assert producer.flush(DEADLINE) == 0
    assert Counter(map(str, sent(cluster).values())) == {"[]": 5, f"[('traceparent', {own(0).encode()})]": 5}


def test_records_lost_to_garbage_collection_end_their_span(cluster: FakeCluster, tracing: Tracing):
    """With an error of its own; the span of an earlier call stays as it was."""
    config = {"bootstrap.servers": cluster.bootstrap, "log_level": 0, "linger.ms": 0}
    producer = SafeProducer(config, hooks=[tracing.hook])
    send_batch(producer, "t", plain(3))
    cluster.pause(1)
    producer.produce_batch("t", plain(4))
    assert len(tracing.ended) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        del producer
        gc.collect()
    cluster.resume(1)
    earlier, span = tracing.ended
    assert failure(earlier)[0] == 0
    assert failure(span)[:2] == (4, "delivery_report_lost")


def test_records_lost_at_close_end_their_span(cluster: FakeCluster, tracing: Tracing, producer: SafeProducer):
    send_one(producer, "t", b"first")
    cluster.pause(1)
    producer.produce_batch("t", plain(4))
    assert producer.close(0).left == 4
    cluster.resume(1)
    _, span = tracing.ended
    assert failure(span)[0] == 4


def test_contexts_of_their_own_stay_and_are_linked(cluster: FakeCluster, tracing: Tracing, producer: SafeProducer):
    """Byte for byte, whatever their form; an unreadable one is replaced. No message is counted twice."""
    upper = {"traceparent": own(2).encode(), "a": b"1"}
    producer.produce_batch(
        "t",
        [
            {"value": b"0"},
            {"value": b"1", "headers": [("a", b"1"), ("traceparent", own(1)), ("b", None)]},
            {"value": b"2", "headers": upper},
            {"value": b"3", "headers": [("traceparent", b"garbage"), ("b", b"2")]},
        ],
    )
    assert producer.flush(DEADLINE) == 0
    linking = next(span for span in tracing.ended if span.links)
    sending = next(span for span in tracing.ended if not span.links)
    assert len(tracing.ended) == 2
    assert (sending.kind, linking.kind) == (SpanKind.PRODUCER, SpanKind.CLIENT)
    assert links_of(linking) == [own(1), own(2)]
    assert [attributes(span)["messaging.batch.message_count"] for span in (sending, linking)] == [2, 2]
    assert sent(cluster) == {
        b"0": [("traceparent", context_of(sending).encode())],
        b"1": [("a", b"1"), ("traceparent", own(1).encode()), ("b", None)],
        b"2": [("traceparent", own(2).encode()), ("a", b"1")],
        b"3": [("b", b"2"), ("traceparent", context_of(sending).encode())],
    }


def test_every_context_in_the_log_is_that_of_a_span_or_of_a_link(cluster: FakeCluster, make: Make, tracing: Tracing):
    """10 000 messages, 3 000 with contexts of their own, and the SDK's own limit of links: 25 spans."""
    producer = make(tracing.hook, config={"linger.ms": 5})
    messages = plain(10_000)
    for number in range(3_000):
        messages[number * 3]["headers"] = [("traceparent", own(number))]
    assert producer.produce_batch("t", messages) == 10_000
    assert producer.flush(DEADLINE) == 0
    found, spans = sent(cluster), tracing.ended
    assert len(found) == 10_000
    assert len(spans) == 25
    assert sorted(len(span.links) for span in spans) == [0, 56, *[128] * 23]
    assert sum(attributes(span)["messaging.batch.message_count"] for span in spans) == 10_000
    known = {*map(context_of, spans), *(link for span in spans for link in links_of(span))}
    assert contexts(cluster) <= known
    assert all(found[b"%d" % (number * 3)] == [("traceparent", own(number).encode())] for number in range(3_000))


def test_a_span_for_each_creation(cluster: FakeCluster, make: Make):
    """With bulk="create" each message carries a context that no other one has, and the sending spans link to all."""
    tracing = Tracing(bulk="create", links=2)
    producer = make(tracing.hook)
    producer.produce_batch("t", [*plain(4), {"value": b"own", "headers": {"traceparent": own(7)}}])
    created = [span for span in tracing.ended if span.name == "create t"]
    assert producer.flush(DEADLINE) == 0
    sending = sorted([span for span in tracing.ended if span.name == "send t"], key=lambda span: span.start_time or 0)
    assert {attributes(span)["messaging.operation.type"] for span in created} == {"create"}
    assert {span.kind for span in created} == {SpanKind.PRODUCER}
    assert {span.kind for span in sending} == {SpanKind.CLIENT}
    assert [attributes(span)["messaging.batch.message_count"] for span in sending] == [2, 2, 1]
    linked = [link for span in sending for link in links_of(span)]
    assert linked == [*map(context_of, created), own(7)]
    assert contexts(cluster) == set(linked)
    assert len(created) == 4


def test_other_hooks_are_told_of_each_record(cluster: FakeCluster, make: Make, tracing: Tracing):
    """And may add headers; the spans are the same."""

    class Each(Hook):
        def __init__(self) -> None:
            self.events: Counter[str] = Counter()

        def record_accepted(self, record: Record) -> None:
            self.events["accepted"] += 1
            record.add_header("each", b"1")

        def record_refused(self, record: Record, error: BaseException) -> None:
            self.events["refused"] += 1

        def record_resolved(self, record: Record, error: Any, message: Any) -> None:
            self.events["resolved"] += 1

    each = Each()
    producer = make(each, tracing.hook)
    producer.list_topics("t", timeout=DEADLINE)
    send_batch(producer, "t", [{"value": b"nowhere", "partition": 99}, *plain(5)])
    (span,) = tracing.ended
    assert each.events["accepted"] == 6
    assert each.events["refused"] + each.events["resolved"] == 6
    assert failure(span)[0] == 1
    expected = [("traceparent", context_of(span).encode()), ("each", b"1")]
    assert list(sent(cluster).values()) == [expected] * 5


def test_two_hooks_follow_a_call_apart(cluster: FakeCluster, make: Make):
    """The second one links to what the first one injected."""
    one, two = Tracing(), Tracing()
    producer = make(one.hook, two.hook)
    send_batch(producer, "t", plain(5))
    (first,), (second,) = one.ended, two.ended
    assert contexts(cluster) == {context_of(first)} == set(links_of(second))


@pytest.mark.parametrize("where", [{}, {"partition": 1}], ids=["any", "partition"])
def test_reports_of_errors_alone_end_the_span_all_the_same(make: Make, tracing: Tracing, where: dict[str, int]):
    """With delivery.report.only.error no callback tells of a success."""
    reported = list[object]()
    producer = make(tracing.hook, config={"delivery.report.only.error": True})
    send_batch(producer, "t", plain(5), on_delivery=lambda error, message: reported.append(error), **where)
    (span,) = tracing.ended
    assert failure(span)[0] == 0
    assert reported == []


def test_a_processor_that_raises_costs_no_callback(
    tracing: Tracing, producer: SafeProducer, caplog: pytest.LogCaptureFixture
):
    """The hook is switched off and told of once."""

    class Broken(SpanProcessor):
        def on_end(self, span: ReadableSpan) -> None:
            raise RuntimeError("broken processor")

    reported = list[object]()
    tracing.provider.add_span_processor(Broken())
    with caplog.at_level(logging.ERROR, logger="safeproducer"):
        for _ in range(2):
            send_batch(producer, "t", plain(5), on_delivery=lambda error, message: reported.append(error))
    assert reported == [None] * 10
    assert len(tracing.ended) == 1
    assert sum("_bulk_ended" in entry.getMessage() for entry in caplog.records) == 1


@pytest.mark.parametrize("mode", ["auto", "held"])
def test_a_held_record_says_why_and_for_how_long(cluster: FakeCluster, make: Make, mode: str):
    """Of a throttle time, whether the record came alone or with others; not one that was not held."""
    for milliseconds in (1_000, 4_000, 16_000):  # a busy machine may sleep through the first
        tracing = Tracing()
        producer = make(tracing.hook, config={"safeproducer.mode": mode})
        cluster.set_throttle(milliseconds)
        send_one(producer, "t", b"asks for it", partition=0)
        cluster.set_throttle(0)
        producer.produce("t", b"one", partition=0)
        producer.produce_batch("t", plain(5), partition=0)
        began = time.monotonic()
        waited, reasons, looked = 0.0, set(), began
        while (row := producer.snapshot().partitions[0]).held == 6:
            waited, looked = looked - began, time.monotonic()
            reasons.add(row.reason)
        assert producer.flush(DEADLINE) == 0
        if waited > 0.1:
            break
    first, *held = tracing.ended
    assert "throttled" in reasons
    assert len(held) == 2
    for span in held:
        assert attributes(span)["safeproducer.hold.reason"] == "throttled"
        assert waited < attributes(span)["safeproducer.hold.duration"] < (span.end_time - span.start_time) / 1e9
    assert attributes(first).get("safeproducer.hold.reason") != "throttled"


def test_a_record_held_for_the_direct_lane_says_so(cluster: FakeCluster, make: Make, tracing: Tracing):
    """A new producer's first batch goes alone; the other records wait for its acknowledgement."""
    producer = make(tracing.hook, config={"batch.num.messages": 2})
    producer.list_topics("t", timeout=DEADLINE)
    cluster.delay(0.3, api="Produce")
    for value in (b"first", b"second"):
        producer.produce("t", value, partition=0)
    producer.produce("t", b"one", partition=0)
    send_batch(producer, "t", plain(5), partition=0)
    reasons = [attributes(span).get("safeproducer.hold.reason") for span in tracing.ended]
    assert "first_acknowledgement" in reasons[-2:]
    behind = {"in_flight", "lane_change"}  # the wait for the answer looks like a long round trip
    assert {*reasons[-2:]} <= {"first_acknowledgement", *behind}, "it may wait as long behind others"
    assert [attributes(span)["safeproducer.hold.duration"] > 0.1 for span in tracing.ended[-2:]] == [True, True]


def test_a_record_that_waited_for_its_partition_says_so(cluster: FakeCluster, make: Make, tracing: Tracing):
    """It waited elsewhere than where it left from."""
    producer = make(tracing.hook, config={"safeproducer.mode": "held"})
    cluster.delay(0.3, api="Metadata")
    producer.produce("t", b"v")
    send_batch(producer, "t", plain(5))
    assert [attributes(span)["safeproducer.hold.reason"] for span in tracing.ended] == ["outdated_metadata"] * 2


def test_a_record_that_expires_while_it_is_held_says_so_too(cluster: FakeCluster, make: Make, tracing: Tracing):
    """Its span is the one that is looked for."""
    producer = make(tracing.hook, config={"message.timeout.ms": 800})
    cluster.set_throttle(20_000)
    send_one(producer, "t", b"asks for it", partition=0)
    producer.produce("t", b"late", partition=0)
    send_batch(producer, "t", plain(3), partition=0)
    _, *late = tracing.ended
    assert len(late) == 2
    for span in late:
        assert attributes(span)["error.type"] == "_MSG_TIMED_OUT"
        assert attributes(span)["safeproducer.hold.reason"] == "throttled"


@pytest.mark.parametrize(
    ("name", "value"),
    [("bulk", "each"), ("bulk", None), ("links", 0), ("links", -1), ("links", 1.5), ("links", "many")],
)
def test_a_bad_argument_is_refused_with_the_way_out(name: str, value: Any):
    with pytest.raises(ValueError, match=rf"^{name}: {value!r} .*\. Pass "):
        OpenTelemetryHook(**{name: value})


def test_a_provider_of_another_kind_is_refused():
    """At once, not with the first record."""
    with pytest.raises(TypeError, match=r"^tracer_provider: .* has no method get_tracer\(\)\. Pass "):
        OpenTelemetryHook(object())  # type: ignore[arg-type]


def test_a_call_costs_no_span_for_each_record(tracing: Tracing, producer: SafeProducer):
    """As many calls of the tracer as spans, whatever the number of messages."""
    made = list[str]()

    class Counting(SpanProcessor):
        def on_start(self, span: Any, parent_context: Any = None) -> None:
            made.append(span.name)

    tracing.provider.add_span_processor(Counting())
    for _ in range(3):
        producer.produce_batch("t", plain(1_000))
    assert producer.flush(DEADLINE) == 0
    assert made == ["send t"] * 3
    assert len(tracing.ended) == 3
