"""Numbers in settings: this library takes the same ones from a text as librdkafka, which is asked itself."""

import ctypes
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from safeproducer.kafka.properties import real, whole
from safeproducer.settings.config import parse

WHOLE = ["5", "+5", "-1", "-0", "0x10", "0X1f", "0x", "010", "08", "0b11", "0o17", "5ms", "1_000", "5,5", "-", "x5"]
LARGE = ["2147483648", "4294967301", "99999999999999999999", "-99999999999999999999", "1e400", "inf", "-inf"]
REAL = ["5.0", "0.5", ".5", "5.", "1e3", "1e", "+.5e+1", "e5", ".", "0x1p3", "0x.8p1", "nan", "NaN"]
WORDS = ["true", "all", "None", "\u0665"]
BLANKS = ["", " ", " 5", "5 ", "\t5", "\n5", "\v5", "\f\r5", "\u00a05", "5 000"]
REFUSED = None


@pytest.fixture(scope="module")
def librdkafka() -> Callable[[str, str], str | None]:
    """(setting, text) -> what librdkafka made of it, None when it was refused."""
    libraries = Path(confluent_kafka.__file__).parent.with_name("confluent_kafka.libs").glob("librdkafka*")
    library = ctypes.CDLL(str(next(libraries)))
    library.rd_kafka_conf_new.restype = ctypes.c_void_p
    library.rd_kafka_conf_destroy.argtypes = [ctypes.c_void_p]
    pointer, text, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
    library.rd_kafka_conf_set.argtypes = [pointer, text, text, text, size]
    library.rd_kafka_conf_get.argtypes = [pointer, text, text, ctypes.POINTER(size)]

    def taken(name: str, text: str) -> str | None:
        conf = library.rd_kafka_conf_new()
        said = ctypes.create_string_buffer(512)
        size = ctypes.c_size_t(512)
        try:
            if library.rd_kafka_conf_set(conf, name.encode(), text.encode(), said, 512) != 0:
                return REFUSED
            assert library.rd_kafka_conf_get(conf, name.encode(), said, ctypes.byref(size)) == 0
            return said.value.decode()
        finally:
            library.rd_kafka_conf_destroy(conf)

    return taken


@pytest.mark.parametrize("text", [*WHOLE, *LARGE, *REAL, *WORDS, *BLANKS])
def test_a_text_is_the_number_that_librdkafka_takes_it_for(
    text: str, librdkafka: Callable[[str, str], str | None]
) -> None:
    """Whole numbers and those with a point; where there is none, or it is out of range, librdkafka refuses it."""
    number, timeout = whole(text), librdkafka("message.timeout.ms", text)
    assert timeout == (None if number is None or number < 0 else str(number))
    linger, taken = real(text), librdkafka("linger.ms", text)
    if linger is not None and math.isnan(linger):
        assert taken is not None
        assert math.isnan(float(taken))
    elif linger is None or not 0 <= linger <= 900_000:
        assert taken is REFUSED
    else:
        assert taken is not None
        assert float(taken) == linger


@pytest.mark.parametrize("linger", [0.5, "0.5", "5.0", " 5", "5 ms", "0x10", "1e2", "nan", 7])
def test_the_linger_of_a_fed_lane_is_its_guard_however_the_users_is_written(linger: Any) -> None:
    """A batch lane with the user's linger would send what is there in the middle of handing over, and spin."""
    for name in ("linger.ms", "queue.buffering.max.ms"):
        settings = parse(({"bootstrap.servers": "x:1", name: linger},), {})
        lane = settings.delivery.batch_lane_config(settings.lane)
        assert {name: lane.get(name) for name in ("linger.ms", "queue.buffering.max.ms")} == {
            "linger.ms": settings.delivery.guard_ms,
            "queue.buffering.max.ms": None,
        }


@pytest.mark.parametrize("linger", ["many", True, -1, "1e9", None])
def test_a_linger_that_librdkafka_refuses_is_left_to_it(linger: Any) -> None:
    """It says what is wrong with it, in the constructor."""
    settings = parse(({"bootstrap.servers": "x:1", "linger.ms": linger},), {})
    assert settings.delivery.batch_lane_config(settings.lane)["linger.ms"] is linger


def test_batch_lanes_push_no_metrics_to_brokers() -> None:
    """Brokers would show one producer as many clients (KIP-714); the direct lane has the user's setting."""
    settings = parse(({"bootstrap.servers": "x:1", "enable.metrics.push": True},), {})
    assert settings.delivery.direct_lane_config(settings.lane)["enable.metrics.push"] is True
    told = [settings.delivery.told_lane_config(settings.lane, tells) for tells in (True, False)]
    for config in (settings.delivery.batch_lane_config(settings.lane), *told):
        assert config["enable.metrics.push"] is False


def test_the_feed_acts_by_the_same_numbers() -> None:
    """What librdkafka would do with these settings, the buffered path does with records that are held back."""
    settings = parse(
        (
            {
                "bootstrap.servers": "x:1",
                "linger.ms": "0.5",
                "batch.num.messages": "0x10",
                "message.timeout.ms": "5000.0",
                "queue.buffering.max.messages": "010",
                "queue.buffering.max.kbytes": " 64 ",
                "retry.backoff.ms": "20ms",
            },
        ),
        {},
    )
    delivery = settings.delivery
    assert (delivery.linger, delivery.batch_records, delivery.timeout) == (0.0005, 16, 5.0)
    assert (delivery.buffer.records, delivery.buffer.bytes, delivery.retry_backoff) == (8, 65_536, 0.02)


@pytest.mark.parametrize(
    ("setting", "value", "idempotent"),
    [
        ("acks", "all", True),
        ("acks", " -1", True),
        ("acks", "ALL", True),
        ("acks", "1 ", False),
        ("acks", "0x1", False),
        ("retries", "00", False),
        ("retries", "0.9", False),
        ("retries", "1", True),
        ("max.in.flight", " 6", False),
        ("max.in.flight", "5.9", True),
    ],
)
def test_idempotence_gives_way_to_the_number_that_librdkafka_sees(setting: str, value: Any, idempotent: bool) -> None:
    """Else librdkafka refuses the combination: a default must not make a configuration fail."""
    settings = parse(({"bootstrap.servers": "x:1", setting: value},), {})
    assert settings.idempotent is idempotent
    confluent_kafka.cimpl.Producer({**settings.lane, "log_level": 0}).close()
