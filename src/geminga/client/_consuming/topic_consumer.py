"""``TopicConsumer``: one consumer of one topic or partition on its broker. A :class:`Consumer` has one or many.

It subscribes (again after each loss), moves the subscription, and joins the parts that do the rest: what comes
(:mod:`.intake`) and how much of it (:mod:`.permits`), what is acknowledged (:mod:`.acknowledgment`), what comes again
(:mod:`.redelivery`).

After a reconnect the broker delivers everything again that was not acknowledged, so what was prefetched is dropped and
the trackers start over; acknowledgments that waited go out first. The batch ackers stay: a message of a batch that
was acknowledged does not come again with its batch. The consumer epoch (Exclusive and Failover) tells messages sent
before a redelivery of everything from those sent after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from enum import Enum
from functools import partial

from geminga.client._api.errors import (
    AlreadyClosed,
    BrokerMetadataError,
    ConsumerNotFound,
    NotConnected,
    PulsarException,
)
from geminga.client._api.message_id import MessageId
from geminga.client._consuming import last_message, requests
from geminga.client._consuming.acknowledgment import Acknowledgment
from geminga.client._consuming.attachment import Attachment
from geminga.client._consuming.intake import Intake
from geminga.client._consuming.last_received import LastReceived
from geminga.client._consuming.permits import Permits
from geminga.client._consuming.redelivery import Redelivery
from geminga.client._consuming.subscription import Subscription
from geminga.client._messages.acks_in_transactions import GivenBack
from geminga.client._messages.entry_batch import EntryBatch
from geminga.client._messages.ports import Delivery
from geminga.client._transport.cluster import Cluster
from geminga.client._transport.connection import ClientConnection
from geminga.client._transport.handlers import ServiceUrl
from geminga.client._transport.link import Link
from geminga.client.consumer_rules.returned import Returned
from geminga.client.schema._protocol import MessageDecoder
from geminga.model import TopicName
from geminga.runtime import get_logger
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.frame import Frame

_log = get_logger(__name__)

EntryKey = tuple[int, int]


class Phase(Enum):
    """How far a consumer of one topic is; its connection comes and goes all the while."""

    #: It was not subscribed yet.
    NEW = 0
    SUBSCRIBED = 1
    #: The subscription is being moved: what comes is not wanted any more, or comes again.
    SEEKING = 2
    CLOSED = 3


class TopicConsumer:
    """See the module's docstring. All of it runs on the loop's thread."""

    __slots__ = (
        "_attachment",
        "_delivery",
        "_intake",
        "_link",
        "_moves",
        "_options",
        "_phase",
        "_received_before",
        "_redelivery",
        "_seeking",
        "_subscription",
        "acks",
        "cluster",
        "consumer_id",
        "decoder",
        "epoch",
        "error",
        "flow",
        "is_active",
        "is_at_end",
        "is_found",
        "last_received",
        "permits",
        "topic",
    )

    def __init__(
        self,
        cluster: Cluster,
        subscription: Subscription,
        delivery: Delivery,
        topic: TopicName,
        *,
        capacity: int,
        decoder: MessageDecoder[object] | None,
        start_message_id: MessageId | None,
        is_found: bool,
    ) -> None:
        """``capacity``: messages that are prefetched; ``is_found``: a pattern found the topic."""
        options = subscription.options
        self.cluster = cluster
        self.topic = topic
        self.decoder = decoder
        self._subscription = subscription
        self._options = options
        self._delivery = delivery
        self._attachment = Attachment(cluster, self, str(topic))
        self.consumer_id: int = self._attachment.consumer_id
        self.permits = Permits(self._attachment, capacity, options.receiver_queue_bytes, cluster.prefetch)
        self.flow = self.permits.flow
        #: -1 on Shared and Key_Shared, which have none.
        self.epoch = -1 if options.shares_messages else 0
        #: On Failover: whether the broker made this consumer the active one; None: it did not say.
        self.is_active: bool | None = None
        #: The topic was terminated, and all of it was delivered here once.
        self.is_at_end = False
        self.is_found = is_found
        #: Why it can not go on; None while it can.
        self.error: PulsarException | None = None
        #: What was received last, and where it starts again.
        self.last_received = LastReceived(options, delivery, start_message_id)
        #: What was received last when everything began to come again.
        self._received_before: EntryBatch | None = None
        self._redelivery = Redelivery(subscription, topic, self, delivery.on_kept)
        self.acks = Acknowledgment(
            subscription,
            self._redelivery,
            consumer_id=self.consumer_id,
            topic=str(topic),
            is_persistent=topic.is_persistent,
            timeout_ms=cluster.options.operation_timeout_ms,
        )
        self._intake = Intake(cluster, subscription, delivery, self, self._attachment, self.acks, self._redelivery)
        self._intake.set_epoch(self.epoch)
        self._intake.start = self.last_received.start_at(start_message_id)
        self._phase = Phase.NEW
        #: Held by who moves it: of two at a time, one that gives up would take back what the other did.
        self._seeking = asyncio.Lock()
        #: Of the pool: which cluster the places are of.
        self._moves = cluster.pool.moves
        self._link = Link(
            cluster, str(topic), f"consumer ({subscription.name})", attach=self._attach, on_failed=self._on_failed
        )

    # ---- connection

    @property
    def is_connected(self) -> bool:
        """Whether it is subscribed now."""
        return self._attachment.connection is not None

    async def open(self) -> None:
        """Subscribe for the first time; raises what went wrong."""
        await self._link.connect()

    async def _attach(self, connection: ClientConnection) -> None:
        if self._phase is Phase.CLOSED:
            raise AlreadyClosed(f"the consumer of {self.topic} is closed")
        if self.epoch >= 0 and self._phase is not Phase.NEW:
            self._set_epoch(self.epoch + 1)
        if self._moves != self.cluster.pool.moves:
            self._moves = self.cluster.pool.moves
            self.last_received.left_cluster()
        await self._subscribe_at(connection, self.last_received.restart_message_id())
        if self.last_received.wants_newest and self.topic.is_persistent:
            await self._begin_at_newest(connection)
        if self.last_received.lacks_place and self.topic.is_persistent:
            await self._find_place()
            if self._attachment.connection is not connection:
                raise NotConnected(f"{self.topic}: the broker's consumer was lost as soon as it was made")
        self._attached(connection)

    async def _begin_at_newest(self, connection: ClientConnection) -> None:
        # Before anything is asked for: nothing that came from the wrong place has to be taken back.
        answer = (await self._attachment.request(requests.get_last_message_id)).getLastMessageIdResponse
        newest = MessageId.from_data(answer.last_message_id, str(self.topic))
        if newest.entry_id() < 0:
            return  # there is none: what is published from now on comes
        await self._attachment.leave(self._attachment.detach())
        self.last_received.start_message_id = newest
        await self._subscribe_at(connection, newest)

    async def _find_place(self) -> None:
        # Before anything is asked for, and for the next time: then it would be another place.
        try:
            answer = (await self._attachment.request(requests.get_last_message_id)).getLastMessageIdResponse
        except PulsarException as error:
            if self._attachment.connection is None:
                raise
            _log.info("%s: the place of %s is not known: %s", self.topic, self._subscription.name, error)
            return
        if answer.HasField("consumer_mark_delete_position"):
            self.last_received.stands_at(answer.consumer_mark_delete_position)

    async def _subscribe_at(self, connection: ClientConnection, start: MessageId | None) -> None:
        await self._attachment.subscribe(
            connection, lambda request_id: self._subscribe(request_id, start, connection.protocol_version)
        )

    def _subscribe(self, request_id: int, start: MessageId | None, protocol_version: int) -> pb.BaseCommand:
        return requests.subscribe(
            self._subscription,
            str(self.topic),
            consumer_id=self.consumer_id,
            request_id=request_id,
            start=start,
            epoch=self.epoch,
            schema=None if self.decoder is None else self.decoder.info,
            # What a pattern found exists, or was deleted and is to stay so; of a partitioned topic a partition may be
            # without its log until somebody comes.
            may_create=not self.is_found or (self.topic.is_partition and self._phase is Phase.NEW),
            protocol_version=protocol_version,
        )

    def _attached(self, connection: ClientConnection) -> None:
        if self._phase is Phase.SEEKING:
            self._forget_acks()
        if self._phase is not Phase.CLOSED:
            self._phase = Phase.SUBSCRIBED
        self.start_over()
        self._intake.connected(connection.max_message_size)
        if not self._options.is_durable:
            # Not what the broker was asked for: messages were received from the queue while it answered.
            self._intake.start = self.last_received.start_at(self.last_received.restart_message_id())
        self.acks.connected(connection)
        self.permits.start_over()
        self._delivery.on_subscribed(self.topic)

    def start_over(self) -> None:
        """Everything unacknowledged comes again: what was prefetched and tracked is forgotten."""
        self._delivery.drop_prefetched(lambda entry: entry.source is self)
        self._intake.start_over()
        self._received_before = self.last_received.last_entry
        self._redelivery.clear()
        self.acks.start_over()

    def on_connection_lost(self, error: PulsarException) -> None:
        """The connection is gone."""
        self._detached("")

    def on_closed_by_broker(self, assigned: str | ServiceUrl) -> None:
        """The broker wants the topic looked up again."""
        # Somebody may have moved the subscription back: what was acknowledged of a batch may be wanted again.
        self.acks.forget_batches()
        if isinstance(assigned, str):
            self._detached(assigned)
            return
        # Another cluster, whose ids are others: all that is there is new, but to who was never here and wants what is
        # published from now on.
        self._link.moved(assigned)
        was_here = self._phase is not Phase.NEW or self.is_connected
        self._detached("")
        self.start_over()
        if was_here or self.last_received.start_message_id != MessageId.latest:
            self.last_received.move(MessageId.earliest)

    def _detached(self, assigned_url: str) -> None:
        if self._attachment.detach() is None:
            return
        self.acks.disconnected()
        self._link.lost(assigned_url)

    def _on_failed(self, error: PulsarException) -> None:
        _log.warning("consumer of %s: %s", self.topic, error)
        self.error = error
        self.acks.close(error)
        self._attachment.fail(error)
        self._delivery.on_topic_failed(self.topic, error, is_found=self.is_found)

    async def request(self, make: requests.Make) -> pb.BaseCommand:
        """Ask the broker; raises its error, NotConnected or Timeout."""
        return await self._attachment.request(make)

    async def close(self) -> None:
        """Send what is acknowledged, leave the broker; harmless twice. A broker that does not answer is waited for at
        most for the operation timeout, once for acknowledgments and once for the end."""
        if self._phase is Phase.CLOSED:
            return
        error = AlreadyClosed(f"the consumer of {self.topic} is closed")
        self.acks.sender.flush()
        try:
            async with asyncio.timeout(self.cluster.timeout_s):
                await self.acks.sender.settled()
        except TimeoutError:
            _log.info("closing the consumer of %s: acknowledgments have no answer", self.topic)
        except asyncio.CancelledError:
            connection = self._end(error)
            if connection is not None:
                self._attachment.abandon(connection)
            raise
        await self._attachment.leave(self._end(error))

    async def unsubscribe(self, *, is_forced: bool) -> None:
        """Delete the subscription on the broker, unless that is done; raises its error."""
        if self._phase is Phase.CLOSED:
            return  # of several topics another one failed
        self.acks.sender.flush()
        await self.request(lambda consumer, request: requests.unsubscribe(consumer, request, is_forced=is_forced))
        connection = self._end(AlreadyClosed(f"{self.topic} was unsubscribed"))
        if connection is not None:
            connection.listeners.unregister_consumer(self.consumer_id)

    def _end(self, error: PulsarException) -> ClientConnection | None:
        """Nothing comes any more, and whoever waits gets ``error``; the connection it had."""
        self._phase = Phase.CLOSED
        self.permits.end()
        self._link.close()
        connection = self._attachment.detach()
        self.start_over()
        self.acks.forget_batches()
        self.acks.close(error)
        self._intake.close()
        self._attachment.fail(error)
        # What came knows this consumer: who ended waits for no collector.
        self._redelivery.close()
        self._received_before = None
        self.last_received.close()
        return connection

    # ---- messages in

    def on_messages(self, frames: list[Frame]) -> None:
        """MESSAGE frames of one socket read."""
        if self._attachment.connection is None:
            return  # they come again, or are not wanted any more
        if self._phase is Phase.SEEKING:
            self._intake.pass_over(frames)
            return
        if self.last_received.lacks_place:
            self.last_received.came(frames, self.epoch)
        if self._intake.take(frames):
            self.permits.is_asked = False

    def has_passed_over(self, message_id: MessageId) -> bool:
        """See :meth:`Intake.has_passed_over`."""
        return self._intake.has_passed_over(message_id)

    # ---- received

    def first_received(self, entry: EntryBatch) -> None:
        """The application received the first message of an entry."""
        self.last_received.last_entry = entry
        if self._intake.returned is not None:
            self._intake.returned.received(entry.key)
        if entry.is_batch:
            entry.expect_messages()
        if self._redelivery.has_timeout:
            self._redelivery.received(entry.key, entry.redelivery_count)

    def cut_off(self, entry: EntryBatch, index: int) -> None:
        """See :meth:`EntrySource.cut_off`."""
        self.last_received.cut_off = (entry, index)
        if self._intake.returned is not None:
            self._intake.returned.cut_off(entry.key, [each for each in entry.order if each > index])

    def on_ack_response(self, request_id: int, error: PulsarException | None) -> None:
        """ACK_RESPONSE."""
        self.acks.on_response(request_id, error)

    # ---- redelivery

    def redeliver(self, keys: Iterable[EntryKey]) -> None:
        """Ask for entries again; what was prefetched of them is dropped."""
        wanted = sorted({piece for key in keys for piece in self.acks.entries_of(key)})
        if not wanted:
            return
        self.drop_entries(frozenset(wanted))
        self._subscription.counters.redelivery_requests += len(wanted)
        # What was acknowledged of their batches goes ahead, or another consumer gets it again.
        self.acks.sender.flush()
        for frame in requests.redeliver(self.consumer_id, wanted, self.epoch):
            self._attachment.write(frame)  # without a connection everything comes again anyway

    def redeliver_all(self) -> None:
        """Ask for everything that is not acknowledged."""
        self.acks.sender.flush()
        self._subscription.counters.redelivery_requests += 1
        connection = self._attachment.connection
        # Without a connection everything comes again anyway, under the epoch SUBSCRIBE tells, or told just now: with
        # a higher one here everything that comes would count as sent before.
        if connection is not None and self.epoch >= 0:
            self._set_epoch(self.epoch + 1)
        self._ask_for_all(connection)
        self.start_over()
        if connection is not None:
            self._intake.give_back()
            self._delivery.on_subscribed(self.topic)

    def _ask_for_all(self, connection: ClientConnection | None) -> None:
        # Ahead of the permits of what is dropped: what is sent for them would come again, too.
        if connection is not None:
            for frame in requests.redeliver(self.consumer_id, (), self.epoch):
                connection.write(frame)

    def redeliver_returned(self, returned: Sequence[GivenBack]) -> None:
        """Transactions were aborted in which the application had acknowledged: that comes again, and before what was
        prefetched. Nothing else of what it received does."""
        connection = self._attachment.connection
        if connection is None or self._phase is Phase.SEEKING:
            return  # everything comes again
        kept, last = self._intake.returned, self.last_received.last_entry
        if last is not None and last is not self._received_before:
            received = (last.key, self.last_received.last_index())
            if kept is None:
                kept = Returned(received)
            kept.received_up_to(received)
        if kept is None:
            self.redeliver_all()  # the application received nothing since everything came again
            return
        self.acks.sender.flush()
        self._subscription.counters.redelivery_requests += 1
        self._set_epoch(self.epoch + 1)
        self._intake.returned = kept
        self._ask_for_all(connection)
        self._delivery.drop_prefetched(lambda entry: entry.source is self)
        for given in returned:
            for key, (indexes, _) in given.acked.items():
                if given.is_cumulative:
                    kept.add_up_to(key, len(indexes) - 1)
                else:
                    kept.add(key, indexes)
        self._intake.start_over(kept)
        self._intake.give_back()
        self._delivery.on_subscribed(self.topic)

    def _set_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        self._intake.set_epoch(epoch)

    def drop_entries(self, keys: Collection[EntryKey]) -> None:
        """Forget what was prefetched of them."""
        self._delivery.drop_prefetched(lambda entry: entry.source is self and entry.key in keys)

    def drop_rest(self, batches: Collection[EntryBatch]) -> None:
        """Forget what was prefetched of these, and not of what came of the same entries since."""
        self._delivery.drop_prefetched(lambda entry: entry in batches)

    def negative_acknowledge(self, key: EntryKey, redelivery_count: int) -> None:
        """A message of an entry could not be processed."""
        self._redelivery.negative_acks(key, redelivery_count)

    def acknowledge_buried(self, entry: EntryBatch, index: int) -> None:
        """A message of an entry is in the dead-letter topic."""
        self.acks.acknowledge(entry, index)

    # ---- moving

    async def seek(self, message_id: MessageId | None, timestamp_ms: int = 0) -> None:
        """Move the subscription to a message, or to the first one published at a time; raises the broker's error."""
        async with self._seeking:
            await self._attachment.connected()
            self.acks.sender.flush()
            received = self.last_received
            before = (self._intake.start, received.start_message_id, received.last_entry)
            try:
                # Again also while the broker is at an earlier one, which was given up, and when it closed for that.
                await self.cluster.lookup.retry(partial(self._seek, message_id, timestamp_ms), f"moving {self.topic}")
            except BaseException:
                if self._phase is Phase.CLOSED:
                    raise
                self._intake.start, received.start_message_id, received.last_entry = before
                if self._phase is Phase.SEEKING:
                    self._phase = Phase.SUBSCRIBED
                if self._attachment.connection is not None:
                    self.redeliver_all()  # what came meanwhile was dropped
                raise

    async def _seek(self, message_id: MessageId | None, timestamp_ms: int) -> None:
        attachment = self._attachment
        await attachment.connected()
        self._phase = Phase.SEEKING
        self.start_over()
        self.acks.forget_batches()
        self._intake.start = self.last_received.move(message_id)
        if self.last_received.wants_newest and self.topic.is_persistent:
            newest, _ = await self.last_message_ids()
            if newest.entry_id() >= 0:
                message_id = newest
                self._intake.start = self.last_received.move(message_id)
        times = attachment.times
        try:
            await self.request(lambda consumer, request: requests.seek(consumer, request, message_id, timestamp_ms))
        except (ConsumerNotFound, BrokerMetadataError) as error:  # Apache's brokers say the latter
            if self._phase is Phase.CLOSED or (attachment.connection is not None and attachment.times == times):
                raise
            raise NotConnected(f"{self.topic}: the broker closed the consumer for a seek that was given up") from error
        if attachment.times != times and attachment.connection is not None:
            return  # subscribed again before the answer was heard: what came since is from there, and comes once
        self.start_over()
        self._forget_acks()
        if attachment.connection is not None:
            self._phase = Phase.SUBSCRIBED
            self._intake.give_back()
        else:
            self._link.hurry()  # the broker closed it for the seek alone

    def _forget_acks(self) -> None:
        # The broker may have closed the consumer without an answer to them: sent again, they would hide what is wanted.
        error = NotConnected(f"{self.topic} was moved: unknown whether it was acknowledged before that")
        self.acks.sender.forget(error)

    async def last_message_ids(self) -> tuple[MessageId, MessageId | None]:
        """See :func:`last_message.last_message_ids`."""
        return await last_message.last_message_ids(self)

    # ---- what else the broker says

    def on_active_change(self, is_active: bool) -> None:
        """On Failover: this consumer became the active one, or no longer is."""
        self.is_active = is_active

    def on_end_of_topic(self) -> None:
        """The topic was terminated and everything was delivered."""
        self.is_at_end = True
        _log.debug("%s was terminated, and all of it is here", self.topic)
