"""Bytes of another protocol on a port: which one it is, and an answer that its clients can show.

Ports are mixed up: 6650 (Pulsar's binary protocol), 6651 (the same within TLS), 8080 (HTTP). As sizes of frames the
first bytes of HTTP and TLS are impossible, so that eight of them say it.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from geminga.model.errors import ServerError
from geminga.wire.pulsar.commands import UNREQUESTED, error

#: Bytes that :func:`spoken_in` needs, at most.
HEAD_BYTES: Final = 8
#: A TLS alert: fatal, handshake failure. OpenSSL shows it as such; to a client that speaks TLS there is no text to say.
TLS_REFUSAL: Final = b"\x15\x03\x01\x00\x02\x02\x28"
_METHODS: Final = tuple(
    f"{method} ".encode()
    for method in ("GET", "PUT", "POST", "HEAD", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "PRI")
)
_TLS_ALERT: Final = 0x15
_TLS_HANDSHAKE: Final = 0x16
#: Handshakes and CONNECTs are smaller.
_FIRST_FRAME_BYTES_MAX: Final = 1 << 20


class Protocol(Enum):
    """What is spoken."""

    HTTP = "HTTP"
    TLS = "TLS"
    PULSAR = "Pulsar's binary protocol"


def spoken_in(head: bytes) -> Protocol | None:
    """What the first bytes of a connection are (some or all of :data:`HEAD_BYTES`); None if nothing known."""
    if head.startswith(b"HTTP/") or any(head.startswith(method[:HEAD_BYTES]) for method in _METHODS):
        return Protocol.HTTP
    if len(head) >= 3 and head[0] in (_TLS_HANDSHAKE, _TLS_ALERT) and head[1] == 3 and head[2] <= 4:
        return Protocol.TLS
    if len(head) >= HEAD_BYTES:
        total, command_size = int.from_bytes(head[:4], "big"), int.from_bytes(head[4:8], "big")
        if 0 < command_size <= total - 4 < _FIRST_FRAME_BYTES_MAX:
            return Protocol.PULSAR
    return None


def refusal(protocol: Protocol, text: str) -> bytes:
    """What to answer in ``protocol`` before closing: ``text`` where there is room for one."""
    if protocol is Protocol.TLS:
        return TLS_REFUSAL
    if protocol is Protocol.PULSAR:
        return error(UNREQUESTED, ServerError.UNSUPPORTED_VERSION_ERROR, text)
    body = text.encode() + b"\n"
    head = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
    return head % len(body) + body
