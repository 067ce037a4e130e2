"""A connection to a bookie with TLS: START_TLS of BookKeeper's protocol, then the handshake on the same connection."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Final, TypeVar, cast

from google.protobuf.message import DecodeError

from geminga.runtime import Network
from geminga.wire._generated import bookkeeper_protocol_pb2 as pb
from geminga.wire.bookkeeper.codes import OperationType, StatusCode
from geminga.wire.bookkeeper.v3 import encode_request

P = TypeVar("P", bound=asyncio.Protocol)
#: A longer answer to START_TLS is none.
ANSWER_BYTES_MAX: Final = 4096
_TXN_ID: Final = 1


async def connect_secured(
    network: Network, make: Callable[[], P], host: str, port: int, context: ssl.SSLContext
) -> tuple[asyncio.Transport, P]:
    """Connect, and secure it; raises OSError, also for a bookie that has no TLS."""
    greeting = _Greeting()
    transport, _ = await network.connect(lambda: greeting, host, port)
    try:
        status = await greeting.answered
        if status != StatusCode.EOK:
            raise ConnectionError(f"the bookie has no TLS (START_TLS is answered with {status})")
        protocol = make()
        try:
            secured = await asyncio.get_running_loop().start_tls(transport, protocol, context, server_hostname=host)
        except ConnectionError as error:  # of asyncio it has no text
            raise ConnectionError(f"lost in its TLS handshake: {str(error) or type(error).__name__}") from error
    except BaseException:
        transport.abort()
        raise
    # A connection that is cut off meanwhile ends a handshake without an error.
    if secured is None or transport.is_closing():
        raise ConnectionError("the connection was lost in its TLS handshake")
    protocol.connection_made(secured)
    return secured, protocol


class _Greeting(asyncio.Protocol):
    """Sends START_TLS, and waits for its answer."""

    def __init__(self) -> None:
        #: The status.
        self.answered: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._came = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        frame = encode_request(OperationType.START_TLS, _TXN_ID, startTLSRequest=pb.StartTLSRequest())
        cast("asyncio.Transport", transport).write(frame)

    def data_received(self, data: bytes) -> None:
        self._came += data
        size = int.from_bytes(self._came[:4], "big")
        if self.answered.done() or len(self._came) < 4:
            return
        if size > ANSWER_BYTES_MAX:
            self.answered.set_exception(ConnectionError("its answer to START_TLS can not be read"))
        elif len(self._came) >= 4 + size:
            response = pb.Response()
            try:
                response.ParseFromString(bytes(self._came[4 : 4 + size]))
                self.answered.set_result(int(response.status))
            except DecodeError:
                self.answered.set_exception(ConnectionError("its answer to START_TLS can not be read"))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.answered.done():
            self.answered.set_exception(ConnectionError("it was closed upon START_TLS: a bookie without TLS?"))
            self.answered.exception()  # who waits may have gone
