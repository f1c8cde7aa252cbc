"""The tap agrees with the log: what it counted is what the broker's segment files and its producer states say."""

import importlib
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer

from integration.kafka.broker_requests import ProducerState
from integration.kafka.cluster import KafkaCluster
from integration.kafka.log import Batch, read_segments
from integration.tap import AnswerSeen, BatchSeen, Tap

RECORDS = 200_000
PARTITIONS = 10
DROPS_AT = (50_000, 100_000, 150_000)

NewTopic = Callable[..., str]


def producer_class(name: str) -> Callable[[dict[str, Any]], Any]:
    """The class under test; SafeProducer is looked up late, so that the confluent_kafka cases never need it."""
    return Producer if name == "Producer" else importlib.import_module("safeproducer").SafeProducer


@dataclass(frozen=True)
class Accounts:
    """The same batches told by three parties: the wire, the log, and the leader's memory of producers."""

    seen: list[BatchSeen]
    answers: list[AnswerSeen]
    log: dict[int, list[Batch]]
    states: dict[int, list[ProducerState]]

    def disagreements(self) -> list[str]:
        """Every sentence is something two of them tell differently."""
        found: list[str] = []
        for partition in range(PARTITIONS):
            found += [f"partition {partition}: {what}" for what in self._in_partition(partition)]
        return found + self._retries()

    def _in_partition(self, partition: int) -> list[str]:
        found = []
        firsts = [batch for batch in self.seen if batch.partition == partition and batch.attempt == 1]
        wire = [(b.producer_id, b.epoch, b.base_sequence, b.count, b.size, b.crc) for b in firsts]
        log = [
            (b.producer_id, b.epoch, b.base_sequence, b.count, len(b.checked) + 21, b.crc) for b in self.log[partition]
        ]
        if wire != log:
            found.append(f"{len(wire)} batches on the wire, {len(log)} in the log, differing: {set(wire) ^ set(log)}")
        last = {batch.producer_id: batch for batch in firsts}
        wire_states = {(b.producer_id, b.epoch, b.base_sequence + b.count - 1) for b in last.values()}
        states = {(state.producer_id, state.epoch, state.last_sequence) for state in self.states[partition]}
        if wire_states != states:
            found.append(f"last sequences {wire_states} on the wire, DescribeProducers says {states}")
        answered = {
            answer.base_offset for answer in self.answers if answer.partition == partition and not answer.error_code
        }
        if answered != {batch.base_offset for batch in self.log[partition]}:
            found.append("the offsets answered are not those of the log's batches")
        return found

    def _retries(self) -> list[str]:
        attempts: dict[Any, list[BatchSeen]] = defaultdict(list)
        for batch in self.seen:
            attempts[batch.identity].append(batch)
        found = []
        for same in attempts.values():
            if [batch.attempt for batch in same] != list(range(1, len(same) + 1)):
                found.append(f"attempts out of order: {same}")
            if len({(batch.count, batch.crc) for batch in same}) != 1:
                found.append(f"a retry carries something else: {same}")
        return found


@dataclass
class Reports:
    """What the delivery reports said."""

    delivered: Counter[int]
    failed: list[KafkaError]

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.delivered[message.partition() or 0] += 1
        else:
            self.failed.append(error)


def send_all(producer: Any, topic: str, keyed: bool, tap: Tap) -> Reports:
    """200 000 records, losing an acknowledgement three times on the way."""
    reports = Reports(Counter(), [])
    for number in range(RECORDS):
        if number in DROPS_AT:
            tap.drop_answers()
        place = {"key": b"%d" % (number % 1000)} if keyed else {"partition": number % PARTITIONS}
        while True:
            try:
                producer.produce(topic, b"%0100d" % number, on_delivery=reports, **place)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 100 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0
    return reports


def read_accounts(tap: Tap, cluster: KafkaCluster, topic: str) -> Accounts:
    folder = cluster.nodes[1].log_dir
    return Accounts(
        [batch for batch in tap.batches if batch.topic == topic],
        [answer for answer in tap.answers if answer.topic == topic],
        {number: list(read_segments(folder / f"{topic}-{number}")) for number in range(PARTITIONS)},
        {number: cluster.admin.describe_producers(topic, number) for number in range(PARTITIONS)},
    )


@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "partition given"])
@pytest.mark.parametrize("name", ["Producer", "SafeProducer"])
def test_tap_agrees_with_log(tap: Tap, kafka_tapped: KafkaCluster, topic: NewTopic, name: str, keyed: bool) -> None:
    """Batches, counts, sequences and IDs at the tap equal the log's and DescribeProducers', through lost answers."""
    place = topic(partitions=PARTITIONS, on=kafka_tapped)
    config = {"bootstrap.servers": kafka_tapped.bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
    producer = producer_class(name)(config)
    reports = send_all(producer, place, keyed, tap)
    assert reports.failed == []
    assert reports.delivered.total() == RECORDS
    assert tap.drops_left == 0

    accounts = read_accounts(tap, kafka_tapped, place)
    assert accounts.disagreements() == []
    firsts = [batch for batch in accounts.seen if batch.attempt == 1]
    counted: Counter[int] = Counter()
    for batch in firsts:
        counted[batch.partition] += batch.count
    assert counted == reports.delivered
    assert len(accounts.seen) - len(firsts) >= len(DROPS_AT)
    assert sum(not answer.delivered for answer in accounts.answers) >= len(DROPS_AT)
    assert tap.undecoded == []
    for lie, told in lies(accounts).items():
        assert told.disagreements(), f"nobody noticed: {lie}"


def lies(truth: Accounts) -> dict[str, Accounts]:
    """Accounts of a tap that miscounts, one way each: the comparison must notice all of them."""
    seen = truth.seen
    middle = next(place for place, batch in enumerate(seen) if place > len(seen) // 2 and batch.attempt == 1)
    again = next(place for place, batch in enumerate(seen) if batch.attempt > 1)

    def with_batch(place: int, **changes: Any) -> Accounts:
        return replace(truth, seen=[*seen[:place], replace(seen[place], **changes), *seen[place + 1 :]])

    batch = seen[middle]
    answered = next(place for place, answer in enumerate(truth.answers) if not answer.error_code)
    moved = replace(truth.answers[answered], base_offset=truth.answers[answered].base_offset + RECORDS)
    return {
        "a batch is missed": replace(truth, seen=[*seen[:middle], *seen[middle + 1 :]]),
        "a batch is counted twice": replace(truth, seen=[*seen[: middle + 1], *seen[middle:]]),
        "a record too many": with_batch(middle, count=batch.count + 1),
        "a sequence is off by one": with_batch(middle, base_sequence=batch.base_sequence + 1),
        "another producer": with_batch(middle, producer_id=batch.producer_id + 1),
        "another epoch": with_batch(middle, epoch=batch.epoch + 1),
        "another partition": with_batch(middle, partition=(batch.partition + 1) % PARTITIONS),
        "a retry counts as new": with_batch(again, attempt=1),
        "a retry is missed as the first of two": with_batch(again, attempt=3),
        "a retry carries fewer records": with_batch(again, count=seen[again].count - 1),
        "another offset is answered": replace(truth, answers=[moved, *truth.answers]),
    }
