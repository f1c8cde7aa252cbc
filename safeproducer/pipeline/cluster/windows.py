"""How many batches the leaders of a producer's partitions remember (KIP-1269): who is to be asked, and for whom.

Each leader is asked once for a topic, whatever the number of lanes and partitions; again while that is in use, so that
a lowered value is known before long; and at once when the leader changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from safeproducer.kafka.native import KafkaException
from safeproducer.pipeline.cluster.asker import Asker, Question
from safeproducer.pipeline.cluster.cluster_view import ClusterView, next_step
from safeproducer.policy.cluster_metadata import NO_EPOCH
from safeproducer.policy.types import NEVER, TopicPartition
from safeproducer.policy.window import Announcement, Source, Window, said
from safeproducer.runtime import clock

if TYPE_CHECKING:
    from safeproducer.kafka.admin import Admin

REFRESH = 30.0  # seconds after which an announcement that is in use is asked for again
_SILENT_FOR = 5.0  # seconds after which a leader that announces nothing is asked again
WHAT = "how many batches it remembers for"


@dataclass(eq=False)
class Windows:
    """`budget()` and `tell()` on the sender's thread, `known()` from any; the asker's thread admin.

    - `fixed`: safeproducer.window when it is a number; then nobody is asked.
    - `refresh`: seconds after which an announcement is asked for again; believed for twice as long.
    - `changed(tp, before, after)`: a window has another size.
    """

    _fixed: int | None
    _refresh: float
    _cluster: ClusterView
    _asker: Asker
    _changed: Callable[[TopicPartition, Window, Window], None]
    _told: dict[TopicPartition, Window] = field(default_factory=dict)  # windows of the partitions in use, as told

    def budget(self, tp: TopicPartition, now: float) -> Window:
        """How many batches of this partition may be unresolved at once."""
        if self._fixed is not None:
            return Window(self._fixed, Source.SETTING, None, "safeproducer.window says so")
        window, node, since = self._cluster.window(tp, 2 * self._refresh, now)
        self._told.setdefault(tp, window)
        if node is not None:
            self._asker.want(Question(WHAT, node, tp[0]), self.ask, now, since, self._refresh)
        return window

    def known(self, now: float) -> dict[TopicPartition, Window]:
        """The windows of all partitions in use."""
        return {tp: self._cluster.window(tp, 2 * self._refresh, now)[0] for tp in sorted(self._told.copy())}

    def tell(self, now: float) -> None:
        """Look whether windows have changed; have new leaders asked before the next batch needs their answer."""
        for tp, before in self._told.copy().items():
            after, node, since = self._cluster.window(tp, NEVER, now)
            self._told[tp] = after
            if after.size < before.size and node is not None:
                self._asker.want(Question(WHAT, node, tp[0]), self.ask, now, since, self._refresh)
            if after.size != before.size:
                self._changed(tp, before, after)

    def ask(self, admin: Admin, question: Question) -> float | None:
        """Ask one leader, and take note of the answer; in how many seconds to ask again, None after a pause."""
        # The leader, or its epoch, may change while an answer is on its way, which then is of the former one. Where
        # that may be so, the question is asked again at once (0.0).
        topic, node = question.topic, cast("int", question.node)
        at, asked, partitions = clock.monotonic(), next_step(), self._cluster.partitions
        without_epoch = [tp for tp in self._led(node, topic) if partitions.info(tp).epoch == NO_EPOCH]
        try:
            answer = admin.window(node, topic)
        except KafkaException as error:
            cause, before = error.args[0], self._cluster.broker_info(node).windows.get(topic)
            if before is None or before.window.at is None:  # else that is believed until it is too old
                why = f"broker {node} did not tell: {cause.name()}: {cause.str()}"
                self._cluster.said(node, topic, said(Announcement(None, Source.ASSUMED, why), asked, at))
            return None
        led = self._led(node, topic)
        if any(tp in led and partitions.info(tp).epoch != NO_EPOCH for tp in without_epoch):
            return 0.0  # the answer may be of an older epoch than the one that was learnt meanwhile
        self._cluster.said(node, topic, said(answer, asked, at))
        if not led:
            return NEVER
        if any(self._cluster.window(tp, NEVER, at)[2] > asked for tp in led):
            return 0.0
        return _SILENT_FOR if answer.value is None else self._refresh

    def _led(self, node: int, topic: str) -> list[TopicPartition]:
        """The partitions in use that this broker leads."""
        return [tp for tp in self._told.copy() if tp[0] == topic and self._cluster.partitions.leader(*tp) == node]
