"""Dispatch of Shared and Key_Shared subscriptions: the core divides, this reads, filters, sends and keeps time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from geminga.broker.core.delayed.delivery import DelayReader, TopicDelays
from geminga.broker.core.dispatch.hash_ranges import (
    ConsistentHashRing,
    HashRangeAutoSplit,
    StickyKeySelector,
    StickyRanges,
)
from geminga.broker.core.dispatch.key_shared import KeySharedDispatcher
from geminga.broker.core.dispatch.redelivery import RedeliveryTracker
from geminga.broker.core.dispatch.shared import ENTRIES_MAX, DispatchLimits, ReadAgain, ReadOn, SharedDispatcher
from geminga.broker.subscription.consumer import Consumer, Key_Shared
from geminga.broker.subscription.dispatch import ROUNDS_MAX, Dispatch, DispatchedSubscription
from geminga.broker.subscription.entry_filter import filter_entries
from geminga.broker.subscription.limits import UnackedLimits
from geminga.managed_ledger.rules.unreadable import is_lost
from geminga.model import LATEST, Position
from geminga.model.errors import ConsumerAssignError, ConsumerBusyError, NotAllowedError, StorageError
from geminga.runtime import Contained, get_logger, next_turn, spawn
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.keys import murmur3_32

if TYPE_CHECKING:
    from geminga.managed_ledger import Entry, ManagedLedger
    from geminga.transaction.core.pending_acks import Released

_log = get_logger(__name__)

#: Longest sleep of the timer for delayed messages, so that a clock that was set is noticed.
_DELAY_TIMER_MAX_S: Final = 10.0
#: Delayed messages moved to the replay queue in one go.
_DUE_MAX: Final = 1000


class SharedSubscription(DispatchedSubscription, Protocol):
    """What dispatch by entry asks for besides."""

    @property
    def delivery_tick_ms(self) -> int:
        """How exactly it wants delayed messages."""
        ...

    def redeliveries(self) -> RedeliveryTracker:
        """Redelivery counts, which outlive the consumers."""
        ...

    def acknowledged_by_all(self) -> Position:
        """Up to here every subscription of the topic has acknowledged."""
        ...


class SharedDispatch(Dispatch):
    """See the module."""

    __slots__ = (
        "_core",
        "_delay_timer",
        "_delayed",
        "_delays",
        "_is_reading_again",
        "_key_shared_meta",
        "_put_off",
        "_put_offs",
        "_timer_due",
    )

    def __init__(self, subscription: SharedSubscription, consumer: Consumer) -> None:
        super().__init__(subscription, consumer.type)
        self.subscription: SharedSubscription = subscription
        #: The policy of the first consumer, which all must have; None for Shared.
        self._key_shared_meta: pb.KeySharedMeta | None = None
        self._core: SharedDispatcher[Consumer] = self._make_core(consumer)
        #: What waits in the topic, and how far this subscription was given of it; None: delayed delivery is off.
        self._delays: TopicDelays | None = subscription.topic.delays()
        self._delayed: DelayReader | None = None
        self._delay_timer: asyncio.TimerHandle | None = None
        self._timer_due = 0
        self._is_reading_again = False
        #: While it runs nothing is sent again: of some of it the ledger is lost; and how often in a row that was so.
        self._put_off: asyncio.TimerHandle | None = None
        self._put_offs = 0

    @property
    def consumers(self) -> list[Consumer]:
        """The consumers in order of arrival."""
        return self._core.consumers

    @property
    def core(self) -> SharedDispatcher[Consumer]:
        """The deciding part, for statistics."""
        return self._core

    @property
    def key_shared_mode(self) -> str:
        """AUTO_SPLIT or STICKY; empty for Shared."""
        return "" if self._key_shared_meta is None else pb.KeySharedMode.Name(self._key_shared_meta.keySharedMode)

    @property
    def allows_out_of_order(self) -> bool:
        """Whether its Key_Shared consumers gave up the order per key."""
        return self._key_shared_meta is not None and self._key_shared_meta.allowOutOfOrderDelivery

    @property
    def delayed_count(self) -> int:
        """Entries that wait for their time."""
        if self._delayed is None:
            return 0
        cursor = self.reader.cursor
        return self._delayed.count(cursor.mark_delete_position, cursor.read_position)

    @property
    def delayed_bytes(self) -> int:
        """Its part of the memory of the topic's delayed index, which all subscriptions share."""
        if self._delayed is None or self._delays is None:
            return 0
        return self._delays.index.memory_bytes // max(1, self._delays.reader_count)

    @property
    def is_reading_again(self) -> bool:
        """Whether entries are read that were read before."""
        return self._is_reading_again

    def add(self, consumer: Consumer) -> None:
        """A consumer joins; ConsumerAssignError or ConsumerBusyError if its key policy does not fit."""
        if isinstance(self._core, KeySharedDispatcher):
            meta = consumer.key_shared_meta or pb.KeySharedMeta()
            policy = self._key_shared_meta or meta
            if (
                meta.keySharedMode != policy.keySharedMode
                or meta.allowOutOfOrderDelivery != policy.allowOutOfOrderDelivery
            ):
                raise ConsumerBusyError("Subscription has a different key shared policy")
            selector = self._core.selector
            if isinstance(selector, StickyRanges):
                selector.want(consumer, [(r.start, r.end) for r in meta.hashRanges])
        was_empty = not self._core.consumers
        consumer.limit_unacked(self.subscription.topic.unacked_limits.per_consumer)
        self._core.add(consumer)
        if was_empty:
            self.reader.rewind()
            if self._delays is not None:
                self._delayed = self._delays.attach(self.subscription.now_ms(), self.subscription.delivery_tick_ms)

    def remove(self, consumer: Consumer) -> None:
        """A consumer leaves: what it holds goes to the others, or is read anew when there are none."""
        self._core.remove(consumer)
        if not self._core.consumers:
            self._detach()
            self.reader.rewind()
        else:
            self.wake_later()

    @property
    def redelivers_by_position(self) -> bool:
        """Yes."""
        return True

    def redeliver(self, consumer: Consumer, positions: Sequence[Position] | None, epoch: int) -> None:
        """``consumer`` gives back ``positions``, or all it holds."""
        del epoch  # for Exclusive and Failover only
        consumer.messages_redelivered += self._core.redeliver(consumer, positions)
        self.wake()

    def acknowledged(self, consumer: Consumer, position: Position, remaining: int) -> bool:
        """An entry was acknowledged but for ``remaining`` messages; True if dispatch should look again."""
        return self._core.acknowledge(consumer, position, remaining)

    def held(self, consumer: Consumer, entries: Iterable[tuple[Position, int]]) -> None:
        """A transaction holds messages of these entries: no consumer does any more."""
        wants_wake = False
        for position, remaining in entries:
            wants_wake = self._core.hold(consumer, position, remaining) or wants_wake
        if wants_wake:
            self.wake_later()

    def settled(self, positions: Sequence[Position]) -> None:
        """They are acknowledged: no consumer has anything of them."""
        if self._core.consumers:
            self.held(self._core.consumers[0], [(position, 0) for position in positions])

    def give_back(self, released: Released) -> None:
        """A transaction holds these entries, or parts of them, no more: they are sent again."""
        cursor = self.reader.cursor
        for ack in released.acks:
            position = ack.position
            owner = next((each for each in self._core.consumers if position in each.pending), None)
            if owner is not None:
                owner.messages_redelivered += self._core.redeliver(owner, [position])
            elif position < cursor.read_position and not cursor.state.is_acknowledged(position):
                self._core.unhold(position)
        self.wake_later()

    def acknowledged_up_to(self, position: Position) -> None:
        """The cursor was moved on past ``position``."""
        self._core.acknowledge_up_to(position)
        if self._delays is not None:
            self._delays.discard_through(self.subscription.acknowledged_by_all())
            if self._delays.purge_step():
                spawn(
                    _purge(self._delays), name=f"purge delayed {self.subscription.topic.name}", part=self.subscription
                )
        self.wake_later()

    def limit_unacked(self, limits: UnackedLimits) -> None:
        """Obey other limits from now on; who stood still and is within them goes on."""
        freed = self._core.limit_unacked(limits.per_subscription)
        for consumer in self._core.consumers:
            freed = consumer.limit_unacked(limits.per_consumer) or freed
        if freed:
            self.wake_later()

    def pending_count(self, consumer: Consumer, position: Position) -> int:
        """Unacknowledged messages of an entry, whoever holds it; 0 if nobody does."""
        count = consumer.pending.count(position)
        if count:
            return count
        return next((c for other in self._core.consumers if (c := other.pending.count(position))), 0)

    def close(self) -> None:
        """No more dispatch."""
        super().close()
        self._detach()
        for timer in (self._delay_timer, self._put_off):
            if timer is not None:
                timer.cancel()
        self._delay_timer = self._put_off = None

    def wake(self) -> None:
        """Read and send as long as somebody wants and there is something."""
        if self._is_waking or self._is_reading or self._is_closed or self._retry is not None:
            self._is_woken = True
            return
        self._is_waking = self._is_woken = True
        rounds = 0
        while not (self._is_reading or self._is_closed or self._retry is not None):
            if self._delayed is not None:
                self._take_due(self._delayed)
            entries_max, bytes_max = ENTRIES_MAX, self._bytes_max
            if self._turns is not None and self._has_more():
                entries_max, bytes_max = self._turns.room(entries_max, bytes_max)
                if not entries_max:
                    break
            core = self._core
            plan = core.next_read(entries_max) if self._put_off is None else core.next_read_on(entries_max)
            if plan is None or (isinstance(plan, ReadOn) and self._nothing_read and not self._is_woken):
                break
            self._is_woken = self._nothing_read = False
            if rounds == ROUNDS_MAX:
                self._core.read_failed()  # nothing was read yet: give back what the plan took
                self.wake_later()
                break
            rounds += 1
            if isinstance(plan, ReadAgain):
                self._reserve(len(plan.positions))
                self._read_again(plan, bytes_max)
                continue
            self._skip_waiting()
            if not self.reader.cursor.reading.has_more_entries:
                self._at_end()
                break
            self._reserve(plan.entries_max)
            self._read_on(plan, bytes_max)
        self._is_waking = False
        if self._delayed is not None:
            self._arm_timer(self._delayed)

    @property
    def _is_reading(self) -> bool:
        return self.reader.is_busy or self._is_reading_again

    def _has_more(self) -> bool:
        """Whether there may be anything to send, and somebody to send it to."""
        if not self._core.replay and not self.reader.cursor.reading.has_more_entries:
            return False
        return any(consumer.permits > 0 and not consumer.was_blocked for consumer in self._core.consumers)

    def _reserve(self, entries: int) -> None:
        if self._turns is not None:
            self._turns.reserve(entries)

    def _read_on(self, plan: ReadOn, bytes_max: int) -> None:
        max_position, delayed = LATEST, self._delayed
        if delayed is not None and delayed.may_skip:
            first = self.reader.cursor.read_position
            entries = delayed.run_ahead(first, plan.entries_max)
            if entries < plan.entries_max:
                max_position = Position(first.ledger_id, first.entry_id + entries - 1)
        done = partial(self._on_read, is_again=False)
        self.reader.read(plan.entries_max, bytes_max, done, max_position=max_position)

    def _read_again(self, plan: ReadAgain, bytes_max: int) -> None:
        self._is_reading_again = True
        subscription = self.subscription
        spawn(
            self._read_positions(plan.positions, bytes_max),
            name=f"replay {subscription.topic.name} {subscription.name}",
            part=subscription,
        )

    async def _read_positions(self, positions: list[Position], bytes_max: int) -> None:
        try:
            entries, behind = await self.subscription.topic.ledger.reader.read_some(positions, bytes_max)
        except StorageError as error:
            if isinstance(self._core, KeySharedDispatcher) or not is_lost(error):
                # What has the same key waits for it; and what is only out of reach is soon back.
                self._on_read_again(error)
                return
            entries, behind = await self._read_what_is_there(positions, bytes_max)
            if behind:
                self._put_replay_off(error)
        else:
            self._put_offs = 0
        self._core.postpone(behind)
        ledger_ids = {entry.ledger_id for entry in entries}
        # Within this call unless what is acknowledged of these ledgers must be read first.
        self.reader.cursor.when_loaded(ledger_ids, partial(self._on_read_again, entries), self._on_read_again)

    async def _read_what_is_there(
        self, positions: list[Position], bytes_max: int
    ) -> tuple[list[Entry], list[Position]]:
        """The entries of those ledgers that can be read, and the positions that were not."""
        found: list[Entry] = []
        left: list[Position] = []
        for ledger_id in sorted({position.ledger_id for position in positions}):
            of_ledger = [position for position in positions if position.ledger_id == ledger_id]
            try:
                entries, behind = await self.subscription.topic.ledger.reader.read_some(of_ledger, bytes_max)
            except StorageError:
                left += of_ledger
            else:
                found += entries
                left += behind
        return found, left

    def _put_replay_off(self, error: StorageError) -> None:
        """What is to be sent again does not keep up the rest of the log: it is tried again later, later each time."""
        config, subscription = self._config, self.subscription
        first, last = (
            config.dispatcher_read_failure_backoff_initial_ms,
            config.dispatcher_read_failure_backoff_max_ms,
        )
        delay_ms = min(first << min(self._put_offs, 10), last)
        self._put_offs += 1
        _log.error(
            "%s subscription %s: what is to be sent again can not be read, trying again in %d ms: %s",
            subscription.topic.name,
            subscription.name,
            delay_ms,
            error,
        )
        if not self._is_closed and self._put_off is None:
            self._put_off = asyncio.get_running_loop().call_later(delay_ms / 1000, self._replay_again)

    def _replay_again(self) -> None:
        self._put_off = None
        self.subscription.wake()

    def _on_read_again(self, result: Sequence[Entry] | StorageError) -> None:
        self._is_reading_again = False
        with Contained(self.subscription, "dispatch of what was read again"):
            if not isinstance(result, StorageError):
                cursor = self.reader.cursor
                result = [entry for entry in result if not cursor.state.is_acknowledged(entry.position)]
            self._on_read(result, is_again=True)

    def _on_read(self, result: Sequence[Entry] | StorageError, *, is_again: bool) -> None:
        core = self._core
        if self._is_closed or not core.consumers:
            if not is_again:
                self.reader.rewind()
            return
        if isinstance(result, StorageError):
            core.read_failed()
            self._read_failed(result)
            return
        self._failures = 0
        self._nothing_read = not is_again and not result
        now_ms = self.subscription.now_ms()
        unwanted: list[Position] = []
        entries = filter_entries(
            result,
            self.reader.cursor,
            sticky_hash_of=core.selector.sticky_hash if isinstance(core, KeySharedDispatcher) else None,
            # What is read again was due once: its time is not asked twice.
            delayed=None if is_again else self._delayed,
            unwanted=unwanted,
            recent=self.subscription.recent_candidates(),
            hides=self.subscription.topic.hides,
            held=self.subscription.held,
        )
        groups = core.assign(entries)
        for consumer, group in groups:
            consumer.send(group, redeliveries=core.tracker, now_ms=now_ms)
        if self._turns is not None:
            self._sent([entry for _, group in groups for entry in group])
        if unwanted:
            self.reader.cursor.acknowledge(unwanted)
        if not self._is_waking and (result or is_again or self._is_woken or self._has_due()):
            self.wake()
        elif self._delayed is not None and not self._is_waking:
            self._arm_timer(self._delayed)

    def _skip_waiting(self) -> None:
        """Pass over entries that are known to wait: they need not be read to find that out."""
        delayed = self._delayed
        if delayed is None or not delayed.may_skip:
            return
        cursor, ledger = self.reader.cursor, self.subscription.topic.ledger
        while cursor.reading.has_more_entries:
            position = max(_at(ledger, cursor.read_position), ledger.ledgers.next_position(cursor.mark_delete_position))
            first = _at(ledger, delayed.first_to_read(position))
            cursor.reading.skip_to(first)
            if first == position:
                break

    def _has_due(self) -> bool:
        if self._delayed is None:
            return False
        now_ms = self.subscription.now_ms()
        due = self._delayed.next_due(now_ms)
        return due is not None and due <= now_ms

    def _take_due(self, delayed: DelayReader) -> None:
        core = self._core
        room = _DUE_MAX - core.replay.count(0)
        if room <= 0:
            return
        now_ms = self.subscription.now_ms()
        for position in delayed.take(now_ms, self.reader.cursor.read_position, room):
            # After the clock stepped back the index may have for others what was sent here before.
            if now_ms > delayed.suspect_until or not any(position in consumer.pending for consumer in core.consumers):
                core.requeue(position)

    def _detach(self) -> None:
        delayed, self._delayed = self._delayed, None
        if delayed is not None and self._delays is not None:
            self._delays.detach(delayed)

    def _arm_timer(self, delayed: DelayReader) -> None:
        """One timer, for the next message whose time comes, or came since it was looked for. One that waits for a read
        to end or for a place in the replay queue needs none: each of these wakes."""
        now_ms = self.subscription.now_ms()
        due = delayed.next_due(now_ms)
        if due is None or self._is_closed:
            return
        if due <= now_ms and (self._is_reading or self._retry is not None or self._core.replay.count(0) >= _DUE_MAX):
            return
        if self._delay_timer is not None:
            if self._timer_due <= due:
                return
            self._delay_timer.cancel()
        self._timer_due = due
        delay_s = min(max(1, due - now_ms) / 1000, _DELAY_TIMER_MAX_S)
        self._delay_timer = asyncio.get_running_loop().call_later(delay_s, self._on_due)

    def _on_due(self) -> None:
        self._delay_timer = None
        with Contained(self.subscription, "dispatch of what is due"):
            self.wake()
            if self._delayed is not None:
                self._arm_timer(self._delayed)

    def settings_changed(self) -> None:
        """As :meth:`Dispatch.settings_changed`."""
        super().settings_changed()
        self.core.follow_limits(self._limits())

    def _limits(self) -> DispatchLimits:
        return self._config.dispatch_limits(self.subscription.topic.unacked_limits.per_subscription)

    def _make_core(self, consumer: Consumer) -> SharedDispatcher[Consumer]:
        config = self._config
        tracker = self.subscription.redeliveries()
        limits = self._limits()
        budget = self.subscription.services.unacked_budget
        if consumer.type != Key_Shared:
            return SharedDispatcher(limits, tracker, budget=budget, on_freed=self.wake_later)
        if not config.subscription_key_shared_enable:
            raise NotAllowedError("Key_Shared subscription is disabled by broker")
        meta = consumer.key_shared_meta or pb.KeySharedMeta()
        self._key_shared_meta = meta
        selector: StickyKeySelector
        if meta.keySharedMode == pb.STICKY:
            if not meta.hashRanges:
                raise ConsumerAssignError("Ranges for KeyShared policy must not be empty")
            selector = StickyRanges()
        elif config.subscription_key_shared_use_consistent_hashing:
            selector = ConsistentHashRing(config.subscription_key_shared_consistent_hashing_replica_points, murmur3_32)
        else:
            selector = HashRangeAutoSplit()
        return KeySharedDispatcher(
            limits,
            tracker,
            selector,
            allow_out_of_order=meta.allowOutOfOrderDelivery,
            budget=budget,
            on_freed=self.wake_later,
        )


async def _purge(delays: TopicDelays) -> None:
    """Many that waited were acknowledged: forget them, some in each turn of the loop."""
    while delays.purge_step():
        await next_turn()


def _at(ledger: ManagedLedger, position: Position) -> Position:
    """``position``, or where the log goes on if it is the end of a ledger."""
    return ledger.ledgers.next_position(Position(position.ledger_id, position.entry_id - 1))
