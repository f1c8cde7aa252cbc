"""Why records wait in this process instead of being inside librdkafka, as codes for programs and text for people."""

from __future__ import annotations

from enum import StrEnum, unique
from typing import Self

_WAITS_FOR_ANSWER = ("probing", "max_in_flight", "window", "in_flight", "lanes_busy", "key_order")
_UNCHANGED_BY_RECORDS = ("throttled", "probing", "max_in_flight", "window")


@unique
class HoldReason(StrEnum):
    """Why the records of a partition wait. A member is its code, a string that does not change: a label for metrics.

    - `template`: a predicate whose subject is the partition, with `{leader}` and `{seconds}` where they are known;
      `PartitionSnapshot.why` is the sentence made of it.
    - `cure`: what an operator can do, None where waiting is all there is to do.
    - `kip`: the KIP that this comes from, None where there is none.
    - `waits_for_answer`: an answer ends it that is under way.
    - `unchanged_by_records`: no further record changes it.

    Constants: safe to use from any thread.
    """

    template: str
    cure: str | None
    kip: str | None
    waits_for_answer: bool
    unchanged_by_records: bool

    THROTTLED = (
        "throttled",
        "waits because {leader} throttles this client for another {seconds:.1f} s (quota)",
        "Produce less, or have the quota of this user or client.id raised.",
        "KIP-219",
    )
    PROBING = (
        "probing",
        "waits because {leader} throttled this client lately and gets as much as one batch at a time for now",
        None,
        "KIP-219",
    )
    MAX_IN_FLIGHT = (
        "max_in_flight",
        "waits because {leader} has as many unanswered batches as max.in.flight.requests.per.connection allows",
        "Raise max.in.flight.requests.per.connection, or leave it out.",
    )
    WINDOW = (
        "window",
        "waits for an acknowledgement: as many of its batches are under way as its leader remembers",
        "Have the brokers remember and announce more batches of a producer.",
        "KIP-1269",
    )
    IN_FLIGHT = (
        "in_flight",
        "waits for the acknowledgement of the batch before it",
        "If the order of each key is enough, safeproducer.ordering=key lets several batches of a partition go at once.",
    )
    LINGER = ("linger", "gathers a batch for another {seconds:.3f} s (linger.ms)", "Lower linger.ms, or call flush().")
    MODE_HELD = (
        "mode_held",
        "is held back by safeproducer.mode=held",
        "With safeproducer.mode=auto only what has to wait is held back.",
    )
    FIRST_ACKNOWLEDGEMENT = ("first_acknowledgement", "waits for the first acknowledgement of a broker")
    LONG_ROUND_TRIP = ("long_round_trip", "is held back because the round trip is longer than twice linger.ms")
    PREPARING_LANE = (
        "preparing_lane",
        "waits for the acknowledgement of what went before it, while lanes for so long a round trip are being made",
    )
    PRODUCER_ID_QUOTA = (
        "producer_id_quota",
        "is held back since a quota on producer IDs rejected this producer",
        "Make fewer producers and keep them, or have producer_ids_rate raised.",
        "KIP-936",
    )
    PRODUCER_ID_LIMIT = (
        "producer_id_limit",
        "waits for a producer ID, for another {seconds:.1f} s: this host has used up those of the hour",
        "Make fewer producers and keep them, or raise safeproducer.producer.ids.per.hour.",
        "KIP-936",
    )
    RENEWING = (
        "renewing",
        "waits since a native producer failed, for another {seconds:.1f} s at least",
        "Look for the fatal error in the log; safeproducer.producer.ids.per.hour limits how often one is made anew.",
    )
    QUOTA_RETRY = (
        "quota_retry",
        "waits because a quota rejected a batch of it, which goes first once what is under way has ended",
        "Make fewer producers and keep them, or have producer_ids_rate raised.",
        "KIP-936",
    )
    LEADER_SILENT = (
        "leader_silent",
        "waits because {leader} acknowledges nothing",
        "Look at that broker, at the followers of the partition and at the network between.",
    )
    BACKLOG = (
        "backlog",
        "waits for acknowledgements: librdkafka has records of it that have used up a third of message.timeout.ms",
        "Produce less, or give records more time: message.timeout.ms.",
    )
    OUTDATED_METADATA = (
        "outdated_metadata",
        "waits until its lane has learned of the partitions of its topic and who leads them",
    )
    UNKNOWN_TOPIC = (
        "unknown_topic",
        "waits until a broker describes its topic",
        "Create the topic, or grant DESCRIBE on it.",
    )
    NO_BROKER = (
        "no_broker",
        "waits for a broker: none is connected",
        "Check bootstrap.servers, that its brokers run, and that security.protocol is what their port expects.",
    )
    UNKNOWN_OUTCOME = (
        "unknown_outcome",
        "stays on its lane until an acknowledgement, because a record of it ended there with unknown outcome",
        None,
        "KIP-98",
    )
    SEQUENCE_GAP = (
        "sequence_gap",
        "waits because a purge of its lane may have left a gap in the sequence numbers: it takes one batch at a time",
        None,
        "KIP-98",
    )
    EXPIRY = (
        "expiry",
        "waits while records without an acknowledgement leave librdkafka (delivery timeout, or producer ID expiration)",
        "Look at the brokers that do not answer; delivery.timeout.ms says how long they have.",
        "KIP-91",
    )
    LANE_CHANGE = ("lane_change", "waits until its new lane is ready and the records before it have left the other one")
    LANES_BUSY = (
        "lanes_busy",
        "waits for a lane: each has a batch of it under way",
        "Raise safeproducer.lanes, or leave it out.",
    )
    LANES_LIMITED = (
        "lanes_limited",
        "waits for a lane: each has a batch of it under way, and one more would take a producer ID beyond the limit",
        "Keep the producers of this host, or raise safeproducer.producer.ids.per.hour.",
        "KIP-936",
    )
    KEY_ORDER = (
        "key_order",
        "waits for acknowledgements of earlier records with the same keys",
        "Spread the records over more keys, or use safeproducer.ordering=none where no order is needed.",
    )
    TURN = ("turn", "waits for the producer's own thread to look at it")

    def __new__(cls, code: str, template: str = "", cure: str | None = None, kip: str | None = None) -> Self:
        member = str.__new__(cls, code)
        member._value_ = code
        member.template, member.cure, member.kip = template, cure, kip
        member.waits_for_answer, member.unchanged_by_records = code in _WAITS_FOR_ANSWER, code in _UNCHANGED_BY_RECORDS
        return member
