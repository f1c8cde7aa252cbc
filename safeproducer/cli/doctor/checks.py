"""The checks: each looks at what was found and returns its findings. Pure.

A new check is a function in CHECKS; its codes go into docs/operate/doctor.md.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from safeproducer.cli.common.finding import Finding, Severity, left_over, moment, some, span
from safeproducer.cli.doctor.census import HOUR, SILENT, SMALL, BusiestHour, Examined, PartitionCensus, TopicCensus
from safeproducer.cli.doctor.host import LedgerCensus
from safeproducer.policy.expiry import PRODUCER_ID_CONFIG, TRANSACTIONAL_ID_CONFIG, unsafe
from safeproducer.policy.replication import Facts, judge
from safeproducer.policy.types import TopicPartition
from safeproducer.producer_ids import permit
from safeproducer.settings.own_settings import PRODUCER_IDS_PER_HOUR

_NO_RIGHT = frozenset({"CLUSTER_AUTHORIZATION_FAILED", "TOPIC_AUTHORIZATION_FAILED"})
_GRANT, _LATER = "Grant DESCRIBE_CONFIGS on the cluster", "Run the command again when that broker answers"
_MOST_PATTERNS = 3
_EARLIER = 60.0
"""Seconds for which a producer may have had its permit before it wrote for the last time."""
_ONE_PRODUCER = "Make one producer for each process, keep it, and share it between threads."
_OTHERS = (
    " They may be of another cluster: this host has no ledger for these bootstrap.servers and this user, so their "
    "numbers were looked up in all ledgers."
)
_OPEN_FOR = 10.0
"""Seconds for which a transaction may be open before it is told. Brokers look for late ones as often."""
_EXPIRY_MS = "safeproducer.expiry.ms"
_ASSUMED = "A day, Kafka's default, is assumed."


def producer_id_churn(examined: Examined) -> list[Finding]:
    """Many IDs that wrote little and then nothing: new producers again and again."""
    return [
        _churn(topic, topic.busiest_hour, examined)
        for topic in examined.cluster.topics
        if topic.busiest_hour is not None and topic.busiest_hour.small_ids > examined.rate
    ]


def _churn(topic: TopicCensus, busiest: BusiestHour, examined: Examined) -> Finding:
    joined = {line: len(ids) for line, ids in topic.of_this_host.items()}
    others = bool(examined.host.ledgers) and not examined.host.asks
    unknown = Counter(examined.host.unknown(busiest.start - _EARLIER, busiest.start + HOUR))
    message = (
        f"{topic.topic}: {busiest.small_ids:,} producer IDs that wrote fewer than {SMALL:,} records to each partition "
        f"wrote for the last time within the hour from {moment(busiest.start)}; {examined.rate:,} are allowed "
        f"({PRODUCER_IDS_PER_HOUR}). {_whose(joined, unknown, others)}"
    )
    cure = (
        f"Find the application that makes producers for {topic.topic} again and again. {_ONE_PRODUCER} If so many "
        f"producers are alive at once, raise {PRODUCER_IDS_PER_HOUR}."
    )
    for line, _ in (Counter(joined) + unknown).most_common(1):
        if (pattern := examined.host.patterns.get(line)) is not None:
            message += f" {line}: {pattern.sentence}."
            cure = pattern.cure
    return Finding(Severity.WARNING, "producer-id-churn", message, cure, topic=topic.topic)


def _whose(joined: Mapping[str, int], unknown: Mapping[str, int], others: bool) -> str:
    """Brokers keep neither client.id nor user, so only this host's ledger can name a line of code.

    `others`: `joined` is of ledgers of which none is known to be of this cluster.
    """
    sentence = "A broker keeps neither the client.id nor the user of an ID."
    if joined:
        sentence += f" This host's ledger knows where some come from: {_counted(joined)}.{_OTHERS * others}"
    if unknown:
        took = "In that hour this host took IDs for this cluster whose number it does not know"
        sentence += f" {took}: {_counted(unknown)}."
    return sentence if joined or unknown else f"{sentence} This host's ledger knows none of them."


def _counted(lines: Mapping[str, int]) -> str:
    return some([f"{count:,} from {line}" for line, count in Counter(lines).most_common()])


def expiration_below_timeout(examined: Examined) -> list[Finding]:
    """The static rule of KIP-854's client half, for every broker."""
    configuration = examined.configuration
    if configuration is None or not configuration.idempotent:
        return []
    found = []
    for broker in examined.cluster.brokers:
        remembers = broker.told.producer_id or configuration.expiration
        if remembers is None:
            continue
        problem = unsafe(configuration.timeout, configuration.socket_timeout, remembers)
        if problem is not None:
            texts = f"Broker {broker.number}: {problem.sentence}.", f"{problem.cure}."
            found.append(Finding(Severity.WARNING, "expiration-below-timeout", *texts, broker=broker.number))
    return found


def expiration_differs(examined: Examined) -> list[Finding]:
    """A leader move then shortens the time for which retries are safe."""
    by_time: dict[float, list[str]] = {}
    for broker in examined.cluster.brokers:
        if broker.told.producer_id is not None:
            by_time.setdefault(broker.told.producer_id, []).append(str(broker.number))
    if len(by_time) < 2:
        return []
    times = "; ".join(f"{seconds * 1000:.0f} on broker {some(numbers)}" for seconds, numbers in sorted(by_time.items()))
    message = (
        f"Brokers remember a producer ID for different times ({PRODUCER_ID_CONFIG}): {times}. When a leader moves, "
        "the new one may forget an ID earlier than the former one."
    )
    cure = f"Set the same {PRODUCER_ID_CONFIG} on every broker."
    return [Finding(Severity.WARNING, "expiration-differs", message, cure)]


def expiration_unreadable(examined: Examined) -> list[Finding]:
    """A broker that does not say for how long it remembers, which matters less where the configuration does."""
    given = examined.configuration.expiration if examined.configuration is not None else None
    taken = _ASSUMED if given is None else f"{_EXPIRY_MS} is taken: {given * 1000:.0f}."
    return [
        Finding(
            Severity.WARNING if given is None else Severity.INFO,
            "expiration-unreadable",
            f"Broker {broker.number} does not tell for how long it remembers a producer ID: {broker.told.reason}. "
            f"{taken}",
            f"{_GRANT if broker.refused in _NO_RIGHT else _LATER}, or look up {PRODUCER_ID_CONFIG} (before Kafka 3.4 "
            f"{TRANSACTIONAL_ID_CONFIG}) there and give it as {_EXPIRY_MS}.",
            broker=broker.number,
        )
        for broker in examined.cluster.brokers
        if broker.told.producer_id is None and broker.refused not in SILENT
    ]


def broker_silent(examined: Examined) -> list[Finding]:
    """A broker is in the cluster and does not answer, while others do: a follower may hang so for long."""
    found, seen = [], examined.cluster.replication
    facts = seen.facts
    for broker in (broker for broker in examined.cluster.brokers if broker.refused in SILENT):
        number = broker.number
        replicas = some([f"{topic} [{at}]" for (topic, at), one in facts.known.items() if number in one.replicas])
        message = (
            f"Broker {number} ({broker.address}) is in the cluster and does not answer: it hangs, or cannot be reached "
            f"from here. It has replicas of {replicas or 'none of these topics'}."
        )
        cure = f"Look at the process, the disk and the network of broker {number}."
        found.append(Finding(Severity.WARNING, "broker-silent", message, cure, broker=number))
    return found


def rights_missing(examined: Examined) -> list[Finding]:
    """Facts that this user may not see, by the right that it lacks."""
    found = []
    if any(broker.refused in _NO_RIGHT for broker in examined.cluster.brokers):
        right = "DESCRIBE_CONFIGS on the cluster (kafka-acls --cluster)"
        found.append(_right("This user may not read the brokers' configs", right))
    for topic in examined.cluster.topics:
        name = topic.topic
        if topic.error is not None and topic.error.code in _NO_RIGHT:
            found.append(_right(f"This user may not describe the topic {name}", "DESCRIBE and READ on it", name))
        elif any(one.error is not None and one.error.code in _NO_RIGHT for one in topic.partitions):
            found.append(_right(f"This user may not see the producer IDs of {name}", "READ on this topic", name))
    seen = examined.cluster.replication
    for what, right, code, _ in seen.unread:
        if code in _NO_RIGHT:
            found.append(_right(f"This user may not see {what}", right))
    if examined.cluster.all_topics and not examined.cluster.topics:
        message = "No topic is there that this user may describe: the cluster has none, or DESCRIBE is missing."
        cure = "If there are topics, have an administrator grant DESCRIBE and READ on them."
        found.append(Finding(Severity.INFO, "rights-missing", message, cure))
    return found


def _right(what: str, right: str, topic: str | None = None) -> Finding:
    return Finding(Severity.WARNING, "rights-missing", f"{what}.", f"Have an administrator grant {right}.", topic=topic)


def partition_unreadable(examined: Examined) -> list[Finding]:
    """Facts that leaders did not tell for another reason; one finding for each kind of reason and leader of a topic."""
    found = []
    for topic in examined.cluster.topics:
        unread: dict[tuple[str, int | None], list[PartitionCensus]] = {}
        for one in topic.partitions:
            if one.error is not None and one.error.code not in _NO_RIGHT:
                unread.setdefault((one.error.code, one.leader), []).append(one)
        found += [_unread(topic.topic, leader, partitions) for (_, leader), partitions in unread.items()]
    seen = examined.cluster.replication
    for what, _, code, text in seen.unread:
        if code not in _NO_RIGHT:
            message, cure = f"The command did not read {what}: {text.rstrip('.')}.", "Run the command again."
            found.append(Finding(Severity.WARNING, "partition-unreadable", message, cure))
    return found


def _unread(topic: str, leader: int | None, partitions: Sequence[PartitionCensus]) -> Finding:
    which = some([str(one.partition) for one in partitions])
    reason = partitions[0].error.message.rstrip(".") if partitions[0].error is not None else ""
    message = f"{topic}: the producer IDs of partition {which} were not read: {reason}."
    cure = "Run the command again when each partition has a leader that answers."
    place = topic, partitions[0].partition if len(partitions) == 1 else None, leader
    return Finding(Severity.WARNING, "partition-unreadable", message, cure, *place)


def host_over_limit(examined: Examined) -> list[Finding]:
    """This host has used the hour up. The limit is that of the configuration, which other ledgers may not have."""
    return [
        _used_up(ledger, examined.rate, others=examined.host.asks and not ledger.asked)
        for ledger in examined.host.ledgers
        if ledger.next_in_seconds > 0
    ]


def _used_up(ledger: LedgerCensus, rate: int, others: bool) -> Finding:
    count = ledger.ids_in_hour
    message = (
        f"This host has used up its hour for {ledger.name}: {permit.were_taken(count)}, {rate:,} are "
        f"allowed ({PRODUCER_IDS_PER_HOUR}); the next one is allowed in {span(ledger.next_in_seconds)}."
        f"{permit.too_few(count, rate)}"
    )
    if others:
        message += " It is not the ledger of this configuration: its producers may have another limit."
    shown = ledger.patterns[:_MOST_PATTERNS]
    message += "".join(f" {pattern.line}: {pattern.sentence}." for pattern in shown)
    lines: dict[str, list[str]] = {}
    for pattern in shown:
        lines.setdefault(pattern.cure, []).append(pattern.line)
    cures = [f"For {', '.join(of)}: {cure}" for cure, of in lines.items()] if len(lines) > 1 else list(lines)
    cure = " ".join(cures) or _ONE_PRODUCER
    return Finding(Severity.INFO if others else Severity.WARNING, "host-over-limit", message, cure)


def ledger_not_kept(examined: Examined) -> list[Finding]:
    """Producers are counted by process only, or by what is left of the ledger."""
    host = examined.host
    if host.off:
        message = "safeproducer.producer.ids.ledger is off: each process on this host counts its producer IDs alone."
        cure = "Leave the setting out where several processes, or restarts, shall be counted together."
        return [Finding(Severity.INFO, "ledger-not-kept", message, cure)]
    alone = "Each process on this host counts its producer IDs alone, because no ledger can be kept"
    unread = "A ledger of this host cannot be read"
    give = (
        "Give safeproducer.producer.ids.ledger (SAFEPRODUCER_PRODUCER_IDS_LEDGER) a directory on a local disk that the "
        "processes of this user may write to."
    )
    same = (
        "A damaged one is made anew by the next producer. One of a newer version is left alone: use the same version "
        "of safeproducer in all processes of this user."
    )
    told = [(alone, reason, give) for reason in host.not_kept] + [(unread, reason, same) for reason in host.damaged]
    return [Finding(Severity.WARNING, "ledger-not-kept", f"{what}: {reason}.", cure) for what, reason, cure in told]


def throttle_left_over(examined: Examined) -> list[Finding]:
    """Lists and rates that no move needs. If only some topics were asked for, others may list a broker with a rate."""
    seen = examined.cluster.replication
    if seen.moves is None:
        return []
    brokers = [broker.number for broker in examined.cluster.brokers]
    found = left_over(seen.facts, brokers, {topic for topic, _ in seen.moves})
    return [one for one in found if one.topic is not None or examined.cluster.all_topics]


def replicas_move(examined: Examined) -> list[Finding]:
    """One finding for each topic."""
    found, seen = [], examined.cluster.replication
    moves = sorted(tp for tp in seen.moves or () if tp in seen.facts.known)
    for topic, of_topic in groupby(moves, key=lambda tp: tp[0]):
        message = f"{topic}: replicas of partition {some([str(partition) for _, partition in of_topic])} move."
        cure = "See how far they are: safeproducer replication status."
        found.append(Finding(Severity.INFO, "replication-move", message, cure, topic))
    return found


def replicas_in_sync(examined: Examined) -> list[Finding]:
    """A replica is missing, and no more are in sync than min.insync.replicas. A new replica is not missing."""
    seen = examined.cluster.replication
    facts, moves = seen.facts, seen.moves or {}
    known = {
        tp: one._replace(replicas=[at for at in one.replicas if at in one.in_sync or at not in moves.get(tp, ())])
        for tp, one in facts.known.items()
    }
    facts = replace(facts, known=known)
    found: dict[tuple[bool, str], list[TopicPartition]] = {}
    for tp in sorted(known):
        verdict = judge(facts, tp, 0.0)
        if verdict.broker is not None and verdict.spare is not None and verdict.spare <= 0:
            found.setdefault((verdict.spare == 0, tp[0]), []).append(tp)
    return [_too_few(facts, at_minimum, of_topic) for (at_minimum, _), of_topic in sorted(found.items())]


def _too_few(facts: Facts, at_minimum: bool, partitions: Sequence[TopicPartition]) -> Finding:
    topic, partition = partitions[0]
    one, verdict = facts.known[topic, partition], judge(facts, partitions[0], 0.0)
    missing = [at for at in one.replicas if at not in one.in_sync]
    message = (
        f"{topic}: {len(one.in_sync)} of {len(one.replicas)} replicas of partition "
        f"{some([str(number) for _, number in partitions])} are in sync, min.insync.replicas is "
        f"{facts.minimum[topic]}: {'one more failure, and ' * at_minimum}writes with acks=all are refused. "
        f"Missing: broker {some([str(at) for at in missing])}."
    )
    cure = verdict.cure or f"Wait until broker {verdict.broker} has caught up."
    if verdict.broker in one.alive and (away := [str(at) for at in missing if at not in one.alive]):
        cure += f" Bring broker {some(away)} back."
    rest = message, cure, topic, partition if len(partitions) == 1 else None, verdict.broker
    if at_minimum:
        return Finding(Severity.WARNING, "in-sync-at-minimum", *rest)
    return Finding(Severity.ERROR, "in-sync-below-minimum", *rest)


def transactions_open(examined: Examined) -> list[Finding]:
    """Readers of committed records get nothing behind the first record of one. It is normal for a moment."""
    found = []
    for one in examined.cluster.transactions:
        if one.age < _OPEN_FOR:
            continue
        late, where = one.age > one.timeout + _OPEN_FOR, some([f"{topic} [{at}]" for topic, at in one.partitions])
        message = (
            f"The transaction of {one.id} is open for {span(one.age)}, and holds readers with "
            f"isolation.level=read_committed up for as long: {where}. Its transaction.timeout.ms is "
            f"{span(one.timeout)}{', and brokers should have aborted it' * late}."
        )
        cure = "Brokers abort it at its time-out. A sink of PySpark (the id is sink.id-slot) ends it by its next task"
        if late:
            cure = "Look at the coordinator's log; kafka-transactions.sh abort ends it"
        rest = message, f"{cure}.", one.partitions[0][0]
        found.append(Finding(Severity.WARNING if late else Severity.INFO, "transaction-open", *rest))
    return found


CHECKS: Sequence[Callable[[Examined], list[Finding]]] = (
    producer_id_churn,
    expiration_below_timeout,
    expiration_differs,
    expiration_unreadable,
    broker_silent,
    rights_missing,
    partition_unreadable,
    host_over_limit,
    ledger_not_kept,
    replicas_in_sync,
    throttle_left_over,
    replicas_move,
    transactions_open,
)


def check(examined: Examined) -> list[Finding]:
    return [finding for one in CHECKS for finding in one(examined)]
