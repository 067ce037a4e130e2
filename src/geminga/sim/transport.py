"""In-memory TCP: two transports joined by two pipes.

A pipe carries one direction: bytes are never lost, doubled or reordered while the connection lives, but they are
cut and joined at will, delayed, held back by a partition, and stopped by a reader that does not read: a window of
:data:`WINDOW_BYTES` may be under way, the rest waits in the sender's buffer, where the usual high and low water
marks pause and resume the sending protocol. Callbacks run in the context of the node that owns the transport.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final

from geminga.runtime.ports import Buffer
from geminga.sim.boot import Boot

if TYPE_CHECKING:
    from geminga.sim.network import SimNetwork

#: Bytes of one direction that may be in flight or unread: the two kernels' socket buffers.
WINDOW_BYTES: Final = 128 * 1024
#: Largest chunk given to ``data_received``, as asyncio's own reads.
CHUNK_BYTES_MAX: Final = 256 * 1024
#: asyncio's default high-water mark.
HIGH_WATER_BYTES_DEFAULT: Final = 64 * 1024
#: Marks the end of a direction in its pipe.
FIN: Final = b""


class SimTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(
        self,
        network: SimNetwork,
        boot: Boot | None,
        context: Context,
        host: str,
        *,
        local: tuple[str, int],
        remote: tuple[str, int],
    ) -> None:
        super().__init__({"sockname": local, "peername": remote})
        self._network = network
        #: The life it belongs to; None: the scenario's.
        self.boot = boot
        #: Where its callbacks run.
        self.context = context
        #: Name of the node it is on.
        self.host = host
        self.protocol: asyncio.BaseProtocol = asyncio.Protocol()
        #: The other end; set by the network.
        self.peer: SimTransport
        #: The direction towards the peer; set by the network.
        self.outgoing: Pipe
        #: Set once connection_lost is called or due.
        self.is_lost = False
        self._closing = False
        self._eof_sent = False
        self._high, self._low = HIGH_WATER_BYTES_DEFAULT, HIGH_WATER_BYTES_DEFAULT // 4
        self._writing_paused = False
        self.reading_paused = False

    # -- asyncio.Transport

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Hand what arrives to another protocol."""
        self.protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """The present protocol."""
        return self.protocol

    def is_closing(self) -> bool:
        """Whether close or abort was called, or the connection is gone."""
        return self._closing

    def write(self, data: Buffer) -> None:
        """Send; ignored once closing, as asyncio does."""
        if self._closing or not self._alive():
            return
        if self._eof_sent:
            raise RuntimeError("Cannot call write() after write_eof()")
        if not data:
            return
        self.outgoing.push(bytes(data))
        self.check_high_water()

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        """Send the buffers as one write."""
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        """True: half-close is supported."""
        return True

    def write_eof(self) -> None:
        """Close the sending direction after what was written."""
        if not self._eof_sent and not self._closing and self._alive():
            self._eof_sent = True
            self.outgoing.push_fin()

    def close(self) -> None:
        """Stop reading, send what is buffered, then close."""
        if self._closing or not self._alive():
            return
        self._closing = True
        if not self._eof_sent:
            self._eof_sent = True
            self.outgoing.push_fin()
        self.check_drained()

    def abort(self) -> None:
        """Drop what is buffered and reset the connection."""
        if self._alive():
            self._network.reset(self, None)

    def pause_reading(self) -> None:
        """Let nothing more arrive; the peer's writes back up."""
        self.reading_paused = True

    def resume_reading(self) -> None:
        """Go on."""
        if self.reading_paused:
            self.reading_paused = False
            self.peer.outgoing.kick()

    def is_reading(self) -> bool:
        """Whether data may arrive."""
        return not self.reading_paused and not self._closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Water marks, bytes; as asyncio: low is a quarter of high unless given."""
        if high is None:
            high = HIGH_WATER_BYTES_DEFAULT if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._high, self._low = high, low
        self.check_high_water()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """(low, high), bytes."""
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        """Bytes not yet taken by the network."""
        return self.outgoing.buffered_bytes

    # -- for pipes and the network

    def call_soon(self, callback: Any, *args: object) -> None:  # noqa: ANN401
        """Call in the owner's context."""
        self._network.loop.call_soon(callback, *args, context=self.context)

    def check_high_water(self) -> None:
        """Pause the protocol if the buffer is over the mark."""
        if not self._writing_paused and self.outgoing.buffered_bytes > self._high:
            self._writing_paused = True
            self.protocol.pause_writing()

    def check_drained(self) -> None:
        """Resume the protocol below the low mark; finish a close once all is sent."""
        if self._writing_paused and self.outgoing.buffered_bytes <= self._low and not self.is_lost:
            self._writing_paused = False
            self.call_soon(self._resume_writing)
        if self._closing and not self.outgoing.buffered_bytes:
            self.lose(None)

    def lose(self, error: Exception | None) -> None:
        """Tell the protocol, once, in a later step."""
        if not self.is_lost:
            self.is_lost = True
            self._closing = True
            self.outgoing.drop_buffer()
            self.call_soon(self._tell_lost, error)

    def receive(self, data: bytes) -> None:
        """Hand over bytes, or the end of the stream."""
        protocol = self.protocol
        if data == FIN:
            keep_open = isinstance(protocol, asyncio.Protocol | asyncio.BufferedProtocol) and protocol.eof_received()
            if not keep_open:
                self.close()
        elif isinstance(protocol, asyncio.BufferedProtocol):
            view = memoryview(data)
            while view:
                buffer = memoryview(protocol.get_buffer(len(view)))
                size = min(len(buffer), len(view))
                buffer[:size] = view[:size]
                protocol.buffer_updated(size)
                view = view[size:]
        elif isinstance(protocol, asyncio.Protocol):
            protocol.data_received(data)

    def _alive(self) -> bool:
        return not self.is_lost and (self.boot is None or self.boot.alive)

    def _resume_writing(self) -> None:
        if not self.is_lost:
            self.protocol.resume_writing()

    def _tell_lost(self, error: Exception | None) -> None:
        self._network.forget(self)
        self.protocol.connection_lost(error)


class Pipe:
    """One direction of a connection."""

    __slots__ = (
        "_arrivals",
        "_buffer",
        "_fin",
        "_network",
        "_timer",
        "_under_way",
        "buffered_bytes",
        "last_arrival_s",
        "receiver",
        "sender",
    )

    def __init__(self, network: SimNetwork, sender: SimTransport, receiver: SimTransport) -> None:
        self._network = network
        self.sender = sender
        self.receiver = receiver
        #: Written and not yet taken by the network.
        self._buffer: deque[bytes] = deque()
        self.buffered_bytes = 0
        self._fin = False
        #: (when, chunk), in order.
        self._arrivals: deque[tuple[float, bytes]] = deque()
        self._under_way = 0
        #: Nothing arrives before this: order is kept.
        self.last_arrival_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def push(self, data: bytes) -> None:
        """Take bytes from the sending protocol."""
        self._buffer.append(data)
        self.buffered_bytes += len(data)
        self._network.sending(self)
        self._pump()

    def push_fin(self) -> None:
        """End this direction after what was pushed."""
        self._fin = True
        self._pump()

    def drop_buffer(self) -> None:
        """Forget what has not left yet."""
        self._buffer.clear()
        self.buffered_bytes = 0

    def kick(self) -> None:
        """Look again: the receiver reads again, or the link healed."""
        self._arm()

    @property
    def is_waiting(self) -> bool:
        """Whether bytes have not arrived yet."""
        return bool(self._arrivals or self._buffer)

    def stop(self) -> None:
        """Deliver nothing more."""
        self._arrivals.clear()
        self.drop_buffer()
        self._fin = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _pump(self) -> None:
        network = self._network
        if self._buffer and self._under_way < WINDOW_BYTES:
            data = b"".join(self._buffer)
            self._buffer.clear()
            taken = data[: WINDOW_BYTES - self._under_way]
            if len(taken) < len(data):
                self._buffer.append(data[len(taken) :])
            self.buffered_bytes -= len(taken)
            self._under_way += len(taken)
            for chunk in network.cut(taken):
                self._send(chunk)
        if self._fin and not self._buffer:
            self._fin = False
            self._send(FIN)
        self._arm()

    def _send(self, chunk: bytes) -> None:
        network = self._network
        start = network.loop.time()
        if network.has_bandwidth(self.sender.host, self.receiver.host):
            start = max(start, self.last_arrival_s)
        when = start + network.delay_s(self.sender.host, self.receiver.host, len(chunk))
        self.last_arrival_s = max(when, self.last_arrival_s)
        self._arrivals.append((self.last_arrival_s, chunk))

    def _arm(self) -> None:
        if self._timer is None and self._arrivals:
            self._timer = self._network.loop.call_at(self._arrivals[0][0], self._arrive, context=self.receiver.context)

    def _arrive(self) -> None:
        # Runs in the receiver's context; what concerns the sender is scheduled in the sender's.
        self._timer = None
        network, receiver, sender = self._network, self.receiver, self.sender
        if not self._arrivals:
            return
        if network.is_blocked(sender.host, receiver.host):
            network.hold_back(self)
            return
        if receiver.is_closing():
            self._arrive_at_closed()
            return
        if receiver.reading_paused:
            return  # resume_reading kicks
        now = network.loop.time()
        chunk = self._arrivals.popleft()[1]
        if chunk != FIN and network.joins():
            while self._arrivals and self._arrivals[0][0] <= now and self._arrivals[0][1] != FIN:
                chunk += self._arrivals.popleft()[1]
        self._under_way -= len(chunk)
        network.delivered(sender.host, receiver.host, chunk)
        if not sender.is_lost:
            self._pump()
            sender.check_drained()
        self._arm()
        receiver.receive(chunk)

    def _arrive_at_closed(self) -> None:
        # As the kernel: nobody reads any more, and once the socket is closed data is answered with a reset.
        had_data = any(chunk != FIN for _, chunk in self._arrivals)
        self._arrivals.clear()
        self._under_way = 0
        if self.sender.is_lost:
            return
        if had_data and self.receiver.is_lost:
            self._network.reset_later(self.sender)
        else:
            self._pump()
            self.sender.check_drained()
