"""A session that is served over a metadata socket, and the connection that it has now."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol, cast

from geminga.metadata.core.socket_codec import encode, server_decoder
from geminga.metadata.core.socket_messages import (
    BrokenMessageError,
    FromClient,
    FromServer,
    Numbers,
    Ping,
    Pong,
    Refused,
    Result,
    SessionHello,
    StoreOperation,
    StoreRequest,
    StoreResponse,
    Watch,
    Welcome,
    failure_of,
)
from geminga.metadata.ports import ChangeKind, MetadataStore, Notification, Unsubscribe
from geminga.model.errors import (
    GemingaError,
    LocalError,
    MetadataUnavailableError,
    SessionExpiredError,
    StorageError,
    UnavailableError,
)
from geminga.model.limits import METADATA_VALUE_BYTES_MAX
from geminga.runtime import get_logger, let_go, spawn

#: Requests of a connection that are being carried out, and the bytes of their values: beyond, nothing more is read.
UNDER_WAY_MAX: Final = 256
UNDER_WAY_BYTES_MAX: Final = 16 * 1024 * 1024
#: Bytes that a client has not read: as many answers of the largest value as may be under way, and as much again.
UNREAD_BYTES_MAX: Final = 2 * UNDER_WAY_MAX * METADATA_VALUE_BYTES_MAX
#: Of one session.
WATCHES_MAX: Final = 50_000
#: Until a connection says who it is.
HELLO_S: Final = 10.0
#: Until a client that does not read what it is told is cut off, and one whose connection ends has read the last of it.
UNREAD_S_MAX: Final = 30.0
CLOSE_GRACE_S: Final = 5.0

_TASK_NAMES: Final = {operation: f"metadata-{operation.name.lower()}" for operation in StoreOperation}

_log = get_logger(__name__)


@dataclass(slots=True, eq=False)
class ServedSession:
    """One session."""

    session_id: int
    secret: bytes
    timeout_ms: int
    name: str
    #: Its own.
    store: MetadataStore
    #: Since something was heard of it.
    silent_ms: int = 0
    is_over: bool = False
    connection: ServedConnection | None = None
    #: Connections, gone or not, whose requests are being carried out.
    working: dict[ServedConnection, None] = field(default_factory=dict)

    async def taken_up_by(self, connection: ServedConnection) -> None:
        """From now on this is its connection; what an earlier one brought is done when this returns."""
        before, self.connection = self.connection, connection
        self.silent_ms = 0
        if before is not None:
            before.end()
        for earlier in list(self.working):
            await earlier.idle()


class Server(Protocol):
    """What a connection asks of its server."""

    def came(self, connection: ServedConnection) -> bool:
        """Whether it may stay."""
        ...

    def went(self, connection: ServedConnection) -> None:
        """It is gone."""
        ...

    async def greet(self, connection: ServedConnection, hello: SessionHello) -> ServedSession | Refused:
        """Its session."""
        ...

    def end(self, session: ServedSession) -> asyncio.Task[None]:
        """End the session; done when its nodes are gone."""
        ...


class ServedConnection(asyncio.Protocol):
    """One connection: bytes in, calls of its session's store, answers out in groups."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._decoder = server_decoder()
        #: Not there any more once it is lost.
        self._transport: asyncio.Transport
        self._session: ServedSession | None = None
        self._has_greeted = False
        self._hello_timer: asyncio.TimerHandle | None = None
        self._watches: dict[tuple[str, bool], Unsubscribe] = {}
        #: Requests that are being carried out, and the bytes of their values.
        self._under_way = 0
        self._under_way_bytes = 0
        self._idle: asyncio.Future[None] | None = None
        self._is_full = False
        #: The client does not read what it is told.
        self._is_unread = False
        self._cut_off: asyncio.TimerHandle | None = None
        self._unsent: list[bytes] = []
        self._is_lost = False

    # ---- asyncio's

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there, and has a while to say which."""
        self._transport = cast("asyncio.Transport", transport)
        if not self._server.came(self):
            self._transport.abort()
            return
        self._hello_timer = asyncio.get_running_loop().call_later(HELLO_S, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        """Carry out what is whole."""
        if self._is_lost:
            return
        error = self._decoder.pass_on(data, self._handle)
        if error is not None:
            _log.warning("a connection of the metadata socket ends: %s", error)
            self._transport.abort()

    def connection_lost(self, _: Exception | None) -> None:
        """The session goes on without; nobody waits for answers any more."""
        self._is_lost = True
        let_go(self._transport)
        del self._transport
        self._server.went(self)
        if self._hello_timer is not None:
            self._hello_timer.cancel()
        if self._cut_off is not None:
            self._cut_off.cancel()
        self._unsent.clear()
        watches, self._watches = self._watches, {}
        for unsubscribe in watches.values():
            unsubscribe()
        if self._session is not None and self._session.connection is self:
            self._session.connection = None

    def pause_writing(self) -> None:
        """The client does not keep up: no more of its requests are taken."""
        self._is_unread = True
        self._transport.pause_reading()
        self._cut_off_after(UNREAD_S_MAX)

    def resume_writing(self) -> None:
        """It does again."""
        self._is_unread = False
        if self._cut_off is not None and not self._transport.is_closing():
            self._cut_off.cancel()
            self._cut_off = None
        self._read_on()

    # ---- its end

    def close(self) -> None:
        """After what is on its way out."""
        self._flush()
        if not self._is_lost:
            self._transport.close()
            self._cut_off_after(CLOSE_GRACE_S)

    def _cut_off_after(self, seconds: float) -> None:
        """Unless it is due before."""
        loop = asyncio.get_running_loop()
        if self._cut_off is not None:
            if self._cut_off.when() <= loop.time() + seconds:
                return
            self._cut_off.cancel()
        self._cut_off = loop.call_later(seconds, self._transport.abort)

    def send_last(self, message: FromServer) -> None:
        """A last word."""
        self._send(message)
        self.close()

    def end(self) -> None:
        """Read nothing more, from now on."""
        if not self._is_lost:
            self._transport.abort()
            # Until asyncio tells it too, nothing more may be taken either.
            self._is_lost = True

    async def idle(self) -> None:
        """What was read is done when this returns."""
        if self._under_way:
            self._idle = self._idle or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._idle)

    # ---- messages

    def _handle(self, message: FromClient) -> None:
        session = self._session
        if isinstance(message, SessionHello):
            if self._has_greeted:
                raise BrokenMessageError("a second hello on a connection of the metadata socket")
            self._has_greeted = True
            self._transport.pause_reading()
            spawn(self._greet(message), name="metadata-hello")
            return
        if session is None:
            raise BrokenMessageError(f"{type(message).__name__} before the session's begin on the metadata socket")
        session.silent_ms = 0
        if isinstance(message, StoreRequest):
            self._begin(session, message)
        elif isinstance(message, Watch):
            self._watch(session, message)
        elif isinstance(message, Ping):
            self._send(Pong())

    async def _greet(self, hello: SessionHello) -> None:
        found = await self._server.greet(self, hello)
        if self._hello_timer is not None:
            self._hello_timer.cancel()
        if isinstance(found, Refused):
            self.send_last(found)
            return
        if self._is_lost:
            if found.connection is self:
                found.connection = None
            return
        self._session = found
        self._send(Welcome(found.session_id, found.secret, found.timeout_ms))
        self._read_on()

    def _begin(self, session: ServedSession, request: StoreRequest) -> None:
        session.working[self] = None
        self._under_way += 1
        self._under_way_bytes += len(request.value)
        if self._under_way >= UNDER_WAY_MAX or self._under_way_bytes >= UNDER_WAY_BYTES_MAX:
            self._is_full = True
            self._transport.pause_reading()
        spawn(self._serve(session, request), name=_TASK_NAMES[request.operation])

    async def _serve(self, session: ServedSession, request: StoreRequest) -> None:
        try:
            result = await self._result(session, request)
        finally:
            self._done(session, len(request.value))
        try:
            self._send(StoreResponse(request.request_id, result))
        except BrokenMessageError as error:
            # A list that is too long for one frame.
            self._send(StoreResponse(request.request_id, failure_of(error)))
        if request.operation is StoreOperation.CLOSE:
            self.close()

    async def _result(self, session: ServedSession, request: StoreRequest) -> Result:
        store, path = session.store, request.path
        try:
            match request.operation:
                case StoreOperation.GET:
                    return await store.get(path)
                case StoreOperation.EXISTS:
                    return int(await store.exists(path))
                case StoreOperation.CHILDREN:
                    return tuple(await store.children(path))
                case StoreOperation.NEXT_SEQUENCE:
                    return await store.next_sequence(path)
                case StoreOperation.SYNC:
                    await store.sync()
                    return None
                case StoreOperation.PUT:
                    return await store.put(
                        path,
                        request.value,
                        expected_version=request.expected_version,
                        ephemeral=request.ephemeral,
                        sequential=request.sequential,
                    )
                case StoreOperation.TAKE_SEQUENCES:
                    return Numbers(tuple(await store.take_sequences(path, request.how_many)))
                case StoreOperation.DELETE:
                    await store.delete(path, expected_version=request.expected_version)
                    return None
                case StoreOperation.CLOSE:
                    if not session.is_over:
                        session.connection = None  # it is told by the answer
                        await self._server.end(session)
                    return None
        except (StorageError, UnavailableError) as error:
            if session.is_over and isinstance(error, MetadataUnavailableError):
                return failure_of(SessionExpiredError(f"metadata session {session.session_id} is over"))
            return failure_of(error)

    def _done(self, session: ServedSession, size_bytes: int) -> None:
        self._under_way -= 1
        self._under_way_bytes -= size_bytes
        is_half = self._under_way <= UNDER_WAY_MAX // 2 and self._under_way_bytes <= UNDER_WAY_BYTES_MAX // 2
        if self._is_full and is_half:
            self._is_full = False
            self._read_on()
        if not self._under_way:
            session.working.pop(self, None)
            if self._idle is not None:
                self._idle.set_result(None)
                self._idle = None

    def _read_on(self) -> None:
        if not (self._is_lost or self._is_full or self._is_unread):
            self._transport.resume_reading()

    # ---- watches

    def _watch(self, session: ServedSession, watch: Watch) -> None:
        key = (watch.path, watch.of_children)
        if watch.is_end:
            unsubscribe = self._watches.pop(key, None)
            if unsubscribe is not None:
                unsubscribe()
            return
        if key not in self._watches:
            if len(self._watches) >= WATCHES_MAX:
                raise BrokenMessageError(f"more than {WATCHES_MAX} watches of one session")
            begin: Callable[[str, Callable[[Notification], None]], Unsubscribe]
            begin = session.store.watch_children if watch.of_children else session.store.watch_node
            try:
                self._watches[key] = begin(watch.path, self._send)
            except StorageError as error:
                raise BrokenMessageError(f"watch of {watch.path[:80]!r}: {error}") from None
        if watch.is_told:
            spawn(self._tell(session, watch), name="metadata-watch")

    async def _tell(self, session: ServedSession, watch: Watch) -> None:
        """What is there now: the client does not know what happened before."""
        kind = ChangeKind.CHILDREN_CHANGED
        if not watch.of_children:
            try:
                is_there = await session.store.exists(watch.path)
            except GemingaError as error:
                if isinstance(error, LocalError):
                    raise
                is_there = True  # whoever is told reads it, and sees
            kind = ChangeKind.MODIFIED if is_there else ChangeKind.DELETED
        if (watch.path, watch.of_children) in self._watches:
            self._send(Notification(kind, watch.path))

    # ---- out

    def _send(self, message: FromServer) -> None:
        """With everything else of this turn of the loop; raises BrokenMessageError for what no frame holds."""
        if self._is_lost:
            return
        data = encode(message)
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self._flush)
        self._unsent.append(data)

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if self._is_lost or not unsent:
            return
        self._transport.write(b"".join(unsent))
        if self._transport.get_write_buffer_size() > UNREAD_BYTES_MAX:
            _log.warning("a client of the metadata socket does not read its answers: its connection ends")
            self._transport.abort()
