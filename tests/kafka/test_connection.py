"""Which of a producer's settings another client of the same cluster gets."""

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from safeproducer.kafka.properties import PRODUCER_PROPERTIES, connection_settings

CONNECTS = "bootstrap broker client https metadata reconnect sasl security socket ssl"


def passed(*names: str) -> set[str]:
    return set(connection_settings(dict.fromkeys(names, "x")))


def test_all_settings_of_connecting_are_passed_on() -> None:
    """All of it: who lacks one setting fails to connect, and nobody is told."""
    connecting = {name for name in PRODUCER_PROPERTIES if name.partition(".")[0] in CONNECTS.split()}
    connecting |= {"enable.sasl.oauthbearer.unsecure.jwt", "enable.ssl.certificate.verification", "oauth_cb"}
    connecting |= {"a.setting.of.a.newer.librdkafka"}
    assert passed(*connecting) == connecting


def test_the_producers_own_settings_are_not_passed_on() -> None:
    """A second client must not take a producer ID, call the application's callbacks, or have brokers of its own."""
    assert (
        passed("enable.idempotence", "transactional.id", "acks", "retries", "linger.ms", "delivery.timeout.ms") == set()
    )
    assert passed("max.in.flight", "partitioner", "compression.type", "safeproducer.mode", "debug") == set()
    assert passed("error_cb", "stats_cb", "throttle_cb", "on_delivery", "logger", "test.mock.num.brokers") == set()


def test_the_settings_suit_an_admin_client_and_a_consumer() -> None:
    """With a producer's settings of all kinds none of them refuses, or says that it ignores something."""
    lines: list[object] = []

    class Lines:
        def log(self, *args: object) -> None:
            lines.append(args)

    config = {
        "bootstrap.servers": "127.0.0.1:1",
        "client.id": "mine",
        "socket.timeout.ms": 5000,
        "socket.keepalive.enable": True,
        "reconnect.backoff.ms": 50,
        "metadata.max.age.ms": 60_000,
        "message.max.bytes": 100_000_000,
        "receive.message.max.bytes": 1_000_000,
        "linger.ms": 5,
        "acks": "all",
        "compression.type": "lz4",
        "queue.buffering.max.messages": 10,
        "log_level": 4,
    }
    admin = AdminClient(connection_settings(config), logger=Lines())
    consumer = Consumer({**connection_settings(config), "group.id": "g"}, logger=Lines())
    admin.poll(0.2)
    consumer.poll(0.2)
    consumer.close()
    assert not [line for line in lines if "CONFWARN" in str(line)]
