"""What a series of permits looks like: a producer for each request, a crash loop and so on."""

from __future__ import annotations

from dataclasses import dataclass

from safeproducer.records import CallSite


@dataclass(frozen=True, slots=True)
class Pattern:
    """`count` permits within `seconds`, at `site`. `code` is stable; `sentence` says what it is, `cure` what to do."""

    code: str
    count: int
    seconds: float
    site: CallSite
    sentence: str
    cure: str
