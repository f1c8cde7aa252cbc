"""Numbers as a person reads them. Pure."""

from datetime import UTC, datetime

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def span(seconds: float) -> str:
    """A time in its largest unit: 45 s, 12 min, 3.5 h, 2 d."""
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds / size:.1f}".removesuffix(".0") + f" {unit}"
    return f"{seconds:.0f} s"


def moment(seconds: float) -> str:
    """A time since 1970 in UTC, to the minute."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def some(names: list[str], most: int = 3) -> str:
    """The first of these names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
