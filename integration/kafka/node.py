"""One Kafka node: a JVM of its own that can be killed, paused, stopped cleanly and started again."""

import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from integration.kafka.exchange import exchange
from integration.kafka.jars import java
from integration.kafka.ports import LOOPBACK, is_listening
from integration.kafka.settings import Ports
from safeproducer.testing import wire

LAUNCHER = Path(__file__).with_name("launcher.py")
TAIL = 4_000


class NodeError(RuntimeError):
    """A node did not do what it was told; the message ends with its console output."""


class PortTakenError(NodeError):
    """Another process took one of the node's ports before the node could."""


class Node:
    """A broker and controller in one process. Its methods may be called from any thread, one at a time."""

    def __init__(
        self,
        node_id: int,
        ports: Ports,
        log_dir: Path,
        *,
        properties: Path,
        jars: Sequence[Path],
        java_options: Sequence[str],
    ) -> None:
        self.id = node_id
        self.ports = ports
        self.log_dir = log_dir
        """Where the node keeps its partitions, one folder each."""
        self.output = log_dir.with_suffix(".out")
        """What the node wrote to its console, over all its starts."""
        self._properties = properties
        self._jars = jars
        self._java_options = java_options
        self._process: subprocess.Popen[bytes] | None = None
        self._paused = False
        self._earlier_output = 0

    def __repr__(self) -> str:
        return f"Node({self.id}, client_port={self.client_port}, {self.state})"

    @property
    def client_port(self) -> int:
        """The port on which the CLIENT listener really listens."""
        return self.ports.client

    @property
    def advertised_port(self) -> int:
        """The CLIENT port that metadata tells clients; differs from `client_port` on a tapped cluster."""
        return self.ports.advertised

    @property
    def direct_port(self) -> int:
        """Port of the DIRECT listener, which no tap ever sees."""
        return self.ports.direct

    @property
    def pid(self) -> int | None:
        """Process id of the JVM; None while it does not run."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    @property
    def state(self) -> str:
        """`running`, `paused` or `stopped`."""
        if self.pid is None:
            return "stopped"
        return "paused" if self._paused else "running"

    def launch(self) -> None:
        """Start the JVM and return at once; `wait_ready` tells when it serves."""
        if self.pid is not None:
            raise NodeError(f"node {self.id} already runs (pid {self.pid})")
        self._earlier_output = self.output.stat().st_size if self.output.exists() else 0
        command = [java(), *self._java_options, "kafka.Kafka", str(self._properties)]
        self._process = _spawner(os.getpid()).submit(self._spawn, command).result()
        self._paused = False

    def start(self, timeout: float = 60) -> None:
        """Start the JVM and wait until the node serves, at most `timeout` seconds."""
        self.launch()
        self.wait_ready(timeout)

    def wait_ready(self, timeout: float = 60) -> None:
        """Return once the node's own metadata names it as a live broker.

        Raises PortTakenError or NodeError when the JVM ends, NodeError after `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        while not (is_listening(self.client_port) and is_listening(self.direct_port)):
            self._check_alive(deadline)
            time.sleep(0.02)
        probe = AdminClient({"bootstrap.servers": f"{LOOPBACK}:{self.direct_port}", "log_level": 0})
        while not (self._serves(probe) and self._answers(self.client_port)):
            self._check_alive(deadline)
            time.sleep(0.02)

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, no leader is handed over. Works on a paused node too."""
        process = self._running()
        process.kill()
        process.wait()

    def stop(self, timeout: float = 30) -> None:
        """SIGTERM: the node hands its leaders over, flushes and ends.

        Raises NodeError (and kills it) when it needs longer than `timeout` seconds, as a node does that cannot reach a
        majority of the controllers.
        """
        process = self._running()
        if self._paused:
            self.resume()
        process.terminate()
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise NodeError(f"node {self.id} did not stop within {timeout} s{self._tail()}") from None

    def restart(self, timeout: float = 60) -> None:
        """Clean stop, then start; the node keeps its data and ports."""
        self.stop(timeout)
        self.start(timeout)

    def pause(self) -> None:
        """SIGSTOP: the node hangs, its connections stay open. Returns once the process stands still."""
        process = self._running()
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        self._paused = True

    def resume(self) -> None:
        """SIGCONT after `pause`."""
        self._running().send_signal(signal.SIGCONT)
        self._paused = False

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self.pid is None:
            raise NodeError(f"node {self.id} does not run{self._tail()}")
        return self._process

    def _spawn(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        environment: Mapping[str, str] = {**os.environ, "CLASSPATH": os.pathsep.join(map(str, self._jars))}
        with self.output.open("ab") as console:
            return subprocess.Popen(
                [sys.executable, "-I", "-S", str(LAUNCHER), str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                env=environment,
                # Ctrl-C at a terminal is for the tests to handle, not for the brokers.
                start_new_session=True,
            )

    def _serves(self, probe: AdminClient) -> bool:
        try:
            return self.id in probe.list_topics(timeout=1).brokers
        except KafkaException:
            return False

    def _answers(self, port: int) -> bool:
        """Whether a broker is behind the port, and not somebody else who took it."""
        try:
            return exchange(port, wire.encode_request("ApiVersions", 0, 1, "probe", {}), patience=1.0) != b""
        except OSError:
            return False

    def _check_alive(self, deadline: float) -> None:
        said = self.output.read_bytes()[self._earlier_output :]
        if b"BindException" in said or b"Address already in use" in said:
            # The JVM would need many seconds to give up by itself.
            if self.pid is not None:
                self.kill()
            raise PortTakenError(f"node {self.id} found a port taken{self._tail()}")
        if self._process is None or self.pid is None:
            code = None if self._process is None else self._process.returncode
            raise NodeError(f"node {self.id} ended while it started (exit code {code}){self._tail()}")
        if time.monotonic() > deadline:
            raise NodeError(f"node {self.id} was not ready in time{self._tail()}")

    def _tail(self) -> str:
        if not self.output.exists():
            return ""
        return f"; end of {self.output}:\n{self.output.read_text(errors='replace')[-TAIL:]}"


@functools.cache
def _spawner(_owner_pid: int) -> ThreadPoolExecutor:
    """The one thread that starts JVMs: the kernel kills them when it ends, so it must live as long as the process."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="kafka-spawner")
