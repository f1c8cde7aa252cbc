"""The log has what was told, whatever is cancelled when, and whatever brokers do."""

import asyncio
import os
import random
from collections import Counter
from typing import Any

import pytest

from safeproducer import ProducerClosedError
from safeproducer.aio import AsyncSafeProducer, Delivery, DeliveryFailed
from safeproducer.testing import FakeCluster
from tests.aio.support import PARTITIONS, PATIENCE, QUIET, log_of

SEEDS = int(os.environ.get("SAFEPRODUCER_SEEDS", "6"))
RECORDS = int(os.environ.get("SAFEPRODUCER_RECORDS", "400"))
ALLOWED = {"delivered": {1}, "not_written": {0}, "unknown": {0, 1}, "never accepted": {0}}
# Lost answers come in a row: with the client's own 10 s between two connections a seed would take a minute.
SOON = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "message.timeout.ms": 30_000}


class History:
    """What senders were told, and what they did."""

    def __init__(self) -> None:
        self.told = dict[bytes, str]()
        self.ends = Counter[bytes]()
        self.kinds = Counter[str]()
        self.deliveries = dict[bytes, Delivery]()

    def all_told(self) -> dict[bytes, str]:
        return {**self.told, **{value: delivery.outcome for value, delivery in self.deliveries.items()}}

    async def send(self, producer: AsyncSafeProducer, value: bytes, dice: random.Random) -> None:
        """By one of the calls; it may be withdrawn, and its task cancelled."""
        kind, partition = dice.choice(["send", "and_wait", "withdraw", "timeout"]), dice.choice([-1, -1, 0, 1, 2])
        key, delivery = dice.choice([None, b"a", b"b"]), None
        self.told[value] = "never accepted"
        try:
            if kind == "and_wait":
                await producer.send_and_wait("t", value, key, partition)
                self.told[value] = "delivered"
            elif kind == "timeout":
                async with asyncio.timeout(dice.random() * 0.05):
                    await producer.send_and_wait("t", value, key, partition)
                self.told[value] = "delivered"
            else:
                delivery = await producer.send("t", value, key, partition)
                if kind == "withdraw":
                    await asyncio.sleep(dice.random() * 0.01)
                    withdrawn = await delivery.withdraw()
                    assert not withdrawn or delivery.outcome == "not_written"
                await delivery
            self.ends[value] += 1
        except ProducerClosedError:
            pass
        except DeliveryFailed as error:
            self.told[value] = str(error.outcome)
            self.ends[value] += 1
        except (asyncio.CancelledError, TimeoutError) as error:
            cause = error.__cause__ if isinstance(error, TimeoutError) else error
            delivery = delivery or getattr(cause, "delivery", None)
            self.kinds["cancelled" if delivery is None else "cancelled, accepted"] += 1
        if delivery is not None:
            self.deliveries[value] = delivery
            await delivery.settled()


def harm(cluster: FakeCluster, dice: random.Random) -> None:
    partition, what = dice.randrange(PARTITIONS), dice.randrange(6)
    if what == 0:
        cluster.lose_acks(dice.randrange(1, 3))
    elif what == 1:
        cluster.move_leader("t", partition)
    elif what == 2:
        cluster.set_throttle(dice.randrange(100), broker=dice.choice(cluster.brokers))
    elif what == 3:
        cluster.cut(dice.choice(cluster.brokers))
    elif what == 4:
        cluster.pause(broker := dice.choice(cluster.brokers))
        asyncio.get_running_loop().call_later(dice.random() * 0.2, cluster.resume, broker)
    else:
        cluster.delay(dice.random() * 0.05)
        asyncio.get_running_loop().call_later(dice.random() * 0.2, cluster.delay, 0)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_log_has_what_was_told(cluster: FakeCluster, seed: int) -> None:
    """Delivered once, withdrawn and not written nowhere, unknown at most once; nothing is pending after close()."""
    dice, history = random.Random(seed), History()
    config = {
        "bootstrap.servers": cluster.bootstrap,
        "safeproducer.mode": dice.choice(["auto", "auto", "held"]),
        "safeproducer.ordering": dice.choice(["partition", "key", "none"]),
        "queue.buffering.max.messages": dice.choice([50, 1_000, 100_000]),
        "linger.ms": dice.choice([1, 20]),
        **SOON,
        **QUIET,
    }
    limit = dice.choice([0.01, 15, 15])

    async def main() -> Any:
        tasks = list[asyncio.Task[None]]()
        async with AsyncSafeProducer(config, close_timeout=limit) as producer:
            for number in range(RECORDS):
                tasks.append(asyncio.create_task(history.send(producer, b"%d" % number, dice)))
                if dice.random() < 0.1:
                    await asyncio.sleep(dice.random() * 0.02)
                if dice.random() < 0.3 and not (victim := dice.choice(tasks)).cancelling():
                    victim.cancel()
                if dice.random() < 0.02:
                    harm(cluster, dice)
            if limit > 1:
                await asyncio.wait(tasks, timeout=PATIENCE)
            cluster.set_throttle(0)
        await asyncio.wait(tasks, timeout=PATIENCE)
        assert all(task.done() for task in tasks)
        assert [task for task in tasks if not task.cancelled() and task.exception()] == []
        assert all(each.done() for each in history.deliveries.values())
        return producer.snapshot()

    account = asyncio.run(main())
    log = log_of(cluster)
    assert {value: told for value, told in history.all_told().items() if log[value] not in ALLOWED[told]} == {}
    assert set(log) <= set(history.told)
    assert set(history.ends.values()) <= {1}
    assert (account.unresolved, account.abandoned, account.interrupted) == (0, 0, 0)
    assert account.accepted == account.delivered + account.failed
