"""Fixtures of the applications: a cluster for all of them, and both producers at work side by side."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.register_assert_rewrite("integration.applications.account", "integration.applications.application")

from integration.applications.application import SAFE, STOCK, Application  # noqa: E402 - its asserts are known now
from safeproducer.testing import FakeCluster  # noqa: E402

Drive = Callable[[Application], Any]


@pytest.fixture(scope="session")
def brokers() -> Iterator[FakeCluster]:
    """Three brokers for all applications: each has a topic of its own."""
    with FakeCluster() as cluster:
        yield cluster


@pytest.fixture
def both(brokers: FakeCluster, tmp_path: Path) -> Iterator[Callable[..., list[Any]]]:
    """`both(drive, module, argument...)`: start it with each class, drive the two side by side; what `drive` returned.

    `settings` are the producer's, `environment` the program's. What `drive` raises has a note with the class.
    """
    numbers = itertools.count()
    running: list[Application] = []

    def run(
        drive: Drive,
        *command: str,
        settings: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
        classes: tuple[str, ...] = (STOCK, SAFE),
    ) -> list[Any]:
        number = next(numbers)

        def play(producer: str, leader: int) -> Any:
            name = producer.partition(":")[2]
            topic = f"{tmp_path.name}-{number}-{name}"
            brokers.create_topic(topic)
            if brokers.leader(topic)[0] != leader:
                brokers.move_leader(topic, to=leader)
            given = {"bootstrap.servers": brokers.bootstrap, **(settings or {})}
            application = Application(
                command, producer, tmp_path / f"{number}-{name}", topic, given, environment or {}, leader
            )
            running.append(application)
            try:
                return drive(application)
            except BaseException as error:
                error.add_note(f"with {producer}")
                raise
            finally:
                application.kill()

        with ThreadPoolExecutor(len(classes)) as pool:
            return list(pool.map(play, classes, brokers.brokers))

    yield run
    for application in running:
        application.kill()
