"""The account of a run adds up and says from where to resume."""

from confluent_kafka import KafkaError

from safeproducer.cli.common.tally import Tally

TIMED_OUT = KafkaError(KafkaError._MSG_TIMED_OUT)
DENIED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
PURGED = KafkaError(KafkaError._PURGE_QUEUE)


def accepted(count: int) -> Tally:
    tally = Tally()
    for line in range(1, count + 1):
        tally.accept(line, 10)
    return tally


def test_resume_point_is_before_the_first_open_line() -> None:
    """Later deliveries do not hide an earlier line without report."""
    tally = accepted(5)
    for line in (1, 2, 4, 5):
        tally.report(line, None)
    assert (tally.sent, tally.delivered, tally.left) == (5, 4, 1)
    assert tally.delivered_through() == 2


def test_resume_point_is_before_the_first_failed_line() -> None:
    """A failed line counts as not delivered, even if one behind it failed first."""
    tally = accepted(4)
    tally.report(4, TIMED_OUT)
    tally.report(2, TIMED_OUT)
    tally.report(1, None)
    tally.report(3, None)
    assert tally.delivered_through() == 1
    assert [(error.code, error.count, error.lines) for error in tally.ranked_errors()] == [
        ("_MSG_TIMED_OUT", 2, [4, 2])
    ]


def test_everything_delivered_resumes_after_the_last_line() -> None:
    """With nothing open or failed the last line is the mark; an empty run has none."""
    tally = accepted(2)
    tally.report(2, None)
    tally.report(1, None)
    assert tally.delivered_through() == 2
    assert Tally().delivered_through() == 0


def test_a_record_given_up_at_the_deadline_stays_open() -> None:
    """What close() purges is left, not failed: no broker refused it."""
    tally = accepted(1)
    tally.report(1, PURGED)
    assert (tally.left, tally.failed) == (1, 0)


def test_a_withdrawn_record_was_never_sent() -> None:
    """A record for which there was no room leaves no trace."""
    tally = accepted(3)
    tally.withdraw(3)
    assert (tally.sent, tally.left, tally.last_line) == (2, 2, 2)


def test_an_error_that_all_records_share_is_remembered() -> None:
    """Missing rights end a run, a time-out of one record does not."""
    tally = accepted(2)
    tally.report(1, TIMED_OUT)
    assert tally.permanent is None
    tally.report(2, DENIED)
    assert tally.permanent is not None
    assert tally.permanent.code == "TOPIC_AUTHORIZATION_FAILED"
