"""A bookie's port with TLS, by START_TLS: our client on it, and those that ask plain, wrongly, or halfway."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from geminga.app.configuration.bookie_tls_config import AUTH_FACTORY, FACTORY, BookieTlsConfig
from geminga.app.lifecycle.event_loop import loop_factory
from geminga.bookie.serving import BookieServer, TakenPort, entrance
from geminga.bookie.serving.entrance import BookieTls
from geminga.bookkeeper import MemoryBookie
from geminga.bookkeeper.remote import RemoteBookie
from geminga.model.errors import StorageError, WrongMasterKeyError
from geminga.runtime import Runtime, real_runtime
from geminga.runtime.ports import ServerTls
from geminga.runtime.tls.contexts import client_context, server_context
from geminga.runtime.tls.settings import Material, Named, PeerCertificate, Rules
from geminga.wire._generated import bookkeeper_protocol_pb2 as pb
from geminga.wire.bookkeeper.codes import FRAME_BYTES_MAX, OperationType
from geminga.wire.bookkeeper.v3 import encode_request
from support.house.real_runtimes import close_runtime
from support.processes.certificates import Authority
from support.processes.served_bookies import KEY

START_TLS = encode_request(OperationType.START_TLS, 1, startTLSRequest=pb.StartTLSRequest())


class Ends:
    """A bookie, its certificates, and clients of it."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory, "authority")
        self.own = self.material(self.authority.store("bookie", "127.0.0.1"))
        self.runtime: Runtime = real_runtime(lambda part, error: None)
        self.server: BookieServer
        self.port = 0

    def material(self, certificate: object = "") -> Material:
        trust = Named("trust", str(self.authority.certificate))
        return Material(Named("certificate", str(certificate)), Named("key"), trust)

    async def start(
        self,
        *,
        peers: PeerCertificate = PeerCertificate.WANTED,
        is_optional: bool = False,
        handshake_s: float = 10,
        refusal: Callable[[bytes | None], str] | None = None,
    ) -> None:
        made = server_context(self.own, Rules(), peers)
        tls = BookieTls(ServerTls(lambda: made.context, handshake_s), is_optional, refusal)
        taken = await TakenPort.take(self.runtime, "127.0.0.1", 0, tls=tls)
        self.server = await taken.serve(MemoryBookie(), FRAME_BYTES_MAX)
        self.port = taken.port

    async def stop(self) -> None:
        await self.server.close()
        await close_runtime(self.runtime)

    async def add_and_read(self, certificate: object = "", *, is_plain: bool = False) -> list[object]:
        """What comes back of an entry that is stored by our client: over adds in version 2, reads in version 3."""
        context = client_context(self.material(certificate), Rules()).context
        bookie = RemoteBookie(self.runtime, "b", "127.0.0.1", self.port, tls=None if is_plain else lambda: context)
        loop = asyncio.get_running_loop()
        try:
            added: asyncio.Future[StorageError | None] = loop.create_future()
            entry = bytes(64)
            entry = (7).to_bytes(8, "big") + (0).to_bytes(8, "big") + entry[16:]
            bookie.add_entries(
                7, [0], [entry], master_key=KEY, recovery=False, done=lambda _, error: added.set_result(error)
            )
            error = await added
            if error is not None:
                return [error]
            read: asyncio.Future[object] = loop.create_future()
            bookie.read_entries(7, [0], read.set_result, bytes_max=1 << 20)
            found = await read
            assert isinstance(found, list | tuple)
            return [bytes(found[0]) == entry]
        finally:
            await bookie.close()


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request, tmp_path):
    """A story with a bookie's two ends, on each loop."""
    if request.param == "uvloop":
        pytest.importorskip("uvloop")

    def carry_out(story: Callable[[Ends], Awaitable[None]]) -> None:
        async def main() -> None:
            ends = Ends(tmp_path)
            try:
                async with asyncio.timeout(30):
                    await story(ends)
            finally:
                await ends.stop()

        with asyncio.Runner(loop_factory=loop_factory(request.param)) as runner:
            runner.run(main())

    return carry_out


async def answer_of(port: int, data: bytes) -> bytes:
    """What a client by hand is told until the connection ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        with suppress(ConnectionResetError):
            return await reader.read()
        return b""
    finally:
        writer.transport.abort()


def test_client_stores_and_reads_over_tls_in_both_versions(run) -> None:
    async def story(ends: Ends) -> None:
        await ends.start()
        assert await ends.add_and_read() == [True]
        assert await ends.add_and_read(ends.authority.store("broker")) == [True]

    run(story)


def test_client_without_a_certificate_is_refused_where_one_is_required(run) -> None:
    async def story(ends: Ends) -> None:
        await ends.start(peers=PeerCertificate.REQUIRED)
        (error,) = await ends.add_and_read()
        assert isinstance(error, StorageError)
        assert await ends.add_and_read(ends.authority.store("broker")) == [True]

    run(story)


def test_certificate_without_a_right_is_answered_so_and_the_log_says_why(run, caplog) -> None:
    config = BookieTlsConfig(factory=FACTORY, auth_factory=AUTH_FACTORY, authorized_roles=("broker", "recovery"))

    async def story(ends: Ends) -> None:
        await ends.start(refusal=config.refusal)
        assert await ends.add_and_read(ends.authority.store("one", unit="1:east;0:broker")) == [True]
        assert await ends.add_and_read(ends.authority.store("two", unit="0:recovery,broker")) == [True]
        for certificate in ("", ends.authority.store("three", unit="0:reader,broker"), ends.authority.store("four")):
            (error,) = await ends.add_and_read(certificate)
            # What BookKeeper's status EUA is.
            assert isinstance(error, WrongMasterKeyError)
        assert "has no right here: it shows no certificate" in caplog.text
        assert ends.server.connections == {}

    run(story)


def test_who_asks_without_tls_is_sent_away_unless_that_is_allowed(run, caplog) -> None:
    async def story(ends: Ends) -> None:
        await ends.start()
        (error,) = await ends.add_and_read(is_plain=True)
        assert isinstance(error, StorageError)
        assert "it asks without TLS (gemingaTlsOptional=true serves those, too)" in caplog.text
        await ends.server.close()
        await ends.start(is_optional=True)
        assert await ends.add_and_read(is_plain=True) == [True]
        assert await ends.add_and_read() == [True]

    run(story)


def test_bookie_without_tls_is_told_from_one_with(run) -> None:
    async def story(ends: Ends) -> None:
        await ends.start()
        await ends.server.close()
        ends.server = await BookieServer.listen(ends.runtime, MemoryBookie(), "127.0.0.1", 0)
        ends.port = ends.server.port
        (error,) = await ends.add_and_read()
        assert "the bookie has no TLS" in str(error)

    run(story)


def test_what_is_no_tls_behind_start_tls_or_never_comes_ends_and_leaves_nothing(run, caplog) -> None:
    async def story(ends: Ends) -> None:
        await ends.start(handshake_s=0.1)
        answered = await answer_of(ends.port, START_TLS)
        assert len(answered) == 4 + int.from_bytes(answered[:4], "big")
        assert await answer_of(ends.port, b"") == b""
        assert await answer_of(ends.port, START_TLS + b"GET /") == b""
        assert "it sends more behind START_TLS" in caplog.text
        assert ends.server.connections == {}
        # A slow client of each kind, while another is served.
        halves = [socket.create_connection(("127.0.0.1", ends.port)) for _ in range(20)]
        for half in halves:
            half.sendall(START_TLS)
        assert await ends.add_and_read() == [True]
        for half in halves:
            half.setblocking(False)
            with suppress(ConnectionResetError):
                while await asyncio.get_running_loop().sock_recv(half, 4096):
                    pass
            half.close()

    run(story)


@pytest.mark.parametrize("is_old", [False, True])
def test_halves_of_handshakes_that_are_left_lying_keep_nobody_out(run, caplog, monkeypatch, is_old) -> None:
    """256 of them, made again every ten seconds, kept brokers from their bookie."""
    monkeypatch.setattr(entrance, "HONEST_S", 0.0 if is_old else 1_000.0)
    monkeypatch.setattr(entrance, "HANDSHAKES_MAX", 10)
    monkeypatch.setattr(entrance, "HANDSHAKES_LIMIT", 20)

    async def story(ends: Ends) -> None:
        await ends.start(handshake_s=1_000)
        halves = []
        for _ in range(30):
            reader, writer = await asyncio.open_connection("127.0.0.1", ends.port)
            writer.write(START_TLS)
            # Answered: the handshake is awaited.
            assert await reader.read(1)
            halves.append((reader, writer))
        assert await ends.add_and_read() == [True]
        with suppress(ConnectionResetError):
            while await halves[0][0].read(64):
                pass
        assert "TLS handshakes are under way, and this is the oldest" in caplog.text
        for _, writer in halves:
            writer.transport.abort()

    run(story)
