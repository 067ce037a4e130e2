"""A bookie in memory behind a server, and clients of its protocol by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from geminga import sim
from geminga.bookie.serving import BookieServer
from geminga.bookkeeper import MemoryBookie
from geminga.model.bookie_port import ReadDone
from geminga.sim import SimWorld
from geminga.wire.bookkeeper import v2, v3
from geminga.wire.bookkeeper.answers import Answer
from geminga.wire.bookkeeper.stream import AnswerDecoder

KEY = b"k" * 20
PORT = 3181


class Wire(asyncio.Protocol):
    """A client by hand."""

    def __init__(self, version: int) -> None:
        self._decoder = AnswerDecoder(version)
        self._answers: list[Answer] = []
        self._wanted: asyncio.Future[None] | None = None
        self._count = 0
        self.is_lost = False
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._answers += self._decoder.feed(data)
        assert self._decoder.error is None
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self._look()

    def _look(self) -> None:
        if self._wanted is None or self._wanted.done():
            return
        if len(self._answers) >= self._count or self.is_lost:
            self._wanted.set_result(None)

    async def answers(self, count: int) -> list[Answer]:
        """The next ``count`` answers, fewer if the connection went."""
        self._count = count
        self._wanted = asyncio.get_running_loop().create_future()
        self._look()
        await self._wanted
        found, self._answers = self._answers[:count], self._answers[count:]
        return found

    async def lost(self) -> None:
        """Wait until the server closed it."""
        assert await self.answers(1 << 30) == []
        assert self.is_lost

    async def ask(self, *requests: bytes) -> list[Answer]:
        self.transport.write(b"".join(requests))
        return await self.answers(len(requests))


class SlowReads(MemoryBookie):
    """Reads are answered when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[tuple[int, Sequence[int], ReadDone]] = []

    def read_entries(
        self, ledger_id: int, entry_ids: Sequence[int], done: ReadDone, *, bytes_max: int | None = None
    ) -> None:
        self.reads.append((ledger_id, entry_ids, done))


Connect = Callable[[int], Awaitable[Wire]]


async def pass_by(seconds: float) -> None:
    """So much virtual time."""
    loop = asyncio.get_running_loop()
    due = loop.create_future()
    loop.call_later(seconds, due.set_result, None)
    await due


def serve(
    main: Callable[[MemoryBookie, BookieServer, Connect], Awaitable[None]], bookie: MemoryBookie | None = None
) -> None:
    """A bookie in memory, answering a turn later, behind a server; ``connect(version)`` makes a client."""

    async def scenario(world: SimWorld) -> None:
        node = world.node("bookie")
        served = bookie if bookie is not None else MemoryBookie()

        async def listen(_: Any) -> BookieServer:
            return await BookieServer.listen(node.runtime, served, "0.0.0.0", PORT)

        server = await node.run(listen)
        client = world.node("client")
        client.start()

        async def connect(version: int) -> Wire:
            async def run(_: Any) -> Wire:
                _, wire = await client.runtime.network.connect(lambda: Wire(version), "bookie", PORT)
                assert isinstance(wire, Wire)
                return wire

            return await client.run(run)

        await main(served, server, connect)

    sim.run(scenario, seed=7)


def adds_2(ledger_id: int, first: int, entries: Sequence[bytes], *, recovery: bool = False) -> list[bytes]:
    return [v2.encode_add(KEY, entry, recovery=recovery) for entry in entries]


def adds_3(ledger_id: int, first: int, entries: Sequence[bytes]) -> list[bytes]:
    return [v3.encode_add(100 + i, ledger_id, first + i, KEY, entry, recovery=False) for i, entry in enumerate(entries)]
