"""Documents of librdkafka's statistics (STATISTICS.md) of several native producers, as one of the same schema.

Counts and gauges are added up, by broker, topic and partition. What cannot be added up is the newest: who leads by the
leader's epoch, a broker's state by when it changed. The rest, `eos` among it, is of the document that comes first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from safeproducer.kafka.rolling_window import RollingWindow, empty
from safeproducer.policy.topic_partition import TopicPartition

Document = dict[str, Any]
WindowPath = tuple[str, str, str]
"""("brokers" or "topics", its name, the window's name)."""

_WINDOWS = {
    "brokers": ("int_latency", "outbuf_latency", "rtt", "throttle"),
    "topics": ("batchsize", "batchcnt"),
}
_COUNTS = ("tx", "tx_bytes", "rx", "rx_bytes", "txmsgs", "txmsg_bytes", "rxmsgs", "rxmsg_bytes")
_GAUGES = ("replyq", "msg_cnt", "msg_size", "simple_cnt")
_BROKER_COUNTS = (
    *("tx", "txbytes", "txerrs", "txretries", "req_timeouts", "rx", "rxbytes", "rxerrs", "rxcorriderrs", "rxpartial"),
    *("zbuf_grow", "buf_grow", "wakeups", "connects", "disconnects"),
)
_BROKER_GAUGES = ("outbuf_cnt", "outbuf_msg_cnt", "waitresp_cnt", "waitresp_msg_cnt")
_IDLE = ("txidle", "rxidle")
_PARTITION_COUNTS = ("txmsgs", "txbytes", "rxmsgs", "rxbytes", "msgs", "rx_ver_drops", "acked_msgid")
_PARTITION_GAUGES = ("msgq_cnt", "msgq_bytes", "xmit_msgq_cnt", "xmit_msgq_bytes", "msgs_inflight")
_UNUSED = "INIT"
"""The state of a broker to which no connection was needed yet."""


def windows(document: Document) -> dict[WindowPath, RollingWindow]:
    """The rolling windows of a document, those without a sample left out."""
    found = {path: RollingWindow.read(fields) for path, fields in _window_fields(document)}
    return {path: window for path, window in found.items() if window is not None}


def _window_fields(document: Document) -> Iterator[tuple[WindowPath, Any]]:
    for kind, names in _WINDOWS.items():
        for key, entry in document[kind].items():
            for name in names:
                if name in entry:
                    yield (kind, key, name), entry[name]


def put_windows(document: Document, found: Mapping[WindowPath, RollingWindow]) -> None:
    """Let a document have these windows instead of its own; those that are not among them are without a sample."""
    for path, fields in tuple(_window_fields(document)):
        kind, key, name = path
        document[kind][key][name] = found[path].written() if path in found else empty(fields)


def add_held(document: Document, held: Mapping[TopicPartition, tuple[int, int]]) -> None:
    """Add records that no native producer has, (records, bytes) each, to the partitions that the document has."""
    for (topic, partition), (records, size) in held.items():
        entry = document["topics"].get(topic, {}).get("partitions", {}).get(str(partition))
        if entry is not None:
            entry["msgq_cnt"] += records
            entry["msgq_bytes"] += size


def since(document: Document, before: Document) -> Document:
    """What a document counts that an earlier one of the same client did not. What has begun anew is left as it is."""
    earlier_brokers, earlier_topics = before["brokers"], before["topics"]
    return {
        **_less(document, before, _COUNTS),
        "brokers": {
            name: _broker_since(entry, earlier_brokers[name]) if name in earlier_brokers else entry
            for name, entry in document["brokers"].items()
        },
        "topics": {
            name: _topic_since(entry, earlier_topics[name]) if name in earlier_topics else entry
            for name, entry in document["topics"].items()
        },
    }


def _broker_since(entry: Any, before: Any) -> Document:
    return {**_less(entry, before, _BROKER_COUNTS), "req": _less(entry["req"], before["req"], tuple(entry["req"]))}


def _topic_since(topic: Any, before: Any) -> Document:
    earlier = before["partitions"]
    return {
        **topic,
        "partitions": {
            number: _less(entry, earlier[number], _PARTITION_COUNTS) if number in earlier else entry
            for number, entry in topic["partitions"].items()
        },
    }


def _less(entry: Any, before: Any, names: Sequence[str]) -> Document:
    shared = [name for name in names if name in entry and name in before]
    if any(entry[name] < before[name] for name in shared):
        return dict(entry)
    return {**entry, **{name: entry[name] - before[name] for name in shared}}


def left_behind(document: Document) -> Document:
    """What counts on of a native producer that is gone: what it has done, not what it has."""
    return {
        **document,
        **dict.fromkeys(_GAUGES, 0),
        "brokers": {
            name: {**entry, **dict.fromkeys(_BROKER_GAUGES, 0), "state": _UNUSED, "toppars": {}}
            for name, entry in document["brokers"].items()
        },
        "topics": {
            name: {
                **topic,
                "partitions": {
                    number: {**entry, **dict.fromkeys(_PARTITION_GAUGES, 0)}
                    for number, entry in topic["partitions"].items()
                },
            }
            for name, topic in document["topics"].items()
        },
    }


def summed(documents: Sequence[Document]) -> Document:
    """One document out of these, the windows of which are those of one of them: see put_windows()."""
    first = documents[0]
    oldest = min(documents, key=began)
    return {
        **first,
        **_added(documents, (*_COUNTS, *_GAUGES)),
        "name": oldest["name"],
        "age": first["ts"] - began(oldest),
        "metadata_cache_cnt": max(document["metadata_cache_cnt"] for document in documents),
        "brokers": {
            name: _broker([(document["ts"], document["brokers"][name]) for document in having])
            for name, having in _having(documents, "brokers").items()
        },
        "topics": {
            name: _topic([(document["ts"], document["topics"][name]) for document in having])
            for name, having in _having(documents, "topics").items()
        },
    }


def began(document: Document) -> int:
    """When the client was made, on librdkafka's clock, in microseconds."""
    return int(document["ts"] - document["age"])


def _having(documents: Sequence[Document], kind: str) -> dict[str, list[Document]]:
    """Who has an entry of each name, in the order in which names come first."""
    found: dict[str, list[Document]] = {}
    for document in documents:
        for name in document[kind]:
            found.setdefault(name, []).append(document)
    return found


def _added(entries: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, int]:
    """The sums of those fields that the entries have: another version of librdkafka may have others."""
    return {
        name: sum(entry[name] for entry in entries if name in entry)
        for name in names
        if any(name in entry for entry in entries)
    }


def _broker(dated: list[tuple[int, Any]]) -> dict[str, Any]:
    entries = [entry for _, entry in dated]
    _, newest = max(dated, key=_last_change)
    requests: Counter[str] = Counter()
    partitions: dict[str, Any] = {}
    for entry in entries:
        requests.update(entry["req"])
        partitions.update(entry["toppars"])
    idle = {
        name: min((entry[name] for entry in entries if entry.get(name, -1) >= 0), default=-1)
        for name in _IDLE
        if name in newest
    }
    return {
        **newest,
        **_added(entries, (*_BROKER_COUNTS, *_BROKER_GAUGES)),
        **idle,
        "req": dict(requests),
        "toppars": partitions,
    }


def _last_change(dated: tuple[int, Any]) -> tuple[bool, int]:
    at, entry = dated
    return entry["state"] != _UNUSED, at - entry["stateage"]


def _topic(dated: list[tuple[int, Any]]) -> dict[str, Any]:
    entries = [entry for _, entry in dated]
    partitions: dict[str, list[tuple[int, Any]]] = {}
    for at, entry in dated:
        for number, partition in entry["partitions"].items():
            partitions.setdefault(number, []).append((at, partition))
    return {
        **entries[0],
        "age": max(entry["age"] for entry in entries),
        "metadata_age": min(entry["metadata_age"] for entry in entries),
        "partitions": {number: _partition(of_it) for number, of_it in partitions.items()},
    }


def _partition(dated: list[tuple[int, Any]]) -> dict[str, Any]:
    _, newest = max(dated, key=_led_since)
    return {**newest, **_added([entry for _, entry in dated], (*_PARTITION_COUNTS, *_PARTITION_GAUGES))}


def _led_since(dated: tuple[int, Any]) -> tuple[int, int]:
    at, entry = dated
    return entry.get("leader_epoch", -1), at
