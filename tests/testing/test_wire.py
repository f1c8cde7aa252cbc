"""Kafka's wire format, checked against kafka-python's own encoder, which shares only the schema files with ours."""

import contextlib
import subprocess
import sys
import tracemalloc
import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safeproducer.testing import wire
from safeproducer.testing.codec import WireError
from safeproducer.testing.produce import crc32c, read_batch_headers
from tests.produce_messages import read_produce, read_produce_answer
from tests.project.test_project import ROOT, script
from tests.testing.raw import kafka_python

oracle_produce = kafka_python("kafka.protocol.producer.produce")
oracle_configs = kafka_python("kafka.protocol.admin.configs")
oracle_metadata = kafka_python("kafka.protocol.metadata.metadata")
oracle_api_versions = kafka_python("kafka.protocol.metadata.api_versions")
oracle_transaction = kafka_python("kafka.protocol.producer.transaction")
oracle_records = kafka_python("kafka.record.default_records")

KAFKA_JARS = sorted(ROOT.glob(".cache/kafka-4.4.0/lib/kafka-clients-*.jar"))
TOPIC_ID = uuid.UUID("6a5e3f1c-9f0f-4b7e-9d53-0f6d0c1b2a34")
CLIENTS = {"kafka 1": 3, "aiokafka": 7, "kafka-python": 9, "librdkafka": 10, "java 4.0": 12, "java": 13}


def record_batch(count: int = 3, producer_id: int = 4711, epoch: int = 2, sequence: int = 70, codec: int = 0) -> bytes:
    builder = oracle_records.DefaultRecordBatchBuilder(2, codec, False, producer_id, epoch, sequence, 1 << 20)
    for offset in range(count):
        builder.append(offset, timestamp=1_700_000_000_000, key=b"k", value=b"v" * 50, headers=[("h", b"1")])
    return bytes(builder.build())


def produce_frame(version: int, *batches: bytes, acks: int = -1) -> bytes:
    """A Produce request with two partitions, encoded by kafka-python."""
    request = oracle_produce.ProduceRequest
    topic = request.TopicProduceData
    named = {"topic_id": TOPIC_ID} if version >= 13 else {"name": "orders"}
    part = topic.PartitionProduceData
    partitions = [part(version=version, index=index, records=records) for index, records in enumerate(batches)]
    data = topic(version=version, partition_data=partitions, **named)
    message = request(version=version, transactional_id=None, acks=acks, timeout_ms=30_000, topic_data=[data])
    message.with_header(correlation_id=99, client_id="client")
    return bytes(message.encode(header=True))


def answer_frame(version: int, throttle: int = 250) -> bytes:
    """A Produce answer encoded by kafka-python, one partition refused."""
    response = oracle_produce.ProduceResponse
    topic = response.TopicProduceResponse
    named = {"topic_id": TOPIC_ID} if version >= 13 else {"name": "orders"}
    told = ({"error_code": 0, "base_offset": 12}, {"error_code": 45, "base_offset": -1})
    part = topic.PartitionProduceResponse
    partitions = [part(version=version, index=index, **one) for index, one in enumerate(told)]
    responses = [topic(version=version, partition_responses=partitions, **named)]
    message = response(version=version, responses=responses, throttle_time_ms=throttle)
    message.with_header(correlation_id=99)
    return bytes(message.encode(header=True))


@pytest.mark.parametrize("version", CLIENTS.values(), ids=CLIENTS.keys())
def test_produce_request_of_each_client(version: int) -> None:
    """The version each client chooses is read: topic, partitions, and everything a batch header says."""
    frame = produce_frame(version, record_batch(), record_batch(2, -1, -1, -1) + record_batch(1, -1, -1, -1))
    header = wire.read_request_header(frame)
    assert (header.api, header.api_key, header.version) == ("Produce", 0, version)
    assert (header.correlation_id, header.client_id) == (99, "client")

    request = read_produce(header, frame)
    assert (request.acks, request.timeout_ms, request.transactional_id) == (-1, 30_000, None)
    first, _, third = request.batches
    assert (first.topic, first.topic_id) == ((None, TOPIC_ID) if version >= 13 else ("orders", None))
    assert [batch.partition for batch in request.batches] == [0, 1, 1]
    assert [batch.header.count for batch in request.batches] == [3, 2, 1]
    assert (first.header.producer_id, first.header.epoch) == (4711, 2)
    assert (first.header.base_sequence, first.header.last_sequence) == (70, 72)
    assert (third.header.producer_id, third.header.base_sequence, third.header.last_sequence) == (-1, -1, -1)
    assert first.header.size == len(record_batch()) == len(first.data)
    assert all(batch.crc_matches() for batch in request.batches)


@pytest.mark.parametrize("version", CLIENTS.values(), ids=CLIENTS.keys())
def test_produce_answer_of_each_client(version: int) -> None:
    """Throttle time, error codes and offsets are read; a changed throttle time changes nothing else."""
    frame = answer_frame(version)
    answer = read_produce_answer(version, frame)
    assert (answer.correlation_id, answer.throttle_time_ms) == (99, 250)
    assert [(one.partition, one.error_code, one.base_offset) for one in answer.partitions] == [(0, 0, 12), (1, 45, -1)]

    correlation, body = wire.decode_response("Produce", version, frame)
    assert wire.encode_response("Produce", version, correlation, body) == frame
    slower = wire.encode_response("Produce", version, correlation, {**body, "throttle_time_ms": 1_500})
    assert slower == answer_frame(version, throttle=1_500)


def test_every_api_survives_a_round_trip() -> None:
    """Of every API and version there is a schema of, default messages read back to the same bytes."""
    checked = 0
    for api in sorted(wire._api_keys()):
        first, last = wire.versions(api)
        for version in range(first, last + 1):
            request = wire.encode_request(api, version, 7, "me", {})
            header = wire.read_request_header(request)
            assert (header.api, header.api_key, header.correlation_id) == (api, wire.api_key(api), 7)
            body = wire.decode_request(header, request)
            assert wire.encode_request(api, version, 7, "me", body) == request
            response = wire.encode_response(api, version, 7, {})
            assert wire.encode_response(api, version, *wire.decode_response(api, version, response)) == response
            checked += 1
    assert checked > 200


def oracle_answers() -> list[tuple[str, int, bytes]]:
    """Filled answers of the APIs the tap reads or rewrites, encoded by kafka-python."""
    frames = []

    def add(api: str, version: int, message: Any) -> None:
        message.with_header(correlation_id=5)
        frames.append((api, version, bytes(message.encode(header=True))))

    configs = oracle_configs.DescribeConfigsResponse
    result, entry = configs.DescribeConfigsResult, configs.DescribeConfigsResult.DescribeConfigsResourceResult
    for version in range(1, 5):
        one = entry(name="retention.ms", value="604800000", read_only=False, config_source=5, is_sensitive=False)
        other = entry(name="secret", value=None, read_only=True, config_source=4, is_sensitive=True)
        whose = {"error_code": 0, "error_message": None, "resource_type": 2, "resource_name": "orders"}
        described = result(configs=[one, other], **whose)
        add("DescribeConfigs", version, configs(version=version, throttle_time_ms=3, results=[described]))

    metadata = oracle_metadata.MetadataResponse
    topic = metadata.MetadataResponseTopic
    place = {"error_code": 0, "partition_index": 1, "leader_id": 2, "leader_epoch": 9}
    named = {"error_code": 0, "name": "orders", "topic_id": TOPIC_ID, "is_internal": False}
    for version in range(14):
        partition = topic.MetadataResponsePartition(**place, replica_nodes=[2, 3], isr_nodes=[2])
        broker = metadata.MetadataResponseBroker(node_id=2, host="ünter", port=9092, rack=None)
        told = {"brokers": [broker], "topics": [topic(**named, partitions=[partition])]}
        add("Metadata", version, metadata(version=version, cluster_id="c", controller_id=2, **told))
    for version in range(5):
        keys = oracle_api_versions.ApiVersionsResponse.ApiVersion
        ranges = [keys(api_key=0, min_version=3, max_version=13), keys(api_key=3, min_version=0, max_version=13)]
        add("ApiVersions", version, oracle_api_versions.ApiVersionsResponse(version=version, api_keys=ranges))
        ids = oracle_transaction.InitProducerIdResponse
        add("InitProducerId", version, ids(version=version, producer_id=1 << 40, producer_epoch=3))
    return frames


@pytest.mark.parametrize(("api", "version", "frame"), oracle_answers(), ids=lambda value: str(value)[:20])
def test_answers_read_as_the_oracle_wrote_them(api: str, version: int, frame: bytes) -> None:
    """Answers that the tap reads or rewrites come back byte for byte when nothing is changed."""
    correlation, body = wire.decode_response(api, version, frame)
    assert correlation == 5
    if api == "Metadata":
        assert body["brokers"][0]["host"] == "ünter"
        assert body["topics"][0]["partitions"][0]["replica_nodes"] == [2, 3]
    if api == "DescribeConfigs":
        assert [entry["value"] for entry in body["results"][0]["configs"]] == ["604800000", None]
    if api == "InitProducerId":
        assert (body["producer_id"], body["producer_epoch"]) == (1 << 40, 3)
    assert wire.encode_response(api, version, correlation, body) == frame


def test_refused_api_versions_is_read_as_version_0() -> None:
    """A broker that does not know the ApiVersions version asked for answers in version 0, and that is understood."""
    frame = wire.encode_response("ApiVersions", 0, 5, {"error_code": 35})
    assert wire.decode_response("ApiVersions", 4, frame)[1]["error_code"] == 35


def test_unknown_tags_are_skipped_and_kept() -> None:
    """Unknown tagged fields, in header, body and nested structs, do not disturb reading and survive writing."""
    body = {
        "_header_tags": {3: b"new"},
        "_tags": {0: b"", 77: b"x" * 300},
        "topic_data": [{"name": "t", "partition_data": [{"index": 4, "records": record_batch(), "_tags": {9: b"y"}}]}],
    }
    frame = wire.encode_request("Produce", 10, 1, "me", body)
    header = wire.read_request_header(frame)
    (batch,) = read_produce(header, frame).batches
    assert (batch.partition, batch.header.count) == (4, 3)
    read = wire.decode_request(header, frame)
    assert read["_tags"] == {0: b"", 77: b"x" * 300}
    assert wire.encode_request("Produce", 10, 1, "me", {**read, "_header_tags": {3: b"new"}}) == frame

    answer = {"_header_tags": {1: b"h"}, "_tags": {5: b"z"}, "responses": [{"name": "t", "_tags": {2: b"n"}}]}
    response = wire.encode_response("Produce", 10, 1, answer)
    assert wire.encode_response("Produce", 10, *wire.decode_response("Produce", 10, response)) == response
    assert b"z" in response


def test_known_tags_are_read() -> None:
    """The new leader in a Produce answer (a tagged struct, KIP-951) is a field like any other."""
    partition = {"index": 0, "error_code": 6, "current_leader": {"leader_id": 3, "leader_epoch": 8}}
    sent = {"responses": [{"name": "t", "partition_responses": [partition]}]}
    body = wire.decode_response("Produce", 10, wire.encode_response("Produce", 10, 1, sent))[1]
    leader = body["responses"][0]["partition_responses"][0]["current_leader"]
    assert leader == {"leader_id": 3, "leader_epoch": 8}


def read_request(frame: bytes) -> None:
    header = wire.read_request_header(frame)
    if header.api == "Produce" and header.body is not None:
        read_produce(header, frame)
    elif header.body is not None:
        wire.decode_request(header, frame)


@pytest.mark.parametrize("version", CLIENTS.values(), ids=CLIENTS.keys())
def test_truncated_request_is_an_error_at_every_byte(version: int) -> None:
    """A Produce request cut anywhere, or with a byte too many, is a WireError and nothing else."""
    frame = produce_frame(version, record_batch(), record_batch())
    for length in range(len(frame)):
        with pytest.raises(WireError):
            read_request(frame[:length])
    with pytest.raises(WireError):
        read_request(frame + b"\0")


@pytest.mark.parametrize(("api", "version", "frame"), oracle_answers(), ids=lambda value: str(value)[:20])
def test_truncated_answer_is_an_error_at_every_byte(api: str, version: int, frame: bytes) -> None:
    """An answer cut anywhere is a WireError and nothing else."""
    for length in range(len(frame)):
        with pytest.raises(WireError):
            wire.decode_response(api, version, frame[:length])


GIANT = {
    "compact array, metadata v12": (3, 12, b"\0\xff\xff\xff\xff\x0f", "declares .* left"),
    "compact array, describe configs v4": (32, 4, b"\0\xff\xff\xff\xff\x0f", "declares .* left"),
    "legacy array, metadata v1": (3, 1, b"\x7f\xff\xff\xff", "declares .* left"),
    "negative array, metadata v1": (3, 1, b"\x80\x00\x00\x00", "declares the length"),
    "compact string, produce v9": (0, 9, b"\0\xff\xff\xff\xff\x0f", "declares .* left"),
    "legacy string, produce v3": (0, 3, b"\x7f\xff", "declares .* left"),
    "tag count, metadata v12": (3, 12, b"\xff\xff\xff\xff\x0f", "declares .* left"),
    "tag size, metadata v12": (3, 12, b"\x01\x09\xff\xff\xff\xff\x0f", "declares .* left"),
    "endless varint": (3, 12, b"\x01" + b"\xff" * 100_000, "longer than 5 bytes"),
}


@pytest.mark.parametrize(("key", "version", "body", "words"), GIANT.values(), ids=GIANT.keys())
def test_giant_length_is_refused_before_anything_is_allocated(key: int, version: int, body: bytes, words: str) -> None:
    """A declared length beyond the bytes left costs an error, not gigabytes."""
    frame = key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\1\xff\xff" + body
    wire.versions(wire.api_name(key))
    read_request(wire.encode_request(wire.api_name(key), version, 1, None, {}))
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match=words):
            read_request(frame)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@settings(max_examples=400)
@given(data=st.data())
def test_mutated_frames_give_wire_errors_only(data: st.DataObject) -> None:
    """Whatever bytes are changed, a frame is read or refused with WireError; nothing else escapes."""
    version = data.draw(st.sampled_from(sorted(CLIENTS.values())))
    frame = bytearray(produce_frame(version, record_batch(), record_batch()))
    answer = bytearray(answer_frame(version))
    for target in (frame, answer):
        for _ in range(data.draw(st.integers(1, 6))):
            target[data.draw(st.integers(0, len(target) - 1))] = data.draw(st.integers(0, 255))
    for attempt in (lambda: read_request(bytes(frame)), lambda: read_produce_answer(version, bytes(answer))):
        with contextlib.suppress(WireError):
            attempt()


@settings(max_examples=300)
@given(key=st.integers(-2, 95), version=st.integers(-2, 20), body=st.binary(max_size=80))
def test_random_frames_give_wire_errors_only(key: int, version: int, body: bytes) -> None:
    """Noise behind any API key and version is read or refused with WireError."""
    frame = key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True) + body
    for attempt in (lambda: read_request(frame), lambda: wire.decode_response(wire.api_name(key), version, body)):
        with contextlib.suppress(WireError):
            attempt()


def test_batches_are_refused_that_are_not_what_they_say() -> None:
    """Old message formats and wrong batch lengths are errors; a changed byte breaks the checksum."""
    good = record_batch()
    old = bytearray(good)
    old[16] = 1
    with pytest.raises(WireError, match="format 1"):
        list(read_batch_headers(memoryview(bytes(old))))
    for length in (-12, 0, 48, len(good), 2**31 - 1):
        wrong = bytearray(good)
        wrong[8:12] = length.to_bytes(4, "big", signed=True)
        with pytest.raises(WireError, match="declares"):
            list(read_batch_headers(memoryview(bytes(wrong))))
    frame = bytearray(produce_frame(10, good))
    frame[-10] ^= 1
    (batch,) = read_produce(wire.read_request_header(bytes(frame)), bytes(frame)).batches
    assert not batch.crc_matches()


def test_sequences_go_on_at_0() -> None:
    """The last sequence of a batch that passes 2^31 - 1 is counted from 0 again."""
    ((header, _),) = read_batch_headers(memoryview(record_batch(3, sequence=2**31 - 2)))
    assert header.last_sequence == 0


def test_crc32c_is_the_standard_one() -> None:
    """The check value of the CRC catalogue."""
    assert crc32c(b"123456789") == 0xE3069283


def test_unknown_api_has_a_header_and_no_body() -> None:
    """A request of an API without a schema is named by its number; its body is not guessed at."""
    header = wire.read_request_header(b"\x03\xe7\0\0\0\0\0\x05\0\x02me rest")
    assert (header.api, header.client_id, header.body) == ("Api999", "me", None)
    with pytest.raises(WireError, match="Api999"):
        wire.decode_request(header, b"")
    with pytest.raises(WireError, match="Produce v15"):
        wire.encode_request("Produce", 15, 1, None, {})


@pytest.mark.parametrize(
    "body", [{"acks": "all"}, {"acks": 1 << 20}, {"topic_data": None}, {"topic_data": [{"name": "\udcff"}]}]
)
def test_values_a_message_cannot_hold_are_wire_errors(body: dict[str, Any]) -> None:
    """Wrong types, numbers out of range, nulls and lone surrogates are refused in one way."""
    with pytest.raises(WireError):
        wire.encode_request("Produce", 10, 1, None, body)


def test_schemas_are_those_of_kafka() -> None:
    """Each message has both halves, nothing is in the file that makes no bytes, and the keys are Kafka's."""
    schemas = wire._schemas()
    apis = {name.removesuffix("Request") for name in schemas if name.endswith("Request")}
    assert {f"{api}{kind}" for api in apis for kind in ("Request", "Response")} == set(schemas)
    assert "about" not in str(schemas)
    assert {api: wire.api_key(api) for api in ("Produce", "Fetch", "ConsumerGroupHeartbeat")} == {
        "Produce": 0,
        "Fetch": 1,
        "ConsumerGroupHeartbeat": 68,
    }


@pytest.mark.skipif(not list(KAFKA_JARS), reason="no Kafka in .cache: scripts/test brings it")
def test_schemas_are_taken_from_the_jar_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = script("schemas")
    before = made.FILE.read_text(encoding="utf-8")
    monkeypatch.setattr(made, "FILE", tmp_path / "schemas.json")
    made.main(*map(str, KAFKA_JARS), *wire._schemas())
    assert made.FILE.read_text(encoding="utf-8") == before


def test_no_other_client_is_needed() -> None:
    """FakeCluster works without kafka-python, and so beside its version 2; its clients' records arrive."""
    code = """
import sys
sys.modules["kafka"] = sys.modules["aiokafka"] = None
from safeproducer import SafeProducer
from safeproducer.testing import FakeCluster
with FakeCluster() as cluster:
    cluster.create_topic("t")
    producer = SafeProducer({"bootstrap.servers": cluster.bootstrap})
    producer.produce("t", "x")
    producer.close(20)
    print(len(cluster.log("t")))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


def test_a_schema_that_two_threads_load_at_once_is_extended_once() -> None:
    """A cache lets both in: a field that is there twice has its tag twice in an answer."""
    load = wire._schema.__wrapped__
    load("Produce", "Response")
    again = load("Produce", "Response")
    topics = next(field for field in again["fields"] if field["name"] == "Responses")
    assert [field["name"] for field in topics["fields"]].count("ProducerStateBatchesToRetain") == 1
