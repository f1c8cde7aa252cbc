"""Cuts secrets out of texts that come from librdkafka, which quotes settings whole or from any position in them.

A part of a secret that stands by itself is cut out from 4 characters on, one inside another word from 8 on: a
shorter one is there by chance. Words that such texts consist of anyway ("broker", "kafka", "true") stay, or a secret
that is one of them would be told by its gaps; where they are quoted, or behind an equals sign, they are cut out, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from safeproducer.kafka.advice import sentences
from safeproducer.kafka.properties import ALIASES, PRODUCER_PROPERTIES

HIDDEN = "***"
LEAST = 4
_BY_CHANCE = 8
"""Shorter parts of a secret are met in other words by chance."""
_QUOTING = frozenset("\"'`=")
_WORD = re.compile(r"[^\W\d_]+")
_NUMBER = re.compile(r"[\d_]")
_VALUES = "true false none null kafka rdkafka invalid value configuration property expected unknown error"

ORDINARY = frozenset(
    word.lower()
    for text in (*PRODUCER_PROPERTIES, *ALIASES, *ALIASES.values(), *sentences(), _VALUES)
    for word in _WORD.findall(text)
)
"""Words of librdkafka's settings and of our sentences about its errors."""


def scrub(text: str, secrets: Iterable[str]) -> str:
    """`text` without any part of `secrets`."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = _without(text, secret)
    return text


def _without(text: str, secret: str) -> str:
    parts = {secret[start : start + LEAST] for start in range(len(secret) - LEAST + 1)}
    kept: list[str] = []
    done = position = 0
    while position <= len(text) - LEAST:
        if text[position : position + LEAST] not in parts:
            position += 1
            continue
        end = position + LEAST
        while end < len(text) and text[position : end + 1] in secret:
            end += 1
        part = text[position:end]
        quoted = text[:position].rstrip()[-1:] in _QUOTING
        if _is_ordinary(part) and not quoted and (part != secret or _WORD.fullmatch(part)):
            position += 1
            while _joins(text, position):
                position += 1
        elif len(part) < _BY_CHANCE and (_joins(text, position) or _joins(text, end)):
            position += 1
        else:
            kept += (text[done:position], HIDDEN)
            done = position = end
    return "".join((*kept, text[done:]))


def _is_ordinary(part: str) -> bool:
    words = _WORD.findall(part)
    return bool(words) and all(word.lower() in ORDINARY for word in words) and not _NUMBER.search(part)


def _joins(text: str, position: int) -> bool:
    """Whether a word goes on over this position."""
    return 0 < position < len(text) and text[position - 1].isalnum() and text[position].isalnum()
