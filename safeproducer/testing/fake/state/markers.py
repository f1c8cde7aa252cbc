"""The ends of transactions: time-outs, and the markers in the logs of their partitions."""

from safeproducer.testing.fake.rules.transactions import Transaction
from safeproducer.testing.fake.state.cluster_state import ClusterState
from safeproducer.testing.fake.state.topics import NO_LEADER, Partition, Topic
from safeproducer.testing.produce import marker, read_batch_headers


def pass_time(cluster: ClusterState) -> None:
    """Abort what takes too long, and go on with ends for which a leader was missing."""
    coordinators = cluster.coordinators
    for transaction in coordinators.transactions.values():
        due = transaction.due
        if due is not None and due <= cluster.clock.now_ms():
            transaction.prepare(commit=False, raises=True)
        if transaction.prepared:
            complete(cluster, transaction)


def complete(cluster: ClusterState, transaction: Transaction) -> None:
    """Write the markers of a prepared end. Where a leader or a replica is missing it stays prepared."""
    producer_id, _ = transaction.marker
    for place in sorted(transaction.partitions):
        topic = cluster.topics.get(place[0])
        gone = topic is None or place[1] >= len(topic.partitions)  # deleted, and perhaps made anew
        if topic is None or gone or _is_marked(cluster, transaction, topic, topic.partitions[place[1]]):
            transaction.partitions.discard(place)
            transaction.written.pop(place, None)
    if transaction.partitions:
        return
    for group_id in transaction.groups:
        if group_id in cluster.groups:
            cluster.groups[group_id].end_transaction(producer_id, commit=transaction.commits)
    transaction.complete(cluster.new_producer_id)
    cluster.changed()


def _is_marked(cluster: ClusterState, transaction: Transaction, topic: Topic, partition: Partition) -> bool:
    """Write the marker, if this leader has not; returns whether all replicas have it that have to."""
    if partition.leader == NO_LEADER:
        return False
    place, copies = (topic.name, partition.index), partition.copies
    by, end = transaction.written.get(place, (-1, 0))
    if by != partition.leader_epoch:
        write(cluster, topic, partition, transaction.marker, commit=transaction.commits)
        end = partition.log.end_bytes
        transaction.written[place] = partition.leader_epoch, end
    return copies is None or copies.committed >= end


def write(
    cluster: ClusterState, topic: Topic, partition: Partition, producer: tuple[int, int], by: int = 0, *, commit: bool
) -> None:
    """Append one marker, of this producer ID and epoch, at the leader. `by`: the epoch of the coordinator."""
    now = cluster.clock.now_ms()
    ((header, data),) = read_batch_headers(memoryview(marker(*producer, by, now, commit=commit)))
    offset = cluster.append(topic, partition, header, data)
    partition.transactions.end(producer[0], offset, commit=commit)
    for states in partition.states.values():
        states.mark(*producer, by, now)
    cluster.follow()
    cluster.changed()
