"""Produces some records with confluent_kafka, in the way that its first argument names, and knows nothing of tests.

`python produces.py WAY BOOTSTRAP TOPIC`. Each way delivers RECORDS records, or as many in each of its processes.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

RECORDS = 20


def reported(error: Any, _: Any) -> None:
    assert error is None


def send(bootstrap: str, topic: str) -> None:
    import confluent_kafka  # noqa: PLC0415 - some ways import it by themselves

    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        producer.produce(topic, str(number), on_delivery=reported)
        producer.poll(0)
    assert producer.flush(20) == 0


def plain(bootstrap: str, topic: str) -> None:
    send(bootstrap, topic)


def fails(bootstrap: str, topic: str) -> None:
    send(bootstrap, topic)
    sys.exit(3)


def steadily(bootstrap: str, topic: str, settings: str) -> None:
    """With these settings, each record in a request or transaction of its own, and a rest at the end."""
    from confluent_kafka import Producer  # noqa: PLC0415

    producer = Producer({"bootstrap.servers": bootstrap, **json.loads(settings)})
    time.sleep(0.3)  # connected, and nothing to ask for: a topic that comes meanwhile is sometimes asked for twice
    in_transactions = "transactional.id" in settings
    if in_transactions:
        producer.init_transactions(20)
    for number in range(RECORDS):
        if in_transactions:
            producer.begin_transaction()
        producer.produce(topic, str(number), on_delivery=reported)
        assert producer.flush(20) == 0
        if in_transactions:
            producer.commit_transaction(20)
            time.sleep(0.05)  # the next one would be told to come again
    time.sleep(0.6)
    producer.poll(0)


def serializing(bootstrap: str, topic: str) -> None:
    from confluent_kafka import SerializingProducer  # noqa: PLC0415
    from confluent_kafka.serialization import StringSerializer  # noqa: PLC0415

    producer = SerializingProducer({"bootstrap.servers": bootstrap, "value.serializer": StringSerializer()})
    for number in range(RECORDS):
        producer.produce(topic, value=str(number))
    assert producer.flush(20) == 0


def futures(bootstrap: str, topic: str) -> None:
    from confluent_kafka.aio import AIOProducer  # noqa: PLC0415

    async def main() -> None:
        producer = AIOProducer({"bootstrap.servers": bootstrap})
        accepted = [await producer.produce(topic, value=str(number)) for number in range(RECORDS)]
        await producer.flush()
        assert len(await asyncio.gather(*accepted)) == RECORDS
        await producer.close()

    asyncio.run(main())


def subprocesses(bootstrap: str, topic: str) -> None:
    for _ in range(2):
        subprocess.run([sys.executable, __file__, "plain", bootstrap, topic], check=True)


def _started(method: str) -> Callable[[str, str], None]:
    def way(bootstrap: str, topic: str) -> None:
        send(bootstrap, topic)
        context: Any = multiprocessing.get_context(method)
        children = [context.Process(target=send, args=(bootstrap, topic)) for _ in range(2)]
        for child in children:
            child.start()
        for child in children:
            child.join()
        assert [child.exitcode for child in children] == [0, 0]

    return way


def imports(bootstrap: str, topic: str) -> None:
    """All threads import the package at once: half of them when the first has begun to run its code."""
    found: list[Any] = []
    barrier = threading.Barrier(20)

    def load(late: bool) -> None:
        barrier.wait()
        while late and "confluent_kafka.cimpl" not in sys.modules:
            time.sleep(0)
        import confluent_kafka  # noqa: PLC0415

        found.append((confluent_kafka.Producer, confluent_kafka.TopicPartition, confluent_kafka.__file__))

    threads = [threading.Thread(target=load, args=(number % 2,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 20
    assert len(set(found)) == 1
    send(bootstrap, topic)


def kombu(bootstrap: str, topic: str) -> None:
    connect: Any = __import__("kombu").Connection
    host = bootstrap.split(",", 1)[0]
    with connect(f"confluentkafka://{host}", transport_options={"kafka_common_config": {}}) as connection:
        queue = connection.SimpleQueue(topic)
        for number in range(RECORDS):
            queue.put(str(number))
        queue.close()


def faststream(bootstrap: str, topic: str) -> None:
    from faststream.confluent import KafkaBroker  # type: ignore[import-not-found] # noqa: PLC0415

    async def main() -> None:
        async with KafkaBroker(bootstrap.split(",")) as broker:
            for number in range(RECORDS):
                await broker.publish(str(number), topic=topic)

    asyncio.run(main())


def celery(bootstrap: str, topic: str) -> None:
    from celery import Celery  # type: ignore[import-untyped] # noqa: PLC0415

    app = Celery(set_as_current=False)
    app.conf.task_always_eager = True
    app.task(send).delay(bootstrap, topic)


WAYS: dict[str, Callable[..., None]] = {
    "steadily": steadily,
    **{way.__name__: way for way in (plain, fails, serializing, futures, subprocesses, imports)},
    **{way.__name__: way for way in (kombu, faststream, celery)},
    **{method: _started(method) for method in ("fork", "spawn", "forkserver")},
}

if __name__ == "__main__":
    WAYS[sys.argv[1]](*sys.argv[2:])
