"""Chance of this library's own, in one place: a test puts another one here.

An application that seeds `random` sees its own numbers. There is no state either that children of a fork would share:
what was refused together would ask again together. Functions are looked up at each call: `dice.share()`.
"""

from random import SystemRandom

_system = SystemRandom()
share = _system.random
"""From 0 up to 1."""
one_of = _system.choice
"""One element of a sequence that is not empty."""
some_of = _system.sample
"""So many different elements of a sequence, in any order."""
