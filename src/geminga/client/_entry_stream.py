"""``EntryStream``: the entries of one topic or partition, in order, from a position on, without a message object.

For programs that move data (Spark): what ``Reader`` is for messages, this is for :class:`EntryBatch`. It reads over a
subscription that is not durable, so nothing of it outlives its connection. What it promises:

- Every entry from the start on comes once and in order, also over lost connections: it goes on behind the last entry
  that was *taken*, and drops what was only prefetched.
- Nothing is left out in silence: an entry that can not be read (checksum, decompression, decryption) fails the stream
  with an error that names it, after one more try over a fresh connection.
- A chunked message comes when its last chunk does, with that chunk's id. If the stream starts, or had to start again,
  behind its first chunk, the stream looks back for it; what came before the start is not handed out again.
- It holds about ``window_bytes``: permits follow from the size of the messages seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final, Generic, Protocol, TypeVar

from geminga.client._api.errors import AlreadyClosed, OperationNotSupported, PulsarException, ReadError
from geminga.client._api.lifetime import Lifetime
from geminga.client._api.message_id import MessageId
from geminga.client._consuming import requests
from geminga.client._consuming.attachment import Attachment
from geminga.client._transport.cluster import Cluster
from geminga.client._transport.connection import ClientConnection
from geminga.client._transport.handlers import ServiceUrl
from geminga.client._transport.link import Link
from geminga.client.consumer_rules.entry_window import EntryWindow
from geminga.model import TopicName
from geminga.runtime import again
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.consumer_codec import encode_ack, encode_flow
from geminga.wire.pulsar.entry_head import HEADS_PROPERTY, HEADS_WANTED
from geminga.wire.pulsar.frame import Frame
from geminga.wire.pulsar.numbers import LEDGERS_TOLD_MAX

_Type = pb.BaseCommand
_UINT64: Final = (1 << 64) - 1
_TOKEN_BYTES: Final = 5

EntryKey = tuple[int, int]

#: The topic's, wherever it is.
_BEGINNING: Final = (-1, -1)
#: How long :meth:`EntryStream.take` waits for more of what comes.
GATHER_MS: Final = 20
#: Bytes that a stream holds, prefetched and on their way, as a rule.
WINDOW_BYTES_DEFAULT: Final = 16 * 1024 * 1024


class Entry(Protocol):
    """What a stream needs of its entries."""

    @property
    def ledger_id(self) -> int:
        """The ledger."""
        ...

    @property
    def entry_id(self) -> int:
        """The entry in the ledger."""
        ...

    @property
    def batch_size(self) -> int:
        """Messages of a batch; 0: it is none."""
        ...

    @property
    def size_bytes(self) -> int:
        """Bytes that it holds while it waits."""
        ...


E = TypeVar("E", bound=Entry)
E_co = TypeVar("E_co", bound=Entry, covariant=True)


class StreamSource(Protocol[E_co]):
    """Makes entries of the frames of one consumer; told to start over when everything comes again."""

    def read(self, frames: Sequence[Frame]) -> Iterable[E_co]:
        """Entries of the frames; raises ProtocolError."""
        ...

    def connected(self, message_bytes_max: int) -> None:
        """A fresh start on a connection that takes messages of so many bytes."""
        ...

    def close(self) -> None:
        """Nothing is read any more: who is told of what is wrong is forgotten."""
        ...


class EntryStream(Generic[E]):
    """See the module. Made by :meth:`Client.entry_stream`; runs on the client's loop."""

    def __init__(
        self,
        cluster: Cluster,
        lifetime: Lifetime,
        topic: TopicName,
        start: tuple[int, int],
        *,
        window: EntryWindow,
        end: tuple[int, int] | None = None,
        name: str = "reader",
        is_read_compacted: bool = False,
        wants_heads: bool = False,
    ) -> None:
        """``start``: (ledger id, entry id) of the first entry that may come; (-1, -1): the topic's first.

        ``end``: entries from there on are of no use, and are not asked for as far as one can tell; some still come.
        ``wants_heads``: heads will do, where the broker knows them (docs/formats/entry-heads.md).
        """
        self._end = end
        self._cluster = cluster
        self._lifetime = lifetime
        self.topic = topic
        self.window = window
        self._attachment = Attachment(cluster, self, str(topic))
        self.consumer_id = self._attachment.consumer_id
        self._name = name
        self._is_read_compacted = is_read_compacted
        self._wants_heads = wants_heads
        #: Of the blocks that frames are views of; 0: everything is copied.
        self._block_bytes = 0
        #: What comes over the present connection is heads of entries.
        self.are_heads = False
        #: The first entry that was not taken.
        self._next = start
        #: Of the pool: which cluster the position is of.
        self._moves = cluster.pool.moves
        #: Where the broker is asked to start, if not there: further back, for the beginning of a chunked message.
        self._start_before: EntryKey | None = None
        #: Where the present subscription began.
        self.started_at: EntryKey = start
        self._source: StreamSource[E] | None = None
        self._queue: list[E] = []
        self._queued_bytes = 0
        #: Whoever waits is woken for so many; 0: for any.
        self._bytes_wanted = 0
        self._waiter: asyncio.Future[None] | None = None
        self._error: PulsarException | None = None
        self._is_closed = False
        #: Entries that came first and last since the present subscription began, also those not handed out (chunks);
        #: None while there is no subscription.
        self.first_seen: EntryKey | None = None
        self.last_seen: EntryKey | None = None
        #: The topic was terminated and everything was delivered.
        self.has_ended = False
        #: How often it was subscribed.
        self.attached_count = 0
        self._link = Link(
            cluster,
            str(topic),
            "entry stream",
            attach=self._attach,
            on_failed=self.fail,
        )

    def borrow(self, block_bytes: int) -> None:
        """Before it is opened: large frames are to come as views of blocks of about so many bytes, not as copies."""
        self._block_bytes = block_bytes

    async def open(self, source: StreamSource[E]) -> None:
        """Subscribe for the first time; raises what went wrong (TopicNotFound, ...)."""
        self._lifetime.check_usable()
        self._source = source
        await self._link.connect()
        try:
            self._lifetime.remember(self)
        except AlreadyClosed:
            await self.close()
            raise

    # ---- taking

    @property
    def next_entry(self) -> EntryKey:
        """(ledger id, entry id) behind the last entry taken, or the start."""
        return self._next

    async def take(self, timeout_ms: int, bytes_min: int = 0) -> list[E]:
        """All entries that are here; waits up to ``timeout_ms`` for the first. Empty: nothing came, or it has ended.

        With fewer than ``bytes_min`` it waits some more, as long as entries below the end may come and no longer than
        :data:`GATHER_MS`. Raises why it can not go on.
        """
        if not self._queue:
            await self._wait(timeout_ms)
        if self._queue and self._queued_bytes < bytes_min and self._error is None and self._entries_left() != 0:
            self._bytes_wanted = bytes_min
            try:
                await self._wait(GATHER_MS)
            finally:
                self._bytes_wanted = 0
        taken, self._queue = self._queue, []
        self._queued_bytes = 0
        if taken:
            last = taken[-1]
            self._next = (last.ledger_id, last.entry_id + 1)
            self._start_before = None
            for entry in taken:
                self.window.taken(entry.batch_size or 1, entry.size_bytes)
            if self._attachment.connection is not None:
                # The broker need not remember what lies behind.
                ids = (((last.ledger_id, last.entry_id), None),)
                self._attachment.connection.write(encode_ack(self.consumer_id, ids, is_cumulative=True))
            self._grant()
        return taken

    async def _wait(self, timeout_ms: int) -> None:
        self._check()
        if self.has_ended or timeout_ms <= 0:
            return
        if self._waiter is None:
            self._waiter = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await asyncio.shield(self._waiter)
        except TimeoutError:
            return
        if not self._queue:
            self._check()

    def has_arrived(self) -> bool:
        """Whether :meth:`take` would give something at once."""
        return bool(self._queue)

    @property
    def is_attached(self) -> bool:
        """Whether it is subscribed now."""
        return self._attachment.connection is not None

    def on_arrival(self) -> asyncio.Future[None]:
        """Done as soon as :meth:`take` has something to give or to raise; not to be cancelled."""
        waiter = self._waiter or asyncio.get_running_loop().create_future()
        if self._queue or self._error is not None:
            waiter.set_result(None)
        else:
            self._waiter = waiter
        return waiter

    def _check(self) -> None:
        if self._error is not None:
            raise again(self._error)
        if self._is_closed:
            raise AlreadyClosed(f"the stream of {self.topic} is closed")

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def fail(self, error: PulsarException) -> None:
        """It can not go on: whoever takes gets the error, once what came before is taken."""
        if self._error is None:
            self._error = error
        self._attachment.fail(error)
        self._wake()

    # ---- asking

    async def last_message_id(self) -> tuple[MessageId, MessageId | None]:
        """The topic's last message (entry id -1: none), and how far this subscription is acknowledged.

        The second, before anything was taken from the topic's beginning, names what lies before the first entry.
        Asks again after a lost connection, until the operation timeout; then raises Timeout. Raises AlreadyClosed and
        the broker's error.
        """
        return await self._cluster.lookup.retry(self._ask_last_message_id, f"last message id of {self.topic}")

    async def _ask_last_message_id(self) -> tuple[MessageId, MessageId | None]:
        self._check()
        found = (await self._attachment.request(requests.get_last_message_id)).getLastMessageIdResponse
        has_mark = found.HasField("consumer_mark_delete_position")
        return (
            MessageId.from_data(found.last_message_id, str(self.topic)),
            MessageId.from_data(found.consumer_mark_delete_position) if has_mark else None,
        )

    async def ledger_lengths(self, ledger_id: int) -> list[tuple[int, int]]:
        """Id and entries of the topic's closed ledgers from ``ledger_id`` on; nothing from a broker that does not tell.

        See docs/formats/ledger-lengths.md. Asks again after a lost connection, until the operation timeout; then
        raises Timeout. Raises AlreadyClosed and the broker's error.
        """

        found: list[tuple[int, int]] = []

        async def ask() -> list[tuple[int, int]]:
            self._check()
            if not (await self._attachment.connected()).features.geminga_ledger_lengths:
                return []
            first = found[-1][0] + 1 if found else ledger_id
            answer = await self._attachment.request(partial(requests.get_ledger_lengths, first))
            return [(one.ledger_id, one.entries) for one in answer.getLastMessageIdResponse.geminga_ledgers]

        while True:
            told = await self._cluster.lookup.retry(ask, f"lengths of ledgers of {self.topic}")
            found += told
            if len(told) < LEDGERS_TOLD_MAX:
                return found

    async def connected(self) -> ClientConnection:
        """The connection, once there is one. Raises Timeout after the operation timeout, and AlreadyClosed."""
        self._check()
        return await self._attachment.connected()

    # ---- connection

    async def _attach(self, connection: ClientConnection) -> None:
        if self._is_closed:
            raise AlreadyClosed(f"the stream of {self.topic} is closed")
        moves = self._cluster.pool.moves
        if moves != self._moves and self._next != _BEGINNING:
            raise self._elsewhere(f"the client of {self.topic} went on with another cluster")
        self._moves = moves
        self.are_heads = self._wants_heads and connection.features.geminga_entry_heads
        if self._block_bytes:
            connection.lend(self.consumer_id, self._block_bytes)
        await self._attachment.subscribe(connection, self._subscribe)
        source = self._source
        if source is None:
            raise AlreadyClosed(f"the stream of {self.topic} is closed")
        self.attached_count += 1
        self._drop_queue()
        source.connected(connection.max_message_size)
        self.window.restart()
        self._grant()

    def _subscribe(self, request_id: int) -> pb.BaseCommand:
        self.started_at = ledger_id, entry_id = self._start_before or self._next
        is_earliest = ledger_id < 0
        # A new one each time: the broker may not have noticed the end of the old one, which stands elsewhere.
        subscription = f"{self._name}-{self._cluster.runtime.rng.token(_TOKEN_BYTES)}"
        request = pb.CommandSubscribe(
            topic=str(self.topic),
            subscription=subscription,
            subType=pb.CommandSubscribe.Exclusive,
            consumer_id=self.consumer_id,
            request_id=request_id,
            consumer_name=subscription,
            durable=False,
            read_compacted=self._is_read_compacted,
            initialPosition=pb.CommandSubscribe.Earliest if is_earliest else pb.CommandSubscribe.Latest,
            force_topic_creation=False,
        )
        if self.are_heads:
            request.metadata.add(key=HEADS_PROPERTY, value=HEADS_WANTED)
        request.start_message_id.ledgerId = ledger_id & _UINT64
        request.start_message_id.entryId = entry_id & _UINT64
        return pb.BaseCommand(type=_Type.SUBSCRIBE, subscribe=request)

    def on_connection_lost(self, error: PulsarException) -> None:
        """The connection is gone."""
        self._detached("")

    def on_closed_by_broker(self, assigned: str | ServiceUrl) -> None:
        """The broker wants the topic looked up again, perhaps in another cluster."""
        if isinstance(assigned, ServiceUrl):
            if self._next != _BEGINNING:
                self._attachment.detach()
                self._drop_queue()
                self.fail(self._elsewhere(f"{self.topic} moved to another cluster ({assigned.plain or assigned.tls})"))
                return
            self._link.moved(assigned)
            assigned = ""
        self._detached(assigned)

    def _elsewhere(self, what: str) -> OperationNotSupported:
        """Positions of here say nothing there: neither what comes next, nor to who keeps them how far it is."""
        ledger_id, entry_id = self._next
        before = f"the last that was taken is {ledger_id}:{entry_id - 1}" if entry_id else f"before {ledger_id}:0"
        return OperationNotSupported(
            f"{what}, where messages have other positions: {before}. Read on there from one of that cluster's, or from "
            "the topic's beginning"
        )

    def _detached(self, assigned_url: str) -> None:
        if self._attachment.detach() is None:
            return
        self._drop_queue()
        self._link.lost(assigned_url)

    def start_before(self, entry: EntryKey) -> None:
        """Subscribe again from ``entry`` on, and hand out only what was not taken: a beginning lies back there."""
        connection = self._attachment.connection
        if connection is None:
            return
        self._start_before = entry
        self._attachment.abandon(connection)
        self._detached("")

    def read_again(self, error: ReadError) -> None:
        """What came over this connection is damaged: try once more over a fresh one."""
        if self._attachment.connection is not None:
            self._attachment.connection.abort(error)

    async def close(self) -> None:
        """Leave the broker; harmless twice."""
        if self._is_closed:
            return
        self._is_closed = True
        self._lifetime.forget(self)
        self._link.close()
        connection = self._attachment.detach()
        self._drop_queue()
        self.fail(AlreadyClosed(f"the stream of {self.topic} is closed"))
        source, self._source = self._source, None
        if source is not None:
            source.close()
        await self._attachment.leave(connection)

    def _drop_queue(self) -> None:
        self._queue.clear()
        self._queued_bytes = 0
        # It comes again: who ends where the last entry came must not end with one that was never taken.
        self.first_seen = self.last_seen = None

    # ---- what the broker says

    def on_messages(self, frames: list[Frame]) -> None:
        """MESSAGE frames of one socket read."""
        if self._attachment.connection is None or self._error is not None or self._source is None:
            return
        for entry in self._source.read(frames):
            self.window.arrived(entry.batch_size or 1, entry.size_bytes)
            if (entry.ledger_id, entry.entry_id) >= self._next:
                self._queue.append(entry)
                self._queued_bytes += entry.size_bytes
            else:  # from before the start; taken already, in a way
                self.window.taken(entry.batch_size or 1, entry.size_bytes)
        if self._attachment.connection is None:  # reading them ended the subscription
            self._drop_queue()
            return
        self._grant()
        if self._queue and (self._queued_bytes >= self._bytes_wanted or self._entries_left() == 0):
            self._wake()

    def seen(self, entry: EntryKey) -> None:
        """An entry came, for what reads the frames to tell."""
        self.last_seen = entry
        if self.first_seen is None:
            self.first_seen = entry

    def _grant(self) -> None:
        permits = self.window.grant(self._entries_left())
        if permits and self._attachment.connection is not None:
            self._attachment.connection.write(encode_flow(self.consumer_id, permits))

    def _entries_left(self) -> int | None:
        """Entries that may still arrive below the end; None: that can not be told."""
        if self._end is None:
            return None
        ledger_id, entry_id = (self.last_seen[0], self.last_seen[1] + 1) if self.last_seen else self._next
        return max(0, self._end[1] - entry_id) if ledger_id == self._end[0] else None

    def on_active_change(self, is_active: bool) -> None:
        """Not on an exclusive subscription."""

    def on_end_of_topic(self) -> None:
        """The topic was terminated and everything was delivered."""
        self.has_ended = True
        self._wake()

    def on_ack_response(self, request_id: int, error: PulsarException | None) -> None:
        """Nobody asks for one."""
