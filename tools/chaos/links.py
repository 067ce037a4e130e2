"""Links between clusters: forwarders of TCP on a thread of their own, which are cut and mended when told to.

A link that is ``reset`` loses its connections, and nobody gets one. One that ``hangs`` keeps them, and nothing passes:
as where packets are dropped. What was on its way then comes when it is mended, if either end is still there.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Awaitable, Hashable
from typing import Final, TypeVar

T = TypeVar("T")

#: Closing sends a reset.
_LINGER_NONE: Final = struct.pack("ii", 1, 0)
_READ_BYTES: Final = 65_536
#: Of what is told to the thread.
_PATIENCE_S: Final = 10.0


class _Link:
    """One direction between two clusters; all its forwarders."""

    def __init__(self) -> None:
        self.is_reset = False
        self.passes = asyncio.Event()
        self.passes.set()
        self.writers: set[asyncio.StreamWriter] = set()

    def reset(self) -> None:
        self.is_reset = True
        for writer in [*self.writers]:
            made: socket.socket | None = writer.get_extra_info("socket")
            if made is not None:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NONE)
            writer.transport.abort()


class Links:
    """By whatever names a link."""

    def __init__(self) -> None:
        self._links: dict[Hashable, _Link] = {}
        self._targets: dict[int, tuple[str, int]] = {}
        self._servers: list[asyncio.Server] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="links")
        self._thread.start()

    def forward(self, link: Hashable) -> int:
        """A port on this machine that leads nowhere before :meth:`lead`."""
        return self._tell(self._forward(link))

    def lead(self, port: int, target: tuple[str, int]) -> None:
        """Where a port leads."""
        self._targets[port] = target

    def cut(self, link: Hashable, *, hangs: bool) -> None:
        """Nothing passes any more."""
        self._tell(self._cut(link, hangs=hangs))

    def mend(self, link: Hashable) -> None:
        """All passes again."""
        self._tell(self._mend(link))

    def close(self) -> None:
        """Forward nothing more."""
        try:
            self._tell(self._close())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_PATIENCE_S)
            self._loop.close()

    def _tell(self, what: Awaitable[T]) -> T:
        async def done() -> T:
            return await what

        return asyncio.run_coroutine_threadsafe(done(), self._loop).result(_PATIENCE_S)

    async def _forward(self, name: Hashable) -> int:
        link = self._links.setdefault(name, _Link())

        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._connection(link, port, reader, writer)

        server = await asyncio.start_server(accepted, "127.0.0.1", 0)
        port: int = server.sockets[0].getsockname()[1]
        self._servers.append(server)
        return port

    async def _connection(
        self, link: _Link, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        target = self._targets.get(port)
        link.writers.add(writer)
        away: asyncio.StreamWriter | None = None
        try:
            if link.is_reset or target is None:
                return
            await link.passes.wait()
            there, away = await asyncio.open_connection(*target)
            link.writers.add(away)
            relays = (_relay(link, reader, away), _relay(link, there, writer))
            tasks = [asyncio.ensure_future(relay) for relay in relays]
            _, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in left:
                task.cancel()
            await asyncio.wait(tasks)
        except OSError:
            pass  # who is connected to is gone, and so is the connection
        finally:
            for one in (writer, away):
                if one is not None:
                    link.writers.discard(one)
                    one.transport.abort()

    async def _cut(self, name: Hashable, *, hangs: bool) -> None:
        link = self._links[name]
        if hangs:
            link.passes.clear()
        else:
            link.reset()

    async def _mend(self, name: Hashable) -> None:
        link = self._links[name]
        link.is_reset = False
        link.passes.set()

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for link in self._links.values():
            link.reset()
        connections = asyncio.all_tasks() - {asyncio.current_task()}
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)


async def _relay(link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(_READ_BYTES):
            await link.passes.wait()
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
