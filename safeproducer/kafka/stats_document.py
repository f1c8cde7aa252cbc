"""Documents of librdkafka's statistics (STATISTICS.md) of several native producers, as one of the same schema.

Counts and gauges are added up, by broker, topic and partition. The rest, rolling windows and `eos` among it, is of the
first document that has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from safeproducer.policy.types import TopicPartition

Document = dict[str, Any]

_COUNTS = frozenset(
    (
        *("tx", "tx_bytes", "rx", "rx_bytes", "txmsgs", "txmsg_bytes", "rxmsgs", "rxmsg_bytes"),
        *("txbytes", "txerrs", "txretries", "req_timeouts", "rxbytes", "rxerrs", "rxcorriderrs", "rxpartial"),
        *("zbuf_grow", "buf_grow", "wakeups", "connects", "disconnects", "msgs", "rx_ver_drops", "acked_msgid"),
    )
)
_GAUGES = frozenset(
    (
        *("replyq", "msg_cnt", "msg_size", "simple_cnt"),
        *("outbuf_cnt", "outbuf_msg_cnt", "waitresp_cnt", "waitresp_msg_cnt"),
        *("msgq_cnt", "msgq_bytes", "xmit_msgq_cnt", "xmit_msgq_bytes", "msgs_inflight"),
    )
)
_REQUESTS = "req"
"""A broker's counts by the name of the request."""


def add_held(document: Document, held: Mapping[TopicPartition, tuple[int, int]]) -> None:
    """Add records that no native producer has, (records, bytes) each, to the partitions that the document has."""
    for (topic, partition), (records, size) in held.items():
        entry = document["topics"].get(topic, {}).get("partitions", {}).get(str(partition))
        if entry is not None:
            entry["msgq_cnt"] += records
            entry["msgq_bytes"] += size


def since(entry: Document, before: Document, within: str = "") -> Document:
    """A document's counts less those of an earlier one of the same client. Counts that began anew stay."""
    counts = {name for name in entry if name in before and (name in _COUNTS or within == _REQUESTS)}
    if any(entry[name] < before[name] for name in counts):
        return entry
    found = {name: value - before[name] if name in counts else value for name, value in entry.items()}
    inner = {name: since(value, before[name], name) for name, value in entry.items() if _in_both(name, value, before)}
    return {**found, **inner}


def _in_both(name: str, value: Any, before: Document) -> bool:
    return isinstance(value, dict) and name in before


def left_behind(entry: Document) -> Document:
    """The counts that outlive a native producer: what it has done, not what it has."""
    return {
        name: left_behind(value) if isinstance(value, dict) else 0 if name in _GAUGES else value
        for name, value in entry.items()
        if name != "toppars"
    }


def summed(documents: Sequence[Document]) -> Document:
    """One document out of these; its name and age are those of the client that was made first."""
    oldest = min(documents, key=began)
    return {**_added(documents), "name": oldest["name"], "age": documents[0]["ts"] - began(oldest)}


def began(document: Document) -> int:
    """When the client was made, on librdkafka's clock, in microseconds."""
    return int(document["ts"] - document["age"])


def _added(entries: Sequence[Document], within: str = "") -> Document:
    found: Document = {}
    for name in dict.fromkeys(name for entry in entries for name in entry):
        having = [entry[name] for entry in entries if name in entry]
        if isinstance(having[0], dict):
            found[name] = _added(having, name)
        else:
            found[name] = sum(having) if name in _COUNTS | _GAUGES or within == _REQUESTS else having[0]
    return found
