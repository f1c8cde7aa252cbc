"""A long-running service: one producer for the life of the process, and a SIGTERM that drains it within a deadline.

    python examples/service_loop.py                     # on a cluster inside the process, until Ctrl-C or SIGTERM
    python examples/service_loop.py --seconds 3 --rate 500
    python examples/service_loop.py --bootstrap-servers localhost:9092 --topic measurements

Make the producer once, not per request or per batch: every new one takes a new producer ID from the brokers.
Exits with 0 when everything that was accepted was delivered, else with 1 after saying what is left.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time

from safeproducer import QueueFullError, SafeProducer


def run(producer: SafeProducer, args: argparse.Namespace, stop: threading.Event) -> None:
    """Take a measurement `rate` times a second and produce it, until told to stop."""
    started = time.monotonic()
    ends = started + args.seconds if args.seconds else float("inf")
    made = 0
    while not stop.is_set() and time.monotonic() < ends and made != args.records:
        due = started + made / args.rate
        while (wait := due - time.monotonic()) > 0 and not stop.is_set():
            producer.poll(min(wait, 0.1))  # reports are served while there is nothing else to do
        try:
            producer.produce(args.topic, key=f"sensor-{made % 10}", value=f"{time.time():.3f} {made}")
            made += 1
        except QueueFullError:
            # The brokers are slower than the sensors. This service waits; another could drop some, and count them.
            producer.poll(0.1)


def main() -> int:
    parser = argparse.ArgumentParser(description="Produce measurements until stopped.")
    parser.add_argument("--bootstrap-servers", help="default: librdkafka's mock cluster, inside this process")
    parser.add_argument("--topic", default="measurements")
    parser.add_argument("--rate", type=float, default=100, help="measurements a second")
    parser.add_argument("--seconds", type=float, help="stop after so many seconds")
    parser.add_argument("--records", type=int, help="stop after so many measurements")
    parser.add_argument(
        "--drain-seconds", type=float, default=10, help="less than what the supervisor grants on SIGTERM"
    )
    args = parser.parse_args()

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        # A handler only notes the wish: closing the producer inside it could interrupt a call of the same producer.
        signal.signal(number, lambda *_: stop.set())

    cluster = {"bootstrap.servers": args.bootstrap_servers} if args.bootstrap_servers else {"test.mock.num.brokers": 3}
    producer = SafeProducer({**cluster, "client.id": "measurements"})
    print(f"running as process {os.getpid()}", flush=True)
    try:
        run(producer, args, stop)
    finally:
        waiting_for = producer.explain()
        report = producer.close(args.drain_seconds)
        print(f"{report.accepted} accepted, {report.delivered} delivered, {report.failed} failed", flush=True)
        if report.left:
            print(f"{report.left} were left after {args.drain_seconds:g} s. {waiting_for}", file=sys.stderr)
    return 0 if report.failed == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
