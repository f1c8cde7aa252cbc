"""What happens to a producer with several lanes while it writes: each is a call on a cluster and its tap."""

import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from integration.faults.load import Load
from integration.kafka.cluster import KafkaCluster
from integration.kafka.poll import until
from integration.tap import BatchSeen, Tap

RECENT = 2_000
"""Batches and answers to look through for the one before another."""
PROMPT = 0.5
"""Seconds after which an answer may come too late: the client asks for it again, or has forgotten what it was about."""
CALM = 0.3
"""Seconds between two of them: lanes come and go meanwhile."""
OUT_OF_ORDER_SEQUENCE = 45
OFTEN = 5
"""How often everything else happens before a broker cannot be reached again: most records are to be delivered."""
LIFTS = 4.0
"""Seconds for which a broker is not reached: longer than the records' deadline."""


class Hardships:
    """One after the other in a fixed order, on the thread of `run`. `met` counts them."""

    def __init__(self, cluster: KafkaCluster, tap: Tap, topic: str, load: Load, seed: int = 1) -> None:
        self.met: Counter[str] = Counter()
        self._cluster = cluster
        self._tap = tap
        self._topic = topic
        self._load = load
        self._random = random.Random(seed)
        self._partitions = len(cluster.admin.partitions(topic))

    def run(self, again: bool) -> None:
        """All of them once; with `again` for as long as records come. Tells the load at the end."""
        steps: tuple[Callable[[], object], ...] = (
            self.lose_answers,
            self.move_leader,
            self.cut,
            self.lose_requests,
            self.fail_a_lane,
            self.move_leader,
            self.cut,
            self.lose_answers,
        )
        try:
            self._wait_for(0.05)
            for step in itertools.cycle((*steps * OFTEN, self.black_hole)) if again else (*steps, self.black_hole):
                if self._reached(0.85):
                    break
                step()
                self.met[step.__name__] += 1
                time.sleep(CALM)
        finally:
            self._tap.resume()
            self._load.fault_over.set()

    def lose_answers(self) -> None:
        """The broker has written, the client never hears of it, and the connection is gone."""
        self._tap.drop_answers(n=3, topic=self._topic)
        self._dropped()

    def lose_requests(self) -> None:
        self._tap.drop_requests(n=3, topic=self._topic)
        self._dropped()

    def cut(self) -> None:
        """All connections end, whatever is on its way."""
        assert self._tap.cut() > 0

    def move_leader(self) -> None:
        partition = self._random.randrange(self._partitions)
        old = self._cluster.admin.leader(self._topic, partition)
        new = self._random.choice([node for node in self._cluster.nodes if node != old])
        self._cluster.admin.move_leader(self._topic, partition, new)

    def black_hole(self) -> None:
        """A broker is there and nothing comes through, until records have reached their deadline."""
        node = self._cluster.admin.leader(self._topic, 0)
        self._tap.pause(broker=node)
        time.sleep(LIFTS)
        self._tap.resume(broker=node)

    def fail_a_lane(self) -> None:
        """A broker says that a batch is out of sequence, which is fatal to a producer; it has written it, in truth.

        Said only of one whose predecessor was acknowledged. Of another one librdkafka believes that it was not written,
        and sends it again in a new epoch; that is true of a broker that found a gap, and never a lie but here.
        """
        left = [1]

        def edit(body: dict[str, Any]) -> dict[str, Any] | None:
            if not left:
                return None
            left.pop()
            for topic in body["responses"]:
                for answer in topic["partition_responses"]:
                    answer["error_code"] = OUT_OF_ORDER_SEQUENCE
            return body

        self._tap.edit_answers("Produce", edit, of=self._all_follow)
        until(lambda: not left, "an answer was changed")
        self._tap.edit_answers("Produce", None)

    def _all_follow(self, batches: Sequence[BatchSeen]) -> bool:
        """Whether the client knows of all batches before these that they were written."""
        seen, answers = self._tap.batches[-RECENT:], self._tap.answers[-RECENT:]
        acknowledged = {
            (answer.connection, answer.correlation_id, answer.partition)
            for answer in answers
            if answer.delivered and not answer.error_code and answer.duration < PROMPT
        }
        ends = {
            (one.key, one.epoch, one.base_sequence + one.count)
            for one in seen
            if (one.connection, one.correlation_id, one.partition) in acknowledged
        }
        return all((one.key, one.epoch, one.base_sequence) in ends for one in batches)

    def _dropped(self) -> None:
        until(lambda: not self._tap.drops_left or self._reached(0.89), "frames were dropped")

    def _reached(self, share: float) -> bool:
        account = self._load.account
        return account.accepted >= account.records.count * share or self._load.fatal is not None

    def _wait_for(self, share: float) -> None:
        until(lambda: self._reached(share), f"{share:.0%} of the records were accepted", 60)
