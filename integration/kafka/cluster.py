"""A Kafka cluster of one or more nodes that lives as long as a `with` block and never longer than its process."""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType

from integration.kafka.admin import Admin
from integration.kafka.archive import archive_options
from integration.kafka.folders import ClusterFolder
from integration.kafka.jars import classpath, under_test
from integration.kafka.log import Batch, read_segments
from integration.kafka.node import Node, PortTakenError
from integration.kafka.ports import free_ports
from integration.kafka.security import LISTENERS, SECURE, Certificates, make_certificates, secure_properties
from integration.kafka.settings import Ports, bootstrap, server_properties, write_properties
from integration.kafka.storage import features, format_folder, random_uuid

ATTEMPTS = 5


class KafkaCluster:
    """`nodes` combined brokers and controllers on the loopback address, all started at once.

    `tapped` advertises ports of the CLIENT listener on which nobody listens: a proxy is to listen on
    `node.advertised_port` and forward to `node.client_port`. `secure` adds SASL_SSL listeners (see `security`) and an
    authorizer for which the plaintext listeners are the super user. `configs` overrides broker settings. `heap` is the
    JVM's -Xmx, 256m unless `throughput` (full compiler, 1g) is asked for.

    The nodes are killed and their data is deleted on exit, and when the process ends in whatever way.
    """

    def __init__(
        self,
        nodes: int = 1,
        *,
        tapped: bool = False,
        secure: bool = False,
        configs: Mapping[str, str] | None = None,
        heap: str | None = None,
        throughput: bool = False,
    ) -> None:
        self.size = nodes
        self.tapped = tapped
        self.secure = secure
        self.certificates: Certificates | None = None
        self.cluster_id = random_uuid()
        self.nodes: dict[int, Node] = {}
        self._configs = dict(configs or {})
        self._java_options = [
            "-Xms64m",
            f"-Xmx{heap or ('1g' if throughput else '256m')}",
            "-XX:+UseSerialGC",
            *([] if throughput else ["-XX:TieredStopAtLevel=1"]),
            "-Djava.net.preferIPv4Stack=true",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
        ]
        self._folder: ClusterFolder | None = None
        self._owner = os.getpid()
        self._admin: Admin | None = None

    def __enter__(self) -> KafkaCluster:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"KafkaCluster({list(self.nodes.values())})"

    @property
    def bootstrap(self) -> str:
        """`bootstrap.servers` for the producers under test (through the tap on a tapped cluster)."""
        return bootstrap([node.advertised_port for node in self.nodes.values()])

    @property
    def direct_bootstrap(self) -> str:
        """`bootstrap.servers` of the listener that is never tapped: for admin, consumers and oracles."""
        return bootstrap([node.direct_port for node in self.nodes.values()])

    @property
    def secure_bootstrap(self) -> str:
        """`bootstrap.servers` of the SASL_SSL listener with a good certificate."""
        return self.tls_bootstrap(SECURE)

    def tls_bootstrap(self, listener: str) -> str:
        """`bootstrap.servers` of a TLS listener: SECURE, EXPIRED or MISNAMED of `security`."""
        if not self.secure:
            raise ValueError(f"listener {listener} needs KafkaCluster(secure=True)")
        return bootstrap([node.ports.secure[listener] for node in self.nodes.values()])

    @property
    def ca_pem(self) -> Path:
        """The CA certificate that clients of the TLS listeners are to trust."""
        if self.certificates is None:
            raise ValueError("ca_pem needs KafkaCluster(secure=True), started")
        return self.certificates.ca

    def read_batches(self, topic: str, partition: int) -> Iterator[Batch]:
        """The record batches in the segment files of the partition's leader; see `log.read_segments`."""
        leader = self.nodes[self.admin.leader(topic, partition)]
        return read_segments(leader.log_dir / f"{topic}-{partition}")

    @property
    def admin(self) -> Admin:
        """The cluster's admin helper, over the DIRECT listener; made on first use."""
        if self._admin is None:
            self._admin = Admin(self.direct_bootstrap, self.nodes)
        return self._admin

    def start(self) -> None:
        """Format storage, start all nodes and wait until every one of them serves."""
        jars = classpath(of=under_test())
        levels = features(jars)
        self._java_options += archive_options(jars, levels, self._java_options)
        self._folder = ClusterFolder()
        atexit.register(self.close)
        if self.secure:
            self.certificates = make_certificates(self._folder.path / "tls")
            self._configs = {**secure_properties(self.certificates), **self._configs}
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._start_nodes(jars, levels)
                return
            except PortTakenError:
                self._kill_nodes()
                if attempt == ATTEMPTS:
                    self.close()
                    raise
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """Kill the nodes and delete their data; may be called again. Does nothing in a forked child."""
        if self._folder is None or os.getpid() != self._owner:
            return
        # The data goes, so a clean stop would only cost time; and the last nodes of a quorum cannot stop cleanly.
        self._admin = None
        self._kill_nodes()
        self._folder.remove()
        self._folder = None
        atexit.unregister(self.close)

    def _start_nodes(self, jars: list[Path], levels: Path) -> None:
        ports = self._pick_ports()
        self.nodes = {number: self._make_node(number, ports, jars, levels) for number in ports}
        for node in self.nodes.values():
            node.launch()
        for node in self.nodes.values():
            node.wait_ready()

    def _pick_ports(self) -> dict[int, Ports]:
        free = iter(free_ports(self.size * (4 + len(LISTENERS))))
        picked = {}
        for number in range(1, self.size + 1):
            client, tap, direct, controller = (next(free) for _ in range(4))
            tls = {name: next(free) for name in LISTENERS} if self.secure else {}
            picked[number] = Ports(client, tap if self.tapped else client, direct, controller, tls)
        return picked

    def _make_node(self, number: int, ports: Mapping[int, Ports], jars: list[Path], levels: Path) -> Node:
        assert self._folder is not None
        log_dir = self._folder.path / f"node-{number}"
        format_folder(log_dir, number, self.cluster_id, levels)
        properties = log_dir.with_suffix(".properties")
        write_properties(properties, server_properties(number, ports, log_dir, self._configs))
        return Node(number, ports[number], log_dir, properties=properties, jars=jars, java_options=self._java_options)

    def _kill_nodes(self) -> None:
        for node in self.nodes.values():
            if node.pid is not None:
                node.kill()
