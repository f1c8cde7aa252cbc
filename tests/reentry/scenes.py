"""Run in a process of its own: public methods called from inside the producer's own calls, and from signal handlers.

`python -m tests.reentry.scenes (inside PLACE | signal CALL) MODE` prints a JSON object a line; a process that
hangs shows its threads and ends itself.
"""

import collections
import contextlib
import faulthandler
import gc
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from safeproducer import ProducerClosedError, SafeProducer
from safeproducer.hooks import Hook
from safeproducer.testing import FakeCluster
from tests.clusters import cluster_of

HANGS = 40.0
"""Seconds after which nothing comes any more."""
MODES: dict[str, dict[str, Any]] = {
    "auto": {},
    "held": {"safeproducer.mode": "held"},
    "key": {"safeproducer.mode": "held", "safeproducer.ordering": "key"},
}
SHORT = 0.3
RECORDS = 300
SLOW = 0.4
TOPIC = "t"


def say(**told: Any) -> None:
    print(json.dumps(told, default=str), flush=True)


class Scene:
    """A producer, the cluster it writes to, and what became of its records."""

    def __init__(self, mode: str, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.done = threading.Event()
        self.began = False
        self.produced: list[bytes] = []
        self.told: collections.Counter[bytes] = collections.Counter()
        self.failed = 0
        self._mode = mode
        self.producer: Any = None
        self.closes = True
        """Whether close() is called, too."""

    def make(self, hook: Hook | None = None, **config: Any) -> Any:
        """A producer that has written a record."""
        settings = {"bootstrap.servers": self.cluster.bootstrap, "enable.idempotence": True, "log_level": 0}
        settings |= {"reconnect.backoff.max.ms": 200} | {name.replace("_ms", ".ms"): v for name, v in config.items()}
        self.producer = SafeProducer(settings | MODES[self._mode], hooks=() if hook is None else [hook])
        self.produce(b"warm")
        assert self.producer.flush(30) == 0
        return self.producer

    def produce(self, value: bytes, then: Callable[..., Any] | None = None) -> None:
        def told(error: Any, message: Any) -> None:
            self.told[message.value()] += 1
            self.failed += error is not None
            if then is not None:
                then()

        self.producer.produce(TOPIC, value, b"k%d" % (len(self.produced) % 5), on_delivery=told)
        self.produced.append(value)

    def wait(self, poll: bool = True) -> None:
        """Until everything was called inside; does nothing meanwhile when the application is to be away."""
        with contextlib.suppress(ProducerClosedError):  # that was called, too
            while not self.done.is_set():
                if poll:
                    self.producer.poll(0.05)
                else:
                    time.sleep(0.05)

    def inside(self, *_: Any) -> None:
        """Call everything, once: what is called may come back here."""
        if self.began:
            return
        self.began = True
        for name, call in self.calls().items():
            say(begin=name)
            started = time.monotonic()
            try:
                answer = repr(call())
            except BaseException as error:
                answer = type(error).__name__
            say(called=name, answer=answer[:80], seconds=time.monotonic() - started)
        self.done.set()

    def calls(self) -> dict[str, Callable[[], Any]]:
        p = self.producer
        return {
            "len": lambda: len(p),
            "purge": p.purge,
            "produce": lambda: self.produce(b"inside"),
            "produce_batch": lambda: p.produce_batch(TOPIC, [{"value": b"batch"}]),
            "list_topics": lambda: type(p.list_topics(timeout=SHORT)).__name__,
            "cluster_id": lambda: type(p.cluster_id(timeout=SHORT)).__name__,
            "set_sasl_credentials": lambda: p.set_sasl_credentials("user", "password"),
            "poll": lambda: p.poll(SHORT),
            "flush": lambda: p.flush(SHORT),
            "snapshot": lambda: type(p.snapshot()).__name__,
            "explain": lambda: type(p.explain()).__name__,
            "repr": lambda: repr(p)[:13],
            "init_transactions": lambda: p.init_transactions(SHORT),
            "begin_transaction": p.begin_transaction,
            "send_offsets_to_transaction": lambda: p.send_offsets_to_transaction([], None, SHORT),
            "commit_transaction": lambda: p.commit_transaction(SHORT),
            "abort_transaction": lambda: p.abort_transaction(SHORT),
        } | ({"close": lambda: p.close(SHORT)} if self.closes else {})

    def lose_brokers(self) -> None:
        """Nobody can connect for a moment: the client tells of errors."""
        for broker in self.cluster.brokers:
            self.cluster._await(self.cluster._brokers[broker].stop)
        self.produce(b"meets nobody")

    def find_brokers(self) -> None:
        for broker in self.cluster.brokers:
            self.cluster.start(broker)

    def conclude(self) -> None:
        """Whether the producer still works, and every record has had its one report."""
        if not self.done.wait(HANGS / 2):  # on another thread, whose close() refuses this one before it ends
            faulthandler.dump_traceback()
            os._exit(3)
        self.find_brokers()
        closed = self.producer.snapshot().state == "closed"
        if not closed:
            self.produce(b"after")
            say(left=self.producer.flush(30), after=self.told[b"after"])
            self.producer.close()
        missing = [value for value in self.produced if not self.told[value]]
        twice = [value for value, count in self.told.items() if count > self.produced.count(value)]
        say(called_everything=self.done.is_set(), closed=closed, missing=missing[:3], twice=twice[:3])


def hook(scene: Scene, event: str) -> Hook:
    """One that calls everything when it is told of this event, once there is a producer."""

    def told(*_: Any) -> None:
        if scene.producer is not None:
            scene.inside()

    made: Hook = type("Inside", (Hook,), {event: told})()
    return made


class Emitting(logging.Handler):
    """Ships log lines by the producer that they tell of."""

    def __init__(self, scene: Scene) -> None:
        super().__init__()
        self._scene = scene

    def emit(self, record: logging.LogRecord) -> None:
        self._scene.inside()


class Last:
    """Something whose end calls everything; with itself it makes a cycle, which the collector finds."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.itself = self

    def __del__(self) -> None:
        self._scene.inside()


def in_a_delivery_callback(scene: Scene) -> None:
    scene.make()
    for number in range(RECORDS):
        scene.produce(b"%d" % number, then=scene.inside)
    scene.wait()


def in_a_delivery_callback_of_flush(scene: Scene) -> None:
    scene.make()
    for number in range(RECORDS):
        scene.produce(b"%d" % number, then=scene.inside)
    scene.producer.flush(30)


def in_error_cb(scene: Scene) -> None:
    scene.make(error_cb=scene.inside)
    scene.lose_brokers()
    scene.wait()


def in_stats_cb(scene: Scene) -> None:
    scene.make(stats_cb=lambda _: scene.producer is not None and scene.inside(), **{"statistics.interval.ms": 50})
    scene.wait()


def in_throttle_cb(scene: Scene) -> None:
    scene.make(throttle_cb=scene.inside)
    scene.cluster.set_throttle(200)
    scene.produce(b"is throttled")
    scene.wait()
    scene.cluster.set_throttle(0)


def in_a_hook_of_produce(scene: Scene) -> None:
    scene.closes = False  # the record that is on its way could not be taken any more
    scene.make(hook=hook(scene, "record_accepted"))
    scene.produce(b"seen by the hook")


def in_a_hook_of_a_report(scene: Scene) -> None:
    scene.make(hook=hook(scene, "record_resolved"))
    scene.wait()


def in_a_hook_of_an_error(scene: Scene) -> None:
    scene.make(hook=hook(scene, "client_error"))
    scene.lose_brokers()
    scene.wait()


def in_a_hook_while_away(scene: Scene) -> None:
    scene.make(hook=hook(scene, "client_error"))
    scene.lose_brokers()
    scene.wait(poll=False)


def in_a_log_handler(scene: Scene) -> None:
    logging.getLogger("safeproducer").addHandler(Emitting(scene))
    scene.make()
    scene.lose_brokers()
    scene.wait()


def in_a_log_handler_while_away(scene: Scene) -> None:
    logging.getLogger("safeproducer").addHandler(Emitting(scene))
    scene.make()
    scene.lose_brokers()
    scene.wait(poll=False)


def in_the_clients_logger(scene: Scene) -> None:
    own = logging.getLogger("application")
    own.propagate = False
    scene.make(logger=own, log_level=6)
    own.addHandler(Emitting(scene))
    scene.lose_brokers()
    scene.wait()


def in_a_destructor(scene: Scene) -> None:
    """Run by the collector, wherever in produce() and poll() something is allocated."""
    scene.make()
    Last(scene)
    before = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    number = 0
    with contextlib.suppress(ProducerClosedError):
        while not scene.began:
            scene.produce(b"%d" % number)
            scene.producer.poll(0)
            number += 1
    gc.set_threshold(*before)


def in_a_destructor_inside_a_callback(scene: Scene) -> None:
    scene.make()
    gc.freeze()  # else each collection looks through all modules
    for number in range(RECORDS):
        scene.produce(b"%d" % number, then=lambda: (Last(scene), gc.collect()))
    scene.wait()


PLACES = {name: tp for name, tp in globals().copy().items() if name.startswith("in_")}


# --- signal handlers -------------------------------------------------------------------------------------------------


def flushing(scene: Scene) -> dict[str, Any]:
    left = scene.producer.flush(30)
    return {"left": left, "served": len(scene.told), "of": len(scene.produced)}


def polling(scene: Scene) -> dict[str, Any]:
    before, end = sum(scene.told.values()), time.monotonic() + 20
    while sum(scene.told.values()) == before and time.monotonic() < end:
        scene.producer.poll(0.1)
    return {"served": sum(scene.told.values()) - before}


def producing(scene: Scene) -> dict[str, Any]:
    scene.produce(b"from the handler")
    return {"accepted": scene.producer.produce_batch(TOPIC, [{"value": b"batch"}])}


def looking(scene: Scene) -> dict[str, Any]:
    p = scene.producer
    p.poll(0)  # leaves what comes later to the call that it has interrupted
    told: dict[str, Any] = {"len": len(p), "topics": len(p.list_topics(timeout=20).topics)}
    return told | {"state": p.snapshot().state, "explained": p.explain() != ""}


def closing(scene: Scene) -> dict[str, Any]:
    return {"closed": bool(scene.producer.close(30)), "served": len(scene.told), "of": len(scene.produced)}


HANDLERS = {"flush": flushing, "poll": polling, "produce": producing, "look": looking, "close": closing}


def poll(scene: Scene) -> None:
    while not scene.done.is_set():
        scene.producer.poll(1)


def flush(scene: Scene) -> None:
    scene.producer.flush()


def close(scene: Scene) -> None:
    scene.producer.close()


def produce(scene: Scene) -> None:
    number = 0
    while not scene.done.is_set():
        scene.produce(b"more %d" % number)
        number += 1
        if number > 50_000:
            scene.producer.poll(0.001)


CALLS = {"poll": poll, "flush": flush, "close": close, "produce": produce}


def interrupt(scene: Scene, call: Callable[[Scene], None], handler: Callable[[Scene], dict[str, Any]]) -> None:
    """Have a real signal run the handler while the main thread is inside the call."""

    def handle(_: int, frame: FrameType | None) -> None:
        started = time.monotonic()
        try:
            told = handler(scene)
        except BaseException as error:
            told = {"raised": f"{type(error).__name__}: {error}"}
        told["in_report"] = frame is not None and frame.f_code.co_name == "told"
        say(handled=handler.__name__, seconds=time.monotonic() - started, **told)
        scene.done.set()

    scene.make()
    scene.cluster.delay(SLOW)
    for number in range(RECORDS):
        scene.produce(b"%d" % number)
    signal.signal(signal.SIGUSR1, handle)
    threading.Timer(SLOW / 3, os.kill, (os.getpid(), signal.SIGUSR1)).start()
    ended = "returned"
    try:
        call(scene)
    except Exception as error:
        ended = type(error).__name__
    left = 0
    if scene.producer.snapshot().state == "open":
        left = scene.producer.flush(30)
        scene.producer.close()
    scene.cluster.delay(0)
    log = collections.Counter(record.value for record in scene.cluster.log(TOPIC))
    say(
        ended=ended,
        left=left,
        never_told=sum(not scene.told[value] for value in scene.produced),
        told_twice=sum(count > 1 for count in scene.told.values()),
        not_written=sum(not log[value] for value in scene.produced),
        written_twice=sum(count > 1 for value, count in log.items() if value != b"warm"),
        failed=scene.failed,
    )


def main(what: str, name: str, mode: str) -> None:
    faulthandler.dump_traceback_later(HANGS, exit=True)
    if what == "inside":
        with cluster_of({TOPIC: 3}, 2) as cluster:
            scene = Scene(mode, cluster)
            PLACES[name](scene)
            scene.conclude()
    else:
        call, handler = name.split("-")
        with cluster_of({TOPIC: 1}) as cluster:
            interrupt(Scene(mode, cluster), CALLS[call], HANDLERS[handler])
    sys.stdout.flush()
    os._exit(0)


def in_files(said: str, errors: str, *arguments: str) -> None:
    """As main(), in a fork; what it writes goes into these files."""
    for name, number in ((said, 1), (errors, 2)):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), number)
    main(*arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
