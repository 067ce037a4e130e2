"""A listening bookie: connections, and what they share.

Whatever implements the bookie's port can be served. Reads of all connections take turns (``reads``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from geminga.bookie.serving import limits
from geminga.bookie.serving.connection import BookieConnection
from geminga.bookie.serving.long_polls import LongPolls
from geminga.bookie.serving.reads import Reads
from geminga.bookie.serving.unread import UnreadAnswers
from geminga.model.bookie_port import Bookie
from geminga.runtime import Runtime
from geminga.runtime.frame_room import FrameRoom
from geminga.runtime.ports import Listener
from geminga.wire.bookkeeper.codes import FRAME_BYTES_MAX

if TYPE_CHECKING:
    from geminga.bookie.serving.entrance import BookieTls, Entrances

#: Where BookKeeper's bookies listen (``bookiePort``).
BOOKIE_PORT: Final = 3181


class TakenPort:
    """A port where connections are refused until the bookie is there: it is known to be free before it recovers."""

    def __init__(self, tls: BookieTls | None = None) -> None:
        self._server: BookieServer | None = None
        self._listener: Listener
        self._entrances: Entrances | None = None
        if tls is not None:
            from geminga.bookie.serving.entrance import Entrances

            self._entrances = Entrances(tls, self._served)

    @classmethod
    async def take(
        cls, runtime: Runtime, host: str, port: int, *, keep_free: int = 0, tls: BookieTls | None = None
    ) -> TakenPort:
        """Take ``host:port`` (0: one of the kernel's choice); raises OSError. ``keep_free``: as ``Network.listen``.

        ``tls``: by START_TLS; None: there is none.
        """
        taken = cls(tls)
        taken._listener = await runtime.network.listen(taken._connection, host, port, keep_free=keep_free, start=False)
        return taken

    @classmethod
    async def take_local(cls, runtime: Runtime, path: str, *, keep_free: int = 0) -> TakenPort:
        """Take the Unix socket ``path`` instead; raises OSError."""
        taken = cls()
        taken._listener = await runtime.network.listen_local(taken._connection, path, keep_free=keep_free, start=False)
        return taken

    @property
    def port(self) -> int:
        """Which it is."""
        return self._listener.port

    async def serve(self, bookie: Bookie, frame_bytes_max: int) -> BookieServer:
        """Begin to serve ``bookie``, whose server closes the port; raises OSError."""
        self._server = BookieServer(bookie, frame_bytes_max, self._listener)
        await self._listener.start()
        return self._server

    async def close(self) -> None:
        """Let go of it."""
        await self._listener.close()

    def _connection(self) -> asyncio.Protocol:
        return self._served() if self._entrances is None else self._entrances.enter()

    def _served(self) -> BookieConnection:
        assert self._server is not None
        return BookieConnection(self._server)


class BookieServer:
    """Made by :meth:`listen`, or behind a port that was taken before there was a bookie (:class:`TakenPort`)."""

    def __init__(self, bookie: Bookie, frame_bytes_max: int, listener: Listener | None = None) -> None:
        self.bookie = bookie
        self.frame_bytes_max = frame_bytes_max
        self.connections: dict[BookieConnection, None] = {}
        self.polls = LongPolls()
        self.reads = Reads(bookie, self.polls, frame_bytes_max)
        #: What is not answered yet, of all connections.
        self.unanswered_bytes = 0
        #: Beyond the limit, and until half of it is answered.
        self.is_full = False
        self._loop = asyncio.get_running_loop()
        #: For parts of large frames, of all connections.
        self.frame_room = FrameRoom(self._loop.time)
        #: Answers that are not taken, of all connections.
        self.unread = UnreadAnswers(self._answers_have_room)
        self._listener = listener
        self._stuck_check: asyncio.TimerHandle | None = None

    @classmethod
    async def listen(
        cls, runtime: Runtime, bookie: Bookie, host: str, port: int, *, frame_bytes_max: int = FRAME_BYTES_MAX
    ) -> BookieServer:
        """Serve ``bookie`` on ``host:port`` (0: a port of the kernel's choice). Raises OSError."""
        server = cls(bookie, frame_bytes_max)
        server._listener = await runtime.network.listen(lambda: BookieConnection(server), host, port)
        return server

    @property
    def port(self) -> int:
        """Where it listens."""
        assert self._listener is not None
        return self._listener.port

    async def close(self) -> None:
        """Take no more connections, end those there are; the bookie stays open."""
        if self._listener is not None:
            await self._listener.close()
        for connection in list(self.connections):
            connection.close()
        self.frame_room.close()
        self.unread.close()
        if self._stuck_check is not None:
            self._stuck_check.cancel()

    def metrics(self) -> Mapping[str, float]:
        """Of what it has now, for ``/metrics``."""
        return {
            # Reads that wait for their turn among those of other connections.
            "bookkeeper_server_READ_ENTRY_BLOCKED": self.reads.waiting_count,
            "geminga_bookie_connections": len(self.connections),
            "geminga_bookie_unanswered_bytes": self.unanswered_bytes,
            "geminga_bookie_half_frame_bytes": self.frame_room.size_bytes,
            "geminga_bookie_unread_bytes": self.unread.size_bytes,
        }

    # ---- what connections ask

    def came(self, connection: BookieConnection) -> None:
        """A connection is there."""
        self.connections[connection] = None
        if self._stuck_check is None:
            self._stuck_check = self._loop.call_later(limits.STUCK_CHECK_S, self._look_for_stuck)

    def _look_for_stuck(self) -> None:
        self._stuck_check = None
        for connection in list(self.connections):
            connection.end_if_stuck()
        if self.connections:
            self._stuck_check = self._loop.call_later(limits.STUCK_CHECK_S, self._look_for_stuck)

    def count(self, size_bytes: int) -> None:
        """So much more is unanswered, or less."""
        self.unanswered_bytes += size_bytes
        if self.is_full:
            if self.unanswered_bytes <= limits.SERVER_BYTES_MAX // 2:
                self.is_full = False
                for connection in list(self.connections):
                    connection.update_flow()
        elif self.unanswered_bytes > limits.SERVER_BYTES_MAX:
            self.is_full = True

    def _answers_have_room(self) -> None:
        """They do again."""
        for connection in list(self.connections):
            connection.reads_go_on()
        self.reads.serve()

    def forget(self, connection: BookieConnection) -> None:
        """A connection went."""
        self.connections.pop(connection, None)
        connection.dropped(self.reads.forget(connection))
