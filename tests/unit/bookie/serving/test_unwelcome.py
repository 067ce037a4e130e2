"""Requests of who has no right: each is answered so in its own words, and nothing is waited for."""

from __future__ import annotations

import asyncio

import pytest

from geminga.bookie.serving.unwelcome import REQUEST_BYTES_MAX, UnwelcomeConnection, refusal_of
from geminga.wire.bookkeeper import v2, v3_answers
from geminga.wire.bookkeeper.codes import StatusCode
from geminga.wire.bookkeeper.requests import (
    AddRequest,
    AuthRequest,
    BookieInfoRequest,
    EntryReadRequest,
    ForceLedgerRequest,
    ListEntriesRequest,
    ReadLacRequest,
    RefusedRequest,
    StartTlsRequest,
    WriteLacRequest,
)
from support.processes.served_bookies import KEY

ENTRY = (7).to_bytes(8, "big") + bytes(24)


@pytest.mark.parametrize(
    "request_",
    [
        AddRequest(3, 1, 7, 0, KEY, ENTRY, recovery=False),
        EntryReadRequest(3, 1, 7, 0),
        WriteLacRequest(3, 1, 7, 0, KEY, b""),
        ReadLacRequest(3, 1, 7),
        ForceLedgerRequest(3, 1, 7),
        ListEntriesRequest(3, 1, 7),
        BookieInfoRequest(3, 1, total=True, free=True),
        AuthRequest(3, 1, "plugin", b""),
    ],
)
def test_each_request_of_version_3_is_answered_with_eua(request_) -> None:
    answer = refusal_of(request_)
    assert v3_answers.decode_answer(answer, 4, len(answer)).status == StatusCode.EUA


@pytest.mark.parametrize("request_", [AddRequest(2, 0, 7, 0, KEY, ENTRY, recovery=False), EntryReadRequest(2, 0, 7, 0)])
def test_adds_and_reads_of_version_2_are_too(request_) -> None:
    answer = refusal_of(request_)
    assert v2.decode_answer(answer, 4, len(answer)).status == StatusCode.EUA


def test_what_the_protocol_has_no_refusal_for_gets_none() -> None:
    assert refusal_of(RefusedRequest(b"answer", "why")) == b"answer"
    assert refusal_of(AuthRequest(2, 0, "plugin", b"")) == b""
    assert refusal_of(StartTlsRequest(3, 1)) == b""


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        self.written = b""
        self.is_over = False

    def write(self, data: bytes) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.is_over

    def close(self) -> None:
        self.is_over = True

    abort = close


@pytest.mark.parametrize("is_whole", [True, False])
def test_connection_ends_with_an_answer_or_with_a_request_that_is_too_long(is_whole: bool) -> None:
    async def main() -> None:
        connection, transport = UnwelcomeConnection(), Transport()
        connection.connection_made(transport)
        request = v2.encode_add(KEY, ENTRY, recovery=False) if is_whole else (1 << 20).to_bytes(4, "big")
        connection.data_received(request[:2])
        assert not transport.is_over
        connection.data_received(request[2:])
        assert bool(transport.written) == is_whole
        if not is_whole:
            connection.data_received(bytes(REQUEST_BYTES_MAX))
        assert transport.is_over
        connection.connection_lost(None)

    asyncio.run(main())
