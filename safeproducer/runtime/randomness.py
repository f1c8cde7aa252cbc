"""Chance of this library's own, in one place: a test puts another one here.

An application that seeds `random` sees its own numbers. There is no state either that children of a fork would share:
what was refused together would ask again together. Functions are looked up at each call: `randomness.share()`.
"""

import os
from collections.abc import Sequence
from typing import Any


def share() -> float:
    """From 0 up to 1, as random.SystemRandom, which takes long to load."""
    return (int.from_bytes(os.urandom(7)) >> 3) * 2**-53


def one_of(found: Sequence[Any]) -> Any:
    return found[int(share() * len(found))]
