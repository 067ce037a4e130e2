"""uvicorn's HTTP/1.1 connection with what it lacks: an end for clients that send half a request or read no answer.

It extends uvicorn's protocol and asks its parser how far a request is, which neither promises: both are pinned, and
``test_http_connection_internals`` fails where a new version has it otherwise. Loaded with the rest of the HTTP
software, by ``server``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from geminga.broker.rest.core.patience import Part, Patience
from geminga.wire.pulsar.foreign import HEAD_BYTES, Protocol, refusal, spoken_in

#: What a client of the binary protocol is told, with the keys of the two ports.
NOT_HTTP: Final = "This is a port of HTTP ({}); Pulsar's binary protocol is on another one ({})"
#: What a client is told that took too long for its request.
_REQUEST_TIMEOUT = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class HttpConnection(H11Protocol):
    """One connection; its server looks at it from time to time."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        patience: Patience,
        on_lost: Callable[[HttpConnection], None],
        on_foreign: Callable[[str, Protocol], None],
        keys: tuple[str, str],
    ) -> None:
        """``on_foreign``: somebody (an address) speaks another protocol, was told so, and is sent away."""
        super().__init__(config=config, server_state=server_state, app_state={})
        self._on_lost = on_lost
        self._on_foreign = on_foreign
        #: Nothing came yet.
        self._is_fresh = True
        self._patience = patience
        self._keys = keys
        #: Requests answered.
        self._answered = 0

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._on_lost(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """A request, or a part of one; or what is none at all."""
        if self._is_fresh:
            self._is_fresh = False
            spoken = spoken_in(data[:HEAD_BYTES])
            if spoken is Protocol.TLS or spoken is Protocol.PULSAR:
                address = self.transport.get_extra_info("peername")
                self._on_foreign(f"{address[0]}:{address[1]}" if isinstance(address, tuple) else "unknown", spoken)
                self.transport.write(refusal(spoken, NOT_HTTP.format(*self._keys)))
                self.transport.close()
                return
        super().data_received(data)

    def on_response_complete(self) -> None:
        """A request was answered; the connection waits for the next one."""
        self._answered += 1
        super().on_response_complete()

    @property
    def is_idle(self) -> bool:
        """Whether it waits for another request, of which nothing came yet."""
        return (
            self._answered > 0 and self._part() is Part.OTHER and (self.cycle is None or self.cycle.response_complete)
        )

    def look(self, now_s: float) -> None:
        """End it if the client takes too long; ``now_s``: the time that clients had."""
        if self.transport is None:
            return
        took_long = self._patience.look(now_s, self._part(), self._answered, self.transport.get_write_buffer_size())
        if not took_long:
            return
        is_answering = self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete
        if self.transport.get_write_buffer_size() or is_answering:
            self.transport.abort()
            return
        self.transport.write(_REQUEST_TIMEOUT)
        self.transport.close()

    def _part(self) -> Part:
        state = self.conn.their_state
        if state is h11.SEND_BODY:
            # What the server does not read yet, or gave no leave to send, the client is not late with.
            is_held = self.flow.read_paused or (self.cycle is not None and self.cycle.waiting_for_100_continue)
            return Part.OTHER if is_held else Part.BODY
        if state is h11.IDLE and (not self._answered or self.conn.trailing_data[0]):
            return Part.HEAD
        return Part.OTHER
