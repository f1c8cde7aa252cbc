"""Reading compressed batches back: every codec in every framing, and what claims to be one."""

import gzip
import subprocess
import sys
from collections.abc import Callable

import cramjam
import pytest
from aiokafka.codec import snappy_encode

from safeproducer.testing import FakeCluster
from safeproducer.testing.codec import WireError
from safeproducer.testing.produce import unpack
from tests.conformance.target import list_offsets
from tests.testing.raw import RawClient, make_batch

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
PACK: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "gzip": (GZIP, gzip.compress),
    "snappy, one block": (SNAPPY, lambda data: bytes(cramjam.snappy.compress_raw(data))),
    "snappy, Java's blocks": (SNAPPY, lambda data: snappy_encode(data, xerial_blocksize=64)),
    "lz4": (LZ4, lambda data: bytes(cramjam.lz4.compress(data))),
    "zstd": (ZSTD, lambda data: bytes(cramjam.zstd.compress(data))),
}


@pytest.mark.parametrize("form", PACK)
def test_log_and_timestamps_see_through_compression(cluster: FakeCluster, form: str, client: RawClient) -> None:
    """`log()` unpacks, and a timestamp is found inside a compressed batch, to the very record."""
    codec, pack = PACK[form]
    values = [b"value %d" % number * 20 for number in range(9)]
    assert client.produce("t", make_batch(values, timestamp=5000, codec=codec, pack=pack))["error_code"] == 0
    for timestamp, found in ((5003, (5003, 3)), (-3, (5008, 8))):
        partition = list_offsets(client, "t", timestamp)
        assert (partition["timestamp"], partition["offset"]) == found
    assert [record.value for record in cluster.log("t")] == values


@pytest.mark.parametrize("form", PACK)
def test_a_large_batch_is_unpacked_whole(form: str) -> None:
    """A megabyte that hardly shrink, and five that shrink to nothing."""
    codec, pack = PACK[form]
    noise = b"".join(number.to_bytes(4, "big") for number in range(250_000))
    for data in (b"", noise, bytes(5_000_000)) if "Java" not in form else (b"", noise):
        assert unpack(codec, pack(data)) == data


@pytest.mark.parametrize("form", PACK)
def test_bytes_that_are_not_packed_so_are_refused(form: str) -> None:
    """Cut short, changed, or something else: a WireError that names the codec."""
    codec, pack = PACK[form]
    packed = pack(b"the same again and again" * 20)
    for wrong in (b"\xff" * 40, packed[: len(packed) // 2]):
        with pytest.raises(WireError, match=form.partition(",")[0]):
            unpack(codec, wrong)


def test_a_batch_that_holds_no_records_is_named(cluster: FakeCluster, client: RawClient) -> None:
    """`log()` says which batch and how it is packed; `batches()` still shows it, and a lookup takes its header."""
    for codec in (ZSTD, 0):
        client.produce("t", make_batch([b"a"], codec=codec, pack=lambda data: b"\xff" * 99))
    assert list_offsets(client, "t", 0)["offset"] == 0
    with pytest.raises(WireError, match="the batch at offset 0, packed with zstd, cannot be read"):
        cluster.log("t")
    assert [header.compression for header in cluster.batches("t")] == [ZSTD, 0]


def test_a_missing_library_is_a_sentence() -> None:
    """Without cramjam: plain and gzip batches are read, and the others say what to install."""
    code = """
import sys
sys.modules["cramjam"] = None
import gzip
from safeproducer.testing.codec import WireError
from safeproducer.testing.produce import unpack
assert unpack(1, gzip.compress(b"a")) == unpack(0, b"a") == b"a"
for codec, name in ((2, "snappy"), (3, "lz4"), (4, "zstd")):
    try:
        unpack(codec, b"x")
    except WireError as error:
        assert str(error) == f"reading {name} needs cramjam: install safeproducer[testing]", error
    else:
        raise AssertionError(name)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
