"""What consumers within the broker are sent: ``ConsumerConnection`` of a consumer over HTTP, or of a live tail.

It takes messages while it is open, as many bytes as it may hold, and none while all inboxes together hold too many
(:class:`InboxRoom`): dispatch waits then, as for a connection that does not read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from geminga.broker.access.core.principal import ANONYMOUS, Principal
from geminga.broker.rest.message_routes.core.shown import Shown, shown
from geminga.broker.rest.message_routes.publishing import CLIENT_VERSION
from geminga.model.position import Position
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.commands import decode_command
from geminga.wire.pulsar.frame import FrameDecoder
from geminga.wire.pulsar.varint import signed64

if TYPE_CHECKING:
    from geminga.broker.subscription.consumer import Consumer
    from geminga.runtime import Buffer

#: Of a frame that a dispatcher writes: whatever is stored.
_FRAME_BYTES_MAX = 1 << 30


_MAKING: Final = (int(pb.BaseCommand.SUBSCRIBE), 0)
_NO_MEMBERS: Final[Mapping[int, Any]] = MappingProxyType({})


class Arrived(NamedTuple):
    """An entry, as the dispatcher sent it."""

    consumer_id: int
    position: Position
    redeliveries: int
    #: Words of what is left of a batch; empty: all of it.
    ack_set: tuple[int, ...]
    data: bytes

    def shown(self, partition: int, *, in_base64: bool, decompressed_max: int) -> Shown:
        """As :func:`geminga.broker.rest.message_routes.core.shown.shown`; ``partition``: of its topic."""
        return shown(
            self.data,
            partition,
            self.position,
            ack_set=self.ack_set,
            redeliveries=self.redeliveries,
            in_base64=in_base64,
            decompressed_max=decompressed_max,
        )


class InboxRoom:
    """Bytes that all inboxes together hold; above the limit none takes more."""

    __slots__ = ("_limit_bytes", "_waiting", "used_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.used_bytes = 0
        self._waiting: dict[HttpInbox, None] = {}

    @property
    def has_room(self) -> bool:
        """Whether there is any."""
        return self.used_bytes < self._limit_bytes

    def take(self, size_bytes: int) -> None:
        """Something came."""
        self.used_bytes += size_bytes

    def free(self, size_bytes: int) -> None:
        """Something was taken out."""
        self.used_bytes -= size_bytes
        if self.has_room and self._waiting:
            waiting, self._waiting = self._waiting, {}
            for inbox in waiting:
                inbox.look()

    def wait(self, inbox: HttpInbox) -> None:
        """Look at it when there is room."""
        self._waiting[inbox] = None

    def forget(self, inbox: HttpInbox) -> None:
        """It is closed."""
        self._waiting.pop(inbox, None)


class _Consumers(dict[int, "Consumer"]):
    """By id; tells when one leaves."""

    def __init__(self, left: Callable[[], None]) -> None:
        super().__init__()
        self._left = left

    def __delitem__(self, consumer_id: int) -> None:
        super().__delitem__(consumer_id)
        self._left()

    def close(self) -> None:
        """Nobody is told any more, nor kept."""
        self._left = _nothing


class _Members:
    """The consumers, as ``ConsumerMembers`` and ``HeldMembers`` have them."""

    producers = waiting_producers = watchers = _NO_MEMBERS

    def __init__(self, left: Callable[[], None]) -> None:
        self.consumers = _Consumers(left)
        #: While they are being made.
        self.requests: dict[tuple[int, int], int] = {}

    def consumer_departs(self, consumer_id: int) -> Callable[[], None]:
        """It is told by leaving."""
        return _nothing


class HttpInbox:
    """See the module. Hashes by identity."""

    listener = ""
    client_version = CLIENT_VERSION
    supports_broker_entry_metadata = True
    #: It has room for so many bytes.
    permits_are_messages = True

    def __init__(self, peer: str, room: InboxRoom, bytes_max: int, left: Callable[[], None]) -> None:
        """``left`` is called when one of its consumers is gone, whoever closed it."""
        self.peer = peer
        self._room = room
        #: Above it nothing more is taken, but for what one read of a dispatcher brings.
        self.bytes_max = bytes_max
        self.members = _Members(left)
        #: For whom, and among whom it is when rights change.
        self.principal = ANONYMOUS
        self._others = set[object]()
        self._entries: deque[Arrived] = deque()
        self._bytes = 0
        self._is_open = False
        self._callbacks: list[Callable[[], None]] = []
        #: Set when something came, or what its owner waits for may be different.
        self.news = asyncio.Event()
        #: Consumers whose topics are terminated, and that have all of them.
        self.at_end: set[int] = set()

    # ---- ``ConsumerConnection``

    @property
    def output(self) -> HttpInbox:
        """What its consumers write to."""
        return self

    def check_liveness(self) -> Awaitable[bool]:
        """Who holds it is there, or it would be closed."""
        return _yes()

    def send_command(self, command: pb.BaseCommand) -> None:
        """Of interest is the end of a topic alone."""
        if command.type == pb.BaseCommand.REACHED_END_OF_TOPIC:
            self.at_end.add(command.reachedEndOfTopic.consumer_id)
            self.news.set()

    @property
    def is_writable(self) -> bool:
        """Whether dispatchers may write."""
        return self._is_open and self._bytes < self.bytes_max and self._room.has_room

    @property
    def is_held(self) -> bool:
        """Whether they must not even write what they have read."""
        return not self.is_writable

    def on_writable(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once when it is writable again."""
        self._callbacks.append(callback)
        if not self._room.has_room:
            self._room.wait(self)

    def write_soon(self, data: bytes) -> None:
        """A farewell, which its consumers' leaving tells as well."""

    def write_many(self, parts: list[Buffer]) -> None:
        """Messages."""
        for frame, data in FrameDecoder(_FRAME_BYTES_MAX).feed(b"".join(parts)):
            message = decode_command(frame).message
            position = Position(signed64(message.message_id.ledgerId), signed64(message.message_id.entryId))
            arrived = Arrived(
                message.consumer_id, position, message.redelivery_count, tuple(message.ack_set), bytes(data)
            )
            self._entries.append(arrived)
            self._bytes += len(arrived.data)
            self._room.take(len(arrived.data))
        self.news.set()

    # ---- its owner's side

    def begin(self, principal: Principal, others: set[object]) -> None:
        """Consumers are made for it. It joins ``others``, which are asked about when rights change, until it closes."""
        self.principal, self._others = principal, others
        others.add(self)
        self.members.requests[_MAKING] = 0

    def begun(self) -> None:
        """They are there."""
        self.members.requests.clear()

    def __len__(self) -> int:
        """Entries."""
        return len(self._entries)

    def open(self, bytes_max: int) -> None:
        """Take messages from now on."""
        self._is_open, self.bytes_max = True, bytes_max
        self.look()

    def shut(self) -> None:
        """Take none."""
        self._is_open = False

    def look(self) -> None:
        """There may be room now."""
        if not self.is_writable:
            if self._callbacks and not self._room.has_room:
                self._room.wait(self)
            return
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def pop(self) -> Arrived:
        """The first one."""
        arrived = self.take()
        self.free(len(arrived.data))
        return arrived

    def take(self) -> Arrived:
        """The first one, whose bytes still count here until they are freed: they are on their way to a client."""
        return self._entries.popleft()

    def hold(self, size_bytes: int) -> None:
        """So many came of what was taken, and count here until they are freed."""
        self._bytes += size_bytes
        self._room.take(size_bytes)

    def free(self, size_bytes: int) -> None:
        """So many of what was taken, or held, are gone."""
        self._freed(size_bytes)

    def drop(self, is_dropped: Callable[[Arrived], bool]) -> None:
        """Those that will be sent again."""
        kept: deque[Arrived] = deque()
        dropped_bytes = 0
        for entry in self._entries:
            if is_dropped(entry):
                dropped_bytes += len(entry.data)
            else:
                kept.append(entry)
        self._entries = kept
        self._freed(dropped_bytes)

    def close(self) -> None:
        """Nobody reads it any more."""
        self._others.discard(self)
        self.begun()
        self.shut()
        self._callbacks.clear()
        self.drop(_all)
        self._room.forget(self)
        self.members.consumers.close()
        self.news.set()

    def _freed(self, size_bytes: int) -> None:
        self._bytes -= size_bytes
        self._room.free(size_bytes)
        self.look()


def _all(_entry: Arrived) -> bool:
    return True


def _nothing() -> None:
    """It is told by leaving."""


async def _yes() -> bool:
    return True
