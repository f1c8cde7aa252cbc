"""What the report takes from the JSON of each benchmark."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

HIGHER, LOWER = "higher", "lower"


@dataclass(frozen=True)
class Figure:
    """A figure of SafeProducer divided by the peer's, or a number that was counted (`peer` is empty).

    `name` is unique in the report, and documents name it. `low` and `high` are quartiles; None with one measurement.
    """

    name: str
    label: str
    peer: str
    value: float
    better: str
    low: float | None = None
    high: float | None = None

    @property
    def text(self) -> str:
        """As documents say it."""
        if not self.peer:
            return f"{self.value:g}"
        if self.value < 0.1:
            return f"{self.value:.2g}"
        return f"{self.value:.{0 if self.value >= 10 else 1 if self.value >= 2 else 2}f}"

    @property
    def peer_is_better(self) -> bool:
        """Not within the quartiles, and not by less than the figure shows."""
        if self.better == HIGHER:
            return bool(self.peer) and round(max(self.value, self.high or 0), 2) < 1
        return bool(self.peer) and round(min(self.value, self.value if self.low is None else self.low), 2) > 1


def slug(text: str) -> str:
    """A name that can be linked to."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def figure(
    case: str, label: str, peer: str, value: float | Mapping[str, float], better: str, short: str = ""
) -> Figure:
    """Of a number, or of a spread; `short` makes the name where the label is long."""
    name = slug(f"{case} {short or label}")
    if isinstance(value, Mapping):
        return Figure(name, label, peer, value["median"], better, value["low"], value["high"])
    return Figure(name, label, peer, value, better)


STOCK = "confluent_kafka"


def near(told: dict[str, Any]) -> Iterator[Figure]:
    """Each call form, beside the broker."""
    for case in told["cases"]:
        where = f"{case['value_size']} B, {case['partitions']} partition{'s'[: case['partitions'] - 1]}"
        for row in case["rows"]:
            if not row["title"].startswith("stock"):
                title = row["title"].replace("stock", STOCK)
                short = f"{title.removeprefix('produce, ')} {case['value_size']} B {case['partitions']}"
                speed = f"{title}, {where}: records a second"
                yield figure("near", speed, STOCK, row["throughput"], HIGHER, f"{short} speed")
                yield figure("near", f"{title}, {where}: CPU", STOCK, row["cpu"], LOWER, f"{short} CPU")


def far(told: dict[str, Any]) -> Iterator[Figure]:
    """Records a second of each number of lanes, on a long link; `budget 5` there is five lanes."""
    for case in told["cases"]:
        title = re.sub(r"saturated, ([^,]+).*", r"\1", case["title"])
        for peer, speeds in ((STOCK, case["speed"]), ("Java", case["to_java"])):
            for side, speed in speeds.items():
                if side not in ("stock", "java"):
                    lanes = re.sub(r"budget (\d+)", r"\1 lanes", side)
                    short = f"{lanes} {case['rtt']:g} ms {title} {peer}".removesuffix(STOCK)
                    label = f"{lanes} beside {peer}: {title}, round trip {case['rtt']:g} ms"
                    yield figure("far", label, peer, speed, HIGHER, short)


def memory(told: dict[str, Any]) -> Iterator[Figure]:
    """Of a record that waits."""
    for row in told["rows"]:
        what = f"{row['value_size']} B, {row['callbacks']}"
        short = what.removesuffix(", one callback for all")
        yield figure("memory", f"memory of a record of {what}", STOCK, row["ratio"], LOWER, short)


def first(told: dict[str, Any]) -> Iterator[Figure]:
    """The first acknowledgement of a new producer."""
    for case in told["cases"]:
        for peer, ratio in case["ratios"].items():
            name = peer.replace("stock", STOCK)
            what = f"first acknowledgement, round trip {case['rtt']:g} ms, of {name}"
            yield figure("first", what, name, ratio, LOWER, f"{case['rtt']:g} ms of {name}")


def timeouts(told: dict[str, Any]) -> Iterator[Figure]:
    """Random plans in which answers get lost while deadlines pass."""
    for side, tally in told.items():
        client = side.replace("stock", STOCK).replace("safe", "SafeProducer")
        for what in ("duplicated", "lost", "unreported"):
            if what in tally["records"]:
                yield figure("timeouts", f"{client}: records {what}", "", tally["records"][what], LOWER)
        broken = len(tally["broken_plans"])
        yield figure("timeouts", f"{client}: plans of {tally['plans']} that broke a promise", "", broken, LOWER)


def crash_loop(told: dict[str, Any]) -> Iterator[Figure]:
    """Producer IDs that a loop of crashing processes leaves on the leader."""
    for side, loop in (("SafeProducer, refuse", told["guarded"]), (STOCK, told["stock"])):
        label = f"{side}: producer IDs of {loop['processes']} processes"
        yield figure("crash-loop", label, "", loop["ids"], LOWER)


def scale(told: dict[str, Any]) -> Iterator[Figure]:
    """Many partitions: a phase, from the first produce() to the last report."""
    runs = {(*(run["case"][name] for name in ("topics", "partitions", "rtt")), run["way"]): run for run in told["runs"]}
    for (topics, partitions, rtt, way), run in runs.items():
        peer = runs.get((topics, partitions, rtt, "stock"))
        for name, phase in run["phases"].items() if peer and way != "stock" else ():
            theirs = peer["phases"].get(name)
            if theirs and not phase["missing"] and not theirs["missing"]:
                where = f"{topics} topic{'s'[: topics - 1]} of {partitions}, answers after {rtt} ms"
                label, short = f"{way}, {where}, {name} records", f"{way} {topics} of {partitions} {rtt} ms {name}"
                yield figure("scale", f"{label}: time", STOCK, phase["wall"] / theirs["wall"], LOWER, f"{short} time")
                yield figure("scale", f"{label}: CPU", STOCK, phase["cpu"] / theirs["cpu"], LOWER, f"{short} CPU")


OURS, OWN_DROP_IN = "AsyncSafeProducer", "its AIOProducer"
"""The second one is for code that was written for confluent_kafka's."""


def aio(told: dict[str, Any]) -> Iterator[Figure]:
    """Awaited records and many tasks, beside aiokafka and confluent_kafka's AIOProducer."""
    late = {(each["what"], each["side"]): each["p50"] for each in told["latencies"]}
    speed = {each["side"]: each for each in told["speeds"]}
    for (what, side), p50 in late.items():
        if side not in (OURS, OWN_DROP_IN) and (what, OURS) in late:
            yield figure("aio", f"{what}: median of an await, of {side}", side, late[what, OURS] / p50, LOWER)
    for side, each in speed.items():
        if side not in (OURS, OWN_DROP_IN):
            what, cpu, rate = each["what"], speed[OURS]["cpu"] / each["cpu"], speed[OURS]["rate"] / each["rate"]
            yield figure("aio", f"{what}: CPU of a record, of {side}", side, cpu, LOWER)
            yield figure("aio", f"{what}: records a second, of {side}", side, rate, HIGHER)


def spark(told: dict[str, Any]) -> Iterator[Figure]:
    """Writes by both doors, and micro-batches beside those of a sink that does nothing."""
    for writes in told["writes"]:
        for row in writes["ratios"]:
            what = f"{writes['rows']:,} rows, {row['title']}"
            yield figure("spark", f"{what}: rows a second", "see the name", row["throughput"], HIGHER)
            yield figure("spark", f"{what}: CPU", "see the name", row["cpu"], LOWER)
    for door in told["triggers"]:
        for name, ratio in (("median", door["to_idle"]), ("p90", door["p90_to_idle"])):
            if ratio is not None:
                what = f"a micro-batch, {door['name']}, of one that writes nothing: {name} of its time"
                yield figure("spark", what, "see the name", ratio, LOWER)


def peers(told: dict[str, Any]) -> Iterator[Figure]:
    """Other clients, with their defaults and at their best."""
    for case in told["cases"]:
        for what, better in (("speed", HIGHER), ("cpu", LOWER)):
            for settings, ratios in case[what].items():
                for peer, ratio in ratios.items():
                    where = f"{peer}, {settings}, round trip {case['rtt']:g} ms"
                    label = f"{where}: {'records a second' if what == 'speed' else 'CPU of a record'}"
                    yield figure("peers", label, peer, ratio, better, f"{where} {what}")


def quota(told: dict[str, Any]) -> Iterator[Figure]:
    """Requests that a throttle time makes late, and the records for other brokers."""
    for side, one in told["batches"].items():
        client = side.replace("stock", STOCK).replace("safe", "SafeProducer")
        yield figure("quota", f"{client}: requests of {one['batches']} batches", "", one["requests"], LOWER)
        yield figure("quota", f"{client}: requests that timed out and were sent again", "", one["retries"], LOWER)
    stock, safe = told["neighbours"]["stock"], told["neighbours"]["safe"]
    for broker, name in (("the broker over its quota", "crowded"), ("the other brokers", "others")):
        label = f"records a second to {broker}"
        yield figure("quota", label, STOCK, safe[name] / max(stock[name], 1), HIGHER, name)
