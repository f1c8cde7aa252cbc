"""Each rule of doctor is broken here on purpose, and the test of that rule must notice."""

from collections.abc import Callable
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from safeproducer.cli.common import producer_states
from safeproducer.cli.common.finding import Finding, Severity
from safeproducer.cli.common.stop import Failure
from safeproducer.cli.doctor import census, checks, cluster, command, host
from safeproducer.cli.doctor.census import Examined, TopicCensus
from safeproducer.cli.doctor.checks import CHECKS
from safeproducer.producer_ids import ledger_places
from safeproducer.producer_ids.guard import guard_of
from safeproducer.producer_ids.ledger_places import Place
from safeproducer.testing import FakeCluster
from tests.cli.doctor import test_census as counting
from tests.cli.doctor import test_checks as checking
from tests.cli.doctor import test_command as running
from tests.cli.doctor import test_host as here
from tests.cli.in_process import CommandHere

real_merged, real_busiest, real_look, real_census = census._merged, census.busiest_hour, command.look, cluster.census
real_static, real_read = checks.expiration_below_timeout, command.read_host
real_unsafe, real_left_over = checks.unsafe, checks.left_over
LEFT_OVER = "*", 1e6, [("replication-throttle-left-over", Severity.WARNING)]


flooded = running.cluster
"""The fixture, by a name that no module here has."""


def small_in_any(one: Any, other: Any) -> Any:
    return real_merged(one, other)._replace(small=one.small or other.small)


def raising(answer: Any) -> Any:
    return [producer_states._state(row) for row in producer_states._checked(answer)["active_producers"]]


def of_any_ledger(self: host.Host, begin: float, end: float) -> list[str]:
    return [one.line for ledger in self.ledgers for one in ledger.ids if one.at < end]


def over_all_topics(*args: Any) -> Any:
    """The hour is that of the whole cluster."""
    seen, failure = real_look(*args)
    hours = [topic.busiest_hour for topic in seen.topics if topic.busiest_hour is not None]
    whole = replace(hours[0], small_ids=sum(hour.small_ids for hour in hours))
    return replace(seen, topics=[replace(topic, busiest_hour=whole) for topic in seen.topics]), failure


def of_each_partition(topic: str, partitions: Any, *args: Any) -> TopicCensus:
    """An ID that writes to two partitions is two."""
    apart = [real_census(topic, [one], *args) for one in partitions]
    whole = real_census(topic, partitions, *args)
    ids, small = sum(one.distinct_ids for one in apart), sum(one.small_ids for one in apart)
    return replace(whole, distinct_ids=ids, small_ids=small)


def not_joined(*args: Any) -> Any:
    return real_look(*args[:-1], {})


def at_all_costs(examined: Examined) -> list[Finding]:
    """Also where a retry may be written twice anyway."""
    configuration = examined.configuration
    given = None if configuration is None else replace(configuration, idempotent=True)
    return real_static(replace(examined, configuration=given))


def of_the_first_broker(examined: Examined) -> list[Finding]:
    seen = examined.cluster
    return real_static(replace(examined, cluster=replace(seen, brokers=seen.brokers[:1])))


def instead(check: Any, other: Any) -> Any:
    return tuple(other if one is check else one for one in CHECKS)


def swallowed(found: Any) -> int:
    return int(any(one.severity is Severity.ERROR for one in found))


def writing(place: Place, *args: Any, **more: Any) -> host.Host:
    ledger_places.prepared(place)
    return real_read(place, *args, **more)


def failing_before_the_host(*_: Any, **__: Any) -> host.Host:
    raise Failure("nobody answers")


def without(check: Any) -> Any:
    return tuple(one for one in CHECKS if one is not check)


def judging(case: str) -> tuple[Callable[..., object], str]:
    """The case of a check that begins so."""
    return checking.test_a_check, next(one for one in checking.CASES if one.startswith(case))


BUGS: dict[str, tuple[Any, str, Any, Callable[..., object], tuple[Any, ...]]] = {}


def bug(what: str, owner: Any, name: str, broken: Any, test: Callable[..., object], *args: Any) -> None:
    """Plant it in place of `name`. The test is called with `args`, and with the fixtures that it names."""
    BUGS[what] = owner, name, broken, test, args


SMALL, is_small = census.SMALL, counting.test_an_id_is_small_where_it_is_small_in_each_partition
bug("the limit of small IDs is off by one", census, "SMALL", SMALL + 1, is_small, (SMALL,), 0)
bug("the limit of small IDs is off by one, downwards", census, "SMALL", SMALL - 1, is_small, (SMALL - 1,), 1)
bug("an ID is small where it is small in any partition", census, "_merged", small_in_any, is_small, (0, SMALL), 0)
bug("an ID counts in each partition", counting, "census", of_each_partition, counting.test_an_id_counts_once)
flooded_alone, hour_ends = running.test_a_topic_that_is_flooded_is_named_alone, counting.test_the_busiest_hour_ends
bug("the busiest hour is taken over all topics", command, "look", over_all_topics, flooded_alone)
bug("the busiest hour is any of the days", census, "DAY", 9 * census.DAY, hour_ends)
bug("the busiest hour is two", census, "HOUR", 2 * census.HOUR, hour_ends)
of_transactions = lambda moments, now: real_busiest([now] * 2, now)  # noqa: E731
transactional = counting.test_transactional_ids_are_apart
bug("the busiest hour has IDs of transactions, too", census, "busiest_hour", of_transactions, transactional)

of_all, its_cluster = property(lambda self: self.ledgers), here.test_an_id_is_looked_up_in_the_ledger_of_its_cluster
bug("own IDs are not joined", command, "look", not_joined, running.test_ids_of_this_host_have_their_line)
bug("own IDs have no line", host.Host, "lines", {}, here.test_ids_have_their_line)
bug("lines of another cluster are told", host.Host, "unknown", of_any_ledger, *judging("IDs of the hour"))
bug("IDs are looked up in all ledgers", host.Host, "joined", of_all, its_cluster)
of_any = property(lambda self: {pattern.line: pattern for ledger in self.ledgers for pattern in ledger.patterns})
bug("a line has the pattern of any cluster", host.Host, "patterns", of_any, its_cluster)
bug("IDs of another cluster are told as certain", checks, "_OTHERS", "", *judging("IDs that may be"))
never = property(lambda self: False)
bug("a configuration judges all ledgers", host.Host, "asks", never, *judging("the limit of a configuration"))

ninety_nine = property(lambda self: 99, lambda self, _: None)
bug("as many as allowed are churn", Examined, "rate", ninety_nine, *judging("as many"))
strict, left = (
    judging("the static rule of KIP-854 is strict: 300.0, 440.0"),
    (checking.test_a_throttle_left_over, *LEFT_OVER),
)
for what, check, test in (
    ("churn is well", checks.producer_id_churn, judging("more small IDs")),
    ("retries that outlive an expiration are well", checks.expiration_below_timeout, strict),
    ("a broker that does not tell is well", checks.expiration_unreadable, judging("a broker may not tell")),
    ("a used-up hour is well", checks.host_over_limit, judging("a host that has used up")),
    ("a right that is missing is swallowed", checks.rights_missing, judging("rights on topics")),
    ("what leaders did not tell is left out", checks.partition_unreadable, judging("partitions that nobody told")),
    ("brokers may differ", checks.expiration_differs, judging("brokers differ")),
    ("a replica may be missing", checks.replicas_in_sync, judging("a replica is missing at")),
    ("a throttle may be left over", checks.throttle_left_over, left),
    ("a move is not told", checks.replicas_move, judging("a move is told once")),
    ("a damaged ledger is well", checks.ledger_not_kept, judging("a damaged ledger")),
    ("an open transaction is well", checks.transactions_open, judging("transactions that hold")),
    ("a broker that hangs is well", checks.broker_silent, judging("a broker that hangs is told with its replicas")),
):
    bug(what, checks, "CHECKS", without(check), *test)
not_strict = lambda timeout, socket, seconds: real_unsafe(timeout, socket, seconds + 0.001)  # noqa: E731
bug("the static rule is not strict", checks, "unsafe", not_strict, *strict)
costly, first = (instead(checks.expiration_below_timeout, other) for other in (at_all_costs, of_the_first_broker))
bug("the static rule without idempotence", checks, "CHECKS", costly, *judging("without idempotence"))
bug("the static rule for one broker", checks, "CHECKS", first, running.test_time_outs_against_each_broker)
whatever_moves = lambda facts, brokers, moving: real_left_over(facts, brokers, ())  # noqa: E731
bug("any throttle is left over", checks, "left_over", whatever_moves, *left)

rights = running.test_without_rights_there_are_findings
bug("a right that is missing is no right", checks, "_NO_RIGHT", {"CLUSTER_AUTHORIZATION_FAILED"}, rights)
bug("a topic that is refused takes others with it", producer_states, "_producers", raising, rights)
topics_alone, configs_hidden = {"TOPIC_AUTHORIZATION_FAILED"}, running.test_brokers_that_do_not_show_their_configs
bug("the right on the cluster is no right", checks, "_NO_RIGHT", topics_alone, configs_hidden)
nobody, one = running.test_no_broker_answers_at_the_address, lambda *_: 1
bug("exit code 0 with warnings", command, "exit_code", swallowed, running.test_time_outs_against_each_broker)
any_finding = lambda found: int(bool(found))  # noqa: E731
bug("exit code 1 for what is no warning", command, "exit_code", any_finding, running.test_an_info_is_no_finding)
bug("exit code 1 for a topic that is not there", command, "status", one, running.test_a_topic_that_does_not_exist)
bug("exit code 1 where nobody answers", command, "status", one, nobody)
bug("the host is not shown where nobody answers", command, "read_host", failing_before_the_host, nobody)
no_directory, no_paths = running.test_doctor_makes_no_directory, here.test_without_paths_lines_are_numbered
bug("it makes the ledger's directory", command, "read_host", writing, no_directory)
bug("settings make the ledger's directory", ledger_places, "unusable", ledger_places.problem, no_directory)
topics_of_kafka = running.test_topics_of_kafka_itself_are_left_out
bug("the coordinators' topics are counted", cluster, "_OF_KAFKA", frozenset(), topics_of_kafka)
a_day = property(lambda self: {broker.number: census.DAY for broker in self.brokers})
everywhere = "it forgets after a day everywhere"
bug(everywhere, census.ClusterCensus, "expirations", a_day, running.test_ids_that_are_about_to_expire)
by_default = lambda self, rate: max(0.0, self.used - 3564.0)  # noqa: E731
by_rate = here.test_the_hour_is_used_up_by_the_rate_that_is_given
bug("the rate of the ledger is the default", host.LedgerReading, "wait", by_default, by_rate)
used_up = running.test_a_host_that_has_used_up_its_hour
bug("a line is shown with --no-paths", host._Lines, "line", lambda self, site: str(site), used_up)
bug("a directory is shown with --no-paths", host._Lines, "text", lambda self, sentence, place: sentence, no_paths)


@pytest.mark.parametrize("what", BUGS)
def test_a_planted_bug_is_found(what: str, flooded: FakeCluster, tmp_path: Path) -> None:
    """By the test of the rule that it breaks, which passes without it."""
    owner, name, broken, test, args = BUGS[what]

    def run(scratch: Path) -> None:
        command, ledger = CommandHere(scratch), str(scratch / "ledger")
        command.environment["SAFEPRODUCER_PRODUCER_IDS_LEDGER"] = ledger
        fixtures = {"here": command, "command": command, "cluster": flooded, "ledger": ledger, "tmp_path": scratch}
        fixtures |= {"place": Place(ledger), "guard": guard_of(here.IDENTITY, Place(ledger))}
        test(*args, **{name: fixtures[name] for name in list(signature(test).parameters)[len(args) :]})

    for scratch in (tmp_path / "well", tmp_path / "broken"):
        scratch.mkdir()
    run(tmp_path / "well")
    with mock.patch.object(owner, name, broken), pytest.raises((AssertionError, ValueError)):
        run(tmp_path / "broken")
