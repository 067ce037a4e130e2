"""A listener that serves another protocol beside Pulsar's on one port, told apart by its first bytes.

Files that such a protocol touches: this module, and one line in ``app/servers/broker_server.py``, where the port of the
binary protocol is bound: instead of ``broker.new_connection`` the listener is given :func:`by_first_bytes`. A protocol
that has a port of its own needs no first bytes: it is one more ``runtime.network.listen``, in the same place.

What it must do itself: whoever says nothing is cut off (:data:`FIRST_BYTES_S`), for the limits of the broker begin with
its own connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, cast

#: Seconds that somebody has to say what it speaks.
FIRST_BYTES_S: Final = 10.0

MakeProtocol = Callable[[], asyncio.Protocol]


def by_first_bytes(others: Mapping[bytes, MakeProtocol], pulsar: MakeProtocol) -> MakeProtocol:
    """For a listener: whoever begins with one of these bytes is given that protocol, everybody else ``pulsar``.

    A frame of Pulsar's begins with its size, of which the first byte is 0 below 16 MiB: no text begins so.
    """
    return lambda: FirstBytes(others, pulsar)


class FirstBytes(asyncio.Protocol):
    """A connection of which nobody knows yet what it speaks."""

    def __init__(self, others: Mapping[bytes, MakeProtocol], pulsar: MakeProtocol) -> None:
        self._others = others
        self._pulsar = pulsar
        self._begin = b""
        self._transport: asyncio.Transport
        self._limit: asyncio.TimerHandle

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # No isinstance: the transports of uvloop, on which servers run where it is installed, are not asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        self._limit = asyncio.get_running_loop().call_later(FIRST_BYTES_S, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        self._begin += data
        make = next((make for first, make in self._others.items() if self._begin.startswith(first)), None)
        if make is None and any(first.startswith(self._begin) for first in self._others):
            return  # it may still become one of them
        self._limit.cancel()
        protocol = (make or self._pulsar)()
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        protocol.data_received(self._begin)

    def connection_lost(self, exc: Exception | None) -> None:
        self._limit.cancel()
