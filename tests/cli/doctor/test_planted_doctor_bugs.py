"""Each rule of doctor is broken here on purpose, and the test of that rule must notice."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from safeproducer.cli.common import producer_states
from safeproducer.cli.common.finding import Finding, Severity
from safeproducer.cli.common.stop import Failure
from safeproducer.cli.doctor import census, checks, cluster, command, host, report
from safeproducer.cli.doctor.census import Examined, TopicCensus
from safeproducer.cli.doctor.checks import CHECKS
from safeproducer.cli.doctor.cluster import ClusterLook
from safeproducer.cli.doctor.report import Report
from safeproducer.producer_ids import ledger_places
from safeproducer.producer_ids.guard import Guard, guard_of
from safeproducer.producer_ids.ledger_places import Place
from safeproducer.testing import FakeCluster
from tests.cli.doctor import test_census as counting
from tests.cli.doctor import test_checks as judging
from tests.cli.doctor import test_command as running
from tests.cli.doctor import test_host as here
from tests.cli.in_process import CommandHere

real_merged, real_busiest, real_run, real_census = census._merged, census.busiest_hour, ClusterLook.run, cluster.census
real_static, real_read = checks.expiration_below_timeout, command.read_host
real_unsafe, real_left_over = checks.unsafe, checks.left_over
AT_MINIMUM = [("in-sync-at-minimum", Severity.WARNING)]
LEFT_OVER = [("replication-throttle-left-over", Severity.WARNING)]


class Bench:
    """What the tests of the command are given."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.command = CommandHere(scratch)
        self.ledger = str(scratch / "ledger")
        self.command.environment["SAFEPRODUCER_PRODUCER_IDS_LEDGER"] = self.ledger

    @property
    def place(self) -> Place:
        return Place(self.ledger)

    @property
    def guard(self) -> Guard:
        return guard_of(here.IDENTITY, self.place)


@pytest.fixture(scope="module")
def flooded() -> Iterator[FakeCluster]:
    """As the tests of the command have it."""
    with FakeCluster(brokers=2) as made:
        made.create_topic("calm", partitions=2)
        made.create_topic("churned", partitions=3)
        running.write(made, "calm", 1)
        running.write(made, "churned", 5)
        yield made


def over_all_topics(self: ClusterLook, *args: Any) -> None:
    """The hour is that of the whole cluster."""
    real_run(self, *args)
    topics = self.cluster.topics
    hours = [topic.busiest_hour for topic in topics if topic.busiest_hour is not None]
    whole = replace(hours[0], small_ids=sum(hour.small_ids for hour in hours))
    self.cluster = replace(self.cluster, topics=[replace(topic, busiest_hour=whole) for topic in topics])


def of_each_partition(topic: str, partitions: Any, *args: Any) -> TopicCensus:
    """An ID that writes to two partitions is two."""
    apart = [real_census(topic, [one], *args) for one in partitions]
    whole = real_census(topic, partitions, *args)
    ids, small = sum(one.distinct_ids for one in apart), sum(one.small_ids for one in apart)
    return replace(whole, distinct_ids=ids, small_ids=small)


def not_joined(self: ClusterLook, names: Any, lines: Any) -> None:
    real_run(self, names, {})


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


Test = Callable[[Bench, FakeCluster], object]


def once(test: Callable[..., object], *args: Any) -> Test:
    return lambda *_: test(*args)


def run_here(test: Callable[..., object]) -> Test:
    return lambda bench, _: test(bench.command)


def run_at(test: Callable[..., object]) -> Test:
    return lambda bench, flooded: test(bench.command, flooded)


def left_out(check: Any, test: Callable[..., object], *args: Any) -> tuple[Any, str, Any, Test]:
    return checks, "CHECKS", tuple(one for one in CHECKS if one is not check), once(test, *args)


BUGS: dict[str, tuple[Any, str, Any, Test]] = {
    "the limit of small IDs is off by one": (
        census,
        "SMALL",
        census.SMALL + 1,
        once(counting.test_an_id_is_small_where_it_is_small_in_each_partition, (census.SMALL,), 0),
    ),
    "the limit of small IDs is off by one, downwards": (
        census,
        "SMALL",
        census.SMALL - 1,
        once(counting.test_an_id_is_small_where_it_is_small_in_each_partition, (census.SMALL - 1,), 1),
    ),
    "an ID is small where it is small in any partition": (
        census,
        "_merged",
        lambda one, other: real_merged(one, other)._replace(small=one.small or other.small),
        once(counting.test_an_id_is_small_where_it_is_small_in_each_partition, (0, census.SMALL), 0),
    ),
    "the busiest hour is taken over all topics": (
        ClusterLook,
        "run",
        over_all_topics,
        run_at(running.test_a_topic_that_is_flooded_is_named_alone),
    ),
    "the busiest hour is any of the days": (census, "DAY", 9 * census.DAY, once(counting.test_the_busiest_hour_ends)),
    "the busiest hour is two": (census, "HOUR", 2 * census.HOUR, once(counting.test_the_busiest_hour_ends)),
    "the busiest hour has IDs of transactions, too": (
        census,
        "busiest_hour",
        lambda moments, now: real_busiest([now] * 2, now),
        once(counting.test_transactional_ids_are_apart),
    ),
    "an ID counts in each partition": (
        counting,
        "census",
        of_each_partition,
        once(counting.test_an_id_counts_once_in_however_many_partitions),
    ),
    "own IDs are not joined": (ClusterLook, "run", not_joined, run_here(running.test_ids_of_this_host_have_their_line)),
    "own IDs have no line": (
        host.Host,
        "lines",
        {},
        lambda bench, _: here.test_ids_have_their_line(bench.place, bench.guard),
    ),
    "lines of another cluster are told": (
        host.Host,
        "unknown",
        lambda self, begin, end: [one.line for ledger in self.ledgers for one in ledger.ids if one.at < end],
        once(judging.test_ids_whose_number_is_not_known_are_told_by_their_time),
    ),
    "IDs are looked up in all ledgers": (
        host.Host,
        "joined",
        property(lambda self: self.ledgers),
        lambda bench, _: here.test_an_id_is_looked_up_in_the_ledger_of_its_cluster(bench.place, bench.guard),
    ),
    "a line has the pattern of any cluster": (
        host.Host,
        "joined",
        property(lambda self: self.ledgers),
        lambda bench, _: here.test_a_line_has_the_pattern_of_its_cluster(bench.place, bench.guard),
    ),
    "IDs of another cluster are told as certain": (
        checks,
        "_OTHERS",
        "",
        once(judging.test_ids_of_another_cluster_are_told_as_possible),
    ),
    "a configuration judges all ledgers": (
        host.Host,
        "asks",
        property(lambda self: False),
        once(judging.test_the_limit_of_a_configuration_is_that_of_its_ledger),
    ),
    "as many as allowed are churn": (
        Examined,
        "rate",
        property(lambda self: 99, lambda self, _: None),
        once(judging.test_no_finding_exits_0),
    ),
    "churn is well": left_out(checks.producer_id_churn, judging.test_more_small_ids_in_an_hour_than_allowed_are_churn),
    "retries that outlive an expiration are well": left_out(
        checks.expiration_below_timeout, judging.test_the_static_rule_is_strict, 300.0, 440.0, True
    ),
    "the static rule is not strict": (
        checks,
        "unsafe",
        lambda timeout, socket, seconds: real_unsafe(timeout, socket, seconds + 0.001),
        once(judging.test_the_static_rule_is_strict, 300.0, 440.0, True),
    ),
    "a broker that does not tell is well": left_out(
        checks.expiration_unreadable, judging.test_a_broker_that_does_not_tell
    ),
    "a used-up hour is well": left_out(checks.host_over_limit, judging.test_a_host_that_has_used_up_its_hour),
    "a right that is missing is swallowed": left_out(checks.rights_missing, judging.test_rights_on_topics),
    "a right that is missing is no right": (
        checks,
        "_NO_RIGHT",
        frozenset({"CLUSTER_AUTHORIZATION_FAILED"}),
        run_here(running.test_without_rights_there_are_findings),
    ),
    "the right on the cluster is no right": (
        checks,
        "_NO_RIGHT",
        frozenset({"TOPIC_AUTHORIZATION_FAILED"}),
        run_here(running.test_brokers_that_do_not_show_their_configs),
    ),
    "a topic that is refused takes others with it": (
        producer_states,
        "_producers",
        lambda answer: [producer_states._state(row) for row in producer_states._checked(answer)["active_producers"]],
        run_here(running.test_without_rights_there_are_findings),
    ),
    "what leaders did not tell is left out": left_out(
        checks.partition_unreadable, judging.test_partitions_that_nobody_told_of
    ),
    "exit code 0 with warnings": (report, "exit_code", swallowed, run_here(running.test_a_warning_is_a_failure)),
    "exit code 1 for what is no warning": (
        report,
        "exit_code",
        lambda found: int(bool(found)),
        run_here(running.test_an_info_is_no_finding),
    ),
    "exit code 1 for a topic that does not exist": (
        Report,
        "exit_code",
        property(lambda self: 1),
        run_at(running.test_a_topic_that_does_not_exist),
    ),
    "exit code 1 where nobody answers": (
        Report,
        "exit_code",
        property(lambda self: 1),
        run_here(running.test_no_broker_answers_at_the_address),
    ),
    "the host is not shown where nobody answers": (
        command,
        "read_host",
        failing_before_the_host,
        run_here(running.test_no_broker_answers_at_the_address),
    ),
    "it makes the ledger's directory": (
        command,
        "read_host",
        writing,
        lambda bench, flooded: running.test_doctor_makes_no_directory(bench.command, flooded, bench.scratch),
    ),
    "settings make the ledger's directory": (
        ledger_places,
        "unusable",
        ledger_places.problem,
        lambda bench, flooded: running.test_doctor_makes_no_directory(bench.command, flooded, bench.scratch),
    ),
    "the static rule without idempotence": (
        checks,
        "CHECKS",
        instead(checks.expiration_below_timeout, at_all_costs),
        once(judging.test_the_static_rule_needs_a_configuration_with_idempotence),
    ),
    "the static rule for one broker": (
        checks,
        "CHECKS",
        instead(checks.expiration_below_timeout, of_the_first_broker),
        lambda bench, _: running.test_time_outs_against_each_broker(bench.command, bench.scratch),
    ),
    "brokers may differ": left_out(checks.expiration_differs, judging.test_brokers_that_differ),
    "the coordinators' topics are counted": (
        cluster,
        "_OF_KAFKA",
        frozenset(),
        run_here(running.test_topics_of_kafka_itself_are_left_out),
    ),
    "it forgets after a day everywhere": (
        cluster,
        "expirations",
        lambda brokers: {broker.number: census.DAY for broker in brokers},
        run_here(running.test_ids_that_are_about_to_expire),
    ),
    "the rate of the ledger is the default": (
        host.LedgerReading,
        "wait",
        lambda self, rate: 0.0 if self.used < 0 else max(0.0, self.used - 3564.0),
        lambda bench, _: here.test_the_hour_is_used_up_by_the_rate_that_is_given(bench.place, bench.guard),
    ),
    "a line is shown with --no-paths": (
        host._Lines,
        "line",
        lambda self, site: str(site),
        lambda bench, _: running.test_a_host_that_has_used_up_its_hour(bench.command, bench.ledger),
    ),
    "a directory is shown with --no-paths": (
        host._Lines,
        "text",
        lambda self, sentence, place: sentence,
        lambda bench, _: here.test_without_paths_lines_are_numbered(bench.place, bench.guard),
    ),
    "a replica may be missing": left_out(
        checks.replicas_in_sync,
        judging.test_a_replica_that_is_missing_matters_at_the_minimum,
        judging.TWO,
        2,
        AT_MINIMUM,
    ),
    "a throttle may be left over": left_out(
        checks.throttle_left_over, judging.test_a_throttle_that_no_move_needs_is_left_over, "*", 1e6, LEFT_OVER
    ),
    "a move is not told": left_out(checks.replicas_move, judging.test_a_move_is_told_once_for_each_topic),
    "any throttle is left over": (
        checks,
        "left_over",
        lambda facts, brokers, moving: real_left_over(facts, brokers, ()),
        once(judging.test_a_throttle_that_no_move_needs_is_left_over, "*", 1e6, LEFT_OVER),
    ),
    "a damaged ledger is well": left_out(checks.ledger_not_kept, judging.test_a_ledger_that_is_not_kept),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str, flooded: FakeCluster, tmp_path: Path) -> None:
    """By the test of the rule that it breaks, which passes without it."""
    owner, name, broken, test = BUGS[bug]
    for scratch in (tmp_path / "well", tmp_path / "broken"):
        scratch.mkdir()
    test(Bench(tmp_path / "well"), flooded)
    with mock.patch.object(owner, name, broken), pytest.raises((AssertionError, ValueError)):
        test(Bench(tmp_path / "broken"), flooded)
