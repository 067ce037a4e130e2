"""What a socket is for: a producer, a consumer or a reader of the client that stands behind it.

A producer's socket is read as long as its messages without receipt are few, of its own and in bytes over all sockets:
who sends faster waits, nothing is refused for that. A consumer's socket is sent what its window and its peer take; what
the peer does not take stays where it was.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from geminga.broker.subscription.stats import iso_time
from geminga.broker.websocket.core.counts import SocketCounts
from geminga.broker.websocket.core.frames import (
    AckFrame,
    ConsumerFrame,
    EndOfTopicFrame,
    ErrorCode,
    FrameError,
    NegativeAckFrame,
    OutgoingFrame,
    PermitFrame,
    ToldMessage,
    close_reason,
    decode_command,
    decode_outgoing,
    decode_passed,
    encode_end_of_topic,
    encode_message,
    encode_refused,
    encode_stored,
    message_id_bytes,
    message_id_text,
)
from geminga.broker.websocket.core.named_batches import NamedBatches
from geminga.broker.websocket.core.parameters import LONG_MAX
from geminga.broker.websocket.core.window import CountWindow, PullWindow, PushWindow
from geminga.broker.websocket.opening import encryption_of, leads_to_message
from geminga.client import (
    AlreadyClosed,
    AuthenticationError,
    AuthorizationError,
    Consumer,
    Message,
    MessageId,
    OperationNotSupported,
    Producer,
    PulsarException,
    Reader,
)
from geminga.runtime import Clock, Raised, attempt_await, get_logger, next_turn, spawn

if TYPE_CHECKING:
    from geminga.broker.websocket.room import PublishRoom, ReceiverRoom
    from geminga.client import MessageFields

_log = get_logger(__name__)

#: Messages that are sent in one turn of the loop.
MESSAGES_PER_TURN: Final = 10
#: Acknowledgments of a socket that the client has not taken yet; beyond, it is not read.
OPERATIONS_MAX: Final = 1000
#: Ids that a socket in pull mode acknowledges by what it was told: of several topics, say. Those of one topic say all
#: themselves.
KNOWN_IDS_MAX: Final = 10_000
#: RFC 6455.
_NORMAL_CLOSURE: Final = 1000
_TRY_AGAIN_LATER: Final = 1013


class Socket(Protocol):
    """What a session is told through."""

    @property
    def is_writable(self) -> bool:
        """Whether more may be sent now."""

    @property
    def is_open(self) -> bool:
        """Neither closed nor lost."""

    def send(self, text: str) -> None:
        """One message."""

    def close(self, code: int, reason: str) -> None:
        """The end."""

    def hold(self) -> None:
        """Read no more."""

    def free(self) -> None:
        """Read on."""


class SocketPlace(NamedTuple):
    """Where a socket is, and whose."""

    topic: str
    #: Who is there.
    peer: str
    #: Of all sockets of its namespace.
    counts: SocketCounts


class SocketSession:
    """One socket's; see the module."""

    #: In ``proxy-stats``: whose list it is in.
    is_producer = False

    def __init__(self, place: SocketPlace) -> None:
        self.topic, self.peer, self.counts = place
        #: Messages stored, or delivered.
        self.messages = 0
        #: Set once there is a socket.
        self.socket: Socket | None = None
        self.is_over = False
        #: Called once when it is over.
        self.on_over: Callable[[SocketSession], None] | None = None

    def begin(self, socket: Socket) -> None:
        """The socket is there."""
        self.socket = socket

    def text(self, text: str) -> None:
        """A message came."""

    def writable(self) -> None:
        """It may be sent to again."""

    def lost(self) -> None:
        """The socket is gone, or there will be none: so is all behind it."""
        if self.is_over:
            return
        self.is_over = True
        on_over, self.on_over = self.on_over, None
        spawn(self._end(on_over), name=f"end of a socket on {self.topic}")

    async def _end(self, on_over: Callable[[SocketSession], None] | None) -> None:
        outcome = await attempt_await(self._close())
        if isinstance(outcome, Raised):
            _log.warning("closing a socket's client on %s: %s", self.topic, outcome.error)
        self.socket = None
        if on_over is not None:
            on_over(self)

    async def _close(self) -> None:
        """Let go what is behind it."""

    def _fail(self, error: BaseException) -> None:
        """What is behind it failed for good."""
        if self.socket is None:
            return
        if isinstance(error, AlreadyClosed):
            self.socket.close(_NORMAL_CLOSURE, "it was closed")
            return
        code = ErrorCode.UNKNOWN
        if isinstance(error, AuthorizationError):
            code = ErrorCode.NOT_AUTHORIZED
        elif isinstance(error, AuthenticationError):
            code = ErrorCode.NOT_AUTHENTICATED
        if not isinstance(error, PulsarException):
            _log.error("a socket on %s failed", self.topic, exc_info=error)
            self.socket.close(*close_reason(code))
            return
        self.socket.close(*close_reason(code, error.told))


class PingSession(SocketSession):
    """Of a socket that is there to be pinged; what it sends is for nobody."""


# ---- producers


class ProducerSession(SocketSession):
    """See the module."""

    is_producer = True

    def __init__(
        self, place: SocketPlace, producer: Producer[bytes], clock: Clock, room: PublishRoom, pending_max: int
    ) -> None:
        super().__init__(place)
        self._producer = producer
        self._clock = clock
        self._room = room
        self._pending_max = pending_max
        self._pending = 0

    def text(self, text: str) -> None:
        """A message to publish."""
        try:
            frame = decode_outgoing(text)
        except FrameError as error:
            self._refused(error.code, error.reason, error.context)
            return
        size_bytes, now_s = len(frame.payload), self._clock.monotonic()
        # Properties may be as large as payloads, which came in base64.
        held_bytes = size_bytes + max(0, len(text) - -(-size_bytes // 3) * 4)
        stored = partial(self._stored, frame.context, (size_bytes, held_bytes), now_s)
        self._pending += 1
        self._room.take(self, held_bytes, now_s)
        try:
            self._producer.send_nowait(frame.payload, stored, **self._fields(frame))
        except PulsarException as error:
            self._answered(held_bytes)
            self._refused(ErrorCode.UNKNOWN, error.told, frame.context)
            return
        if self.socket is not None and (self._pending >= self._pending_max or self._room.is_full):
            self.socket.hold()
            self._room.waits(self)

    def _fields(self, frame: OutgoingFrame) -> MessageFields:
        fields: MessageFields = {}
        if frame.properties:
            fields["properties"] = frame.properties
        if frame.key is not None:
            fields["partition_key"] = frame.key
        if frame.replication_clusters is not None:
            fields["replication_clusters"] = frame.replication_clusters
        if frame.disable_replication:
            fields["disable_replication"] = True
        if frame.event_time_ms is not None:
            fields["event_timestamp"] = frame.event_time_ms
        if frame.sequence_id is not None:
            fields["sequence_id"] = frame.sequence_id
        if frame.deliver_after_ms is not None:
            fields["deliver_at"] = min(self._clock.wall_ms() + frame.deliver_after_ms, LONG_MAX)
        elif frame.deliver_at_ms is not None:
            fields["deliver_at"] = frame.deliver_at_ms
        return fields

    def _stored(
        self,
        context: str | None,
        sizes: tuple[int, int],
        began_s: float,
        error: PulsarException | None,
        message_id: MessageId | None,
    ) -> None:
        size_bytes, held_bytes = sizes
        self._answered(held_bytes)
        if error is not None:
            self._refused(ErrorCode.UNKNOWN, error.told, context)
            return
        assert message_id is not None
        self.messages += 1
        self.counts.stored(size_bytes, self._clock.monotonic() - began_s)
        if self.socket is not None:
            self.socket.send(encode_stored(message_id.serialize(), context))

    def _answered(self, held_bytes: int) -> None:
        self._pending -= 1
        self._room.give_back(self, held_bytes, self._clock.monotonic())

    def may_go_on(self) -> bool:
        """Whether it has room of its own again."""
        return self._pending <= self._pending_max // 2

    def go_on(self) -> None:
        """There is room."""
        if self.socket is not None:
            self.socket.free()

    def cut_off(self) -> None:
        """Others wait for its room: what got no answer by now is told no more."""
        if self.socket is not None:
            self.socket.close(_TRY_AGAIN_LATER, "what it published got no answer, and others wait for its room")
        self.lost()

    def _refused(self, code: ErrorCode, reason: str, context: str | None) -> None:
        self.counts.messages_refused += 1
        if self.socket is not None:
            self.socket.send(encode_refused(code, reason, context))

    async def _close(self) -> None:
        self._room.leaves(self)
        await self._producer.close()


# ---- consumers and readers


class _ReceivingSession(SocketSession, ABC):
    """Sends what comes while its window is open and its peer takes it."""

    def __init__(self, place: SocketPlace, inbox: ReceiverRoom, source: Consumer[bytes] | Reader[bytes]) -> None:
        """``inbox``: of all sockets. ``source``: where its messages come from."""
        super().__init__(place)
        self._inbox = inbox
        self._source = source
        source.watch_prefetched(self._came, inbox.limit_bytes)
        self._task: asyncio.Task[None] | None = None
        self._wake: asyncio.Future[None] | None = None

    def begin(self, socket: Socket) -> None:
        """The socket is there: send."""
        super().begin(socket)
        self._task = spawn(self._run(), name=f"socket of {self.topic}")

    def writable(self) -> None:
        """It may be sent to again."""
        wake, self._wake = self._wake, None
        if wake is not None and not wake.done():
            wake.set_result(None)

    async def _run(self) -> None:
        outcome = await attempt_await(self._send_on())
        if isinstance(outcome, Raised):
            self._fail(outcome.error)

    async def _send_on(self) -> None:
        in_turn = 0
        while self.socket is not None and self.socket.is_open:
            if not (self._is_window_open() and self.socket.is_writable):
                self._wake = asyncio.get_running_loop().create_future()
                await self._wake
                continue
            message = self._receive_now()
            if message is None:
                in_turn = 0
                message = await self._receive()
            self._came(self._source.prefetched_bytes())
            self._send(self.socket, message)
            in_turn += 1
            if in_turn >= MESSAGES_PER_TURN:
                in_turn = 0
                await next_turn()

    def _send(self, socket: Socket, message: Message[bytes]) -> None:
        message_id = message.message_id()
        told_id = message_id_text(message_id.serialize())
        event_time_ms = message.event_timestamp()
        payload = message.data()
        fields = ToldMessage(
            told_id,
            payload,
            message.properties(),
            iso_time(message.publish_timestamp()),
            iso_time(event_time_ms) if event_time_ms else "",
            message.redelivery_count(),
            message.partition_key() if message.has_key() else None,
            encryption_of(message),
        )
        self._sent(told_id, message_id)
        self.messages += 1
        self.counts.delivered(len(payload))
        socket.send(encode_message(fields))

    def _came(self, waiting_bytes: int) -> None:
        if not self.is_over:
            self._inbox.holds(self, waiting_bytes)

    @property
    def may_send(self) -> bool:
        """Whether its peer takes messages now."""
        return self.socket is not None and self.socket.is_writable and self._is_window_open()

    @property
    def keeps_more(self) -> bool:
        """Whether pieces of messages wait for the others, or refused ids for their time."""
        return self._source.kept_bytes() > 0

    def cut_off(self) -> None:
        """Let go what waits for it."""
        if self.socket is not None:
            self.socket.close(_TRY_AGAIN_LATER, "more messages wait for sockets than the broker has room for")
        self.lost()

    def lost(self) -> None:
        """The socket is gone, or there will be none: nothing is kept for it."""
        self._inbox.leaves(self)
        super().lost()

    async def _close(self) -> None:
        task, self._task, self._wake = self._task, None, None
        if task is not None:
            task.cancel()
        await self._close_source()

    # ---- of what it reads

    @abstractmethod
    def _is_window_open(self) -> bool: ...

    @abstractmethod
    def _receive_now(self) -> Message[bytes] | None: ...

    @abstractmethod
    def _receive(self) -> Awaitable[Message[bytes]]: ...

    @abstractmethod
    def _sent(self, told_id: str, message_id: MessageId) -> None: ...

    @abstractmethod
    async def _close_source(self) -> None: ...


class ConsumerSession(_ReceivingSession):
    """See the module."""

    def __init__(
        self,
        place: SocketPlace,
        inbox: ReceiverRoom,
        consumer: Consumer[bytes],
        window: PushWindow | PullWindow,
        subscription: tuple[str, str, str],
    ) -> None:
        """``subscription``: its name, type and mode."""
        super().__init__(place, inbox, consumer)
        self._consumer = consumer
        self._window = window
        self.subscription = subscription
        #: Told ids, and what they are: newest last.
        self._known: dict[str, MessageId] = {}
        #: Those that were named by ids that are not known.
        self._batches = NamedBatches()
        #: What is to be told the client, each with the id that it is about.
        self._operations: deque[tuple[ConsumerFrame, MessageId | None]] = deque()
        self._operating: asyncio.Task[None] | None = None

    def text(self, text: str) -> None:
        """A command."""
        assert self.socket is not None
        try:
            frame = decode_command(text)
            about = self._id_of(frame.message_id) if isinstance(frame, AckFrame | NegativeAckFrame) else None
        except FrameError as error:
            self.socket.close(*close_reason(error.code, error.reason))
            return
        if isinstance(frame, PermitFrame):
            self._window.permitted(frame.messages)
            self._consumer.resume()
            self.writable()
            return
        if isinstance(frame, EndOfTopicFrame):
            self.socket.send(encode_end_of_topic(is_reached=self._consumer.has_reached_end_of_topic()))
            return
        self._operations.append((frame, about))
        if len(self._operations) >= OPERATIONS_MAX:
            self.socket.hold()
        if self._operating is None:
            self._operating = spawn(self._operate(), name=f"acknowledgments on {self.topic}")

    async def _operate(self) -> None:
        outcome = await attempt_await(self._carry_out())
        self._operating = None
        if isinstance(outcome, Raised):
            self._fail(outcome.error)

    async def _carry_out(self) -> None:
        while self._operations:
            frame, about = self._operations[0]
            if isinstance(frame, AckFrame) and not frame.is_cumulative:
                await self._acknowledge()
            else:
                self._operations.popleft()
                await self._carry_out_one(frame, about)
            if self.socket is not None and len(self._operations) < OPERATIONS_MAX // 2:
                self.socket.free()
            self.writable()

    async def _acknowledge(self) -> None:
        """All acknowledgments that come next, at once."""
        found: list[MessageId] = []
        while self._operations:
            frame, about = self._operations[0]
            if not isinstance(frame, AckFrame) or frame.is_cumulative or about is None:
                break
            self._operations.popleft()
            found.append(about)
            self._window.passed(frame.message_id)
        try:
            await self._consumer.acknowledge(found)
        except OperationNotSupported:  # none is acknowledged yet
            found = [one for one in found if await leads_to_message(self._consumer.acknowledge(one))]
        self.counts.acknowledged += len(found)

    async def _carry_out_one(self, frame: ConsumerFrame, about: MessageId | None) -> None:
        if isinstance(frame, NegativeAckFrame) and about is not None:
            await leads_to_message(self._consumer.negative_acknowledge(about))
            self._window.passed(frame.message_id)
        elif isinstance(frame, AckFrame) and about is not None:
            if await leads_to_message(self._consumer.acknowledge_cumulative(about)):
                self._window.passed_to(frame.message_id)
                self.counts.acknowledged += 1
        else:
            await self._consumer.unsubscribe()

    def _id_of(self, told: str) -> MessageId:
        """Raises FrameError."""
        known = self._known.pop(told, None)
        if known is not None:
            return known
        try:
            found = MessageId.deserialize(message_id_bytes(told))
        except ValueError as error:
            raise FrameError(ErrorCode.NOT_JSON, f"messageId {told[:40]!r}: {error}") from None
        if not self._batches.named((found.partition(), found.ledger_id(), found.entry_id()), found.batch_size()):
            raise FrameError(ErrorCode.NOT_JSON, f"messageId {told[:40]!r}: too large batches that it was not told")
        return found

    def _is_window_open(self) -> bool:
        return self._window.is_open

    def _receive_now(self) -> Message[bytes] | None:
        return self._consumer.receive_nowait()

    def _receive(self) -> Awaitable[Message[bytes]]:
        return self._consumer.receive()

    def _sent(self, told_id: str, message_id: MessageId) -> None:
        self._window.sent(told_id)
        self._known[told_id] = message_id
        if len(self._known) > KNOWN_IDS_MAX:
            del self._known[next(iter(self._known))]

    async def _close_source(self) -> None:
        # What the peer acknowledged before it left is done first.
        if self._operating is not None:
            await asyncio.wait([self._operating])
        await self._consumer.close()


class ReaderSession(_ReceivingSession):
    """See the module."""

    def __init__(
        self, place: SocketPlace, inbox: ReceiverRoom, reader: Reader[bytes], window: CountWindow, subscription: str
    ) -> None:
        super().__init__(place, inbox, reader)
        self._reader = reader
        self._window = window
        self.subscription = (subscription, "Exclusive", "NonDurable")
        #: The broker is told of what was read, which it must know to tell of the topic's end.
        self._asked: asyncio.Task[None] | None = None

    def text(self, text: str) -> None:
        """It is done with a message, or asks whether there will be more."""
        assert self.socket is not None
        try:
            is_passed = decode_passed(text)
        except FrameError as error:
            self.socket.close(*close_reason(error.code, error.reason))
            return
        if not is_passed:
            self.socket.send(encode_end_of_topic(is_reached=self._reader.has_reached_end_of_topic()))
            if self._asked is None or self._asked.done():
                self._asked = spawn(self._tell_read(), name=f"what a reader of {self.topic} has read")
            return
        self._window.passed()
        self.writable()

    async def _tell_read(self) -> None:
        outcome = await attempt_await(self._reader.acknowledge_read())
        if isinstance(outcome, Raised):
            self._fail(outcome.error)

    def _is_window_open(self) -> bool:
        return self._window.is_open

    def _receive_now(self) -> Message[bytes] | None:
        return None

    def _receive(self) -> Awaitable[Message[bytes]]:
        return self._reader.read_next()

    def _sent(self, told_id: str, message_id: MessageId) -> None:
        self._window.sent()

    async def _close_source(self) -> None:
        await self._reader.close()
