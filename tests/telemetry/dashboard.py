"""The dashboard for Grafana, the alert rules for Prometheus and their tables, from the names of the instruments.

`python -m tests.telemetry.dashboard` writes them anew. In a query `<instrument>` is the metric's name in Prometheus,
`<instrument{attribute="value"}>` a selection of it, and `@attribute` a label.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safeproducer import HoldReason
from safeproducer.settings.own_settings import DEFAULT_PRODUCER_IDS_PER_HOUR
from safeproducer.telemetry.metrics import INSTRUMENTS, Instrument
from tests.spark.option_tables import names, renewed, table

ROOT = Path(__file__).resolve().parents[2]
DASHBOARD, ALERTS = ROOT / "docs/operate/dashboard.json", ROOT / "docs/operate/alerts.yml"
PAGE, REFERENCE = ROOT / "docs/operate/metrics.md", ROOT / "docs/reference/metrics.md"
BY_NAME = {each.name: each for each in INSTRUMENTS}
ATTRIBUTES = {
    "messaging.system": "`kafka`",
    "messaging.operation.name": "`send`",
    "messaging.operation.type": "`send`",
    "messaging.destination.name": "the topic; `_OTHER` for topics beyond `topics`",
    "messaging.destination.partition.id": "the partition, with `partitions=True` on whatever has a topic",
    "messaging.client.id": "the setting `client.id`, with `client_ids=True` on all",
    "server.address": "host of the broker",
    "server.port": "port of the broker",
    "error.type": "librdkafka's name of the error; `delivery_report_lost` for a record without a report; of a native "
    "producer that was made anew the cause. A success has none",
    "safeproducer.outcome": "`delivered`, `not_written`, `unknown` or `lost`; of a transaction `committed`, `aborted` "
    "or `unknown`",
    "safeproducer.hold.reason": "a [reason to hold](../operate/troubleshooting.md), or another code of [health()]"
    "(snapshot.md#health)",
    "safeproducer.window.source": "`leader`, `topic` or `assumed`",
    "safeproducer.principal": "the Kafka principal, as far as the settings tell it",
}
USUAL = "|".join(
    [
        reason
        for reason in HoldReason
        if reason.waits_for_answer or reason in ("linger", "long_round_trip", "mode_held", "throttled", "probing")
    ]
    + ["not_polled"]
)
"""Reasons that a healthy producer has at times, and those that an alert of their own has."""


def prometheus(instrument: Instrument) -> str:
    """Its name there, of a histogram that of the buckets."""
    name, unit = instrument.name.replace(".", "_"), {"s": "_seconds", "By": "_bytes"}.get(instrument.unit, "")
    return name.removesuffix(unit) + unit + {"counter": "_total", "histogram": "_bucket"}.get(instrument.kind, "")


def label(attribute: str) -> str:
    return attribute.replace(".", "_")


def promql(query: str, selection: str = "") -> str:
    """The query with names as they are in Prometheus. Raises KeyError for a name that no instrument has."""
    attributes = {"job", "instance"}

    def selected(found: re.Match[str]) -> str:
        instrument = BY_NAME[found[1]]
        attributes.update(instrument.attributes)
        chosen = re.sub(r"@?([a-z.]+)(?==|!)", lambda each: known(each[1]), found[2] or "")
        selections = ", ".join(each for each in (selection, chosen) if each)
        return prometheus(instrument) + (f"{{{selections}}}" if selections else "")

    def known(attribute: str) -> str:
        if attribute not in attributes:
            raise KeyError(attribute)
        return label(attribute)

    text = re.sub(r"<([a-z_.]+)(?:\{([^}]*)\})?>", selected, query)
    return re.sub(r"@([a-z.]+)", lambda found: known(found[1]), text)


# Title, unit, the attributes by which it is summed (or the largest is taken) or a name, query. Lines of one title are
# of one panel.
_PANELS = """
Records that ended | cps | @safeproducer.outcome | rate(<safeproducer.records.ended>[R])
Accepted records | cps | @messaging.destination.name | rate(<safeproducer.records.accepted>[R])
Records sent in vain | short | @error.type | <messaging.client.sent.messages{error.type!=""}>
From produce() to the end | s | p50 | histogram_quantile(0.50, DURATION)
From produce() to the end | s | p95 | histogram_quantile(0.95, DURATION)
Records without an end | short | @messaging.destination.name | <safeproducer.records.unresolved>
Records of producers without a connection | short | @instance | <safeproducer.records.disconnected>
Used part of the longest wait's deadline | percentunit | max @messaging.destination.name | <safeproducer.deadline.used>
Records that wait | short | @safeproducer.hold.reason | <safeproducer.records.held>
Held partitions | short | @safeproducer.hold.reason | rate(<safeproducer.hold.time>[R])
Time until the throttle is over | s | max @server.address @server.port | <safeproducer.throttle.remaining>
Announced throttle time a second | s | max @server.address @server.port | rate(<safeproducer.throttle.time>[R])
Round trip | s | max @server.address @server.port | max_over_time(<safeproducer.broker.rtt>[1m])
Used part of the buffer | percentunit | max @instance | <safeproducer.buffer.bytes> / <safeproducer.buffer.limit>
Records in the buffer | short | @instance | <safeproducer.buffer.records>
New producer IDs in an hour | short | @safeproducer.principal | increase(<safeproducer.producer_ids>[1h])
Refused logins | short | @instance | increase(<safeproducer.logins.refused>[5m])
Native producers made anew | short | @error.type | <safeproducer.renewals>
Batch lanes and windows | short | lanes | sum(<safeproducer.lanes>)
Batch lanes and windows | short | smallest window | min(<safeproducer.window>)
Batches of batch lanes | cps | batches | sum(rate(<safeproducer.batches>[R]))
Batches of batch lanes | cps | splits | sum(rate(<safeproducer.splits>[R]))
Transactions | cps | @safeproducer.outcome | rate(<safeproducer.transactions>[R])
Renewed epochs | short | @instance | increase(<safeproducer.epochs.renewed>[5m])
"""


@dataclass(frozen=True)
class Panel:
    """`queries`: each with the name of its lines."""

    title: str
    unit: str
    queries: list[tuple[str, str]]


def panels() -> list[Panel]:
    """Of the table above, with queries as Grafana has them."""
    found: dict[str, Panel] = {}
    duration = "sum by (le) (rate(<messaging.client.operation.duration>[R]))"
    for line in _PANELS.replace("DURATION", duration).strip().splitlines():
        title, unit, lines, query = line.split(" | ", 3)
        if "@" in lines:
            kind, lines = ("max", lines[4:]) if lines.startswith("max ") else ("sum", lines)
            query = f"{kind} by ({lines.replace(' ', ', ')}) ({query})"
            lines = re.sub(r"@([a-z.]+)", lambda found: f"{{{{{label(found[1])}}}}}", lines)
        query = promql(query, 'job=~"$job"').replace("[R]", "[$__rate_interval]")
        found.setdefault(title, Panel(title, unit, [])).queries.append((query, lines))
    return list(found.values())


# Name, for how long the comparison must hold, the comparison; then a sentence, then the cure.
_ALERTS = """
SafeproducerRecordsFail | 0m | FAILED / ENDED>[2m])) > 0.01
More than one in a hundred records of TOPIC fail
The error of each record says why: [records fail](symptoms.md#records-fail).

SafeproducerNothingDelivered | 1m | DUE > 0 unless DELIVERED > 0
Records of TOPIC are accepted, and none is delivered minute after minute
Ask [explain()](symptoms.md) of that process: it names the cause.

SafeproducerDeadlineNear | 0m | max by (PROCESS, TOPIC) (<safeproducer.deadline.used>) > 0.5
A record of TOPIC has waited for more than half of message.timeout.ms, and will fail at its end
Ask [explain()](symptoms.md) of that process: it names the cause.

SafeproducerNoBrokerAnswers | 1m | AWAY > 0
Records wait, and no broker answers
See whether brokers run and can be reached from there: [records fail](symptoms.md#records-fail).

SafeproducerLoginRefused | 0m | sum by (PROCESS) (increase(<safeproducer.logins.refused>[2m])) > 0
Brokers refuse the login, or there is no token to log in with
See the last error in the log: [records fail](symptoms.md#records-fail).

SafeproducerRecordsHeld | 2m | HELD > 0 unless on (PROCESS) AWAY > 0
Records of TOPIC wait: REASON
[Troubleshooting](troubleshooting.md) has a cure for each reason, and explain() in that process names it.

SafeproducerUnknownOutcomes | 0m | ENDED{safeproducer.outcome="unknown"}>[10m])) > 0
Records of TOPIC ended with unknown outcome
The error of each record says why. [Outcomes](../use/outcomes-and-errors.md) says when to produce them again.

SafeproducerRecordsLost | 0m | ENDED{safeproducer.outcome="lost"}>[10m])) > 0
Records of TOPIC went away without a delivery report
Call `close()` before a producer goes out of use, and let its time be longer than brokers need.

SafeproducerThrottled | 5m | max by (PROCESS, BROKER) (max_over_time(<safeproducer.throttle.remaining>[1m])) > 0
A broker throttles this client minute after minute: BROKER
Produce less, or have the quota of this user or `client.id` [raised](throttling-and-quotas.md).

SafeproducerIdsTooFast | 0m | sum by (@job, PRINCIPAL) (increase(<safeproducer.producer_ids>[1h])) > LIMIT
More than LIMIT new producer IDs in an hour of PRINCIPAL
Keep producers instead of making new ones: [recipes](producer-id-recipes.md).

SafeproducerBufferNearlyFull | 2m | max by (PROCESS) (<safeproducer.buffer.bytes> / <safeproducer.buffer.limit>) > 0.8
The buffer for records is nearly full: produce() will raise BufferError
Look for throttled or silent brokers first; then at [the queue](symptoms.md#the-queue-is-full).
"""
_WORDS = {
    "HELD": 'sum by (PROCESS, TOPIC, REASON) (<safeproducer.records.held{REASON!~"USUAL"}>)',
    "AWAY": "sum by (PROCESS) (<safeproducer.records.disconnected>)",
    "FAILED": 'ENDED{safeproducer.outcome=~"not_written|unknown"}>[2m]))',
    "DUE": "sum by (PROCESS, TOPIC) (increase(<safeproducer.records.accepted>[1m]))",
    "DELIVERED": 'ENDED{safeproducer.outcome="delivered"}>[1m]))',
    "ENDED": "sum by (PROCESS, TOPIC) (increase(<safeproducer.records.ended",
    "PROCESS": "@job, @instance",
    "TOPIC": "@messaging.destination.name",
    "REASON": "@safeproducer.hold.reason",
    "BROKER": "@server.address, @server.port",
    "PRINCIPAL": "@safeproducer.principal",
    "USUAL": USUAL,
    "LIMIT": str(DEFAULT_PRODUCER_IDS_PER_HOUR),
}


@dataclass(frozen=True)
class Alert:
    """`query` is compared with `above`; the comparison must hold for so long (`held`)."""

    name: str
    held: str
    query: str
    above: str
    summary: str
    cure: str


def alerts() -> list[Alert]:
    """Of the table above, with queries as Prometheus has them."""
    text = _ALERTS
    for word, meaning in _WORDS.items():
        text = text.replace(word, meaning)
    found = []
    for lines in text.strip().split("\n\n"):
        head, summary, cure = lines.splitlines()
        name, held, comparison = head.split(" | ")
        query, above, limit = comparison.rpartition(" > ")
        summary = re.sub(r"@([a-z.]+[a-z])", lambda found: f"{{{{ $labels.{label(found[1])} }}}}", summary)
        found.append(Alert(name, held, promql(query), f"{above.strip()} {limit}", summary, cure))
    return found


def dashboard() -> str:
    """In JSON, as Grafana imports it."""
    source = {"type": "prometheus", "uid": "${datasource}"}
    job = f"label_values({prometheus(BY_NAME['safeproducer.records.accepted'])}, job)"
    shown: list[dict[str, Any]] = []
    for number, panel in enumerate(panels()):
        targets = [
            {"refId": chr(65 + place), "expr": query, "legendFormat": legend}
            for place, (query, legend) in enumerate(panel.queries)
        ]
        shown.append(
            {
                "id": number + 1,
                "type": "timeseries",
                "title": panel.title,
                "datasource": source,
                "gridPos": {"x": number % 4 * 6, "y": number // 4 * 7, "w": 6, "h": 7},
                "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
                "targets": targets,
            }
        )
    variables = [
        {"name": "datasource", "type": "datasource", "query": "prometheus"},
        {"name": "job", "type": "query", "datasource": source, "query": job, "refresh": 2, "multi": True}
        | {"includeAll": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"}},
    ]
    whole = {"uid": "safeproducer", "title": "safeproducer", "schemaVersion": 39, "refresh": "30s", "editable": True}
    whole |= {"time": {"from": "now-1h", "to": "now"}, "templating": {"list": variables}, "panels": shown}
    return json.dumps(whole, indent=1) + "\n"


def rules(held: str | None = None) -> str:
    """In YAML. `held`: in place of the time for which each comparison must hold."""
    lines = ["groups:", "  - name: safeproducer", "    rules:"]
    for alert in alerts():
        cure = re.sub(r"\[([^]]*)\]\(([^)]*)\)", r"\1 (\2)", alert.cure).replace("`", "")
        lines += [
            f"      - alert: {alert.name}",
            f"        expr: {json.dumps(f'{alert.query} {alert.above}')}",
            f"        for: {held or alert.held}",
            "        labels: {severity: warning}",
            "        annotations:",
            f"          summary: {json.dumps(alert.summary)}",
            f"          cure: {json.dumps(cure)}",
        ]
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """The operators' page with its table."""
    rows = ((f"`{it.name}`", f"`{it.query} {it.above}`".replace("|", "\\|"), it.held, it.cure) for it in alerts())
    return renewed(text, {"alerts": table(("alert", "comparison", "holds for", "cure"), rows)})


def reference(text: str) -> str:
    """The reference of metrics and attributes with its tables."""
    metrics = (
        (f"`{it.name}`", f"`{prometheus(it)}`", f"{it.kind}, `{it.unit}`", names(it.attributes), it.description)
        for it in INSTRUMENTS
    )
    head = ("metric", "in Prometheus", "instrument, unit", "attributes", "counts")
    attributes = ((f"`{name}`", f"`{label(name)}`", what) for name, what in ATTRIBUTES.items())
    return renewed(
        text,
        {"metrics": table(head, metrics), "attributes": table(("attribute", "in Prometheus", "value"), attributes)},
    )


FILES: dict[Path, Callable[[str], str]] = {
    DASHBOARD: lambda _: dashboard(),
    ALERTS: lambda _: rules(),
    PAGE: page,
    REFERENCE: reference,
}
"""What each is, made of the text that it is now."""

if __name__ == "__main__":
    for path, make in FILES.items():
        path.write_text(make(path.read_text(encoding="utf-8") if path.exists() else ""), encoding="utf-8")
