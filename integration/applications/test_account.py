"""The judge of the applications: each kind of wrong outcome is noticed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from integration.applications.account import settle
from integration.applications.application import SAFE, Application
from safeproducer import SafeProducer
from safeproducer.testing import FakeCluster

TOPIC = "judged"
DELIVERED = {"a": None, "b": None}
ACCOUNT = {"accepted": 3, "delivered": 2, "failed": 1, "unresolved": 0, "interrupted": 0}


@pytest.fixture(scope="module")
def cluster(brokers: FakeCluster) -> FakeCluster:
    """Its log holds a and b, and b once more in another topic's."""
    for topic, values in ((TOPIC, "ab"), (TOPIC + "-twice", "abb")):
        brokers.create_topic(topic)
        with SafeProducer({"bootstrap.servers": brokers.bootstrap}) as producer:
            for value in values:
                producer.produce(topic, value)
    return brokers


def judge(
    folder: Path,
    cluster: FakeCluster,
    *,
    topic: str = TOPIC,
    accepted: str = "abc",
    reported: tuple[tuple[str, str | None], ...] = (*DELIVERED.items(), ("c", "_MSG_TIMED_OUT")),
    account: dict[str, int] | None = ACCOUNT,
) -> int:
    """Settle a program that did nothing, but has this journal."""
    application = Application(["this"], SAFE, folder / "told", topic, {}, {}, 1)
    application.process.wait()
    lines: list[dict[str, Any]] = [{"did": "accepted", "value": value} for value in accepted]
    lines += [{"did": "reported", "value": value, "error": error} for value, error in reported]
    lines += [{"did": "account", "pid": 1, "producer": 1, **account}] if account else []
    (folder / "told" / "journal").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return settle(application, cluster)


def test_a_good_outcome(cluster: FakeCluster, tmp_path: Path) -> None:
    """Two delivered, one reported as failed."""
    assert judge(tmp_path, cluster) == 3


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"topic": TOPIC + "-twice"}, "twice in the log"),
        ({"accepted": "abcc"}, "the program counts wrong"),
        ({"accepted": "abcd"}, "lost without a word"),
        ({"accepted": "ac"}, "though nobody has accepted it"),
        ({"reported": (("a", None), ("c", "_TRANSPORT"))}, "without a report"),
        ({"reported": (("a", None), ("b", None), ("b", None), ("c", "_TRANSPORT"))}, "reported twice"),
        ({"account": None}, "no producer has told"),
        ({"account": {**ACCOUNT, "accepted": 4, "unresolved": 1}}, "4 <= "),
        ({"account": {**ACCOUNT, "accepted": 2, "delivered": 1}}, "3 <= 2"),
        ({"account": {**ACCOUNT, "delivered": 3, "unresolved": -1}}, "-1 >= 0"),
        ({"account": {**ACCOUNT, "delivered": 1, "failed": 2}}, "2 == "),
    ],
)
def test_a_wrong_outcome(cluster: FakeCluster, tmp_path: Path, changed: dict[str, Any], complaint: str) -> None:
    with pytest.raises(AssertionError) as caught:
        judge(tmp_path, cluster, **changed)
    assert complaint in str(caught.value)
