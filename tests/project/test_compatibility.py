"""docs/reference/compatibility.md: what is public stays. New names may come; add them here with the release.

Whoever takes a name away from these lists breaks the promise, unless the release before has warned.
"""

import argparse
import dataclasses
from collections.abc import Mapping
from pathlib import Path

import pytest

import safeproducer
from safeproducer import spark, testing
from safeproducer.cli import main
from safeproducer.cli.run.command import _MODES
from safeproducer.policy.hold_reason import HoldReason
from safeproducer.settings.own_settings import OWN_SETTINGS
from safeproducer.takeover.producers import account

FROZEN = {
    "names": """
        CallSite CallbackReentryError CloseReport ConfigurationError ConfigurationTypeError ConfigurationValueError
        DeliveryError FatalError ForkedProducerError Health HealthReason HoldReason Hook LanesChanged Outcome
        PartitionSnapshot ProducerChurn ProducerClosedError ProducerIdLimitError ProducerIdLimited ProducerInfo
        ProducerRenewed QueueFullError Record RecordAbandoned RecordsLost ReplicationChanged ReplicationSnapshot
        ReplicationState SafeProducer SafeProducerError SafeSerializingProducer Snapshot Throttled TransactionAborted
        TransactionEnded TransactionError TransactionUnknown TransactionsSnapshot WindowChanged WindowSnapshot
        BatchReport KafkaWriteError SafeProducerDataSource SafeProducerSink FakeCluster""",
    "methods": """
        produce produce_batch poll flush purge close snapshot explain health list_topics cluster_id set_sasl_credentials
        init_transactions begin_transaction commit_transaction abort_transaction send_offsets_to_transaction""",
    "settings": """
        safeproducer.expiry safeproducer.expiry.ms safeproducer.lanes safeproducer.max.block.ms safeproducer.mode
        safeproducer.ordering safeproducer.producer.ids.ledger safeproducer.producer.ids.per.hour
        safeproducer.producer.ids.policy safeproducer.producer.ids.reuse.ms safeproducer.replication
        safeproducer.window""",
    "hooks": """
        client_error fatal_error lanes_changed producer_churn producer_closed producer_created producer_id_limited
        record_accepted record_refused record_resolved records_lost replication_changed throttled window_changed""",
    "commands": "demo doctor replication run observe auto held passthrough",
    "summary": """
        pid command mode producers accepted delivered unknown not_written without_report producer_ids
        throttled_seconds seconds""",
    "reasons to hold": """
        expiry first_acknowledgement in_flight key_order lane_change lanes_busy lanes_limited leader_silent linger
        long_round_trip max_in_flight mode_held outdated_metadata preparing_lane probing producer_id_limit
        producer_id_quota quota_retry sequence_gap throttled turn unknown_outcome unknown_topic window""",
}
BASES = {
    "CallbackReentryError": "RuntimeError",
    "ConfigurationError": "KafkaException",
    "ConfigurationTypeError": "ConfigurationError TypeError",
    "ConfigurationValueError": "ConfigurationError ValueError",
    "DeliveryError": "KafkaError",
    "FatalError": "KafkaException",
    "ForkedProducerError": "RuntimeError",
    "ProducerClosedError": "RuntimeError",
    "ProducerIdLimitError": "KafkaException",
    "QueueFullError": "BufferError",
    "SafeProducer": "Producer",
}
FIELDS = {
    "CallSite": "filename line function",
    "CloseReport": "accepted delivered failed left seconds",
    "Health": "ok ready reasons",
    "HealthReason": "code sentence since cure",
    "LanesChanged": "producer before after reason",
    "PartitionSnapshot": "topic partition accepted delivered failed unresolved held why reason replication",
    "ProducerChurn": "cluster principal site made_by_site made_in_all limit_per_hour advice pattern seen",
    "ProducerIdLimited": "producer policy retry_after churn",
    "ProducerInfo": "client_id bootstrap_servers principal transactional_id idempotent site",
    "Record": "producer topic value key partition timestamp headers state headers_changed hold",
    "RecordsLost": "producer reason count records",
    "ReplicationChanged": "producer topic partition before after",
    "ReplicationSnapshot": """
        state moving left_over in_sync replicas minimum broker side limit needed since age delays sentence cure""",
    "Snapshot": """
        state client_id bootstrap_servers principal transactional_id idempotent known_producer_ids accepted delivered
        failed unresolved interrupted queued not_written unknown held handed_over splits lanes windows partitions
        last_error throttled_brokers producer_ids""",
    "Throttled": "producer broker_id broker_name seconds",
    "WindowChanged": "producer topic partition before after reason",
    "WindowSnapshot": "topic partition size source age reason",
}


def commands() -> set[str]:
    (subparsers,) = [one for one in main._parser()._actions if isinstance(one, argparse._SubParsersAction)]
    return {*subparsers.choices, *_MODES}


def now() -> Mapping[str, set[str]]:
    return {
        "names": {*safeproducer.__all__, *spark.__all__, *testing.__all__},
        "methods": set(dir(safeproducer.SafeProducer)),
        "settings": set(OWN_SETTINGS),
        "hooks": set(vars(safeproducer.Hook)),
        "commands": commands(),
        "summary": set(account.totals()),
        "reasons to hold": {reason.value for reason in HoldReason},
    }


@pytest.mark.parametrize("kind", FROZEN)
def test_public_names_stay(kind: str) -> None:
    """Also those that no Python code imports."""
    assert sorted(set(FROZEN[kind].split()) - now()[kind]) == []


def test_errors_keep_their_bases_and_events_their_fields() -> None:
    """Handlers are written for the bases, and code reads the fields."""
    for name, bases in BASES.items():
        kinds = {kind.__name__ for kind in getattr(safeproducer, name).__mro__}
        assert set(bases.split()) <= kinds, name
        assert name in ("DeliveryError", "SafeProducer") or "SafeProducerError" in kinds, name
    for name, fields in FIELDS.items():
        found = {field.name for field in dataclasses.fields(getattr(safeproducer, name))}
        assert set(fields.split()) - found == set(), name


def test_promise_names_what_is_frozen() -> None:
    """The page, beside this list."""
    text = (Path(__file__).parents[2] / "docs/reference/compatibility.md").read_text(encoding="utf-8")
    kinds = ("__all__", "Settings", "Errors", "Hooks", "Commands", "HoldReason", "summaries")
    assert [word for word in kinds if word not in text] == []
