"""Reads the PROXY header of accepted connections (:mod:`.core.source_header`), before anything else is made of them.

A connection whose first byte is none of a header's goes on without, as in Pulsar, unless one is demanded. Each has so
long for it, and so many wait on one listener: beyond that the oldest is cut off.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import Final

from geminga.model.errors import ProtocolError
from geminga.runtime.core.source_header import FIRST_BYTES, HeaderReader, Origin
from geminga.runtime.log import SparseWarnings, get_logger
from geminga.runtime.ports import HeaderRule
from geminga.runtime.spawn import spawn

#: Connections of one listener whose header has not come.
WAITING_MAX: Final = 1024

_log = get_logger(__name__)


class SourceHeaders:
    """Of one listener."""

    __slots__ = ("_loop", "_place", "_rule", "_waiting", "_warnings")

    def __init__(self, rule: HeaderRule, place: str) -> None:
        """``place``: which listener, for the log."""
        self._rule = rule
        self._place = place
        self._loop = asyncio.get_running_loop()
        #: Oldest first.
        self._waiting: dict[asyncio.Task[None], None] = {}
        self._warnings = SparseWarnings(_log, self._loop.time)

    def begin(
        self, connection: socket.socket, then: Callable[[socket.socket, Callable[[], asyncio.BaseProtocol]], None]
    ) -> None:
        """``then`` is told what makes its protocol; of a connection that is refused it never hears."""
        if len(self._waiting) >= WAITING_MAX:
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
            oldest.cancel()
            self._warnings.warn(
                f"{self._place}: more than {WAITING_MAX} wait for a PROXY header; the oldest are cut off"
            )
        task = spawn(self._read(connection, then), name=f"PROXY header on {self._place}")
        self._waiting[task] = None
        task.add_done_callback(partial(self._ended, connection))

    def close(self) -> None:
        """End those that wait."""
        for task in tuple(self._waiting):
            task.cancel()

    def _ended(self, connection: socket.socket, task: asyncio.Task[None]) -> None:
        self._waiting.pop(task, None)
        if task.cancelled():  # perhaps before it had begun, so that nothing of it ran
            connection.close()

    async def _read(
        self, connection: socket.socket, then: Callable[[socket.socket, Callable[[], asyncio.BaseProtocol]], None]
    ) -> None:
        try:
            async with asyncio.timeout(self._rule.limit_s):
                source = await self._source(connection)
        except TimeoutError:
            connection.close()
            self._warnings.warn(
                f"{self._place}: no PROXY header, and nothing else, within "
                f"gemingaHandshakeTimeoutSeconds={self._rule.limit_s:g}",
                "late",
            )
        except ProtocolError as error:
            connection.close()
            self._warnings.warn(f"{self._place}: a connection is closed: {error}", str(error)[:40])
        except OSError as error:
            connection.close()
            _log.debug("a connection on %s went away before its PROXY header: %s", self._place, error)
        else:
            then(connection, partial(self._rule.factory, source))

    async def _source(self, connection: socket.socket) -> Origin | None:
        if await self._first_byte(connection) not in FIRST_BYTES:
            if self._rule.is_needed:
                raise ProtocolError("it does not begin with a PROXY header (gemingaHaProxyProtocolRequired=true)")
            return None
        reader = HeaderReader()
        while reader.wanted:
            data = await self._loop.sock_recv(connection, reader.wanted)
            if not data:
                raise ConnectionResetError("it has ended")
            reader.feed(data)
        return reader.source

    async def _first_byte(self, connection: socket.socket) -> bytes:
        """Seen, and left to be read."""
        while True:
            try:
                return connection.recv(1, socket.MSG_PEEK)
            except (BlockingIOError, InterruptedError):
                pass
            readable = self._loop.create_future()
            self._loop.add_reader(connection, _set, readable)
            try:
                await readable
            finally:
                self._loop.remove_reader(connection)


def _set(readable: asyncio.Future[None]) -> None:
    if not readable.done():
        readable.set_result(None)
