"""Clients that want groups or transactions, which FakeCluster has not: an error at once, and a warning for the test."""

import asyncio
import warnings
from collections.abc import Awaitable, Callable

import aiokafka  # type: ignore[import-untyped]
import aiokafka.errors  # type: ignore[import-untyped]
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from safeproducer import SafeProducer
from safeproducer.testing import FakeCluster, FakeClusterWarning
from tests.testing.raw import RawClient

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it reads its own schemas in a deprecated way
    import kafka  # type: ignore[import-untyped]
    import kafka.errors  # type: ignore[import-untyped]

INVALID_REQUEST, NO_RIGHTS = 42, 53
PATIENCE = 20
"""Seconds that a client has for its error; those that try again never get one."""


def consumer(cluster: FakeCluster, **settings: object) -> Consumer:
    return Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "log_level": 0, **settings})


def join_with_confluent(cluster: FakeCluster, **settings: object) -> int:
    client = consumer(cluster, **settings)
    client.subscribe(["t"])
    message = client.poll(PATIENCE)
    client.close()
    assert message is not None
    error = message.error()
    assert error is not None
    # By the new protocol it is a fatal error, with the broker's in its text.
    return INVALID_REQUEST if "Invalid request" in error.str() else error.code()


def join_anew_with_confluent(cluster: FakeCluster) -> int:
    """By the protocol of KIP-848."""
    return join_with_confluent(cluster, **{"group.protocol": "consumer"})


def join_with_kafka_python(cluster: FakeCluster) -> int:
    client = kafka.KafkaConsumer("t", bootstrap_servers=cluster.bootstrap, group_id="g")
    try:
        client.poll(PATIENCE * 1000)
    except kafka.errors.KafkaError as error:
        return int(error.errno)
    finally:
        client.close()
    return 0


async def joined_with_aiokafka(cluster: FakeCluster) -> int:
    client = aiokafka.AIOKafkaConsumer("t", bootstrap_servers=cluster.bootstrap, group_id="g")
    try:
        await client.start()
        await client.getone()
    except aiokafka.errors.KafkaError as error:
        return INVALID_REQUEST if "InvalidRequestError" in str(error) else -1
    finally:
        await client.stop()
    return 0


async def begun_with_aiokafka(cluster: FakeCluster) -> int:
    client = aiokafka.AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, transactional_id="tx")
    try:
        await client.start()
    except aiokafka.errors.KafkaError as error:
        return int(error.errno)
    finally:
        await client.stop()
    return 0


def run(work: Callable[[FakeCluster], Awaitable[int]]) -> Callable[[FakeCluster], int]:
    async def patient(cluster: FakeCluster) -> int:
        return await asyncio.wait_for(work(cluster), PATIENCE)

    return lambda cluster: asyncio.run(patient(cluster))


def begin_with(make: type[Producer]) -> Callable[[FakeCluster], int]:
    def begin(cluster: FakeCluster) -> int:
        client = make({"bootstrap.servers": cluster.bootstrap, "transactional.id": "tx", "log_level": 0})
        with pytest.raises(KafkaException, match="FakeCluster has no transactions") as raised:
            client.init_transactions(PATIENCE)
        return int(raised.value.args[0].code())

    return begin


def begin_with_kafka_python(cluster: FakeCluster) -> int:
    client = kafka.KafkaProducer(
        bootstrap_servers=cluster.bootstrap, transactional_id="tx", max_block_ms=PATIENCE * 1000
    )
    try:
        client.init_transactions()
    except kafka.errors.KafkaError as error:
        return int(error.errno)
    finally:
        client.close(0)
    return 0


@pytest.mark.parametrize(
    "join",
    [
        pytest.param(join_with_confluent, id="confluent_kafka"),
        pytest.param(join_anew_with_confluent, id="confluent_kafka, KIP-848"),
        pytest.param(join_with_kafka_python, id="kafka-python"),
        pytest.param(run(joined_with_aiokafka), id="aiokafka"),
    ],
)
def test_a_member_of_a_group_is_refused_at_once(cluster: FakeCluster, join: Callable[[FakeCluster], int]) -> None:
    """Rather than left to wait for a coordinator for ever; the warning says what is missing and the way out."""
    cluster.create_topic("t")
    with pytest.warns(FakeClusterWarning, match=r"consumer groups \(\w+\), .*: assign partitions .* real broker"):
        assert join(cluster) == INVALID_REQUEST


@pytest.mark.parametrize(
    "begin",
    [
        pytest.param(begin_with(Producer), id="confluent_kafka"),
        pytest.param(begin_with(SafeProducer), id="safeproducer"),
        pytest.param(begin_with_kafka_python, id="kafka-python"),
        pytest.param(run(begun_with_aiokafka), id="aiokafka"),
    ],
)
def test_a_transaction_is_refused_at_once(cluster: FakeCluster, begin: Callable[[FakeCluster], int]) -> None:
    """By the one error that all of them take for final."""
    with pytest.warns(FakeClusterWarning, match=r"transactions, .*: leave transactional.id away, or use a real broker"):
        assert begin(cluster) == NO_RIGHTS


def test_offsets_are_neither_kept_nor_found(cluster: FakeCluster) -> None:
    """A consumer with assigned partitions learns at once that its group has no offsets, and closes at once."""
    cluster.create_topic("t")
    client = consumer(cluster)
    with pytest.warns(FakeClusterWarning, match=r"\(OffsetFetch\)"), pytest.raises(KafkaException) as raised:
        client.committed([TopicPartition("t", 0)], PATIENCE)
    assert raised.value.args[0].code() == INVALID_REQUEST
    with pytest.warns(FakeClusterWarning, match=r"\(OffsetCommit\)"), pytest.raises(KafkaException) as raised:
        client.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
    assert raised.value.args[0].code() == INVALID_REQUEST
    client.close()


def test_the_test_is_warned_once(cluster: FakeCluster) -> None:
    """However often clients ask; the next test is warned again."""
    for _ in range(2):
        with pytest.warns(FakeClusterWarning) as told:
            for name in ("one", "one", "two"):
                with RawClient(cluster.bootstrap, client_id=name) as client:
                    answer = client.ask("OffsetFetch", 9, groups=[{"group_id": "g", "topics": None}])
                assert answer["groups"][0]["error_code"] == INVALID_REQUEST
        assert [str(one.message).split(" asks ")[0] for one in told] == ["the client 'one'"]
        cluster.reset()


@pytest.mark.parametrize(("kind", "error"), [(0, 0), (1, NO_RIGHTS), (2, INVALID_REQUEST), (9, INVALID_REQUEST)])
@pytest.mark.filterwarnings("ignore::safeproducer.testing.FakeClusterWarning")
def test_coordinators_in_both_forms_of_the_answer(cluster: FakeCluster, kind: int, error: int) -> None:
    """The asked broker, for groups alone; from version 4 on for each key."""
    found = 2 if not error else -1
    with RawClient(cluster.bootstrap, 2) as client:
        for version in (3, 4, 6):
            answer = client.ask("FindCoordinator", version, key="g", key_type=kind, coordinator_keys=["g", "h"])
            for one in [answer] if version < 4 else answer["coordinators"]:
                assert (one["error_code"], one["node_id"], bool(one["error_message"])) == (error, found, bool(error))
