"""The two readers of what the broker has agree with each other and with what was produced."""

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from integration.kafka.cluster import KafkaCluster
from integration.kafka.log import read_records, read_segments


def test_segments_agree_with_consumer(kafka: KafkaCluster, topic: Callable[..., str]) -> None:
    """Batch headers account for exactly the offsets a consumer reads, with good checksums and gapless sequences."""
    name = topic(partitions=2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True, "batch.num.messages": 70})
    for number in range(5_000):
        producer.produce(name, f"value {number}", f"key {number}", partition=number % 2, headers={"n": str(number)})
    assert producer.flush(30) == 0

    records = read_records(kafka.direct_bootstrap, name)
    for partition in (0, 1):
        expected = range(partition, 5_000, 2)
        assert [record.value for record in records[partition]] == [f"value {n}".encode() for n in expected]
        assert records[partition][3].headers == [("n", str(expected[3]).encode())]
        batches = list(kafka.read_batches(name, partition))
        assert sum(batch.count for batch in batches) == len(expected)
        assert all(batch.crc_ok for batch in batches)
        assert len({(batch.producer_id, batch.epoch) for batch in batches}) == 1
        assert [batch.base_sequence for batch in batches] == [batch.base_offset for batch in batches]
        offsets = [offset for batch in batches for offset in range(batch.base_offset, batch.last_offset + 1)]
        assert offsets == [record.offset for record in records[partition]]
        (state,) = kafka.admin.describe_producers(name, partition)
        assert (state.producer_id, state.last_sequence) == (batches[-1].producer_id, len(expected) - 1)


def test_aborted_records_are_in_the_log_only(kafka: KafkaCluster, topic: Callable[..., str]) -> None:
    """Markers end transactions in the log; a committed read leaves out what was aborted."""
    name = topic()
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": f"tx-{name}"})
    producer.init_transactions(30)
    for value, finish in (("kept", producer.commit_transaction), ("dropped", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(name, value)
        producer.flush(30)
        finish(30)
    values = [record.value for record in read_records(kafka.direct_bootstrap, name)[0]]
    assert values == [b"kept", b"dropped"]
    committed = read_records(kafka.direct_bootstrap, name, isolation="read_committed")[0]
    assert [record.value for record in committed] == [b"kept"]
    batches = list(kafka.read_batches(name, 0))
    assert [batch.is_control for batch in batches] == [False, True, False, True]
    assert all(batch.is_transactional for batch in batches)


def test_damaged_segment_is_noticed(kafka: KafkaCluster, topic: Callable[..., str], tmp_path: Path) -> None:
    """A changed byte in a batch makes its checksum wrong; a cut-off last batch is left out."""
    name = topic()
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(name, b"x" * 100)
    producer.flush(30)
    (segment,) = (kafka.nodes[1].log_dir / f"{name}-0").glob("*.log")
    content = bytearray(segment.read_bytes())
    copy = tmp_path / segment.name
    copy.write_bytes(content[:-1])
    assert list(read_segments(tmp_path)) == []
    content[-10] ^= 1
    copy.write_bytes(content)
    assert [batch.crc_ok for batch in read_segments(tmp_path)] == [False]


def test_unknown_topic_is_an_error(kafka: KafkaCluster) -> None:
    """Reading a topic that does not exist raises instead of returning nothing."""
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
        read_records(kafka.direct_bootstrap, "no-such-topic", timeout=10)
