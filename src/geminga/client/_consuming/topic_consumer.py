"""``TopicConsumer``: one consumer of one topic or partition on its broker. A :class:`Consumer` has one or many.

It subscribes (again after each loss), turns frames into entries for the consumer's prefetch queue, gives permits back,
and keeps the trackers: acknowledgement grouping, negative acknowledgements, unacknowledged messages, batch ackers.

After a reconnect the broker delivers everything again that was not acknowledged, so what was prefetched is dropped and
the trackers start over; acknowledgements that waited go out first. The batch ackers stay: a message of a batch that
was acknowledged does not come again with its batch. The consumer epoch (Exclusive and Failover) tells messages sent
before a redelivery of everything from those sent after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from geminga.client._consuming import last_message, requests
from geminga.client._consuming.acknowledgement import Acknowledgement
from geminga.client._consuming.attachment import Attachment
from geminga.client._consuming.entries import Discard, EntryReader
from geminga.client._consuming.key_gate import KeyGate
from geminga.client._consuming.options import ConsumerCryptoFailureAction, ConsumerOptions
from geminga.client._consuming.redelivery import Redelivery
from geminga.client._consuming.schema import SchemaGate
from geminga.client._entry_batch import EntryBatch
from geminga.client._errors import AlreadyClosed, PulsarException, ReadError
from geminga.client._message_id import MessageId
from geminga.client._transport.connection import ClientConnection
from geminga.client._transport.link import Link
from geminga.client.core.chunk_assembly import ChunkAssembly
from geminga.client.core.prefetch import FlowControl
from geminga.client.core.start_position import StartPosition
from geminga.client.schema._protocol import MessageDecoder
from geminga.model import TopicName
from geminga.runtime import get_logger, spawn
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.consumer_codec import encode_flow
from geminga.wire.pulsar.frame import Frame

if TYPE_CHECKING:
    from geminga.client._client import Client
    from geminga.client._consuming.consumer import Consumer

_log = get_logger(__name__)

EntryKey = tuple[int, int]

#: A consumer without prefetching asks for messages one by one and never gives permits back.
_NO_PREFETCH: Final = 1 << 62


class TopicConsumer:
    """See the module's docstring. All of it runs on the loop's thread."""

    __slots__ = (
        "_attachment",
        "_damaged",
        "_entries",
        "_gate",
        "_is_asked",
        "_is_closed",
        "_is_seeking",
        "_key_gate",
        "_last_entry",
        "_link",
        "_passed_over",
        "_start",
        "_was_attached",
        "acks",
        "client",
        "consumer_id",
        "decoder",
        "epoch",
        "error",
        "flow",
        "has_ended",
        "is_active",
        "is_found",
        "options",
        "owner",
        "redelivery",
        "start_message_id",
        "topic",
    )

    def __init__(
        self,
        owner: Consumer[Any],
        topic: TopicName,
        *,
        capacity: int,
        decoder: MessageDecoder[object] | None,
        start_message_id: MessageId | None,
    ) -> None:
        client: Client = owner.client
        options = owner.options
        self.owner: Consumer[Any] = owner
        self.client: Client = client
        self.options: ConsumerOptions = options
        self.topic: TopicName = topic
        self.decoder = decoder
        self._attachment = Attachment(client, self, str(topic))
        self.consumer_id: int = self._attachment.consumer_id
        self.flow = FlowControl(capacity)
        if capacity == 0:
            self.flow.threshold = _NO_PREFETCH
        #: -1 on Shared and Key_Shared, which have none.
        self.epoch = -1 if options.shares_messages else 0
        #: On Failover: whether the broker made this consumer the active one; None: it did not say.
        self.is_active: bool | None = None
        #: A pattern found the topic.
        self.is_found = owner.discovery is not None
        #: The topic was terminated and everything was delivered.
        self.has_ended = False
        #: Why it can not go on; None while it can.
        self.error: PulsarException | None = None
        #: Where a subscription that is not durable starts again.
        self.start_message_id = start_message_id
        #: The entry the application received a message of last.
        self._last_entry: EntryBatch | None = None
        self._start: StartPosition | None = None
        self._start_at(start_message_id)
        self._entries = EntryReader(
            str(topic),
            ChunkAssembly(options.max_pending_chunked_message, options.expire_time_of_incomplete_chunked_message_ms),
            decryptor=owner.decryptor,
            crypto_failure_action=options.crypto_failure_action,
            now_ms=self._now_ms,
            on_discard=self._on_discard,
            on_chunk=self._on_chunk,
        )
        self._entries.epoch = self.epoch
        self._key_gate = None if owner.decryptor is None else KeyGate(self, self._entries, owner.decryptor)
        self.redelivery: Redelivery = Redelivery(self)
        self.acks = Acknowledgement(self)
        #: The entry that could not be read last.
        self._damaged: EntryKey | None = None
        #: The last entry that came and gave no message, since everything came again last.
        self._passed_over: EntryKey | None = None
        self._gate = None if decoder is None else SchemaGate(self, decoder)
        self._was_attached = False
        self._is_closed = False
        self._is_seeking = False
        #: Without prefetching: a message was asked for.
        self._is_asked = False
        self._link = Link(
            client.runtime,
            client.pool,
            client.lookup,
            client.options,
            str(topic),
            attach=self._attach,
            on_failed=self._on_failed,
        )

    # ---- connection

    @property
    def is_connected(self) -> bool:
        """Whether it is subscribed now."""
        return self._attachment.connection is not None

    @property
    def may_create(self) -> bool:
        """Whether subscribing may create the topic. What a pattern found exists, or was deleted and is to stay so;
        of a partitioned topic a partition may be without its log until somebody comes."""
        return not self.is_found or (self.topic.is_partition and not self._was_attached)

    async def open(self) -> None:
        """Subscribe for the first time; raises what went wrong."""
        await self._link.connect()

    async def _attach(self, connection: ClientConnection) -> None:
        if self._is_closed:
            raise AlreadyClosed(f"the consumer of {self.topic} is closed")
        if self.epoch >= 0 and self._was_attached:
            self._set_epoch(self.epoch + 1)
        start = self._restart_message_id()
        await self._attachment.subscribe(
            connection, lambda request_id: requests.subscribe(self, request_id, start, connection.protocol_version)
        )
        self._attached(connection, start)

    def _attached(self, connection: ClientConnection, start: MessageId | None) -> None:
        self._was_attached = True
        self._entries.message_bytes_max = connection.max_message_size
        self._is_seeking = False
        self.start_over()
        if not self.options.is_durable:
            self._start_at(start)
        self.acks.sender.connected(connection)
        self._is_asked = False
        permits = self.flow.restart()
        if permits:
            connection.write(encode_flow(self.consumer_id, permits))
        self.owner.on_subscribed(self)

    def start_over(self) -> None:
        """Everything unacknowledged comes again: what was prefetched and tracked is forgotten."""
        self.owner.drop_prefetched(lambda entry: entry.source is self)
        if self._gate is not None:
            self._gate.clear()
        if self._key_gate is not None:
            self._key_gate.clear()
        self.redelivery.clear()
        self._entries.chunks.clear()
        self._passed_over = None
        self.acks.start_over()

    def _restart_message_id(self) -> MessageId | None:
        """Where a subscription that is not durable goes on: behind the last message that was received."""
        if self.options.is_durable:
            return None
        last = self.last_received()
        return last if last is not None else self.start_message_id

    def last_received(self) -> MessageId | None:
        """The last message the application received; None: none since the subscription or the last seek."""
        entry = self._last_entry
        if entry is None:
            return None
        return entry.message_id(self.owner.last_index(entry))

    def _start_at(self, message_id: MessageId | None, *, is_inclusive: bool | None = None) -> None:
        if message_id is None or message_id in (MessageId.earliest, MessageId.latest):
            self._start = None
            return
        if is_inclusive is None:
            is_inclusive = self.options.start_message_id_inclusive and self._last_entry is None
        first = message_id.first_chunk_message_id() if is_inclusive else None
        at = first or message_id
        self._start = StartPosition(at.ledger_id(), at.entry_id(), at.batch_index(), is_inclusive)

    def on_connection_lost(self, error: PulsarException) -> None:
        """The connection is gone."""
        self._detached("")

    def on_closed_by_broker(self, assigned_url: str) -> None:
        """The broker wants the topic looked up again."""
        # Somebody may have moved the subscription back: what was acknowledged of a batch may be wanted again.
        self.acks.forget_batches()
        self._detached(assigned_url)

    def _detached(self, assigned_url: str) -> None:
        if self._attachment.detach() is None:
            return
        self.acks.sender.disconnected()
        self._link.lost(assigned_url)

    def _on_failed(self, error: PulsarException) -> None:
        _log.warning("consumer of %s: %s", self.topic, error)
        self.error = error
        self.acks.sender.close(error)
        self._attachment.fail(error)
        self.owner.on_topic_failed(self, error)

    async def connected(self) -> ClientConnection:
        """The connection, once there is one; Timeout after the operation timeout."""
        if self._attachment.connection is None:
            if self.error is not None:
                raise self.error
            if self._is_closed:
                raise AlreadyClosed(f"the consumer of {self.topic} is closed")
        return await self._attachment.connected()

    async def request(self, make: requests.Make) -> pb.BaseCommand:
        """Ask the broker; raises its error, NotConnected or Timeout."""
        await self.connected()
        return await self._attachment.request(make)

    async def close(self) -> None:
        """Send what is acknowledged, leave the broker; harmless twice. A broker that does not answer is waited for at
        most for the operation timeout, once for acknowledgements and once for the end."""
        if self._is_closed:
            return
        error = AlreadyClosed(f"the consumer of {self.topic} is closed")
        self.acks.sender.flush()
        try:
            async with asyncio.timeout(self.client.options.operation_timeout_ms / 1000):
                await self.acks.sender.settled()
        except TimeoutError:
            _log.info("closing the consumer of %s: acknowledgements have no answer", self.topic)
        except asyncio.CancelledError:
            connection = self._end(error)
            if connection is not None:
                self._attachment.abandon(connection)
            raise
        await self._attachment.leave(self._end(error))

    async def unsubscribe(self, *, is_forced: bool) -> None:
        """Delete the subscription on the broker; raises its error."""
        self.acks.sender.flush()
        await self.request(lambda consumer, request: requests.unsubscribe(consumer, request, is_forced=is_forced))
        connection = self._end(AlreadyClosed(f"{self.topic} was unsubscribed"))
        if connection is not None:
            connection.unregister_consumer(self.consumer_id)

    def _end(self, error: PulsarException) -> ClientConnection | None:
        """Nothing comes any more, and whoever waits gets ``error``; the connection it had."""
        self._is_closed = True
        self._link.close()
        connection = self._attachment.detach()
        self.start_over()
        self.acks.forget_batches()
        self.acks.sender.close(error)
        if self._gate is not None:
            self._gate.close()
        if self._key_gate is not None:
            self._key_gate.close()
        self._attachment.fail(error)
        return connection

    # ---- messages in

    def on_messages(self, frames: list[Frame]) -> None:
        """MESSAGE frames of one socket read."""
        if self._is_seeking or self._attachment.connection is None:
            return  # they come again, or are not wanted any more
        arrived: list[EntryBatch] = []
        gate = self._key_gate
        read = self._entries.read(frames) if gate is None else gate.read(frames)
        is_holding = gate is not None and gate.is_holding
        if not is_holding:
            self._is_asked = False
        self.owner.counters.entries_received += len(read)
        is_simple = self._start is None and self.owner.dead_letters is None
        is_pending = self.acks.sender.tracker.is_pending
        for entry in read:
            if is_simple and not entry.is_batch and not is_pending(entry.key):
                entry.source = self  # as below: nothing more is asked of most
                arrived.append(entry)
            elif self._accept(entry):
                arrived.append(entry)
        if arrived and (self._gate is None or not self._gate.holds(arrived)):
            self.owner.on_entries(arrived)
        if len(arrived) < len(frames) and not is_holding:
            self.owner.on_passed_over()

    def read_again(self, error: ReadError) -> None:
        """What came over this connection can not be read: everything comes again over a fresh one."""
        if self._attachment.connection is not None:
            self._attachment.connection.abort(error)

    def has_passed_over(self, message_id: MessageId) -> bool:
        """Whether everything up to its entry came, and the last of it gave no message: it was discarded, or waits for
        its other chunks. On Shared and Key_Shared entries come in any order, so that nothing can be said."""
        passed = self._passed_over
        if passed is None or self.options.shares_messages or (self._gate is not None and self._gate.is_holding):
            return False
        return passed >= (message_id.ledger_id(), message_id.entry_id())

    def _accept(self, entry: EntryBatch) -> bool:
        """Whether anything of the entry is to be handed out."""
        if self._is_for_application(entry):
            return True
        self._passed_over = entry.key
        return False

    def _is_for_application(self, entry: EntryBatch) -> bool:
        entry.source = self
        key = entry.key
        if self.acks.sender.tracker.is_pending(key):
            self.give_back(max(1, entry.batch_size))
            return False
        if entry.is_batch:
            self.acks.adopt(entry)
        if self._start is not None:
            self._drop_before_start(entry, self._start)
        kept = len(entry.order)
        if kept < entry.batch_size:
            self.give_back(entry.batch_size - kept)
        elif not kept:
            self.give_back(1)
        if not kept:
            if entry.acker is not None and entry.acker.is_complete:
                self.acks.acknowledge_entry(key)  # nothing of it will ever be acknowledged by the application
            return False
        dead_letters = self.owner.dead_letters
        if dead_letters is not None and not self.redelivery.may_deliver(entry):
            self.give_back(kept)
            return False
        return True

    def _drop_before_start(self, entry: EntryBatch, start: StartPosition) -> None:
        if self.options.is_durable and entry.key != (start.ledger_id, start.entry_id):
            return  # another consumer of the subscription may have moved it back
        first = start.first_index(entry.ledger_id, entry.entry_id, is_batch=entry.is_batch)
        if first == 0:
            return
        order = entry.order
        entry.order = [] if first is None else [index for index in order if index >= first]
        if not self.options.is_durable:
            return
        # Skipped on purpose: it must not stay in the backlog.
        if entry.acker is None:
            self.acks.sender.add(entry.key)
            return
        for index in order[: len(order) - len(entry.order)]:
            entry.acker.acknowledge(index)

    def _on_discard(self, key: EntryKey, why: Discard, permits: int) -> None:
        self.give_back(max(1, permits))
        if why is Discard.OLD_EPOCH:
            return
        if why is Discard.CHUNK:
            self._passed_over = key
            return
        self.owner.counters.entries_discarded += 1
        if why is Discard.CHECKSUM and key != self._damaged:
            # Damaged on the way, perhaps: a fresh connection brings it again. Only what stays damaged is discarded.
            self._damaged = key
            self.read_again(ReadError(f"{self.topic}: entry {key[0]}:{key[1]} came damaged"))
            return
        self._passed_over = key
        if why is Discard.DECRYPTION:
            if self.options.crypto_failure_action is ConsumerCryptoFailureAction.DISCARD:
                self.acks.sender.add(key)
            else:
                _log.warning("%s: entry %d:%d can not be decrypted", self.topic, *key)
                self.redelivery.received(key, 0)  # it may time out, and comes again after a reconnect
            return
        _log.warning("%s: entry %d:%d is discarded: %s", self.topic, *key, why.name.lower())
        if self._attachment.connection is not None:
            self._attachment.connection.write(requests.ack_damaged(self.consumer_id, key, why))

    def _on_chunk(
        self, key: EntryKey, whole: Sequence[EntryKey], gave_way: Sequence[EntryKey], publish_time_ms: int
    ) -> None:
        if whole:
            self.acks.chunked(key, whole)
        if not gave_way:
            return
        self.owner.counters.chunked_discarded += 1
        expire_ms = self.options.expire_time_of_incomplete_chunked_message_ms
        is_old = 0 < expire_ms < self.client.runtime.clock.wall_ms() - publish_time_ms
        for entry in gave_way:
            if is_old or self.options.auto_ack_oldest_chunked_message_on_queue_full:
                self.acks.sender.add(entry)
            else:
                self.redelivery.negative_acks(entry, 0)

    # ---- permits

    def give_back(self, count: int) -> None:
        """Messages were received or dropped: their permits go back, by half of the queue at a time."""
        permits = self.flow.received(count)
        if permits:
            self.send_permits(permits)

    def send_permits(self, permits: int) -> None:
        """FLOW; without a connection there is a fresh start later."""
        if permits and self._attachment.connection is not None:
            self._attachment.connection.write(encode_flow(self.consumer_id, permits))

    def ask_for_one(self) -> None:
        """Without prefetching: a message is wanted now."""
        if not self._is_asked and self._attachment.connection is not None and not self.flow.is_paused:
            self._is_asked = True
            self.send_permits(1)

    def pause(self) -> None:
        """No more permits; what was asked for still comes."""
        self.flow.is_paused = True

    def resume(self) -> None:
        """Permits again."""
        self.flow.is_paused = False
        if self.flow.capacity:
            self.send_permits(self.flow.take())

    # ---- received

    def first_received(self, entry: EntryBatch) -> None:
        """The application received the first message of an entry."""
        self._last_entry = entry
        if entry.is_batch:
            entry.expect_messages()
        if self.redelivery.has_timeout:
            self.redelivery.received(entry.key, entry.redelivery_count)

    def on_ack_response(self, request_id: int, error: PulsarException | None) -> None:
        """ACK_RESPONSE."""
        self.acks.sender.on_response(request_id, error)

    # ---- redelivery

    def redeliver(self, keys: Iterable[EntryKey]) -> None:
        """Ask for entries again; what was prefetched of them is dropped."""
        wanted = sorted({piece for key in keys for piece in self.acks.entries_of(key)})
        if not wanted:
            return
        gone = frozenset(wanted)
        self.owner.drop_prefetched(lambda entry: entry.source is self and entry.key in gone)
        self.owner.counters.redelivery_requests += len(wanted)
        # What was acknowledged of their batches goes ahead, or another consumer gets it again.
        self.acks.sender.flush()
        if self._attachment.connection is not None:  # else: everything comes again anyway
            for frame in requests.redeliver(self.consumer_id, wanted, self.epoch):
                self._attachment.connection.write(frame)

    def redeliver_all(self) -> None:
        """Ask for everything that is not acknowledged."""
        self.acks.sender.flush()
        self.owner.counters.redelivery_requests += 1
        connection = self._attachment.connection
        # Without a connection everything comes again anyway, under the epoch SUBSCRIBE tells, or told just now: with
        # a higher one here everything that comes would count as sent before.
        if connection is not None and self.epoch >= 0:
            self._set_epoch(self.epoch + 1)
        self.start_over()
        if connection is not None:
            for frame in requests.redeliver(self.consumer_id, (), self.epoch):
                connection.write(frame)

    def _set_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        self._entries.epoch = epoch

    # ---- moving

    async def seek(self, message_id: MessageId | None, timestamp_ms: int = 0) -> None:
        """Move the subscription to a message, or to the first one published at a time; raises the broker's error."""
        await self.connected()
        self.acks.sender.flush()
        self._is_seeking = True
        before = (self._start, self.start_message_id, self._last_entry)
        try:
            await self._seek(message_id, timestamp_ms)
        except BaseException:
            self._start, self.start_message_id, self._last_entry = before
            self._is_seeking = False
            if self._attachment.connection is not None:
                self.redeliver_all()  # what came meanwhile was dropped
            raise

    async def _seek(self, message_id: MessageId | None, timestamp_ms: int) -> None:
        self.start_over()
        self.acks.forget_batches()
        self._last_entry = None
        self.start_message_id = message_id
        self._start_at(message_id, is_inclusive=self.options.start_message_id_inclusive)
        await self.request(lambda consumer, request: requests.seek(consumer, request, message_id, timestamp_ms))
        self.start_over()
        if self._attachment.connection is not None:
            self._is_seeking = False
        else:
            self._link.hurry()  # the broker closed it for the seek alone

    async def last_message_ids(self) -> tuple[MessageId, MessageId | None]:
        """See :func:`last_message.last_message_ids`."""
        return await last_message.last_message_ids(self)

    # ---- what else the broker says

    def on_active_change(self, is_active: bool) -> None:
        """On Failover: this consumer became the active one, or no longer is."""
        self.is_active = is_active

    def on_end_of_topic(self) -> None:
        """The topic was terminated and everything was delivered."""
        self.has_ended = True
        self.owner.on_end_of_topic(self)

    def _now_ms(self) -> float:
        return self.client.runtime.clock.monotonic() * 1000


async def close_all(consumers: Sequence[TopicConsumer]) -> None:
    """Close them side by side: each may have to wait for its broker. Cancelled, all of them are closed all the same."""
    if len(consumers) == 1:
        await consumers[0].close()
        return
    tasks = [spawn(consumer.close(), name=f"close consumer of {consumer.topic}") for consumer in consumers]
    try:
        for task in tasks:
            await asyncio.wait([task])
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        raise
