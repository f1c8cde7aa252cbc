"""The tap's listener in front of one broker."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from integration.tap.faults import Faults
from integration.tap.ledger import Ledger
from integration.tap.link import Link, Setting, close

LOOPBACK = "127.0.0.1"
BUFFER = 1 << 20


class TappedNode(Protocol):
    """What the tap must know of a broker: where it listens and where it says that it listens."""

    @property
    def id(self) -> int: ...
    @property
    def client_port(self) -> int: ...
    @property
    def advertised_port(self) -> int: ...


class TappedCluster(Protocol):
    """A cluster whose nodes advertise ports that are the tap's."""

    @property
    def nodes(self) -> Mapping[int, TappedNode]: ...


@dataclass(frozen=True, slots=True)
class Route:
    """A proxy of the tap's own: listens on `advertised_port`, forwards to `client_port`."""

    id: int
    client_port: int
    advertised_port: int


class Proxy:
    """The listener of one broker; lives on the tap's loop."""

    def __init__(self, node: TappedNode, ledger: Ledger, faults: Faults, numbers: Callable[[], int]) -> None:
        self.node = node
        self.gate = asyncio.Event()
        self.gate.set()
        self.links: set[Link] = set()
        self._setting = Setting(node.id, ledger, faults, self.gate)
        self._numbers = numbers
        self._server: asyncio.Server | None = None
        self.failures: list[BaseException] = []

    async def listen(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, LOOPBACK, self.node.advertised_port, limit=BUFFER)

    async def refuse(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server = await asyncio.open_connection(LOOPBACK, self.node.client_port, limit=BUFFER)
        except OSError:
            close(writer, reset=True)
            return
        link = Link(self._numbers(), (reader, writer), server, self._setting)
        self.links.add(link)
        try:
            await link.run()
        except Exception as error:
            self.failures.append(error)
        finally:
            self.links.discard(link)
