"""On the driver of an exactly-once sink: whether the slots are where a run begins, before its first micro-batch."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

from safeproducer.errors import ConfigurationError
from safeproducer.kafka.admin import ClusterReader
from safeproducer.kafka.native import KafkaException, NativeProducer
from safeproducer.kafka.positions import SILENT, Positions
from safeproducer.kafka.properties import connection_settings
from safeproducer.spark.guarantee import FENCED, MARKER_TOPIC, SINK_ID, ExactlyOnce, explained
from safeproducer.spark.java_settings import refused
from safeproducer.spark.markers import Marker, Print, check_former, check_start
from safeproducer.spark.options import Options

_WITHIN = 30.0
_CONFIGS_WITHIN = 5.0
_RETENTION = "offsets.retention.minutes"
_DAY = 24 * 60


def begin(options: Options, sink: ExactlyOnce, batch_id: int, query_id: str) -> tuple[str, ...]:
    """Sentences to tell once. Raises ConfigurationError when rows might be written twice, or markers would not last."""
    try:
        config = {**options.config, **options.resolve_secrets()}
        notes = _check_retention(config, sink)
        with closing(Positions(config, sink.claim, sink.marker_topic, _WITHIN)) as claim:
            if claim.partitions() < sink.slots:
                raise _without_topic(sink, options.config["bootstrap.servers"], claim.partitions())
            _claim(config, claim, sink, batch_id, query_id)
    except ConfigurationError:
        raise  # it says what is wrong, and is a KafkaException, too
    except KafkaException as error:
        code, text = error.args[0].name(), str(error.args[0].str())
    else:
        return notes
    problem = "another driver began with it at the same moment" if code in FENCED else "its markers cannot be read"
    way_out = "Run one query with this name. Its driver needs the rights of the tasks, their secrets, and brokers"
    raise refused(SINK_ID, sink.sink_id, f"{problem}: {explained(code, text, sink)}", way_out)


def _claim(config: dict[str, object], claim: Positions, sink: ExactlyOnce, batch_id: int, query_id: str) -> None:
    """Say how many slots there are, before any row is written: a run with another number finds no marker of these.

    Two drivers may begin at once. The init of each fences the other, and each reads behind its own init: whoever finds
    nothing, or what the other has replaced since, cannot commit.
    """
    owner = _owner(config, sink, "slots")
    (said,) = claim.committed(range(1))
    before = (Marker.of(*said, sink) or Marker(sink.slots, "", Print())).batch
    check_start(sink, before, _markers(config, sink), batch_id, query_id)
    if before != sink.slots:
        # A driver that stood still, and its tasks, still have the slots of before. They are fenced as by a task, and
        # those that come later find another query's marker in each.
        former = replace(sink, slots=before)
        owners = [_owner(config, former, slot) for slot in range(before)]
        check_former(former, _markers(config, former), batch_id, query_id)
        with closing(Positions(config, former.group, sink.marker_topic, _WITHIN)) as markers:
            for slot, one in enumerate(owners):
                _commit(one, markers, slot, Marker.left(batch_id, sink.slots))
    _commit(owner, claim, 0, Marker(sink.slots, "slots", Print()))


def _owner(config: dict[str, object], sink: ExactlyOnce, slot: int | str) -> NativeProducer:
    """A producer that has fenced whoever had the slot: the transaction that was left is settled."""
    owner = NativeProducer({**connection_settings(config), **sink.settings(slot), "log_level": 0}, logger=SILENT)
    owner.init_transactions(_WITHIN)
    return owner


def _commit(owner: NativeProducer, positions: Positions, partition: int, marker: Marker) -> None:
    owner.begin_transaction()
    positions.send_to(owner, partition, marker.batch, marker.text())
    owner.commit_transaction(_WITHIN)


def _markers(config: dict[str, object], sink: ExactlyOnce) -> list[Marker | None]:
    """The markers of all slots. A worker may have died with a transaction open: none is told until it ends."""
    with closing(Positions(config, sink.group, sink.marker_topic, sink.transaction_timeout + _WITHIN)) as markers:
        return [Marker.of(*one, sink) for one in markers.committed(range(sink.slots))]


def _check_retention(config: dict[str, object], sink: ExactlyOnce) -> tuple[str, ...]:
    reader = ClusterReader(config, error_cb=lambda _: None, logger=SILENT)
    told = reader.configs(reader.brokers(_WITHIN), _CONFIGS_WITHIN).values()
    minutes = [int(text) for one in told if (text := one.values.get(_RETENTION)) is not None and text.isdigit()]
    if not minutes:
        return (f"{_RETENTION} of the brokers cannot be read: a query that pauses for longer loses its markers",)
    if min(minutes) < _DAY:
        problem = f"brokers forget its markers {min(minutes)} minutes after a micro-batch ({_RETENTION})"
        raise refused(SINK_ID, sink.sink_id, problem, "Set that to a week, and to a day at least")
    return ()


def _without_topic(sink: ExactlyOnce, servers: str, partitions: int) -> Exception:
    problem = f"it has {partitions} partitions, and each of {sink.slots} slots needs one"
    command = f"kafka-topics.sh --bootstrap-server {servers} --topic {sink.marker_topic} --partitions {sink.slots}"
    how = f"Run {command} {'--alter' if partitions else '--create'}"
    return refused(MARKER_TOPIC, sink.marker_topic, problem, how)
