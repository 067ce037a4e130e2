"""A connection with TLS whose certificate gives no right: its first requests are answered so, and it is closed.

BookKeeper's bookies answer every request of such a client with EUA, so that its operator reads of a missing right and
not of a bookie that hangs up; they leave the connection open, which here would hold a place for nothing.
"""

from __future__ import annotations

import asyncio
from typing import Final, cast

from geminga.bookie.serving.answering import add_answers, read_refusal
from geminga.runtime import let_go
from geminga.wire.bookkeeper import v3_answers
from geminga.wire.bookkeeper.codes import VERSION_3, StatusCode
from geminga.wire.bookkeeper.requests import (
    AddRequest,
    AuthRequest,
    BatchReadRequest,
    BookieInfoRequest,
    EntryReadRequest,
    ForceLedgerRequest,
    ListEntriesRequest,
    ReadLacRequest,
    RefusedRequest,
    Request,
    WriteLacRequest,
)
from geminga.wire.bookkeeper.stream import RequestDecoder

#: A larger request is not waited for: the connection is closed without an answer.
REQUEST_BYTES_MAX: Final = 1 << 16
#: Seconds until it is closed that asks for nothing.
SILENT_S: Final = 10.0


class UnwelcomeConnection(asyncio.Protocol):
    """See the module."""

    def __init__(self) -> None:
        self._decoder = RequestDecoder(REQUEST_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is there, and will not be long."""
        self._transport = cast("asyncio.Transport", transport)
        self._limit = asyncio.get_running_loop().call_later(SILENT_S, self._transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        if self._limit is not None:
            self._limit.cancel()
        if self._transport is not None:
            let_go(self._transport)
            self._transport = None

    def data_received(self, data: bytes) -> None:
        """Requests: all that came together are answered."""
        if self._transport is None or self._transport.is_closing():
            return
        requests = self._decoder.feed(data)
        for request in requests:
            answer = refusal_of(request)
            if answer:
                self._transport.write(answer)
        if requests or self._decoder.error is not None or self._decoder.buffered_bytes > REQUEST_BYTES_MAX:
            self._transport.close()


def refusal_of(request: Request) -> bytes:
    """The answer that there is no right to it; empty: the protocol has none."""
    status = StatusCode.EUA
    match request:
        case AddRequest():
            return add_answers([request], status)
        case EntryReadRequest() | BatchReadRequest():
            return read_refusal(request, status)
        case WriteLacRequest():
            return v3_answers.encode_write_lac_answer(request, status)
        case ReadLacRequest():
            return v3_answers.encode_read_lac_answer(request, status)
        case ForceLedgerRequest():
            return v3_answers.encode_force_answer(request, status)
        case ListEntriesRequest():
            return v3_answers.encode_list_answer(request, status)
        case BookieInfoRequest():
            return v3_answers.encode_info_answer(request, status)
        case AuthRequest():
            # In version 2 an answer has no status: the connection ends without.
            return v3_answers.encode_auth_answer(request, status, "", b"") if request.version == VERSION_3 else b""
        case RefusedRequest():
            return request.answer
        case _:
            return b""
