"""The network of the broker's own client: this broker is reached without a socket, all others as ever.

A connection to an address of this broker is a pair of pipes in memory: no descriptor, no port that an operator maps or
guards with TLS between a broker and itself. The broker's end is an ordinary connection, which asks who is there; the
certificate of whom the client stands for is shown as TLS would show it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, Unpack

from geminga.runtime.ports import Connected, ConnectOptions, Listener, ListenOptions, Network, NewProtocol

#: Bytes on their way above which a protocol is told to pause, and at which it goes on, unless it sets others.
HIGH_BYTES: Final = 64 * 1024
#: Bytes that are handed over in one turn.
TURN_BYTES: Final = 256 * 1024


class OwnNetwork:
    """See the module; ``runtime.ports.Network``."""

    def __init__(
        self,
        network: Network,
        own: Callable[[], Collection[tuple[str, int]]],
        accept: Callable[[], asyncio.Protocol],
        certificate: bytes | None,
    ) -> None:
        """``own``: hosts and ports of this broker; ``accept`` makes its end of a connection.

        ``certificate``: of whom the client stands for, DER; None: it shows none."""
        self._network = network
        self._own = own
        self._accept = accept
        self._certificate = certificate

    async def connect(
        self, protocol_factory: NewProtocol, host: str, port: int, **options: Unpack[ConnectOptions]
    ) -> Connected:
        """See ``Network``."""
        if (host, port) not in self._own():
            return await self._network.connect(protocol_factory, host, port, **options)
        protocol = protocol_factory()
        near, far = PipeTransport(protocol, None), PipeTransport(self._accept(), self._certificate)
        near.join(far)
        far.begin()
        near.begin()
        return near, protocol

    async def listen(
        self, protocol_factory: NewProtocol, host: str, port: int, **options: Unpack[ListenOptions]
    ) -> Listener:
        """See ``Network``."""
        return await self._network.listen(protocol_factory, host, port, **options)

    async def listen_local(
        self, protocol_factory: NewProtocol, path: str, *, keep_free: int = 0, start: bool = True
    ) -> Listener:
        """See ``Network``."""
        return await self._network.listen_local(protocol_factory, path, keep_free=keep_free, start=start)

    async def connect_local(self, protocol_factory: NewProtocol, path: str) -> Connected:
        """See ``Network``."""
        return await self._network.connect_local(protocol_factory, path)


class _ShownCertificate:
    """What a transport of TLS has of its peer."""

    def __init__(self, certificate: bytes) -> None:
        self._certificate = certificate

    def getpeercert(self, binary_form: bool = False) -> bytes | None:
        """Of ``ssl.SSLObject``, as DER alone."""
        return self._certificate if binary_form else None


class PipeTransport(asyncio.Transport):
    """One end of a connection in memory. Nothing is handed over within the call that wrote it."""

    def __init__(self, protocol: asyncio.BaseProtocol, certificate: bytes | None) -> None:
        super().__init__({"peername": ("127.0.0.1", 0), "sockname": ("127.0.0.1", 0)})
        if certificate is not None:
            self._extra["ssl_object"] = _ShownCertificate(certificate)  # type: ignore[attr-defined]
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        #: Set by :meth:`join`; None again once it is lost.
        self._peer: PipeTransport | None = None
        #: Written here, and not handed over.
        self._out: deque[memoryview] = deque()
        self._out_bytes = 0
        self._high, self._low = HIGH_BYTES, HIGH_BYTES // 4
        self._turn: asyncio.Handle | None = None
        self._is_paused = False
        self._is_told_to_pause = False
        #: "" while it is open, then how it ends: "closing" hands over what is written, "lost" does not.
        self._end = ""

    def join(self, peer: PipeTransport) -> None:
        """Be the other's other end."""
        self._peer, peer._peer = peer, self

    def begin(self) -> None:
        """The connection is there."""
        self._protocol.connection_made(self)

    # ---- what is written

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """See ``asyncio.WriteTransport``."""
        if self._end or not data:
            return
        # A copy of what its writer may change.
        self._out.append(memoryview(data if isinstance(data, bytes) else bytes(data)))
        self._out_bytes += len(data)
        self._hand_over_soon()
        if self._out_bytes > self._high and not self._is_told_to_pause:
            self._is_told_to_pause = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview[Any]]) -> None:
        """See ``asyncio.WriteTransport``."""
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        """A pipe ends whole."""
        return False

    def get_write_buffer_size(self) -> int:
        """See ``asyncio.WriteTransport``."""
        return self._out_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """See ``asyncio.WriteTransport``."""
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """See ``asyncio.WriteTransport``."""
        self._high = HIGH_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    def _hand_over_soon(self) -> None:
        if self._turn is None:
            self._turn = self._loop.call_soon(self._hand_over)

    def _hand_over(self) -> None:
        self._turn = None
        left = TURN_BYTES
        peer = self._peer
        if peer is None:
            return
        while self._out and left > 0 and peer.is_reading():
            data = self._out.popleft()
            taken = peer.receive(data)
            left -= taken
            self._out_bytes -= taken
            if taken < len(data) and self._out_bytes:
                self._out.appendleft(data[taken:])
        if self._is_told_to_pause and self._out_bytes <= self._low and self._end != "lost":
            self._is_told_to_pause = False
            self._protocol.resume_writing()
        if self._out and peer.is_reading():
            self._hand_over_soon()
        elif not self._out and self._end == "closing":
            self.abort()

    def receive(self, data: memoryview[Any]) -> int:
        """The other end hands over; how many bytes were taken."""
        protocol = self._protocol
        if not isinstance(protocol, asyncio.BufferedProtocol):
            assert isinstance(protocol, asyncio.Protocol)
            protocol.data_received(bytes(data))
            return len(data)
        taken = 0
        while taken < len(data) and self.is_reading():
            room = memoryview(protocol.get_buffer(len(data) - taken))
            count = min(len(room), len(data) - taken)
            room[:count] = data[taken : taken + count]
            taken += count
            protocol.buffer_updated(count)
        return taken

    # ---- reading

    def pause_reading(self) -> None:
        """See ``asyncio.ReadTransport``."""
        self._is_paused = True

    def resume_reading(self) -> None:
        """See ``asyncio.ReadTransport``."""
        self._is_paused = False
        peer = self._peer
        if peer is not None and (peer._out or peer._end):
            peer._hand_over_soon()

    def is_reading(self) -> bool:
        """See ``asyncio.ReadTransport``."""
        return not self._is_paused and not self._end

    # ---- the end

    def is_closing(self) -> bool:
        """See ``asyncio.BaseTransport``."""
        return bool(self._end)

    def close(self) -> None:
        """See ``asyncio.BaseTransport``: what is written is handed over."""
        if not self._end:
            self._end = "closing"
            self._hand_over_soon()

    def abort(self) -> None:
        """See ``asyncio.WriteTransport``: both ends are told."""
        for end in (self, self._peer):
            if end is None or end._end == "lost":
                continue
            end._end = "lost"
            end._peer = None
            end._out.clear()
            end._out_bytes = 0
            self._loop.call_soon(end._protocol.connection_lost, None)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """See ``asyncio.BaseTransport``."""
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """See ``asyncio.BaseTransport``."""
        self._protocol = protocol
