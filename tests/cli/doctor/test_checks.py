"""Each check finds what it is for, and nothing in a cluster that is well."""

import re
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from safeproducer.cli.common.admin_settings import OpenTransaction
from safeproducer.cli.common.finding import Finding, Severity, exit_code
from safeproducer.cli.doctor.census import (
    BrokerCensus,
    BusiestHour,
    ClusterCensus,
    Configuration,
    Examined,
    PartitionCensus,
    Refused,
    ReplicationCensus,
    TopicCensus,
    Unread,
)
from safeproducer.cli.doctor.checks import check
from safeproducer.cli.doctor.host import Host, KnownId, LedgerCensus
from safeproducer.policy.expiry import DAY, Told, unreadable
from safeproducer.policy.replication import Facts, Replicas, Side, ThrottledReplicas
from safeproducer.producer_ids.patterns import _TEXTS, Pattern

ROOT = Path(__file__).resolve().parents[3]

NO_RIGHT = Refused("TOPIC_AUTHORIZATION_FAILED", "refused")
NOON = 1_800_014_400.0
DEFAULTS = Configuration(300.0, 60.0, idempotent=True)


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


def codes(found: Examined) -> list[str]:
    return [finding.code for finding in check(found)]


def only(found: Examined) -> Finding:
    (finding,) = check(found)
    return finding


def test_no_finding_exits_0() -> None:
    """Exit status 0."""
    assert check(examined(topic(small=100))) == []
    assert check(Examined(100)) == []


def test_churn() -> None:
    """Strictly more. Nobody but the ledger can say whose they are, and that is said."""
    finding = only(examined(topic("calm", small=100), topic("churned", small=101)))
    assert (finding.severity, finding.code, finding.topic) == (Severity.WARNING, "producer-id-churn", "churned")
    assert "101 producer IDs" in finding.message
    assert "100 are allowed" in finding.message
    assert "neither the client.id nor the user" in finding.message
    known = topic(small=150, of_this_host={"b.py:2": [1], "a.py:7": list(range(2, 50))})
    assert "48 from a.py:7, 1 from b.py:2" in only(examined(known)).message


@pytest.mark.parametrize(
    ("timeout", "expiration", "found"),
    [(300.0, 440.0, True), (300.0, 440.001, False), (None, DAY, True), (86_260.0, DAY, True), (300.0, DAY, False)],
)
def test_static_rule(timeout: float | None, expiration: float, found: bool) -> None:
    """message.timeout.ms + 2 x socket.timeout.ms + 10 s and the margin are less than what the broker remembers."""
    configuration = Configuration(timeout, 60.0, idempotent=True)
    brokers = (broker(1, expiration),)
    findings = check(examined(topic(small=1), brokers=brokers, configuration=configuration))
    assert [(one.code, one.broker) for one in findings] == [("expiration-below-timeout", 1)] * found


def test_static_rule_needs_idempotence() -> None:
    """Without one nothing is known of time-outs; without idempotence a retry may be written twice anyway."""
    short = (broker(1, 60.0),)
    assert codes(examined(topic(small=1), brokers=short, configuration=None)) == []
    assert codes(examined(topic(small=1), brokers=short, configuration=Configuration(300.0, 60.0, False))) == []


def test_brokers_that_differ() -> None:
    """All times are named, with who has them."""
    finding = only(examined(topic(small=1), brokers=(broker(1), broker(2, 2 * DAY), broker(3))))
    assert finding.code == "expiration-differs"
    assert "86400000 on broker 1, 3; 172800000 on broker 2" in finding.message


def test_a_broker_that_does_not_tell() -> None:
    """Once for each broker; the right that is missing once for the cluster."""
    silent = tuple(
        BrokerCensus(
            number, "host:9092", unreadable(number, "CLUSTER_AUTHORIZATION_FAILED"), "CLUSTER_AUTHORIZATION_FAILED"
        )
        for number in (1, 2)
    )
    findings = check(examined(topic(small=1), brokers=silent))
    assert [(one.code, one.broker) for one in findings] == [
        ("expiration-unreadable", 1),
        ("expiration-unreadable", 2),
        ("rights-missing", None),
    ]
    assert "A day" in findings[0].message
    assert "DESCRIBE_CONFIGS" in findings[2].cure
    assert "Grant DESCRIBE_CONFIGS" in findings[0].cure
    late = only(
        examined(topic(small=1), brokers=(BrokerCensus(1, "host:1", unreadable(1, "x"), "UNKNOWN_SERVER_ERROR"),))
    )
    assert (late.code, late.cure[:41]) == ("expiration-unreadable", "Run the command again when that broker an")


def test_the_configuration_may_say_what_a_broker_does_not() -> None:
    """Then nothing is assumed, and the static rule is by that number."""
    silent = (BrokerCensus(1, "host:9092", unreadable(1, "refused")),)
    given = replace(DEFAULTS, expiration=500.0)
    finding = only(examined(topic(small=1), brokers=silent, configuration=given))
    assert (finding.code, finding.severity) == ("expiration-unreadable", Severity.INFO)
    assert "500000" in finding.message
    short = replace(DEFAULTS, expiration=60.0)
    assert codes(examined(topic(small=1), brokers=silent, configuration=short)) == [
        "expiration-below-timeout",
        "expiration-unreadable",
    ]


def test_rights_on_topics() -> None:
    """One finding for each topic, however many partitions; the right that is missing is named."""
    hidden = topic("hidden", error=NO_RIGHT)
    blind = topic("blind", partitions=[PartitionCensus(number, 1, error=NO_RIGHT) for number in range(3)])
    findings = check(examined(hidden, blind))
    assert [(one.code, one.topic) for one in findings] == [("rights-missing", "hidden"), ("rights-missing", "blind")]
    assert "DESCRIBE and READ" in findings[0].cure
    assert "READ" in findings[1].cure


def test_no_topic_may_be_a_right_that_is_missing() -> None:
    """Or an empty cluster: told, but no reason to fail."""
    finding = only(examined(all_topics=True))
    assert (finding.code, finding.severity) == ("rights-missing", Severity.INFO)
    assert exit_code([finding]) == 0


def test_partitions_not_told() -> None:
    """Partitions with the same reason are told together."""
    lost = [
        PartitionCensus(number, None, error=Refused("LEADER_NOT_AVAILABLE", "it has no leader")) for number in range(5)
    ]
    moved = [PartitionCensus(number, 1, error=Refused("NOT_LEADER", f"{number} moved")) for number in (5, 6)]
    late = [PartitionCensus(7, 2, error=Refused("NOT_LEADER", "7 moved"))]
    findings = check(examined(topic(partitions=[*lost, *moved, *late])))
    assert {one.code for one in findings} == {"partition-unreadable"}
    assert [(one.broker, one.partition) for one in findings] == [(None, None), (1, None), (2, 7)]
    assert "partition 0, 1, 2 and 2 more were not read: it has no leader" in findings[0].message
    assert "partition 5, 6 were not read: 5 moved" in findings[1].message


def test_a_host_that_has_used_up_its_hour() -> None:
    """Named with the next time, the lines that took the IDs, and the cure of each pattern."""
    loop = Pattern("crash-loop", "a.py:7 in main", 90, "90 in 30 s, a crash loop", "Find out why it ends.")
    used = Host(
        [LedgerCensus("k1:9092 as User:a", 101, 36.0, patterns=[loop]), LedgerCensus("k2:9092 as User:a", 5, 0.0)]
    )
    finding = only(replace(examined(topic(small=1)), host=used))
    assert finding.code == "host-over-limit"
    for words in ("k1:9092 as User:a", "101 producer IDs", "in 36 s", "a.py:7 in main: 90 in 30 s, a crash loop."):
        assert words in finding.message
    assert finding.cure == "Find out why it ends."
    lanes = [Pattern("lanes", f"b.py:{line} in run", 9, "9 in 3 s, lanes", "Set lanes.") for line in (1, 2)]
    of_both = Host([LedgerCensus("k1:9092 as User:a", 101, 36.0, patterns=[*lanes, loop])])
    assert only(replace(examined(topic(small=1)), host=of_both)).cure == (
        "For b.py:1 in run, b.py:2 in run: Set lanes. For a.py:7 in main: Find out why it ends."
    )
    unknown = Host([LedgerCensus("k1:9092 as User:a", 101, 36.0)])
    assert "one producer for each process" in only(replace(examined(topic(small=1)), host=unknown)).cure


def test_the_limit_of_a_configuration_is_that_of_its_ledger() -> None:
    """Producers of other clusters may have another one: told, but no reason to fail."""
    ledgers = [LedgerCensus("k1 as User:a", 101, 36.0, asked=True), LedgerCensus("ledger 0a1b2c3d", 300, 36.0)]
    of_it, of_another = check(replace(examined(topic(small=1)), host=Host(ledgers)))
    assert (of_it.severity, of_another.severity) == (Severity.WARNING, Severity.INFO)
    assert "may have another limit" in of_another.message
    assert "may have another limit" not in of_it.message
    assert exit_code([of_another]) == 0
    assert only(replace(examined(topic(small=1)), host=Host(ledgers[1:]))).severity is Severity.WARNING


def test_an_hour_that_a_lower_limit_used_up() -> None:
    """One ID, and why it is enough."""
    message = only(replace(examined(topic(small=1)), host=Host([LedgerCensus("k1 as User:a", 1, 5.0)]))).message
    assert "1 producer ID was taken, 100 are allowed" in message
    assert "a lower limit" in message


def test_ids_that_may_be_of_another_cluster() -> None:
    """Where this host has no ledger of the cluster, numbers may be those of others."""
    flooded = replace(
        examined(topic(small=150, of_this_host={"a.py:7 in view": [1, 2]})), host=Host([LedgerCensus("k2", 9, 0.0)])
    )
    assert "2 from a.py:7 in view. They may be of another cluster" in only(flooded).message
    asked = replace(flooded, host=Host([LedgerCensus("k1", 9, 0.0, asked=True), LedgerCensus("k2", 9, 0.0)]))
    assert "another cluster" not in only(asked).message


def test_a_flood_from_this_host_has_the_cure_of_its_pattern() -> None:
    """The same words as in log, hook and error."""
    pattern = Pattern("one-per-request", "a.py:7 in view", 120, "120 in 50 s, one a request", "Make one producer.")
    host = Host([LedgerCensus("k1:9092 as User:a", 120, 0.0, patterns=[pattern])])
    flooded = topic(small=150, of_this_host={"a.py:7 in view": list(range(120))})
    finding = only(replace(examined(flooded), host=host))
    assert finding.code == "producer-id-churn"
    assert "120 from a.py:7 in view" in finding.message
    assert "one a request" in finding.message
    assert finding.cure == "Make one producer."


def test_ids_of_unknown_number() -> None:
    """Of the hour and the cluster only: a producer that lived for a moment may have missed its number."""

    def taken(at: float, number: int | None = None) -> KnownId:
        return KnownId("a.py:7 in view", "first", at, 1, 0, number, "closed")

    asked = LedgerCensus(
        "k1", 9, 0.0, [taken(NOON + 5), taken(NOON + 9), taken(NOON + 3600), taken(NOON, 4)], asked=True
    )
    other = LedgerCensus("k2", 9, 0.0, [taken(NOON + 5)])
    finding = only(replace(examined(topic(small=150)), host=Host([asked, other])))
    assert "whose number it does not know: 2 from a.py:7 in view." in finding.message


def test_a_ledger_that_is_not_kept() -> None:
    """No place and damage are warnings; switched off is what was asked for."""
    for host, severity in (
        (Host(not_kept=["/x belongs to another user"]), Severity.WARNING),
        (Host(damaged=["/x/a.ledger is damaged"]), Severity.WARNING),
        (Host(off=True), Severity.INFO),
    ):
        finding = only(replace(examined(topic(small=1)), host=host))
        assert (finding.code, finding.severity) == ("ledger-not-kept", severity)
        assert exit_code([finding]) == (severity is Severity.WARNING)


IN_SYNC = Replicas(1, (1, 2, 3), frozenset({1, 2, 3}), frozenset({1, 2, 3}))
TWO, ONE = IN_SYNC._replace(in_sync=frozenset({1, 2})), IN_SYNC._replace(in_sync=frozenset({1}))


def replicated(
    *partitions: Replicas,
    minimum: int = 2,
    text: str = "",
    rate: float | None = None,
    moves: dict[tuple[str, int], list[int]] | None = MappingProxyType({}),  # type: ignore[assignment]
    all_topics: bool = True,
    unread: tuple[Unread, ...] = (),
) -> Examined:
    """One topic, with this text in both lists and this rate on both brokers."""
    facts = Facts(
        {("t", number): one for number, one in enumerate(partitions)},
        {("t", side): one for side in Side if (one := ThrottledReplicas.read(text)) is not None},
        {(number, side): rate for number in (1, 2) for side in Side},
        minimum={"t": minimum},
    )
    found = examined(topic(small=1), all_topics=all_topics)
    return replace(found, cluster=replace(found.cluster, replication=ReplicationCensus(facts, moves, unread)))


@pytest.mark.parametrize(
    ("one", "minimum", "found"),
    [
        (IN_SYNC, 2, []),
        (IN_SYNC, 3, []),
        (IN_SYNC, 5, []),
        (TWO, 1, []),
        (TWO, 2, [("in-sync-at-minimum", Severity.WARNING)]),
        (ONE, 1, [("in-sync-at-minimum", Severity.WARNING)]),
        (ONE, 2, [("in-sync-below-minimum", Severity.ERROR)]),
        (TWO, 5, [("in-sync-below-minimum", Severity.ERROR)]),
        (IN_SYNC._replace(leader=None, in_sync=frozenset()), 1, [("in-sync-below-minimum", Severity.ERROR)]),
    ],
)
def test_a_missing_replica(one: Replicas, minimum: int, found: list[tuple[str, Severity]]) -> None:
    """A complete set is healthy, even at the minimum; Kafka asks for no more replicas than there are."""
    assert [(finding.code, finding.severity) for finding in check(replicated(one, minimum=minimum))] == found


def test_a_replica_that_is_being_added_is_not_missing() -> None:
    """A factor of two with a minimum of two is complete while its third replica comes."""
    assert codes(replicated(TWO, moves={("t", 0): [3]})) == ["replication-move"]
    assert codes(replicated(ONE, moves={("t", 0): [3]})) == ["in-sync-below-minimum", "replication-move"]


def test_partitions_of_a_topic_with_the_same_trouble_are_told_together() -> None:
    """Those below the minimum come first; what is missing is told, and what to do."""
    gone = TWO._replace(alive=frozenset({1, 2}))
    below, at = check(replicated(gone, ONE, gone, IN_SYNC))
    assert (below.code, below.topic, below.partition, below.broker) == ("in-sync-below-minimum", "t", 1, 2)
    assert "1 of 3 replicas of partition 1 are in sync, min.insync.replicas is 2: writes with acks=all" in below.message
    assert (at.code, at.topic, at.partition, at.broker) == ("in-sync-at-minimum", "t", None, 3)
    assert "2 of 3 replicas of partition 0, 2 are in sync" in at.message
    assert "one more failure, and writes with acks=all are refused" in at.message
    assert (at.cure, below.cure) == ("Bring broker 3 back.", "Wait until broker 2 has caught up.")
    limited, _ = check(replicated(TWO, text="*", rate=1e6, moves={("t", 0): [4]}))
    assert "leader.replication.throttled.rate" in limited.cure


def test_a_topic_whose_configs_are_not_told_has_no_minimum() -> None:
    """Its right is named instead, in one finding for all topics."""
    refused = Unread("the configs of t", "DESCRIBE_CONFIGS on these topics", NO_RIGHT.code, "refused")
    found = replicated(ONE, unread=(refused,))
    facts = replace(found.cluster.replication.facts, minimum={}, lists={})
    seen = replace(found.cluster.replication, facts=facts)
    finding = only(replace(found, cluster=replace(found.cluster, replication=seen)))
    assert (finding.code, finding.severity) == ("rights-missing", Severity.WARNING)
    assert "DESCRIBE_CONFIGS on these topics" in finding.cure


@pytest.mark.parametrize(
    ("text", "rate", "found"),
    [
        ("0:1,0:2", 1e6, [("replication-throttle-left-over", Severity.WARNING)]),
        ("*", 1e6, [("replication-throttle-left-over", Severity.WARNING)]),
        ("0:1", None, [("replication-list-without-rate", Severity.WARNING)]),
        ("0-1", None, [("replication-list-unreadable", Severity.WARNING)]),
        ("", 1e6, [("replication-rate-without-list", Severity.INFO)] * 2),
        ("", None, []),
    ],
)
def test_a_throttle_left_over(text: str, rate: float | None, found: list[tuple[str, Severity]]) -> None:
    """As `replication status` has it. A move needs the lists of its topic."""
    findings = check(replicated(IN_SYNC, text=text, rate=rate))
    assert [(one.code, one.severity) for one in findings] == found
    moving = check(replicated(IN_SYNC, text=text, rate=rate, moves={("t", 0): [4]}))
    assert ("replication-throttle-left-over" in [one.code for one in moving]) is False
    assert [one.severity for one in moving if one.code == "replication-move"] == [Severity.INFO]


def test_a_throttle_is_left_over_only_if_moves_were_told() -> None:
    """The right on the cluster is named; another reason is told as it is."""
    refused = Unread("which replicas move", "DESCRIBE on the cluster", "CLUSTER_AUTHORIZATION_FAILED", "refused")
    finding = only(replicated(IN_SYNC, text="*", rate=1e6, moves=None, unread=(refused,)))
    assert (finding.code, finding.severity) == ("rights-missing", Severity.WARNING)
    assert "DESCRIBE on the cluster" in finding.cure
    late = refused._replace(code="RequestTimedOutError", text="no answer.")
    finding = only(replicated(IN_SYNC, text="*", rate=1e6, moves=None, unread=(late,)))
    assert finding.code == "partition-unreadable"
    assert finding.message == "The command did not read which replicas move: no answer."


def test_a_rate_has_no_list_only_if_all_topics_were_looked_at() -> None:
    """Another topic may list a replica of that broker."""
    assert codes(replicated(IN_SYNC, rate=1e6, all_topics=False)) == []


def test_a_rate_that_was_not_told_is_not_missing() -> None:
    """A list is without a rate only if its brokers have said so."""
    found = replicated(IN_SYNC, text="0:1")
    seen = replace(found.cluster.replication, facts=replace(found.cluster.replication.facts, rates={}))
    assert codes(replace(found, cluster=replace(found.cluster, replication=seen))) == []


def test_a_move_is_told_once_for_each_topic() -> None:
    """With its partitions; one of a topic that was not asked for is left out."""
    finding = only(replicated(*[IN_SYNC] * 5, moves={**{("t", number): [4] for number in range(5)}, ("u", 0): [4]}))
    assert (finding.code, finding.severity, finding.topic) == ("replication-move", Severity.INFO, "t")
    assert "replicas of partition 0, 1, 2 and 2 more move" in finding.message


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


def test_every_missing_replica_is_named() -> None:
    """Two of three brokers are away; or one is away, and another one catches up."""
    away = only(replicated(ONE._replace(alive=frozenset({1}))))
    assert "Missing: broker 2, 3." in away.message
    assert away.cure == "Bring broker 2 and broker 3 back."
    behind = only(replicated(ONE._replace(alive=frozenset({1, 2}))))
    assert "Missing: broker 2, 3." in behind.message
    assert behind.cure == "Wait until broker 2 has caught up. Bring broker 3 back."


@pytest.mark.parametrize("code", ["_TIMED_OUT", "_TRANSPORT"])
def test_a_broker_that_hangs_is_told_with_its_replicas(code: str) -> None:
    """What it would have said of producer IDs is not the trouble."""
    seen = replicated(IN_SYNC)
    hung = replace(seen.cluster, brokers=(BrokerCensus(3, "host:9", unreadable(3, "no answer"), code),))
    finding = only(replace(seen, cluster=hung))
    assert (finding.code, finding.severity, finding.broker) == ("broker-silent", Severity.WARNING, 3)
    assert "Broker 3 (host:9)" in finding.message
    assert "t [0]" in finding.message


def opened(age: float, timeout: float = 60.0) -> OpenTransaction:
    """Of slot 3 of a sink of Spark."""
    return OpenTransaction("orders-3", age, timeout, (("t", 0), ("t", 1)))


def test_a_transaction_that_holds_readers_up_is_named() -> None:
    """Not one of a moment, as each has; an info until brokers should have ended it."""
    cluster = ClusterCensus((broker(),), (topic(),))
    seen = Examined(100, None, replace(cluster, transactions=(opened(300), opened(45), opened(9.9))), Host())
    late, normal = check(seen)
    assert (late.severity, normal.severity) == (Severity.WARNING, Severity.INFO)
    assert (late.code, late.topic) == ("transaction-open", "t")
    assert "The transaction of orders-3 is open for 45 s" in normal.message
    assert "t [0], t [1]. Its transaction.timeout.ms is 1 min." in normal.message
    assert "open for 5 min" in late.message
    assert "brokers should have aborted it" in late.message
    assert [one.severity for one in check(replace(seen, cluster=replace(cluster, transactions=(opened(69),))))] == [
        Severity.INFO
    ]
