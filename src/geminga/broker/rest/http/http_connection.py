"""uvicorn's HTTP/1.1 connection with what it lacks: an end for clients that send half a request or read no answer.

A body that does not come with its headers takes room that all connections share (``runtime.frame_room``), until the
request is answered. What a connection holds is gone with it: uvicorn leaves cycles for the collector.

It extends uvicorn's protocol and asks its parser how far a request is, which neither promises: both are ranges, and
``test_http_connection_internals`` fails where a version has it otherwise. Loaded with the rest of the HTTP
software, by ``server``.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, cast

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from geminga.broker.rest.calls.core.timeouts import RequestPhase, RequestTimeouts
from geminga.runtime import let_go
from geminga.runtime.frame_room import FrameRoom, HalfFrame, UnreadResponses
from geminga.wire.pulsar.foreign import HEAD_BYTES, refusal, spoken_in
from geminga.wire.pulsar.foreign import Protocol as Spoken

#: What a client of the binary protocol is told, with the keys of the two ports.
NOT_HTTP: Final = "This is a port of HTTP ({}); Pulsar's binary protocol is on another one ({})"
#: Where the state of a request's scope has the certificate that its client showed, which TLS verified: DER.
CERTIFICATE_IN_STATE: Final = "certificate"
#: And the way to speak another protocol from now on: a :data:`TakesOver`.
TAKE_OVER_IN_STATE: Final = "take_over"
#: What a client is told that took too long for its request.
_REQUEST_TIMEOUT = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
#: Of h11, where the server sets no bound.
_HEADER_BYTES_MAX: Final = 64 * 1024
#: What a client is told for whose body there is no room.
_NO_ROOM = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class Successor(Protocol):
    """A connection that was one of HTTP, among those that a server cuts, or lets go, at its end."""

    transport: asyncio.Transport | None

    def shutdown(self) -> None:
        """The server stops."""


#: Has the protocol that is made for it, which is told what to call when it is lost, take the connection; whether there
#: was one to take.
TakesOver = Callable[[Callable[[Callable[[Successor], None]], asyncio.Protocol]], bool]


class StrangersLog(logging.LoggerAdapter[logging.Logger]):
    """uvicorn's log, whose warnings, one for each request that is none, are left to ``warn``."""

    def __init__(self, warn: Callable[[str, str], None]) -> None:
        """``warn``: a text, and its kind."""
        super().__init__(logging.getLogger("uvicorn.error"), {})
        self._warn = warn

    @property
    def level(self) -> int:
        """uvicorn compares it before it traces."""
        return self.logger.level

    def warning(self, msg: object, *args: object, **kwargs: object) -> None:
        """uvicorn's are a few sentences without anything of the request's."""
        text = str(msg)
        self._warn(text, text)


class Shared(NamedTuple):
    """What connections of a server have together."""

    #: For bodies that do not come at once.
    room: FrameRoom
    #: The largest body that is read, bytes.
    body_bytes_max: int
    unread: UnreadResponses
    log: StrangersLog
    #: Connections that were of HTTP.
    successors: set[Successor]


class _Flow(FlowControl):
    """uvicorn's, which reads on only where there is room."""

    is_held = False

    def resume_reading(self) -> None:
        """Unless it is held."""
        if not self.is_held:
            super().resume_reading()

    def hold(self) -> None:
        """No room."""
        self.pause_reading()
        self.is_held = True

    def release(self) -> None:
        """Room."""
        self.is_held = False
        super().resume_reading()


class _Parser(h11.Connection):
    """h11's, whose errors know the frames that know them: cycles with all that a connection holds."""

    def next_event(self) -> h11.Event | type[h11.NEED_DATA | h11.PAUSED]:
        """See h11; raises RemoteProtocolError."""
        try:
            return super().next_event()
        except h11.RemoteProtocolError as error:
            error.__traceback__ = None
            new = h11.RemoteProtocolError(error.args[0], error.error_status_hint)
        try:
            raise new
        finally:
            del new  # of this frame, which its traceback knows


class HttpConnection(H11Protocol):
    """One connection; its server looks at it from time to time."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        timeouts: RequestTimeouts,
        on_lost: Callable[[HttpConnection], None],
        on_foreign: Callable[[str, Spoken], None],
        keys: tuple[str, str],
        shared: Shared,
    ) -> None:
        """``on_foreign``: somebody (an address) speaks another protocol, was told so, and is sent away."""
        super().__init__(config=config, server_state=server_state, app_state={})
        self.conn = _Parser(h11.SERVER, self.config.h11_max_incomplete_event_size or _HEADER_BYTES_MAX)
        self.logger = shared.log  # type: ignore[assignment]
        # Whatever handlers there are: its lines have queries, and those may have tokens.
        self.access_log = False
        self._on_lost = on_lost
        self._on_foreign = on_foreign
        #: Nothing came yet.
        self._is_fresh = True
        #: Set by :meth:`connection_made`.
        self.flow: _Flow
        self._timeouts = timeouts
        self._keys = keys
        #: Requests answered.
        self._answered = 0
        self._shared = shared
        #: Where it came from, if who passed it on says so; set before it is made.
        self.source: tuple[str, int] | None = None
        #: Room for the body of the request at hand, if it did not come at once.
        self._body: HalfFrame | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """It is there."""
        super().connection_made(transport)
        self.flow = _Flow(transport)
        if self.source is not None:
            self.client = self.source
        if self.scheme == "https":
            from geminga.runtime.tls.peer import peer_certificate

            certificate = peer_certificate(transport)
            if certificate is not None:
                self.app_state[CERTIFICATE_IN_STATE] = certificate
        # Each request's scope has a copy of this state, and lives as long as somebody answers it.
        self.app_state[TAKE_OVER_IN_STATE] = partial(_take_over, weakref.ref(self))

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._on_lost(self)
        super().connection_lost(exc)
        self._forget_request()
        self._end_body()
        self._shared.unread.keeps_up(self)
        # uvicorn lets the timer run if the connection was reset, and the timer knows the connection.
        self._unset_keepalive_if_required()
        if self.transport is not None:
            let_go(self.transport)
            self.transport = None  # type: ignore[assignment]
        cycle, self.cycle = self.cycle, None  # type: ignore[assignment]
        if cycle is not None:
            cycle.on_response = _nobody_waits

    def pause_writing(self) -> None:
        """The client does not take its answer."""
        super().pause_writing()
        self._shared.unread.fell_behind(self)

    def resume_writing(self) -> None:
        """It took most of it."""
        super().resume_writing()
        self._shared.unread.keeps_up(self)

    def data_received(self, data: bytes) -> None:
        """A request, or a part of one; or what is none at all."""
        if self._is_fresh:
            self._is_fresh = False
            spoken = spoken_in(data[:HEAD_BYTES])
            if spoken is Spoken.TLS or spoken is Spoken.PULSAR:
                address = self.transport.get_extra_info("peername")
                self._on_foreign(f"{address[0]}:{address[1]}" if isinstance(address, tuple) else "unknown", spoken)
                self.transport.write(refusal(spoken, NOT_HTTP.format(*self._keys)))
                self.transport.close()
                return
        super().data_received(data)
        self._mind_body()

    def on_response_complete(self) -> None:
        """A request was answered; the connection waits for the next one."""
        self._answered += 1
        self._end_body()
        super().on_response_complete()

    def _should_upgrade(self) -> bool:
        """Never by uvicorn: who answers a request may take the connection over."""
        return False

    def take_over(self, make: Callable[[Callable[[Successor], None]], asyncio.Protocol]) -> bool:
        """See :data:`TakesOver`. The request at hand is the last; what came behind it is the successor's."""
        transport, cycle = self.transport, self.cycle
        if transport is None or transport.is_closing() or cycle is None or cycle.response_started:
            return False
        early = self.conn.trailing_data[0]
        successors = self._shared.successors
        successor: Any = make(successors.discard)
        successors.add(cast("Successor", successor))
        # Nobody answers it any more.
        cycle.disconnected = True
        transport.set_protocol(successor)
        self.transport = None  # type: ignore[assignment]
        self.connections.discard(self)
        self._on_lost(self)
        self._unset_keepalive_if_required()
        self._end_body()
        self._shared.unread.keeps_up(self)
        self._forget_request()
        self.cycle, cycle.on_response = None, _nobody_waits  # type: ignore[assignment]
        cycle.message_event.set()
        # Before the successor, who may hold it.
        self.flow.release()
        successor.connection_made(transport)
        if early:
            successor.data_received(early)
        return True

    def _forget_request(self) -> None:
        """Its scope knows the connection, by what it may be taken over with."""
        self.app_state.clear()
        self.scope = None  # type: ignore[assignment]

    @property
    def is_idle(self) -> bool:
        """Whether it waits for another request, of which nothing came yet."""
        return (
            self._answered > 0
            and self._phase() is RequestPhase.OTHER
            and (self.cycle is None or self.cycle.response_complete)
        )

    def look(self, now_s: float) -> None:
        """End it if the client takes too long; ``now_s``: the time that clients had."""
        if self.transport is None:
            return
        took_long = self._timeouts.look(now_s, self._phase(), self._answered, self.transport.get_write_buffer_size())
        if not took_long:
            return
        is_answering = self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete
        if self.transport.get_write_buffer_size() or is_answering:
            self.transport.abort()
            return
        self.transport.write(_REQUEST_TIMEOUT)
        self.transport.close()

    # ---- bodies, which take room that all connections share

    def _mind_body(self) -> None:
        """One has begun, grown, or is whole."""
        is_coming = self.conn.their_state is h11.SEND_BODY
        if self.cycle is None or self.cycle.response_complete:
            self._end_body()  # what still comes of it is thrown away
        elif self._body is None:
            if is_coming and not self.transport.is_closing():
                self._body = self._shared.room.begin(self, self._body_bytes())
        elif is_coming:
            self._shared.room.progress(self._body)
        else:
            self._shared.room.whole(self._body)

    def _body_bytes(self) -> int:
        """How large it may become; of one whose size is not told as large as any."""
        length = next((value for name, value in self.headers if name == b"content-length"), b"")
        most = self._shared.body_bytes_max
        return min(int(length), most) if length.isdigit() else most

    def _end_body(self) -> None:
        if self._body is not None:
            body, self._body = self._body, None
            self._shared.room.end(body)
            if isinstance(self.flow, _Flow) and self.flow.is_held:
                self.flow.release()

    @property
    def is_heard(self) -> bool:
        """Whether it is read now."""
        return not self.flow.read_paused

    def frame_waits(self) -> None:
        """There is no room for the rest of a body now."""
        self.flow.hold()

    def frame_has_room(self) -> None:
        """There is now."""
        self.flow.release()

    def abort(self, reason: str = "") -> None:
        """End it: there is no room for its body, or others wait for the room that it has."""
        self.transport.write(_NO_ROOM)
        self.transport.close()

    def _phase(self) -> RequestPhase:
        state = self.conn.their_state
        if state is h11.SEND_BODY:
            # What the server does not read yet, or gave no leave to send, the client is not late with.
            is_held = self.flow.is_held or self.flow.read_paused
            has_leave = self.cycle is None or not self.cycle.waiting_for_100_continue
            return RequestPhase.BODY if has_leave and not is_held else RequestPhase.OTHER
        if state is h11.IDLE and (not self._answered or self.conn.trailing_data[0]):
            return RequestPhase.HEAD
        return RequestPhase.OTHER


def _take_over(
    connection: weakref.ref[HttpConnection], make: Callable[[Callable[[Successor], None]], asyncio.Protocol]
) -> bool:
    """See :data:`TakesOver`; a connection that is gone is not kept by its requests."""
    found = connection()
    return found is not None and found.take_over(make)


def _nobody_waits() -> None:
    """Instead of what a request that goes on without its connection would tell it."""
