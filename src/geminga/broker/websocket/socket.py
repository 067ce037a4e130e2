"""One WebSocket: RFC 6455 by ``websockets``' sans-I/O half, on a transport that was HTTP's.

Texts go up, texts come down. What came is taken in small pieces: compression multiplies what a peer sends, and whoever
is above may have enough at any message. A half message takes room that all share, and has a deadline. What a compressed
message inflates to is bounded as any other is; no window of a compressor is kept between messages, which would be
300 KiB a socket.

It is looked at from time to time (:meth:`WebSocket.look`): who is silent, does not take what was sent, or does not
answer a close is cut off.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from enum import Flag, auto
from typing import Final, NamedTuple, Protocol, cast

from websockets.datastructures import Headers
from websockets.extensions.permessage_deflate import ServerPerMessageDeflateFactory
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol

from geminga.runtime import get_logger, let_go
from geminga.runtime.frame_room import LARGE_FRAME_BYTES, FrameRoom, HalfFrame, UnreadResponses

_log = get_logger(__name__)

#: Seconds without a byte taken of what was sent.
STALLED_S_MAX: Final = 60.0
#: Seconds for the answer to a close.
CLOSE_S_MAX: Final = 5.0
#: Seconds from a message's first byte to its last, while it is read.
MESSAGE_S_MAX: Final = 60.0
#: What a ping of ours holds; Pulsar's.
PING: Final = b"PING"
#: Bytes of what is to be sent above which nothing more is.
WRITE_HIGH_BYTES: Final = 64 * 1024
#: Bytes that are taken at once, and seconds for the pieces of one turn.
PIECE_BYTES: Final = 8 * 1024
TURN_S_MAX: Final = 0.005


class Hold(Flag):
    """Why a socket is not read."""

    NOTHING = 0
    #: Whoever is above has enough.
    ABOVE = auto()
    #: The peer does not take what it was sent.
    UNREAD = auto()
    #: There is no room for the rest of a large message.
    ROOM = auto()
    #: What came already is more than a turn has time for.
    TURN = auto()


class Above(Protocol):
    """What a socket is for."""

    def text(self, text: str) -> None:
        """A message came."""

    def writable(self) -> None:
        """It may be sent to again."""

    def lost(self) -> None:
        """It is gone, or going; the last call."""


class SocketLimits(NamedTuple):
    """Of every socket."""

    #: Bytes of a message, inflated.
    message_bytes_max: int
    #: Seconds without a byte either way; 0: no limit.
    idle_s: float
    #: Seconds between pings of ours; 0: none.
    ping_s: float


class SharedRoom(NamedTuple):
    """What the sockets of a broker have together."""

    limits: SocketLimits
    #: For messages that do not come at once.
    halves: FrameRoom
    unread: UnreadResponses


class _Quiet(logging.LoggerAdapter[logging.Logger]):
    """The library's log without its lines of every socket, header and frame: credentials and payloads are in those."""

    def isEnabledFor(self, level: int) -> bool:
        """The library asks once, before it tells of headers and frames."""
        return level > logging.INFO and super().isEnabledFor(level)


_QUIET: Final = _Quiet(_log, {})
#: A compressor is made for each message: with a window of 4 KiB and little beside it in 5 microseconds, with zlib's own
#: sizes in 35.
_DEFLATE: Final = ServerPerMessageDeflateFactory(
    server_no_context_takeover=True,
    client_no_context_takeover=True,
    server_max_window_bits=12,
    compress_settings={"memLevel": 5},
)
#: Of the headers of a request, beside those that are the protocol's own.
_NEEDED: Final = ("host", "connection", "upgrade")


class _Protocol(ServerProtocol):
    """The library's, which takes a close between the pieces of a message for an error."""

    #: Bytes of a message that is not whole, by the two names that it had in the library; None: there is none.
    current_size: int | None
    cur_size: int | None

    def recv_frame(self, frame: Frame) -> None:
        """As there. RFC 6455, 5.4: control frames, of which a close is one, may come in the middle of a message."""
        if frame.opcode is Opcode.CLOSE:
            self.current_size = self.cur_size = None
        super().recv_frame(frame)


class Upgrade:
    """The server's half of a request to speak WebSocket, before anything is answered."""

    def __init__(self, headers: Iterable[tuple[str, str]], limits: SocketLimits) -> None:
        """``headers`` of the request, whatever its path."""
        self.protocol = _Protocol(extensions=[_DEFLATE], max_size=limits.message_bytes_max, logger=_QUIET)
        found = Headers()
        for name, value in headers:
            if name.lower() in _NEEDED or name.lower().startswith("sec-websocket-"):
                found[name] = value
        # Its parser begins with a request.
        self.protocol.receive_data(Request("/", found).serialize())
        (request,) = self.protocol.events_received() or (Request("/", found),)
        assert isinstance(request, Request)
        self._response = self.protocol.accept(request)

    @property
    def refusal(self) -> tuple[int, str] | None:
        """Status and reason, where the request is none that can be; None: it can."""
        if self._response.status_code == 101:
            return None
        return self._response.status_code, (self._response.body or b"").decode(errors="replace").strip()

    def accept(self) -> bytes:
        """What is answered; frames follow it."""
        self.protocol.send_response(self._response)
        return b"".join(self.protocol.data_to_send())


class WebSocket(asyncio.Protocol):
    """See the module."""

    __slots__ = (
        "_above",
        "_close_sent_s",
        "_half",
        "_has_sent",
        "_heard_s",
        "_hold",
        "_message",
        "_message_since_s",
        "_on_lost",
        "_ping_sent_s",
        "_protocol",
        "_room",
        "_turn",
        "_unread_bytes",
        "_unread_since_s",
        "_untaken",
        "_upgrade",
        "transport",
    )

    def __init__(
        self, upgrade: Upgrade, room: SharedRoom, above: Above, on_lost: Callable[[WebSocket], None], now_s: float
    ) -> None:
        """``now_s``: the loop's time."""
        self._upgrade: Upgrade | None = upgrade
        self._protocol = upgrade.protocol
        self._room = room
        #: Whom it is for; None once it is closed.
        self._above: Above | None = above
        self._on_lost = on_lost
        self.transport: asyncio.Transport | None = None
        self._hold = Hold.NOTHING
        #: What came and was not looked at yet.
        self._untaken = bytearray()
        self._turn: asyncio.Handle | None = None
        #: Frames of a message that is not whole.
        self._message = bytearray()
        self._half: HalfFrame | None = None
        #: When the message began that is not whole; None: there is none.
        self._message_since_s: float | None = None
        #: When something came, or was sent or taken as of the last look.
        self._heard_s = now_s
        #: Since the last look.
        self._has_sent = False
        self._ping_sent_s = now_s
        #: None: it is open.
        self._close_sent_s: float | None = None
        self._unread_bytes = 0
        self._unread_since_s = now_s

    # ---- the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It was HTTP's; the answer goes first."""
        # No isinstance: uvloop's transports are not asyncio's.
        self.transport = cast("asyncio.Transport", transport)
        upgrade, self._upgrade = self._upgrade, None
        assert upgrade is not None
        self.transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        self.transport.write(upgrade.accept())

    def data_received(self, data: bytes) -> None:
        """Take it, as far as a turn has time."""
        self._heard_s = asyncio.get_running_loop().time()
        self._untaken += data
        if self._turn is None:
            self._take_turn()

    def eof_received(self) -> bool:
        """The peer says no more: the transport closes itself."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        self._untaken.clear()
        self._end_half()
        self._room.unread.keeps_up(self)
        # Its frames know the protocol, which knows them.
        self._protocol.parser.close()
        # So does what was wrong with them, by its traceback.
        self._protocol.parser_exc = None
        if self.transport is not None:
            let_go(self.transport)
            self.transport = None
        self._leave_above()
        self._on_lost(self)

    def pause_writing(self) -> None:
        """The peer does not take what it was sent."""
        self._hold_for(Hold.UNREAD)
        self._room.unread.fell_behind(self)

    def resume_writing(self) -> None:
        """It took most of it."""
        self._room.unread.keeps_up(self)
        self._free_of(Hold.UNREAD)
        if self._above is not None:
            self._above.writable()

    # ---- what comes

    def _take_turn(self) -> None:
        self._turn = None
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + TURN_S_MAX
        while self._untaken and not self._hold & ~Hold.TURN and self.transport is not None:
            piece = bytes(self._untaken[:PIECE_BYTES])
            del self._untaken[:PIECE_BYTES]
            self._protocol.receive_data(piece)
            has_ended = self._take_frames()
            self._flush()
            self._mind_half(has_ended=has_ended)
            if loop.time() >= deadline_s:
                break
        if self._untaken and self.transport is not None:
            self._hold_for(Hold.TURN)
            if self._turn is None and not self._hold & ~Hold.TURN:
                self._turn = loop.call_soon(self._take_turn)
        else:
            self._free_of(Hold.TURN)

    def _take_frames(self) -> bool:
        """Hand on what is whole; whether a message ended."""
        has_ended = False
        for frame in self._protocol.events_received():
            if not isinstance(frame, Frame) or frame.opcode in (Opcode.PING, Opcode.PONG, Opcode.CLOSE):
                continue
            if frame.opcode is Opcode.BINARY:
                self.close(CloseCode.UNSUPPORTED_DATA, "expected texts of JSON, not binary messages")
                return True
            if not frame.fin:
                self._message += frame.data
                continue
            has_ended = True
            data = frame.data
            if frame.opcode is Opcode.CONT:
                self._message += data
                data, self._message = self._message, bytearray()
            above = self._above
            if above is None:
                continue  # closed: what comes behind that is not looked at
            try:
                text = str(data, "utf-8")
            except UnicodeDecodeError:
                self.close(CloseCode.INVALID_DATA, "a text that is no UTF-8")
                return True
            above.text(text)
        if self._protocol.state is not State.OPEN:
            self._leave_above()
        return has_ended

    def _mind_half(self, *, has_ended: bool) -> None:
        """A message has begun, grown, or is whole."""
        half_bytes = len(self._protocol.reader.buffer) + len(self._message)
        if has_ended or not half_bytes:
            self._end_half()
            self._message_since_s = None
        if not half_bytes or self.transport is None:
            return
        if self._message_since_s is None:
            self._message_since_s = asyncio.get_running_loop().time()
        if self._half is not None:
            self._room.halves.progress(self._half)
        elif half_bytes > LARGE_FRAME_BYTES:
            self._half = self._room.halves.begin(self, self._room.limits.message_bytes_max)

    def _end_half(self) -> None:
        if self._half is not None:
            half, self._half = self._half, None
            self._room.halves.end(half)
            self._free_of(Hold.ROOM)

    # ---- room for halves (``runtime.frame_room.FrameReader``)

    @property
    def is_heard(self) -> bool:
        """Whether it is read now."""
        return not self._hold

    def frame_waits(self) -> None:
        """There is no room for the rest of a message now."""
        self._hold_for(Hold.ROOM)

    def frame_has_room(self) -> None:
        """There is now."""
        self._free_of(Hold.ROOM)

    def abort(self, reason: str = "") -> None:
        """End it at once."""
        self._leave_above()
        if self.transport is not None:
            self.transport.abort()

    # ---- reading

    def hold(self) -> None:
        """Whoever is above has enough."""
        self._hold_for(Hold.ABOVE)

    def free(self) -> None:
        """It may have more."""
        self._free_of(Hold.ABOVE)

    def _hold_for(self, reason: Hold) -> None:
        was, self._hold = self._hold, self._hold | reason
        if not was and self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()

    def _free_of(self, reason: Hold) -> None:
        if not self._hold & reason:
            return
        self._hold &= ~reason
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        if self._message_since_s is not None:
            # Nobody is late with what was not read.
            self._message_since_s = asyncio.get_running_loop().time()
        if self._untaken and not self._hold & ~Hold.TURN:
            if self._turn is None:
                self._turn = asyncio.get_running_loop().call_soon(self._take_turn)
        elif not self._hold:
            transport.resume_reading()

    # ---- what goes

    @property
    def is_writable(self) -> bool:
        """Whether more may be sent now."""
        return self._above is not None and not self._hold & Hold.UNREAD

    @property
    def is_open(self) -> bool:
        """Neither closed nor lost."""
        return self._above is not None

    def send(self, text: str) -> None:
        """One message; nothing once it is closed."""
        if self._protocol.state is State.OPEN and self.transport is not None:
            self._has_sent = True
            self._protocol.send_text(text.encode())
            self._flush()

    def close(self, code: int, reason: str) -> None:
        """Say goodbye; whoever is above is let go at once."""
        if self._protocol.state is State.OPEN and self.transport is not None:
            self._protocol.send_close(code, reason)
            self._close_sent_s = asyncio.get_running_loop().time()
            self._flush()
        self._leave_above()
        self._free_of(Hold.ABOVE)

    def shutdown(self) -> None:
        """The server stops."""
        self.close(CloseCode.GOING_AWAY, "the broker is stopping")

    def _flush(self) -> None:
        transport = self.transport
        if transport is None:
            return
        for data in self._protocol.data_to_send():
            if data:
                transport.write(data)
            else:
                transport.close()

    def _leave_above(self) -> None:
        above, self._above = self._above, None
        if above is not None:
            above.lost()

    # ---- time

    def look(self, now_s: float) -> None:
        """End it if the peer takes too long; ping it if it is time. ``now_s``: the loop's."""
        transport = self.transport
        if transport is None:
            return
        unread_bytes = transport.get_write_buffer_size()
        if unread_bytes < self._unread_bytes or not unread_bytes:
            self._unread_since_s = now_s
            if self._unread_bytes or self._has_sent:
                self._heard_s = now_s
        self._has_sent, self._unread_bytes = False, unread_bytes
        limits = self._room.limits
        # Of who is not read nothing is heard, not even that it went: that is told to who writes.
        ping_s = limits.ping_s or (limits.idle_s if self._hold else 0.0)
        if now_s - self._unread_since_s >= STALLED_S_MAX:
            self.abort()
        elif self._close_sent_s is not None:
            if now_s - self._close_sent_s >= CLOSE_S_MAX:
                self.abort()
        elif self._message_since_s is not None and not self._hold and now_s - self._message_since_s >= MESSAGE_S_MAX:
            self.close(CloseCode.POLICY_VIOLATION, f"a message took longer than {MESSAGE_S_MAX:.0f} s")
        elif limits.idle_s and not self._hold and now_s - self._heard_s >= limits.idle_s:
            self.close(CloseCode.GOING_AWAY, "Idle Timeout")
        elif ping_s and now_s - self._ping_sent_s >= ping_s and self.is_writable:
            self._ping_sent_s = now_s
            self._protocol.send_ping(PING)
            self._flush()
