"""The document for stats_cb: one for the whole producer, of the application's interval.

Without a stats_cb nothing of this exists. Documents are read as they come and no text is kept, or an interval of many
ticks and partitions would fill the memory.
"""

from __future__ import annotations

import itertools
import json
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from safeproducer.kafka.statistics import Document, add_held, began, left_behind, load, since, summed
from safeproducer.policy.types import TopicPartition
from safeproducer.settings.delivery import Delivery

Elsewhere = tuple[int, int, Mapping[TopicPartition, tuple[int, int]]]
"""Records and bytes that are not in the direct lane; (records, bytes) by partition of those in no native producer."""

_numbers = itertools.count()


class Speaker:
    """One native producer; its callbacks hold it, so it is gone when that is.

    `before`: what it told since its former owner had left it; None of a new one, and where that is no document. When it
    has told nothing since, "", its next document `begins` what is told.
    """

    __slots__ = ("__weakref__", "before", "begins", "number")

    def __init__(self, before: str | None = None) -> None:
        self.number = next(_numbers)
        self.before: Document | None = None
        self.begins = before == ""
        with suppress(ValueError, RecursionError):
            self.before = None if before is None else load(before)

    def heard(self, document: Document) -> None:
        if self.begins:
            self.before, self.begins = document, False


@dataclass(frozen=True, slots=True)
class _Heard:
    """`last`: by the speaker's number, itself and its last document; `gone`: what is left of speakers that are gone."""

    last: Mapping[int, tuple[weakref.ref[Speaker], Document]] = field(default_factory=dict)
    gone: Document | None = None


class ToldStatistics:
    """Any thread. Values are replaced as a whole, never changed: a signal handler may come in, and may raise.

    `elsewhere()` is asked once for each document that is told, at that moment.
    """

    def __init__(self, delivery: Delivery, elsewhere: Callable[[], Elsewhere]) -> None:
        self._every = delivery.ticks_per_statistics
        self._limits = {"msg_max": delivery.buffer.records, "msg_size_max": delivery.buffer.bytes}
        self._only_batch_lanes = delivery.only_batch_lanes
        self._elsewhere = elsewhere
        self._ticks = 0
        self._heard = _Heard()

    def hear(self, speaker: Speaker, text: str) -> bool:
        """Take note of a document; whether it is one."""
        try:
            document = loaded = load(text)
            if (before := loaded if speaker.begins else speaker.before) is not None:
                document = since(loaded, before)
            began(document)  # or it could not be added up
        except _MALFORMED:
            return False
        speaker.heard(loaded)
        while True:
            heard = self._heard
            last, said = heard.last, heard.last.get(speaker.number)
            if said is None or said[1]["ts"] <= document["ts"]:  # else two threads serve, and this one was late
                last = {**last, speaker.number: (weakref.ref(speaker), document)}
            after = replace(heard, last=last)
            if self._heard is heard:
                self._heard = after
                return True

    def tick(self, speaker: Speaker, text: str) -> str | None:
        """Take note of a document of the native producer whose ticks count; what to tell now, None for nothing."""
        self._ticks += 1
        due = self._ticks % self._every == 0
        new = speaker.before is None and not speaker.begins
        alone = new and self._every == 1 and not self._only_batch_lanes and not self._heard.last
        elsewhere = self._elsewhere() if due else (0, 0, {})
        if alone and not elsewhere[0]:
            return text
        readable = self.hear(speaker, text)
        if not due or not readable:
            return text if due else None
        try:
            return json.dumps(self._document(speaker, elsewhere), separators=(",", ":"))
        except _MALFORMED:
            return text

    def _document(self, speaker: Speaker, elsewhere: Elsewhere) -> Document:
        while True:
            heard = self._heard
            living = {number: said for number, said in heard.last.items() if said[0]() is not None}
            gone = [left_behind(document) for number, (_, document) in heard.last.items() if number not in living]
            gone += [] if heard.gone is None else [heard.gone]
            after = _Heard(living, summed(gone) if gone else None)
            if self._heard is heard:
                self._heard = after
                break
        first = living[speaker.number][1]
        told = summed([first, *(document for _, document in living.values() if document is not first), *gone])
        records, size, held = elsewhere
        told["msg_cnt"] = records + (0 if self._only_batch_lanes else first["msg_cnt"])
        told["msg_size"] = size + (0 if self._only_batch_lanes else first["msg_size"])
        told.update({name: limit for name, limit in self._limits.items() if limit is not None})
        add_held(told, held)
        return told


_MALFORMED = (ValueError, RecursionError, LookupError, AttributeError, TypeError)
