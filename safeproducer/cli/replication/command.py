"""``safeproducer replication``: plan, set and remove the throttle of a move, and see what moves and throttles do."""

import argparse
import json
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from safeproducer.cli.common.finding import draw_findings, exit_code, lists_unreadable, span
from safeproducer.cli.common.screen import Screen
from safeproducer.cli.common.settings import add_settings_arguments, duration, rate, read_settings, seconds
from safeproducer.cli.common.stop import Failure
from safeproducer.cli.replication.changes import kept_findings, make, rows, to_clear, to_throttle
from safeproducer.cli.replication.cluster import Cluster, read_cluster
from safeproducer.cli.replication.report import Document, Target, plan, status
from safeproducer.kafka.admin import Change
from safeproducer.policy.replication import ANSWER, WINDOW, first_answers, moves, rate_text
from safeproducer.policy.types import TopicPartition

PARSER = {
    "help": "plan and set the throttle of a move of replicas, and find throttles that are left over",
    "description": "Replication quotas (KIP-73): plan, set or remove a throttle, or show moves and throttles.",
    "epilog": """\
plan and status change nothing. The user needs DESCRIBE and DESCRIBE_CONFIGS on the topics and on the cluster.

throttle and clear show their changes, ask, make them and read them back. The user needs ALTER_CONFIGS, too. throttle
limits the moves of the file, and starts none. clear removes what belongs to no move that runs.

exit status:
  0    in order
  1    something to do: a move never ends, or a throttle is left over
  2    could not ask, and nothing was changed: wrong usage, no connection, a right is missing, not confirmed
  130  stopped by Ctrl-C

examples:
  safeproducer replication plan --bootstrap-servers localhost:9092 --reassignment move.json --within 2h
  safeproducer replication plan --ongoing --rate 50MB --config-file kafka.properties
  safeproducer replication status --bootstrap-servers localhost:9092 --json
  safeproducer replication throttle --rate 50MB --reassignment move.json --config-file kafka.properties
  safeproducer replication clear --config-file kafka.properties --yes
""",
}
_TAKES = {
    "plan": {"reassignment", "ongoing", "rate", "within"},
    "status": {"reassignment"},
    "throttle": {"reassignment", "rate", "replace", "yes"},
    "clear": {"reassignment", "yes"},
}
"""The options that each action takes."""
_SMALL = 1_000_000
"""Bytes/s below which a rate is warned of."""
_SHOWN: dict[str, Callable[..., str]] = {
    **dict.fromkeys(("rate", "needed", "free", "bytes_in"), rate_text),
    **dict.fromkeys(("bytes", "sum_replica_lag"), lambda size: f"{size / 1e6:,.1f} MB"),
    "seconds": lambda ends: " to ".join(map(span, ends)),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("action", choices=tuple(_TAKES), help="what to do")
    add("--reassignment", metavar="FILE", help="moves as kafka-reassign-partitions takes them")
    add("--ongoing", action="store_true", help="plan for the moves that run")
    add("--rate", metavar="R", type=rate, help="bytes per second of each broker and side, like 50MB")
    add("--within", metavar="T", type=duration, help="find the rate with which the moves end in time, like 2h")
    add("--replace", action="store_true", help="throttle: set rates that somebody has set, too")
    add("--yes", action="store_true", help="throttle, clear: make the changes without a question")
    add("--measure", metavar="S", type=seconds, default=5.0, help="measure bytes in for S seconds (5)")
    add("--json", action="store_true", help="write the result as JSON")
    add("--quiet", action="store_true", help="no tables; findings are still shown")
    add_settings_arguments(parser, servers_help="brokers to start from")


def run(args: argparse.Namespace, screen: Screen) -> int:
    screen.require_rich()
    _check_usage(args, screen)
    target = read_reassignment(args.reassignment) if args.reassignment else {}
    settings = read_settings(args, screen, transactions=True)
    if "bootstrap.servers" not in settings:
        raise Failure("The command needs brokers: give --bootstrap-servers HOST:PORT, or a --config-file.")
    settings = {"client.id": "safeproducer-replication", **settings}
    measure = 0.0 if args.action == "clear" else args.measure
    cluster = read_cluster(settings, screen, args.connect_timeout, measure)
    for tp, replicas in target.items():
        if tp not in cluster.facts.known:
            raise Failure(f"{tp[0]} [{tp[1]}] does not exist, or the user may not DESCRIBE it.", code="unknown")
        if unknown := set(replicas) - cluster.brokers:
            raise Failure(f"Broker {min(unknown)} of {tp[0]} [{tp[1]}] is not in the cluster.", code="unknown")
    document, changes = _document(args, cluster, target)
    if (given := document.get("rate")) is not None and given < _SMALL:
        took = first_answers(1, ANSWER, given, inf)
        screen.warn(f"{rate_text(given)} is little: the first answers take {took:.0f} s of a window of {WINDOW:.0f} s.")
    if not screen.json_output:
        _draw(args.action, document, screen)
    if changes:
        if not args.yes and not screen.confirm("Make these changes?"):
            raise Failure("Nothing was changed.", code="not-confirmed")
        unseen = make(changes, settings, screen, args.connect_timeout)
        document["findings"] += unseen
        if not screen.json_output:
            draw_findings(screen, unseen, failed=True)
            screen.result("The changes were made.")
    code = exit_code(document["findings"])
    if screen.json_output:
        told = {**document, "findings": [finding.document() for finding in document["findings"]]}
        screen.result_json({"command": "replication", "action": args.action, "exit_code": code, **told})
    return code


def _check_usage(args: argparse.Namespace, screen: Screen) -> None:
    action, takes = args.action, _TAKES[args.action]
    given = {name for name in set().union(*_TAKES.values()) if getattr(args, name)}
    if wrong := sorted(given - takes):
        raise Failure(f"--{wrong[0]} does not belong to {action}: remove it.")
    if action == "plan" and len(given & {"reassignment", "ongoing"}) != 1:
        raise Failure("A plan is for --reassignment FILE or for --ongoing: give one of them.")
    if {"rate", "within"} <= given:
        raise Failure("--rate and --within exclude each other: give one of --rate and --within.")
    if action == "throttle" and not {"reassignment", "rate"} <= given:
        raise Failure("A throttle needs --rate R and --reassignment FILE: give both.")
    if "yes" in takes - given and not screen.can_ask():
        raise Failure(f"Nothing was changed: without a terminal, and with --json, {action} needs --yes.")


def _document(args: argparse.Namespace, cluster: Cluster, target: Target) -> tuple[Document, list[Change]]:
    """The report of an action, and the changes that it is about to make."""
    facts = cluster.facts
    if args.action == "status":
        return status(cluster, target), []
    if args.action == "clear":
        changes = to_clear(cluster, target)
        return {"findings": list(lists_unreadable(facts)), "changes": rows(facts, changes)}, changes
    adding = {tp: move[1] for tp, move in cluster.moves.items() if args.ongoing or tp in target}
    wanted = moves({tp: one.replicas for tp, one in facts.known.items()}, adding, target)
    wanted = {tp: move for tp, move in wanted.items() if move[1]}
    if args.action == "plan":
        return plan(cluster, wanted, args.rate, args.within), []
    changes, kept = to_throttle(cluster, wanted, args.rate, args.replace)
    document = plan(cluster, wanted, args.rate, None, kept)
    document["findings"] += kept_findings(kept)
    return {**document, "changes": rows(facts, changes)}, changes


def read_reassignment(path: str) -> Target:
    """The file that kafka-reassign-partitions takes: partition -> its replicas, the preferred leader first."""
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
    except (OSError, ValueError, RecursionError) as error:
        why = getattr(error, "strerror", None) or "it is no JSON"
        raise Failure(
            f"--reassignment {path} cannot be read ({why}): give a file of kafka-reassign-partitions."
        ) from None
    entries = document.get("partitions") if isinstance(document, dict) else None
    target = dict(_entry(one, path) for one in entries) if isinstance(entries, list) else {}
    if not target or len(target) < len(entries or ()):
        raise Failure(f'--reassignment {path} must have each partition once, in a list "partitions".')
    return target


def _entry(entry: Any, path: str) -> tuple[TopicPartition, tuple[int, ...]]:
    match entry:
        case {"topic": str(topic), "partition": partition, "replicas": [_, *_] as brokers} if all(
            type(one) is int and one >= 0 for one in (partition, *brokers)
        ) and len(set(brokers)) == len(brokers):
            return (topic, partition), tuple(brokers)
    form = '{"topic": NAME, "partition": NUMBER, "replicas": [different brokers]}'
    raise Failure(f"--reassignment {path}: {json.dumps(entry)[:80]} is not {form}.")


def _draw(action: str, document: Document, screen: Screen) -> None:
    for title in ("moves", "lists", "rates", "sides", "brokers"):
        if not screen.quiet:
            _draw_table(title, document.get(title), screen)
    if action in {"plan", "throttle"}:
        text = f"Moves end with any rate above {rate_text(document['ends_above'])}."
        if document["rate"] is not None:
            ends = "never" if document["never_ends"] else _SHOWN["seconds"](document["seconds"] or [0])
            text = f"With {rate_text(document['rate'])} they take: {ends}. {text}"
        screen.result(text)
    draw_findings(screen, document["findings"], failed=action != "status")
    _draw_table("changes", document.get("changes"), screen, most=None)
    if document.get("changes") == []:
        screen.result("There is nothing to change.")


def _draw_table(title: str, rows: Sequence[Document] | None, screen: Screen, most: int | None = 20) -> None:
    if rows:
        texts = [["" if of is None else str(_SHOWN.get(name, str)(of)) for name, of in row.items()] for row in rows]
        screen.table(title, [name.replace("_", " ") for name in rows[0]], texts, most)
