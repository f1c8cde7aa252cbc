"""The decisions of a slot's task and of the driver by markers. Pure: others ask the brokers.

A marker commits with the rows of its slot: the offset of a consumer group, whose metadata say which micro-batch of
which query they were, how many, and the sum of their hashes.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from safeproducer.errors import ConfigurationError
from safeproducer.spark.errors import NonDeterministicReplay
from safeproducer.spark.guarantee import ADOPT_FROM, MARKER_TOPIC, SINK_ID, SLOTS, ExactlyOnce
from safeproducer.spark.java_settings import refused

_VERSION = 1
_ANOTHER_SINK = f"Give this query a {SINK_ID} of its own, or write from micro-batch {{0}} on with {ADOPT_FROM}={{0}}"
_LEFT = "slots="
WRITTEN, THERE, EMPTY = "written", "already_there", "empty"
_AGAIN = f"Restore the newer checkpoint, or take another {SINK_ID} with"


class Print(NamedTuple):
    """A fingerprint of rows: how many, and the sum of their hashes, in whatever order they came."""

    rows: int = 0
    sum: int = 0

    def plus(self, other: Print) -> Print:
        return Print(self.rows + other.rows, (self.sum + other.sum) % 2**64)


@dataclass(frozen=True, slots=True)
class Marker:
    """The rows of a micro-batch that a slot has committed; or of `left`, that another number of slots goes on there."""

    batch: int
    query: str
    rows: Print

    @classmethod
    def left(cls, batch: int, slots: int) -> Marker:
        return cls(batch, f"{_LEFT}{slots}", Print())

    def text(self) -> str:
        """The metadata of its offset, which is the number of the micro-batch."""
        return f"{_VERSION} {self.batch} {self.query} {self.rows.rows} {self.rows.sum}"

    @classmethod
    def of(cls, offset: int, text: str | None, sink: ExactlyOnce) -> Marker | None:
        """None where nothing was committed. Raises ConfigurationError for what is no marker."""
        if offset < 0:
            return None
        version, *fields = (text or "").split(" ")
        if version.isdecimal() and int(version) > _VERSION:
            problem = f"a newer version of this sink wrote its marker (version {version})"
            raise _refused(sink, problem, "Install that version here")
        try:
            batch, query, rows, total = fields if version == str(_VERSION) else [""]
            return cls(int(batch), query, Print(int(rows), int(total)))
        except ValueError:
            problem = f"one of its groups has an offset in {sink.marker_topic} that is no marker: others commit there"
        raise _refused(sink, problem, f"Choose another name, or another {MARKER_TOPIC}")


# --- a task ----------------------------------------------------------------------------------------------------------


class Step(Enum):
    """The next step of a task; each is answered before the next one.

    INIT: fence earlier attempts, and let the coordinator settle what they left. READ: the marker. COUNT: the rows,
    without sending one. WRITE: begin a transaction, send the rows, and wait for each.
    """

    INIT = "init"
    READ = "read"
    COUNT = "count"
    WRITE = "write"


def steps(sink: ExactlyOnce, slot: int, batch: int, query: str) -> Generator[Step | Marker, Marker | Print | None, str]:
    """The steps of an attempt, in the one order that is right. READ is answered by the marker or None; COUNT and WRITE
    by the rows' fingerprint. A Marker is to be committed with the rows. Returns how it ended.

    The marker is read behind INIT: before, an earlier attempt might commit between the two. Raises ConfigurationError
    and NonDeterministicReplay. Whoever carries the steps out ends the attempt at the first one without an answer.
    """
    yield Step.INIT
    found = yield Step.READ
    marker = found if isinstance(found, Marker) else None
    if is_written(marker, sink, slot, batch, query) and marker is not None:
        counted = yield Step.COUNT
        if counted != marker.rows:
            there, now = marker.rows, counted if isinstance(counted, Print) else Print()
            raise NonDeterministicReplay(slot, batch, there.rows, now.rows)
        return THERE
    written = yield Step.WRITE
    rows = written if isinstance(written, Print) else Print()
    yield Marker(batch, query, rows)
    return WRITTEN if rows.rows else EMPTY


def is_written(found: Marker | None, sink: ExactlyOnce, slot: int, batch: int, query: str) -> bool:
    """Whether the slot has committed the rows of this micro-batch. Raises ConfigurationError where it is not known: for
    another query's marker, one that is ahead, and one that is not there or behind, unless the sink takes over: not from
    who did so at the same micro-batch with other slots."""
    adopts = sink.adopt_from == batch and not (found is not None and (found.batch, found.query[:6]) == (batch, _LEFT))
    if found is not None and found.query == query and found.batch >= batch:
        if found.batch > batch:
            problem = (
                f"slot {slot} has written micro-batch {found.batch} of this query already, and Spark begins "
                f"{batch} again: the checkpoint is an older copy"
            )
            raise _refused(sink, problem, f"{_AGAIN} {ADOPT_FROM}={batch}, which writes {batch} and later ones anew")
        return True
    if found is not None and found.query != query and not adopts:
        problem = (
            f"slot {slot} has written micro-batch {found.batch} of another query ({found.query}; this one is {query}): "
            "a second query writes with this name, or the checkpoint was deleted"
        )
        raise _refused(sink, problem, _ANOTHER_SINK.format(batch))
    if batch > 0 and not adopts and (found is None or found.batch < batch - 1):
        last = "no marker" if found is None else f"a marker of micro-batch {found.batch}"
        problem = (
            f"Spark begins micro-batch {batch}, and slot {slot} has {last} in group {sink.group}: markers expired or "
            "were deleted, or the micro-batches before did not reach this sink. Whether its rows are written is not "
            "known"
        )
        raise _refused(sink, problem, f"If they are not, take over once with {ADOPT_FROM}={batch}")
    return False


# --- the driver ------------------------------------------------------------------------------------------------------


def check_start(sink: ExactlyOnce, slots_before: int, found: Sequence[Marker | None], batch: int, query: str) -> None:
    """Raise ConfigurationError unless the first micro-batch of a run goes on where the slots are.

    `slots_before`: how many the sink had before. `found`: of each slot.
    """
    if sink.adopt_from != batch and slots_before != sink.slots:
        problem = f"{SINK_ID}={sink.sink_id} has {slots_before} slots, whose rows would be written twice"
        way_out = f"Set it to {slots_before}, or change it at a micro-batch that none of them has written, with "
        raise refused(SLOTS, str(sink.slots), problem, f"{way_out}{ADOPT_FROM}={batch}")
    for slot, marker in enumerate(found):
        is_written(marker, sink, slot, batch, query)


def check_former(former: ExactlyOnce, found: Sequence[Marker | None], batch: int, query: str) -> None:
    """Raise ConfigurationError if a slot of a sink with another number of slots has written this micro-batch."""
    for slot, marker in enumerate(found):
        if marker is not None and marker.query == query and marker.batch >= batch:
            problem = f"slot {slot} of the {former.slots} before has written micro-batch {marker.batch} already"
            way_out = f"Set {SLOTS}={former.slots} until that one is whole, and change it with {ADOPT_FROM}="
            raise _refused(former, problem, f"{way_out}{marker.batch + 1}")


def _refused(sink: ExactlyOnce, problem: str, way_out: str) -> ConfigurationError:
    return refused(SINK_ID, sink.sink_id, problem, way_out)
