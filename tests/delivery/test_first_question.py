"""The first acknowledgement of a new producer does not wait for librdkafka's half second, and nobody waits for that."""

import statistics
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka.cimpl import KafkaError, KafkaException, Producer

from safeproducer import SafeProducer
from safeproducer.kafka import lane_client
from safeproducer.pipeline.cluster import metadata
from safeproducer.pipeline.cluster.metadata import FirstQuestion, Metadata
from tests.clusters import cluster_of
from tests.contract.support import run_script, wait_until
from tests.inside import engine_of

HALF_SECOND = 0.45
SOON = 0.3
LATE = 1.0
NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}


def first_acknowledgement(make: Callable[[dict[str, Any]], Any], config: dict[str, Any], topic: str = "t") -> float:
    """Seconds from before the constructor to the first delivery report."""
    acknowledged: list[float] = []
    began = time.monotonic()
    producer = make({"linger.ms": 5, "enable.idempotence": True, "log_level": 0, **config})
    producer.produce(topic, b"x", on_delivery=lambda error, _: acknowledged.append(time.monotonic() - began))
    assert producer.flush(20) == 0
    producer.close()
    return acknowledged[0]


@pytest.mark.parametrize("brokers", [1, 3])
def test_the_first_acknowledgement_takes_no_half_second(brokers: int) -> None:
    with cluster_of({"t": 1}, brokers) as cluster:
        config = {"bootstrap.servers": cluster.bootstrap}
        took = [first_acknowledgement(SafeProducer, config) for _ in range(5)]
    assert statistics.median(took) < SOON, took


@pytest.mark.parametrize("mode", ["auto", "held"])
def test_far_away_it_takes_no_half_second_either(mode: str) -> None:
    """Six round trips or so; librdkafka's next looks after them would be at 1.0 and 1.4 s."""
    with cluster_of({"t": 1}) as cluster:
        cluster.delay(0.1)
        config = {"bootstrap.servers": cluster.bootstrap, "safeproducer.mode": mode}
        took = [first_acknowledgement(SafeProducer, config) for _ in range(5)]
    assert statistics.median(took) < 0.9, took


@pytest.mark.parametrize("mode", ["auto", "held"])
def test_answers_that_are_very_late_are_waited_for_no_longer_than_by_confluent_kafka(mode: str) -> None:
    """The first record takes five answers: with answers after 6 s, 30 s."""
    with cluster_of({"t": 1}) as cluster, ThreadPoolExecutor() as pool:
        cluster.delay(LATE)
        config = {"bootstrap.servers": cluster.bootstrap}
        stock = pool.submit(first_acknowledgement, Producer, config)
        ours = pool.submit(first_acknowledgement, SafeProducer, {**config, "safeproducer.mode": mode})
        assert ours.result() < stock.result() + 0.9 * LATE  # another answer that is waited for takes LATE


def test_librdkafka_alone_still_takes_it() -> None:
    """The trap: when this fails, a newer librdkafka may not need `pipeline/cluster/metadata.py`.

    See docs/internals/librdkafka.md.
    """
    with cluster_of({"t": 1}) as cluster:
        config = {"bootstrap.servers": cluster.bootstrap}
        assert min(first_acknowledgement(Producer, config) for _ in range(3)) > HALF_SECOND
        passthrough = {**config, "safeproducer.mode": "passthrough"}
        took = [first_acknowledgement(SafeProducer, passthrough) for _ in range(6)]
        assert max(took) > HALF_SECOND, took


def test_the_first_question_costs_the_brokers_a_few_requests() -> None:
    """One producer ID as before, and no connection to a broker that leads nothing."""
    with cluster_of({"t": 1}, 3) as cluster:
        asked: dict[type, list[str]] = {}
        for make in (Producer, SafeProducer):
            before = len(cluster.journal())
            first_acknowledgement(make, {"bootstrap.servers": cluster.bootstrap.split(",")[0]})
            asked[make] = [entry.api for entry in cluster.journal()[before:]]
    ours, stock = asked[SafeProducer], asked[Producer]
    assert ours.count("InitProducerId") == stock.count("InitProducerId") == 1
    # One may be asked again because its connection goes; the last ones are timed.
    assert ours.count("Metadata") <= stock.count("Metadata") + 2 + lane_client.MEASURES
    assert ours.count("ApiVersions") <= stock.count("ApiVersions") + 1


@pytest.mark.parametrize(
    "config",
    [
        {"safeproducer.mode": "passthrough"},
        {"safeproducer.mode": "held"},
        {"enable.idempotence": False},
        {"transactional.id": "t"},
    ],
    ids=str,
)
def test_no_thread_asks_where_nothing_waits_for_a_producer_id(config: dict[str, Any]) -> None:
    producer = SafeProducer({**NOWHERE, **config})
    asks = engine_of(producer).questions.metadata
    assert asks.look("t", 0.0) == asks.look("t", 1.0) == float("inf")
    assert asks._thread is None
    producer.close(0)


def asking() -> SafeProducer:
    """A producer whose question is open, and stays so: no broker is there."""
    producer = SafeProducer(NOWHERE)
    producer.produce("t", b"x")
    wait_until(lambda: engine_of(producer).questions.metadata._thread is not None)
    return producer


def test_close_does_not_wait_for_an_answer() -> None:
    """No broker is there: it ends with its question, within a slice or two."""
    producer = asking()
    thread = engine_of(producer).questions.metadata._thread
    began = time.monotonic()
    producer.close(0)
    assert time.monotonic() - began < 2
    assert thread is not None
    assert not thread.is_alive()


def test_a_dropped_producer_ends_its_question() -> None:
    """The thread holds the native producer for a slice or two, and then destroys it."""
    producer = asking()
    thread = engine_of(producer).questions.metadata._thread
    assert thread is not None
    while thread.ident is None:  # it is being started
        time.sleep(0.001)
    with pytest.warns(ResourceWarning):
        del producer
    thread.join(5)
    assert not thread.is_alive()


ASK = """
import atexit
began = []
atexit.register(lambda: print("left", time.monotonic() - began[0] < 2))  # runs last
producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
producer.produce("t", b"x")
while producer._SafeProducer__engine.questions.metadata._thread is None:
    time.sleep(0.005)
"""


def test_the_exit_does_not_wait_for_an_answer() -> None:
    result = run_script(SafeProducer, NOWHERE["bootstrap.servers"], ASK + "began.append(time.monotonic())")
    assert (result.returncode, result.stdout) == (0, "left True\n"), result.stderr


FORK = """
if os.fork() == 0:
    began.append(time.monotonic())
    sys.exit(7)
print("child", os.waitstatus_to_exitcode(os.wait()[1]))
producer.close(0)
began.append(time.monotonic())
"""


def test_a_fork_while_it_asks_harms_neither_side() -> None:
    """The child ends as it should, and the parent's thread ends with close()."""
    result = run_script(SafeProducer, NOWHERE["bootstrap.servers"], ASK + FORK)
    assert (result.returncode, result.stdout) == (0, "left True\nchild 7\nleft True\n"), result.stderr
    assert "were lost" not in result.stderr, "the child tells of no record of its parent"


class Client:
    """A native producer that answers as it is told to: a code for an error, None for an answer."""

    def __init__(self, *answers: int | None, cluster: int | None = None) -> None:
        self.answers = list(answers)
        self.cluster = cluster
        self.asked: list[str] = []

    def cluster_id(self, _: float) -> None:
        if self.cluster is not None:
            raise KafkaException(KafkaError(self.cluster))

    def list_topics(self, topic: str, _: float) -> None:
        self.asked.append(topic)
        if (code := self.answers.pop(0) if self.answers else None) is not None:
            raise KafkaException(KafkaError(code))


def ask(native: Callable[[], Any]) -> list[float | None]:
    """What was heard of the distance."""
    heard: list[float | None] = []
    asks = asker_of(native, heard)
    due = asks.look("t", 5.0)
    assert due > 5.0
    assert asks.look("t", due) == float("inf")
    assert asks.join(10)
    assert not asks.first.open
    return heard


def asker_of(native: Callable[[], Any], heard: list[float | None]) -> Metadata:
    return Metadata(dict, lambda *_: True, heard.append, FirstQuestion(native, True), lambda: None)  # type: ignore[arg-type, return-value]


def test_a_native_producer_that_comes_meanwhile_is_asked_for_as_well() -> None:
    """The end of the former one's question ended its own: it waited half a second for its ID."""
    clients = [Client(None), Client(None)]
    first = FirstQuestion(lambda: clients[0], True)
    first.look("t", 0.0)
    first.look("t", 1.0)

    topics: list[str | None] = []

    def comes(_: float | None) -> None:
        topics.append(first.topic)

    def list_topics(*_: object) -> None:
        del clients[:-1]
        first.again()
        first.look("t", 2.0)
        first.look("t", 3.0)

    clients[0].list_topics = list_topics  # type: ignore[method-assign, assignment]
    first.ask(comes)
    assert first.topic == "t"
    assert topics == ["t"], "a broker is reached, and no distance is known"
    first.ask(comes)
    assert first.topic is None
    assert topics == ["t", "t", None]


@pytest.mark.parametrize(
    ("answers", "questions"),
    [
        ([None], 2),
        ([KafkaError._TRANSPORT, KafkaError._TRANSPORT, None], 4),
        ([KafkaError._TIMED_OUT], 2),
        ([None, KafkaError._TRANSPORT, None, None], 4),
        ([KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED], 2),
    ],
)
def test_the_thread_asks_until_a_question_is_on_its_way(answers: list[int | None], questions: int) -> None:
    """Without a connection it asks again; one that is late is answered all the same. The last one is timed.

    Without cluster_id() the first one may go by the connection to a bootstrap server, which ends: it begins again.
    """
    client = Client(*answers)
    ask(lambda: client)
    assert client.asked == ["t"] * questions


def test_the_thread_gives_up_with_brokers_that_have_no_id() -> None:
    """They say so at once, again and again; how long their round trip is, is asked for all the same."""
    client = Client(cluster=KafkaError._TIMED_OUT)
    assert ask(lambda: client) != [None]
    assert len(client.asked) <= lane_client.MEASURES


@pytest.mark.parametrize(
    ("answers", "distance"),
    [
        ([0.5, 0.005], 0.005),
        ([0.09, 0.06, 0.005], 0.005),
        ([0.12, 0.06, 0.09, 0.18, 0.2, 0.001], 0.06),
        ([0.05, 0.05, 0.005], 0.005),
        ([0.05, 0.06, 0.05, 0.001], 0.05),
        ([0.3, 0.25, 0.001], 0.25),
        ([0.8, 0.7, 0.001], 0.7),
    ],
    ids=["near", "late twice", "late again and again", "late at first", "far", "farther", "very far"],
)
def test_answers_that_come_a_long_way_take_about_the_same_time(
    monkeypatch: pytest.MonkeyPatch, answers: list[float], distance: float
) -> None:
    """Others are late: a broker beside a busy machine was taken for a far one, and got a batch lane and its ID."""
    now, left = [0.0], iter(answers)

    class Timed:
        def list_topics(self, *_: object) -> None:
            now[0] += next(left)

    monkeypatch.setattr(lane_client.clock, "real", lambda: now[0])
    assert lane_client.measured(Timed(), "t", 0.1, lambda: True) == pytest.approx(distance)


def test_the_thread_gives_up_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "_PATIENCE", 0.1)
    client = Client(*[KafkaError._TRANSPORT] * 1_000_000)
    ask(lambda: client)
    assert client.asked


def test_the_thread_ends_with_its_producer() -> None:
    """Or with the first acknowledgement."""
    assert ask(lambda: None) == [None]


def test_no_room_for_a_thread_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """librdkafka asks by itself, later; it is tried again."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    heard: list[float | None] = []
    asks = asker_of(lambda: None, heard)
    asks.look("t", 5.0)
    asks.look("t", 6.0)
    assert asks.join(1)
    assert heard == []
