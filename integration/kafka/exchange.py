"""One request to one port, as bytes: for what no client sends, or not to a broker of one's choice."""

import socket

from integration.kafka.ports import LOOPBACK

PATIENCE = 10.0


def exchange(port: int, frame: bytes, patience: float = PATIENCE) -> bytes:
    """Send one frame, return one, or nothing when the connection ends; raises OSError after `patience` seconds."""
    with socket.create_connection((LOOPBACK, port), patience) as peer:
        return answer_to(peer, frame)


def answer_to(peer: socket.socket, frame: bytes) -> bytes:
    """Send one frame on this connection, return one."""
    peer.sendall(len(frame).to_bytes(4, "big") + frame)
    reader = peer.makefile("rb")
    return reader.read(int.from_bytes(reader.read(4), "big"))
