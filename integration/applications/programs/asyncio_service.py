"""A service on asyncio that polls on the loop; SIGTERM ends it through the loop's own handler."""

from __future__ import annotations

import asyncio
import itertools
import signal
from typing import Any

from integration.applications.programs.given import TOPIC, accepted, account, make, reported, say


async def poll(producer: Any) -> None:
    while True:
        producer.poll(0)
        await asyncio.sleep(0.005)


async def produce(producer: Any) -> None:
    loop = asyncio.get_running_loop()
    for number in itertools.count():
        written: asyncio.Future[None] = loop.create_future()

        def report(error: Any, message: Any, written: asyncio.Future[None] = written) -> None:
            reported(error, message)
            if not written.done():  # cancelled by the end
                written.set_result(None)

        producer.produce(TOPIC, str(number), on_delivery=report)
        accepted(str(number))
        await written
        say("answered")


async def main() -> None:
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    producer = make()
    tasks = [asyncio.create_task(poll(producer)), asyncio.create_task(produce(producer))]
    await stopping.wait()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    say("left", count=await asyncio.to_thread(producer.flush, 20))
    account(producer)


if __name__ == "__main__":
    asyncio.run(main())
