"""Asks a broker how many batches of a producer it remembers for a topic (KIP-1269), by DescribeConfigs.

No released client reads the field of Produce v14. One request holds the broker's own configs and the topic's, so that
librdkafka sends it to that broker: a topic's alone would go to any, whose inherited values are its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigEntry, ConfigResource, ConfigSource
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt

from safeproducer import dice
from safeproducer.kafka.connection import connection_settings
from safeproducer.kafka.native import KafkaError, KafkaException
from safeproducer.policy import kip_1269
from safeproducer.policy.expiry import Told, told
from safeproducer.policy.window import Announcement, Config, Source, announcement

TIMEOUT = 5.0
"""Seconds of one request."""
_ATTEMPTS = 3
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 1.0
"""Seconds."""
_QUIET = 0
PERMANENT = frozenset(
    {
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError._UNSUPPORTED_FEATURE,
    }
)


class Discovery:
    """One admin client, made when first asked. `sleep(seconds)` is how it waits between attempts.

    One thread asks; any may set_sasl_credentials(), after `config`, which is not copied, has the new ones.
    `heard(told)` gets what a broker says of producer IDs in the same answer (KIP-854).
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        sleep: Callable[[float], Any],
        heard: Callable[[Told], None] = lambda told: None,
    ) -> None:
        self._config = config
        self._heard = heard
        self._admin: Any = None
        self.again = Retrying(
            stop=stop_after_attempt(_ATTEMPTS),
            wait=_pause,
            retry=retry_if_exception(_may_pass),
            sleep=sleep,
            reraise=True,
        )

    def ask(self, node: int, topic: str) -> Announcement:
        """The announcement of `node` for `topic`, or why there is none. Never raises KafkaException."""
        try:
            return self.again(self._ask, node, topic)
        except KafkaException as error:
            cause = error.args[0]
            return Announcement(None, Source.ASSUMED, f"broker {node} did not tell: {cause.name()}: {cause.str()}")

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use these from the next connection on."""
        if (admin := self._admin) is not None:
            admin.set_sasl_credentials(username, password)

    def _connect(self) -> None:
        before = _login(self._config)
        config: dict[str, Any] = {**connection_settings(self._config), "log_level": _QUIET, "error_cb": _ignore}
        self._admin = AdminClient(config)
        if (now := _login(self._config)) != before:  # changed meanwhile, by who did not find an admin client
            self._admin.set_sasl_credentials(*now)

    @property
    def admin(self) -> Any:
        """The admin client, made if there is none."""
        if self._admin is None:
            self._connect()
        return self._admin

    def release(self) -> None:
        """End the admin client."""
        self._admin = None

    def _ask(self, node: int, topic: str) -> Announcement:
        resources = [
            ConfigResource(ConfigResource.Type.BROKER, str(node)),
            ConfigResource(ConfigResource.Type.TOPIC, topic),
        ]
        answers = self.admin.describe_configs(resources, request_timeout=TIMEOUT)
        broker, about_topic = (answers[resource].result(TIMEOUT * 2) for resource in resources)
        self._heard(told(node, {name: None if entry.is_sensitive else entry.value for name, entry in broker.items()}))
        return announcement(node, _entry(broker, kip_1269.BROKER_CONFIG), _entry(about_topic, kip_1269.TOPIC_CONFIG))


def _pause(state: RetryCallState) -> float:
    """As tenacity's wait_exponential_jitter, which takes its jitter from the application's random numbers."""
    return min(_FIRST_PAUSE * 2.0 ** (state.attempt_number - 1) + dice.share(), _LONGEST_PAUSE)


def _login(config: Mapping[str, Any]) -> tuple[Any, Any]:
    return config.get("sasl.username"), config.get("sasl.password")


def _entry(entries: Mapping[str, ConfigEntry], name: str) -> Config | None:
    entry = entries.get(name)
    if entry is None:
        return None
    own = ConfigSource(entry.source) is ConfigSource.DYNAMIC_TOPIC_CONFIG
    return Config(entry.value, bool(entry.is_sensitive), own)


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() not in PERMANENT


def _ignore(error: object) -> None:
    """The lanes tell of brokers that cannot be reached."""
