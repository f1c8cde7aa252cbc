"""The parts that all tests share."""

import gc
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

pytest_plugins = ["integration.faults.plugin", "integration.tap.fixtures"]

FULL = "takes minutes: run with --full"


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--full` runs what is too long for every day; processes that are given one `--shared` folder share the tests."""
    parser.addoption("--full", action="store_true", help="also run the tests that take minutes each")
    parser.addoption("--shared", type=Path, metavar="FOLDER", help="leave out files begun by others with this folder")
    parser.addoption("--first", action="append", default=[], metavar="PATH", help="run what is below it before others")


def pytest_configure(config: pytest.Config) -> None:
    """Say what the marker means; listen to Ctrl-C, which a shell switches off in what it runs in the background."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", f"full: {FULL}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what is marked, and say so; what is to run first comes first."""
    if not config.getoption("--full"):
        for item in items:
            if item.get_closest_marker("full"):
                item.add_marker(pytest.mark.skip(reason=FULL))
    first = [config.rootpath / path for path in config.getoption("--first")]
    items.sort(key=lambda item: next((n for n, path in enumerate(first) if item.path.is_relative_to(path)), len(first)))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Keep modules and tests out of each garbage collection: one took 0.2 s of CPU, and many tests ask for some."""
    gc.collect()
    gc.freeze()


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """As pytest's own, but of the shared tests this process runs only the files that it is the first to begin."""
    folder = session.config.getoption("--shared")
    if folder is None or session.testsfailed or session.config.option.collectonly:
        return None
    items = unclaimed(session.items, folder)
    item = next(items, None)
    while item is not None:
        following = next(items, None)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        item = following
    return True


def unclaimed(items: Iterable[pytest.Item], folder: Path) -> Iterator[pytest.Item]:
    """The items of files that no other process has claimed when their turn comes; they are claimed by it."""
    ours: dict[str, bool] = {}
    for item in items:
        file = item.nodeid.partition("::")[0]
        if file not in ours:
            ours[file] = _claim(folder / file.replace("/", "+"))
        if ours[file]:
            yield item


def _claim(name: Path) -> bool:
    try:
        name.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
