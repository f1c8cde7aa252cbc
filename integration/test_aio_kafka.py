"""asyncio on real Kafka: blocks of a transaction that a time limit ends anywhere, which brokers in a process do not
show."""

import asyncio
import random
import uuid
from collections.abc import Callable
from typing import Any

from integration.kafka.cluster import KafkaCluster
from integration.test_transaction_quota import committed
from safeproducer.aio import AsyncSafeProducer

BLOCKS = 200
RECORDS = 3


def test_time_limits_leave_whole_transactions(kafka: KafkaCluster, topic: Callable[..., str]) -> None:
    """At random moments of the block and of the commit. None is fatal, though an abort beside a partition that is being
    added is (librdkafka 4849)."""
    place, dice, ended = topic(partitions=1), random.Random(7), dict[int, bool | None]()

    async def main() -> None:
        config = {"bootstrap.servers": kafka.bootstrap, "transactional.id": uuid.uuid4().hex, "log_level": 0}
        async with AsyncSafeProducer(config) as producer:
            await producer.init_transactions(60)
            for number in range(BLOCKS):
                ended[number] = None  # aborted
                try:
                    async with asyncio.timeout(dice.random() * 0.06), producer.transaction():
                        for part in range(RECORDS):
                            await producer.send(place, b"", b"%d %d" % (number, part))
                        await asyncio.sleep(dice.random() * 0.02)
                    ended[number] = True
                except TimeoutError as error:
                    cause: Any = error.__cause__
                    if hasattr(cause, "ended") and "commit_transaction" in str(cause.__notes__):
                        ended[number] = cause.ended
            assert producer.snapshot().state == "open"

    asyncio.run(main())
    seen = [key.decode().split() for key in committed(kafka, place) if key is not None]
    found = {number: sum(int(one) == number for one, _ in seen) for number in range(BLOCKS)}
    assert found == {number: RECORDS if end else 0 for number, end in ended.items()}
    assert {True, None} <= set(ended.values())
