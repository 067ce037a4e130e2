"""WebSockets as bytes on a socket: for who reads nothing, sends halves, or no frames at all."""

from __future__ import annotations

import base64
import socket
from struct import pack


def upgraded(port: int, path: str) -> socket.socket:
    """A socket of ``path``, behind the answer to its upgrade; it takes little that it does not read."""
    made = socket.create_connection(("127.0.0.1", port), timeout=30)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    key = base64.b64encode(bytes(16)).decode()
    try:
        made.sendall(
            f"GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
        )
        answer = made.recv(4096)
        assert answer.startswith(b"HTTP/1.1 101 "), answer
    except BaseException:
        made.close()
        raise
    return made


def text_frame(data: bytes, *, size_bytes: int | None = None) -> bytes:
    """Masked with zeros; ``size_bytes``: what it says that it has."""
    size = len(data) if size_bytes is None else size_bytes
    if size < 126:
        head = pack(">BB", 0x81, 0x80 | size)
    else:
        head = pack(">BBH", 0x81, 0x80 | 126, size) if size < 1 << 16 else pack(">BBQ", 0x81, 0x80 | 127, size)
    return head + bytes(4) + data
