"""Plan and status as documents. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil
from types import MappingProxyType
from typing import Any

from safeproducer.cli.common.finding import Finding, Severity, left_over
from safeproducer.cli.replication.cluster import Cluster
from safeproducer.policy import replication
from safeproducer.policy.replication import Facts, Moves, Side, ThrottledReplicas, rate_text
from safeproducer.policy.types import TopicPartition

Document = dict[str, Any]
Target = dict[TopicPartition, tuple[int, ...]]
"""Partition -> the replicas that a person wants, the preferred leader first."""
Rates = Mapping[tuple[int, Side], float]


def plan(
    cluster: Cluster, wanted: Moves, rate: int | None, within: float | None, kept: Rates = MappingProxyType({})
) -> Document:
    """Lists and rate of these moves, and how long they take. Entries that a topic's list has already stay and count.

    `kept`: brokers' rates that stay as they are.
    """
    facts, lists = cluster.facts, replication.throttled(wanted)
    known = {tp: facts.known[tp]._replace(replicas=sorted(move[0] | move[1])) for tp, move in wanted.items()}
    old = {key: facts.lists.get(key, ThrottledReplicas()) for key in lists}
    both = {key: ThrottledReplicas(one.entries | old[key].entries, old[key].every) for key, one in lists.items()}
    facts = replace(facts, known={**facts.known, **known}, lists={**facts.lists, **both}, rates={})
    rows = _rows(cluster, facts, wanted)
    if within is not None:
        # But for two seconds an estimate is proportional to 1 / room. One that leaves no time is not kept.
        needs = [(row["needed"], replication.estimate(row["bytes"], 1.0, row["partitions"])) for row in rows]
        rate = ceil(max((need + (one[1] - 2) / max(within - 2, 0.1) for need, one in needs if one), default=0.0)) + 1
    if rate is not None:
        brokers = {broker for sources, destinations in wanted.values() for broker in sources | destinations}
        facts = replace(facts, rates={(broker, side): float(rate) for broker in brokers for side in Side} | dict(kept))
        rows = _rows(cluster, facts, wanted)
    produced, many, count = max(cluster.produced().values()), len(cluster.brokers), max(1, len(facts.known))
    time = replication.move_time(len(wanted), count, sum(cluster.sizes.values()) / many, many, rate or 0, produced)
    # A rate must be above IN, which is too low wherever replicas in sync are listed (rule 3).
    kip = {"move_ratio": len(wanted) / count, "move_time": time, "in": produced}
    document = {"rate": rate, "ends_above": max((row["needed"] for row in rows), default=0.0), "kip_73": kip}
    document |= {**_ends(rows), "findings": list(_never(rows))}
    return {**document, "moves": _moves(cluster, wanted), "lists": _lists(lists), "sides": rows}


def status(cluster: Cluster, target: Target) -> Document:
    """Moves that run, throttles, and findings. SumReplicaLag is in bytes; PartitionBytesInRate is `bytes_in`."""
    facts, rows = cluster.facts, _rows(cluster, cluster.facts, cluster.moves)
    set_rates = {key: rate for key, rate in sorted(facts.rates.items()) if rate is not None}
    lag, produced = dict.fromkeys(sorted(cluster.brokers), 0), cluster.produced()
    for tp, one in facts.known.items():
        lag |= {broker: lag[broker] + cluster.behind(tp, broker) for broker in one.replicas if broker in lag}
    left = left_over(facts, cluster.brokers, {topic for topic, _ in cluster.moves})
    return {
        **_ends(rows),
        "findings": [*_never(rows), *left, *_not_moved(cluster, target)],
        "moves": _moves(cluster, cluster.moves),
        "sides": rows,
        "rates": [{"broker": one, "config": side("rate"), "rate": rate} for (one, side), rate in set_rates.items()],
        "lists": _lists({key: one for key, one in facts.lists.items() if str(one)}),
        "brokers": [{"broker": one, "sum_replica_lag": of, "bytes_in": produced[one]} for one, of in lag.items()],
        "partitions": [{"topic": tp[0], "partition": tp[1], "bytes_in": of} for tp, of in facts.bytes_in.items() if of],
    }


def _rows(cluster: Cluster, facts: Facts, wanted: Moves) -> list[Document]:
    """A row for each broker and side that sends or receives."""
    left: dict[tuple[int, Side], dict[TopicPartition, int]] = {}
    for tp, (_, destinations) in wanted.items():
        for broker in destinations:
            left.setdefault((broker, Side.FOLLOWER), {})[tp] = size = cluster.behind(tp, broker)
            if (leader := facts.known[tp].leader) is not None:
                sent = left.setdefault((leader, Side.LEADER), {})
                sent[tp] = sent.get(tp, 0) + size
    rows = []
    for (broker, side), parts in sorted(left.items()):
        limited = any(facts.limited(side, tp, broker) for tp in parts)
        rate, size = facts.rates.get((broker, side)) if limited else None, sum(parts.values())
        room = facts.room(side, broker, rate or 0.0)
        row = {"broker": broker, "side": side.value, "partitions": len(parts), "bytes": size, "needed": room.needed}
        seconds = None if rate is None else replication.estimate(size, room.free, len(parts))
        rows.append({**row, "rate": rate, "free": None if rate is None else room.free, "seconds": seconds})
    return rows


def _ends(rows: Sequence[Document]) -> Document:
    """The slowest side decides. No seconds: nothing is limited, or it never ends."""
    never = any(row["free"] is not None and row["free"] <= 0 for row in rows)
    spans = [row["seconds"] for row in rows if row["seconds"] is not None and not never]
    return {"never_ends": never, "seconds": [max(ends) for ends in zip(*spans, strict=True)] or None}


def _moves(cluster: Cluster, wanted: Moves) -> list[Document]:
    found, bytes_in = [], cluster.facts.bytes_in
    for tp, (sources, destinations) in sorted(wanted.items()):
        size, rate = sum(cluster.behind(tp, one) for one in destinations), bytes_in.get(tp, 0.0)
        brokers = {"sources": sorted(sources), "destinations": sorted(destinations)}
        found.append({"topic": tp[0], "partition": tp[1], **brokers, "bytes": size, "bytes_in": rate})
    return found


def _lists(lists: Mapping[tuple[str, Side], ThrottledReplicas]) -> list[Document]:
    return [{"topic": one[0], "config": one[1]("replicas"), "value": str(lists[one])} for one in sorted(lists)]


def _never(rows: Sequence[Document]) -> Iterator[Finding]:
    for row in rows:
        if row["free"] is not None and row["free"] <= 0:
            rate, needed = rate_text(row["rate"]), rate_text(row["needed"])
            config, broker = Side(row["side"])("rate"), row["broker"]
            text = f"Moves never end: {config} of broker {broker} is {rate}, and replicas in sync need {needed} of it."
            cure = f"Raise it above {rate_text(max(row['rate'], row['needed']))}."
            yield Finding(Severity.ERROR, "replication-never-ends", text, cure, broker=broker)


def _not_moved(cluster: Cluster, target: Target) -> Iterator[Finding]:
    for tp, wanted in target.items():
        replicas = tuple(cluster.facts.known[tp].replicas)
        if replicas != wanted and tp not in cluster.moves:
            text = f"{tp[0]} [{tp[1]}] has replicas {replicas}, not {wanted}, and does not move."
            yield Finding(Severity.WARNING, "replication-not-moved", text, "Start its move.", *tp)
