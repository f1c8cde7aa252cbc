"""Clients that want transactions, or groups of KIP-848: an error at once, and a warning for the test."""

import asyncio
import warnings
from collections.abc import Awaitable, Callable

import aiokafka  # type: ignore[import-untyped]
import aiokafka.errors  # type: ignore[import-untyped]
import pytest
from confluent_kafka import Consumer, KafkaException, Producer

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


def test_a_member_of_kip_848_is_refused_at_once(cluster: FakeCluster) -> None:
    """Rather than left to wait for ever; the warning says what is missing, and which setting helps."""
    cluster.create_topic("t")
    client = consumer(cluster, **{"group.protocol": "consumer"})
    client.subscribe(["t"])
    with pytest.warns(FakeClusterWarning, match=r"KIP-848, .*: set group.protocol to classic"):
        message = client.poll(PATIENCE)
        client.close()
    assert message is not None
    error = message.error()
    assert error is not None
    assert "Invalid request" in error.str()


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


def test_the_test_is_warned_once(cluster: FakeCluster) -> None:
    """However often clients ask; the next test is warned again."""
    for _ in range(2):
        with pytest.warns(FakeClusterWarning) as told:
            for name in ("one", "one", "two"):
                with RawClient(cluster.bootstrap, client_id=name) as client:
                    answer = client.ask("FindCoordinator", 4, key_type=1, coordinator_keys=["tx"])
                assert answer["coordinators"][0]["error_code"] == NO_RIGHTS
        assert [str(one.message).split(" asks ")[0] for one in told] == ["the client 'one'"]
        cluster.reset()


@pytest.mark.parametrize(("kind", "error"), [(0, 0), (1, NO_RIGHTS), (2, INVALID_REQUEST), (9, INVALID_REQUEST)])
@pytest.mark.filterwarnings("ignore::safeproducer.testing.FakeClusterWarning")
def test_coordinators_in_both_forms_of_the_answer(cluster: FakeCluster, kind: int, error: int) -> None:
    """One broker for each group, whoever is asked; from version 4 on for each key."""
    found = set()
    for broker in cluster.brokers:
        with RawClient(cluster.bootstrap, broker) as client:
            for version in (3, 4, 6):
                answer = client.ask("FindCoordinator", version, key="g", key_type=kind, coordinator_keys=["g", "g"])
                for one in [answer] if version < 4 else answer["coordinators"]:
                    assert (one["error_code"], bool(one["error_message"])) == (error, bool(error))
                    found.add(one["node_id"])
    assert len(found) == 1
    assert (found == {-1}) == bool(error)
