"""A small application that produces orders: keys, headers, delivery reports, errors, and a close with a deadline.

    python examples/application.py                                       # on a cluster inside the process
    python examples/application.py --bootstrap-servers localhost:9092    # on yours

Exits with 0 when every order was delivered, else with 1 and a sentence about the rest.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter

from confluent_kafka import KafkaException, Message

from safeproducer import DeliveryError, SafeProducer


class Reports:
    """What became of each record. Called by the producer inside poll(), flush() and close(), on this thread."""

    def __init__(self) -> None:
        self.delivered: Counter[int] = Counter()
        self.failed: dict[str, tuple[str, str]] = {}
        """By key: "not_written" or "unknown", and the error."""

    def __call__(self, error: DeliveryError | None, message: Message) -> None:
        # Test with `is None`: a KafkaError cannot be compared with None.
        if error is None:
            self.delivered[message.partition()] += 1
        else:
            self.failed[message.key().decode()] = error.outcome.value, error.str()


def send(producer: SafeProducer, topic: str, order: dict[str, object], reports: Reports) -> None:
    """Hand one order to the producer. The local queue may be full; then it is served until there is room."""
    while True:
        try:
            producer.produce(
                topic,
                key=str(order["id"]),  # orders with the same key keep their order, on one partition
                value=json.dumps(order),
                headers={"content-type": "application/json"},
                on_delivery=reports,
            )
            break
        except BufferError:
            producer.poll(0.1)
        except KafkaException as error:
            # Refused, so certainly not written: the record is too large, the topic unknown, or the error fatal.
            reports.failed[str(order["id"])] = "not_written", str(error)
            break
    producer.poll(0)  # calls `reports` for what has been answered meanwhile; without it the local queue fills up


def main() -> int:
    parser = argparse.ArgumentParser(description="Produce some orders.")
    parser.add_argument("--bootstrap-servers", help="default: librdkafka's mock cluster, inside this process")
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--orders", type=int, default=1000)
    parser.add_argument("--deadline", type=float, default=10, help="seconds to wait at the end")
    args = parser.parse_args()

    cluster = {"bootstrap.servers": args.bootstrap_servers} if args.bootstrap_servers else {"test.mock.num.brokers": 3}
    producer = SafeProducer({**cluster, "client.id": "orders", "linger.ms": 20, "compression.type": "lz4"})
    reports = Reports()
    for number in range(args.orders):
        send(producer, args.topic, {"id": f"order-{number}", "amount": number * 100}, reports)

    report = producer.close(args.deadline)
    print(f"{report.delivered} of {args.orders} orders delivered in {report.seconds:.2f} s to {args.topic}:", end=" ")
    print(", ".join(f"{count} on partition {number}" for number, count in sorted(reports.delivered.items())) or "-")
    for (outcome, error), count in Counter(reports.failed.values()).items():
        meaning = "may or may not be written" if outcome == "unknown" else "are not written"
        print(f"{count} orders {meaning}: {error}", file=sys.stderr)
    return 0 if report.delivered == args.orders else 1


if __name__ == "__main__":
    sys.exit(main())
