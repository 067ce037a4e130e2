"""A persistent topic: its managed ledger, producers and subscriptions.

Publishing: :meth:`PersistentTopic.publish` -> deduplication, broker entry metadata -> one append of the managed
ledger -> receipts. Subscriptions hear of new entries through one tail listener. What both kinds of topic share
is in :mod:`.base`.

After a failed write the producer is disconnected, so that what it sent behind the failed entry can not overtake
it: the client connects again and sends everything unanswered again, in order. With deduplication the topic's
tail is read again first, because a failed write may have been stored.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from geminga.broker.core.delayed.delivery import TopicDelays
from geminga.broker.core.deletion import TopicFacts
from geminga.broker.subscription import seek
from geminga.broker.subscription.limits import UnackedLimits
from geminga.broker.subscription.rates import Rates
from geminga.broker.subscription.subscribe import create_subscription, subscribe
from geminga.broker.subscription.subscription import Subscription
from geminga.broker.subscription.throttling import DispatchThrottle
from geminga.broker.topic.base import TERMINATED_TEXT, Topic, closing_error
from geminga.broker.topic.deduplication import TopicDeduplication
from geminga.broker.topic.delays import DelayedDelivery
from geminga.broker.topic.parts import AdmitHook, HidesHook, Parts
from geminga.broker.topic.ports import TRANSACTIONS_PROPERTY
from geminga.broker.topic.producer import Producer, is_terminal
from geminga.broker.topic.publish import EntryStamps, PublishBatch, TurnAppend
from geminga.broker.topic.retention import Retention
from geminga.broker.topic.services import TopicServices
from geminga.managed_ledger import AppendResult, ManagedLedger
from geminga.managed_ledger.rules.unreadable import SKIPPED_PROPERTY
from geminga.managed_ledger.shared.entry import AppendDone
from geminga.model.errors import (
    ConflictError,
    GemingaError,
    LedgerFencedError,
    StorageError,
    TopicTerminatedError,
)
from geminga.model.position import Position
from geminga.model.topic_name import DEDUP_CURSOR, TopicName, decode_name, is_internal_cursor
from geminga.model.txn_id import TxnId
from geminga.runtime import Contained, get_logger, spawn
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import broker_entry_metadata

if TYPE_CHECKING:
    from geminga.broker.subscription.consumer import Consumer, ConsumerConnection
    from geminga.broker.topic.transaction_buffer import TransactionBuffer

__all__ = ["PersistentTopic", "Topic"]

_log = get_logger(__name__)

#: The same failure of a producer is told again after so many seconds.
FAILURE_REPEAT_S: Final = 10.0
#: Property of the managed ledger that holds the epoch of exclusive access (Pulsar's name).
EPOCH_PROPERTY: Final = "pulsar.topic.epoch"
#: And the one that has the index of the newest message as of the last change of the ledger list (Pulsar's name): it
#: counts where no entry is left to tell it.
INDEX_PROPERTY: Final = "index"


class PersistentTopic(Topic):
    """A topic whose messages are stored."""

    __slots__ = (
        "_failure_told",
        "_has_buffer",
        "_pending_batches",
        "_remove_tail_listener",
        "_stamps",
        "_subscriptions",
        "_turn",
        "ledger",
        "parts",
        "storage_rates",
    )

    def __init__(self, services: TopicServices, name: TopicName, ledger: ManagedLedger) -> None:
        """``ledger`` is open; :meth:`load` makes the topic ready."""
        super().__init__(services, name)
        self.ledger = ledger
        self._subscriptions: dict[str, Subscription] = {}
        #: What it has beside its log.
        self.parts = Parts(self, services.parts)
        #: It had transactions, or has; most topics never do.
        self._has_buffer = False
        config = services.config
        #: None: entries are stored as they came.
        self._stamps: EntryStamps | None = None
        if config.appends_broker_timestamp or config.appends_index:
            self._stamps = EntryStamps(has_time=config.appends_broker_timestamp, has_index=config.appends_index)
        #: What the present turn of the loop brought; None: nothing yet.
        self._turn: TurnAppend | None = None
        #: Rates of entries between scrapes, kept by the metrics.
        self.storage_rates: Rates | None = None
        #: What was told of a publishing that failed, and when: clients come again at once.
        self._failure_told = ("", 0.0)
        #: Batches handed to the ledger and not answered in full.
        self._pending_batches = 0
        self._remove_tail_listener = ledger.tail.add_listener(self._entries_available)
        ledger.tenure.part = self
        ledger.tenure.when_fenced = self._unload_fenced

    # ---- state

    @property
    def subscriptions(self) -> dict[str, Subscription]:
        """Subscriptions by name, those of Readers included."""
        return self._subscriptions

    @property
    def created_ms(self) -> int:
        """When it was made, perhaps by a broker before this one."""
        return self.ledger.stored.created_ms

    @property
    def stored_bytes(self) -> int:
        """Bytes of the messages that are stored."""
        return self.ledger.ledgers.size_bytes

    @property
    def last_position(self) -> Position:
        """The last position that is stored; entry id -1 of the current ledger if there is none."""
        return self.ledger.extent.last_confirmed_position

    @property
    def max_read_position(self) -> Position:
        """The last position that readers may get: none of the topic's parts holds it back."""
        return self.ledger.extent.readable_position

    @property
    def dedup(self) -> TopicDeduplication | None:
        """None: deduplication is off."""
        return self.parts.find(TopicDeduplication)

    @property
    def takes_transactions(self) -> bool:
        """Where transactions are on, for topics of users."""
        return self.services.has_transactions and not self.name.is_system

    @property
    def transaction_buffer(self) -> TransactionBuffer | None:
        """None: there was no transaction yet."""
        if not self._has_buffer:
            return None
        from geminga.broker.topic.transaction_buffer import TransactionBuffer

        return self.parts.find(TransactionBuffer)

    async def save_sequence_ids(self) -> None:
        """As :meth:`PartTopic.save_sequence_ids`."""
        if self.dedup is not None:
            await self.dedup.save()

    async def use_transactions(self) -> TransactionBuffer:
        """As :meth:`Topic.use_transactions`."""
        if not self.takes_transactions:
            await super().use_transactions()
        if not self._has_buffer:
            self._add_buffer()
        if self.transaction_buffer is None:
            await self.parts.follow()
        buffer = self.transaction_buffer
        if buffer is None:
            raise closing_error(self.name)
        return buffer

    def _add_buffer(self) -> None:
        from geminga.broker.topic.transaction_buffer import TransactionBuffer

        # The last one: it too remembers what it admits, and hears only of what is stored.
        self.parts.register(TransactionBuffer)
        self._has_buffer = True

    def transaction_ended(self, txn_id: TxnId, *, is_committed: bool) -> None:
        """As :meth:`PartTopic.transaction_ended`."""
        self.parts.transaction_ended(txn_id, is_committed=is_committed)

    def is_stored(self, batch: PublishBatch) -> bool:
        """As :meth:`Topic.is_stored`."""
        dedup = self.dedup
        return dedup is not None and dedup.is_stored(batch)

    @property
    def is_terminated(self) -> bool:
        """Whether nothing can be published any more."""
        return self.ledger.stored.terminated_position is not None

    @property
    def pending_batches(self) -> int:
        """Batches being written now."""
        return self._pending_batches

    # ---- publishing

    def publish(self, batch: PublishBatch) -> None:
        """Store the entries in order and answer each; never raises."""
        admit = self.parts.admit
        if not admit:
            self._store(batch)
            return
        batches: Iterable[PublishBatch] = (batch,)
        for hook in admit:
            batches = _admitted(hook, batches)
        for one in batches:
            if one.refusal is None:
                self._store(one)
            else:
                one.producer.refuse(one, one.refusal)

    def _store(self, batch: PublishBatch) -> None:
        entries = batch.entries
        size_bytes = 0
        for entry in entries:
            size_bytes += len(entry)
        batch.producer.begin(batch, size_bytes)
        if self._stamps is not None:
            entries = self._stamps.stamped(entries, self.services.runtime.clock.wall_ms())
        self._pending_batches += 1
        turn = self._turn
        if turn is None:
            # Batches that other connections bring in this turn of the loop join it: one append for all of them.
            self._turn = TurnAppend(batch, entries, self)
            asyncio.get_running_loop().call_soon(self._append_turn)
        else:
            turn.add(batch, entries)

    def _append_turn(self) -> None:
        turn, self._turn = self._turn, None
        if turn is not None:
            with Contained(self, "an append", is_last=True):
                if turn.error is None:
                    self.ledger.append(turn.entries, turn.appended)
                else:
                    turn.appended(AppendResult(-1, -1, 0, len(turn.entries), turn.error))

    def published(self, batch: PublishBatch, result: AppendResult) -> None:
        """Entries are on stable storage and answered."""
        for hook in self.parts.stored:
            hook(batch, result)
        if batch.is_answered:
            if not batch.has_failed:
                messages, size_bytes = batch.messages, batch.size_bytes
                producer = batch.producer
                self.messages_in += messages
                self.bytes_in += size_bytes
                services = self.services
                now_s = self.last_published_s = services.runtime.clock.monotonic()
                services.publish_latency.add((now_s - batch.since_s) * 1000, batch.count)
                producer.messages_in += messages
                producer.bytes_in += size_bytes
            self._batch_done()

    def _unload_fenced(self) -> None:
        """Another broker owns the topic now, or did: whoever loads it next reads what that one stored."""
        services = self.services
        if not self.is_closing:
            spawn(services.unload_fenced(self.name), name=f"unload fenced {self.name}", part=services.whole)

    def _tell_failure(self, story: str) -> None:
        told, at_s = self._failure_told
        now_s = self.services.runtime.clock.monotonic()
        if story != told or now_s - at_s >= FAILURE_REPEAT_S:
            self._failure_told = story, now_s
            _log.warning("%s: %s", self.name, story)

    def publish_failed(self, batch: PublishBatch, error: GemingaError) -> None:
        """Entries could not be stored, or nobody knows; their producer was told."""
        producer = batch.producer
        if not is_terminal(error) and not producer.is_closed:
            self._tell_failure(f"publishing of {producer.name} failed: {error}")
        for hook in self.parts.failed:
            hook(batch, error)
        if not is_terminal(error):
            producer.disconnect()
            if self._turn is not None:
                # Clients send again what failed and all that came after it.
                self._turn.error = error
            if isinstance(error, LedgerFencedError):
                self._unload_fenced()
        if batch.is_answered:
            self._batch_done()

    def last_sequence_id(self, producer_name: str) -> int:
        """The highest stored sequence id of a producer, if deduplication is on; -1 otherwise."""
        dedup = self.dedup
        return dedup.state.last_sequence_id(producer_name) if dedup is not None else -1

    def _batch_done(self) -> None:
        self._pending_batches -= 1
        if not self._pending_batches:
            for hook in self.parts.settled:
                hook()

    def _entries_available(self) -> None:
        for subscription in self._subscriptions.values():
            subscription.on_entries_available()

    # ---- subscriptions

    async def subscribe(self, connection: ConsumerConnection, request: pb.CommandSubscribe) -> Consumer:
        """Attach a consumer, creating its subscription if need be; raises GemingaError."""
        allow_creation = await self.check_may_subscribe(request)
        if self.throttling is not None:
            self.throttling.check_subscribe(connection.peer, request.consumer_name, request.consumer_id)
        consumer = await subscribe(self, connection, request, allow_creation=allow_creation)
        self.touch()
        if self.is_closing:
            # Without CLOSE_CONSUMER, which the client would get before the answer to its SUBSCRIBE.
            consumer.close()
            raise closing_error(self.name)
        return consumer

    async def create_subscription(
        self, name: str, position: Position, properties: Mapping[str, str] | None = None
    ) -> Subscription:
        """Create a durable subscription that starts at ``position``; raises ConflictError if it exists."""
        if name in self._subscriptions:
            raise ConflictError(f"Subscription {name} of {self.name} exists already")
        subscription = await create_subscription(self, name, position, properties=properties)
        self.touch()
        if self.is_closing:
            # Nobody is promised a subscription of a topic that may be gone in a moment.
            raise closing_error(self.name)
        return subscription

    @property
    def unacked_limits(self) -> UnackedLimits:
        """How much the consumers of a subscription may leave unacknowledged."""
        return self.rules.unacked

    @property
    def dispatch_throttles(self) -> tuple[DispatchThrottle, ...]:
        """Rates that all its subscriptions share."""
        return () if self.throttling is None else self.throttling.dispatch

    def subscription_throttle(self, name: str, present: DispatchThrottle | None) -> DispatchThrottle | None:
        """The own rate of a subscription that has ``present`` by now; None: it has none."""
        return None if self.throttling is None else self.throttling.of_subscription(name, present)

    @property
    def delivery_tick_ms(self) -> int:
        """How exactly delayed messages are delivered, unless a subscription says otherwise."""
        return self.rules.delay_tick_ms

    @property
    def hides(self) -> Sequence[HidesHook]:
        """Of the parts that have a word in what readers see."""
        return self.parts.hides

    def delays(self) -> TopicDelays | None:
        """What waits for its delivery time, for all subscriptions; None: messages are delivered at once."""
        part = self.parts.find(DelayedDelivery)
        return part.delays() if part is not None else None

    def delays_stats(self) -> Mapping[str, int | bool]:
        """What the delayed index holds and takes; empty while there is none."""
        part = self.parts.find(DelayedDelivery)
        return part.stats() if part is not None else {}

    # ---- life

    async def load(self) -> None:
        """Subscriptions from the ledger's cursors, the index of the newest message, sequence ids."""
        is_loaded = False
        try:
            self._load_subscriptions()
            if self._stamps is not None and self.services.config.appends_index:
                self._stamps.index = await self._last_index()
                self.ledger.stored.noted = self._noted
            transactions = self.services.transactions if self.takes_transactions else None
            has_property = TRANSACTIONS_PROPERTY in self.ledger.stored.properties
            if transactions is not None and (has_property or await transactions.has_snapshots(self.name)):
                self._add_buffer()
            await self.apply_policies()
            if transactions is not None:
                for name in await transactions.with_logs(self.name, self._subscriptions):
                    await self._subscriptions[name].load_transaction_acks()
            # Claimed by another broker meanwhile: nobody unloads what is not in the table yet.
            self.ledger.tenure.check_writable()
            is_loaded = True
        finally:
            if not is_loaded:
                # Nobody closes what was never there: the next load begins anew on the same ledger.
                self._remove_tail_listener()
                self.parts.drop()

    async def apply_policies(self) -> None:
        """Have the limits, and the parts, that broker, namespace and topic want."""
        await super().apply_policies()
        self.hold_to(self.rules.rates)
        for subscription in self._subscriptions.values():
            subscription.apply_unacked_limits()
            subscription.apply_rates()
        await self.parts.follow()

    def apply_retention(self) -> None:
        """A cursor of the broker's own was made: it says what is to be kept."""
        part = self.parts.find(Retention)
        if part is not None:
            part.policies_changed()

    def read_limit_moved(self) -> None:
        """A part may say something else of how far may be read: readers hear of it if they may go on."""
        self.parts.limit_moved()

    def idleness_changed(self) -> None:
        """A part has something to do now, or nothing any more."""
        self.parts.idleness_changed()

    def append_own(self, entries: list[bytes], done: AppendDone) -> None:
        """Store entries of the broker's own, behind all that was published before."""
        self._append_turn()
        if self._stamps is not None:
            entries = self._stamps.stamped(entries, self.services.runtime.clock.wall_ms())
        self.ledger.append(entries, done)

    async def add_producer(self, producer: Producer) -> bool:
        """As :meth:`Topic.add_producer`; raises what a part keeps it out with, too."""
        await self.parts.admit_producer(producer)
        is_ready = await super().add_producer(producer)
        await self.parts.producer_joined(producer)
        return is_ready

    def remove_producer(self, producer: Producer) -> None:
        """As :meth:`Topic.remove_producer`."""
        super().remove_producer(producer)
        if producer.name not in self.producers:
            self.parts.producer_left(producer)

    async def store_epoch(self, epoch: int) -> None:
        """Make the epoch of exclusive access durable; raises StorageError."""
        await self.ledger.stored.add_properties({EPOCH_PROPERTY: str(epoch)})

    def stored_epoch(self) -> int | None:
        """The epoch of exclusive access as stored, None if there never was one."""
        text = self.ledger.stored.properties.get(EPOCH_PROPERTY)
        return int(text) if text is not None else None

    async def terminate(self) -> Position:
        """End the topic: nothing can be published any more; returns its last position."""
        self._append_turn()
        position = await self.ledger.terminate()
        for producer in list(self.producers.values()):
            producer.fence(TopicTerminatedError(TERMINATED_TEXT))
        self._entries_available()
        return position

    async def truncate(self) -> None:
        """Acknowledge all that may be read by now, for every subscription, and delete it, whatever retention says.

        What is published meanwhile stays. Raises GemingaError; what was not done is done by a later call.
        """
        through = self.ledger.extent.readable_position
        if self.dedup is not None:
            # Its cursor goes on with what it has saved only: sequence ids would be forgotten with their entries.
            await self.dedup.snapshot()
        for name, subscription in tuple(self._subscriptions.items()):
            if self._subscriptions.get(name) is subscription:
                await seek.clear_backlog(subscription, through)
        await self.ledger.trimmer.truncate(through, kept=(DEDUP_CURSOR,))

    async def close_storage(self) -> None:
        """Save what a quick reload needs and close the ledger."""
        self._append_turn()
        self._remove_tail_listener()
        await self.parts.close()
        await self.ledger.close()

    async def drop_storage(self) -> None:
        """As :meth:`Topic.drop_storage`: what was published is safe, cursors are found as they were last saved."""
        self._remove_tail_listener()
        self.parts.drop()
        for subscription in self._subscriptions.values():
            if subscription.used_transaction_acks is not None:
                await subscription.used_transaction_acks.abandon()
        await self.ledger.close(is_broken=True)

    def deletion_facts(self) -> TopicFacts:
        """As :meth:`Topic.deletion_facts`, with what is stored and who is to read it."""
        cursors = self.ledger.cursors
        internal = [cursor for name, cursor in cursors.items() if is_internal_cursor(name)]
        closed_ms = max((info.closed_ms for info in self.ledger.ledgers.infos if info.entries), default=0)
        return (
            super()
            .deletion_facts()
            ._replace(
                stored_ms_ago=self.services.runtime.clock.wall_ms() - closed_ms if closed_ms else None,
                writes=self._pending_batches,
                held_back=self.ledger.extent.is_limited,
                subscriptions=len(cursors) - len(internal),
                readers=sum(not subscription.is_durable for subscription in self._subscriptions.values()),
                backlog=max(
                    (c.backlog_count for name, c in cursors.items() if not is_internal_cursor(name)), default=0
                ),
                # Deduplication's own snapshot is worth nothing without the messages.
                internal_backlog=max((c.backlog_count for c in internal if c.name != DEDUP_CURSOR), default=0),
            )
        )

    async def claim_storage(self) -> None:
        """As :meth:`Topic.claim_storage`."""
        await self.ledger.stored.claim()

    async def delete_storage(self) -> None:
        """Remove the ledger with all its cursors."""
        self._remove_tail_listener()
        await self.parts.delete()
        for subscription in self._subscriptions.values():
            if subscription.used_transaction_acks is not None:
                await subscription.used_transaction_acks.delete()
        await self.services.ledgers.delete(self.name.managed_ledger_name)

    def _load_subscriptions(self) -> None:
        for cursor_name, cursor in self.ledger.cursors.items():
            if not is_internal_cursor(cursor_name):
                name = decode_name(cursor_name)
                self._subscriptions[name] = Subscription.create(self, name, cursor)

    async def _last_index(self) -> int:
        last = self.ledger.extent.last_confirmed_position
        try:
            entries = await self.ledger.reader.read([last], is_limited=False) if last.entry_id >= 0 else []
        except StorageError as error:
            info = self.ledger.ledgers.find(last.ledger_id)
            if info is None or not info.is_offloaded or INDEX_PROPERTY not in self.ledger.stored.properties:
                raise
            # It was offloaded by a change of the list, which has the index of its newest message.
            _log.error("%s: its newest entry can not be read, the index goes on as noted: %s", self.name, error)
            entries = []
        metadata = broker_entry_metadata(entries[0].data) if entries else None
        told = self.ledger.stored.properties.get(INDEX_PROPERTY, "")
        noted = int(told) if re.fullmatch(r"[0-9]{1,18}", told) else -1
        if metadata is not None and metadata.HasField("index"):
            # Behind the newest entry there may have been a ledger that was given up: no number is given twice.
            return max(metadata.index, noted) if SKIPPED_PROPERTY in self.ledger.stored.properties else metadata.index
        if noted >= 0:
            return noted
        # Entries from before indexing was on: one message each is the least there can be.
        return self.ledger.ledgers.entry_count - 1

    def _noted(self) -> dict[str, str]:
        assert self._stamps is not None
        return {INDEX_PROPERTY: str(self._stamps.index)} if self._stamps.index >= 0 else {}


def _admitted(hook: AdmitHook, batches: Iterable[PublishBatch]) -> Iterator[PublishBatch]:
    for batch in batches:
        if batch.refusal is None:
            yield from hook(batch)
        else:
            yield batch
