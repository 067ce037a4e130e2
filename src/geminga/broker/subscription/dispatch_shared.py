"""Dispatch of Shared and Key_Shared subscriptions: the core divides, this reads, filters, sends and keeps time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from geminga.broker.core.dispatch.hash_ranges import (
    ConsistentHashRing,
    HashRangeAutoSplit,
    StickyKeySelector,
    StickyRanges,
)
from geminga.broker.core.dispatch.key_shared import KeySharedDispatcher
from geminga.broker.core.dispatch.redelivery import RedeliveryCounts
from geminga.broker.core.dispatch.shared import ENTRIES_MAX, DispatchLimits, ReadAgain, ReadOn, SharedDispatcher
from geminga.broker.subscription.consumer import Consumer, Key_Shared, check_key_policy
from geminga.broker.subscription.cursor_reader import ReplayReads
from geminga.broker.subscription.dispatch import ROUNDS_MAX, Dispatch, DispatchedSubscription
from geminga.broker.subscription.due_messages import DueMessages
from geminga.broker.subscription.entry_filter import filter_entries, key_hash
from geminga.broker.subscription.limits import UnackedLimits
from geminga.model import LATEST, Position
from geminga.model.errors import ConsumerAssignError, NotAllowedError, StorageError
from geminga.runtime import get_logger
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.keys import murmur3_32

if TYPE_CHECKING:
    from geminga.broker.subscription.dispatch import StageMaker
    from geminga.managed_ledger import Entry, ManagedCursor
    from geminga.transaction.core.pending_acks import Released


_log = get_logger(__name__)

#: A subscription that is paused again and again is named in the log as often.
PAUSE_REPEAT_S: Final = 60.0


class SharedSubscription(DispatchedSubscription, Protocol):
    """What dispatch by entry asks for besides."""

    @property
    def delivery_tick_ms(self) -> int:
        """How exactly it wants delayed messages."""
        ...

    @property
    def redeliveries(self) -> RedeliveryCounts:
        """Redelivery counts, which outlive the consumers."""
        ...


class AckPause:
    """Nothing new is sent while there are more ranges of acknowledged messages than a broker keeps.

    What lies before the last acknowledged message is sent all the same: without it the ranges never grow together.
    """

    __slots__ = ("_cursor", "_subscription", "_told_s", "is_on")

    def __init__(self, subscription: SharedSubscription, cursor: ManagedCursor) -> None:
        self._subscription = subscription
        self._cursor = cursor
        #: When the log was last told, on the monotonic clock.
        self._told_s = -PAUSE_REPEAT_S
        #: Whether dispatch stands still for it: acknowledgments wake it.
        self.is_on = False

    def is_due(self) -> bool:
        """Whether what comes next has to wait, as far as is acknowledged now."""
        most = self._subscription.topic.ack_ranges_max
        if most is None:
            self.is_on = False
            return False
        acked, (ledger_id, entry_id) = self._cursor.state.acked, self._cursor.read_position
        was_on, ranges = self.is_on, acked.range_count
        self.is_on = (
            ranges > most and acked.find_away(ledger_id) is None and not acked.count_behind(ledger_id, entry_id - 1)
        )
        if self.is_on and not was_on:
            self._tell(ranges, most)
        return self.is_on

    def _tell(self, ranges: int, most: int) -> None:
        subscription = self._subscription
        now_s = subscription.services.runtime.clock.monotonic()
        if now_s - self._told_s >= PAUSE_REPEAT_S:
            self._told_s = now_s
            text = "%s subscription %s: nothing new is sent while its acknowledgments have %d ranges, more than %d"
            _log.warning(text, subscription.topic.name, subscription.name, ranges, most)


def _nothing() -> None:
    """It is over: nobody is told."""


class SharedDispatch(Dispatch):
    """See the module."""

    __slots__ = (
        "_core",
        "_key_shared_meta",
        "_shared",
        "due",
        "pause",
        "replays",
    )

    def __init__(self, subscription: SharedSubscription, consumer: Consumer) -> None:
        super().__init__(subscription, consumer.type)
        self._shared = subscription
        #: The policy of the first consumer, which all must have; None for Shared.
        self._key_shared_meta: pb.KeySharedMeta | None = None
        self._core: SharedDispatcher[Consumer] = self._make_core(consumer)
        topic = subscription.topic
        #: Whether what is new waits until more is acknowledged.
        self.pause = AckPause(subscription, self.reader.cursor)
        #: Reads what is to be sent again.
        self.replays = ReplayReads(
            self.reader.cursor,
            topic.ledger,
            self._config,
            subscription,
            f"{topic.name} subscription {subscription.name}",
            keeps_order=isinstance(self._core, KeySharedDispatcher),
            done=partial(self._on_read, is_again=True),
            postpone=self._core.postpone,
            wake=subscription.wake,
        )
        delays = topic.delays()
        #: Its delayed messages; None: delayed delivery is off.
        self.due: DueMessages | None = None
        if delays is not None:
            self.due = DueMessages(
                delays,
                self._core,
                self.reader.cursor,
                topic.ledger,
                subscription,
                now_ms=subscription.now_ms,
                is_kept_up=self._is_kept_up,
                on_due=self.wake,
            )
        self.follow_filters()

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

    def add(self, consumer: Consumer) -> None:
        """A consumer joins; ConsumerAssignError or ConsumerBusyError if its key policy does not fit."""
        if isinstance(self._core, KeySharedDispatcher):
            meta = consumer.key_shared_meta or pb.KeySharedMeta()
            check_key_policy(self._key_shared_meta, meta)
            selector = self._core.selector
            if isinstance(selector, StickyRanges):
                selector.want(consumer, [(r.start, r.end) for r in meta.hashRanges])
        was_empty = not self._core.consumers
        consumer.limit_unacked(self.subscription.topic.unacked_limits.per_consumer)
        self._core.add(consumer)
        if was_empty:
            self.reader.rewind()
            if self.due is not None:
                self.due.attach(self._shared.delivery_tick_ms)

    def remove(self, consumer: Consumer) -> None:
        """A consumer leaves: what it holds goes to the others, or is read anew when there are none."""
        self._core.remove(consumer)
        if not self._core.consumers:
            if self.due is not None:
                self.due.detach()
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
        with self.contained:
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
        wants_wake = self.pause.is_on
        for position in positions if self._core.consumers else ():
            wants_wake = self._core.acknowledge(self._core.consumers[0], position) or wants_wake
        if wants_wake:
            self.wake_later()

    def give_back(self, released: Released) -> None:
        """A transaction holds these entries, or parts of them, no more: they are sent again."""
        cursor = self.reader.cursor
        for ack in released.acks:
            position = ack.position
            owner = self._core.owner(position)
            if owner is not None:
                owner.messages_redelivered += self._core.redeliver(owner, [position])
            elif position < cursor.read_position and not cursor.state.is_acknowledged(position):
                if self.due is not None:
                    self.due.ask_again()  # it may have been held before its time
                self._core.unhold(position)
        self.wake_later()

    def acknowledged_up_to(self, position: Position) -> None:
        """The cursor was moved on past ``position``."""
        self._core.acknowledge_up_to(position)
        self.wake_later()

    def limit_unacked(self, limits: UnackedLimits) -> None:
        """Obey other limits from now on; who stood still and is within them goes on."""
        freed = self._core.limit_unacked(limits.per_subscription)
        for consumer in self._core.consumers:
            freed = consumer.limit_unacked(limits.per_consumer) or freed
        if freed or self.pause.is_on:
            self.wake_later()

    def pending_count(self, consumer: Consumer, position: Position) -> int:
        """Unacknowledged messages of an entry, whoever holds it; 0 if nobody does."""
        count = consumer.pending.count(position)
        if count:
            return count
        owner = self._core.owner(position)
        return 0 if owner is None else owner.pending.count(position)

    def close(self) -> None:
        """No more dispatch."""
        super().close()
        self.replays.close()
        self.core.on_freed = _nothing
        if self.due is not None:
            self.due.close()

    def wake(self) -> None:
        """Read and send as long as somebody wants and there is something."""
        if self._is_waking or self._is_reading or self._is_closed or self._retry is not None:
            self._is_woken = True
            return
        self._is_waking = self._is_woken = True
        rounds, due = 0, self.due
        while not (self._is_reading or self._is_closed or self._retry is not None):
            if due is not None:
                due.take()
            if self._stage is not None and self._stage.is_full:
                break
            entries_max, bytes_max = ENTRIES_MAX, self._bytes_max
            if self._turns is not None and self._has_more():
                entries_max, bytes_max = self._turns.room(entries_max, bytes_max)
                if not entries_max:
                    break
            core = self._core
            plan = core.next_read(entries_max) if self.replays.put_off is None else core.next_read_on(entries_max)
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
                self.replays.read(plan.positions, bytes_max)
                continue
            if due is not None:
                due.skip_waiting()
            if not self.reader.cursor.reading.has_more_entries:
                self._at_end()
                break
            if self.pause.is_due():
                break
            self._reserve(plan.entries_max)
            self._read_on(plan, bytes_max)
        self._is_waking = False
        if due is not None:
            due.arm()

    @property
    def _is_reading(self) -> bool:
        return self.reader.is_busy or self.replays.is_busy

    def _is_kept_up(self) -> bool:
        return self._is_reading or self._retry is not None

    def _has_more(self) -> bool:
        """Whether there may be anything to send, and somebody to send it to."""
        if not self._core.replay and not self.reader.cursor.reading.has_more_entries:
            return False
        return self._core.receivers.is_any()

    def _reserve(self, entries: int) -> None:
        if self._turns is not None:
            self._turns.reserve(entries)

    def _read_on(self, plan: ReadOn, bytes_max: int) -> None:
        max_position = LATEST if self.due is None else self.due.last_to_read(plan.entries_max)
        done = partial(self._on_read, is_again=False)
        self.reader.read(plan.entries_max, bytes_max, done, max_position=max_position)

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
            delayed=None if self.due is None else self.due.of_read(result, is_again=is_again),
            unwanted=unwanted,
            recent=self.subscription.recent_candidates(),
            hides=self.subscription.topic.hides,
            held=self.subscription.transactions.held,
        )
        groups = core.assign(entries)
        for consumer, group in groups:
            consumer.send(group, redeliveries=core.tracker, now_ms=now_ms)
        if self._turns is not None:
            self._sent([entry for _, group in groups for entry in group])
        if unwanted:
            if self.subscription.snapshots is not None:
                self.subscription.snapshots.passed_over(result, unwanted)
            self.reader.cursor.acknowledge(unwanted)
        if self._is_waking:
            return
        due = self.due
        if result or is_again or self._is_woken or (due is not None and due.is_any_due):
            self.wake()
        elif due is not None:
            due.arm()

    def follow_filters(self, make: StageMaker | None = None) -> None:
        """As :meth:`Dispatch.follow_filters`: what is sent again is judged, too."""
        if make is None and self.subscription.topic.filters is not None:
            from geminga.broker.filters.stage import SharedFilterStage

            make = partial(
                SharedFilterStage,
                self.subscription,
                log=self.reader,
                replays=self.replays,
                core=self._core,
                key_hash=key_hash,
                comes_again=_nothing if self.due is None else self.due.ask_again,
            )
        super().follow_filters(make)

    def settings_changed(self) -> None:
        """As :meth:`Dispatch.settings_changed`."""
        super().settings_changed()
        self.core.follow_limits(self._limits())

    def _limits(self) -> DispatchLimits:
        return self._config.dispatch_limits(self.subscription.topic.unacked_limits.per_subscription)

    def _make_core(self, consumer: Consumer) -> SharedDispatcher[Consumer]:
        config = self._config
        tracker = self._shared.redeliveries.tracker()
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
