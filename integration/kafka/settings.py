"""server.properties of a node: small, quick to elect and to start, everything on the loopback address."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from integration.kafka.ports import LOOPBACK


@dataclass(frozen=True)
class Ports:
    """The ports of one node; `secure` maps a TLS listener's name to its port."""

    client: int
    advertised: int
    direct: int
    controller: int
    secure: Mapping[str, int]


def server_properties(
    node_id: int, ports: Mapping[int, Ports], folder: Path, overrides: Mapping[str, str]
) -> dict[str, str]:
    """Settings of one combined broker and controller in a cluster of `len(ports)` nodes."""
    own = ports[node_id]
    listeners = {"CLIENT": own.client, "DIRECT": own.direct, "CONTROLLER": own.controller, **own.secure}
    advertised = {"CLIENT": own.advertised, "DIRECT": own.direct, **own.secure}
    protocols = {name: "SASL_SSL" if name in own.secure else "PLAINTEXT" for name in listeners}
    copies, in_sync = (3, 2) if len(ports) >= 3 else (1, 1)
    return {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "controller.quorum.voters": ",".join(
            f"{number}@{LOOPBACK}:{other.controller}" for number, other in ports.items()
        ),
        "controller.listener.names": "CONTROLLER",
        "listeners": _addresses(listeners),
        "advertised.listeners": _addresses(advertised),
        "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in protocols.items()),
        "inter.broker.listener.name": "DIRECT",
        "log.dirs": str(folder),
        "num.network.threads": "2",
        "num.io.threads": "2",
        "background.threads": "2",
        "num.recovery.threads.per.data.dir": "1",
        "log.cleaner.dedupe.buffer.size": "2097152",
        "log.segment.bytes": "67108864",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": str(copies),
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": str(copies),
        "transaction.state.log.min.isr": str(in_sync),
        "min.insync.replicas": str(in_sync),
        "auto.create.topics.enable": "false",
        "auto.leader.rebalance.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        "broker.heartbeat.interval.ms": "500",
        "broker.session.timeout.ms": "3000",
        "controller.quorum.election.timeout.ms": "1000",
        "controller.quorum.fetch.timeout.ms": "2000",
        "replica.lag.time.max.ms": "5000",
        "metadata.max.idle.interval.ms": "5000",  # a third of the CPU of a node that idles went into it
        "quota.window.size.seconds": "1",
        **overrides,
    }


def write_properties(path: Path, settings: Mapping[str, str]) -> None:
    """Write a Java properties file; a backslash or line break in a value would need escapes and is refused."""
    for name, value in settings.items():
        if "\n" in value or "\\" in value:
            raise ValueError(f"broker setting {name!r} must hold no line break or backslash: {value!r}")
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
    path.chmod(0o600)


def bootstrap(ports: Sequence[int]) -> str:
    """`bootstrap.servers` of these ports."""
    return ",".join(f"{LOOPBACK}:{port}" for port in ports)


def _addresses(listeners: Mapping[str, int]) -> str:
    return ",".join(f"{name}://{LOOPBACK}:{port}" for name, port in listeners.items())
