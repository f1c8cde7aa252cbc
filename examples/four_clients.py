"""Six problems, four clients: confluent_kafka, the same with idempotence, aiokafka and SafeProducer.

    pip install '.[testing]' aiokafka
    python examples/four_clients.py            # the table of README.md, in two minutes
    python examples/four_clients.py lost-answer close

The brokers are a FakeCluster in this process. Each cell is counted in its log and its journal, or by the client.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar

import confluent_kafka

from safeproducer import SafeProducer

try:
    import aiokafka

    from safeproducer.testing import FakeCluster
except ModuleNotFoundError as error:
    sys.exit(f"{error.name or error} is not installed: pip install '.[testing]' aiokafka")

Delivered = list[bool]
QUIET = {"log_level": 0, "linger.ms": 1}
logging.getLogger("aiokafka").setLevel(logging.CRITICAL)


class Confluent:
    """A client with the calls of confluent_kafka, and what it is told of each record."""

    def __init__(self, cluster: FakeCluster, **settings: Any) -> None:
        self.delivered: Delivered = []
        self.producer = self.kind({"bootstrap.servers": cluster.bootstrap, **QUIET, **self.settings, **settings})

    kind: Callable[[dict[str, Any]], Any] = confluent_kafka.Producer
    settings: ClassVar[dict[str, Any]] = {}

    def send(self, value: str, partition: int = 0) -> bool:
        """Whether the record was accepted."""
        self.producer.poll(0)
        try:
            self.producer.produce(
                "orders", value, partition=partition, on_delivery=lambda error, _: self.delivered.append(error is None)
            )
        except BufferError:
            return False
        return True

    def wait(self, seconds: float) -> None:
        self.producer.flush(seconds)

    def close(self, seconds: float) -> None:
        self.producer.flush(seconds)
        self.producer.purge()

    def why(self) -> str:
        """What it says of records that wait."""
        return ""


class Idempotent(Confluent):
    settings: ClassVar[dict[str, Any]] = {"enable.idempotence": True}


class Safe(Confluent):
    kind = SafeProducer

    def close(self, seconds: float) -> None:
        self.producer.close(seconds)

    def why(self) -> str:
        return str(self.producer.explain())


class Aio:
    """aiokafka on an event loop of its own, with the same calls."""

    NAMES: ClassVar[dict[str, str]] = {"message.timeout.ms": "request_timeout_ms", "linger.ms": "linger_ms"}

    def __init__(self, cluster: FakeCluster, **settings: Any) -> None:
        self.delivered: Delivered = []
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        given = {self.NAMES[name]: value for name, value in settings.items() if name in self.NAMES}

        async def start() -> Any:
            producer = aiokafka.AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, **{"linger_ms": 1, **given})
            await producer.start()
            return producer

        self.producer = asyncio.run_coroutine_threadsafe(start(), self.loop).result(10)
        self.sent: list[Any] = []

    def send(self, value: str, partition: int = 0) -> bool:
        async def send() -> None:
            try:
                await self.producer.send_and_wait("orders", value.encode(), partition=partition)
            except Exception:
                self.delivered.append(False)
            else:
                self.delivered.append(True)

        self.sent.append(asyncio.run_coroutine_threadsafe(send(), self.loop))
        return True

    def wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not all(each.done() for each in self.sent) and time.monotonic() < deadline:
            time.sleep(0.01)

    def close(self, seconds: float) -> None:
        stopping = asyncio.run_coroutine_threadsafe(self.producer.stop(), self.loop)
        with suppress(TimeoutError):
            stopping.result(seconds)
        for each in (*self.sent, stopping):
            each.cancel()

    def why(self) -> str:
        return ""


CLIENTS: dict[str, Callable[..., Any]] = {
    "confluent_kafka": Confluent,
    "with idempotence": Idempotent,
    "aiokafka": Aio,
    "SafeProducer": Safe,
}


def twice(cluster: FakeCluster) -> int:
    """Records that are in the log more than once."""
    return sum(count > 1 for count in Counter(record.value for record in cluster.log("orders")).values())


def lost_answer(make: Callable[..., Any], cluster: FakeCluster) -> str:
    """20 records, whose first two answers are lost: how many are in the log twice."""
    cluster.create_topic("orders")
    client = make(cluster)
    client.send("first")
    client.wait(10)
    cluster.lose_acks(2, topic="orders")
    for number in range(20):
        client.send(f"order-{number}")
    client.close(20)
    return f"{twice(cluster)} of 20 twice"


def deadline(make: Callable[..., Any], cluster: FakeCluster) -> str:
    """A batch of 40 is written, its answer is lost, and 10 of it expire before the broker is back: how many twice.

    Raises TimeoutError on a machine that is too busy for these times.
    """
    cluster.create_topic("orders")
    client = make(cluster, **{"message.timeout.ms": 3000, "linger.ms": 1400})
    client.send("first")
    client.wait(10)
    cluster.delay(30, api="Produce")  # the answer is lost with the connection, below
    begun = time.monotonic()
    for number in range(40):
        if number == 10:
            time.sleep(1.3)
        client.send(f"order-{number}")
    in_time = time.monotonic() < begun + 1.4  # else the batch has left without the last ones
    cluster.wait(lambda cluster: len(cluster.log("orders")) == 41)
    for broker in cluster.brokers:
        cluster.pause(broker)
    cluster.cut()
    cluster.delay(0, api="Produce")
    time.sleep(max(0, begun + 3.5 - time.monotonic()))
    for broker in cluster.brokers:
        cluster.resume(broker)
    in_time = in_time and time.monotonic() < begun + 4  # then the others expire, too
    client.close(10)
    if not in_time:
        raise TimeoutError("the machine is too busy")
    return f"{twice(cluster)} of 40 twice"


def close(make: Callable[..., Any], cluster: FakeCluster) -> str:
    """100 records to a broker that hangs, and a second to close: how many have a report."""
    cluster.create_topic("orders")
    client = make(cluster)
    client.send("first")
    client.wait(10)
    cluster.pause(cluster.leader("orders")[0])
    for number in range(100):
        client.send(f"order-{number}")
    client.close(1)
    return f"{len(client.delivered) - 1} of 100 reported"


def silent_broker(make: Callable[..., Any], cluster: FakeCluster) -> str:
    """One of two brokers hangs while 500 records are produced for the other, in 5 s: how many of these arrive."""
    cluster.create_topic("orders", 2)
    # Room for three seconds of the silent broker's: that it owes answers shows after two.
    client = make(cluster, **{"queue.buffering.max.messages": 300})
    for partition in (0, 1):
        client.send("first", partition)
    client.wait(10)
    cluster.pause(cluster.leader("orders", 0)[0])
    for number in range(500):
        client.send(f"silent-{number}", 0)
        if not client.send(f"order-{number}", 1):
            client.wait(0.05)  # on a busy machine the queue may be full for a moment
            client.send(f"order-{number}", 1)
        time.sleep(0.01)
    client.wait(1)
    arrived = f"{sum((record.value or b'').startswith(b'order-') for record in cluster.log('orders', 1))} of 500 arrive"
    client.close(1)
    return arrived


def producer_ids(make: Callable[..., Any], cluster: FakeCluster) -> str:
    """20 producers one after another, one record each: the producer IDs that the brokers gave."""
    cluster.create_topic("orders")
    for number in range(20):
        client = make(cluster, **{"safeproducer.producer.ids.policy": "reuse"} if make is Safe else {})
        client.send(f"order-{number}")
        client.wait(10)
        client.close(1)
    return f"{len(cluster.journal('InitProducerId'))} IDs"


def cause(make: Callable[..., Any], cluster: FakeCluster) -> str:
    """A topic that is not there: whether the client names it within three seconds."""
    cluster.create_topic("order")
    client = make(cluster)
    client.send("order-1")
    client.wait(3)
    told = "named" if "'orders' is not there" in client.why() else "not named"
    client.close(1)
    return told


PROBLEMS = {
    "lost-answer": lost_answer,
    "deadline": deadline,
    "close": close,
    "silent-broker": silent_broker,
    "producer-ids": producer_ids,
    "cause": cause,
}


def play(problem: Callable[..., str], make: Callable[..., Any]) -> str:
    """The cell of a client, with new brokers; up to five times while the machine is too busy for its times."""
    for again in range(4, -1, -1):
        with FakeCluster(brokers=2) as cluster:
            try:
                return problem(make, cluster)
            except TimeoutError:
                if not again:
                    raise
    raise AssertionError


def main() -> int:
    parser = argparse.ArgumentParser(description="Show six problems with four clients.")
    parser.add_argument("problems", nargs="*", choices=[*PROBLEMS, []], metavar="problem", help=", ".join(PROBLEMS))
    wanted = parser.parse_args().problems or PROBLEMS
    print("| problem |", " | ".join(CLIENTS), "|")
    print("|---" * (len(CLIENTS) + 1) + "|")
    for name in wanted:
        cells = [play(PROBLEMS[name], make) for make in CLIENTS.values()]
        print(f"| `{name}` |", " | ".join(cells), "|", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
