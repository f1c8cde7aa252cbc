"""What the report takes from the JSON of each benchmark."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.interleaved import Spread

HIGHER, LOWER = "higher", "lower"


@dataclass(frozen=True)
class Figure:
    """A figure of SafeProducer divided by the peer's, or a number that was counted (`peer` is empty).

    `name` is unique in the report, and documents name it. `low` and `high` are the lowest and the highest round; None
    with one measurement.
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
        return self.shown(self.value)

    @property
    def range(self) -> str:
        """From the lowest to the highest round; empty with one measurement."""
        return "" if self.low is None or self.high is None else f"{self.shown(self.low)} to {self.shown(self.high)}"

    @property
    def peer_is_better(self) -> bool:
        """By the median, and not by less than the figure shows."""
        value = round(self.value, 2)
        return bool(self.peer) and (value < 1 if self.better == HIGHER else value > 1)

    def shown(self, value: float) -> str:
        """With as many digits as the figure itself."""
        if not self.peer:
            return f"{value:g}"
        if self.value < 0.1:
            return f"{value:.2g}"
        return f"{value:.{0 if self.value >= 10 else 1 if self.value >= 2 else 2}f}"

    def covers(self, other: Figure) -> bool:
        """Whether the other one lies within this one's range, as both are printed."""
        low, new, high = (float(self.shown(each or 0)) for each in (self.low, other.value, self.high))
        return low <= new <= high


def slug(text: str) -> str:
    """A name that can be linked to."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def figure(
    case: str, label: str, peer: str, value: float | Mapping[str, float], better: str, short: str = ""
) -> Figure:
    """Of a number, or of a spread; `short` makes the name where the label is long."""
    name = slug(f"{case} {short or label}")
    if isinstance(value, Mapping):
        return Figure(name, label, peer, value["median"], better, value["least"], value["most"])
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
    rounds: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for run in told["runs"]:
        of = (*(run["case"][name] for name in ("topics", "partitions", "rtt")), run["way"])
        rounds.setdefault(of, []).append(run["phases"])
    for (topics, partitions, rtt, way), ours in rounds.items():
        theirs = rounds.get((topics, partitions, rtt, "stock"), ()) if way != "stock" else ()
        both = list(zip(ours, theirs, strict=False))
        for name in both[0][0] if both else ():
            if not any(one.get(name, {"missing": True})["missing"] for pair in both for one in pair):
                where = f"{topics} topic{'s'[: topics - 1]} of {partitions}, answers after {rtt} ms"
                label, short = f"{way}, {where}, {name} records", f"{way} {topics} of {partitions} {rtt} ms {name}"
                for what, field in (("time", "wall"), ("CPU", "cpu")):
                    ratios = [one[name][field] / other[name][field] for one, other in both]
                    value = asdict(Spread.of(ratios)) if ratios[1:] else ratios[0]
                    yield figure("scale", f"{label}: {what}", STOCK, value, LOWER, f"{short} {what}")


AWAITED = {
    "p50": ("median of an await", LOWER),
    "cpu": ("CPU of a record", LOWER),
    "rate": ("records a second", HIGHER),
}


def aio(told: dict[str, Any]) -> Iterator[Figure]:
    """Awaited records and many tasks, beside aiokafka and confluent_kafka's AIOProducer."""
    for each in told["ratios"]:
        what, better = AWAITED[each["figure"]]
        yield figure("aio", f"{each['what']}: {what}, of {each['side']}", each["side"], each["spread"], better)


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
