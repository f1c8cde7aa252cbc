"""Statistics: a real document of librdkafka reads into the right values, and no text makes the reader raise."""

import json
import random
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
from confluent_kafka.cimpl import Producer

from safeproducer.kafka.statistics import UNSENT, Statistics, read
from safeproducer.policy.types import NEVER
from safeproducer.testing import FakeCluster
from tests.clusters import fake_cluster
from tests.contract.support import send_one

cluster = fake_cluster({"orders": 3}, brokers=2, scope="module")


class Client:
    """A confluent_kafka producer that keeps its statistics."""

    def __init__(self, cluster: FakeCluster, **settings: object) -> None:
        self.texts: list[str] = []
        self.native = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "enable.idempotence": True,
                "statistics.interval.ms": 50,
                "stats_cb": self.texts.append,
                "linger.ms": 0,
                "log_level": 0,
                **settings,
            }
        )

    def until(self, condition: Callable[[Statistics], Any]) -> Statistics:
        """The first statistics from now on for which `condition` holds."""
        deadline = time.monotonic() + 10
        while True:
            self.texts.clear()
            while not self.texts:
                self.native.poll(0.05)
                assert time.monotonic() < deadline, "no such statistics"
            found = read(self.texts[-1])
            assert found is not None
            if condition(found):
                return found


@pytest.fixture
def client(cluster: FakeCluster) -> Iterator[Client]:
    """A client of the cluster as new."""
    cluster.reset()
    cluster.create_topic("orders", partitions=3)
    made = Client(cluster)
    yield made
    made.native.purge()
    made.native.close()


@pytest.fixture(scope="module")
def document(cluster: FakeCluster) -> str:
    """A real document, taken after ten records were acknowledged."""
    made = Client(cluster)
    for number in range(10):
        made.native.produce("orders", b"v", str(number))
    assert made.native.flush(10) == 0
    made.until(lambda now: sum(partition.sent for partition in now.partitions.values()) == 10)
    text = made.texts[-1]
    made.native.close()
    return text


def test_statistics_are_read_as_they_happened(cluster: FakeCluster, client: Client) -> None:
    """Identity, leaders, records and requests are those that the cluster saw."""
    for partition, count in enumerate([1, 2, 3]):
        for _ in range(count):
            client.native.produce("orders", b"v" * 10, partition=partition)
    assert client.native.flush(10) == 0
    before = time.monotonic()
    now = client.until(lambda s: s.at > before)
    assert before < now.at < time.monotonic()
    (entry,) = cluster.producer_state("orders", 0).items()
    assert (now.producer_id, now.producer_epoch) == (entry[0], 0)
    assert (now.messages, now.message_bytes) == (0, 0)
    for partition in range(3):
        seen = now.partitions["orders", partition]
        assert (seen.leader, seen.leader_epoch) == cluster.leader("orders", partition)
        assert (seen.sent, seen.in_flight, seen.queued) == (partition + 1, 0, 0)
    assert now.partitions["orders", -1].leader == -1
    assert now.partitions["orders", -1].leader_epoch is None
    assert set(now.brokers) == set(cluster.brokers)
    for number, broker in now.brokers.items():
        journal = cluster.journal(broker=number)
        assert broker.state == "UP"
        assert broker.name.endswith(f"/{number}")
        assert broker.produce_requests == sum(entry.api == "Produce" for entry in journal) > 0
        assert broker.received > broker.produce_requests
        assert broker.outstanding == 0


def test_a_slow_broker_shows(cluster: FakeCluster, client: Client) -> None:
    """A request in flight, and its round trip in seconds."""
    send_one(client.native, "orders", b"v", partition=0)
    leader, _ = cluster.leader("orders", 0)
    client.until(lambda s: s.brokers[leader].rtt_floor is None)
    cluster.delay(0.25, broker=leader)
    client.native.produce("orders", b"value", partition=0)
    waiting = client.until(lambda s: s.brokers[leader].outstanding)
    assert waiting.partitions["orders", 0].in_flight == waiting.messages == 1
    assert waiting.message_bytes == 5
    answered = client.until(lambda s: s.brokers[leader].rtt_floor is not None).brokers[leader]
    assert answered.rtt_floor is not None
    assert 0.2 < answered.rtt_floor < 2


def test_late_answers_show_as_attempts(cluster: FakeCluster) -> None:
    """Each request is counted, once more when its records are sent again."""
    client = Client(cluster, **{"socket.timeout.ms": 300, "enable.idempotence": False})
    send_one(client.native, "orders", b"v", partition=0)
    leader, _ = cluster.leader("orders", 0)
    cluster.delay(5, broker=leader)
    client.native.produce("orders", b"v", partition=0)
    client.until(lambda s: s.brokers[leader].produce_requests >= 2)
    cluster.delay(0, broker=leader)
    now = client.until(lambda s: not s.messages)
    assert now.brokers[leader].produce_requests == now.partitions["orders", 0].sent >= 3
    client.native.close()


def test_without_idempotence_there_is_no_producer_id(cluster: FakeCluster) -> None:
    """Statistics without `eos`, and those from before the ID came, have None."""
    client = Client(cluster, **{"enable.idempotence": False})
    now = client.until(lambda _: True)
    assert (now.producer_id, now.producer_epoch) == (None, None)
    client.native.close()


NO_DOCUMENTS = {
    "empty": "",
    "cut": "{",
    "null": "null",
    "list": "[]",
    "number": "7",
    "no fields": "{}",
    "boolean count": '{"ts": 1, "msg_cnt": true, "msg_size": 0}',
    "deep": "[" * 100_000,
    "many digits": "9" * 5000,
    "infinite": '{"ts": 1e400, "msg_cnt": 0, "msg_size": 0}',
    "no float": '{"ts": 1' + "0" * 400 + ', "msg_cnt": 0, "msg_size": 0}',
}


@pytest.mark.parametrize("text", NO_DOCUMENTS.values(), ids=NO_DOCUMENTS)
def test_no_document_is_none(text: str) -> None:
    """What is no statistics document reads as None."""
    assert read(text) is None


def reread(fields: Any, before: Statistics | None = None) -> Statistics:
    found = read(json.dumps(fields), before)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"nodeid": -1}, id="bootstrap addresses and coordinators"),
        pytest.param({"rtt": {"cnt": 1, "min": 10**400, "p50": 1}}, id="no float: JSON has integers of any size"),
    ],
)
def test_a_broker_of_which_nothing_can_be_known_is_left_out(document: str, change: dict[str, Any]) -> None:
    fields = json.loads(document)
    next(iter(fields["brokers"].values())).update(change)
    (left,) = reread(fields).brokers
    assert left >= 0


@pytest.mark.parametrize("field", ["rx", "req", "rtt", "state", "nodeid"])
def test_a_malformed_broker_is_left_out(document: str, field: str) -> None:
    """The other broker and all partitions stay."""
    fields = json.loads(document)
    broken = next(iter(fields["brokers"].values()))
    broken_id = broken["nodeid"]
    for value in (None, [], {}, 1.5, True):
        broken[field] = value
        found = reread(fields)
        assert len(found.brokers) == 1
        assert broken_id not in found.brokers
        assert len(found.partitions) == 4


def test_a_malformed_partition_is_left_out(document: str) -> None:
    """The other partitions and both brokers stay."""
    fields = json.loads(document)
    fields["topics"]["orders"]["partitions"]["1"]["txmsgs"] = -0.5
    del fields["topics"]["orders"]["partitions"]["0"]["leader_epoch"]
    found = reread(fields)
    assert sorted(found.partitions) == [("orders", -1), ("orders", 0), ("orders", 2)]
    assert found.partitions["orders", 0].leader_epoch is None
    assert len(found.brokers) == 2


def test_a_partition_of_which_the_text_says_the_same_is_not_read_again(client: Client) -> None:
    """There may be thousands, of which few change. Those that do are read, and all are told as without it."""
    client.native.produce("orders", b"v", partition=1)
    client.until(lambda found: found.partitions.get(("orders", 1), UNSENT).acknowledged == 1)
    before = read(client.texts[-1])
    assert before is not None
    client.native.produce("orders", b"v", partition=1)
    client.until(lambda found: found.partitions["orders", 1].acknowledged == 2)
    found = read(client.texts[-1], before)
    assert found == read(client.texts[-1])
    assert found is not None
    assert found.partitions["orders", 0] is before.partitions["orders", 0]
    changed = before.partitions["orders", 1]._replace(sent=2, accepted=2, acknowledged=2, bytes=2)
    assert found.partitions["orders", 1] == changed
    with mock.patch("safeproducer.kafka.statistics._told_apart", side_effect=ValueError):
        assert read(client.texts[-1]) == found, "as where others write it in another way"


@pytest.mark.parametrize(
    ("odd", "left"), [('"txmsgs":null', [-1, 0, 2]), ('"odd":0', [-1, 0, 2]), ('"txmsgs":0, "odd":{}', [-1, 0, 1, 2])]
)
def test_a_malformed_partition_as_librdkafka_writes_it_is_left_out(document: str, odd: str, left: list[int]) -> None:
    """The others stay. One with an object in it ends elsewhere than its text seems to."""
    begin = document.index('{ "partition":1,')
    at = document.index('"txmsgs":', begin)
    found = read(document[:at] + odd + document[document.index(",", at) :])
    assert found is not None
    assert sorted(number for _, number in found.partitions) == left


def mutated(text: str, dice: random.Random) -> str:
    """`text` with some characters or some values replaced by others."""
    if dice.random() < 0.3:
        cut = dice.randrange(len(text))
        return text[:cut] + dice.choice(["", '"', "}", "]", "9", "-", "\0", "NaN"]) + text[cut + dice.randrange(4) :]
    document = json.loads(text)
    for _ in range(dice.randrange(1, 5)):
        node = document
        while isinstance(node, dict) and node:
            name = dice.choice(list(node))
            if not isinstance(node[name], dict) or dice.random() < 0.2:
                odd = [None, True, -1, 10**400, 1e308, float("inf"), "x", [], {}, [{}], {"cnt": 1}, {"": None}]
                node[name] = dice.choice(odd)
                break
            node = node[name]
    return json.dumps(document)


def test_no_mutation_makes_the_reader_raise(document: str) -> None:
    """1 000 damaged documents; what is read of them has the right types."""
    dice = random.Random(19)
    survivors = 0
    for _ in range(1_000):
        found = read(mutated(document, dice))
        survivors += found is not None
        if found is not None:
            assert isinstance(found.messages, int)
            assert all(node >= 0 and isinstance(broker.received, int) for node, broker in found.brokers.items())
            assert all(isinstance(seen.leader, int) for seen in found.partitions.values())
    assert 250 < survivors < 1_000


def counts(**changed: Any) -> dict[str, Any]:
    """The statistics of a broker."""
    names = ("waitresp_cnt", "rx", "tx", "txretries", "req_timeouts")
    told = {"name": "b", "state": "UP", "nodeid": 1, "req": {"Produce": 9}, "rtt": {"cnt": 0}}
    return {**told, **dict.fromkeys(names, 0), **changed}


def test_requests_are_open_since_the_statistics_that_showed_them_first() -> None:
    """As long as none is answered; while this process is stopped, nobody can tell."""

    def told(at: float, outstanding: int, received: int, before: Statistics | None = None) -> Statistics:
        broker = counts(waitresp_cnt=outstanding, rx=received, tx=9)
        return reread({"ts": int(at * 1e6), "msg_cnt": 0, "msg_size": 0, "brokers": {"b": broker}}, before)

    first = told(10.0, 2, 5)
    again = told(10.5, 4, 5, first)
    assert [one.brokers[1].open_since for one in (first, again)] == [10.0, 10.0]
    assert told(11.0, 4, 6, again).brokers[1].open_since == 11.0
    assert told(11.0, 0, 9, again).brokers[1].open_since == NEVER
    assert told(17.0, 4, 5, again).brokers[1].open_since == 17.0


def test_a_question_for_a_producer_id_has_no_answer_once_a_second_has_passed() -> None:
    """A client asks each half second where brokers answer with errors: a question may be open at any moment."""

    def told(state: str, age: int, at: int, before: Statistics | None = None, broker: str = "UP") -> Statistics:
        eos = {"idemp_state": state, "idemp_stateage": age, "producer_id": -1, "producer_epoch": -1, "epoch_cnt": 0}
        text = {"ts": at * 1_000_000, "msg_cnt": 0, "msg_size": 0, "eos": eos}
        return reread({**text, "brokers": {"b": counts(state=broker, req={"Produce": 0})}}, before)

    assert told("RequestPID", 900, 9, broker="CONNECT").asks_id[0] == NEVER  # nobody was asked
    first = told("WaitPID", 3, 10)
    assert first.asks_id == (10.0, "RequestPID")
    again = told("RequestPID", 430, 11, first)
    assert again.asks_id == (10.0, "RequestPID")
    assert told("WaitPID", 1_200, 12, again).asks_id == (10.0, "WaitPID")
    assert told("Assigned", 5, 13, again).asks_id == (NEVER, "Assigned")
