"""Where permits are counted."""

from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    """The value of `safeproducer.producer.ids.ledger`.

    "auto": for this host. "off": for this process. Anything else is an absolute directory.
    """

    setting: str


AUTO = Place("auto")
OFF = Place("off")
