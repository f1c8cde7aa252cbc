"""The checks: each looks at what was found and returns its findings. Pure.

A new check is a function in CHECKS; its codes go into docs/operate/doctor.md.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from safeproducer.cli.common.finding import Finding, Severity, left_over, moment, some, span
from safeproducer.cli.doctor.census import HOUR, SILENT, SMALL, Examined
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


def producer_id_churn(examined: Examined) -> Iterator[Finding]:
    """Many IDs that wrote little and then nothing: new producers again and again."""
    for topic in examined.cluster.topics:
        if (busiest := topic.busiest_hour) is None or busiest.small_ids <= examined.rate:
            continue
        joined = Counter({line: len(ids) for line, ids in topic.of_this_host.items()})
        unknown = Counter(examined.host.unknown(busiest.start - _EARLIER, busiest.start + HOUR))
        others = bool(examined.host.ledgers) and not examined.host.asks
        message = (
            f"{topic.topic}: {busiest.small_ids:,} producer IDs that wrote fewer than {SMALL:,} records to each "
            f"partition wrote for the last time within the hour from {moment(busiest.start)}; {examined.rate:,} are "
            f"allowed ({PRODUCER_IDS_PER_HOUR}). {_whose(joined, unknown, others)}"
        )
        cure = (
            f"Find the application that makes producers for {topic.topic} again and again. {_ONE_PRODUCER} If so many "
            f"producers are alive at once, raise {PRODUCER_IDS_PER_HOUR}."
        )
        for line, _ in (joined + unknown).most_common(1):
            if (pattern := examined.host.patterns.get(line)) is not None:
                message += f" {line}: {pattern.sentence}."
                cure = pattern.cure
        yield Finding(Severity.WARNING, "producer-id-churn", message, cure, topic.topic)


def _whose(joined: Counter[str], unknown: Counter[str], others: bool) -> str:
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


def _counted(lines: Counter[str]) -> str:
    return some([f"{count:,} from {line}" for line, count in lines.most_common()])


def expiration_below_timeout(examined: Examined) -> Iterator[Finding]:
    """The static rule of KIP-854's client half, for every broker."""
    configuration = examined.configuration
    if configuration is None or not configuration.idempotent:
        return
    for broker in examined.cluster.brokers:
        remembers = broker.told.producer_id or configuration.expiration
        if remembers is not None and (
            problem := unsafe(configuration.timeout, configuration.socket_timeout, remembers)
        ):
            texts = f"Broker {broker.number}: {problem.sentence}.", f"{problem.cure}."
            yield Finding(Severity.WARNING, "expiration-below-timeout", *texts, broker=broker.number)


def expiration_differs(examined: Examined) -> Iterator[Finding]:
    """A leader move then shortens the time for which retries are safe."""
    by_time: dict[float, list[str]] = {}
    for number, remembers in examined.cluster.expirations.items():
        by_time.setdefault(remembers, []).append(str(number))
    if len(by_time) > 1:
        times = "; ".join(f"{time * 1000:.0f} on broker {some(numbers)}" for time, numbers in sorted(by_time.items()))
        message = (
            f"Brokers remember a producer ID for different times ({PRODUCER_ID_CONFIG}): {times}. When a leader moves, "
            "the new one may forget an ID earlier than the former one."
        )
        cure = f"Set the same {PRODUCER_ID_CONFIG} on every broker."
        yield Finding(Severity.WARNING, "expiration-differs", message, cure)


def expiration_unreadable(examined: Examined) -> Iterator[Finding]:
    """A broker that does not say for how long it remembers, which matters less where the configuration does."""
    given = examined.configuration.expiration if examined.configuration is not None else None
    severity = Severity.WARNING if given is None else Severity.INFO
    taken = _ASSUMED if given is None else f"{_EXPIRY_MS} is taken: {given * 1000:.0f}."
    for broker in examined.cluster.brokers:
        if broker.told.producer_id is None and broker.refused not in SILENT:
            what = f"Broker {broker.number} does not tell for how long it remembers a producer ID"
            cure = (
                f"{_GRANT if broker.refused in _NO_RIGHT else _LATER}, or look up {PRODUCER_ID_CONFIG} (before Kafka "
                f"3.4 {TRANSACTIONAL_ID_CONFIG}) there and give it as {_EXPIRY_MS}."
            )
            texts = f"{what}: {broker.told.reason}. {taken}", cure
            yield Finding(severity, "expiration-unreadable", *texts, broker=broker.number)


def broker_silent(examined: Examined) -> Iterator[Finding]:
    """A broker is in the cluster and does not answer, while others do: a follower may hang so for long."""
    known = examined.cluster.facts.known
    for number, address in ((one.number, one.address) for one in examined.cluster.brokers if one.refused in SILENT):
        replicas = some([f"{topic} [{at}]" for (topic, at), one in known.items() if number in one.replicas])
        message = (
            f"Broker {number} ({address}) is in the cluster and does not answer: it hangs, or cannot be reached from "
            f"here. It has replicas of {replicas or 'none of these topics'}."
        )
        cure = f"Look at the process, the disk and the network of broker {number}."
        yield Finding(Severity.WARNING, "broker-silent", message, cure, broker=number)


def rights_missing(examined: Examined) -> Iterator[Finding]:
    """Facts that this user may not see, by the right that it lacks."""
    cluster = examined.cluster
    if any(broker.refused in _NO_RIGHT for broker in cluster.brokers):
        right = "DESCRIBE_CONFIGS on the cluster (kafka-acls --cluster)"
        yield _right("read the brokers' configs", right)
    for topic in cluster.topics:
        name = topic.topic
        if topic.error is not None and topic.error.code in _NO_RIGHT:
            yield _right(f"describe the topic {name}", "DESCRIBE and READ on it", name)
        elif any(one.error is not None and one.error.code in _NO_RIGHT for one in topic.partitions):
            yield _right(f"see the producer IDs of {name}", "READ on this topic", name)
    for what, right, code, _ in cluster.unread:
        if code in _NO_RIGHT:
            yield _right(f"see {what}", right)
    if cluster.all_topics and not cluster.topics:
        message = "No topic is there that this user may describe: the cluster has none, or DESCRIBE is missing."
        cure = "If there are topics, have an administrator grant DESCRIBE and READ on them."
        yield Finding(Severity.INFO, "rights-missing", message, cure)


def _right(what: str, right: str, topic: str | None = None) -> Finding:
    texts = f"This user may not {what}.", f"Have an administrator grant {right}."
    return Finding(Severity.WARNING, "rights-missing", *texts, topic)


def partition_unreadable(examined: Examined) -> Iterator[Finding]:
    """Facts that leaders did not tell for another reason; one finding for each kind of reason and leader of a topic."""
    for topic in examined.cluster.topics:
        unread: dict[tuple[str, int | None], list[tuple[int, str]]] = {}
        for one in topic.partitions:
            if one.error is not None and one.error.code not in _NO_RIGHT:
                unread.setdefault((one.error.code, one.leader), []).append((one.partition, one.error.message))
        for (_, leader), partitions in unread.items():
            which, reason = some([str(number) for number, _ in partitions]), partitions[0][1].rstrip(".")
            message = f"{topic.topic}: the producer IDs of partition {which} were not read: {reason}."
            cure = "Run the command again when each partition has a leader that answers."
            place = topic.topic, partitions[0][0] if len(partitions) == 1 else None, leader
            yield Finding(Severity.WARNING, "partition-unreadable", message, cure, *place)
    for what, _, code, text in examined.cluster.unread:
        if code not in _NO_RIGHT:
            message, cure = f"The command did not read {what}: {text.rstrip('.')}.", "Run the command again."
            yield Finding(Severity.WARNING, "partition-unreadable", message, cure)


def host_over_limit(examined: Examined) -> Iterator[Finding]:
    """This host has used the hour up. The limit is that of the configuration, which other ledgers may not have."""
    rate = examined.rate
    for ledger in (one for one in examined.host.ledgers if one.next_in_seconds > 0):
        count, others = ledger.ids_in_hour, examined.host.asks and not ledger.asked
        message = (
            f"This host has used up its hour for {ledger.name}: {permit.were_taken(count)}, {rate:,} are allowed "
            f"({PRODUCER_IDS_PER_HOUR}); the next one is allowed in {span(ledger.next_in_seconds)}."
            f"{permit.too_few(count, rate)}"
        )
        if others:
            message += " It is not the ledger of this configuration: its producers may have another limit."
        lines: dict[str, list[str]] = {}
        for pattern in ledger.patterns[:_MOST_PATTERNS]:
            message += f" {pattern.line}: {pattern.sentence}."
            lines.setdefault(pattern.cure, []).append(pattern.line)
        cures = [f"For {', '.join(of)}: {cure}" for cure, of in lines.items()] if len(lines) > 1 else list(lines)
        severity = Severity.INFO if others else Severity.WARNING
        yield Finding(severity, "host-over-limit", message, " ".join(cures) or _ONE_PRODUCER)


def ledger_not_kept(examined: Examined) -> Iterator[Finding]:
    """Producers are counted by process only, or by what is left of the ledger."""
    host = examined.host
    if host.off:
        message = "safeproducer.producer.ids.ledger is off: each process on this host counts its producer IDs alone."
        cure = "Leave the setting out where several processes, or restarts, shall be counted together."
        yield Finding(Severity.INFO, "ledger-not-kept", message, cure)
        return
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
    for what, reasons, cure in ((alone, host.not_kept, give), (unread, host.damaged, same)):
        for reason in reasons:
            yield Finding(Severity.WARNING, "ledger-not-kept", f"{what}: {reason}.", cure)


def throttle_left_over(examined: Examined) -> list[Finding]:
    """Lists and rates that no move needs. If only some topics were asked for, others may list a broker with a rate."""
    seen = examined.cluster
    if seen.moves is None:
        return []
    brokers = [broker.number for broker in seen.brokers]
    found = left_over(seen.facts, brokers, {topic for topic, _ in seen.moves})
    return [one for one in found if one.topic is not None or seen.all_topics]


def replicas_move(examined: Examined) -> Iterator[Finding]:
    """One finding for each topic."""
    seen = examined.cluster
    moves = sorted(tp for tp in seen.moves or () if tp in seen.facts.known)
    for topic, of_topic in groupby(moves, key=lambda tp: tp[0]):
        message = f"{topic}: replicas of partition {some([str(partition) for _, partition in of_topic])} move."
        cure = "See how far they are: safeproducer replication status."
        yield Finding(Severity.INFO, "replication-move", message, cure, topic)


def replicas_in_sync(examined: Examined) -> Iterator[Finding]:
    """A replica is missing, and no more are in sync than min.insync.replicas. A new replica is not missing."""
    seen = examined.cluster
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
    return (_too_few(facts, at_minimum, of_topic) for (at_minimum, _), of_topic in sorted(found.items()))


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


def transactions_open(examined: Examined) -> Iterator[Finding]:
    """Readers of committed records get nothing behind the first record of one. It is normal for a moment."""
    for one in (one for one in examined.cluster.transactions if one.age >= _OPEN_FOR):
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
        yield Finding(Severity.WARNING if late else Severity.INFO, "transaction-open", *rest)


CHECKS: Sequence[Callable[[Examined], Iterable[Finding]]] = (
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
