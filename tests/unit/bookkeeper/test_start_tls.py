"""START_TLS from the client's side: what a bookie may answer before there is TLS."""

from __future__ import annotations

import asyncio
import ssl

import pytest

from geminga.bookkeeper.remote.start_tls import ANSWER_BYTES_MAX, connect_secured
from geminga.runtime import AsyncioNetwork
from geminga.wire.bookkeeper.codes import VERSION_3, StatusCode
from geminga.wire.bookkeeper.requests import StartTlsRequest
from geminga.wire.bookkeeper.v3_answers import encode_start_tls_answer

NO_TLS = encode_start_tls_answer(StartTlsRequest(VERSION_3, 1), StatusCode.EBADREQ)
YES = encode_start_tls_answer(StartTlsRequest(VERSION_3, 1), StatusCode.EOK)


class Bookie(asyncio.Protocol):
    """Says what it is told to once it was asked, in pieces, and closes."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        pieces, self._pieces = self._pieces, []
        self._say(pieces)

    def _say(self, pieces: list[bytes]) -> None:
        if pieces:
            self._transport.write(pieces[0])  # type: ignore[attr-defined]
            self._loop.call_soon(self._say, pieces[1:])
        else:
            self._transport.close()


@pytest.mark.parametrize(
    ("pieces", "told"),
    [
        ([NO_TLS], "the bookie has no TLS"),
        ([NO_TLS[:2], NO_TLS[2:7], NO_TLS[7:]], "the bookie has no TLS"),
        ([b""], "closed upon START_TLS"),
        ([(ANSWER_BYTES_MAX + 1).to_bytes(4, "big")], "can not be read"),
        ([b"\0\0\0\x02\xff\xff"], "can not be read"),
        ([YES], "(?i)closed|lost|reset|eof|ssl"),
    ],
    ids=["refused", "refused in pieces", "closed", "too long", "nonsense", "yes, and nothing more"],
)
def test_what_is_no_tls_is_an_error_and_leaves_no_connection(pieces: list[bytes], told: str) -> None:
    made: list[asyncio.Protocol] = []

    def protocol() -> asyncio.Protocol:
        made.append(asyncio.Protocol())
        return made[-1]

    async def main() -> None:
        network = AsyncioNetwork()
        listener = await network.listen(lambda: Bookie(list(pieces)), "127.0.0.1", 0)
        with pytest.raises(OSError, match=told):
            await asyncio.wait_for(
                connect_secured(network, protocol, "127.0.0.1", listener.port, ssl.create_default_context()), 10
            )
        await listener.close()

    asyncio.run(main())
    assert len(made) == (pieces == [YES])
