"""Where connections come in to a bookie that speaks TLS: by BookKeeper's START_TLS, on the same port.

A client connects without TLS, sends START_TLS in version 3 of the protocol, and begins the handshake when it is
answered. Until then nothing else is taken: a client that asks for anything plain is sent away, or served plain where
the operator says so (while TLS is being rolled out). A handshake has a limit in time; half of one leaves nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple, cast

from geminga.runtime import SparseWarnings, get_logger, let_go, spawn
from geminga.runtime.ports import ServerTls
from geminga.runtime.tls.peer import peer_certificate
from geminga.wire.bookkeeper import v3_answers
from geminga.wire.bookkeeper.codes import StatusCode
from geminga.wire.bookkeeper.requests import StartTlsRequest
from geminga.wire.bookkeeper.stream import RequestDecoder

#: A frame that comes first and is no START_TLS may be as large as any; of one that is, these are many bytes.
FIRST_BYTES_MAX: Final = 4096
#: Of a frame's size, in front of it.
SIZE_BYTES: Final = 4
#: Connections between START_TLS and the end of their handshake: with a further one the oldest is cut off, if it is
#: older than an honest one gets to be (seconds), or if there are many. Else halves left lying would keep brokers out.
HANDSHAKES_MAX: Final = 256
HANDSHAKES_LIMIT: Final = 1024
HONEST_S: Final = 0.5

_log = get_logger(__name__)


class BookieTls(NamedTuple):
    """TLS of a bookie's port."""

    server: ServerTls
    #: Whether who does not ask for TLS is served all the same.
    is_optional: bool = False
    #: Why a certificate (DER; None: none was shown) gives no right to anything, empty: it does; None: any does.
    refusal: Callable[[bytes | None], str] | None = None


class Entrances:
    """What entrances of one port share."""

    __slots__ = ("make", "tls", "under_way", "warnings")

    def __init__(self, tls: BookieTls, make: Callable[[], asyncio.Protocol]) -> None:
        """``make``: the protocol of a connection that is served."""
        self.tls = tls
        self.make = make
        #: In their handshakes, oldest first, with the loop's time when those began.
        self.under_way: dict[Entrance, float] = {}
        self.warnings = SparseWarnings(_log, asyncio.get_running_loop().time)

    def enter(self) -> Entrance:
        """One more comes."""
        return Entrance(self)

    def begin(self, entrance: Entrance) -> None:
        """A handshake begins; the oldest may be cut off for it."""
        now_s = asyncio.get_running_loop().time()
        count = len(self.under_way)
        if count >= HANDSHAKES_MAX:
            oldest, begun_s = next(iter(self.under_way.items()))
            if count >= HANDSHAKES_LIMIT or now_s - begun_s >= HONEST_S:
                del self.under_way[oldest]
                oldest.cut_off(f"more than {HANDSHAKES_MAX} TLS handshakes are under way, and this is the oldest")
        self.under_way[entrance] = now_s


class Entrance(asyncio.Protocol):
    """One connection, until it is served."""

    def __init__(self, shared: Entrances) -> None:
        self._shared = shared
        self._transport: asyncio.Transport | None = None
        self._came = bytearray()
        self._limit: asyncio.TimerHandle | None = None
        self._is_securing = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is there: it has so long to be secured."""
        self._transport = cast("asyncio.Transport", transport)
        loop = asyncio.get_running_loop()
        self._limit = loop.call_later(self._shared.tls.server.handshake_s, self._too_late)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone before it was served."""
        self._end_limit()
        if self._transport is not None:
            let_go(self._transport)
            self._transport = None

    def data_received(self, data: bytes) -> None:
        """The first request."""
        self._came += data
        if self._is_securing:
            self.cut_off("it sends more behind START_TLS")
            return
        decoder = RequestDecoder(FIRST_BYTES_MAX)
        requests = decoder.feed(bytes(self._came))
        if requests and isinstance(requests[0], StartTlsRequest):
            # Bytes in front of the handshake would count as said within it.
            if len(self._came) > SIZE_BYTES + int.from_bytes(self._came[:SIZE_BYTES], "big"):
                self.cut_off("it sends more behind START_TLS")
            else:
                self._secure(requests[0])
        elif requests or decoder.error is not None or len(self._came) > FIRST_BYTES_MAX:
            self._plain()

    # ---- without TLS

    def _plain(self) -> None:
        if not self._shared.tls.is_optional:
            self.cut_off("it asks without TLS (gemingaTlsOptional=true serves those, too)")
            return
        transport = self._leave()
        protocol = self._shared.make()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if self._came:
            protocol.data_received(bytes(self._came))

    def _too_late(self) -> None:
        self._limit = None
        if self._shared.tls.is_optional and not self._is_securing and not self._came:
            self._plain()
        else:
            self.cut_off(f"it is not secured within {self._shared.tls.server.handshake_s:g} s")

    def cut_off(self, why: str) -> None:
        """It is sent away; one line a minute says so."""
        if self._transport is not None:
            peer = self._transport.get_extra_info("peername")
            self._shared.warnings.warn(f"bookie: the connection of {peer} is closed: {why}", why[:16])
            self._transport.abort()

    # ---- with TLS

    def _secure(self, request: StartTlsRequest) -> None:
        assert self._transport is not None
        self._is_securing = True
        self._end_limit()  # the handshake has its own
        # What comes from here on is the handshake's.
        self._transport.pause_reading()
        self._transport.write(v3_answers.encode_start_tls_answer(request, StatusCode.EOK))
        spawn(self._shake_hands(self._transport), name="bookie-start-tls")

    async def _shake_hands(self, plain: asyncio.Transport) -> None:
        shared = self._shared
        shared.begin(self)
        early = _Early()
        try:
            secured = await asyncio.get_running_loop().start_tls(
                plain,
                early,
                shared.tls.server.context(),
                server_side=True,
                ssl_handshake_timeout=shared.tls.server.handshake_s,
            )
        except OSError as error:
            shared.warnings.warn(f"bookie: a TLS handshake failed: {error}", "handshake")
            plain.abort()
            # Its frames know the future that holds it: a cycle with all that the handshake held.
            error.__traceback__ = None
            secured = None
        finally:
            shared.under_way.pop(self, None)
            self._end_limit()
            self._transport = None
        # A connection that is cut off meanwhile ends a handshake without an error.
        if secured is None or early.is_lost or plain.is_closing():
            plain.abort()
            return
        protocol = self._protocol(secured)
        secured.set_protocol(protocol)
        protocol.connection_made(secured)
        if early.came:
            protocol.data_received(bytes(early.came))

    def _protocol(self, secured: asyncio.Transport) -> asyncio.Protocol:
        shared = self._shared
        why = "" if shared.tls.refusal is None else shared.tls.refusal(peer_certificate(secured))
        if not why:
            return shared.make()
        # Loaded with the first one.
        from geminga.bookie.serving.unwelcome import UnwelcomeConnection

        shared.warnings.warn(f"bookie: {secured.get_extra_info('peername')} has no right here: {why}", "no right")
        return UnwelcomeConnection()

    # ---- the end of it

    def _leave(self) -> asyncio.Transport:
        self._end_limit()
        transport, self._transport = self._transport, None
        assert transport is not None
        return transport

    def _end_limit(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None


class _Early(asyncio.Protocol):
    """Takes what comes with the end of a handshake, until there is somebody to hear it."""

    def __init__(self) -> None:
        self.came = bytearray()
        self.is_lost = False

    def data_received(self, data: bytes) -> None:
        self.came += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
