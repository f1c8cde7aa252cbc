"""What the sender does for an application that does not poll."""

import time

from safeproducer import SafeProducer
from safeproducer.pipeline.route import Route
from tests.clusters import cluster_of
from tests.conformance.target import until
from tests.inside import engine_of
from tests.pipeline.warmed import direct

CONFIG = {"safeproducer.mode": "auto", "message.timeout.ms": 30_000, "linger.ms": 5, "queue.buffering.max.kbytes": 1}
LIMIT = 1024
SOON = 0.05


def test_reports_of_the_direct_lane_are_taken_up_to_half_of_the_buffer() -> None:
    """Or what nobody serves would take all room, and no record would wait for a broker that is throttled."""
    with direct(CONFIG) as rig:
        rig.accept(250)
        rig.report_queue(1)
        kept = rig.engine.counters.report_queue.bytes
        assert kept > LIMIT / 2
        rig.accept(20)
        rig.report_queue(1)
        assert rig.engine.counters.report_queue.bytes == kept
        assert len(rig.natives[0]) >= 20, "they wait in librdkafka, whose limit is the application's"
        rig.flush(5)
        assert not rig.open_records


def test_an_application_that_polls_again_goes_directly_at_once() -> None:
    """The sender waits for reports of which only poll() knows that they have run: it would come up to a second later,
    and meanwhile each record took the buffered path."""
    with cluster_of({"t": 1}) as cluster:
        config = {"bootstrap.servers": cluster.bootstrap, "linger.ms": 50}  # no answer of a busy machine takes longer
        with SafeProducer(config) as producer:
            route = engine_of(producer).route
            producer.produce("t", b"first")
            until(lambda: producer.poll(0.01) >= 0 and route.goes_direct and not len(producer), "it goes directly")
            took = sorted(time_until_direct(producer, route) for _ in range(5))
    assert took[2] < SOON, took


def time_until_direct(producer: SafeProducer, route: Route) -> float:
    """After a rest in which the sender took a report."""
    producer.produce("t", b"x")
    until(lambda: not route.goes_direct, "the sender takes the report")
    began = time.monotonic()
    producer.poll(0)
    until(lambda: route.goes_direct, "it goes directly")
    return time.monotonic() - began


def test_an_application_that_is_late_by_milliseconds_still_polls() -> None:
    """With all cores busy that is usual, and each time records would go by the buffered path."""
    with direct(CONFIG) as rig:
        for rest in (0.01, 0.02, 0.03, 0.04):
            assert rig.produce("a", 0)
            rig.poll(0)
            sender = rig.engine.sender
            sender.turn()
            sender.rest(rig.time.now + rest)
            sender.turn()
            assert rig.engine.route.goes_direct, f"{rest * 1e3:g} ms after a poll()"
        rig.flush(5)
