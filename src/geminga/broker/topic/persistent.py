"""A persistent topic: its managed ledger, and who uses it.

Publishing is in :mod:`.log_publishing`, who publishes in :mod:`geminga.broker.publishing.producers`, transactions in
:mod:`.transacting`, features in :mod:`.parts`. Subscriptions hear of new entries through one tail listener. What both
kinds of topic share is in :mod:`.base`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final

from geminga.broker.core.delayed.delivery import TopicDelays
from geminga.broker.core.deletion import TopicFacts
from geminga.broker.policies.core.delivery_rows import DISPATCHER_PAUSE
from geminga.broker.policies.core.storage_rows import SHADOW_TOPICS
from geminga.broker.publishing.life import TopicLife
from geminga.broker.publishing.producers import TopicProducers
from geminga.broker.subscription import seek
from geminga.broker.subscription.last_message_id import NO_TAIL
from geminga.broker.subscription.limits import UnackedLimits
from geminga.broker.subscription.rates import Rates
from geminga.broker.subscription.subscribe import begins_with_what_is_new, create_subscription, subscribe
from geminga.broker.subscription.subscription import Subscription
from geminga.broker.topic.base import Topic, attached
from geminga.broker.topic.deduplication import TopicDeduplication
from geminga.broker.topic.delays import DelayedDelivery
from geminga.broker.topic.log_publishing import LogPublishing
from geminga.broker.topic.parts import HidesHook, Parts
from geminga.broker.topic.ports import GOING_LOGS_PROPERTY, TRANSACTIONS_PROPERTY
from geminga.broker.topic.services import TopicServices
from geminga.broker.topic.transacting import TopicTransactions
from geminga.managed_ledger import ManagedLedger
from geminga.model.errors import ConflictError, NotAllowedError
from geminga.model.position import Position
from geminga.model.topic_name import COMPACTION_CURSOR, DEDUP_CURSOR, TopicName, decode_name, is_internal_cursor
from geminga.runtime import get_logger
from geminga.wire._generated import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from geminga.broker.compacted.reads import CompactedMessages, LatestOfLake
    from geminga.broker.core.new_subscription import Properties
    from geminga.broker.subscription.consumer import Consumer, ConsumerConnection
    from geminga.broker.topic.parts import TopicPart
    from geminga.broker.topic.transaction_buffer import TransactionBuffer

__all__ = ["PersistentTopic", "Topic"]

_log = get_logger(__name__)

#: Property of the managed ledger that holds the epoch of exclusive access (Pulsar's name).
EPOCH_PROPERTY: Final = "pulsar.topic.epoch"
#: Property of a managed ledger whose topic is being deleted, with its newest ledger: whoever loads it deletes what is
#: left. Geminga's own: another make of broker may have served the topic since, in a ledger that is newer.
DELETION_PROPERTY: Final = "geminga.deletion"
#: Behind its value as long as the policies may be there of a topic that goes because nobody used it.
_JUDGED: Final = " judged"
#: Cursors that only the broker reads, and that keep no topic from being removed as inactive.
OWN_CURSORS: Final = (DEDUP_CURSOR,)


class KeptByLedger:
    """What a managed ledger keeps of the producers of its topic."""

    __slots__ = ("_ledger",)

    def __init__(self, ledger: ManagedLedger) -> None:
        self._ledger = ledger

    @property
    def is_terminated(self) -> bool:
        """Whether nothing can be published any more."""
        return self._ledger.stored.terminated_position is not None

    @property
    def epoch(self) -> int | None:
        """Of exclusive access, as stored; None: there never was one."""
        text = self._ledger.stored.properties.get(EPOCH_PROPERTY)
        return int(text) if text is not None else None

    async def store_epoch(self, epoch: int) -> None:
        """Make it durable. Raises StorageError."""
        await self._ledger.stored.add_properties({EPOCH_PROPERTY: str(epoch)})


def _newest(ledger: ManagedLedger) -> str:
    """The id of its newest ledger as a text; -1: there is none."""
    return str(max((info.ledger_id for info in ledger.stored.ledgers.infos), default=-1))


async def stay(topic: PersistentTopic) -> None:
    """Take the note of its deletion back; raises GemingaError."""
    stored = topic.ledger.stored
    kept = {name: text for name, text in stored.properties.items() if name != DELETION_PROPERTY}
    await stored.set_properties(kept)
    topic.life.is_going = topic.life.is_judged = False


class PersistentTopic(Topic):
    """A topic whose messages are stored."""

    __slots__ = (
        "_remove_tail_listener",
        "_subscriptions",
        "ack_ranges_max",
        "compacted",
        "hidden_tail",
        "lake_latest",
        "ledger",
        "parts",
        "storage_rates",
    )

    publishing: LogPublishing
    transactions: TopicTransactions | None

    def __init__(
        self,
        services: TopicServices,
        name: TopicName,
        ledger: ManagedLedger,
        kinds: Sequence[type[TopicPart]] | None = None,
    ) -> None:
        """``ledger`` is open; :meth:`load` makes the topic ready. ``kinds`` of parts: what it may have beside its log;
        None: all that the broker has."""
        self.ledger = ledger
        #: Ranges of acknowledged messages beyond which nothing new is dispatched; None: dispatch does not ask.
        self.ack_ranges_max: int | None = None
        #: What was compacted of it; None: it never was.
        self.compacted: CompactedMessages | None = None
        self.lake_latest: LatestOfLake | None = None
        #: Behind the first of these, and up to the second, there is no message that anybody gets.
        self.hidden_tail = NO_TAIL
        #: What it has beside its log.
        self.parts = Parts(self, services.parts if kinds is None else kinds)
        life = TopicLife(name, services.runtime.clock)
        noted = ledger.stored.properties.get(DELETION_PROPERTY, "")
        life.is_judged = noted.endswith(_JUDGED)
        life.is_going = noted.removesuffix(_JUDGED) == _newest(ledger)
        self._subscriptions: dict[str, Subscription] = {}
        super().__init__(
            services,
            name,
            life,
            LogPublishing(name, services, ledger, self.parts, life, self._subscriptions, self),
            TopicProducers(name, life, self, kept=KeptByLedger(ledger), watch=self.parts),
        )
        if services.transactions is not None and not name.is_system:
            self.transactions = TopicTransactions(name, services.transactions, self.parts, life)
        #: Rates of entries between scrapes, kept by the metrics.
        self.storage_rates: Rates | None = None
        self._remove_tail_listener = ledger.tail.add_listener(self.publishing.readable)
        ledger.tenure.part = self
        ledger.tenure.when_fenced = self.publishing.fenced

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
    def transaction_buffer(self) -> TransactionBuffer | None:
        """None: there was no transaction yet."""
        return self.transactions.buffer if self.transactions is not None else None

    async def save_sequence_ids(self) -> None:
        """As :meth:`PartTopic.save_sequence_ids`."""
        if self.dedup is not None:
            await self.dedup.save()

    async def use_transactions(self) -> TransactionBuffer:
        """As :meth:`Topic.use_transactions`. Raises NotAllowedError."""
        if self.transactions is None:
            raise NotAllowedError(f"Topic {self.name} takes no transactions")
        return await self.transactions.use()

    # ---- subscriptions

    async def subscribe(self, connection: ConsumerConnection, request: pb.CommandSubscribe) -> Consumer:
        """Attach a consumer, creating its subscription if need be; raises GemingaError."""
        allow_creation = await self.check_may_subscribe(request)
        self.throttles.check_subscribe(connection.peer, request.consumer_name, request.consumer_id)
        delayed = self.parts.find(DelayedDelivery)
        if delayed is not None:
            await delayed.ready()
        if request.read_compacted:
            from geminga.broker.compacted.reads import ready

            await ready(self)
        is_new = request.subscription not in self._subscriptions and (
            request.durable or begins_with_what_is_new(request)
        )
        async with self.parts.new_subscription() if is_new else nullcontext():
            if is_new and request.durable and self.transactions is not None:
                await self.transactions.drop_leftovers(request.subscription, self._subscriptions, self.services.ledgers)
            consumer = await subscribe(self, connection, request, allow_creation=allow_creation)
        return attached(self.life, consumer)

    async def create_subscription(
        self, name: str, position: Position, properties: Properties | None = None, *, is_replicated: bool = False
    ) -> Subscription:
        """Create a durable subscription that starts at ``position``; raises ConflictError if it exists."""
        if name in self._subscriptions:
            raise ConflictError(f"Subscription {name} of {self.name} exists already")
        async with self.parts.new_subscription():
            if self.transactions is not None:
                await self.transactions.drop_leftovers(name, self._subscriptions, self.services.ledgers)
            subscription = await create_subscription(
                self, name, position, properties=properties, is_replicated=is_replicated
            )
        self.life.touch()
        # Nobody is promised a subscription of a topic that may be gone in a moment.
        self.life.check_open()
        return subscription

    def subscriptions_changed(self) -> None:
        """As of the subscriptions' topic."""
        self.parts.subscriptions_changed()

    @property
    def unacked_limits(self) -> UnackedLimits:
        """How much the consumers of a subscription may leave unacknowledged."""
        return self.rules.unacked

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

    def forget_delays(self) -> None:
        """As of the topic of subscriptions."""
        part = self.parts.find(DelayedDelivery)
        if part is not None:
            part.acknowledged()

    # ---- life

    async def load(self) -> None:
        """Subscriptions from the ledger's cursors, the index of the newest message, sequence ids."""
        is_loaded = False
        try:
            stored = self.ledger.stored
            if DELETION_PROPERTY in stored.properties and not self.life.is_going:
                _log.warning("%s was being deleted, and was served since: it stays", self.name)
                await stay(self)
            for cursor_name, cursor in self.ledger.cursors.items():
                if not is_internal_cursor(cursor_name):
                    name = decode_name(cursor_name)
                    self._subscriptions[name] = Subscription.create(self, name, cursor)
            await self.publishing.load()
            # One that was made for this load, and is empty still, had none.
            if self.transactions is not None and not (stored.is_new and not len(stored.ledgers)):
                await self.transactions.load(is_known=TRANSACTIONS_PROPERTY in stored.properties)
            await self.apply_policies()
            if self.transactions is not None:
                for subscription in await self.transactions.with_logs(self._subscriptions):
                    await self._subscriptions[subscription].transactions.load()
                if GOING_LOGS_PROPERTY in stored.properties:
                    await self.transactions.delete_left(self._subscriptions, self.ledger)
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
        ranges = self.services.ledgers.config.max_ranges_in_entry
        self.ack_ranges_max = ranges if self.rules[DISPATCHER_PAUSE] else None
        for subscription in self._subscriptions.values():
            subscription.apply_unacked_limits()
            subscription.apply_rates()
            if subscription.dispatch is not None:
                with subscription.dispatch.contained:
                    subscription.dispatch.follow_filters()
        await self.parts.follow()

    async def terminate(self) -> Position:
        """End the topic: nothing can be published any more; returns its last position."""
        self.publishing.flush()
        position = await self.ledger.terminate()
        self.publishing.readable()
        await self.attendance.terminated()
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
        self.publishing.flush()
        self._remove_tail_listener()
        await self.parts.close()
        await self.ledger.close()

    async def drop_storage(self) -> None:
        """As :meth:`Topic.drop_storage`: what was published is safe, cursors are found as they were last saved."""
        self._remove_tail_listener()
        self.parts.drop()
        for subscription in self._subscriptions.values():
            if subscription.transactions.used is not None:
                await subscription.transactions.used.abandon()
        await self.ledger.close(is_broken=True)

    def deletion_facts(self) -> TopicFacts:
        """As :meth:`Topic.deletion_facts`, with what is stored and who is to read it."""
        cursors = self.ledger.cursors
        internal = [cursor for name, cursor in cursors.items() if is_internal_cursor(name)]
        closed_ms = max((info.closed_ms for info in self.ledger.ledgers.infos if info.entries), default=0)
        facts = super().deletion_facts()
        return facts._replace(
            # Those that show it are as good as consumers.
            clients=facts.clients + len(self.rules[SHADOW_TOPICS]),
            stored_ms_ago=self.services.runtime.clock.wall_ms() - closed_ms if closed_ms else None,
            writes=self.publishing.pending_batches,
            held_back=self.ledger.extent.is_limited,
            # What was compacted, or is to be, is for readers who come and go: as in Pulsar it counts as one.
            subscriptions=len(cursors) - len(internal) + (COMPACTION_CURSOR in cursors),
            readers=sum(not subscription.is_durable for subscription in self._subscriptions.values()),
            backlog=max((c.backlog_count for name, c in cursors.items() if not is_internal_cursor(name)), default=0),
            # Deduplication's snapshot is worth nothing without somebody who reads.
            internal_backlog=max((c.backlog_count for c in internal if c.name not in OWN_CURSORS), default=0),
        )

    async def claim_storage(self) -> None:
        """As :meth:`Topic.claim_storage`."""
        await self.ledger.stored.claim()

    async def note_deletion(self, *, is_judged: bool = False) -> None:
        """As :meth:`Topic.note_deletion`."""
        noted = _newest(self.ledger) + _JUDGED * is_judged
        await self.ledger.stored.add_properties({DELETION_PROPERTY: noted})
        self.life.is_going = True

    async def delete_storage(self) -> None:
        """Remove the ledger with all its cursors."""
        self._remove_tail_listener()
        await self.parts.delete()
        for subscription in self._subscriptions.values():
            if subscription.transactions.used is not None:
                await subscription.transactions.used.let_go()
                await subscription.transactions.used.delete_log()
        await self.services.ledgers.delete(self.name.managed_ledger_name)
