"""The account of a run adds up."""

from confluent_kafka import KafkaError

from safeproducer.cli.demo.experiment import Tally

TIMED_OUT = KafkaError(KafkaError._MSG_TIMED_OUT)
DENIED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
PURGED = KafkaError(KafkaError._PURGE_QUEUE)


def accepted(count: int) -> Tally:
    tally = Tally()
    for line in range(1, count + 1):
        tally.accept(line, 10)
    return tally


def test_a_record_given_up_at_the_deadline_stays_open() -> None:
    """What close() purges is left, not failed: no broker refused it."""
    tally = accepted(1)
    tally.report(1, PURGED)
    assert (tally.left, tally.failed) == (1, 0)


def test_a_withdrawn_record_was_never_sent() -> None:
    """A record for which there was no room leaves no trace."""
    tally = accepted(3)
    tally.withdraw(3)
    assert (tally.sent, tally.left) == (2, 2)


def test_an_error_that_all_records_share_is_remembered() -> None:
    """Missing rights end a run, a time-out of one record does not."""
    tally = accepted(2)
    tally.report(1, TIMED_OUT)
    assert tally.permanent is None
    tally.report(2, DENIED)
    assert tally.permanent is not None
    assert tally.permanent.code == "TOPIC_AUTHORIZATION_FAILED"
