"""Numbers in settings, as librdkafka reads them: by C's strtol() and strtod(), which leave out what follows.

Thus "5.0", " 5" and "5 ms" are five, "0x10" is sixteen, and "1e3" is one where a whole number is wanted.
"""

from __future__ import annotations

import re
from math import inf, nan
from typing import Any

_BLANKS_AND_SIGN = r"[ \t\n\v\f\r]*([+-]?)"
_WHOLE = re.compile(_BLANKS_AND_SIGN + r"(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)")
_REAL = re.compile(
    _BLANKS_AND_SIGN + r"(?:(0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)(?:[pP][+-]?[0-9]+)?)"
    r"|((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)|((?i:inf))|(?i:nan))"
)
_LONG = 2**63
_INT = 2**31


def whole(value: Any) -> int | None:
    """The int that librdkafka takes this value for; None when it finds no number in it."""
    found = _WHOLE.match(str(value))
    if found is None:
        return None
    sign, digits = found.groups()
    number = int(digits, 16 if digits[:2].lower() == "0x" else 8 if digits[0] == "0" else 10)
    number = max(-_LONG, min(_LONG - 1, -number if sign == "-" else number))
    return (number + _INT) % (2 * _INT) - _INT  # kept in an int of 32 bits


def real(value: Any) -> float | None:
    """The double that librdkafka takes this value for; None when it finds no number in it."""
    found = _REAL.match(str(value))
    if found is None:
        return None
    sign, hexadecimal, decimal, infinite = found.groups()
    if hexadecimal:
        number = float.fromhex(hexadecimal)
    elif decimal:
        number = float(decimal)
    else:
        number = inf if infinite else nan
    return -number if sign == "-" else number
