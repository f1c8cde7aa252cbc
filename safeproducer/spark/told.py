"""Sentences for whoever runs the driver."""

from __future__ import annotations

from collections.abc import Iterable

from safeproducer.telemetry import spark_events


class Told:
    """Tells each sentence once. One thread at a time; can be pickled. `sentences`: those that were told."""

    def __init__(self, sentences: Iterable[str] = ()) -> None:
        self.sentences = set(sentences)

    def once(self, sentences: Iterable[str]) -> None:
        """Log those that were not told yet."""
        for sentence in sentences:
            if sentence not in self.sentences:
                self.sentences.add(sentence)
                spark_events.note(sentence)
