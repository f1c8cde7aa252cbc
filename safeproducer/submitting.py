"""Methods of SafeProducer for threads that wait for their records: submit(), and blocks of a transaction."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from safeproducer import errors
from safeproducer.kafka.native import ClientProducer, KafkaError, KafkaException
from safeproducer.runtime import clock
from safeproducer.runtime.log import logger
from safeproducer.runtime.threads import BackgroundThread, InterruptSafeEvent

if TYPE_CHECKING:
    from safeproducer.futures import RecordFuture
    from safeproducer.pipeline.engine import Engine

_ROUND = 0.5
"""Seconds until a thread that serves finds its producer dropped."""
_PAUSE = 0.1
_SETTLES = 2.0
_threads: weakref.WeakKeyDictionary[Engine, BackgroundThread] = weakref.WeakKeyDictionary()


class ProducerSlots(ClientProducer):
    """Attributes that each call of SafeProducer reads. CPython finds them slowly in a dict of a C class."""

    __slots__ = tuple(f"_SafeProducer__{name}" for name in ("counters", "engine", "on_delivery", "route", "topics"))

    def __new__(cls, *_: Any, **__: Any) -> ProducerSlots:
        """A producer with what a subclass finds that forgets super().__init__()."""
        made = super().__new__(cls)
        for name in ProducerSlots.__slots__:
            object.__setattr__(made, name, errors.UNINITIALISED)
        return made


class Submitting:
    """Methods of SafeProducer. A record is a `topic`, `value`, `key`, `partition`, `timestamp` and `headers`, as of
    produce()."""

    __slots__ = ()

    def submit(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int = -1,
        timestamp: int = 0,
        headers: Any = None,
    ) -> RecordFuture:
        """Accept a record as produce() does; a concurrent.futures.Future of its DeliveredRecord.

        It raises NotWritten or OutcomeUnknown, and ends though nobody polls: from the first one on a thread serves, and
        callbacks of produce() may run on it. `cancel()` of the future is true only if the record was taken back. Any
        thread. Raises what produce() raises.
        """
        from safeproducer.futures import RecordFuture, accept, tells_each  # noqa: PLC0415 - loaded when it is called

        engine: Engine = self._SafeProducer__engine  # type: ignore[attr-defined]
        if not tells_each(engine):
            raise errors.ConfigurationValueError(
                "delivery.report.only.error", "true", "submit() would never tell of delivered records", "Leave it out"
            )
        future = RecordFuture(engine)
        deadline = clock.monotonic() + self._SafeProducer__settings.max_block  # type: ignore[attr-defined]
        while True:
            try:
                future.ticket = accept(engine, future, topic, value, key, partition, timestamp, headers)
                break
            except errors.QueueFullError:
                if clock.monotonic() >= deadline or engine.route.in_callback:
                    raise
                engine.serving.poll(_PAUSE)
        if (thread := _threads.get(engine)) is None:
            serve = partial(_serve, weakref.ref(self))
            trouble = engine.notifications.trouble
            thread = _threads.setdefault(engine, BackgroundThread("safeproducer-futures", serve, trouble))
        thread.start()
        return future

    @contextmanager
    def transaction(self, timeout: float = -1, *, offsets_of: Any = None) -> Iterator[Any]:
        """Begin a transaction; commit it at the end of the block, and abort it on any exception.

        `timeout`: seconds for the commit, and for the abort; below 0 they have `transaction.timeout.ms`. `offsets_of`:
        a consumer of confluent_kafka in a group, whose positions at the end of the block are committed with it. Raises
        TransactionAborted if it cannot be committed: it is aborted then. TransactionUnknown if the commit has no answer
        in time. FatalError if another instance took over. TransactionError for a block in a block, without a
        `transactional.id`, and for `offsets_of` what is no such consumer. An abort that has no answer is not told: the
        next transaction ends it first.
        """
        before = offsets_in(offsets_of)
        if self._SafeProducer__settings.transactional_id is None:  # type: ignore[attr-defined]
            raise errors.TransactionError("set transactional.id, and call init_transactions() once, for transaction()")
        if self._SafeProducer__transactions.goes_on:  # type: ignore[attr-defined]
            raise errors.TransactionError("a transaction is open already: leave its block before another one begins")
        begin_transaction(self, timeout)
        try:
            yield self
            offsets = of_one_generation(before, offsets_in(offsets_of))
        except BaseException:
            abort(self, timeout)
            raise
        commit(self, timeout, offsets)


def offsets_in(consumer: Any) -> tuple[Any, Any] | None:
    """The positions of `consumer`, and its group; None for no consumer. Raises TransactionError for another thing, and
    without a group."""
    if consumer is None:
        return None
    try:
        found = consumer.position(consumer.assignment()), consumer.consumer_group_metadata()
    except AttributeError as error:
        raise errors.TransactionError(f"offsets_of={consumer!r} is no consumer: give one of confluent_kafka") from error
    if found[1] is None:
        raise errors.TransactionError(f"offsets_of={consumer!r} has no group: give a consumer with a group.id")
    return found


def of_one_generation(before: tuple[Any, Any] | None, found: tuple[Any, Any] | None) -> tuple[Any, Any] | None:
    """`found`, at the end of a block that has read. Raises TransactionAborted if the group was rebalanced in it.

    The consumer begins anew at what is committed, or another one does: what the block has read before is read again,
    and the coordinator takes the positions, as they are of the new generation.
    """
    if before is not None and before[0] and found is not None and before[1] != found[1]:
        problem = "the group was rebalanced in the block: records that it has read are read again"
        raise errors.TransactionAborted(KafkaError(KafkaError.REBALANCE_IN_PROGRESS, problem))
    return found


def begin_transaction(producer: Any, timeout: float) -> None:
    """Begin a transaction of `producer`; `timeout` is for a new epoch."""
    producer._SafeProducer__transactions.begin(timeout)


def commit(producer: Any, timeout: float = -1, offsets: tuple[Any, Any] | None = None) -> None:
    """Commit the transaction of `producer`, as its block does: wait on while that may help, else abort it.

    `offsets`: positions of a consumer, and its group, which are committed with it.
    """
    deadline, left, transactions = clock.monotonic() + timeout, timeout, producer._SafeProducer__transactions
    while True:
        try:
            if offsets is not None:
                transactions.send_offsets(*offsets, left)
                offsets, left = None, timeout if timeout < 0 else max(0.0, deadline - clock.monotonic())
            transactions.commit(left)
            return
        except KafkaException as error:
            left = deadline - clock.monotonic()
            if error.args[0].retriable() and left > 0:
                continue
            asked = offsets is None and not error.args[0].txn_requires_abort()
            if asked or isinstance(error, errors.FatalError | errors.TransactionUnknown):
                raise
            abort(producer, timeout)
            raise errors.TransactionAborted(error.args[0]) from error


def abort(producer: Any, timeout: float = -1) -> None:
    """Abort the transaction of `producer`, behind what it has sent; without an answer the next one ends it first.

    librdkafka cannot abort while the coordinator adds a partition to the transaction: the error is fatal (its issue
    4849). That is the state some 20 ms behind the first record of a partition, which a time limit around a block hits.
    So what was sent is waited for, briefly.
    """
    producer._SafeProducer__engine.awake().serving.flush(_SETTLES)
    try:
        producer._SafeProducer__transactions.abort(timeout)
    except KafkaException as error:
        if isinstance(error, errors.FatalError) or not error.args[0].retriable():
            raise


def _serve(producer: weakref.ref[Any]) -> None:
    """Poll until the producer is closed, or dropped: it is referred to only meanwhile."""
    pause = InterruptSafeEvent()
    while (found := producer()) is not None:
        try:
            found._SafeProducer__engine.awake().serving.poll(_ROUND)
        except (errors.ProducerClosedError, errors.ForkedProducerError):
            return
        except errors.FatalError:  # the next record is told, and each that waits has its report
            pause.wait(_PAUSE)
        except Exception:
            logger.exception("a delivery callback raised")
        del found
