"""A worker on asyncio: jobs come from a queue, and a job is done when its result is in the log.

    python examples/worker.py                       # a hundred jobs, on a cluster inside the process
    python examples/worker.py --jobs 1000 --tasks 50 --bootstrap-servers localhost:9092

Each job has a time limit. A result that was not written is tried again; one whose outcome is unknown is set aside, for
it may be in the log. SIGTERM and Ctrl-C end the worker: results that still wait in the process are taken back.
Exits with 0 when every job was done, else with 1 after saying what became of the others.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections import Counter

from safeproducer.aio import AsyncSafeProducer, NotWritten, OutcomeUnknown

LIMIT = 10
ATTEMPTS = 3


async def result_of(job: int) -> bytes:
    """The work itself."""
    await asyncio.sleep(0.001)
    return f"{job} squared is {job * job}".encode()


async def do(producer: AsyncSafeProducer, topic: str, job: int) -> str:
    """What became of the result of a job."""
    value = await result_of(job)
    for _ in range(ATTEMPTS):
        try:
            async with asyncio.timeout(LIMIT):
                await producer.send_and_wait(topic, value, key=str(job))
            return "done"
        except NotWritten:
            continue
        except OutcomeUnknown:
            return "unknown"
        except TimeoutError as error:  # the record was taken back, or goes on: it says which
            delivery = getattr(error.__cause__, "delivery", None)
            outcome = "not_written" if delivery is None else await delivery.settled()
            if outcome != "not_written":
                return "done" if outcome == "delivered" else "unknown"
    return "not written"


async def work(producer: AsyncSafeProducer, topic: str, jobs: asyncio.Queue[int], counts: Counter[str]) -> None:
    """One of the tasks: job after job."""
    while not jobs.empty():
        counts[await do(producer, topic, jobs.get_nowait())] += 1


async def run(args: argparse.Namespace, counts: Counter[str]) -> None:
    jobs = asyncio.Queue[int]()
    for job in range(args.jobs):
        jobs.put_nowait(job)
    cluster = {"bootstrap.servers": args.bootstrap_servers} if args.bootstrap_servers else {"test.mock.num.brokers": 3}
    config = {**cluster, "client.id": "worker", "message.timeout.ms": 5000}
    async with AsyncSafeProducer(config, close_timeout=args.drain_seconds) as producer, asyncio.TaskGroup() as group:
        tasks = [group.create_task(work(producer, args.topic, jobs, counts)) for _ in range(args.tasks)]
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, lambda: [task.cancel() for task in tasks])
        print("running", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Work on jobs until none is left.")
    parser.add_argument("--bootstrap-servers", help="default: librdkafka's mock cluster, inside this process")
    parser.add_argument("--topic", default="results")
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--tasks", type=int, default=20, help="jobs that are worked on at a time")
    parser.add_argument(
        "--drain-seconds", type=float, default=5, help="less than what the supervisor grants on SIGTERM"
    )
    args = parser.parse_args()
    counts = Counter[str]()
    asyncio.run(run(args, counts))
    print(f"{counts['done']} of {args.jobs} jobs done")
    for outcome in sorted(counts.keys() - {"done"}):
        print(f"{counts[outcome]} results: {outcome}", file=sys.stderr)
    return 0 if counts["done"] == args.jobs else 1


if __name__ == "__main__":
    sys.exit(main())
