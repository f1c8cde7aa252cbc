"""Looks at the built site in headless Chromium, as a reader would: `scripts/docs --browse` calls it.

browse.py SITE [--pictures FOLDER]: each page is read 1 280 and 400 pixels wide, light and dark. It ends with 1 when a
table, a line of code or a page is cut off, when text has too little contrast (WCAG AA), when the console tells an
error, when a page is empty without JavaScript, or when a word that people search for does not lead to its page among
the first three hits.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, Error, Page, sync_playwright

LOOKS = ("light", 1280), ("dark", 1280), ("light", 400), ("dark", 400)

# What people search for, and the page that must be among the first three hits.
SEARCHES = {
    "install": "docs/use/quickstart",
    "kafka-python": "docs/use/migrate",
    "java producer": "docs/use/migrate",
    "partitioner": "docs/use/migrate",
    "why it exists": "docs/use/why",
    "exactly once": "docs/use/spark-exactly-once",
    "quick start": "docs/use/quickstart",
    "examples": "examples/README",
    "without a change": "docs/use/run",
    "outcome": "docs/use/outcomes-and-errors",
    "not written": "docs/use/outcomes-and-errors",
    "unknown outcome": "docs/use/outcomes-and-errors",
    "asyncio": "docs/use/asyncio",
    "lanes": "docs/use/ordering-and-lanes",
    "ordering key": "docs/use/ordering-and-lanes",
    "signal handler": "docs/use/callbacks-signals-threads",
    "fork": "docs/use/callbacks-signals-threads",
    "tracing": "docs/use/hooks-and-tracing",
    "hooks": "docs/use/hooks-and-tracing",
    "pyspark": "docs/use/spark",
    "foreachBatch": "docs/use/spark",
    "poison row": "docs/use/poison-row",
    "executors pip": "docs/operate/spark-without-pip",
    "bad rows": "docs/operate/spark",
    "options sink": "docs/reference/spark-options",
    "symptom": "docs/operate/symptoms",
    "probes": "docs/operate/symptoms",
    "health": "docs/operate/symptoms",
    "troubleshooting": "docs/operate/troubleshooting",
    "dashboard": "docs/operate/metrics",
    "alerts": "docs/operate/metrics",
    "prometheus": "docs/operate/metrics",
    "throttling": "docs/operate/throttling-and-quotas",
    "quota": "docs/operate/throttling-and-quotas",
    "replication": "docs/operate/throttling-and-quotas",
    "round trip": "docs/operate/long-links",
    "producer id": "docs/operate/producer-ids",
    "recipes": "docs/operate/producer-id-recipes",
    "doctor": "docs/operate/doctor",
    "commands": "docs/reference/commands",
    "limits": "docs/operate/limits",
    "differences": "docs/reference/differences",
    "configuration": "docs/reference/configuration",
    "snapshot": "docs/reference/snapshot",
    "compatibility": "docs/reference/compatibility",
    "fakecluster": "docs/test/fakecluster",
    "pytest fixture": "docs/test/pytest",
    "conformance": "docs/test/conformance",
    "glossary": "docs/internals/glossary",
    "invariants": "docs/internals/invariants",
    "vulnerability": "SECURITY",
    "rights": "docs/operate/rights",
    "leave": "docs/use/leave",
    "oauthbearer": "docs/operate/spark-platforms",
    "transactions": "docs/use/transactions",
}

_CUT = """() => [...document.querySelectorAll('.table-wrapper, pre, body')]
    .filter(element => element.scrollWidth > element.clientWidth + 1)
    .map(element => `${element.tagName} ${element.textContent.trim().slice(0, 40)}`)"""

# The contrast of each text with the nearest background that is not transparent; large text needs less (WCAG 1.4.3).
_PALE = """() => {
    const part = value => { value /= 255; return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4 }
    const light = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b)
    const numbers = color => color.match(/[\\d.]+/g).map(Number)
    const behind = element => {
        for (; element; element = element.parentElement) {
            const color = numbers(getComputedStyle(element).backgroundColor)
            if (color.length === 3 || color[3] > 0.99) return color
        }
        return numbers(getComputedStyle(document.body).backgroundColor)
    }
    const pale = new Set()
    for (const element of document.querySelectorAll('body *')) {
        const own = [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim())
        const style = getComputedStyle(element)
        if (!own || !element.offsetParent || style.visibility === 'hidden') continue
        const [a, b] = [light(numbers(style.color)), light(behind(element))]
        const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)
        const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.6 && style.fontWeight >= 700)
        if (ratio < (large ? 3 : 4.5)) pale.add(`${element.className || element.tagName} ${ratio.toFixed(1)}`)
    }
    return [...pale]
}"""


def main() -> int:
    """Read the site; print what is wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("site", type=lambda name: Path(name).resolve())
    parser.add_argument("--pictures", type=Path, help="write a picture of each page here")
    arguments = parser.parse_args()
    with sync_playwright() as playwright:
        path = shutil.which("chromium") or shutil.which("google-chrome")
        try:
            browser = playwright.chromium.launch(
                executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
            )
        except Error as error:
            print(f"{path} does not start here, so the pages are not read: {str(error).splitlines()[0]}")
            return 0
        faults = [*_read_pages(browser, arguments.site, arguments.pictures), *_search(browser, arguments.site)]
        browser.close()
    print(*faults, sep="\n") if faults else print("Each page can be read.")
    return 1 if faults else 0


def _read_pages(browser: Browser, site: Path, pictures: Path | None) -> Iterator[str]:
    """Yield what is wrong with a page."""
    pages = [page for page in sorted(site.rglob("*.html")) if "_static" not in page.parts]
    for scheme, width in LOOKS:
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        told: list[str] = []
        page.on("console", lambda message, told=told: message.type == "error" and told.append(message.text))
        page.on("pageerror", lambda error, told=told: told.append(str(error)))
        for path in pages:
            page.goto(path.as_uri())
            name = path.relative_to(site).with_suffix("").as_posix()
            where = f"{name}, {width} pixels, {scheme}"
            yield from (f"{where}: cut off: {what}" for what in page.evaluate(_CUT))
            yield from (f"{where}: too pale: {what}" for what in page.evaluate(_PALE))
            yield from (f"{where}: console: {what}" for what in told)
            told.clear()
            if pictures is not None:
                page.screenshot(path=pictures / f"{name.replace('/', '-')}-{width}-{scheme}.png", full_page=True)
        page.close()
    context = browser.new_context(java_script_enabled=False)
    plain = context.new_page()
    for path in pages:
        plain.goto(path.as_uri())
        if path.name != "search.html" and len(plain.inner_text("article")) < 100:
            yield f"{path.relative_to(site)}: nothing to read without JavaScript"
    context.close()


def _search(browser: Browser, site: Path) -> Iterator[str]:
    """Yield the words that do not lead to their page."""
    page = browser.new_page()
    for words, expected in SEARCHES.items():
        hits = _hits(page, site, words)
        if f"{expected}.html" not in hits:
            yield f"{words!r} leads to {', '.join(hits) or 'no page'}, not to {expected}"


def _hits(page: Page, site: Path, words: str) -> list[str]:
    """Return the first three pages that the search names; two hits of one page count once."""
    page.goto(f"{(site / 'search.html').as_uri()}?q={words.replace(' ', '+')}")
    page.wait_for_function("() => /found|did not match/.test(document.querySelector('#search-results p')?.innerText)")
    links = page.eval_on_selector_all("#search-results li > a", "links => links.map(link => link.href)")
    names = [link.split("#")[0].removeprefix(f"{site.as_uri()}/").split("?")[0] for link in links]
    return list(dict.fromkeys(names))[:3]


sys.exit(main())
