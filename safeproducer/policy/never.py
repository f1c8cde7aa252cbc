"""Infinity, in one place: the moment that never comes, and the limit that nothing reaches."""

from __future__ import annotations

from typing import Final

NEVER: Final = float("inf")
