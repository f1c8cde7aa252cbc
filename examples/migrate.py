"""Migrating from confluent_kafka.Producer: two lines change, the code that uses the producer does not.

    -from confluent_kafka import Producer            +from safeproducer import SafeProducer
    -producer = Producer(config)                     +producer = SafeProducer(config)

    python examples/migrate.py                                       # on a cluster inside the process
    python examples/migrate.py --bootstrap-servers localhost:9092    # on yours

Runs the same function on both classes. Exits with 0 when all records of both were delivered, else with 1.
"""

from __future__ import annotations

import argparse
import sys

from confluent_kafka import KafkaError, Message, Producer

from safeproducer import SafeProducer


def send_events(producer: Producer, topic: str, count: int, deadline: float) -> int:
    """Code as applications have it, written for confluent_kafka.Producer. Returns how many records were delivered."""
    delivered = 0

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        nonlocal delivered
        if error is None:
            delivered += 1

    for number in range(count):
        try:
            producer.produce(topic, key=str(number), value=f"event {number}", on_delivery=on_delivery)
        except BufferError:
            producer.poll(1)
            producer.produce(topic, key=str(number), value=f"event {number}", on_delivery=on_delivery)
        producer.poll(0)
    producer.flush(deadline)
    return delivered


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the same code on both producers.")
    parser.add_argument("--bootstrap-servers", help="default: librdkafka's mock cluster, inside this process")
    parser.add_argument("--topic", default="events")
    parser.add_argument("--events", type=int, default=500)
    parser.add_argument("--deadline", type=float, default=10, help="seconds to wait for each producer")
    args = parser.parse_args()
    config = {"bootstrap.servers": args.bootstrap_servers} if args.bootstrap_servers else {"test.mock.num.brokers": 3}

    # Before.
    producer = Producer(config)
    before = send_events(producer, args.topic, args.events, args.deadline)
    print(f"confluent_kafka.Producer: {before} of {args.events} delivered")

    # After. Idempotence is on by default now, so the client's own retries neither duplicate nor reorder.
    producer = SafeProducer(config)
    after = send_events(producer, args.topic, args.events, args.deadline)
    print(f"safeproducer.SafeProducer: {after} of {args.events} delivered")

    # What comes with it: an account of every record, and a close that ends in time and says what is left.
    account = producer.snapshot()
    print(f"  it counted {account.accepted} accepted, {account.delivered} delivered, {account.unresolved} unresolved")
    print(f"  {producer.explain()}")
    report = producer.close(args.deadline)
    print(f"  closed in {report.seconds:.2f} s with {report.left} left")
    return 0 if before == after == args.events else 1


if __name__ == "__main__":
    sys.exit(main())
