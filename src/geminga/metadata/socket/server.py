"""Serves a metadata store over a Unix socket: sessions, silence, and who may connect.

Each session has a store of its own, made by ``open_session``: what its ephemeral nodes, watches and faults are is that
store's doing. Here is decided only when one begins and ends. Protocol: ``docs/formats/metadata-socket.md``.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from typing import Final

from geminga.metadata.core.socket_messages import (
    NEW_SESSION,
    SECRET_BYTES,
    VERSION,
    Expired,
    Reason,
    Refused,
    SessionHello,
)
from geminga.metadata.ports import MetadataStore
from geminga.metadata.socket.served import ServedConnection, ServedSession
from geminga.model.errors import GemingaError, StorageError
from geminga.runtime import Runtime, get_logger, spawn, wait_ms
from geminga.runtime.ports import Listener

#: Bounds of a session's time-out, milliseconds.
SESSION_MS_MIN: Final = 1_000
SESSION_MS_MAX: Final = 600_000
#: Sessions at once.
SESSIONS_MAX: Final = 1_000
#: Connections at once: those of sessions, and as many that have not said who they are.
CONNECTIONS_MAX: Final = 2 * SESSIONS_MAX
#: Between two looks at who is silent, milliseconds.
TICK_MS: Final = 250
#: Between two attempts to end a session that the store could not end.
RETRY_MS: Final = 500

_log = get_logger(__name__)


class MetadataServer:
    """Made by :meth:`listen`."""

    def __init__(
        self, runtime: Runtime, path: str, open_session: Callable[[], Awaitable[MetadataStore]], token: str
    ) -> None:
        self._runtime = runtime
        self._path = path
        self._open_session = open_session
        self._token = token
        self._sessions: dict[int, ServedSession] = {}
        self._connections: dict[ServedConnection, None] = {}
        #: Sessions that are being opened.
        self._opening = 0
        #: Sessions whose store is being closed: they count, and nothing of them is served.
        self._ending: set[asyncio.Task[None]] = set()
        self._next_id = 1
        self._listener: Listener | None = None
        self._tick: asyncio.TimerHandle | None = None
        self._is_closed = False

    @classmethod
    async def listen(
        cls,
        runtime: Runtime,
        path: str,
        open_session: Callable[[], Awaitable[MetadataStore]],
        *,
        token: str,
        keep_free: int = 0,
    ) -> MetadataServer:
        """Serve at ``path`` whoever knows ``token``; raises OSError.

        ``open_session`` gives a store with a session of its own, which is over when that store is closed.
        """
        server = cls(runtime, path, open_session, token)
        server._listener = await runtime.network.listen_local(server._connection, path, keep_free=keep_free)
        server._look_later()
        return server

    @property
    def path(self) -> str:
        """Where it listens."""
        return self._path

    def sessions(self) -> list[tuple[int, str]]:
        """Id and name of each."""
        return [(session.session_id, session.name) for session in self._sessions.values()]

    async def close(self) -> None:
        """End all sessions, connected or not."""
        self._is_closed = True
        if self._tick is not None:
            self._tick.cancel()
        if self._listener is not None:
            await self._listener.close()
        for session in list(self._sessions.values()):
            self._end(session)
        for connection in list(self._connections):
            connection.close()
        if self._ending:
            await asyncio.wait(self._ending)

    async def end_sessions_of(self, name: str) -> None:
        """The process that called itself ``name`` is gone for certain: its nodes go now."""
        for session in list(self._sessions.values()):
            if session.name == name:
                self._end(session)
        if self._ending:
            await asyncio.wait(self._ending)

    def has_session_of(self, name: str) -> bool:
        """Whether the process that calls itself ``name`` has a session, heard of within its time-out."""
        return any(session.name == name for session in self._sessions.values())

    def expire(self, session_id: int) -> None:
        """End one session as after a long silence."""
        session = self._sessions.get(session_id)
        if session is not None:
            self._end(session)

    # ---- what connections ask

    def _connection(self) -> ServedConnection:
        connection = ServedConnection(self)
        return connection

    def came(self, connection: ServedConnection) -> bool:
        """Whether it may stay until it says who it is."""
        if self._is_closed or len(self._connections) >= CONNECTIONS_MAX:
            return False
        self._connections[connection] = None
        return True

    def went(self, connection: ServedConnection) -> None:
        """Its session goes on, for a while."""
        self._connections.pop(connection, None)

    async def greet(self, connection: ServedConnection, hello: SessionHello) -> ServedSession | Refused:
        """The session that the connection has from now on."""
        if hello.version != VERSION:
            return self._refusal(
                Reason.VERSION,
                f"the client speaks version {hello.version} of the metadata socket's protocol, this standalone "
                f"version {VERSION}: both must be of one release; start the standalone again",
            )
        if not hmac.compare_digest(hello.token.encode(), self._token.encode()):
            return self._refusal(Reason.TOKEN, "the client belongs to another life of the standalone")
        if hello.session == NEW_SESSION:
            return await self._new_session(connection, hello)
        session = self._sessions.get(hello.session)
        if session is None or not hmac.compare_digest(session.secret, hello.secret):
            return self._refusal(Reason.SESSION_OVER, f"there is no session {hello.session}")
        await session.taken_up_by(connection)
        if session.is_over:
            return self._refusal(Reason.SESSION_OVER, f"session {hello.session} ended meanwhile")
        return session

    async def _new_session(self, connection: ServedConnection, hello: SessionHello) -> ServedSession | Refused:
        if len(self._sessions) + self._opening + len(self._ending) >= SESSIONS_MAX:
            return self._refusal(Reason.TOO_MANY, f"{SESSIONS_MAX} sessions are open")
        self._opening += 1
        try:
            store = await self._open_session()
        except StorageError as error:
            return self._refusal(Reason.NOT_NOW, f"the store opens no session: {error}")
        finally:
            self._opening -= 1
        session_id, self._next_id = self._next_id, self._next_id + 1
        timeout_ms = min(max(hello.timeout_ms, SESSION_MS_MIN), SESSION_MS_MAX)
        secret = bytes.fromhex(self._runtime.rng.token(SECRET_BYTES))
        session = ServedSession(session_id, secret, timeout_ms, hello.name, store)
        self._sessions[session_id] = session
        _log.debug("metadata session %d of %s begins", session_id, hello.name)
        if self._is_closed:
            self._end(session)
            return self._refusal(Reason.NOT_NOW, "the standalone stops")
        await session.taken_up_by(connection)
        return session

    def end(self, session: ServedSession) -> asyncio.Task[None]:
        """As its client asked."""
        return self._end(session)

    # ---- inside

    def _refusal(self, reason: Reason, why: str) -> Refused:
        return Refused(reason, VERSION, why)

    def _look_later(self) -> None:
        self._tick = asyncio.get_running_loop().call_later(TICK_MS / 1000, self._look)

    def _look(self) -> None:
        """One tick of silence for each, however long this process did not run."""
        self._look_later()
        for session in list(self._sessions.values()):
            session.silent_ms += TICK_MS
            if session.silent_ms > session.timeout_ms:
                _log.warning(
                    "metadata session %d of %s is over: nothing was heard of it for %d ms",
                    session.session_id,
                    session.name,
                    session.timeout_ms,
                )
                self._end(session)

    def _end(self, session: ServedSession) -> asyncio.Task[None]:
        del self._sessions[session.session_id]
        session.is_over = True
        task = spawn(self._close_store(session), name=f"metadata-session-{session.session_id}-end")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task

    async def _close_store(self, session: ServedSession) -> None:
        """Until it is done: a session that is over has no nodes. What it had under way ends one way or the other."""
        was_logged = False
        while True:
            try:
                await session.store.close()
                break
            except GemingaError as error:
                if not was_logged:
                    was_logged = True
                    _log.error("metadata session %d can not be ended now: %s", session.session_id, error)
            await wait_ms(RETRY_MS)
        connection = session.connection
        if connection is not None:
            connection.send_last(Expired())
