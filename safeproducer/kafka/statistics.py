"""librdkafka's statistics (STATISTICS.md) as values, and its clock in time.monotonic()'s terms.

Only what is decided upon is kept. Times are seconds; librdkafka writes microseconds, and milliseconds for throttling.
Traps, found in librdkafka's rd_kafka_stats_emit_all(): `client.id` and the reason of a fatal error go into the text
unescaped, so a quote in them spoils the document (for a `client.id`, repaired() mends it); bootstrap addresses and
coordinators are listed as brokers of node id -1; `xmit_msgq_cnt` is always 0, so records moved there are seen nowhere
but in the message count of the client.

On Linux the two clocks are one. On macOS librdkafka reads the wall clock (rd_clock() in rdtime.h is gettimeofday()
there), and a time of its statistics compared with ours would be off by fifty years.
"""

from __future__ import annotations

import json
import re
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

from safeproducer.policy.cluster_metadata import SAME
from safeproducer.policy.types import NEVER, TopicPartition

_LONGEST_AGE = 10**12  # milliseconds: what librdkafka tells beyond that is no age
_BEGUN = ("CONNECT", "SSL_HANDSHAKE", "APIVERSION_QUERY", "AUTH_HANDSHAKE", "AUTH_LEGACY", "AUTH_REQ")
"""States of a connection that waits for what is at its other end."""
_ASKS = "WaitPID", "RequestPID", "DrainReset", "DrainBump"
"""States of a client that has asked for a producer ID, or is about to; or sends nothing until all is answered."""
_NO_ANSWER = 1_000  # milliseconds within which a broker answers
_STOPPED = 1.0  # seconds without statistics: this process had no time
_OF_TRANSACTIONS = "InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn"
_MALFORMED = LookupError, TypeError  # a field is missing, or of another type
_BEGIN = '{ "partition":'  # the first field of a partition, as librdkafka writes it
_UNREAD = re.compile(r'"(?:toppars|batchsize|batchcnt)": ?\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}')
_NUMBER = re.compile(r"-?\d{1,10}")
_COUNTED = itemgetter("leader", "msgs_inflight", "msgq_cnt", "txmsgs", "msgs", "acked_msgid")
_SAME = 60.0  # seconds that statistics may wait to be served; a difference up to that is no other clock
_KEPT = 120  # looks that are remembered: the wall clock may be set, and what was known before is wrong then


@dataclass(frozen=True, slots=True)
class BrokerStatistics:
    """A broker as one client sees it.

    Counts are of this client alone. They begin anew, at 0, when librdkafka has forgotten the broker and learns of it
    again: when it left the cluster, and when all brokers were lost and it starts over from `bootstrap.servers`.

    - `state`: "UP", "INIT" (no connection was needed yet), "DOWN", "TRY_CONNECT", "AUTH_REQ" ...
    - `outstanding`: requests that wait for their answer; `received`: answers; of all kinds.
    - `produce_requests`: Produce requests, each attempt counted.
    - `rtt_floor`: the shortest round trip since the previous statistics, None when there was no answer.
    - `bytes`: sent, requests of all kinds. `disconnects`: connections that were lost.
    - `open_since`: since when statistics have shown a request without its answer, and no answer; NEVER if they do not.
    """

    name: str
    state: str
    outstanding: int
    received: int
    produce_requests: int
    rtt_floor: float | None
    bytes: int = 0
    disconnects: int = 0
    open_since: float = NEVER


class PartitionStatistics(NamedTuple):
    """A partition as one client sees it.

    `leader` is -1 and `leader_epoch` None when unknown. `in_flight` and `queued` are records now; `sent` counts records
    put into a request since the client was made, again for each attempt. `accepted` counts those that were given to
    the client, and `acknowledged` is the number of the last acknowledged one among them (idempotent producers only):
    nothing of the partition is under way exactly when the two are equal, but for two gaps: `accepted` leaves out what
    rd_kafka_produce_batch() took for a partition its caller named, and begins anew when librdkafka forgets the
    partition, after which `acknowledged` goes on from the number of the last record before. `bytes` were sent, as they
    were before compression.
    """

    leader: int
    leader_epoch: int | None
    in_flight: int
    queued: int
    sent: int
    accepted: int
    acknowledged: int
    bytes: int = 0


class Coordinator(NamedTuple):
    """The connection to the coordinator of transactions. `address`: "" while no broker tells who that is.

    `open_since`: since when statistics have shown a request without its answer, NEVER if they do not. `requests`: of
    transactions, so far; `again`: whether one was sent since the statistics before.
    """

    address: str
    up: bool
    open_since: float
    requests: int
    again: bool


Texts = Mapping[str, PartitionStatistics | None]
UNSENT = PartitionStatistics(-1, None, 0, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Statistics:
    """The statistics of one client at one moment.

    `at` is when it was measured, on librdkafka's clock (see LibrdkafkaClock); it is served later.
    `producer_id` and `producer_epoch` are None when it has none. `messages` and `message_bytes` are what the client
    holds, reports not yet served included. `brokers` are by node id, 0 and above. In
    `partitions` partition -1 is where records wait whose partition is not chosen yet. `metadata_ages`: topic -> seconds
    since this client got its metadata; 0 also while it has none. `begun`: address and ID -> (state, seconds in it) of
    connections that are not ready. `no_id_yet`: an idempotent one that never had a producer ID, and has sent nothing.
    `texts`: what the text has of a partition -> what that says, None for nothing. `asks_id`: (since when it has sent
    nothing, as it has no producer ID or changes its epoch; librdkafka's state of that), NEVER if it does.
    """

    at: float
    producer_id: int | None
    producer_epoch: int | None
    messages: int
    message_bytes: int
    brokers: Mapping[int, BrokerStatistics]
    partitions: Mapping[TopicPartition, PartitionStatistics]
    metadata_ages: Mapping[str, float] = field(default_factory=dict)
    begun: Mapping[str, tuple[str, float]] = field(default_factory=dict)
    texts: Texts = field(default_factory=dict, repr=False, compare=False)
    no_id_yet: bool = False
    asks_id: tuple[float, str] = (NEVER, "")
    coordinator: Coordinator | None = None

    def never_sent(self, tp: TopicPartition, count: int) -> bool:
        """Whether they prove that the lane has sent nothing of a partition, of which it was given so many records:
        fewer would be those that came after it had forgotten the partition and its counts."""
        entry = self.partitions.get(tp) if tp[1] >= 0 else None  # else it may be counted where librdkafka put it
        return self.no_id_yet or (entry is not None and not entry.sent and entry.accepted >= count)


_UNKNOWN = Coordinator("", False, NEVER, -1, False)


def read(text: str, before: Statistics | None = None) -> Statistics | None:
    """The statistics in the text that `stats_cb` got; None when it is no such document.

    Never raises: a broker or partition with a missing or malformed field is left out. A partition of which the text
    says the same as that of those `before` is not read again.
    """
    try:
        try:
            document, told = _told_apart(_shortened(text), {} if before is None else before.texts)
        except ValueError:  # others write it in another way
            document, told = load(text), {}
        at = _integer(document, "ts") / 1e6
        messages = _integer(document, "msg_cnt")
        message_bytes = _integer(document, "msg_size")
    except (ValueError, RecursionError, OverflowError, *_MALFORMED):
        return None
    producer_id, producer_epoch = _identity(document.get("eos"))
    partitions = _partitions(document, list(told.values()))
    known = {} if before is None or at - before.at > _STOPPED else before.brokers
    lists = _brokers(document, at, known), partitions, _ages(document), _begun(document), told
    eos: Any = _entries(document, "eos")
    no_id_yet = producer_id is None and eos.get("epoch_cnt") == 0
    state, age = eos.get("idemp_state"), _count(eos, "idemp_stateage")
    # Before a broker is connected nobody is asked: such a client says "RequestPID", too.
    asks = state in _ASKS[2:] or (state in _ASKS and any(each.state == "UP" for each in lists[0].values()))
    since = min(at, NEVER if before is None else before.asks_id[0]) if asks else NEVER
    coordinator = _coordinator(document, at, before.coordinator if before else None)
    of_id = (since, _ASKS[1] if state == _ASKS[0] and age < _NO_ANSWER else state), coordinator
    return Statistics(at, producer_id, producer_epoch, messages, message_bytes, *lists, no_id_yet, *of_id)


def _coordinator(document: Any, at: float, before: Coordinator | None) -> Coordinator | None:
    entry: Any = _entries(_entries(document, "brokers"), "TxnCoordinator")
    asked: Any = _entries(entry, "req")
    sent, known = sum([_count(asked, name) for name in _OF_TRANSACTIONS]), before or _UNKNOWN
    since = min(at, known.open_since if sent == known.requests else at) if _count(entry, "waitresp_cnt") else NEVER
    told = str(entry.get("nodename", "")), entry.get("state") == "UP", since
    return Coordinator(*told, sent, 0 <= known.requests < sent) if entry else None


def _told_apart(text: str, known: Texts) -> tuple[Any, Texts]:
    """The document, in which a number stands for each partition, and what these say, by their texts, in that order."""
    head, *rest = text.split(_BEGIN)
    parts, numbers = [head], dict[str, int]()
    for each in rest:
        found, _, behind = each.partition("}")
        parts.append(f"{numbers.setdefault(found, len(numbers))}{behind}")
    document = load(_UNREAD.sub('"":0', "".join(parts)))
    new = [each for each in numbers if each not in known]
    entries = json.loads(f"[{','.join([f'{_BEGIN}{each}}}' for each in new])}]", object_hook=_partition)
    told = dict(zip(new, entries, strict=True))
    return document, {each: told[each] if each in told else known[each] for each in numbers}


def _shortened(text: str) -> str:
    """Without half of each partition: what it says of consumers."""
    begin = text.find('"xmit_msgq_cnt":')
    end = text.find('"leader_epoch":', begin)
    same = text[begin:end] if 0 <= begin < end else "}"
    return text if "}" in same else text.replace(same, "")  # else one lacks the end


def repaired(text: str, client_id: str) -> str:
    """The text that `stats_cb` got, as the JSON that librdkafka meant: it writes this client's name as it is."""
    escaped = _escaped(client_id)
    if escaped == client_id:
        return text
    for name, end in (("name", "#"), ("client_id", '"')):
        text = text.replace(f'"{name}": "{client_id}{end}', f'"{name}": "{escaped}{end}', 1)
    return text


@lru_cache(maxsize=16)
def _escaped(client_id: str) -> str:
    return json.dumps(client_id, ensure_ascii=False)[1:-1]


def load(text: str) -> Any:
    """The document in the text that `stats_cb` got. Raises ValueError or RecursionError when there is none."""
    return json.loads(text, object_hook=_let_others_run)


def _let_others_run(found: dict[str, Any]) -> dict[str, Any]:
    """Where the interpreter may change threads: all would stand still while thousands of partitions are read."""
    return found


def _integer(fields: Any, name: str) -> int:
    value = fields[name]
    if type(value) is not int:
        raise TypeError(name)
    return value


def _count(fields: dict[str, Any], name: str) -> int:
    found = fields.get(name)
    return found if type(found) is int else 0


def _entries(fields: Any, name: str) -> Mapping[str, Any]:
    found = fields.get(name) if type(fields) is dict else None
    return found if type(found) is dict else {}


def _identity(eos: Any) -> tuple[int | None, int | None]:
    try:
        producer_id, epoch = _integer(eos, "producer_id"), _integer(eos, "producer_epoch")
    except _MALFORMED:
        return None, None
    return (producer_id, epoch) if producer_id >= 0 and epoch >= 0 else (None, None)


def _brokers(document: Any, at: float, before: Mapping[int, BrokerStatistics]) -> dict[int, BrokerStatistics]:
    found = {}
    for entry in _entries(document, "brokers").values():
        try:
            node = _integer(entry, "nodeid")
            if node >= 0:
                one, was = _broker(entry), before.get(node)
                since = was.open_since if was is not None and was.received == one.received else at
                found[node] = replace(one, open_since=min(at, since)) if one.outstanding else one
        except (OverflowError, *_MALFORMED):
            continue
    return found


def _begun(document: Any) -> dict[str, tuple[str, float]]:
    entries = _entries(document, "brokers").values()
    return {
        str(entry.get("name")): (entry["state"], _count(entry, "stateage") / 1e6)
        for entry in entries
        if type(entry) is dict and entry.get("state") in _BEGUN
    }


def _broker(entry: dict[str, Any]) -> BrokerStatistics:
    name, state, round_trips = entry.get("name"), entry.get("state"), entry.get("rtt")
    if type(name) is not str or type(state) is not str:
        raise TypeError("name, state")
    return BrokerStatistics(
        name,
        state,
        _integer(entry, "waitresp_cnt"),
        _integer(entry, "rx"),
        _integer(entry.get("req"), "Produce"),
        _integer(round_trips, "min") / 1e6 if _integer(round_trips, "cnt") > 0 else None,
        _count(entry, "txbytes"),
        _count(entry, "disconnects"),
    )


def _ages(document: Any) -> dict[str, float]:
    topics = _entries(document, "topics").items()
    ages = {topic: fields.get("metadata_age") for topic, fields in topics if type(fields) is dict}
    return {topic: age / 1000 for topic, age in ages.items() if type(age) is int and 0 <= age < _LONGEST_AGE}


def _partitions(document: Any, told: Sequence[PartitionStatistics | None]) -> dict[TopicPartition, PartitionStatistics]:
    found = {}
    for topic, fields in _entries(document, "topics").items():
        for name, entry in _entries(fields, "partitions").items():
            one = told[entry] if type(entry) is int and 0 <= entry < len(told) else _partition(entry)
            if one is not None and _NUMBER.fullmatch(name):
                found[topic, int(name)] = one
    return found


def _partition(entry: Any) -> PartitionStatistics | None:
    try:
        leader, in_flight, queued, sent, accepted, acknowledged = numbers = _COUNTED(entry)
    except _MALFORMED:
        return None
    if set(map(type, numbers)) != {int}:
        return None
    epoch, size = entry.get("leader_epoch"), _count(entry, "txbytes")
    epoch = epoch if type(epoch) is int and epoch >= 0 else None
    return PartitionStatistics(leader, epoch, in_flight, queued, sent, accepted, acknowledged, size)


def changed_topics(before: Statistics | None, after: Statistics) -> set[str]:
    """The topics of which a client has other metadata than before, or younger."""
    if before is None:
        return {topic for topic, _ in after.partitions}
    came = {topic: before.at - age for topic, age in before.metadata_ages.items()}
    ages = after.metadata_ages.items()
    changed = {topic for topic, age in ages if not age or abs(after.at - age - came.get(topic, -NEVER)) > SAME}
    for tp, row in after.partitions.items():
        was = before.partitions.get(tp)
        if was is not row and (was is None or was.leader != row.leader or was.leader_epoch != row.leader_epoch):
            changed.add(tp[0])
    return changed


def sent_between(before: Statistics, after: Statistics) -> dict[TopicPartition, float]:
    """Bytes/s of each partition on the wire: a broker's bytes are those, and its partitions' say whose they are."""
    counts = [
        (tp, entry.leader, entry.bytes - before.partitions[tp].bytes)
        for tp, entry in after.partitions.items()
        if tp in before.partitions and entry.bytes > before.partitions[tp].bytes
    ]
    parts: Counter[int] = Counter()
    for _, node, grown in counts:
        parts[node] += grown
    sent = {
        node: after.brokers[node].bytes - before.brokers[node].bytes
        for node in after.brokers.keys() & before.brokers.keys()
    }
    return {tp: max(0, grown * sent.get(node, 0) / parts[node]) / (after.at - before.at) for tp, node, grown in counts}


class LibrdkafkaClock:
    """Converts the times of this process's librdkafka. Once its clock was set, they are wrong for `_KEPT` looks."""

    def __init__(self) -> None:
        self._differences: deque[float] = deque(maxlen=_KEPT)

    def monotonic(self, at: float, now: float) -> float:
        """The time of time.monotonic() for `at` of librdkafka's, told to us at `now`, both in seconds.

        It is later than the truth by the shortest time that something took from librdkafka to us: milliseconds.
        """
        difference = now - at
        if abs(difference) < _SAME:
            return at
        self._differences.append(difference)
        return at + min(self._differences)
