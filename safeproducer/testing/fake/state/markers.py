"""The ends of transactions: time-outs, and the markers in the logs of their partitions."""

from safeproducer.testing.fake.rules.transactions import Transaction
from safeproducer.testing.fake.state.cluster_state import ClusterState
from safeproducer.testing.fake.state.topics import NO_LEADER, Partition, Topic
from safeproducer.testing.produce import marker, read_batch_headers

COORDINATOR_EPOCH = 0


def watch(cluster: ClusterState, transaction: Transaction) -> None:
    """It is ongoing, or its end is prepared: time may end it."""
    busy = cluster.coordinators.busy
    busy[transaction.id] = transaction


def pass_time(cluster: ClusterState) -> None:
    """Abort what takes too long, and go on with ends for which a leader was missing."""
    busy = cluster.coordinators.busy
    for transaction in [*busy.values()]:
        due = transaction.due
        if due is not None and due <= cluster.clock.now_ms():
            transaction.prepare(commit=False, raises=True)
        if transaction.prepared:
            complete(cluster, transaction)


def complete(cluster: ClusterState, transaction: Transaction) -> None:
    """Write the markers of a prepared end. Where a partition has no leader the end stays prepared."""
    producer_id, epoch = transaction.marker
    for name, index in sorted(transaction.partitions):
        topic = cluster.topics.get(name)
        if topic is not None and topic.partitions[index].leader != NO_LEADER:
            write(cluster, topic, topic.partitions[index], (producer_id, epoch), commit=transaction.commits)
        if topic is None or topic.partitions[index].leader != NO_LEADER:
            transaction.partitions.discard((name, index))
    if transaction.partitions:
        return
    for group_id in transaction.groups:
        if group_id in cluster.groups:
            cluster.groups[group_id].end_transaction(producer_id, commit=transaction.commits)
    transaction.complete(cluster.new_producer_id)
    busy = cluster.coordinators.busy
    busy.pop(transaction.id, None)
    cluster.changed()


def write(
    cluster: ClusterState,
    topic: Topic,
    partition: Partition,
    producer: tuple[int, int],
    coordinator_epoch: int = COORDINATOR_EPOCH,
    *,
    commit: bool,
) -> None:
    """Append one marker, of this producer ID and epoch, at the leader."""
    now, log = cluster.clock.now_ms(), partition.log
    ((header, data),) = read_batch_headers(memoryview(marker(*producer, coordinator_epoch, now, commit=commit)))
    offset, before = log.end_offset, log.end_bytes
    log.append(header, data, partition.leader_epoch)
    partition.transactions.end(producer[0], offset, commit=commit)
    for states in partition.states.values():
        states.mark(*producer, coordinator_epoch, now)
    if cluster.fetchers is not None:
        cluster.follow()
        cluster.fetchers.append(topic, partition, log.end_bytes - before)
        cluster.follow()
    cluster.changed()
