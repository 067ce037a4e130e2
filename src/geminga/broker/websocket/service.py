"""The sockets of a broker: how many there may be, what stands behind each, and when each ends.

Made with the first request for one. One timer looks at all of them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, Final, NamedTuple

from geminga.broker.websocket.clients import SocketClients, SocketOwner
from geminga.broker.websocket.core.counts import Interval, SocketCounts
from geminga.broker.websocket.core.frames import ErrorCode, close_reason
from geminga.broker.websocket.core.parameters import ConsumerParameters, ProducerParameters, ReaderParameters
from geminga.broker.websocket.core.window import CountWindow, PullWindow, PushWindow
from geminga.broker.websocket.opening import (
    consumer_arguments,
    opening_error,
    producer_arguments,
    reader_arguments,
    reader_start,
)
from geminga.broker.websocket.room import PublishRoom, ReceiverRoom
from geminga.broker.websocket.sessions import (
    ConsumerSession,
    PingSession,
    ProducerSession,
    ReaderSession,
    SocketPlace,
    SocketSession,
)
from geminga.broker.websocket.socket import SharedRoom, SocketLimits, Upgrade, WebSocket
from geminga.client import Client, PulsarException
from geminga.model.errors import AuthenticationError, AuthorizationError, UnavailableError
from geminga.model.topic_name import DEFAULT_NAMESPACE
from geminga.runtime import Clock, Raised, attempt_await, get_logger, spawn
from geminga.runtime.frame_room import FrameRoom, UnreadResponses

_log = get_logger(__name__)

#: Bytes of messages that came in part, and of what peers do not take, of all sockets.
HALVES_BYTES_MAX: Final = 64 * 1024 * 1024
UNREAD_BYTES_MAX: Final = 64 * 1024 * 1024
#: Bytes that are published and not answered, of all sockets, where no setting says otherwise.
PUBLISHED_BYTES_MAX: Final = 64 * 1024 * 1024
#: Bytes of messages that wait in the broker to be sent, of all sockets.
INBOX_BYTES_MAX: Final = 64 * 1024 * 1024
#: Seconds between two looks at all sockets, and between two times that rights are asked about.
LOOK_S: Final = 1.0
RIGHTS_S: Final = 10.0
#: Sockets that are looked at in one turn of the loop, and into how many turns a second is cut for them.
LOOKED_AT_PER_TURN: Final = 200
LOOK_TURNS: Final = 100
#: Sockets that are asked about at once, and seconds that an answer may take.
ASKED_AT_ONCE: Final = 100
ASKED_S_MAX: Final = 5.0
#: Seconds of an interval of ``proxy-stats/metrics``; Pulsar's.
INTERVAL_S: Final = 60.0
#: Seconds that closing waits for what sockets had behind them.
CLOSE_S_MAX: Final = 5.0

#: Metrics, and of which counts of namespaces they are sums.
_COUNTED: Final = {
    "geminga_websocket_messages_in_total": "messages_in",
    "geminga_websocket_bytes_in_total": "bytes_in",
    "geminga_websocket_messages_out_total": "messages_out",
    "geminga_websocket_bytes_out_total": "bytes_out",
    "geminga_websocket_acknowledged_total": "acknowledged",
    "geminga_websocket_messages_refused_total": "messages_refused",
}

#: Raises GemingaError where a right is gone.
AskAgain = Callable[[], Coroutine[Any, Any, None]]


class ServiceLimits(NamedTuple):
    """Of all sockets, and of each."""

    sockets_max: int
    of_each: SocketLimits
    #: 0: :data:`PUBLISHED_BYTES_MAX`.
    published_bytes_max: int = 0
    #: 0: :data:`INBOX_BYTES_MAX`.
    inbox_bytes_max: int = 0


class Admitted(NamedTuple):
    """Who has a socket."""

    caller: SocketOwner
    #: Address and port.
    peer: str
    #: When the credentials end, by the clock's monotonic time; None: never.
    until_s: float | None = None
    ask_again: AskAgain | None = None


class _Member:
    """A session, and what ends it."""

    __slots__ = ("admitted", "key", "session", "socket")

    def __init__(self, admitted: Admitted, key: SocketOwner | None) -> None:
        self.admitted = admitted
        #: Of its client.
        self.key = key
        self.session: SocketSession | None = None
        self.socket: WebSocket | None = None


class SocketService:
    """See the module."""

    def __init__(self, clock: Clock, clients: SocketClients, limits: ServiceLimits) -> None:
        self._clock = clock
        self._clients = clients
        self.limits = limits
        self._shared = SharedRoom(
            limits.of_each, FrameRoom(clock.monotonic, HALVES_BYTES_MAX), UnreadResponses(UNREAD_BYTES_MAX)
        )
        self._published = PublishRoom(limits.published_bytes_max or PUBLISHED_BYTES_MAX)
        self._inbox = ReceiverRoom(limits.inbox_bytes_max or INBOX_BYTES_MAX)
        #: Those that are being made among them.
        self._members: dict[_Member, None] = {}
        self._by_session: dict[SocketSession, _Member] = {}
        #: By namespace: of those that have sockets, or had some in the last interval.
        self._counts: dict[str, SocketCounts] = {}
        #: Of all others.
        self._counted = SocketCounts()
        self._interval = Interval()
        self._interval_due_s = clock.monotonic() + INTERVAL_S
        self._rights_due_s = 0.0
        self._asking: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        #: Until when it is looked at the sockets though there are none: what was is told for a while.
        self._look_until_s = 0.0
        #: Those that this look has before it.
        self._to_look_at: list[_Member] = []
        self._is_closed = False
        #: Done when the last is gone, while it closes.
        self._emptied: asyncio.Future[None] | None = None
        self.refused_count = 0
        self.opened_count = 0

    # ---- what stands behind a socket

    async def open_producer(self, admitted: Admitted, topic: str, given: ProducerParameters) -> SocketSession:
        """Raises OpeningError, UnavailableError."""

        async def make(client: Client) -> SocketSession:
            producer = await client.create_producer(topic, **producer_arguments(given))
            place = self._place(topic, admitted)
            return ProducerSession(place, producer, self._clock, self._published, given.pending_messages_max)

        return await self._open(admitted, make)

    async def open_consumer(
        self,
        admitted: Admitted,
        topics: str | list[str] | re.Pattern[str],
        subscription: str,
        given: ConsumerParameters,
    ) -> SocketSession:
        """``topics``: a name, several, or a compiled pattern. Raises OpeningError, UnavailableError."""
        told = topics if isinstance(topics, str) else topics[0] if isinstance(topics, list) else topics.pattern

        async def make(client: Client) -> SocketSession:
            consumer = await client.subscribe(topics, subscription, **consumer_arguments(given, told, subscription))
            window = PullWindow() if given.pull_mode else PushWindow(given.receiver_queue_size)
            mode = "Durable" if given.is_durable else "NonDurable"
            named = (subscription, given.subscription_type, mode)
            return ConsumerSession(self._place(told, admitted), self._inbox, consumer, window, named)

        return await self._open(admitted, make)

    async def open_reader(self, admitted: Admitted, topic: str, given: ReaderParameters) -> SocketSession:
        """Raises OpeningError, UnavailableError."""
        start = reader_start(given)

        async def make(client: Client) -> SocketSession:
            reader = await client.create_reader(topic, start, reader_name=given.name, **reader_arguments(given))
            window = CountWindow(given.receiver_queue_size)
            name = reader.subscription_name()
            return ReaderSession(self._place(topic, admitted), self._inbox, reader, window, name)

        return await self._open(admitted, make)

    def _place(self, topic: str, admitted: Admitted) -> SocketPlace:
        return SocketPlace(topic, admitted.peer, self._counts_of(topic))

    def open_ping(self, admitted: Admitted) -> SocketSession:
        """For who only asks whether somebody is there. Raises UnavailableError."""
        member = self._admit(admitted, None)
        return self._made(member, PingSession(SocketPlace("", admitted.peer, SocketCounts())))

    async def _open(
        self, admitted: Admitted, make: Callable[[Client], Coroutine[Any, Any, SocketSession]]
    ) -> SocketSession:
        self._require_room()
        key, client = self._clients.take(admitted.caller)
        member = self._admit(admitted, key)
        try:
            return self._made(member, await make(client))
        except PulsarException as error:
            raise opening_error(error) from error
        finally:
            if member.session is None:
                self._forget(member)

    def _require_room(self) -> None:
        if self._is_closed:
            raise UnavailableError("the broker is stopping")
        if len(self._members) >= self.limits.sockets_max:
            self.refused_count += 1
            raise UnavailableError(
                f"{self.limits.sockets_max} WebSockets are open (gemingaWebSocketConnectionsMax); try again later"
            )

    def _admit(self, admitted: Admitted, key: SocketOwner | None) -> _Member:
        self._require_room()
        member = _Member(admitted, key)
        self._members[member] = None
        if self._timer is None:
            self._look_later()
        return member

    def _made(self, member: _Member, session: SocketSession) -> SocketSession:
        member.session = session
        self._by_session[session] = member
        session.on_over = lambda _: self._forget(member)
        return session

    def _forget(self, member: _Member) -> None:
        if self._members.pop(member, member) is not None:
            return
        if member.session is not None:
            del self._by_session[member.session]
        if member.key is not None:
            self._clients.give_back(member.key)
        if self._emptied is not None and not self._members and not self._emptied.done():
            self._emptied.set_result(None)

    def _counts_of(self, topic: str) -> SocketCounts:
        words = topic.rpartition("://")[2].split("/")
        namespace = "/".join(words[:2]) if len(words) > 2 else DEFAULT_NAMESPACE
        return self._counts.setdefault(namespace, SocketCounts())

    # ---- sockets

    def socket_of(self, session: SocketSession, upgrade: Upgrade, on_lost: Callable[[WebSocket], None]) -> WebSocket:
        """The protocol of the connection from now on; :meth:`begin` follows once it has its transport."""
        member = self._by_session[session]
        now_s = asyncio.get_running_loop().time()
        member.socket = WebSocket(upgrade, self._shared, session, on_lost, now_s)
        # What came with the request is for a session that has begun.
        member.socket.hold()
        return member.socket

    def begin(self, session: SocketSession) -> None:
        """The socket is open."""
        member = self._by_session[session]
        self.opened_count += 1
        if self._is_closed and member.socket is not None:
            member.socket.shutdown()
        elif member.socket is not None and member.socket.is_open:
            session.begin(member.socket)
            member.socket.free()

    @property
    def sessions(self) -> Iterator[SocketSession]:
        """Those with a socket."""
        return (member.session for member in list(self._members) if member.session is not None and member.socket)

    # ---- time

    def _look_later(self, after_s: float = LOOK_S) -> None:
        self._timer = asyncio.get_running_loop().call_later(after_s, self._look)

    def _look(self) -> None:
        self._timer = None
        self._to_look_at = self._to_look_at or list(self._members)
        loop_s, now_s = asyncio.get_running_loop().time(), self._clock.monotonic()
        for member in self._to_look_at[-LOOKED_AT_PER_TURN:]:
            self._look_at(member, loop_s, now_s)
        del self._to_look_at[-LOOKED_AT_PER_TURN:]
        if self._to_look_at:
            self._look_later(LOOK_S / LOOK_TURNS)
            return
        self._published.look(now_s)
        if now_s >= self._rights_due_s and self._asking is None:
            self._rights_due_s = now_s + RIGHTS_S
            self._asking = spawn(self._ask_again(), name="rights of sockets")
        if now_s >= self._interval_due_s:
            self._interval_due_s = now_s + INTERVAL_S
            self._interval.turn(self._counts)
            self._fold_idle()
        if self._members:
            self._look_until_s = now_s + 2 * INTERVAL_S
        if now_s < self._look_until_s:
            self._look_later()

    def _fold_idle(self) -> None:
        """Namespaces come and go: those without sockets in which nothing happened are told of in the sum alone."""
        used = {id(member.session.counts) for member in self._members if member.session is not None}
        for namespace, last in self._interval.last.items():
            if id(self._counts[namespace]) not in used and not any(last.values()):
                self._counted.add(self._counts.pop(namespace))
                self._interval.forget(namespace)

    def _look_at(self, member: _Member, loop_s: float, now_s: float) -> None:
        socket, until_s = member.socket, member.admitted.until_s
        if socket is None:
            return
        if until_s is not None and now_s >= until_s and socket.is_open:
            socket.close(*close_reason(ErrorCode.NOT_AUTHENTICATED, "the credentials have expired"))
        socket.look(loop_s)

    async def _ask_again(self) -> None:
        """Who lost its right is sent away. Where nothing can be found out now, the next time will tell."""
        under_way: set[asyncio.Task[None]] = set()
        try:
            for member in list(self._members):
                ask, socket = member.admitted.ask_again, member.socket
                if ask is None or socket is None or not socket.is_open:
                    continue
                # Many at once: an answer that hangs holds up nobody else's.
                if len(under_way) >= ASKED_AT_ONCE:
                    _, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                under_way.add(spawn(_ask_about(socket, ask), name="right of a socket"))
            if under_way:
                await asyncio.wait(under_way)
        finally:
            for asking in under_way:
                asking.cancel()
            self._asking = None

    async def close(self) -> None:
        """The broker stops: every socket is told, and what is behind it closes."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._asking is not None:
            self._asking.cancel()
        self._shared.halves.close()
        for member in list(self._members):
            if member.socket is not None:
                member.socket.shutdown()
        if self._members:
            self._emptied = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._emptied], timeout=CLOSE_S_MAX)
        try:
            async with asyncio.timeout(CLOSE_S_MAX):
                await self._clients.close()
        except TimeoutError:
            _log.warning("clients of sockets did not close within %g s", CLOSE_S_MAX)

    # ---- what is told of them

    @property
    def last_interval(self) -> Mapping[str, Mapping[str, int]]:
        """Namespace -> Pulsar's names of metrics -> counts of the last whole minute."""
        return self._interval.last

    def metrics(self) -> Mapping[str, float]:
        """Samples for ``/metrics``."""
        found: dict[str, float] = {
            "geminga_websocket_connections": sum(1 for _ in self.sessions),
            "geminga_websocket_clients": self._clients.count,
            "geminga_websocket_opened_total": self.opened_count,
            "geminga_websocket_refused_total": self.refused_count,
            "geminga_websocket_published_unanswered_bytes": self._published.held_bytes,
            "geminga_websocket_waiting_producers": self._published.waiting_count,
            "geminga_websocket_inbox_bytes": self._inbox.held_bytes,
            "geminga_websocket_cut_off_total": self._inbox.cut_off_count + self._published.cut_off_count,
        }
        every = [self._counted, *self._counts.values()]
        for name, field in _COUNTED.items():
            found[name] = sum(getattr(one, field) for one in every)
        found["geminga_websocket_publish_seconds_total"] = sum(one.latency_sum_s for one in every)
        return found


async def _ask_about(socket: WebSocket, ask: AskAgain) -> None:
    """A socket whose right is gone ends."""
    try:
        async with asyncio.timeout(ASKED_S_MAX):
            outcome = await attempt_await(ask())
    except TimeoutError:
        return
    error = outcome.error if isinstance(outcome, Raised) else None
    if isinstance(error, AuthenticationError | AuthorizationError) and socket.is_open:
        socket.close(*close_reason(ErrorCode.NOT_AUTHORIZED, error.told))
