"""Produce v14 of KIP-1269 on the wire, asked by raw requests, since no client speaks it yet."""

import uuid

from safeproducer.testing import FakeCluster
from safeproducer.testing.wire import decode_response, encode_request
from tests.conformance.target import part, topic_id
from tests.produce_messages import read_produce_answer
from tests.testing.raw import RawClient, hung_up, make_batch, produce_body

RETAIN = "producer.state.batches.to.retain"
FLAG = b"\x01\x04"  # tag 1 with a size of four bytes


def produce(client: RawClient, topic: uuid.UUID, version: int = 14, partitions: int = 1) -> bytes:
    body = produce_body(topic, make_batch([b"a"]), *range(partitions))
    client.send(encode_request("Produce", version, 1, "raw", body))
    return client.receive()


def retained(frame: bytes, version: int = 14) -> list[int | None]:
    answer = read_produce_answer(version, frame)
    assert [partition.error_code for partition in answer.partitions] == [0] * len(answer.partitions)
    return [partition.batches_to_retain for partition in answer.partitions]


def test_each_partition_says_what_its_topic_retains(cluster: FakeCluster) -> None:
    """The field is tag 1 with an int32 in every partition response, and one topic's value is not another's."""
    cluster.create_topic("wide", 1, config={RETAIN: "20"})
    cluster.create_topic("narrow", 1)
    cluster.create_topic("inherits", 1)
    for name in ("narrow", "inherits"):
        cluster.move_leader(name, to=1)
    with RawClient(cluster.bootstrap) as client:
        wide, narrow, inherits = (topic_id(client, name) for name in ("wide", "narrow", "inherits"))
        frame = produce(client, wide)
        assert retained(frame) == [20]
        assert FLAG + (20).to_bytes(4, "big") in frame
        assert retained(produce(client, narrow)) == [None]
        cluster.set_broker_config(1, "log." + RETAIN, "9")
        assert retained(produce(client, inherits)) == [9]
        assert retained(produce(client, wide)) == [20]


def test_the_field_may_stand_beside_the_partitions() -> None:
    """As the KIP's schema has it: once for a topic with two partitions, not for one that retains five; read as well."""
    with FakeCluster(1, kip_1269_field="topic") as cluster, RawClient(cluster.bootstrap) as client:
        cluster.create_topic("wide", 2, config={RETAIN: "20"})
        cluster.create_topic("narrow", 2)
        frame = produce(client, topic_id(client, "wide"), partitions=2)
        assert retained(frame) == [20, 20]
        assert frame.count(FLAG + (20).to_bytes(4, "big")) == 1
        (topic,) = decode_response("Produce", 14, frame)[1]["responses"]
        assert topic["producer_state_batches_to_retain"] == 20
        assert retained(produce(client, topic_id(client, "narrow"), partitions=2)) == [None, None]


def test_the_default_is_not_sent(cluster: FakeCluster, client: RawClient) -> None:
    """At five the answers of versions 13 and 14 are the same bytes; no older version carries the field at all."""
    chosen = topic_id(client, "t")
    old, new = produce(client, chosen, 13), produce(client, chosen, 14)
    assert len(old) == len(new)
    cluster.set_topic_config("t", RETAIN, "20")
    assert len(produce(client, chosen, 13)) == len(old)
    assert len(produce(client, chosen, 14)) == len(new) + len(FLAG) + 4


def test_a_change_shows_in_the_next_answer(cluster: FakeCluster, client: RawClient) -> None:
    """Raised, lowered and taken away on a topic that is written to."""
    chosen = topic_id(client, "t")
    for value, seen in (("20", 20), ("7", 7), (None, None)):
        cluster.set_topic_config("t", RETAIN, value)
        assert retained(produce(client, chosen)) == [seen]


def test_a_refused_batch_carries_it_too_but_only_from_the_leader(cluster: FakeCluster) -> None:
    """Out of order is said by the leader, with its window; a broker that does not lead has none to tell."""
    cluster.create_topic("t", config={RETAIN: "20"})
    with RawClient(cluster.bootstrap) as client:
        chosen = topic_id(client, "t")
        codes = []
        for sequence in (0, 5):
            batch = make_batch([b"a"], producer_id=7, epoch=0, sequence=sequence)
            partition = part(client.ask("Produce", 14, **produce_body(chosen, batch)))
            codes.append((partition["error_code"], partition.get("producer_state_batches_to_retain")))
        assert codes == [(0, 20), (45, 20)]
        cluster.move_leader("t", to=2)
        (partition,) = read_produce_answer(14, produce(client, chosen)).partitions
        assert (partition.error_code, partition.batches_to_retain) == (6, None)


def test_a_downgraded_broker_hangs_up_and_an_upgraded_one_answers(cluster: FakeCluster) -> None:
    """Each broker by itself: the version is gone from one while the other still serves it."""
    cluster.create_topic("t", config={RETAIN: "20"})
    cluster.set_kip_1269(1, False)
    with RawClient(cluster.bootstrap) as client:
        chosen = topic_id(client, "t")
        assert retained(produce(client, chosen, 13), 13) == [None]
        with hung_up():
            produce(client, chosen)
    refused = cluster.journal("Produce")[-1]
    assert (refused.outcome, refused.version, "Produce" in refused.note) == ("unsupported", 14, True)
    with RawClient(cluster.bootstrap, 2) as client:
        (partition,) = read_produce_answer(14, produce(client, chosen)).partitions
        assert partition.error_code == 6
    cluster.set_kip_1269(1, True)
    with RawClient(cluster.bootstrap) as client:
        assert retained(produce(client, chosen)) == [20]
