"""Handshakes of a listener with TLS: bounded, and what is half of one leaves nothing."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from geminga.app.lifecycle.event_loop import loop_factory
from geminga.runtime import AsyncioNetwork, handshakes, wait_ms
from geminga.runtime.network import AsyncioListener
from geminga.runtime.ports import Listener, ServerTls
from geminga.runtime.tls.contexts import client_context, server_context
from geminga.runtime.tls.peer import peer_certificate
from geminga.runtime.tls.settings import Material, Named, PeerCertificate, Rules
from geminga.runtime.waiting import next_turn
from support.processes.certificates import Authority

#: What a client says first, as far as its length: the rest never comes.
HALF_HELLO = bytes.fromhex("1603010200010001fc0303")


class Echo(asyncio.Protocol):
    """Answers, and counts those that were made."""

    made: list[Echo]

    def __init__(self, made: list[Echo]) -> None:
        made.append(self)
        self.shown: bytes | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.shown = peer_certificate(transport)
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


class Ends:
    """A listener with TLS, and what its clients need."""

    def __init__(self, directory: Path, handshake_s: float) -> None:
        authority = Authority(directory, "authority")
        own = Material(
            Named("c", str(authority.store("server", "127.0.0.1"))), Named("k"), Named("t", str(authority.certificate))
        )
        client = Material(
            Named("c", str(authority.store("client"))), Named("k"), Named("t", str(authority.certificate))
        )
        context = server_context(own, Rules(), PeerCertificate.WANTED).context
        self.tls = ServerTls(lambda: context, handshake_s)
        self.client = client_context(client, Rules()).context
        self.made: list[Echo] = []

    async def listen(self) -> Listener:
        return await AsyncioNetwork().listen(partial(Echo, self.made), "127.0.0.1", 0, tls=self.tls, refusal=b"full")

    async def ask(self, port: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=self.client)
        try:
            writer.write(b"hello")
            return await reader.readexactly(5)
        finally:
            writer.transport.abort()


def half(port: int) -> socket.socket:
    """Begins a handshake, and leaves it."""
    sock = socket.create_connection(("127.0.0.1", port))
    sock.sendall(HALF_HELLO)
    return sock


async def eventually(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await wait_ms(1)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture(params=["asyncio", "uvloop"])
def runner(request):
    if request.param == "uvloop":
        pytest.importorskip("uvloop")
    with asyncio.Runner(loop_factory=loop_factory(request.param)) as made:
        yield made


def test_protocol_is_made_when_the_handshake_is_done_and_knows_who_is_there(runner, tmp_path) -> None:
    ends = Ends(tmp_path, 10)

    async def main() -> None:
        listener = await ends.listen()
        begun = half(listener.port)
        assert await ends.ask(listener.port) == b"hello"
        (made,) = ends.made
        assert made.shown is not None
        assert b"client" in made.shown
        begun.close()
        await listener.close()

    runner.run(main())


def test_what_is_no_tls_and_what_is_never_finished_ends_and_leaves_nothing(runner, tmp_path, caplog) -> None:
    ends = Ends(tmp_path, 0.05)

    async def main() -> None:
        listener = await ends.listen()
        before = descriptors()
        for _ in range(2):
            plain = socket.create_connection(("127.0.0.1", listener.port))
            plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
            waiting = [half(listener.port) for _ in range(20)]
            for sock in (plain, *waiting):
                sock.setblocking(False)
                with suppress(ConnectionResetError):
                    while await asyncio.get_running_loop().sock_recv(sock, 64):
                        pass  # an alert
                sock.close()
        # A loop may open one or two for its first connection; the server closes its own a moment after the peer's end.
        await eventually(lambda: descriptors() <= before + 2)
        assert ends.made == []
        await listener.close()

    runner.run(main())
    assert "no TLS handshake within gemingaHandshakeTimeoutSeconds=0.05" in caplog.text
    assert "a TLS handshake failed: http request" in caplog.text


@pytest.mark.parametrize("is_old", [False, True])
def test_oldest_handshake_makes_room_if_it_is_old_and_others_are_served(
    runner, tmp_path, caplog, monkeypatch, is_old
) -> None:
    # A time in which the machine that tests has none, and one that it always has.
    monkeypatch.setattr(handshakes, "HONEST_S", 0.0 if is_old else 1_000.0)
    monkeypatch.setattr(handshakes, "HANDSHAKES_MAX", 10)
    monkeypatch.setattr(handshakes, "HANDSHAKES_LIMIT", 30)
    ends = Ends(tmp_path, 1_000)

    async def main() -> None:
        listener = await ends.listen()
        assert isinstance(listener, AsyncioListener)
        before = descriptors()
        waiting = [half(listener.port) for _ in range(40)]
        assert await ends.ask(listener.port) == b"hello"
        under_way = listener.handshakes_under_way
        assert under_way == (9 if is_old else 29)
        for sock in waiting:
            sock.setblocking(False)
        with suppress(ConnectionResetError):
            assert await asyncio.get_running_loop().sock_recv(waiting[0], 1) == b""
        await listener.close()
        # The listener's own is closed too; a loop may have opened one for its first connection.
        await eventually(lambda: descriptors() - len(waiting) in (before - 1, before))
        for sock in waiting:
            sock.close()

    runner.run(main())
    assert "TLS handshakes are under way; the oldest are cut off" in caplog.text


def test_few_handshakes_begin_in_a_turn_for_others_wait_for_each_turn(runner, tmp_path) -> None:
    """A flood of them held up messages of those who were served already for seconds (``make attack``, ``halves``)."""
    ends = Ends(tmp_path, 1_000)

    async def main() -> None:
        listener = await ends.listen()
        assert isinstance(listener, AsyncioListener)
        # The loop does nothing meanwhile: all of them are in the kernel's queue.
        waiting = [half(listener.port) for _ in range(40)]
        counts = [0]
        while counts[-1] < len(waiting):
            await next_turn()
            counts.append(listener.handshakes_under_way)
        # What waits for the next turn may see two of them.
        assert max(after - before for before, after in itertools.pairwise(counts)) <= 8
        await listener.close()
        for sock in waiting:
            sock.close()

    runner.run(main())


def test_client_whose_certificate_is_not_trusted_is_told_in_the_log(runner, tmp_path, caplog) -> None:
    ends = Ends(tmp_path, 10)
    strange = tmp_path / "strange"
    strange.mkdir()
    ends.client.load_cert_chain(Authority(strange, "strangers").store("stranger"))

    async def main() -> None:
        listener = await ends.listen()
        with pytest.raises((ssl.SSLError, OSError, asyncio.IncompleteReadError)):
            await ends.ask(listener.port)
        await eventually(lambda: "the client's certificate is not trusted" in caplog.text)
        await listener.close()

    runner.run(main())
    assert ends.made == []
