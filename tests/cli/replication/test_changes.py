"""``throttle`` and ``clear``: own entries come and go, and what is somebody else's stays."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeproducer.cli.common.finding import facts_of
from safeproducer.cli.common.stop import Failure
from safeproducer.cli.replication import changes, command
from safeproducer.cli.replication.changes import shows, to_clear, to_throttle
from safeproducer.cli.replication.cluster import Cluster
from safeproducer.kafka.admin import Change, Configs
from safeproducer.policy.replication import Side, ThrottledReplicas
from tests.cli.in_process import CommandHere
from tests.cli.replication.test_report import BROKERS, KNOWN, SIZES, wanted
from tests.cli.replication.test_report import cluster as made

LEADERS, FOLLOWERS = (side("replicas") for side in Side)
RATES = [side("rate") for side in Side]
MOVE = {("a", 0): (frozenset({1, 2}), frozenset({3}))}


class Kafka:
    """The configs of three brokers and two topics, as IncrementalAlterConfigs changes them."""

    def __init__(self) -> None:
        self.configs: dict[int | str, dict[str, str]] = {of: {} for of in (*BROKERS, *"ab")}
        self.refuses: dict[int | str, tuple[str, str]] = {}
        self.deaf = False
        self.late = 0
        self.calls: list[bool] = []
        self.moves: Any = {}

    def change(self, wanted: Sequence[Change], timeout: float, *, only_check: bool) -> dict[int | str, Any]:
        self.calls.append(only_check)
        for of, config, operation, value in () if only_check or self.deaf else wanted:
            entries = [one for one in self.configs[of].get(config, "").split(",") if one]
            if operation == "DELETE":
                del self.configs[of][config]
            elif operation == "SET":
                self.configs[of][config] = value or ""
            else:
                own = (value or "").split(",")
                assert operation == "SUBTRACT" or "*" not in entries  # Kafka refuses the result
                others = [one for one in entries if one not in own]
                self.configs[of][config] = ",".join(others + own * (operation == "APPEND"))
        return {one.of: self.refuses.get(one.of) for one in wanted}

    def topic_configs(self, names: Any, timeout: float = 0) -> dict[Any, Configs]:
        return {
            of: Configs({name: str(text).replace(" ", "") for name, text in self.configs[of].items()}) for of in names
        }

    configs_of = topic_configs

    def look(self) -> Cluster:
        facts = facts_of(KNOWN, self.configs_of(BROKERS), self.configs_of("ab"))
        return Cluster(replace(facts, bytes_in=dict.fromkeys(KNOWN, 0.0)), BROKERS, self.moves, SIZES)


class Writer:
    """As ConfigWriter."""

    def __init__(self, kafka: Kafka) -> None:
        self.change = kafka.change
        self.kafka = kafka

    def topic_configs(self, names: Any, timeout: float) -> dict[Any, Configs]:
        """Not yet what was changed, the first times."""
        self.kafka.late -= 1
        return self.kafka.topic_configs(names) if self.kafka.late < 0 else {of: Configs({}) for of in names}

    configs = topic_configs


@pytest.fixture
def kafka() -> Iterator[Kafka]:
    """In place of a cluster."""
    one = Kafka()
    with (
        mock.patch.object(command, "read_cluster", side_effect=lambda *_: one.look()),
        mock.patch.object(changes, "opened", side_effect=lambda *_: Writer(one)),
    ):
        yield one


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """The command as a script runs it: its exit status and its document."""
    file = tmp_path / "move.json"
    file.write_text(json.dumps({"partitions": [{"topic": "a", "partition": 0, "replicas": [1, 3]}]}))

    def go(action: str, *arguments: str, file: Path | None = file) -> tuple[int, dict[str, Any]]:
        named = ("--bootstrap-servers", "127.0.0.1:1", "--connect-timeout", "0.2", "--json")
        moves = ("--reassignment", str(file)) if file is not None else ()
        done = CommandHere(tmp_path).run("replication", action, *named, *moves, *arguments)
        assert b"Traceback" not in done.stderr
        found = json.loads(done.stdout)
        assert found["exit_code"] == done.returncode
        return done.returncode, found

    return go


def codes(found: dict[str, Any]) -> list[str]:
    return [one["code"] for one in found["findings"]]


def test_a_throttle_is_set_and_cleared(kafka: Kafka, run: Any) -> None:
    """Lists and rates of its brokers, which show it before the command ends; while the move runs it stays."""
    status, found = run("throttle", "--rate", "5MB", "--yes")
    assert (status, codes(found), found["seconds"] is not None) == (0, [], True)
    assert kafka.configs["a"] == {LEADERS: "0:1,0:2", FOLLOWERS: "0:3"}
    assert all(kafka.configs[broker] == dict.fromkeys(RATES, "5000000") for broker in BROKERS)
    assert found["changes"][0] == {
        "topic": "a",
        "broker": None,
        "config": FOLLOWERS,
        "operation": "append",
        "value": "0:3",
        "before": "",
    }
    assert run("throttle", "--rate", "5MB", "--yes")[1]["changes"] == []
    kafka.moves = MOVE
    assert run("clear", "--yes", file=None)[1]["changes"] == []
    kafka.moves = {}
    status, found = run("clear", "--yes", file=None)
    assert (status, codes(found)) == (0, [])
    assert found["changes"][-1] == {
        "topic": None,
        "broker": 3,
        "config": RATES[0],
        "operation": "delete",
        "value": None,
        "before": 5e6,
    }
    assert kafka.configs == {1: {}, 2: {}, 3: {}, "a": {LEADERS: "", FOLLOWERS: ""}, "b": {}}
    assert run("clear", "--yes", file=None)[1]["changes"] == []


def test_a_rate_that_somebody_set_is_kept(kafka: Kafka, run: Any) -> None:
    """Until --replace; the time is by what holds then."""
    kafka.configs[3][RATES[1]] = "1000000"
    status, found = run("throttle", "--rate", "5MB", "--yes")
    assert (status, codes(found), found["findings"][0]["broker"]) == (1, ["replication-rate-kept"], 3)
    assert kafka.configs[3] == {RATES[1]: "1000000", RATES[0]: "5000000"}
    assert found["seconds"][0] > 90
    status, found = run("throttle", "--rate", "5MB", "--yes", "--replace")
    assert (status, len(found["changes"]), kafka.configs[3][RATES[1]]) == (0, 1, "5000000")
    assert found["seconds"][0] < 20


def test_clear_with_a_file_takes_only_what_belongs_to_it(kafka: Kafka, run: Any) -> None:
    """Somebody's throttle without a move stays, and the rates of its brokers; without the file it goes."""
    kafka.configs["a"] = {LEADERS: "0:1,0:2,1:2", FOLLOWERS: "0:3"}
    kafka.configs["b"] = {FOLLOWERS: "*"}
    for broker in BROKERS:
        kafka.configs[broker] = dict.fromkeys(RATES, "7000000")
    assert run("clear", "--yes")[0] == 0
    assert (kafka.configs["a"], kafka.configs["b"]) == ({LEADERS: "1:2", FOLLOWERS: ""}, {FOLLOWERS: "*"})
    assert [bool(kafka.configs[broker]) for broker in (1, 2, 3)] == [True, True, False]
    assert run("clear", "--yes", file=None)[0] == 0
    assert kafka.configs["b"] == {FOLLOWERS: ""}
    assert not any(kafka.configs[broker] for broker in BROKERS)


@pytest.mark.parametrize(
    ("of", "code", "words"),
    [
        ("a", "TOPIC_AUTHORIZATION_FAILED", "the user needs ALTER_CONFIGS on it. Nothing was changed."),
        (2, "CLUSTER_AUTHORIZATION_FAILED", "the user needs ALTER_CONFIGS on the cluster. Nothing was changed."),
        (2, "POLICY_VIOLATION", "A policy of the cluster forbids it"),
    ],
)
def test_a_change_that_is_refused_changes_nothing(kafka: Kafka, run: Any, of: int | str, code: str, words: str) -> None:
    """All of them are checked before the first one is made."""
    kafka.refuses[of] = (code, "no")
    for action, more in (("throttle", ("--rate", "5MB")), ("clear", ())):
        if action == "clear":
            kafka.configs["a"] = {LEADERS: "0:2"}
            kafka.configs[2] = {RATES[0]: "1"}
        before = json.dumps([*kafka.configs.values()])
        status, found = run(action, "--yes", *more)
        assert (status, words in found["error"]["message"]) == (2, True)
        assert json.dumps([*kafka.configs.values()]) == before
    assert kafka.calls == [True, True]


def test_a_change_that_is_not_shown_is_told(kafka: Kafka, run: Any) -> None:
    """It is read back until the time is over."""
    kafka.late = 2
    assert run("throttle", "--rate", "6MB", "--yes") == (0, mock.ANY)
    kafka.deaf = True
    status, found = run("throttle", "--rate", "5MB", "--yes", "--replace")
    assert (status, codes(found)) == (1, ["replication-change-not-seen"] * 6)


def test_a_move_that_never_ends_is_told(kafka: Kafka, run: Any) -> None:
    """The throttle is set all the same: its person has confirmed it."""
    slow = kafka.look()
    slow = replace(slow, facts=replace(slow.facts, bytes_in={("a", 0): 9e6}))
    with mock.patch.object(command, "read_cluster", return_value=slow):
        status, found = run("throttle", "--rate", "5MB", "--yes")
    assert (status, codes(found)[0], kafka.calls) == (1, "replication-never-ends", [True, False])


def test_changes_are_confirmed(kafka: Kafka, tmp_path: Path) -> None:
    """At a terminal by yes or y, after they are shown, also with --quiet; without one by --yes alone."""
    arguments = ("replication", "clear", "--bootstrap-servers", "127.0.0.1:1", "--quiet")
    kafka.configs["a"] = {LEADERS: "0:1"}
    for answer, status, left in (("", 2, "0:1"), ("no\n", 2, "0:1"), ("yes\n", 0, "")):
        stdin = io.StringIO(answer)
        with mock.patch("sys.stdin", stdin), mock.patch.object(stdin, "isatty", return_value=True):
            done = CommandHere(tmp_path).run(*arguments)
        assert (done.returncode, kafka.configs["a"][LEADERS]) == (status, left), done.stderr
        assert b"0:1" in done.stdout
    kafka.configs["a"] = {LEADERS: "0:1"}
    for more in ((), ("--json",)):
        done = CommandHere(tmp_path).run(*arguments, *more)
        assert (done.returncode, b"clear needs --yes" in done.stderr) == (2, True)
    assert CommandHere(tmp_path).run(*arguments, "--yes").returncode == 0


def test_a_small_rate_is_warned_of(kafka: Kafka, tmp_path: Path, run: Any) -> None:
    """It is set."""
    run("throttle", "--rate", "900kB", "--yes")
    assert kafka.configs[3][RATES[1]] == "900000"
    named = ("--bootstrap-servers", "127.0.0.1:1", "--reassignment", str(tmp_path / "move.json"), "--yes")
    for rate, warned in (("999999", True), ("1MB", False)):
        done = CommandHere(tmp_path).run("replication", "throttle", *named, "--rate", rate, "--replace")
        assert (b"is little" in done.stderr) is warned


def test_a_list_that_cannot_be_read_is_left_alone(kafka: Kafka, run: Any) -> None:
    """One sentence, or a finding; rates that it may need stay."""
    kafka.configs["a"] = {FOLLOWERS: "0-3"}
    kafka.configs |= {broker: {RATES[0]: "5"} for broker in (2, 3)}
    status, found = run("throttle", "--rate", "5MB", "--yes")
    assert (status, "write partition:broker,... or *" in found["error"]["message"]) == (2, True)
    status, found = run("clear", "--yes", file=None)
    assert (status, codes(found)) == (1, ["replication-list-unreadable"])
    assert [one["broker"] for one in found["changes"]] == [3]


@pytest.mark.parametrize("text", ["0:1, 0:2", "00:1,0:02", "0:1,0:1,0:2", " 0:1"])
def test_clear_takes_away_what_is_written_in_another_form(kafka: Kafka, run: Any, text: str) -> None:
    """A broker compares texts with spaces, and shows them without."""
    kafka.configs["a"] = {LEADERS: text}
    status, found = run("clear", "--yes", file=None)
    assert (status, codes(found)) == (0, [])
    assert kafka.configs["a"][LEADERS] == ""


def test_moves_that_are_not_seen_keep_their_throttle(kafka: Kafka) -> None:
    """A user without DESCRIBE on a topic cannot tell which rates it needs."""
    with pytest.raises(Failure, match="hidden moves, and the user may not DESCRIBE it"):
        to_clear(replace(made(), unseen=frozenset({"hidden"})), {})


def test_partitions_that_stay_get_no_throttle(kafka: Kafka, tmp_path: Path, run: Any) -> None:
    """Their replicas are in place."""
    file = tmp_path / "stay.json"
    file.write_text(json.dumps({"partitions": [{"topic": "a", "partition": 0, "replicas": [2, 1]}]}))
    status, found = run("throttle", "--rate", "5MB", "--yes", file=file)
    assert (status, found["changes"]) == (0, [])


ENTRIES = st.frozensets(st.tuples(st.integers(0, 1), st.integers(1, 3)), max_size=4)
LISTS = st.one_of(st.just(ThrottledReplicas(every=True)), st.builds(ThrottledReplicas, ENTRIES))


@given(
    st.dictionaries(st.tuples(st.sampled_from("ab"), st.sampled_from(Side)), LISTS),
    st.dictionaries(st.tuples(st.integers(1, 3), st.sampled_from(Side)), st.just(7e6)),
    st.dictionaries(st.sampled_from(list(KNOWN)), st.sampled_from([MOVE["a", 0], (frozenset({1}),) * 2]), max_size=2),
)
def test_what_belongs_to_a_move_stays_and_all_else_goes(lists: Any, rates: Any, moving: Any) -> None:
    """By the configs as Kafka has them, before and after `clear`; a second one finds nothing."""
    kafka = Kafka()
    kafka.moves = moving
    for of, side in lists:
        kafka.configs[of][side("replicas")] = str(lists[of, side])
    for of, side in rates:
        kafka.configs[of][side("rate")] = "7000000"
    found = to_clear(kafka.look(), {})
    kafka.change(found, 0, only_check=False)
    after = kafka.look().facts
    assert all(shows(after, one) for one in found)
    for (topic, side), one in lists.items():
        left, topics = after.lists[topic, side], {tp[0] for tp in moving}
        assert left.every is (one.every and topic in topics)
        assert left.entries == {entry for entry in one.entries if (topic, entry[0]) in moving}
    listed = {broker for one in after.lists.values() for _, broker in one.entries}
    whole = {topic for (topic, _), one in after.lists.items() if one.every}
    needed = listed.union(*(side for move in moving.values() for side in move))
    needed = needed.union(*(one.replicas for (topic, _), one in KNOWN.items() if topic in whole))
    assert {key for key, rate in after.rates.items() if rate is not None} == {key for key in rates if key[0] in needed}
    assert to_clear(kafka.look(), {}) == []


@given(LISTS, LISTS, st.booleans())
def test_a_throttle_and_clear_leave_others_entries(leaders: Any, followers: Any, replaces: bool) -> None:
    """Whatever is listed; entries that both need stay while the other one's move runs."""
    kafka = Kafka()
    kafka.configs["a"] = {LEADERS: str(leaders), FOLLOWERS: str(followers)}
    foreign = {("a", 1): (frozenset({1, 2}), frozenset({3}))}
    kafka.moves = foreign
    look = kafka.look()
    kafka.change(to_throttle(look, wanted(look, ("a", 0)), 5_000_000, replaces)[0], 0, only_check=False)
    facts = kafka.look().facts
    assert facts.limited(Side.LEADER, ("a", 0), 1)
    assert facts.limited(Side.FOLLOWER, ("a", 0), 3)
    kafka.change(to_clear(kafka.look(), {}), 0, only_check=False)
    facts = kafka.look().facts
    for side, one in zip(Side, (leaders, followers), strict=True):
        assert facts.lists["a", side] == replace(one, entries={entry for entry in one.entries if entry[0] == 1})
