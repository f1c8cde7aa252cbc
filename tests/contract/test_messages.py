"""What is raised contains confluent_kafka's own words, whatever is added to them: applications and their tests look for
these.

The calls are those of the other files, and here every other one that the C code of confluent_kafka 2.16 answers with an
error before a broker is asked.
"""

import collections
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicPartition, cimpl

from tests.contract.support import NOWHERE
from tests.contract.test_produce_arguments import REFUSED as ARGUMENTS
from tests.contract.test_produce_batch import BAD_CALLS as BATCHES

Call = Callable[[Any], Any]

LONG = "t" * 513
TRANSACTIONS = ("init_transactions", "commit_transaction", "abort_transaction")
TIMEOUTS: dict[str, Call] = {
    f"{method}-{timeout!r}": lambda producer, method=method, timeout=timeout: getattr(producer, method)(timeout)
    for method in ("poll", "flush", *TRANSACTIONS, "cluster_id")
    for timeout in ("1", None, [], 10**400)
}
METHODS: dict[str, Call] = {
    "produce": lambda producer: producer.produce("t", b"v"),
    "produce_batch": lambda producer: producer.produce_batch("t", [{"value": b"v"}]),
    "poll": lambda producer: producer.poll(0),
    "flush": lambda producer: producer.flush(0),
    "purge": lambda producer: producer.purge(),
    "list_topics": lambda producer: producer.list_topics(timeout=1),
    "cluster_id": lambda producer: producer.cluster_id(timeout=1),
    "set_sasl_credentials": lambda producer: producer.set_sasl_credentials("user", "password"),
    "init_transactions": lambda producer: producer.init_transactions(1),
    "begin_transaction": lambda producer: producer.begin_transaction(),
    "commit_transaction": lambda producer: producer.commit_transaction(1),
    "abort_transaction": lambda producer: producer.abort_transaction(1),
    "send_offsets_to_transaction": lambda producer: producer.send_offsets_to_transaction([], None, 1),
}
CALLS: dict[str, Call] = {
    **{f"produce-{name}": lambda p, a=a, k=k: p.produce(*a, **k) for name, (a, k, _) in ARGUMENTS.items()},
    **{f"batch-{name}": lambda p, a=a, k=k: p.produce_batch(*a, **k) for name, (a, k, _) in BATCHES.items()},
    **TIMEOUTS,
    "produce-long-topic": lambda producer: producer.produce(LONG),
    "produce-long-text-topic": lambda producer: producer.produce("\u00e9" * 257),
    "produce-too-large": lambda producer: producer.produce("t", b"v" * 2_000_000),
    "produce-header-name-none": lambda producer: producer.produce("t", headers={"a": 5}),
    "batch-long-topic": lambda producer: producer.produce_batch(LONG, [{"value": b"v"}]),
    "batch-long-topic-with-headers": lambda producer: producer.produce_batch(LONG, [{"headers": {}}]),
    "batch-second-message": lambda producer: producer.produce_batch("t", [{"headers": {}}, 5]),
    "batch-second-value": lambda producer: producer.produce_batch("t", [{"headers": {}}, {"value": 5}]),
    "batch-second-key": lambda producer: producer.produce_batch("t", [{"headers": {}}, {"key": 5}]),
    "batch-second-partition": lambda producer: producer.produce_batch("t", [{"headers": {}}, {"partition": "0"}]),
    "batch-second-headers": lambda producer: producer.produce_batch("t", [{"headers": {}}, {"headers": "h"}]),
    "second-init": lambda producer: producer.__init__({"bootstrap.servers": NOWHERE}),
    **{
        f"{method}-{a or k}": lambda p, method=method, a=a, k=k: getattr(p, method)(*a, **k)
        for method in ("poll", "flush")
        for a, k in (((), {"timeout": None}), ((), {"seconds": 1}), ((0, 0), {}))
    },
    "init-two": lambda producer: producer.init_transactions(1, 1),
    "begin-argument": lambda producer: producer.begin_transaction(1),
    "init-not-transactional": lambda producer: producer.init_transactions(1),
    "begin-not-transactional": lambda producer: producer.begin_transaction(),
    "commit-not-transactional": lambda producer: producer.commit_transaction(1),
    "abort-not-transactional": lambda producer: producer.abort_transaction(1),
    "offsets-nothing": lambda producer: producer.send_offsets_to_transaction(),
    "offsets-one": lambda producer: producer.send_offsets_to_transaction([]),
    "offsets-no-list": lambda producer: producer.send_offsets_to_transaction(5, None),
    "offsets-of-what": lambda producer: producer.send_offsets_to_transaction([5], None),
    "offsets-no-group": lambda producer: producer.send_offsets_to_transaction([], None),
    "offsets-of-a-place-no-group": lambda p: p.send_offsets_to_transaction([TopicPartition("t", 0, 1)], None),
    "offsets-timeout": lambda producer: producer.send_offsets_to_transaction([], None, "1"),
    "topics-int": lambda producer: producer.list_topics(5),
    "topics-nul": lambda producer: producer.list_topics("a\0b"),
    "topics-long": lambda producer: producer.list_topics(LONG),
    "topics-timeout": lambda producer: producer.list_topics("t", "1"),
    "topics-timeout-none": lambda producer: producer.list_topics(timeout=None),
    "topics-unknown-keyword": lambda producer: producer.list_topics(name="t"),
    "topics-three": lambda producer: producer.list_topics(None, 1, 1),
    "topics-timed-out": lambda producer: producer.list_topics("t", 0.01),
    "cluster-timed-out": lambda producer: producer.cluster_id(0.01),
    "cluster-unknown-keyword": lambda producer: producer.cluster_id(seconds=1),
    "cluster-two": lambda producer: producer.cluster_id(1, 1),
    "sasl-nothing": lambda producer: producer.set_sasl_credentials(),
    "sasl-one": lambda producer: producer.set_sasl_credentials("user"),
    "sasl-three": lambda producer: producer.set_sasl_credentials("user", "password", "realm"),
    "sasl-unknown-keyword": lambda producer: producer.set_sasl_credentials(user="u", password="p"),
    "sasl-bytes": lambda producer: producer.set_sasl_credentials(b"user", b"password"),
    "sasl-none": lambda producer: producer.set_sasl_credentials("user", None),
    "sasl-int": lambda producer: producer.set_sasl_credentials(5, "password"),
    "sasl-nul": lambda producer: producer.set_sasl_credentials("user\0", "password"),
}
CONFIGS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "two": (({}, {}), {}),
    "none": ((None,), {}),
    "list": (([],), {}),
    "pairs": (([("linger.ms", 5)],), {}),
    "str": (("x",), {}),
    "mapping-proxy": ((types.MappingProxyType({}),), {}),
    "chain-map": ((collections.ChainMap({}),), {}),
    "conf-keyword": ((), {"conf": {}}),
    "unknown": (({"no.such.setting": 1},), {}),
    "serializer-of-another-class": (({"key.serializer": str},), {}),
    "int-name": (({5: 1},), {}),
    "none-name": (({None: 1},), {}),
    "empty-name": (({"": 1},), {}),
    "unknown-value": (({"acks": "many"},), {}),
    "unknown-partitioner": (({"partitioner": "best"},), {}),
    "unknown-codec": (({"compression.type": "best"},), {}),
    "callable-partitioner": (({"partitioner": print},), {}),
    "c-callback": (({"dr_cb": print},), {}),
    "out-of-range": (({"linger.ms": -1},), {}),
    "zero-kbytes": (({"queue.buffering.max.kbytes": 0},), {}),
    "not-a-number": (({"linger.ms": "soon"},), {}),
    "none-for-a-number": (({"linger.ms": None},), {}),
    "topic-setting-unknown": (({"default.topic.config": {"no.such": 1}},), {}),
    "idempotence-and-acks": (({"enable.idempotence": True, "acks": 1},), {}),
    "idempotence-and-in-flight": (({"enable.idempotence": True, "max.in.flight": 6},), {}),
    "idempotence-and-retries": (({"enable.idempotence": True, "retries": 0},), {}),
    "transactions-without-idempotence": (({"transactional.id": "t", "enable.idempotence": False},), {}),
    "message-timeout-over-transaction-timeout": (
        ({"transactional.id": "t", "message.timeout.ms": 9000, "transaction.timeout.ms": 5000},),
        {},
    ),
    "missing-ca-file": (({"security.protocol": "ssl", "ssl.ca.location": "/no/such/file"},), {}),
    "missing-plugin": (({"plugin.library.paths": "no-such-plugin"},), {}),
    "on_delivery-int": (({"on_delivery": 5},), {}),
    "on_delivery-none": (({"on_delivery": None},), {}),
    "error_cb-int": (({"error_cb": 5},), {}),
    "error_cb-none": (({"error_cb": None},), {}),
    "stats_cb-int": (({"stats_cb": 5},), {}),
    "throttle_cb-int": (({"throttle_cb": 5},), {}),
    "throttle_cb-none": (({"throttle_cb": None},), {}),
    "oauth_cb-int": (({"oauth_cb": 5},), {}),
    "only-errors-text": (({"delivery.report.only.error": "yes"},), {}),
    "only-errors-int": (({"delivery.report.only.error": 2},), {}),
    "two-and-keyword": (({}, {}), {"linger.ms": 5}),
    "unknown-keyword": (({},), {"no.such": 5}),
    "bytes-name": (({b"linger.ms": 5},), {}),
    "object": (({"linger.ms": [5]},), {}),
    "topic-setting-int-name": (({"default.topic.config": {5: 1}},), {}),
    "plugin-int": (({"plugin.library.paths": 5},), {}),
    "debug": (({"debug": "everything"},), {}),
    "only-errors-none": (({"delivery.report.only.error": None},), {}),
    "stats-none": (({"stats_cb": None},), {}),
    "oauth-none": (({"oauth_cb": None},), {}),
    "on_delivery-text": (({"on_delivery": "print"},), {}),
    **{
        f"{name}-{value}": (({name: value},), {})
        for name in (
            "linger.ms",
            "queue.buffering.max.ms",
            "message.timeout.ms",
            "delivery.timeout.ms",
            "batch.num.messages",
            "batch.size",
            "message.max.bytes",
            "queue.buffering.max.messages",
            "queue.buffering.max.kbytes",
            "statistics.interval.ms",
            "enable.sparse.connections",
        )
        for value in (-5, "soon")
    },
    **{
        f"{name}-too-high": (({name: 1_000_000_001},), {})
        for name in ("linger.ms", "batch.num.messages", "message.max.bytes", "statistics.interval.ms")
    },
}
"""Those at the end are what a batch lane has values of its own for."""

OURS = pytest.mark.parametrize("producer_class", ["safe", "held"], indirect=True, scope="session")
"""confluent_kafka's own class says what it says."""
WORDS_OF_A_SIGNATURE = ("function missing", "function takes", "keyword argument", "given by name", "takes no arguments")
"""How many arguments, and of what names: Python says it of our methods in its own words, and names the method."""


def words(error: BaseException) -> str:
    """What a person reads: of a KafkaException, what its KafkaError says."""
    return str(error.args[0].str() if isinstance(error, KafkaException) else error).strip().rstrip(".")


def raised_by(call: Call, subject: Any) -> BaseException | None:
    """What the call raises."""
    try:
        call(subject)
    except BaseException as error:
        return error
    return None


def check(stock: BaseException | None, found: BaseException | None) -> None:
    """`found` says at least what confluent_kafka says, and is caught by what catches that."""
    assert stock is not None, "stock takes this"
    assert found is not None, f"not refused: {stock!r}"
    assert isinstance(found, type(stock))
    if isinstance(stock, TypeError) and any(text in str(stock) for text in WORDS_OF_A_SIGNATURE):
        return
    assert words(stock) in str(found)
    assert words(stock) in words(found)
    if isinstance(stock, KafkaException):
        assert found.args[0].code() == stock.args[0].code()


@pytest.fixture(scope="module")
def stock_producer() -> Iterator[Any]:
    """A confluent_kafka producer without a broker."""
    producer = cimpl.Producer({"bootstrap.servers": NOWHERE, "log_level": 0})
    yield producer
    producer.purge()
    producer.close()


@pytest.fixture(scope="module")
def lonely_producer(producer_class: type) -> Iterator[Any]:
    """A producer without a broker."""
    producer = producer_class({"bootstrap.servers": NOWHERE, "log_level": 0})
    yield producer
    producer.purge()
    producer.close()


@OURS
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_call(lonely_producer: Any, stock_producer: Any, call: Call) -> None:
    """A call that confluent_kafka refuses, on a producer that is open."""
    check(raised_by(call, stock_producer), raised_by(call, lonely_producer))


@OURS
@pytest.mark.parametrize("state", ["closed", "uninitialised"])
@pytest.mark.parametrize("use", METHODS.values(), ids=METHODS.keys())
def test_use_of_what_is_not_open(producer_class: type, use: Call, state: str) -> None:
    """Every method of a closed producer, and of one whose subclass forgot super().__init__()."""

    def raised(cls: type) -> BaseException | None:
        producer: Any = cls.__new__(cls)
        if state == "closed":
            producer.__init__({"bootstrap.servers": NOWHERE, "log_level": 0})
            producer.close()
        return raised_by(use, producer)

    check(raised(cimpl.Producer), raised(producer_class))


@OURS
@pytest.mark.parametrize(("args", "kwargs"), CONFIGS.values(), ids=CONFIGS.keys())
def test_configuration(producer_class: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """A configuration that confluent_kafka refuses."""
    if len(args) == 1 and isinstance(args[0], dict):
        args = ({**args[0], "log_level": 0},)

    def call(cls: Any) -> None:
        cls(*args, **kwargs)

    check(raised_by(call, cimpl.Producer), raised_by(call, producer_class))


def test_no_configuration(producer_class: type) -> None:
    """Not even an empty one, which confluent_kafka takes."""
    check(raised_by(lambda cls: cls(), cimpl.Producer), raised_by(lambda cls: cls(), producer_class))


def test_header_names_of_a_batch(make: Any, cluster: Any, topic: str) -> None:
    """A name of a header may be anything in a batch, as in produce(), where it is what str() makes of it."""
    producer = make()
    for name in (5, b"name", None, "name"):
        assert producer.produce_batch(topic, [{"value": b"v", "headers": [(name, b"w")]}]) == 1
    assert producer.flush(10) == 0
    assert cluster.values(topic) == [b"v"] * 4


def test_states_of_a_transaction(make: Any, topic: str) -> None:
    """What librdkafka says of a call that its transaction does not allow now arrives as it is."""
    config = {"transactional.id": f"id-{topic}", "enable.idempotence": True}
    stock, producer = cimpl.Producer({"bootstrap.servers": NOWHERE, "log_level": 0, **config}), make(config)
    calls: list[Call] = [
        lambda producer: producer.begin_transaction(),
        lambda producer: producer.produce(topic, b"v"),
        lambda producer: producer.produce_batch(topic, [{"value": b"v", "partition": 0}]),
        lambda producer: producer.commit_transaction(1),
        lambda producer: producer.abort_transaction(1),
    ]
    raised = [(raised_by(call, stock), raised_by(call, producer)) for call in calls]
    stock.close()
    for expected, found in raised:
        assert (expected is None) == (found is None)
        if expected is not None:
            check(expected, found)
