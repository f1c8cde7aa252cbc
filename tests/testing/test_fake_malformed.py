"""FakeCluster under bytes that no client would send: no crash, no hang, bounded memory, and others are served."""

import random
import struct
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator

import psutil
import pytest

from safeproducer.testing import FakeCluster
from safeproducer.testing.codec import WireError
from safeproducer.testing.fake.handlers import SERVED
from safeproducer.testing.wire import decode_request, encode_request, read_request_header, versions
from tests.conformance.target import list_offsets
from tests.testing.malformed import request_of, requests, with_giant_lengths
from tests.testing.raw import RawClient, hung_up, make_batch, produce_body

# Some of the mutations ask for groups and transactions.
pytestmark = pytest.mark.filterwarnings("ignore::safeproducer.testing.FakeClusterWarning")

MEGABYTE = 1024 * 1024
MARK = encode_request("ApiVersions", 0, -7, None, {})


@pytest.fixture
def cluster(cluster: FakeCluster) -> Iterator[FakeCluster]:
    """Other connections go on after everything, and nothing has failed inside."""
    cluster.create_topic("abc")
    with RawClient(cluster.bootstrap) as bystander:
        assert bystander.produce("abc", make_batch([b"before"]))["error_code"] == 0
        yield cluster
        assert cluster._state.failures == []
        assert len(bystander.ask("Metadata", 12, topics=None)["brokers"]) == 3
        with RawClient(cluster.bootstrap) as newcomer:
            newcomer.ask("Metadata", 12, topics=[])


class Attacker:
    """Sends frames one by one, and knows that each was dealt with: by the mark behind it, or by being hung up on."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._bootstrap = cluster.bootstrap
        self._client = RawClient(self._bootstrap)

    def close(self) -> None:
        self._client.__exit__()

    def send(self, frame: bytes) -> str:
        try:
            self._client.send_raw(b"".join(struct.pack(">i", len(part)) + part for part in (frame, MARK)))
            while self._client.receive()[:4] != MARK[4:8]:
                pass
        except ConnectionError:
            self.close()
            self._client = RawClient(self._bootstrap)
            return "hung up"
        return "answered"


@pytest.fixture
def attacker(cluster: FakeCluster) -> Iterator[Attacker]:
    made = Attacker(cluster)
    yield made
    made.close()


def ends() -> list[tuple[str, int]]:
    """The oldest and the newest version of each API: one has the lengths of old, the other one the compact ones."""
    return sorted({(api, version) for api, (first, last, _) in SERVED.items() for version in (first, last)})


def rss() -> int:
    return psutil.Process().memory_info().rss


def waits(frame: bytes) -> bool:
    """Whether it is a proper request that the broker may answer late: a fetch that waits, a quota that throttles."""
    try:
        header = read_request_header(frame)
        body = decode_request(header, frame, trailing=True)
    except WireError:
        return False
    late = "AlterClientQuotas JoinGroup SaslAuthenticate SaslHandshake SyncGroup"
    return body.get("max_wait_ms", 0) > 1 or header.api in late.split()


# ---- lengths


def test_every_length_of_every_request_may_lie(cluster: FakeCluster, attacker: Attacker) -> None:
    """Set to 2^31-1, 2^32-1 and the like, one by one: answered or hung up on at once, without the memory."""
    for api in {api for api, _ in requests()}:
        request_of(api, versions(api)[0])  # loads the schema
    seen: Counter[str] = Counter()
    tracemalloc.start()
    try:
        for api, version in ends():
            for what, frame in with_giant_lengths(api, version):
                if waits(frame):
                    continue
                began = time.monotonic()
                seen[attacker.send(frame)] += 1
                assert time.monotonic() - began < 2, what
        assert tracemalloc.get_traced_memory()[1] < 30 * MEGABYTE
    finally:
        tracemalloc.stop()
    assert seen["hung up"] > 300
    assert seen["answered"] > 15


def test_announced_bytes_take_no_memory_before_they_come(cluster: FakeCluster) -> None:
    """Fifty connections that announce 100 MB each and send little of it cost what they send."""
    before = rss()
    clients = [RawClient(cluster.bootstrap) for _ in range(50)]
    try:
        for client in clients:
            client.send_raw(struct.pack(">i", 100 * MEGABYTE) + bytes(10_000))
        with RawClient(cluster.bootstrap) as other:
            other.ask("Metadata", 12, topics=[])
        assert rss() - before < 60 * MEGABYTE
    finally:
        for client in clients:
            client.__exit__()


# ---- mutations


def mutated(rng: random.Random, frame: bytes) -> bytes:
    """One to four bytes changed, taken out or put in, or the end cut off."""
    data = bytearray(frame)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data)) if data else 0
        kind = rng.random()
        if kind < 0.6 and data:
            data[at] = rng.choice((rng.randrange(256), 0, 0x7F, 0x80, 0xFF))
        elif kind < 0.75:
            del data[at : at + rng.randint(1, 3)]
        elif kind < 0.9:
            data[at:at] = rng.randbytes(rng.randint(1, 5))
        else:
            del data[max(at, 1) :]
    return bytes(data)


OF_PROGRAMS = ("Txn", "Transactions", "Group", "Offset", "Heartbeat", "Coordinator", "InitProducerId", "Sasl")


@pytest.mark.parametrize(("apis", "count"), [(("",), 3_000), (OF_PROGRAMS, 26_000)], ids=["all", "of programs"])
def test_thousands_of_mutations(cluster: FakeCluster, attacker: Attacker, apis: tuple[str, ...], count: int) -> None:
    """Each is answered or hung up on within two seconds, and memory does not grow with them."""
    rng = random.Random(1269)
    asked = [(api, version) for api, version in requests() if any(part in api for part in apis)]
    frames = [request_of(api, version) for api, version in asked]
    seen: Counter[str] = Counter()
    before = 0
    while seen.total() < count:
        frame = mutated(rng, rng.choice(frames))
        if waits(frame):
            continue
        began = time.monotonic()
        seen[attacker.send(frame)] += 1
        assert time.monotonic() - began < 2, frame.hex()
        if seen.total() == 1_000:
            before = rss()
    assert rss() - before < 60 * MEGABYTE
    assert min(seen["answered"], seen["hung up"]) > 300


def test_mutated_records_are_read_or_refused(cluster: FakeCluster) -> None:
    """Batches with a good checksum around nonsense are stored unseen, as Kafka does with bytes it need not look into;
    reading back says WireError or gives records, and a lookup by time answers."""
    rng = random.Random(936)
    with RawClient(cluster.bootstrap) as client:
        for number in range(300):
            name = f"t{number % 10}"
            if number < 10:
                cluster.create_topic(name)
                if cluster.leader(name)[0] != 1:
                    cluster.move_leader(name, to=1)
            batch = make_batch([b"value", b""], codec=rng.choice((0, 0, 1, 4)), pack=lambda raw: mutated(rng, raw))
            assert client.produce(name, batch)["error_code"] == 0
        for number in range(10):
            assert list_offsets(client, f"t{number}", 5)["error_code"] == 0
    refused = 0
    for number in range(10):
        try:
            cluster.log(f"t{number}")
        except WireError:
            refused += 1
    assert refused


def test_an_endless_number_in_a_record_is_refused(cluster: FakeCluster) -> None:
    """A varint as long as the batch is not added up, which would take minutes."""
    with RawClient(cluster.bootstrap) as client:
        batch = make_batch([b"x"], pack=lambda raw: b"\xff" * 500_000)
        assert client.produce("abc", batch)["error_code"] == 0
    began = time.monotonic()
    with pytest.raises(WireError, match="a number ends not before"):
        cluster.log("abc")
    assert time.monotonic() - began < 2


# ---- clients that misbehave in time


def test_half_requests(cluster: FakeCluster) -> None:
    """A request cut at each byte and then hung up on leaves nothing behind: no record, no entry, no connection."""
    frame = encode_request("Produce", 9, 1, "raw", produce_body("abc", make_batch([b"half"])))
    whole = struct.pack(">i", len(frame)) + frame
    for length in range(len(whole)):
        with RawClient(cluster.bootstrap) as client:
            client.send_raw(whole[:length])
    cluster.wait(lambda c: sum(len(broker._connections) for broker in c._brokers.values()) == 1)
    assert [record.value for record in cluster.log("abc")] == [b"before"]
    assert len(cluster.journal()) == 1


def test_a_slow_client_is_served(cluster: FakeCluster) -> None:
    """Byte by byte, with many such clients at once."""
    frame = encode_request("Metadata", 12, 5, "slow", {"topics": []})
    clients = [RawClient(cluster.bootstrap) for _ in range(20)]
    try:
        for byte in struct.pack(">i", len(frame)) + frame:
            for client in clients:
                client.send_raw(bytes([byte]))
        assert [struct.unpack_from(">i", client.receive())[0] for client in clients] == [5] * 20
    finally:
        for client in clients:
            client.__exit__()


def test_a_client_that_reads_nothing_is_not_read_either(cluster: FakeCluster) -> None:
    """Its answers pile up to a limit, then its requests wait in the kernel; others do not notice."""
    cluster.create_topic("wide", 200)
    ask = encode_request("Metadata", 12, 5, "deaf", {"topics": None})
    before, requests = rss(), 20_000
    with RawClient(cluster.bootstrap) as deaf:
        deaf._socket.setblocking(False)
        deaf._socket.send((struct.pack(">i", len(ask)) + ask) * requests)
        done, deadline = -1, time.monotonic() + 10
        while (seen := len(cluster.journal("Metadata"))) != done and time.monotonic() < deadline:
            done = seen
            time.sleep(0.3)
        with RawClient(cluster.bootstrap) as other:
            other.ask("Metadata", 12, topics=[])
        assert 0 < done < requests / 4
        assert rss() - before < 60 * MEGABYTE


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff", b"\0\0\0\3abc", b"GET / HTTP/1.1\r\n\r\n"])
def test_the_journal_tells_of_malformed_bytes(cluster: FakeCluster, data: bytes) -> None:
    """A negative size, half a header, another protocol."""
    with RawClient(cluster.bootstrap) as client:
        client.send_raw(data)
        client.ends()
    assert cluster.journal()[-1].outcome == "malformed"


def test_garbage_in_a_pipeline_ends_it(cluster: FakeCluster) -> None:
    """What came before is answered in order, what comes behind is not worked on."""
    body = produce_body("abc", make_batch([b"x"]))
    rng = random.Random(4)
    for _ in range(50):
        had = len(cluster.log("abc"))
        good = [encode_request("Produce", 9, number, "raw", body) for number in range(4)]
        stream = [*good[:2], b"\0\3\0\x0c" + rng.randbytes(60), *good[2:]]
        with RawClient(cluster.bootstrap) as client:
            client.send_raw(b"".join(struct.pack(">i", len(frame)) + frame for frame in stream))
            # A hang-up with requests unread resets the connection, which may overtake the answers.
            with hung_up():
                for number in range(5):
                    assert struct.unpack_from(">i", client.receive())[0] == number
        assert len(cluster.log("abc")) == had + 2
        assert cluster.journal()[-1].outcome == "malformed"
