"""The wire tap reports what passes and breaks only what it is told to."""

import asyncio
import contextlib
import importlib
import itertools
import socket
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]

from integration.kafka.cluster import KafkaCluster
from integration.kafka.exchange import answer_to, exchange
from integration.tap import ConfigEntry, Route, Tap
from safeproducer.testing import wire

with warnings.catch_warnings():
    # kafka-python loads its schemas in a way that Python deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    kafka_python = importlib.import_module("kafka")
    oracle_produce = importlib.import_module("kafka.protocol.producer.produce")
    oracle_records = importlib.import_module("kafka.record.default_records")

NewTopic = Callable[..., str]


class Client:
    """A confluent_kafka producer that keeps what its reports said."""

    def __init__(self, bootstrap: str, **config: object) -> None:
        self.errors: list[KafkaError] = []
        self.offsets: list[int] = []
        base = {"bootstrap.servers": bootstrap, "log_level": 0, "enable.idempotence": True, "linger.ms": 5}
        self.producer = Producer({**base, **config})

    def send(self, topic: str, count: int = 1, partition: int = 0) -> None:
        """Hand over `count` records."""
        for number in range(count):
            self.producer.produce(topic, b"%d" % number, partition=partition, on_delivery=self._reported)
            self.producer.poll(0)

    def deliver(self, topic: str, count: int = 1, partition: int = 0) -> float:
        """Send and wait until all are delivered; gives the seconds it took."""
        before = time.monotonic()
        self.send(topic, count, partition)
        assert self.producer.flush(30) == 0
        took = time.monotonic() - before
        assert self.errors == []
        return took

    def _reported(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.offsets.append(message.offset() or 0)
        else:
            self.errors.append(error)


@pytest.fixture
def tap(tap: Tap, request: pytest.FixtureRequest) -> Iterator[Tap]:
    """Whatever a test does, the tap must have understood its clients, unless the test is about what is unreadable."""
    yield tap
    if "unreadable" not in request.node.name:
        assert [one for one in tap.undecoded if "inside a frame" not in one.reason] == []


@pytest.fixture
def warm(tap: Tap, kafka_tapped: KafkaCluster, topic: NewTopic) -> tuple[Client, str]:
    """A producer that has already delivered one record to partition 0 of a fresh topic; the tap is reset."""
    name = topic(partitions=2, on=kafka_tapped)
    client = Client(kafka_tapped.bootstrap, **{"linger.ms": 100})  # three records are one batch on a busy machine, too
    client.deliver(name)
    tap.reset()
    return client, name


# ---- decoding, per client


def test_librdkafka_is_read(tap: Tap, kafka_tapped: KafkaCluster, topic: NewTopic) -> None:
    """Of a confluent_kafka producer the tap sees every API by name and each batch with ID, sequence, count and
    place."""
    name = topic(on=kafka_tapped)
    client = Client(kafka_tapped.bootstrap, **{"client.id": "stock", "linger.ms": 50})
    client.deliver(name, 100)
    client.deliver(name, 10)
    apis = [seen.api for seen in tap.requests()]
    assert {"ApiVersions", "Metadata", "InitProducerId", "Produce"} <= set(apis)
    first, second = tap.batches
    assert (first.topic, first.partition, first.client_id, first.broker) == (name, 0, "stock", 1)
    assert (first.epoch, first.base_sequence, first.count) == (0, 0, 100)
    assert (second.epoch, second.base_sequence, second.count) == (0, 100, 10)
    (state,) = kafka_tapped.admin.describe_producers(name, 0)
    assert {first.producer_id, second.producer_id} == {state.producer_id}
    assert first.version == tap.requests("Produce")[0].version == 10
    assert [answer.base_offset for answer in tap.answers] == [0, 100]
    assert tap.undecoded == []


def test_topic_ids_are_read(tap: Tap, kafka_tapped: KafkaCluster, topic: NewTopic) -> None:
    """Produce v13, as Java sends it, names topics by id; the tap tells the name once a Metadata answer told it."""
    name = topic(on=kafka_tapped)
    port = kafka_tapped.nodes[1].advertised_port
    asked = {"topics": [{"name": name}]}
    frame = exchange(port, wire.encode_request("Metadata", 13, 1, "java", asked))
    topic_id = wire.decode_response("Metadata", 13, frame)[1]["topics"][0]["topic_id"]

    builder = oracle_records.DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 20)
    for offset in range(7):
        builder.append(offset, 1_700_000_000_000, None, b"value", [])
    request = oracle_produce.ProduceRequest
    partition = request.TopicProduceData.PartitionProduceData(version=13, index=0, records=bytes(builder.build()))
    data = request.TopicProduceData(version=13, topic_id=topic_id, partition_data=[partition])
    message = request(version=13, transactional_id=None, acks=-1, timeout_ms=1000, topic_data=[data])
    message.with_header(correlation_id=2, client_id="java")
    exchange(port, bytes(message.encode(header=True)))

    (batch,) = tap.batches
    assert (batch.topic, batch.partition, batch.count, batch.version) == (name, 0, 7, 13)
    assert [(answer.topic, answer.error_code, answer.base_offset) for answer in tap.answers] == [(name, 0, 0)]
    assert kafka_tapped.admin.end_offsets(name) == [7]


def test_unreadable_frame_goes_through(tap: Tap, kafka_tapped: KafkaCluster) -> None:
    """A frame the tap cannot read reaches the broker all the same, and is listed, not lost."""
    port = kafka_tapped.nodes[1].advertised_port
    bad = wire.encode_request("Produce", 9, 1, "odd", {"acks": -1}) + b"too long"
    with socket.create_connection(("127.0.0.1", port), 10) as peer:
        peer.sendall(len(bad).to_bytes(4, "big") + bad)
        peer.recv(1 << 16)  # the broker answers or hangs up; either shows that it got the frame
    (undecoded,) = [one for one in tap.undecoded if one.to_broker]
    assert undecoded.size == len(bad)
    assert "Produce v9" in undecoded.reason


def echo_server() -> tuple[socket.socket, int]:
    listener = socket.create_server(("127.0.0.1", 0))
    return listener, listener.getsockname()[1]


def test_bytes_are_forwarded_unchanged() -> None:
    """Frames, noise, an impossible size prefix and a last half frame arrive byte for byte, and are counted."""
    listener, port = echo_server()
    with socket.create_server(("127.0.0.1", 0)) as placeholder:
        front = placeholder.getsockname()[1]
    sent = b"".join(
        [
            (40).to_bytes(4, "big") + b"\0\3\0\x0c\0\0\0\1\xff\xff\0" + b"\xff" * 29,
            (2).to_bytes(4, "big") + b"no",
            (1 << 31).to_bytes(4, "big") + b"this is not Kafka" * 1000,
        ]
    )
    with listener, Tap([Route(1, port, front)]) as tap:
        with socket.create_connection(("127.0.0.1", front), 10) as client:
            server, _ = listener.accept()
            client.sendall(sent)
            client.shutdown(socket.SHUT_WR)
            with server:
                server.settimeout(10)
                received = b"".join(iter(lambda: server.recv(1 << 16), b""))
        assert received == sent
        assert [one.to_broker for one in tap.undecoded] == [True, True]
        with socket.create_connection(("127.0.0.1", front), 10) as client:
            server, _ = listener.accept()
            client.sendall(b"\0\0\0\x09half")
            client.shutdown(socket.SHUT_WR)
            with server:
                server.settimeout(10)
                assert b"".join(iter(lambda: server.recv(1 << 16), b"")) == b"\0\0\0\x09half"
        assert "inside a frame" in tap.undecoded[-1].reason


# ---- counting


def test_no_answer_is_awaited_without_acks(tap: Tap, kafka_tapped: KafkaCluster, topic: NewTopic) -> None:
    """A request with acks=0 is listed."""
    name = topic(on=kafka_tapped)
    client = Client(kafka_tapped.bootstrap, **{"enable.idempotence": False, "acks": 0})
    client.deliver(name, 10)
    tap.wait(lambda tap: sum(batch.count for batch in tap.batches) == 10)
    assert tap.answers == []


def test_errors_of_the_broker_are_seen(tap: Tap, kafka_tapped: KafkaCluster, topic: NewTopic) -> None:
    """A refused batch is an answer with the broker's error code."""
    name = topic(on=kafka_tapped, configs={"max.message.bytes": "1000"})
    client = Client(kafka_tapped.bootstrap)
    client.producer.produce(name, b"x" * 5000, partition=0)
    client.producer.flush(30)
    assert tap.answers[-1].error_code == KafkaError.MSG_SIZE_TOO_LARGE


# ---- faults


@pytest.mark.parametrize("seconds", [0.005, 0.05])
def test_delay_is_accurate(tap: Tap, kafka_tapped: KafkaCluster, seconds: float) -> None:
    """A delay each way lengthens the round trip by twice as much, to a few milliseconds."""
    frame = wire.encode_request("ApiVersions", 0, 1, "me", {})

    def round_trips(count: int) -> list[float]:
        times = []
        with socket.create_connection(("127.0.0.1", kafka_tapped.nodes[1].advertised_port), 10) as peer:
            for _ in range(count):
                before = time.perf_counter()
                answer_to(peer, frame)
                times.append(time.perf_counter() - before)
        return times

    base = min(round_trips(20))
    tap.delay(seconds)
    times = round_trips(10)
    deadline = time.monotonic() + 20
    # The best: what a loaded machine adds to the others is not the tap's.
    while min(times) - base - 2 * seconds >= 0.006:
        assert time.monotonic() < deadline, times
        times += round_trips(10)
    assert min(times) >= 2 * seconds


def test_delay_is_latency_not_a_brake(tap: Tap, warm: tuple[Client, str]) -> None:
    """Frames on their way share the delay: a hundred requests one way take about one delay, in order."""
    _, name = warm
    client = Client(
        tap.bootstrap, **{"enable.idempotence": False, "max.in.flight": 100, "batch.num.messages": 1, "linger.ms": 0}
    )
    client.deliver(name)
    tap.delay(0.1)
    took = client.deliver(name, 100)
    assert 0.2 <= took < 5.0  # one after the other they would take 20 s
    assert client.offsets == sorted(client.offsets)


def test_bandwidth_is_a_brake(tap: Tap, warm: tuple[Client, str]) -> None:
    """A limited line needs bytes divided by rate; without a limit it is as fast as before."""
    client, name = warm

    def seconds_for_100_kb() -> float:
        before = time.monotonic()
        client.producer.produce(name, b"x" * 100_000, partition=0)
        assert client.producer.flush(30) == 0
        return time.monotonic() - before

    tap.bandwidth(200_000)
    assert 0.5 <= seconds_for_100_kb() < 5
    tap.bandwidth(None)
    assert min(seconds_for_100_kb() for _ in range(5)) < 0.4


def test_dropped_answer_makes_the_same_batch_again(
    tap: Tap, warm: tuple[Client, str], kafka_tapped: KafkaCluster
) -> None:
    """An acknowledgement lost after the append: same ID, epoch and sequence come again, the log has one copy."""
    client, name = warm
    tap.drop_answers()
    client.deliver(name, 10)
    lost, again = tap.batches
    assert (lost.attempt, again.attempt) == (1, 2)
    assert lost.identity == again.identity
    assert (lost.base_sequence, lost.count) == (again.base_sequence, again.count) == (1, 10)
    assert lost.connection != again.connection
    assert [answer.delivered for answer in tap.answers] == [False, True]
    assert kafka_tapped.admin.end_offsets(name)[0] == 11
    assert tap.drops_left == 0


def test_dropped_request_never_reaches_the_log(tap: Tap, warm: tuple[Client, str], kafka_tapped: KafkaCluster) -> None:
    """A request lost before the append is sent again on a new connection."""
    client, name = warm
    tap.drop_requests()
    client.deliver(name, 10)
    assert [batch.attempt for batch in tap.batches] == [1, 2]
    assert [answer.delivered for answer in tap.answers] == [True]
    assert kafka_tapped.admin.end_offsets(name)[0] == 11


def test_drop_can_keep_the_connection(tap: Tap, warm: tuple[Client, str]) -> None:
    """Half open: the answer never comes, the connection stays, and the client waits for its own timeout."""
    _, name = warm
    client = Client(tap.bootstrap, **{"socket.timeout.ms": 1500})
    client.deliver(name)
    tap.reset()
    tap.drop_answers(keep_open=True)
    assert client.deliver(name) >= 1.0
    assert [batch.attempt for batch in tap.batches] == [1, 2]
    assert [answer.delivered for answer in tap.answers] == [False, True]


def test_drop_can_be_limited_to_a_partition(tap: Tap, warm: tuple[Client, str]) -> None:
    """Only batches of the partition named are hit."""
    client, name = warm
    tap.drop_answers(topic=name, partition=1)
    client.deliver(name, partition=0)
    assert tap.drops_left == 1
    client.deliver(name, partition=1)
    assert tap.drops_left == 0
    assert [batch.attempt for batch in tap.batches if batch.partition == 0] == [1]


@pytest.mark.parametrize("how", ["reset", "fin"])
def test_cut_ends_connections(tap: Tap, kafka_tapped: KafkaCluster, how: Literal["reset", "fin"]) -> None:
    """A cut is a reset or an end of file for the client, as asked."""
    with socket.create_connection(("127.0.0.1", kafka_tapped.nodes[1].advertised_port), 10) as peer:
        answer_to(peer, wire.encode_request("ApiVersions", 0, 1, "me", {}))
        assert tap.cut(how=how) == 1
        if how == "reset":
            with pytest.raises(ConnectionResetError):
                peer.recv(1)
        else:
            assert peer.recv(1) == b""
    tap.wait(lambda tap: all(one.closed_at for one in tap.connections))


def test_cut_producer_goes_on(tap: Tap, warm: tuple[Client, str], kafka_tapped: KafkaCluster) -> None:
    """Cut in the middle, a producer reconnects and everything arrives once."""
    client, name = warm
    tap.delay(0.02)
    client.send(name, 500)
    tap.wait(lambda tap: bool(tap.batches))
    assert tap.cut(broker=1) >= 1
    assert client.producer.flush(30) == 0
    assert client.errors == []
    assert kafka_tapped.admin.end_offsets(name)[0] == 501


def test_pause_is_a_black_hole(tap: Tap, kafka_tapped: KafkaCluster) -> None:
    """Paused, nothing comes back and nothing is closed; resumed, it comes after all."""
    frame = wire.encode_request("ApiVersions", 0, 1, "me", {})
    with socket.create_connection(("127.0.0.1", kafka_tapped.nodes[1].advertised_port), 10) as peer:
        answer_to(peer, frame)
        tap.pause()
        peer.sendall(len(frame).to_bytes(4, "big") + frame)
        peer.settimeout(0.3)
        with pytest.raises(TimeoutError):
            peer.recv(1)
        tap.resume()
        peer.settimeout(10)
        assert peer.recv(1)


def described(bootstrap: str, kind: ResourceType, name: str) -> dict[str, Any]:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    resource = ConfigResource(kind, name)
    found: dict[str, Any] = admin.describe_configs([resource])[resource].result(30)
    return found


def test_configs_reach_the_client(tap: Tap, kafka_tapped: KafkaCluster, topic: NewTopic) -> None:
    """Entries that the tap changes, adds and hides are what a confluent_kafka AdminClient describes, per resource."""
    name = topic(on=kafka_tapped)
    before = described(kafka_tapped.bootstrap, ResourceType.TOPIC, name)
    assert "producer.state.batches.to.retain" not in before

    def changes(kind: int, resource: str) -> dict[str, str | ConfigEntry | None]:
        if (kind, resource) == (4, "1"):
            return {"log.producer.state.batches.to.retain": "20"}
        return {
            "producer.state.batches.to.retain": ConfigEntry("12", source=1),
            "max.message.bytes": "777",
            "retention.ms": None,
        }

    tap.rewrite_configs(changes)
    after = described(kafka_tapped.bootstrap, ResourceType.TOPIC, name)
    entry = after["producer.state.batches.to.retain"]
    assert (entry.value, entry.source, entry.is_sensitive) == ("12", 1, False)
    assert after["max.message.bytes"].value == "777"
    assert "retention.ms" not in after
    untouched = before.keys() - {"max.message.bytes", "retention.ms"}
    assert {key: after[key].value for key in untouched} == {key: before[key].value for key in untouched}
    broker = described(kafka_tapped.bootstrap, ResourceType.BROKER, "1")
    assert broker["log.producer.state.batches.to.retain"].value == "20"
    tap.rewrite_configs(None)
    assert described(kafka_tapped.bootstrap, ResourceType.TOPIC, name).keys() == before.keys()


def test_answers_can_be_edited(tap: Tap, warm: tuple[Client, str], kafka_tapped: KafkaCluster) -> None:
    """A broker's success told as NOT_LEADER is retried; the retry is answered as the duplicate it is."""
    client, name = warm
    left = itertools.count()

    def lie(body: dict[str, Any]) -> dict[str, Any] | None:
        if next(left):
            return None
        for topic in body["responses"]:
            for partition in topic["partition_responses"]:
                partition["error_code"] = KafkaError.NOT_LEADER_FOR_PARTITION
        return body

    tap.edit_answers("Produce", lie)
    client.deliver(name, 5)
    assert [answer.error_code for answer in tap.answers] == [KafkaError.NOT_LEADER_FOR_PARTITION, 0]
    assert [batch.attempt for batch in tap.batches] == [1, 2]
    assert kafka_tapped.admin.end_offsets(name)[0] == 6


def test_heal_ends_all_faults(tap: Tap, warm: tuple[Client, str]) -> None:
    """After heal the link only forwards."""
    client, name = warm
    tap.delay(1)
    tap.bandwidth(10)
    tap.drop_answers(n=9)
    tap.pause()
    tap.heal()
    assert client.deliver(name) < 1.9
    assert tap.drops_left == 0


@pytest.mark.parametrize(
    ("order", "words"),
    [
        (lambda tap: tap.delay(-1), "delay"),
        (lambda tap: tap.bandwidth(0), "bandwidth"),
        (lambda tap: tap.drop_answers(n=0), "n:"),
        (lambda tap: tap.cut(broker=9), "broker: 9"),
    ],
)
def test_orders_that_make_no_sense_are_refused(tap: Tap, order: Callable[[Tap], object], words: str) -> None:
    """A negative delay, a rate of nothing, no drop or an unknown broker is a ValueError that names the argument."""
    with pytest.raises(ValueError, match=words):
        order(tap)


def test_bug_in_an_edit_is_not_hidden() -> None:
    """What goes wrong inside the tap is raised when the tap is left, not swallowed."""
    listener, port = echo_server()
    with socket.create_server(("127.0.0.1", 0)) as placeholder:
        front = placeholder.getsockname()[1]

    def broken(body: object) -> None:
        raise KeyError("oops")

    tap = Tap([Route(1, port, front)])
    with listener, contextlib.ExitStack() as stack:
        stack.enter_context(tap)
        tap.edit_answers("ApiVersions", broken)
        with socket.create_connection(("127.0.0.1", front), 10) as client:
            server, _ = listener.accept()
            with server:
                frame = wire.encode_request("ApiVersions", 0, 1, "me", {})
                client.sendall(len(frame).to_bytes(4, "big") + frame)
                assert server.recv(1 << 16)
                answer = wire.encode_response("ApiVersions", 0, 1, {})
                server.sendall(len(answer).to_bytes(4, "big") + answer)
                with pytest.raises(ConnectionResetError):
                    client.recv(1)
        with pytest.raises(ExceptionGroup, match="tap failed"):
            stack.close()


@pytest.mark.parametrize("rounds", range(12))
def test_a_cut_while_a_connection_ends_leaves_no_socket_open(tap: Tap, kafka_tapped: KafkaCluster, rounds: int) -> None:
    """The client hangs up and the tap cuts a few rounds of its loop later: both sockets are closed in any case."""
    proxy = tap._proxies[1]

    async def hang_up_then_cut() -> bool:
        while not proxy.links:
            await asyncio.sleep(0.001)
        (link,) = proxy.links
        link._client[0].feed_eof()
        for _ in range(rounds):
            await asyncio.sleep(0)
        link.cut(reset=True)
        while proxy.links:
            await asyncio.sleep(0.001)
        return link._server[1].is_closing() and link._client[1].is_closing()

    with socket.create_connection(("127.0.0.1", kafka_tapped.nodes[1].advertised_port), 10):
        assert tap._do(hang_up_then_cut())
