"""librdkafka's mock cluster, made so that signals do not end it."""

import signal
import sys

from confluent_kafka.cimpl import Producer


def mock_cluster(brokers: int) -> Producer:
    """The producer that has the cluster in it, for as long as it is open.

    Of librdkafka's threads the cluster's alone takes signals, and the system gives it one when the main thread is busy
    with another. A wait that a signal interrupts ends it: its brokers are gone, and close() waits for ever, or aborts.
    A thread is born with the mask of the one that makes it.
    """
    config = {"bootstrap.servers": "mock", "test.mock.num.brokers": brokers, "log_level": 0}
    if sys.platform == "win32":
        return Producer(config)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        return Producer(config)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
