"""Each check finds what it is for, and nothing in a cluster that is well."""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from safeproducer.cli.common.admin_settings import OpenTransaction
from safeproducer.cli.common.finding import Severity, exit_code
from safeproducer.cli.doctor.census import (
    BrokerCensus,
    BrokerError,
    BusiestHour,
    ClusterCensus,
    Configuration,
    Examined,
    PartitionCensus,
    TopicCensus,
    Unread,
)
from safeproducer.cli.doctor.checks import check
from safeproducer.cli.doctor.host import Host, KnownId, LedgerCensus
from safeproducer.policy.expiry import DAY, Told, unreadable
from safeproducer.policy.replication import Facts, Replicas, Side, ThrottledReplicas
from safeproducer.producer_ids.patterns import _TEXTS, Pattern

ROOT = Path(__file__).resolve().parents[3]

NO_RIGHT = BrokerError("TOPIC_AUTHORIZATION_FAILED", "refused")
NOON = 1_800_014_400.0
DEFAULTS = Configuration(300.0, 60.0, idempotent=True)
_RIGHT = "CLUSTER_AUTHORIZATION_FAILED"
HIDDEN = BrokerCensus(1, "host:9092", unreadable(1, _RIGHT), _RIGHT)


def broker(number: int = 1, expiration: float = DAY) -> BrokerCensus:
    return BrokerCensus(number, "host:9092", Told(number, expiration))


def topic(name: str = "t", small: int = 0, **more: object) -> TopicCensus:
    counted = TopicCensus(name, small, small, small, busiest_hour=BusiestHour(NOON, small) if small else None)
    return replace(counted, **more)  # type: ignore[arg-type]


def examined(
    *topics: TopicCensus,
    brokers: tuple[BrokerCensus, ...] = (broker(1), broker(2)),
    configuration: Configuration | None = DEFAULTS,
    host: Host | None = None,
    all_topics: bool = False,
) -> Examined:
    return Examined(100, configuration, ClusterCensus(brokers, topics, all_topics), host or Host())


class Expected(NamedTuple):
    """A finding has these words in its message or, behind a line end, its cure, and has no others."""

    severity: Severity
    code: str
    words: tuple[str, ...]
    place: dict[str, object]
    others: str | None


def found(severity: Severity, code: str, *words: str, others: str | None = None, **place: object) -> Expected:
    return Expected(severity, code, words, place, others)


warning, info, error = (partial(found, severity) for severity in (Severity.WARNING, Severity.INFO, Severity.ERROR))


def of_host(*ledgers: LedgerCensus, **more: Any) -> Examined:
    return examined(topic(small=1), host=Host(ledgers, **more))


def of_broker(told: Told, refused: str | None = None, configuration: Configuration = DEFAULTS) -> Examined:
    brokers = (BrokerCensus(1, "host:9092", told, refused),)
    return examined(topic(small=1), brokers=brokers, configuration=configuration)


def taken(at: float, number: int | None = None) -> KnownId:
    return KnownId("a.py:7 in view", "first", at, 1, 0, number, "closed")


def opened(age: float, timeout: float = 60.0) -> OpenTransaction:
    """Of slot 3 of a sink of Spark."""
    return OpenTransaction("orders-3", age, timeout, (("t", 0), ("t", 1)))


IN_SYNC = Replicas(1, (1, 2, 3), frozenset({1, 2, 3}), frozenset({1, 2, 3}))
TWO, ONE = IN_SYNC._replace(in_sync=frozenset({1, 2})), IN_SYNC._replace(in_sync=frozenset({1}))


def replicated(
    *partitions: Replicas,
    minimum: int | None = 2,
    text: str = "",
    rate: float | None = None,
    moves: dict[tuple[str, int], list[int]] | None = MappingProxyType({}),  # type: ignore[assignment]
    all_topics: bool = True,
    unread: tuple[Unread, ...] = (),
    rates: dict[tuple[int, Side], float | None] | None = None,
    brokers: tuple[BrokerCensus, ...] = (broker(1), broker(2)),
) -> Examined:
    """One topic, with this text in both lists and this rate on both brokers; without `minimum` it tells no configs."""
    facts = Facts(
        {("t", number): one for number, one in enumerate(partitions)},
        {("t", side): one for side in Side if (one := ThrottledReplicas.read(text)) is not None},
        {(number, side): rate for number in (1, 2) for side in Side} if rates is None else rates,
        minimum={} if minimum is None else {"t": minimum},
    )
    found = examined(topic(small=1), brokers=brokers, all_topics=all_topics)
    return replace(found, cluster=replace(found.cluster, facts=facts, moves=moves, unread=unread))


FLOOD = topic(small=150, of_this_host={"a.py:7 in view": range(120)})
KNOWN = topic(small=150, of_this_host={"b.py:2": [1], "a.py:7": list(range(2, 50))})
LEADERLESS = BrokerError("LEADER_NOT_AVAILABLE", "it has no leader")
LOST = [PartitionCensus(number, None, error=LEADERLESS) for number in range(5)]
MOVED = [PartitionCensus(number, 1, error=BrokerError("NOT_LEADER", f"{number} moved")) for number in (5, 6)]
LATE = PartitionCensus(7, 2, error=BrokerError("NOT_LEADER", "7 moved"))
LOOP = Pattern("crash-loop", "a.py:7 in main", 90, "90 in 30 s, a crash loop", "Find out why it ends.")
LANES = [Pattern("lanes", f"b.py:{line} in run", 9, "9 in 3 s, lanes", "Set lanes.") for line in (1, 2)]
OF_REQUEST = Pattern("one-per-request", "a.py:7 in view", 120, "120 in 50 s, one a request", "Make one producer.")
USED, IDLE = LedgerCensus("k1:9092 as User:a", 101, 36.0), LedgerCensus("k2:9092 as User:a", 5, 0.0)
ASKED = LedgerCensus("k1", 9, 0.0, asked=True)
TAKEN = [*map(taken, (NOON + 5, NOON - 59, NOON - 61, NOON + 3600)), taken(NOON, 4)]
AT_MINIMUM, BELOW = warning("in-sync-at-minimum"), error("in-sync-below-minimum")
GONE, MOVES = TWO._replace(alive=frozenset({1, 2})), info("replication-move", topic="t")
MOVE_UNREAD = Unread("which replicas move", "DESCRIBE on the cluster", "CLUSTER_AUTHORIZATION_FAILED", "refused")
CASES: dict[str, tuple[Examined, Sequence[Expected]]] = {
    "as many IDs as are allowed are none too many": (examined(topic(small=100)), []),
    "nothing was looked at": (Examined(100), []),
    "more small IDs in an hour than allowed are churn, and nobody but the ledger can say whose they are": (
        examined(topic("calm", small=100), topic("churned", small=101)),
        [warning("producer-id-churn", "101 producer IDs", "100 are allowed", "neither the client", topic="churned")],
    ),
    "IDs that the ledger knows": (examined(KNOWN), [warning("producer-id-churn", "48 from a.py:7, 1 from b.py:2")]),
    "IDs that may be of another cluster: this host has no ledger of this one": (
        examined(FLOOD, host=Host([IDLE])),
        [warning("producer-id-churn", "120 from a.py:7 in view. They may be of another cluster")],
    ),
    "IDs of this cluster": (
        examined(FLOOD, host=Host([ASKED, IDLE])),
        [warning("producer-id-churn", "120 from a.py:7 in view.", others="another cluster")],
    ),
    "a flood from this host has the cure of its pattern, in the words of log, hook and error": (
        examined(FLOOD, host=Host([replace(ASKED, patterns=[OF_REQUEST])])),
        [warning("producer-id-churn", "120 from a.py:7 in view", "one a request", "\nMake one producer.\n")],
    ),
    "IDs of the hour and the cluster whose number is not known: their producers lived for a moment": (
        examined(topic(small=150), host=Host([replace(ASKED, ids=TAKEN), replace(IDLE, ids=TAKEN[:1])])),
        [warning("producer-id-churn", "whose number it does not know: 2 from a.py:7 in view.")],
    ),
    "time-outs are of no matter without a configuration": (
        examined(topic(small=1), brokers=(broker(1, 60.0),), configuration=None),
        [],
    ),
    "without idempotence a retry may be written twice anyway": (
        examined(topic(small=1), brokers=(broker(1, 60.0),), configuration=Configuration(300.0, 60.0, False)),
        [],
    ),
    "brokers differ: all times are named, with who has them": (
        examined(topic(small=1), brokers=(broker(1), broker(2, 2 * DAY), broker(3))),
        [warning("expiration-differs", "86400000 on broker 1, 3; 172800000 on broker 2")],
    ),
    "a broker may not tell: the right that is missing is told once for the cluster": (
        examined(topic(small=1), brokers=(HIDDEN, replace(HIDDEN, number=2))),
        [
            warning("expiration-unreadable", "A day", "\nGrant DESCRIBE_CONFIGS", broker=1),
            warning("expiration-unreadable", broker=2),
            warning("rights-missing", "\nHave an administrator grant DESCRIBE_CONFIGS", broker=None),
        ],
    ),
    "a broker does not tell": (
        of_broker(unreadable(1, "x"), "UNKNOWN_SERVER_ERROR"),
        [warning("expiration-unreadable", "\nRun the command again when that broker answers")],
    ),
    "the configuration says what a broker does not": (
        of_broker(unreadable(1, "refused"), configuration=replace(DEFAULTS, expiration=500.0)),
        [info("expiration-unreadable", "500000")],
    ),
    "the static rule goes by the configuration then": (
        of_broker(unreadable(1, "refused"), configuration=replace(DEFAULTS, expiration=60.0)),
        [warning("expiration-below-timeout"), info("expiration-unreadable")],
    ),
    "rights on topics: one finding for each, however many partitions": (
        examined(
            topic("hidden", error=NO_RIGHT),
            topic("blind", partitions=[PartitionCensus(number, 1, error=NO_RIGHT) for number in range(3)]),
        ),
        [
            warning("rights-missing", "\nHave an administrator grant DESCRIBE and READ", topic="hidden"),
            warning("rights-missing", "\nHave an administrator grant READ", topic="blind"),
        ],
    ),
    "no topic at all: a right that is missing, or an empty cluster": (
        examined(all_topics=True),
        [info("rights-missing")],
    ),
    "partitions that nobody told of, together where leader and reason are the same": (
        examined(topic(partitions=[*LOST, *MOVED, LATE])),
        [
            warning(
                "partition-unreadable",
                "partition 0, 1, 2 and 2 more were not read: it has no leader",
                **{"partition": None, "broker": None},
            ),
            warning("partition-unreadable", "partition 5, 6 were not read: 5 moved", partition=None, broker=1),
            warning("partition-unreadable", partition=7, broker=2),
        ],
    ),
    "a host that has used up its hour": (
        of_host(replace(USED, patterns=[LOOP]), IDLE),
        [
            warning(
                "host-over-limit",
                *("k1:9092 as User:a", "101 producer IDs", "in 36 s", "a.py:7 in main: 90 in 30 s, a crash loop."),
                "\nFind out why it ends.\n",
            )
        ],
    ),
    "each pattern has its cure": (
        of_host(replace(USED, patterns=[*LANES, LOOP])),
        [
            warning(
                "host-over-limit",
                "\nFor b.py:1 in run, b.py:2 in run: Set lanes. For a.py:7 in main: Find out why it ends.\n",
            )
        ],
    ),
    "no pattern": (of_host(USED), [warning("host-over-limit", "one producer for each process", others="limit.")]),
    "the limit of a configuration is that of its ledger; producers of other clusters may have another one": (
        of_host(replace(USED, asked=True), replace(USED, name="ledger 0a1b2c3d")),
        [
            warning("host-over-limit", others="may have another limit"),
            info("host-over-limit", "may have another limit"),
        ],
    ),
    "an hour that a lower limit used up": (
        of_host(LedgerCensus("k1 as User:a", 1, 5.0)),
        [warning("host-over-limit", "1 producer ID was taken, 100 are allowed", "a lower limit")],
    ),
    "no place for a ledger": (of_host(not_kept=["/x belongs to another user"]), [warning("ledger-not-kept", "/x be")]),
    "a damaged ledger": (of_host(damaged=["/x/a.ledger is damaged"]), [warning("ledger-not-kept", "/x/a.ledger is")]),
    "a ledger that was switched off": (of_host(off=True), [info("ledger-not-kept")]),
    "a complete set of replicas is healthy": (replicated(IN_SYNC), []),
    "also at the minimum": (replicated(IN_SYNC, minimum=3), []),
    "Kafka asks for no more replicas than there are": (replicated(IN_SYNC, minimum=5), []),
    "more than the minimum are in sync": (replicated(TWO, minimum=1), []),
    "a replica is missing at the minimum": (replicated(TWO), [AT_MINIMUM]),
    "one is left, and enough": (replicated(ONE, minimum=1), [AT_MINIMUM]),
    "a replica is missing below the minimum": (replicated(ONE), [BELOW]),
    "a replica is missing of all that there are": (replicated(TWO, minimum=5), [BELOW]),
    "no leader": (replicated(IN_SYNC._replace(leader=None, in_sync=frozenset()), minimum=1), [BELOW]),
    "a replica that is being added is not missing": (replicated(TWO, moves={("t", 0): [3]}), [MOVES]),
    "beside it another one is": (replicated(ONE, moves={("t", 0): [3]}), [BELOW, MOVES]),
    "partitions of a topic with the same trouble, those below the minimum first": (
        replicated(GONE, ONE, GONE, IN_SYNC),
        [
            error(
                "in-sync-below-minimum",
                "1 of 3 replicas of partition 1 are in sync, min.insync.replicas is 2: writes with acks=all",
                "\nWait until broker 2 has caught up.\n",
                **{"topic": "t", "partition": 1, "broker": 2},
            ),
            warning(
                "in-sync-at-minimum",
                *("2 of 3 replicas of partition 0, 2 are", "one more failure, and writes with acks=all are refused"),
                "\nBring broker 3 back.\n",
                **{"topic": "t", "partition": None, "broker": 3},
            ),
        ],
    ),
    "a throttle keeps a replica away": (
        replicated(TWO, text="*", rate=1e6, moves={("t", 0): [4]}),
        [warning("in-sync-at-minimum", "leader.replication.throttled.rate"), MOVES],
    ),
    "two of three brokers are away": (
        replicated(ONE._replace(alive=frozenset({1}))),
        [error("in-sync-below-minimum", "Missing: broker 2, 3.", "\nBring broker 2 and broker 3 back.\n")],
    ),
    "one is away, and another one catches up": (
        replicated(ONE._replace(alive=frozenset({1, 2}))),
        [
            error(
                "in-sync-below-minimum",
                "Missing: broker 2, 3.\nWait until broker 2 has caught up. Bring broker 3 back.\n",
            )
        ],
    ),
    "a topic whose configs are not told has no minimum, and the right is told once for all": (
        replicated(
            ONE,
            unread=(Unread("the configs of t", "DESCRIBE_CONFIGS on these topics", NO_RIGHT.code, "refused"),),
            **{"minimum": None, "text": "0-1"},
        ),
        [warning("rights-missing", "\nHave an administrator grant DESCRIBE_CONFIGS on these topics")],
    ),
    "a throttle is left over only if moves were told": (
        replicated(IN_SYNC, text="*", rate=1e6, moves=None, unread=(MOVE_UNREAD,)),
        [warning("rights-missing", "DESCRIBE on the cluster")],
    ),
    "why they were not told": (
        replicated(
            IN_SYNC,
            **{"text": "*", "rate": 1e6, "moves": None},
            unread=(MOVE_UNREAD._replace(code="RequestTimedOutError", text="no answer."),),
        ),
        [warning("partition-unreadable", "The command did not read which replicas move: no answer.\n")],
    ),
    "a rate has no list only if all topics were looked at": (replicated(IN_SYNC, rate=1e6, all_topics=False), []),
    "a list is without a rate only if its brokers have said so": (replicated(IN_SYNC, text="0:1", rates={}), []),
    "a move is told once for each topic, of those that were asked for": (
        replicated(*[IN_SYNC] * 5, moves={**{("t", number): [4] for number in range(5)}, ("u", 0): [4]}),
        [info("replication-move", "replicas of partition 0, 1, 2 and 2 more move", topic="t")],
    ),
    "transactions that hold readers up: not one of a moment, as each has; an info until brokers should have ended it": (
        Examined(100, None, ClusterCensus((broker(),), (topic(),), transactions=[*map(opened, (300, 69, 45, 9.9))])),
        [
            warning("transaction-open", "open for 5 min", "brokers should have aborted it", topic="t"),
            info("transaction-open"),
            info(
                "transaction-open",
                "The transaction of orders-3 is open for 45 s",
                "t [0], t [1]. Its transaction.timeout.ms is 1 min.",
            ),
        ],
    ),
    **{
        f"the static rule of KIP-854 is strict: {timeout}, {expiration}": (
            examined(
                topic(small=1),
                brokers=(broker(1, expiration),),
                configuration=Configuration(timeout, 60.0, idempotent=True),
            ),
            [warning("expiration-below-timeout", broker=1)] * below,
        )
        for timeout, expiration, below in (
            *((300.0, 440.0, True), (300.0, 440.001, False), (None, DAY, True), (86_260.0, DAY, True)),
            (300.0, DAY, False),
        )
    },
    **{
        f"a broker that hangs is told with its replicas, not what it would have said of producer IDs: {code}": (
            replicated(IN_SYNC, brokers=(BrokerCensus(3, "host:9", unreadable(3, "no answer"), code),)),
            [warning("broker-silent", "Broker 3 (host:9)", "t [0]", broker=3)],
        )
        for code in ("_TIMED_OUT", "_TRANSPORT")
    },
}


@pytest.mark.parametrize("case", CASES)
def test_a_check(case: str) -> None:
    """Its findings in their order, with the words that matter."""
    seen, expected = CASES[case]
    findings = check(seen)
    assert [(one.severity, one.code) for one in findings] == [(one.severity, one.code) for one in expected]
    for finding, one in zip(findings, expected, strict=True):
        text = f"{finding.message}\n{finding.cure}\n"
        assert not [words for words in one.words if words not in text], text
        assert one.others is None or one.others not in text
        assert {name: getattr(finding, name) for name in one.place} == one.place
    assert exit_code(findings) == any(one.severity is not Severity.INFO for one in expected)


@pytest.mark.parametrize(
    ("text", "rate", "codes"),
    [
        ("0:1,0:2", 1e6, [("replication-throttle-left-over", Severity.WARNING)]),
        (
            "0:1",
            1e6,
            [
                ("replication-throttle-left-over", Severity.WARNING),
                ("replication-rate-without-list", Severity.INFO),
            ],
        ),
        ("*", 1e6, [("replication-throttle-left-over", Severity.WARNING)]),
        ("0:1", None, [("replication-list-without-rate", Severity.WARNING)]),
        ("0-1", None, [("replication-list-unreadable", Severity.WARNING)]),
        ("", 1e6, [("replication-rate-without-list", Severity.INFO)] * 2),
        ("", None, []),
    ],
)
def test_a_throttle_left_over(text: str, rate: float | None, codes: list[tuple[str, Severity]]) -> None:
    """As `replication status` has it. A move needs the lists of its topic."""
    findings = check(replicated(IN_SYNC, text=text, rate=rate))
    assert [(one.code, one.severity) for one in findings] == codes
    moving = check(replicated(IN_SYNC, text=text, rate=rate, moves={("t", 0): [4]}))
    assert ("replication-throttle-left-over" in [one.code for one in moving]) is False
    assert [one.severity for one in moving if one.code == "replication-move"] == [Severity.INFO]


def test_each_code_has_its_row() -> None:
    """Codes of findings in one table of docs/operate/doctor.md, those of patterns in the one before."""
    document = (ROOT / "docs/operate/doctor.md").read_text(encoding="utf-8")
    modules = ("doctor/checks.py", "common/finding.py")
    source = "".join((ROOT / "safeproducer/cli" / name).read_text(encoding="utf-8") for name in modules)
    found = set(re.findall(r'^\s+(?:.*[Ss]everity[.\w]*, )?"([a-z]+(?:-[a-z]+)+)",', source, re.MULTILINE))
    assert {"rights-missing", "producer-id-churn", "ledger-not-kept"} <= found
    patterns, findings = document.split("\n| code | ")
    assert found == set(re.findall(r"^\| `([a-z]+(?:-[a-z]+)+)` \|", findings, re.MULTILINE))
    for code in _TEXTS:
        assert f"| `{code}` |" in patterns
