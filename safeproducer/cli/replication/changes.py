"""The configs that `throttle` and `clear` change. Entries of lists are appended and subtracted, so others' stay."""

import time
from collections.abc import Iterator, Mapping, Sequence
from math import inf

from safeproducer.cli.common.connection import BrokerErrors, opened
from safeproducer.cli.common.finding import Finding, Severity, facts_of, unreadable
from safeproducer.cli.common.screen import Screen
from safeproducer.cli.common.settings import Setting
from safeproducer.cli.common.stop import Failure
from safeproducer.cli.replication.cluster import Cluster, refused
from safeproducer.cli.replication.report import Document, Rates, Target
from safeproducer.kafka.admin import Change, ConfigWriter
from safeproducer.policy import replication
from safeproducer.policy.replication import Facts, Moves, Side, ThrottledReplicas, rate_text

_AGAIN, _HIDDEN = 0.1, 1.0


def to_throttle(cluster: Cluster, wanted: Moves, rate: int, replace: bool) -> tuple[list[Change], Rates]:
    """The changes that limit these moves to a rate, and the other rates that stay because somebody set them."""
    facts, changes = cluster.facts, []
    for (topic, side), own in sorted(replication.throttled(wanted).items(), key=lambda item: item[0]):
        if (found := facts.lists.get((topic, side))) is None:
            raise Failure(f"{side('replicas')} of {topic} cannot be read: write partition:broker,... or *.")
        if new := own.entries - found.entries if not found.every else frozenset():
            changes.append(Change(topic, side("replicas"), "APPEND", str(ThrottledReplicas(new))))
    brokers = cluster.brokers & {broker for move in wanted.values() for side in move for broker in side}
    at = {(broker, side): facts.rates.get((broker, side)) for broker in sorted(brokers) for side in Side}
    kept = {key: now for key, now in at.items() if now is not None and now != rate and not replace}
    for (broker, side), now in at.items():
        if now != rate and (broker, side) not in kept:
            changes.append(Change(broker, side("rate"), "SET", str(rate)))
    return changes, kept


def to_clear(cluster: Cluster, target: Target) -> list[Change]:
    """The changes that remove what belongs to no move.

    With a target they are only explicit entries of its partitions, and rates of its brokers.

    An entry belongs to the move of its partition, `*` to any move of its topic, and a rate to the moves and the
    remaining lists that name its broker.
    """
    if cluster.unseen:
        topic = min(cluster.unseen)
        raise Failure(f"{topic} moves, and the user may not DESCRIBE it. Nothing was changed.", code="no-right")
    facts, changes = cluster.facts, []
    needed = {broker for move in cluster.moves.values() for side in move for broker in side}
    freed = {broker for replicas in target.values() for broker in replicas} if target else set(cluster.brokers)
    moving, whole = {topic for topic, _ in cluster.moves}, set(unreadable(facts))
    for (topic, side), found in sorted(facts.lists.items(), key=lambda item: item[0]):
        left = {
            (partition, broker)
            for partition, broker in found.entries
            if (topic, partition) not in cluster.moves and (not target or (topic, partition) in target)
        }
        every = found.every and not target and topic not in moving
        if found.every and not every:
            whole.add(topic)
        if every or left:
            changes.append(Change(topic, side("replicas"), "SUBTRACT", "*" if every else found.written(left)))
        freed |= {broker for _, broker in left}
        needed |= {broker for _, broker in found.entries - left}
    needed |= {broker for tp, one in facts.known.items() if tp[0] in whole for broker in one.replicas}
    for (broker, side), rate in sorted(facts.rates.items()):
        if rate is not None and broker in freed - needed:
            changes.append(Change(broker, side("rate"), "DELETE"))
    return changes


def rows(facts: Facts, changes: Sequence[Change]) -> list[Document]:
    found = []
    for of, config, operation, value in changes:
        topic, broker = (None, of) if isinstance(of, int) else (of, None)
        before = facts.rates.get((of, _side(config))) if isinstance(of, int) else str(facts.lists[of, _side(config)])
        row: Document = {"topic": topic, "broker": broker, "config": config, "operation": operation.lower()}
        found.append({**row, "value": value, "before": before})
    return found


def kept_findings(kept: Rates) -> Iterator[Finding]:
    for (broker, side), rate in sorted(kept.items()):
        text = f"{side('rate')} of broker {broker} stays {rate_text(rate)}: somebody has set it."
        yield Finding(Severity.WARNING, "replication-rate-kept", text, "Give --replace.", broker=broker)


# Brokers take each change by itself, and one that is refused in the middle would leave a throttle half set. So all are
# checked before any is made. A broker also says yes before its peers show the change, and it compares entries of a list
# as text: one with spaces in it cannot be subtracted, and does not show why. Such a list is written anew, once.
def make(changes: Sequence[Change], settings: Mapping[str, Setting], screen: Screen, timeout: float) -> list[Finding]:
    """Make the changes and read them back. All are checked first: raises Failure if one of them is refused."""
    writer = opened(ConfigWriter, settings, BrokerErrors(screen))
    for only_check in (True, False):
        for of, refusal in writer.change(changes, timeout, only_check=only_check).items():
            if refusal is not None:
                made = "Nothing was changed." if only_check else "Other changes may be made."
                raise refused(of, refusal, "changed", "ALTER_CONFIGS", made, exit_code=2 if only_check else 1)
    brokers = [one.of for one in changes if isinstance(one.of, int)]
    topics = {one.of for one in changes if isinstance(one.of, str)}

    began, again = time.monotonic(), False
    while True:
        facts = facts_of({}, writer.configs(brokers, timeout), writer.topic_configs(topics, timeout))
        unseen = [one for one in changes if not shows(facts, one)]
        if not unseen or (again and time.monotonic() >= began + timeout):
            texts = [f"{one.config} of {one.of} was changed, and does not show it." for one in unseen]
            cure = "Look again: safeproducer replication status."
            return [Finding(Severity.WARNING, "replication-change-not-seen", text, cure) for text in texts]
        if not again and time.monotonic() >= began + min(_HIDDEN, timeout):
            again = True  # spaces in a list, which brokers compare and do not show
            if lists := [_whole(facts, one) for one in unseen if one.operation == "SUBTRACT"]:
                writer.change(lists, timeout, only_check=False)
        time.sleep(_AGAIN)


def _whole(facts: Facts, change: Change) -> Change:
    """The list without these, written anew."""
    found, own = facts.lists[str(change.of), _side(change.config)], ThrottledReplicas.read(change.value or "")
    left = found.entries - own.entries if found is not None and own is not None else frozenset()
    return Change(change.of, change.config, "SET", str(ThrottledReplicas(left)))


def shows(facts: Facts, change: Change) -> bool:
    if isinstance(change.of, int):
        value = None if change.value is None else float(change.value)
        return facts.rates.get((change.of, _side(change.config)), inf) == value
    own, found = ThrottledReplicas.read(change.value or ""), facts.lists.get((change.of, _side(change.config)))
    if own is None or found is None:
        return False
    if change.operation == "APPEND":
        return found.every or own.entries <= found.entries
    return not (own.entries & found.entries or (own.every and found.every))


def _side(config: str) -> Side:
    return Side(config.partition(".")[0])
