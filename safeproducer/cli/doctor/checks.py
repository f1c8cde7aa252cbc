"""The checks: each looks at what was found and returns its findings. Pure.

A new check is a function in CHECKS; its codes go into docs/operate/producer-ids.md.
"""

from collections.abc import Callable, Sequence

from safeproducer.cli.doctor.census import SMALL, TopicCensus
from safeproducer.cli.doctor.examined import Examined
from safeproducer.cli.doctor.finding import Finding, Severity
from safeproducer.cli.doctor.words import moment, some, span
from safeproducer.own_settings import PRODUCER_IDS_PER_HOUR
from safeproducer.policy.expiry import PRODUCER_ID_CONFIG, TRANSACTIONAL_ID_CONFIG, unsafe

_NO_RIGHT = frozenset({"CLUSTER_AUTHORIZATION_FAILED", "TOPIC_AUTHORIZATION_FAILED"})
_ASSUMED = "A day, Kafka's default, is assumed."


def producer_id_churn(examined: Examined) -> list[Finding]:
    """Many IDs that wrote little and then nothing: new producers again and again."""
    found = []
    for topic in examined.topics:
        busiest = topic.busiest
        if busiest is None or busiest.ids <= examined.rate:
            continue
        message = (
            f"{topic.topic}: {busiest.ids:,} producer IDs that wrote fewer than {SMALL:,} records to each partition "
            f"wrote for the last time within the hour from {moment(busiest.start)}; {examined.rate:,} are allowed "
            f"({PRODUCER_IDS_PER_HOUR}). {_whose(topic)}"
        )
        cure = (
            f"Find the application that makes producers for {topic.topic} again and again. Make one producer, "
            "keep it for the life of the process, and share it between threads. If so many producers are alive at "
            f"once, raise {PRODUCER_IDS_PER_HOUR}."
        )
        found.append(Finding(Severity.WARNING, "producer-id-churn", message, cure, topic=topic.topic))
    return found


def _whose(topic: TopicCensus) -> str:
    """Brokers keep neither client.id nor user, so only this host's ledger can name a line of code."""
    lines = sorted((topic.of_host or {}).items(), key=lambda item: -len(item[1]))
    if not lines:
        return "A broker keeps neither the client.id nor the user of an ID, and this host's ledger knows none of them."
    named = some([f"{len(ids):,} from {line}" for line, ids in lines])
    return (
        f"This host's ledger knows where these come from: {named}. A broker keeps no client.id or user of the others."
    )


def expiration_below_timeout(examined: Examined) -> list[Finding]:
    """The static rule of KIP-854's client half, for every broker."""
    configuration = examined.configuration
    if configuration is None or not configuration.idempotent:
        return []
    found = []
    for broker in examined.brokers:
        if broker.told.producer_id is None:
            continue
        problem = unsafe(configuration.timeout, configuration.socket_timeout, broker.told.producer_id)
        if problem is not None:
            message = f"Broker {broker.number}: {problem.sentence}."
            found.append(
                Finding(Severity.WARNING, "expiration-below-timeout", message, f"{problem.cure}.", broker=broker.number)
            )
    return found


def expiration_differs(examined: Examined) -> list[Finding]:
    """A leader move then shortens the time for which retries are safe."""
    by_time: dict[float, list[str]] = {}
    for broker in examined.brokers:
        if broker.told.producer_id is not None:
            by_time.setdefault(broker.told.producer_id, []).append(str(broker.number))
    if len(by_time) < 2:
        return []
    times = "; ".join(f"{seconds * 1000:.0f} on broker {some(numbers)}" for seconds, numbers in sorted(by_time.items()))
    return [
        Finding(
            Severity.WARNING,
            "expiration-differs",
            f"Brokers remember a producer ID for different times ({PRODUCER_ID_CONFIG}): {times}. When a leader moves, "
            "the new one may forget an ID earlier than the former one.",
            f"Set the same {PRODUCER_ID_CONFIG} on every broker.",
        )
    ]


def expiration_unreadable(examined: Examined) -> list[Finding]:
    """A broker that does not say for how long it remembers."""
    return [
        Finding(
            Severity.WARNING,
            "expiration-unreadable",
            f"Broker {broker.number} does not tell for how long it remembers a producer ID: {broker.told.reason}. "
            f"{_ASSUMED}",
            f"Grant DESCRIBE_CONFIGS on the cluster, or look up {PRODUCER_ID_CONFIG} (before Kafka 3.4 "
            f"{TRANSACTIONAL_ID_CONFIG}) there and give it as safeproducer.expiry.ms.",
            broker=broker.number,
        )
        for broker in examined.brokers
        if broker.told.producer_id is None
    ]


def rights_missing(examined: Examined) -> list[Finding]:
    """What this user may not see, by the right that it lacks."""
    found = []
    if any(broker.refused in _NO_RIGHT for broker in examined.brokers):
        found.append(
            _right(
                "This user may not read the brokers' configs", "DESCRIBE_CONFIGS on the cluster (kafka-acls --cluster)"
            )
        )
    for topic in examined.topics:
        if topic.error is not None and topic.error[0] in _NO_RIGHT:
            found.append(
                _right(f"This user may not describe the topic {topic.topic}", "DESCRIBE and READ on it", topic.topic)
            )
        elif any(one.error is not None and one.error[0] in _NO_RIGHT for one in topic.partitions):
            found.append(
                _right(f"This user may not see the producer IDs of {topic.topic}", "READ on this topic", topic.topic)
            )
    if examined.cluster is not None and examined.cluster.all_topics and not examined.topics:
        message = "No topic is there that this user may describe: the cluster has none, or DESCRIBE is missing."
        cure = "If there are topics, have an administrator grant DESCRIBE and READ on them."
        found.append(Finding(Severity.INFO, "rights-missing", message, cure))
    return found


def _right(what: str, right: str, topic: str | None = None) -> Finding:
    return Finding(Severity.WARNING, "rights-missing", f"{what}.", f"Have an administrator grant {right}.", topic=topic)


def partition_unreadable(examined: Examined) -> list[Finding]:
    """What leaders did not tell for another reason; one finding for each reason of a topic."""
    found = []
    for topic in examined.topics:
        reasons: dict[tuple[str, int | None], list[int]] = {}
        for one in topic.partitions:
            if one.error is not None and one.error[0] not in _NO_RIGHT:
                reasons.setdefault((one.error[1], one.leader), []).append(one.partition)
        for (reason, leader), partitions in reasons.items():
            which = some([str(partition) for partition in partitions])
            message = f"{topic.topic}: the producer IDs of partition {which} were not read: {reason.rstrip('.')}."
            cure = "Run the command again when each partition has a leader that answers."
            alone = partitions[0] if len(partitions) == 1 else None
            found.append(
                Finding(Severity.WARNING, "partition-unreadable", message, cure, topic.topic, alone, broker=leader)
            )
    return found


def host_over_limit(examined: Examined) -> list[Finding]:
    """This host has used the hour up."""
    return [
        Finding(
            Severity.WARNING,
            "host-over-limit",
            f"This host has used up its producer IDs of the hour for {ledger.name}: {ledger.in_hour:,} were taken, "
            f"{examined.rate:,} are allowed ({PRODUCER_IDS_PER_HOUR}); the next one is due in {span(ledger.wait)}."
            + "".join(f" {pattern}" for pattern in ledger.patterns),
            "Make one producer for each process and keep it. Until that is released, "
            "SAFEPRODUCER_PRODUCER_IDS_POLICY=refuse or delay in the environment stops the flood on this host.",
        )
        for ledger in examined.host.ledgers
        if ledger.wait > 0
    ]


def ledger_not_kept(examined: Examined) -> list[Finding]:
    """Producers are counted by process only."""
    return [
        Finding(
            Severity.WARNING,
            "ledger-not-kept",
            reason,
            "Give safeproducer.producer.ids.ledger (SAFEPRODUCER_PRODUCER_IDS_LEDGER) a directory on a local disk that "
            "the processes of this user may write to.",
        )
        for reason in examined.host.not_kept
    ]


CHECKS: Sequence[Callable[[Examined], list[Finding]]] = (
    producer_id_churn,
    expiration_below_timeout,
    expiration_differs,
    expiration_unreadable,
    rights_missing,
    partition_unreadable,
    host_over_limit,
    ledger_not_kept,
)


def check(examined: Examined) -> list[Finding]:
    """Run all checks."""
    return [finding for one in CHECKS for finding in one(examined)]
