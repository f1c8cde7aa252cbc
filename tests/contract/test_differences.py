"""Where SafeProducer differs from confluent_kafka.Producer on purpose: what confluent_kafka does, and what SafeProducer
does.

Each test asserts both halves, so a confluent_kafka release that changes its half is noticed too.
"""

import asyncio
import contextlib
import gc
import json
import signal
import time
import uuid
import warnings
from collections.abc import Callable
from typing import Any

import confluent_kafka
import confluent_kafka.aio
import pytest
from confluent_kafka import KafkaError, KafkaException

from safeproducer.aio import AIOProducer, NotWritten
from safeproducer.testing import FakeCluster
from tests.clusters import cluster_of
from tests.contract.support import NOWHERE, Reports, error_of, poll_until, run_script, send_one, wait_until


@pytest.fixture
def default(producer_class: type, cluster: Any) -> Any:
    """Make a producer with nothing but an address: the defaults are what is tested."""
    made: list[Any] = []

    def build(config: dict[str, Any] | None = None) -> Any:
        made.append(producer_class({"bootstrap.servers": cluster.bootstrap, "log_level": 0, **(config or {})}))
        return made[-1]

    yield build
    for producer in made:
        producer.close()


@pytest.mark.parametrize(
    ("settings", "safe"),
    [
        ({}, True),
        ({"acks": "all"}, True),
        ({"acks": 1}, False),
        ({"acks": 0}, False),
        ({"retries": 0}, False),
        ({"max.in.flight": 6}, False),
        ({"max.in.flight.requests.per.connection": 5}, True),
        ({"enable.idempotence": False}, False),
        ({"enable.idempotence": "false"}, False),
    ],
    ids=str,
)
def test_idempotence_is_on_by_default(default: Any, is_stock: bool, settings: dict[str, Any], safe: bool) -> None:
    """confluent_kafka: off unless asked for. SafeProducer: on, unless a setting says otherwise or rules it out."""
    texts: list[str] = []
    producer = default({"stats_cb": texts.append, "statistics.interval.ms": 20, **settings})
    poll_until(producer, lambda: texts)
    assert ("eos" in json.loads(texts[-1])) is (safe and not is_stock)


def test_rolling_windows_of_statistics(default: Any, topic: str, is_stock: bool) -> None:
    """confluent_kafka: all records since the document before. SafeProducer: the last reading, of 500 ms at most.

    Both tell of some, and both count all.
    """
    found: list[Any] = []
    producer = default({"stats_cb": lambda text: found.append(json.loads(text)), "statistics.interval.ms": 1200})
    while len(found) < 2:
        producer.produce(topic, b"v")
        producer.poll(0.05)
    assert producer.flush(10) == 0
    accepted = found[-1]["txmsgs"]
    told = sum(broker["int_latency"]["cnt"] for one in found for broker in one["brokers"].values())
    # A record may be sent while the document is made.
    assert accepted - 2 <= told <= accepted + 2 if is_stock else 0 < told < accepted - 2


def test_held_records_in_statistics(default: Any, is_stock: bool) -> None:
    """confluent_kafka: all records wait in the client, which counts them. SafeProducer: those that it holds are with no
    client."""
    found: list[Any] = []
    own = {} if is_stock else {"safeproducer.mode": "held"}
    settings = {"stats_cb": lambda text: found.append(json.loads(text)), "statistics.interval.ms": 20, **own}
    producer = default({"bootstrap.servers": NOWHERE, **settings})
    for _ in range(7):
        producer.produce("t", b"v")
    poll_until(producer, lambda: len(found) >= 5)
    assert found[-1]["msg_cnt"] == (7 if is_stock else 0)
    producer.purge()
    producer.flush(5)


def test_each_lane_tells_statistics(default: Any, topic: str, is_stock: bool) -> None:
    """confluent_kafka: one client. SafeProducer: each of its lanes is one."""
    names: list[str] = []
    own = {"safeproducer.mode": "held", "safeproducer.ordering": "none", "safeproducer.lanes": 2}
    settings = {"stats_cb": lambda text: names.append(json.loads(text)["name"]), "statistics.interval.ms": 20}
    producer = default(settings if is_stock else settings | own)
    for _ in range(50):
        producer.produce(topic, b"v")
    assert producer.flush(10) == 0
    names.clear()
    poll_until(producer, lambda: len(names) >= 20)
    assert len(set(names)) == (1 if is_stock else 2)


@pytest.mark.parametrize("call", ["poll(0)", "flush(1)"])
@pytest.mark.parametrize("served_by", ["poll", "flush"])
def test_poll_inside_a_callback(
    producer_class: type, mock_cluster: Any, is_stock: bool, call: str, served_by: str
) -> None:
    """confluent_kafka aborts the process when reports are left. SafeProducer serves nothing there, warns once and goes
    on."""
    serve = "p.flush(10)" if served_by == "flush" else "\nwhile len(p): p.poll(0.1)"
    done = run_script(
        producer_class,
        mock_cluster.bootstrap,
        "warnings.simplefilter('always')\n"
        "p = Producer({'bootstrap.servers': bootstrap, 'log_level': 0, 'linger.ms': 100})\n"
        "served = []\n"
        "for number in range(3):\n"
        f"    p.produce('inside', b'v', partition=0, on_delivery=lambda *_: served.append(p.{call}))\n"
        f"{serve}\n"
        "print(served, len(p))\n"
        "p.close()\n",
    )
    if is_stock:
        assert done.returncode == -signal.SIGABRT
        return
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ("[0, 0, 0] 0" if call == "poll(0)" else "[3, 2, 1] 0")
    assert done.stderr.count("RuntimeWarning") == 1


@pytest.mark.parametrize("call", ["list_topics(timeout=5)", "cluster_id(timeout=5)", "set_sasl_credentials('u', 'p')"])
def test_questions_inside_a_callback(producer_class: type, mock_cluster: Any, is_stock: bool, call: str) -> None:
    """confluent_kafka aborts the process when reports are left. SafeProducer answers."""
    done = run_script(
        producer_class,
        mock_cluster.bootstrap,
        "p = Producer({'bootstrap.servers': bootstrap, 'log_level': 0, 'linger.ms': 100})\n"
        "p.list_topics(timeout=10)\n"
        "answers = []\n"
        "for number in range(3):\n"
        f"    p.produce('inside', b'v', partition=0, on_delivery=lambda *_: answers.append(p.{call}))\n"
        "left = p.flush(10)\n"
        "print(left, len(answers))\n"
        "p.close()\n",
    )
    if is_stock:
        assert done.returncode == -signal.SIGABRT
        return
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "0 3"


def test_close_inside_a_callback(producer_class: type, mock_cluster: Any, is_stock: bool) -> None:
    """confluent_kafka waits for ever. SafeProducer raises at once, a RuntimeError, and the records are reported."""
    if is_stock:
        script = (
            "p = Producer({'bootstrap.servers': bootstrap, 'log_level': 0})\n"
            "threading.Timer(2, os._exit, (42,)).start()\n"
            "p.produce('inside', b'v', on_delivery=lambda *_: p.close())\n"
            "p.flush(10)\n"
            "os._exit(0)\n"
        )
        assert run_script(producer_class, mock_cluster.bootstrap, script).returncode == 42
        return
    producer = producer_class({"bootstrap.servers": mock_cluster.bootstrap, "log_level": 0})
    producer.produce("inside", b"v", on_delivery=lambda *_: producer.close())
    with pytest.raises(RuntimeError):
        producer.flush(10)
    assert producer.close()


def test_batch_honours_every_field_of_its_messages(make: Any, cluster: Any, topic: str, is_stock: bool) -> None:
    """confluent_kafka drops headers and partition of a message in silence. SafeProducer sends them."""
    producer = make()
    messages = [
        {"value": b"%d" % number, "partition": number % 4, "headers": [("n", b"%d" % number)]} for number in range(40)
    ]
    assert producer.produce_batch(topic, messages) == 40
    assert producer.flush(10) == 0
    found = cluster.read(topic)
    wrong = [message for message in found if int(message.value()) % 4 != message.partition()]
    if is_stock:
        assert all(message.headers() is None for message in found)
        assert wrong
    else:
        assert all(message.headers() == [("n", message.value())] for message in found)
        assert wrong == []


def test_batch_takes_timestamps(make: Any, cluster: Any, topic: str, is_stock: bool) -> None:
    """confluent_kafka raises NotImplementedError for a message with a timestamp. SafeProducer writes it."""
    producer = make()
    messages = [{"value": b"v", "timestamp": 1_600_000_000_000}]
    if is_stock:
        with pytest.raises(NotImplementedError):
            producer.produce_batch(topic, messages)
        return
    assert producer.produce_batch(topic, messages) == 1
    assert producer.flush(10) == 0
    assert [message.timestamp()[1] for message in cluster.read(topic)] == [1_600_000_000_000]


def test_batch_message_may_say_on_delivery(producer: Any, topic: str, is_stock: bool) -> None:
    """confluent_kafka knows "callback" only in a message. SafeProducer takes "on_delivery" as well."""
    own, common = Reports(), Reports()
    producer.produce_batch(topic, [{"value": b"v", "on_delivery": own}], on_delivery=common)
    assert producer.flush(10) == 0
    assert (len(own), len(common)) == ((0, 1) if is_stock else (1, 0))


@pytest.mark.parametrize(
    ("bad", "raised"),
    [
        ({"value": "\ud800"}, UnicodeEncodeError),
        ({"key": "\ud800", "value": b"v"}, UnicodeEncodeError),
        ({"value": b"v", "partition": 2**64}, OverflowError),
    ],
    ids=["value", "key", "partition"],
)
def test_batch_that_raises_accepts_nothing(
    make: Any, cluster: Any, topic: str, is_stock: bool, bad: dict[str, Any], raised: type[Exception]
) -> None:
    """confluent_kafka raises for such a message and sends the list all the same. SafeProducer raises and sends
    nothing."""
    producer = make()
    with pytest.raises(raised):
        producer.produce_batch(topic, [{"value": b"good"}, bad])
    assert producer.flush(10) == 0
    assert len(cluster.read(topic)) == (2 if is_stock else 0)


def test_batch_partition_out_of_range_is_refused(make: Any, topic: str, is_stock: bool) -> None:
    """confluent_kafka ignores a message's partition, 2**31 as well. SafeProducer refuses what is no partition
    number."""
    producer = make()
    messages = [{"value": b"v", "partition": 2**31}]
    if is_stock:
        assert producer.produce_batch(topic, messages) == 1
        return
    with pytest.raises(OverflowError):
        producer.produce_batch(topic, messages)
    assert len(producer) == 0


def test_close_takes_a_deadline_and_reports(make: Any, is_stock: bool) -> None:
    """confluent_kafka's close() waits for as long as it takes and returns True. SafeProducer's has a deadline and a
    report."""
    producer = make({"bootstrap.servers": NOWHERE, "message.timeout.ms": 1500})
    reports = Reports()
    for _ in range(3):
        producer.produce("t", b"v", on_delivery=reports)
    if is_stock:
        assert producer.close(timeout=0.1) is True  # the argument is accepted and means nothing
        assert [error.name() for error, _ in reports] == ["_MSG_TIMED_OUT"] * 3
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = producer.close(timeout=0.1)
    assert not report
    assert report.left == 3
    assert report.seconds < 1.4
    assert [error.name() for error, _ in reports] == ["_PURGE_QUEUE"] * 3


def test_close_runs_every_callback(make: Any, cluster: Any, topic: str, is_stock: bool) -> None:
    """confluent_kafka's close() drops the reports behind a raising callback. SafeProducer's runs them, then raises."""
    producer = make()
    called: list[int] = []

    def callback(number: int) -> Callable[..., None]:
        def report(_error: Any, _message: Any) -> None:
            called.append(number)
            if number == 1:
                raise LookupError

        return report

    for number in range(5):
        producer.produce(topic, b"v", partition=0, on_delivery=callback(number))
    wait_until(lambda: sum(cluster.end_offsets(topic)) == 5)
    with pytest.raises(LookupError):
        producer.close()
    assert called == ([0, 1] if is_stock else [0, 1, 2, 3, 4])
    with pytest.raises(RuntimeError):
        producer.produce(topic, b"v")
    assert producer.close()


def test_close_after_an_unfinished_init_transactions(producer_class: type, is_stock: bool) -> None:
    """confluent_kafka warns that it cannot abort, a SystemError where warnings are errors (as here). SafeProducer
    closes."""
    producer: Any = producer_class({"bootstrap.servers": NOWHERE, "transactional.id": "t", "log_level": 0})
    with pytest.raises(KafkaException):
        producer.init_transactions(0.2)
    if is_stock:
        with pytest.raises(SystemError):
            producer.close()
    else:
        assert producer.close(5)


def test_begin_after_a_commit_without_an_answer(producer_class: type, is_stock: bool) -> None:
    """confluent_kafka has to call commit_transaction() until it ends. SafeProducer may begin another transaction."""
    with cluster_of({"t": 1}) as cluster:
        config = {"bootstrap.servers": cluster.bootstrap, "transactional.id": "t", "log_level": 0}
        producer: Any = producer_class(config)
        producer.init_transactions(20)
        producer.begin_transaction()
        producer.produce("t", b"v")
        cluster.hold_next("EndTxn")
        with pytest.raises(KafkaException) as caught:
            producer.commit_transaction(0.5)
        assert caught.value.args[0].retriable()
        if is_stock:
            with pytest.raises(KafkaException, match="_CONFLICT"):
                producer.begin_transaction()
            cluster.release()
            return
        producer.begin_transaction()
        producer.close()


def test_garbage_collection_with_records_warns(producer_class: type, is_stock: bool) -> None:
    """confluent_kafka forgets accepted records in silence. SafeProducer gives a ResourceWarning that counts them."""

    def forget() -> None:
        producer: Any = producer_class({"bootstrap.servers": NOWHERE, "log_level": 0})
        producer.produce("t", b"v")
        producer.produce("t", b"v")
        del producer
        gc.collect()

    if is_stock:
        forget()
        return
    with pytest.warns(ResourceWarning, match="2"):
        forget()


def test_use_after_fork(producer_class: type, mock_cluster: Any, is_stock: bool) -> None:
    """confluent_kafka accepts records in a forked child and never delivers them. SafeProducer raises there, at once."""
    done = run_script(
        producer_class,
        mock_cluster.bootstrap,
        "p = Producer({'bootstrap.servers': bootstrap, 'log_level': 0})\n"
        "p.produce('forked', b'parent')\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    signal.alarm(5)\n"
        "    try:\n"
        "        p.produce('forked', b'child')\n"
        "        os._exit(10 + p.flush(1))\n"
        "    except RuntimeError as error:\n"
        "        os._exit(1 if type(error).__name__ == 'ForkedProducerError' else 2)\n"
        "    os._exit(3)\n"
        "code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])\n"
        "print(code, p.flush(10), bool(p.close()))\n",
    )
    assert done.returncode == 0, done.stderr
    code, left, closed = done.stdout.split()
    assert (left, closed) == ("0", "True")
    if is_stock:
        assert int(code) > 10 or int(code) == -signal.SIGALRM, "left over, or hanging on a lock of a lost thread"
    else:
        assert int(code) == 1


def test_backpressure_beside_the_default(
    producer_class: type, is_stock: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """confluent_kafka uses the threshold, as it has no idempotence by default. SafeProducer says that it does not."""
    name = "queue.buffering.backpressure.threshold"
    producer_class({name: 100, "log_level": 0, "bootstrap.servers": NOWHERE}).close()
    assert (f"{name}' = 100: not used" in caplog.text) is not is_stock


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"no.such.setting": 1}, ["no.such.setting"]),
        ({"acks": "many"}, ["acks", "many"]),
        ({"linger.ms": -1}, ["linger.ms", "-1"]),
        ({"enable.idempotence": True, "acks": 1}, ["enable.idempotence", "acks"]),
    ],
    ids=str,
)
def test_refused_settings_are_named(
    producer_class: type, is_stock: bool, config: dict[str, Any], words: list[str]
) -> None:
    """confluent_kafka says what librdkafka says, by its own names. SafeProducer names setting and value, in
    confluent_kafka's exception."""
    with pytest.raises(KafkaException) as caught:
        producer_class({"log_level": 0, **config})
    assert error_of(caught.value).code() == KafkaError._INVALID_ARG
    if not is_stock:
        for word in words:
            assert word in str(caught.value)


def test_gapless_guarantee_is_refused(producer_class: type, is_stock: bool) -> None:
    """confluent_kafka takes enable.gapless.guarantee with idempotence. SafeProducer refuses it: it makes lost acks
    fatal."""
    config = {"bootstrap.servers": NOWHERE, "enable.gapless.guarantee": True, "enable.idempotence": True}
    if is_stock:
        producer_class({**config, "log_level": 0}).close()
        return
    with pytest.raises(KafkaException, match=r"enable\.gapless\.guarantee"):
        producer_class({**config, "log_level": 0})


FATAL = """
import ctypes, pathlib, confluent_kafka
p = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
reports = []
for _ in range(3):
    p.produce("t", b"v", on_delivery=lambda error, message: reports.append(error.name()))
library = ctypes.CDLL(str(next(pathlib.Path(confluent_kafka.__file__).parent.with_name("confluent_kafka.libs").glob(
    "librdkafka*"))))
library.rd_kafka_test_fatal_error.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p]
engine = getattr(p, "_SafeProducer__engine", None)
native = engine.route.native if engine else p
handle = ctypes.c_void_p.from_address(id(native) + 16).value  # the first field behind the object header
assert handle, "no librdkafka handle there"
assert library.rd_kafka_test_fatal_error(handle, confluent_kafka.KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, b"x") == 0
p.purge()
for call in (lambda: SERVE, lambda: p.produce("t", b"w")):
    try:
        call()
        print("nothing")
    except:
        raised = sys.exc_info()[1]
        error = raised.args[0] if isinstance(raised, confluent_kafka.KafkaException) else raised
        known = isinstance(error, confluent_kafka.KafkaError)
        print(type(raised).__name__, *((error.name(), error.fatal()) if known else ()))
        del raised, error
for _ in range(5):
    try:
        p.flush(0.1)
    except:
        pass
print(len(reports))
os._exit(0)
"""


@pytest.mark.parametrize("serve", ["[p.poll(0.2) for _ in range(9)]", "p.flush(2)"], ids=["poll", "flush"])
def test_fatal_error(producer_class: type, is_stock: bool, serve: str) -> None:
    """confluent_kafka's flush() raises SystemError and loses a report, then _FATAL. SafeProducer: FatalError and all
    reports."""
    done = run_script(producer_class, NOWHERE, FATAL.replace("SERVE", serve))
    assert done.returncode == 0, done.stderr
    fatal = "OUT_OF_ORDER_SEQUENCE_NUMBER True"
    if not is_stock:
        assert done.stdout.splitlines() == [f"FatalError {fatal}", f"FatalError {fatal}", "3"]
    elif serve.startswith("p.flush"):
        assert done.stdout.splitlines() == ["SystemError", "KafkaException _FATAL False", "2"]
    else:
        assert done.stdout.splitlines() == [f"KafkaException {fatal}", "KafkaException _FATAL False", "3"]


def test_failed_reports_tell_the_outcome(make: Any, is_stock: bool) -> None:
    """confluent_kafka's error says what failed; SafeProducer's has the same code and says what became of the record."""
    producer = make({"bootstrap.servers": NOWHERE})
    reports: list[Any] = []
    producer.produce("t", b"v", on_delivery=lambda error, message: reports.append((error, message)))
    producer.purge()
    assert producer.flush(5) == 0
    ((error, message),) = reports
    assert isinstance(error, KafkaError)
    assert error.code() == message.error().code() == KafkaError._PURGE_QUEUE
    if is_stock:
        assert not hasattr(error, "outcome")
        return
    assert error.outcome == "not_written"
    assert "produce it again" in str(error)


def test_a_record_that_nobody_acknowledged(producer_class: type, is_stock: bool) -> None:
    """The leader refuses the first batch, and does not know the producer when the second comes. confluent_kafka calls
    both delivered; SafeProducer has the first sent again before the second leaves."""

    told: dict[bytes, Any] = {}

    def report(error: Any, message: Any) -> None:
        told[message.value()] = None if error is None else getattr(error, "outcome", error.name())

    with cluster_of({"t": 1}) as fake:
        fake.delay(0.4, api="Produce")
        fake.fail_next("Produce", KafkaError.UNKNOWN_TOPIC_OR_PART, topic="t", partition=0)
        settings = {"bootstrap.servers": fake.bootstrap, "enable.idempotence": True, "linger.ms": 0, "log_level": 0}
        producer = producer_class(settings)
        for number, value in enumerate((b"one", b"two"), 1):
            producer.produce("t", value, partition=0, on_delivery=report)
            poll_until(producer, lambda sent=number: len(fake.journal("Produce")) >= sent)
        assert producer.flush(10) == 0
        assert [record.value for record in fake.log("t")] == ([b"two"] if is_stock else [b"one", b"two"])
        producer.close()
    assert told == {b"one": None, b"two": None}


def test_client_errors_are_logged(producer_class: type, is_stock: bool) -> None:
    """Without any logging configuration: confluent_kafka prints librdkafka's lines alone, which log_level=0 switches
    off. SafeProducer warns through the logger `safeproducer`, once for each kind of error, and Python prints that."""
    done = run_script(
        producer_class,
        NOWHERE,
        "import logging\n"
        "def run():\n"
        "    heard = []\n"
        "    p = Producer({'bootstrap.servers': bootstrap, 'log_level': 0, 'error_cb': heard.append})\n"
        "    end = time.monotonic() + 10\n"
        "    while len(heard) < 3 and time.monotonic() < end: p.poll(0.05)\n"
        "    print(len(heard) >= 3)\n"
        "run()\n"
        "logging.getLogger('safeproducer').addHandler(logging.NullHandler())\n"
        "print('switched off', file=sys.stderr)\n"
        "run()\n",
    )
    assert done.stdout.split() == ["True", "True"]
    before, after = done.stderr.split("switched off")
    lines = before.strip().splitlines()
    assert len(lines) == (0 if is_stock else 2)
    assert is_stock or any(line.startswith(f"rdkafka: The broker {NOWHERE} refuses the connection") for line in lines)
    assert after.strip() == ""


def test_repr_tells_something(make: Any, is_stock: bool) -> None:
    """confluent_kafka's repr is an address. SafeProducer's names the cluster and counts the records, and no secret."""
    producer = make({"bootstrap.servers": NOWHERE, "sasl.password": "marker-5f1c"})
    producer.produce("t", b"v")
    text = repr(producer)
    if is_stock:
        assert text.startswith("<cimpl.Producer object at 0x")
        return
    assert NOWHERE in text
    assert "1 accepted" in text
    assert "marker-5f1c" not in text


@pytest.mark.parametrize(
    "header", ["('\\ud800', b'1')", "(Name('\\ud800'), b'1')", "Header(('\\ud800', b'1'))"], ids=["str", "name", "pair"]
)
def test_header_name_with_a_lone_surrogate(
    producer_class: type, mock_cluster: Any, is_stock: bool, header: str
) -> None:
    """confluent_kafka dies of a segmentation fault. SafeProducer raises UnicodeEncodeError."""
    done = run_script(
        producer_class,
        mock_cluster.bootstrap,
        "p = Producer({'bootstrap.servers': bootstrap, 'log_level': 0})\n"
        "class Name(str): pass\n"
        "class Header(tuple): pass\n"
        "try:\n"
        f"    p.produce('t', b'v', headers=[{header}])\n"
        "except UnicodeEncodeError:\n"
        "    print('refused', len(p))\n",
    )
    if is_stock:
        assert done.returncode == -signal.SIGSEGV
    else:
        assert (done.returncode, done.stdout.strip()) == (0, "refused 0")


@pytest.mark.parametrize("headers", [[("a\0b", b"1")], {"a\0b": b"1"}], ids=["list", "dict"])
@pytest.mark.parametrize("batch", [False, True], ids=["produce", "produce_batch"])
def test_header_name_with_a_nul_character(
    producer_class: type, mock_cluster: Any, is_stock: bool, headers: Any, batch: bool
) -> None:
    """confluent_kafka cuts the name off there without a word. SafeProducer raises ValueError, and accepts nothing."""
    producer, topic = (
        producer_class({"bootstrap.servers": mock_cluster.bootstrap, "log_level": 0}),
        mock_cluster.topic(),
    )
    with pytest.raises(ValueError, match="NUL") if not is_stock else contextlib.nullcontext():
        if batch:
            producer.produce_batch(topic, [{"value": b"good"}, {"value": b"v", "headers": headers}])
        else:
            producer.produce(topic, b"v", headers=headers)
    assert len(producer) == (1 + batch if is_stock else 0)
    if is_stock:
        assert producer.flush(10) == 0
        cut = None if batch else [("a", b"1")]  # it drops all headers of a batch
        assert [message.headers() for message in mock_cluster.read(topic) if message.value() == b"v"] == [cut]


def test_own_settings_are_known_to_safe_producer_only(is_stock: bool, producer_class: type) -> None:
    """confluent_kafka refuses settings that begin with `safeproducer.`; SafeProducer refuses unknown ones of them."""
    with pytest.raises(KafkaException):
        producer_class({"safeproducer.no.such.setting": 1, "log_level": 0})
    if is_stock:
        with pytest.raises(KafkaException):
            producer_class({"safeproducer.mode": "auto", "log_level": 0})


def test_second_init_after_close(producer_class: type, is_stock: bool) -> None:
    """confluent_kafka takes a closed producer's __init__() and then hangs in close(). SafeProducer is closed for
    good."""
    done = run_script(
        producer_class,
        NOWHERE,
        "p = Producer({'bootstrap.servers': bootstrap, 'log_level': 0})\n"
        "p.close()\n"
        "try:\n"
        "    p.__init__({'bootstrap.servers': bootstrap, 'log_level': 0})\n"
        "except RuntimeError:\n"
        "    os._exit(1)\n"
        "threading.Timer(2, os._exit, (42,)).start()\n"
        "p.close()\n"
        "os._exit(0)\n",
    )
    assert done.returncode == (42 if is_stock else 1)


def test_raising_callbacks_eat_the_timeout_of_flush(make: Any, is_stock: bool) -> None:
    """confluent_kafka's flush() counts 200 ms for each raising callback, and stops early. SafeProducer's runs them
    all."""
    producer = make({"bootstrap.servers": NOWHERE})
    called: list[int] = []

    def report(_error: Any, _message: Any) -> None:
        called.append(1)
        raise LookupError

    for _ in range(20):
        producer.produce("t", b"v", on_delivery=report)
    producer.purge()
    with pytest.raises(LookupError):
        producer.flush(1.0)
    assert len(called) == (5 if is_stock else 20)
    while len(producer):
        with pytest.raises(LookupError):
            producer.flush(1.0)


def test_raising_callbacks_stop_an_abort(make: Any, topic: str, is_stock: bool) -> None:
    """confluent_kafka raises before it has aborted; SafeProducer runs all callbacks, aborts, and raises then."""
    producer = make({"transactional.id": uuid.uuid4().hex, "enable.idempotence": True})
    producer.init_transactions(30)

    def report(_error: Any, _message: Any) -> None:
        raise LookupError

    producer.begin_transaction()
    for _ in range(3):
        producer.produce(topic, b"v", on_delivery=report)
    with pytest.raises(LookupError):
        producer.abort_transaction(30)
    for _ in range(2 if is_stock else 0):
        with pytest.raises(LookupError):
            producer.abort_transaction(30)
    with contextlib.suppress(KafkaException):
        producer.abort_transaction(30)
    producer.begin_transaction()


def test_on_delivery_beside_an_explicit_callback_none(make: Any, topic: str, is_stock: bool) -> None:
    """confluent_kafka lets an explicit callback=None win and calls nobody. SafeProducer calls the callback that was
    given."""
    producer, reports = make(), Reports()
    producer.produce(topic, b"v", callback=None, on_delivery=reports)
    producer.produce_batch(topic, [{"value": b"v"}], callback=None, on_delivery=reports)
    assert producer.flush(10) == 0
    assert len(reports) == (0 if is_stock else 2)


def test_topic_settings_that_are_none(producer_class: type, is_stock: bool) -> None:
    """confluent_kafka fails with an AttributeError of its insides. SafeProducer refuses default.topic.config by
    name."""
    raised = AttributeError if is_stock else TypeError
    with pytest.raises(raised) as caught:
        producer_class({"default.topic.config": None, "log_level": 0})
    assert is_stock or "default.topic.config" in str(caught.value)


def test_safe_producer_has_more_methods(producer: Any, is_stock: bool) -> None:
    """They exist in SafeProducer only."""
    for name in ("snapshot", "explain", "health", "submit", "transaction"):
        assert hasattr(producer, name) is not is_stock


def test_attributes_and_weak_references(producer: Any, is_stock: bool) -> None:
    """A confluent_kafka producer takes no attribute; a SafeProducer, a Python class, does."""
    name = f"attribute_{uuid.uuid4().hex}"
    if is_stock:
        with pytest.raises(AttributeError):
            setattr(producer, name, 1)
        return
    setattr(producer, name, 1)
    delattr(producer, name)


def test_tracers_that_replace_the_class(
    make: Any, producer_class: type, cluster: Any, topic: str, is_stock: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They derive from what confluent_kafka.Producer is when they come: SafeProducer must be there before them."""

    def trace() -> None:
        class Traced(confluent_kafka.Producer):
            def produce(self, topic: str, value: bytes) -> None:
                super().produce(topic, value, headers={"traceparent": value})

        monkeypatch.setattr(confluent_kafka, "Producer", Traced)

    trace()
    by_name = make(cls=confluent_kafka.Producer if is_stock else producer_class)
    monkeypatch.setattr(confluent_kafka, "Producer", producer_class)
    trace()
    in_place = make(cls=confluent_kafka.Producer)
    for producer, value in ((by_name, b"by name"), (in_place, b"in place")):
        send_one(producer, topic, value)
    headers = {message.value(): message.headers() for message in cluster.read(topic)}
    assert headers == {
        b"by name": [("traceparent", b"by name")] if is_stock else None,
        b"in place": [("traceparent", b"in place")],
    }


def test_a_retry_that_its_leader_has_forgotten(producer_class: Any, is_stock: bool) -> None:
    """confluent_kafka: written twice and delivered. SafeProducer: once, of unknown outcome (KIP-854)."""

    names = ("producer.id.expiration.ms", "producer.id.expiration.check.interval.ms")
    with FakeCluster(brokers=1, broker_config=dict(zip(names, ("3000", "100"), strict=True))) as fake:
        fake.create_topic("t", partitions=1)
        own = {} if is_stock else {"safeproducer.expiry.ms": 3000}
        producer = producer_class({"bootstrap.servers": fake.bootstrap, "enable.idempotence": True, **own})
        told: list[Any] = []
        send_one(producer, "t", b"warm")
        fake.lose_acks(1)
        producer.produce("t", b"lost", on_delivery=lambda error, _: told.append(error))
        poll_until(producer, lambda: len(fake.log("t")) == 2)
        fake.stop(1)
        end = time.monotonic() + 4
        poll_until(producer, lambda: time.monotonic() > end)
        fake.start(1)
        assert producer.flush(20) == 0
        assert [record.value for record in fake.log("t")] == [b"warm", b"lost", *([b"lost"] if is_stock else [])]
        assert told == [None] if is_stock else told[0].outcome == "unknown"
        producer.close()


def test_asyncio_purge(is_stock: bool) -> None:
    """confluent_kafka's AIOProducer cancels the futures of what it purges. SafeProducer's says what became of them."""
    stock: Any = confluent_kafka.aio.AIOProducer

    async def purged() -> BaseException | None:
        producer = (stock if is_stock else AIOProducer)({"bootstrap.servers": NOWHERE, "log_level": 0})
        future = await producer.produce("t", b"value")
        await producer.purge()
        await asyncio.wait([future])
        await producer.close()
        return None if future.cancelled() else future.exception()

    assert type(asyncio.run(purged())) is (type(None) if is_stock else NotWritten)
