"""AIOProducer behaves as confluent_kafka's: one contract for both, and what ours does beyond it."""

import asyncio
import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import confluent_kafka.aio
import pytest
from confluent_kafka import KafkaException, Message, Producer
from confluent_kafka.serialization import StringSerializer

from safeproducer import Outcome
from safeproducer.aio import AIOProducer, NotWritten
from safeproducer.testing import FakeCluster
from tests.aio.support import PARTITIONS, PATIENCE, QUIET, log_of, until
from tests.inside import engine_of

Stock: Any = confluent_kafka.aio.AIOProducer
NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": 300, **QUIET}
both = pytest.mark.parametrize("cls", [Stock, AIOProducer], ids=["confluent_kafka", "safeproducer"])


def test_the_class_has_each_public_method() -> None:
    """With the parameters of confluent_kafka's, by name and order; ours may have more."""
    methods = {name for name in vars(Stock) if not name.startswith("_")}
    assert len(methods) == 13
    for name in [*methods, "__init__"]:
        theirs, ours = (inspect.signature(getattr(each, name)).parameters for each in (Stock, AIOProducer))
        named = [each for each, one in theirs.items() if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
        assert [each for each in ours if each in named] == named, name
    assert all(inspect.iscoroutinefunction(getattr(AIOProducer, name)) for name in methods)


@pytest.fixture
def conf(cluster: FakeCluster) -> dict[str, Any]:
    return {"bootstrap.servers": cluster.bootstrap, **QUIET}


@pytest.fixture
def run() -> Callable[[Any], Any]:
    """On a loop of asyncio; confluent_kafka's may leave something over."""

    async def limited(main: Callable[[], Any]) -> Any:
        async with asyncio.timeout(3 * PATIENCE):
            return await main()

    return lambda main: asyncio.run(limited(main))


# --- the contract ----------------------------------------------------------------------------------------------------


@both
async def test_a_future_ends_with_the_message(conf: dict[str, Any], cls: Any) -> None:
    """Behind a flush, as both need it or not; with key and partition by name. Ours takes a timestamp, too."""
    more = {"timestamp": 5_000} if cls is AIOProducer else {}
    async with cls(conf) as producer:
        future = await producer.produce("t", value=b"value", key=b"key", partition=1, **more)
        assert isinstance(future, asyncio.Future)
        assert await producer.flush() == 0
        message = await future
    assert isinstance(message, Message)
    assert (message.topic(), message.partition(), message.value(), message.key()) == ("t", 1, b"value", b"key")
    assert not more or message.timestamp() == (1, 5_000)


@both
async def test_a_failed_record_raises_a_kafka_exception(cls: Any) -> None:
    producer = cls(NOWHERE)
    future = await producer.produce("t", b"value")
    await producer.flush(5)
    with pytest.raises(KafkaException) as caught:
        await future
    await producer.close()
    assert caught.value.args[0].name() == "_MSG_TIMED_OUT"
    assert cls is Stock or (isinstance(caught.value, NotWritten) and caught.value.outcome is Outcome.NOT_WRITTEN)


@both
async def test_five_at_once(cluster: FakeCluster, conf: dict[str, Any], cls: Any) -> None:
    async with cls(conf) as producer:
        futures = await asyncio.gather(*(producer.produce("t", b"%d" % number) for number in range(5)))
        await producer.flush()
        messages = await asyncio.gather(*futures)
        assert sorted(message.value() for message in messages) == [b"0", b"1", b"2", b"3", b"4"]
        await asyncio.sleep(0)
        assert len(producer) == 0
    assert log_of(cluster).total() == 5


@both
async def test_length_is_zero_once_closed(conf: dict[str, Any], cls: Any) -> None:
    """The block closes it, and what was produced is delivered by then."""
    async with cls(conf) as producer:
        future = await producer.produce("t", b"value")
        assert len(producer) >= 1
    assert (len(producer), future.done(), producer._is_closed) == (0, True, True)


@both
async def test_poll_returns_a_number(conf: dict[str, Any], cls: Any) -> None:
    async with cls(conf) as producer:
        await producer.produce("t", b"value")
        for number in (await producer.poll(0), await producer.poll(timeout=0.01)):
            assert isinstance(number, int)
            assert number >= 0
        await producer.flush()


@both
async def test_questions_are_answered(conf: dict[str, Any], cls: Any) -> None:
    async with cls(conf) as producer:
        assert len((await producer.list_topics("t", timeout=20)).topics["t"].partitions) == PARTITIONS
        assert isinstance(await producer.cluster_id(20), str)


@both
async def test_an_executor_of_the_application_is_kept(conf: dict[str, Any], cls: Any) -> None:
    with ThreadPoolExecutor(1) as executor:
        async with cls(conf, 2, executor, batch_size=10, buffer_timeout=0.1) as producer:
            assert producer.executor is executor


@both
def test_it_is_made_on_an_event_loop(conf: dict[str, Any], cls: Any) -> None:
    with pytest.raises(RuntimeError):
        cls(conf)


@both
async def test_transactions(cls: Any) -> None:
    producer = cls({"test.mock.num.brokers": 1, "transactional.id": "tx", **QUIET})
    await producer.init_transactions(20)
    for end in (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction):
        await producer.begin_transaction()
        future = await producer.produce("t", b"value")
        await end(20)
        await future
    await producer.close()


@both
async def test_a_callback_of_the_configuration_may_be_a_coroutine_function(cls: Any) -> None:
    told = list[object]()

    async def failed(error: object) -> None:
        told.append(error)

    producer = cls({**NOWHERE, "error_cb": failed})
    for _ in range(200):
        await producer.poll(0.02)
        if told:
            break
    await producer.close()
    assert told


# --- beyond it -------------------------------------------------------------------------------------------------------


async def test_headers_and_positional_arguments_are_sent(cluster: FakeCluster, conf: dict[str, Any]) -> None:
    async with AIOProducer({**conf, "on_delivery": print}) as producer:
        await (await producer.produce("t", b"0", b"key", 1, headers=[("name", b"header")], timestamp=7))
        await (await producer.produce("t", b"1", None, 2, on_delivery=print))
    (first,), (second,) = cluster.log("t", 1), cluster.log("t", 2)
    assert (first.value, first.headers, second.value) == (b"0", (("name", b"header"),), b"1")


async def test_senders_wait_for_room(cluster: FakeCluster, conf: dict[str, Any]) -> None:
    """confluent_kafka's fails the records that find none."""
    async with AIOProducer({**conf, "queue.buffering.max.messages": 10}) as producer:
        await asyncio.gather(*await asyncio.gather(*(producer.produce("t", b"%d" % number) for number in range(200))))
    assert log_of(cluster).total() == 200


async def test_serializers_of_confluent_kafka_work_on_it(cluster: FakeCluster, conf: dict[str, Any]) -> None:
    """`safeproducer run` has their class derive from this one; here another class does what theirs does."""

    class Serializing(AIOProducer):
        async def produce(self, topic: str, key: Any = None, value: Any = None) -> Any:  # type: ignore[override]
            if self._is_closed:
                raise RuntimeError("Producer has been closed")
            return await super().produce(topic, StringSerializer()(value), key)

    async with Serializing(conf) as producer:
        await (await producer.produce("t", value="text"))
    with pytest.raises(RuntimeError):
        await producer.produce("t", value="late")
    assert log_of(cluster) == {b"text": 1}


async def test_nothing_is_polled_by_the_application(conf: dict[str, Any]) -> None:
    """poll() tells how many records ended, and waits for one."""
    async with AIOProducer(conf) as producer:
        await producer.produce("t", b"value")
        assert await producer.poll(PATIENCE) == 1
        await until(lambda: len(producer) == 0)
        assert await producer.poll(0) == 0
        assert isinstance(producer.producer, Producer)
        assert engine_of(producer.producer).route.state == "open"
