"""One instance of a program that reads, transforms and writes in transactions; it runs until it is killed."""

import sys

from confluent_kafka import Consumer, KafkaException

from safeproducer import FatalError, SafeProducer

SESSION, TRANSACTION = 6_000, 10_000
MOST = 20
"""Records of a transaction."""
PATIENCE = 20


def run(bootstrap: str, name: str, group: str, source: str, target: str) -> None:
    """`name` is the transactional.id. Whoever fences it ends it; so does what it does not know."""
    common = {"bootstrap.servers": bootstrap, "log_level": 0}
    reading = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    beats = {"heartbeat.interval.ms": 300, "session.timeout.ms": SESSION, "isolation.level": "read_committed"}
    consumer = Consumer({**common, **reading, **beats})
    limits = {"transaction.timeout.ms": TRANSACTION, "socket.timeout.ms": 3_000}
    producer = SafeProducer({**common, **limits, "transactional.id": name})
    producer.init_transactions(PATIENCE)
    consumer.subscribe([source])
    while True:
        messages = [one for one in consumer.consume(MOST, 0.2) if one.error() is None]
        if not messages:
            continue
        try:
            with producer.transaction(PATIENCE, offsets_of=consumer):
                for message in messages:
                    producer.produce(target, message.value(), partition=message.partition())
                if len(messages) % 2:  # in the log when the offsets are refused
                    producer.flush(PATIENCE)
        except FatalError:
            raise
        except KafkaException:
            rewind(consumer)


def rewind(consumer: Consumer) -> None:
    """Read on behind what is committed, once that is known."""
    for place in consumer.committed(consumer.assignment(), PATIENCE):
        consumer.seek(place)


if __name__ == "__main__":
    run(*sys.argv[1:])
