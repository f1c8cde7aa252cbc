"""Every setting of Java's producer, by its name, in exactly one of three tables.

The names are those that `ProducerConfig` of kafka-clients 3.9.2 prints, the version that Spark 4.2's Kafka connector
brings. integration/test_spark_java_settings.py compares them with that jar. The documents have the tables, too.
"""

from __future__ import annotations

from dataclasses import dataclass

from safeproducer.settings.own_settings import MAX_BLOCK_MS
from safeproducer.spark import conversions as to
from safeproducer.spark.conversions import Convert, whole


@dataclass(frozen=True, slots=True)
class Translation:
    """librdkafka's setting for one of Java. `convert` is None where only several together are understood."""

    becomes: tuple[str, ...]
    convert: Convert | None = None
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a setting is refused, and what to do instead: two halves of one message."""

    why: str
    way_out: str


TRANSLATED: dict[str, Translation] = {
    "acks": Translation(
        ("acks",), to.one_of("all", "1", "0", to={"-1": "all"}), "`0`: a report then says only that a row was sent"
    ),
    "batch.size": Translation(
        ("batch.size",), whole(at_least=1), "counts before compression; unset: librdkafka's 1 MB"
    ),
    "bootstrap.servers": Translation(("bootstrap.servers",), to.same, "required"),
    "buffer.memory": Translation(
        ("queue.buffering.max.kbytes", "queue.buffering.max.messages"),
        to.buffer_memory,
        "bytes become kilobytes; the limit on the number of records is lifted, since Java has none. It counts for "
        "each Python worker, not for each executor",
    ),
    "client.dns.lookup": Translation(
        ("client.dns.lookup",), to.one_of("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only")
    ),
    "client.id": Translation(("client.id",), to.same),
    "compression.gzip.level": Translation(
        ("compression.level",), to.level("gzip", -1, 9), "counts only with that `compression.type`"
    ),
    "compression.lz4.level": Translation(("compression.level",), to.level("lz4", 1, 12), "librdkafka ends at 12"),
    "compression.type": Translation(("compression.type",), to.one_of("none", "gzip", "snappy", "lz4", "zstd")),
    "compression.zstd.level": Translation(
        ("compression.level",), to.level("zstd", 0, 12), "librdkafka has 0 to 12, and no negative levels"
    ),
    "connections.max.idle.ms": Translation(("connections.max.idle.ms",), to.idle, "Java's -1 (never) becomes 0"),
    "delivery.timeout.ms": Translation(
        ("delivery.timeout.ms",),
        whole(least=1),
        "unset: the sink's deadline. Set: the deadline is at least as long, and a shorter one is refused",
    ),
    "enable.idempotence": Translation(("enable.idempotence",), to.truth),
    "enable.metrics.push": Translation(("enable.metrics.push",), to.truth),
    "linger.ms": Translation(("linger.ms",), whole(most=900_000), "unset: librdkafka's 5 ms"),
    "max.block.ms": Translation(
        (MAX_BLOCK_MS,), to.max_block, "how long a row waits for room; waiting for metadata counts in the deadline"
    ),
    "max.in.flight.requests.per.connection": Translation(
        ("max.in.flight.requests.per.connection",), whole(least=1, most=1_000_000)
    ),
    "max.request.size": Translation(
        ("message.max.bytes",),
        whole("message.max.bytes", least=1_000, most=1_000_000_000),
        "how large a row may be, and with `batch.size` how large a batch. A request holds batches of one partition, so "
        "it is never larger. Unset: Java's 1 048 576",
    ),
    "metadata.max.age.ms": Translation(
        ("topic.metadata.refresh.interval.ms",), to.metadata_age, "librdkafka's setting of the same name is another one"
    ),
    "metadata.recovery.strategy": Translation(("metadata.recovery.strategy",), to.one_of("none", "rebootstrap")),
    "partitioner.class": Translation(
        ("partitioner",),
        to.partitioner_class,
        "Java's own classes, or a name of librdkafka such as `consistent_random`. Unset: Java's murmur2",
    ),
    "partitioner.ignore.keys": Translation(("partitioner",), to.ignore_keys, "`true`: `random`"),
    "reconnect.backoff.max.ms": Translation(
        ("reconnect.backoff.max.ms", "reconnect.backoff.ms"), to.reconnect, "alone: the first pause is Java's 50 ms"
    ),
    "reconnect.backoff.ms": Translation(
        ("reconnect.backoff.ms", "reconnect.backoff.max.ms"), to.reconnect, "alone: every pause is as long, as in Java"
    ),
    "request.timeout.ms": Translation(
        ("request.timeout.ms", "socket.timeout.ms"),
        whole("request.timeout.ms", "socket.timeout.ms", least=10, most=300_000),
        "the broker's limit and the client's, which librdkafka sets apart",
    ),
    "retries": Translation(("retries",), whole()),
    "retry.backoff.max.ms": Translation(("retry.backoff.max.ms",), whole(most=300_000, at_least=1)),
    "retry.backoff.ms": Translation(("retry.backoff.ms",), whole(most=300_000, at_least=1)),
    "sasl.jaas.config": Translation(
        ("sasl.username", "sasl.password"), None, "`PlainLoginModule` and `ScramLoginModule`"
    ),
    "sasl.mechanism": Translation(
        ("sasl.mechanism",), None, "`PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512`. Java's default, `GSSAPI`, is refused"
    ),
    "security.protocol": Translation(
        ("security.protocol",), to.one_of("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
    ),
    "socket.connection.setup.timeout.ms": Translation(
        ("socket.connection.setup.timeout.ms",), whole(least=1_000), "1 s at least"
    ),
    "ssl.enabled.protocols": Translation((), to.tls_versions, "Java's default, `TLSv1.2,TLSv1.3`, and nothing less"),
    "ssl.endpoint.identification.algorithm": Translation(
        ("ssl.endpoint.identification.algorithm",),
        to.one_of("https", "none", to={"": "none"}),
        "Java's empty value becomes `none`",
    ),
    "ssl.key.password": Translation(("ssl.key.password",), None, "of a key in PEM"),
    "ssl.keystore.certificate.chain": Translation(("ssl.certificate.pem",), None, "PEM"),
    "ssl.keystore.key": Translation(("ssl.key.pem",), None, "PEM"),
    "ssl.keystore.location": Translation(
        ("ssl.certificate.location", "ssl.key.location", "ssl.keystore.location"),
        None,
        "a file on every executor: one in PEM with key and certificates, or a PKCS#12 key store",
    ),
    "ssl.keystore.password": Translation(("ssl.keystore.password",), None, "of a PKCS#12 key store; PEM has none"),
    "ssl.keystore.type": Translation((), None, "`PEM` or `PKCS12`. Java's default, `JKS`, is refused"),
    "ssl.truststore.certificates": Translation(("ssl.ca.pem",), None, "PEM"),
    "ssl.truststore.location": Translation(
        ("ssl.ca.location",), None, "a file in PEM on every executor. Unset: the system's authorities, not Java's"
    ),
    "ssl.truststore.type": Translation((), None, "`PEM`. Java's default, `JKS`, is refused"),
}


def _each(text: str, names: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), text)


WITHOUT_EFFECT: dict[str, str] = {
    **_each(
        "the sink reports by itself",
        "auto.include.jmx.reporter metric.reporters metrics.num.samples metrics.recording.level "
        "metrics.sample.window.ms",
    ),
    **_each("rows are bytes, or strings that are written in UTF-8", "key.serializer value.serializer"),
    **_each(
        "librdkafka chooses a partition at random for rows without a key, and stays with it for a while",
        "partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms",
    ),
    **_each("the operating system sizes the buffers of sockets", "receive.buffer.bytes send.buffer.bytes"),
    **_each(
        "PLAIN and SCRAM have no ticket or token that is renewed",
        "sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds "
        "sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter "
        "sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms",
    ),
    **_each(
        "OpenSSL chooses",
        "ssl.keymanager.algorithm ssl.protocol ssl.secure.random.implementation ssl.trustmanager.algorithm",
    ),
    "metadata.max.idle.ms": "a topic's metadata stays while its producer lives",
    "socket.connection.setup.timeout.max.ms": "librdkafka's time-out for a connection does not grow",
    "transaction.timeout.ms": "the sink has no transactions",
}
"""Name -> why it changes nothing. It is told once, on the driver."""

_STAY = "or write with Spark's own Kafka sink"
_LOGIN = f"Log in with SCRAM, PLAIN or a certificate in PEM, {_STAY}"
_OPENSSL = "TLS is OpenSSL's here, and no class in Java takes part"

_KERBEROS = "kinit.cmd min.time.before.relogin service.name ticket.renew.jitter ticket.renew.window.factor"
_OAUTH = (
    "clock.skew.seconds expected.audience expected.issuer header.urlencode jwks.endpoint.refresh.ms "
    "jwks.endpoint.retry.backoff.max.ms jwks.endpoint.retry.backoff.ms jwks.endpoint.url scope.claim.name "
    "sub.claim.name token.endpoint.url"
)
_CALLBACKS = ("sasl.client.callback.handler.class", "sasl.login.callback.handler.class", "sasl.login.class")

REFUSED: dict[str, Refusal] = {
    **{f"sasl.kerberos.{name}": Refusal("Kerberos is not supported", _LOGIN) for name in _KERBEROS.split()},
    **{f"sasl.oauthbearer.{name}": Refusal("OAUTHBEARER is not supported", _LOGIN) for name in _OAUTH.split()},
    **dict.fromkeys(
        _CALLBACKS, Refusal("it names a class in Java, as delegation tokens and cloud logins need it", _LOGIN)
    ),
    "interceptor.classes": Refusal(
        "an interceptor in Java cannot run in Python, and rows would miss what it does",
        "Do it in Spark before the sink",
    ),
    "security.providers": Refusal(_OPENSSL, "Leave it out"),
    "ssl.cipher.suites": Refusal(
        "OpenSSL calls cipher suites by other names than Java", "Restrict ssl.cipher.suites on the brokers"
    ),
    "ssl.engine.factory.class": Refusal(_OPENSSL, "Give keys and certificates in PEM"),
    "ssl.provider": Refusal(_OPENSSL, "Leave it out"),
    "ssl.truststore.password": Refusal(
        "a trust store in PEM has no password, and JKS and PKCS#12 cannot be read",
        "Export its certificates in PEM (keytool -exportcert -rfc), give the file as kafka.ssl.truststore.location "
        "with kafka.ssl.truststore.type=PEM, and leave the password out",
    ),
    "transactional.id": Refusal(
        "the sink writes at least once, and has no transactions",
        "Leave it out; retries of the client make no duplicates, as enable.idempotence is on",
    ),
}
