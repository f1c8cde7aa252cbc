"""Replication throttles (KIP-73) by the configs of topics and brokers, and those that no move needs. Pure."""

from collections.abc import Collection, Iterator, Mapping

from safeproducer.cli.common.finding import Finding, Severity
from safeproducer.kafka.admin import Configs
from safeproducer.policy.replication import Facts, Replicas, Side, ThrottledReplicas
from safeproducer.policy.types import TopicPartition

_CLEAR = "Remove both lists, and the rates that no move needs: safeproducer replication clear."


def facts_of(
    known: Mapping[TopicPartition, Replicas], brokers: Mapping[int, Configs], topics: Mapping[str, Configs]
) -> Facts:
    """The facts without those that were not told. A list that cannot be read is left out, too."""
    asked = {broker: one.values for broker, one in brokers.items() if one.error is None}
    found = {(broker, side): values.get(side("rate")) for broker, values in asked.items() for side in Side}
    told = {topic: one.values for topic, one in topics.items() if one.error is None}
    texts = {(topic, side): values.get(side("replicas")) or "" for topic, values in told.items() for side in Side}
    return Facts(
        known,
        {key: one for key, text in texts.items() if (one := ThrottledReplicas.read(text)) is not None},
        {key: None if text is None else float(text) for key, text in found.items()},
        minimum={topic: int(values.get("min.insync.replicas") or 1) for topic, values in told.items()},
    )


def unreadable(facts: Facts) -> list[str]:
    """The topics with a list that cannot be read."""
    return sorted({topic for topic in facts.minimum for side in Side if (topic, side) not in facts.lists})


def lists_unreadable(facts: Facts) -> Iterator[Finding]:
    """Lists of another form than Kafka's."""
    for topic in unreadable(facts):
        text, cure = f"A list of throttled replicas of {topic} cannot be read.", "Write partition:broker,... or *."
        yield Finding(Severity.WARNING, "replication-list-unreadable", text, cure, topic)


def left_over(facts: Facts, brokers: Collection[int], moving: Collection[str]) -> Iterator[Finding]:
    """Lists and rates that no move needs. `moving`: the topics with a move; their lists are none of them."""
    yield from lists_unreadable(facts)
    silent = set(brokers) - {broker for broker, _ in facts.rates}
    listed: dict[str, set[tuple[int, Side]]] = {}
    for (topic, side), one in facts.lists.items():
        named = brokers if one.every else {broker for _, broker in one.entries}
        listed.setdefault(topic, set()).update((broker, side) for broker in named)
    for topic in sorted(listed.keys() - set(moving)):
        rated = sorted(broker for broker, side in listed[topic] if facts.rates.get((broker, side)) is not None)
        text, cure = f"{topic} lists replicas, and none of it moves", _CLEAR
        if rated:
            text += f": if a broker restarts, acknowledgements may wait for it, at the rate of broker {rated[0]}."
            yield Finding(Severity.WARNING, "replication-throttle-left-over", text, cure, topic)
        elif listed[topic] and not silent & {broker for broker, _ in listed[topic]}:
            text += ": no rate is set, and the next one limits them."
            yield Finding(Severity.WARNING, "replication-list-without-rate", text, cure, topic)
    # Kafka's tool sets both rates of each broker of a move.
    needed = {broker for entries in listed.values() for broker, _ in entries}
    for broker in sorted({broker for (broker, _), rate in facts.rates.items() if rate is not None} - needed):
        text = f"Broker {broker} has a rate, and no topic lists a replica of it."
        yield Finding(Severity.INFO, "replication-rate-without-list", text, _CLEAR, broker=broker)
