"""Connections that begin with the PROXY header, on real sockets: plain and with TLS, demanded or not, in time."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest

from geminga.app.lifecycle.event_loop import loop_factory
from geminga.runtime import AsyncioNetwork, source_headers
from geminga.runtime.core.source_header import Origin
from geminga.runtime.ports import HeaderRule, Listener, ServerTls
from geminga.runtime.tls.contexts import client_context, server_context
from geminga.runtime.tls.settings import Material, Named, PeerCertificate, Rules
from support.processes.certificates import Authority

LINE = b"PROXY TCP4 192.0.2.7 10.0.0.1 51234 6650\r\n"
SAID = Origin("192.0.2.7", 51234)


class Told(asyncio.Protocol):
    """Says where a client came from, and what it sends."""

    def __init__(self, origin: Origin | None) -> None:
        self._origin = origin

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(f"{self._origin and self._origin.host}:".encode() + data)


def served(
    story: Callable[[int, Listener], Awaitable[None]],
    *,
    is_needed: bool = False,
    limit_s: float = 30.0,
    tls: ServerTls | None = None,
    loop: str = "asyncio",
) -> None:
    async def main() -> None:
        async with asyncio.timeout(30):
            rule = HeaderRule(Told, is_needed, limit_s)
            listener = await AsyncioNetwork().listen(lambda: Told(None), "127.0.0.1", 0, tls=tls, header=rule)
            try:
                await story(listener.port, listener)
            finally:
                await listener.close()

    with asyncio.Runner(loop_factory=loop_factory(loop)) as runner:
        runner.run(main())


async def answer(port: int, *parts: bytes, expected: int = 1) -> bytes:
    """What comes back for ``parts``, each in a segment of its own; empty: it was closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
        return await reader.readexactly(expected)
    except (asyncio.IncompleteReadError, ConnectionResetError):
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_the_address_is_that_of_the_header_and_the_rest_is_the_clients(loop: str) -> None:
    async def story(port: int, _: Listener) -> None:
        expected = b"192.0.2.7:hello"
        assert await answer(port, LINE + b"hello", expected=len(expected)) == expected
        assert await answer(port, LINE[:3], LINE[3:20], LINE[20:] + b"hello", expected=len(expected)) == expected
        assert await answer(port, b"hello", expected=10) == b"None:hello"

    served(story, loop=loop)


def test_without_a_header_a_connection_is_taken_unless_one_is_demanded() -> None:
    async def taken(port: int, _: Listener) -> None:
        assert await answer(port, b"hello", expected=10) == b"None:hello"

    async def closed(port: int, _: Listener) -> None:
        assert await answer(port, b"hello") == b""
        assert await answer(port, LINE + b"x", expected=11) == b"192.0.2.7:x"

    served(taken)
    served(closed, is_needed=True)


def test_what_begins_as_a_header_and_is_none_is_closed() -> None:
    async def story(port: int, _: Listener) -> None:
        assert await answer(port, b"PROXY TCP4 nonsense nonsense 1 2\r\n") == b""
        assert await answer(port, b"PUT / HTTP/1.1\r\n\r\n\r\n\r\n") == b""

    served(story)


@pytest.mark.parametrize("half", [b"", LINE[:10]])
def test_half_a_header_and_silence_have_their_time(half: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def story(port: int, _: Listener) -> None:
        assert await answer(port, half) == b""

    served(story, limit_s=0.05)
    assert "no PROXY header" in caplog.text


def test_too_many_that_wait_cut_off_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_headers, "WAITING_MAX", 2)

    async def story(port: int, _: Listener) -> None:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        assert await silent[0][0].read() == b""
        silent[2][1].write(LINE + b"x")
        assert await silent[2][0].readexactly(11) == b"192.0.2.7:x"
        for _, writer in silent:
            writer.close()

    served(story)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_the_header_comes_before_tls_and_a_client_can_send_it(tmp_path: Path, loop: str) -> None:
    authority = Authority(tmp_path, "authority")
    own = Material(Named("c", str(authority.store("server", "127.0.0.1"))), Named("k"), Named("t"))
    context = server_context(own, Rules(), PeerCertificate.WANTED).context
    trusting = client_context(Material(Named("c"), Named("k"), Named("t", str(authority.certificate))), Rules()).context

    async def story(port: int, _: Listener) -> None:
        for preface, tls, host in ((LINE, trusting, "192.0.2.7"), (b"", trusting, "None")):
            reader = asyncio.StreamReader()
            transport, _protocol = await AsyncioNetwork().connect(
                lambda reader=reader: asyncio.StreamReaderProtocol(reader),
                "127.0.0.1",
                port,
                tls=tls,
                server_name="127.0.0.1",
                preface=preface,
            )
            transport.write(b"x")
            assert await reader.readexactly(len(host) + 2) == f"{host}:x".encode()
            transport.abort()
        with pytest.raises(ssl.SSLCertVerificationError):
            await AsyncioNetwork().connect(
                asyncio.Protocol, "127.0.0.1", port, tls=trusting, server_name="other.example", preface=LINE
            )

    served(story, tls=ServerTls(lambda: context, 10), loop=loop)
