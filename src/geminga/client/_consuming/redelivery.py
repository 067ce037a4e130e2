"""What one consumer of one topic wants delivered again: negative acknowledgments, ack timeouts, dead letters.

On Shared and Key_Shared single entries are asked for; on the other types only everything, to keep the order. An entry
that was redelivered as often as the dead-letter policy allows goes to the dead-letter topic instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Final, Protocol

from geminga.client._api.message_id import MessageId
from geminga.client._consuming.subscription import Subscription
from geminga.client._messages.acks_in_transactions import GivenBack
from geminga.client._messages.entry_batch import EntryBatch
from geminga.client.consumer_rules.negative_acks import NegativeAcks
from geminga.client.consumer_rules.unacked_tracker import UnackedTracker
from geminga.model import TopicName
from geminga.runtime import Raised, attempt_await, get_logger, spawn

_log = get_logger(__name__)

#: Milliseconds until an entry comes again that could not be buried: doubled with each try, from the first to the last.
UNBURIED_FIRST_MS: Final = 100
UNBURIED_MAX_MS: Final = 60_000

EntryKey = tuple[int, int]


class Asking(Protocol):
    """Who asks the broker for entries again: the consumer of one topic."""

    def redeliver(self, keys: Iterable[EntryKey]) -> None:
        """Ask for entries; what was prefetched of them is dropped."""
        ...

    def redeliver_all(self) -> None:
        """Ask for everything that is not acknowledged."""
        ...

    def drop_entries(self, keys: Collection[EntryKey]) -> None:
        """Forget what was prefetched of them."""
        ...

    def redeliver_returned(self, returned: Sequence[GivenBack]) -> None:
        """Transactions were aborted: ask for what they had acknowledged, in its order."""
        ...

    def drop_rest(self, batches: Collection[EntryBatch]) -> None:
        """Forget what was prefetched of these, and not of what came of the same entries since."""
        ...

    def acknowledge_buried(self, entry: EntryBatch, index: int) -> None:
        """A message of an entry is in the dead-letter topic: it need not come again."""
        ...


class _Nobody:
    """Nothing is asked for any more: what was not acknowledged comes to somebody else."""

    def redeliver(self, keys: Iterable[EntryKey]) -> None:
        """See :class:`Asking`."""

    def redeliver_all(self) -> None:
        """See :class:`Asking`."""

    def drop_entries(self, keys: Collection[EntryKey]) -> None:
        """See :class:`Asking`."""

    def redeliver_returned(self, returned: Sequence[GivenBack]) -> None:
        """See :class:`Asking`."""

    def drop_rest(self, batches: Collection[EntryBatch]) -> None:
        """See :class:`Asking`."""

    def acknowledge_buried(self, entry: EntryBatch, index: int) -> None:
        """See :class:`Asking`."""


class Redelivery:
    """The trackers of one consumer of one topic, with their timers."""

    __slots__ = (
        "_asking",
        "_dead",
        "_era",
        "_given_back",
        "_kept_bytes",
        "_loop",
        "_nack_timer",
        "_nack_timer_ms",
        "_nacks",
        "_on_kept",
        "_subscription",
        "_tick_timer",
        "_topic",
        "_unacked",
        "_unburied",
        "has_timeout",
    )

    def __init__(
        self, subscription: Subscription, topic: TopicName, asking: Asking, on_kept: Callable[[int], None]
    ) -> None:
        """``on_kept`` hears of bytes more, or fewer, that ids take which wait to be asked for again."""
        options = subscription.options
        self._subscription = subscription
        self._topic = topic
        self._asking: Asking = asking
        self._on_kept: Callable[[int], None] | None = on_kept
        self._loop = asyncio.get_running_loop()
        self._nacks = NegativeAcks(options.negative_ack_redelivery_delay_ms, options.negative_ack_redelivery_backoff)
        self._nack_timer: asyncio.TimerHandle | None = None
        #: When that timer fires.
        self._nack_timer_ms = 0.0
        #: Whether entries time out: :meth:`received` is of use.
        self.has_timeout = options.unacked_messages_timeout_ms > 0
        self._unacked: UnackedTracker | None = None
        if options.unacked_messages_timeout_ms:
            timeout_ms = options.unacked_messages_timeout_ms
            tick_ms = min(options.unacked_messages_tick_ms, timeout_ms)
            self._unacked = UnackedTracker(timeout_ms, tick_ms, options.ack_timeout_redelivery_backoff)
        #: Of ids that wait, as was told.
        self._kept_bytes = 0
        self._tick_timer: asyncio.TimerHandle | None = None
        #: Delivered entries that will not be redelivered once more.
        self._dead: dict[EntryKey, EntryBatch] = {}
        #: When those are asked for that could not be buried.
        self._unburied: dict[EntryKey, asyncio.TimerHandle] = {}
        #: How often everything came again.
        self._era = 0
        #: Of transactions that were aborted in this turn.
        self._given_back: list[GivenBack] = []

    # ---- what happens to entries

    def may_deliver(self, entry: EntryBatch) -> bool:
        """False: it was redelivered too often and goes to the dead-letter topic now."""
        dead_letters = self._subscription.dead_letters
        if dead_letters is None or entry.redelivery_count < dead_letters.redeliveries_max:
            return True
        self._dead[entry.key] = entry
        if entry.redelivery_count == dead_letters.redeliveries_max:
            return True
        self._bury([entry.key])
        return False

    def received(self, key: EntryKey, redelivery_count: int) -> None:
        """The application received the first message of an entry: its ack timeout begins."""
        unacked = self._unacked
        if unacked is not None:
            unacked.add(key, redelivery_count)
            if self._tick_timer is None:
                self._tick_timer = self._loop.call_later(unacked.tick_ms / 1000, self._on_tick)

    def acknowledged(self, key: EntryKey) -> None:
        """All of an entry was acknowledged."""
        if self._unacked is not None:
            self._unacked.remove(key)
        if self._nacks.count and self._nacks.discard(key):
            self._tell_kept()
        if self._dead:
            self._dead.pop(key, None)

    def acknowledged_up_to(self, key: EntryKey) -> None:
        """Everything up to an entry was acknowledged."""
        if self._unacked is not None:
            self._unacked.remove_up_to(key)
        for dead in [dead for dead in self._dead if dead <= key]:
            del self._dead[dead]

    def negative_acks(self, key: EntryKey, redelivery_count: int) -> None:
        """A message of an entry was acknowledged negatively."""
        if self._unacked is not None:
            self._unacked.remove(key)
        self._nacks.add(key, self._loop.time() * 1000, redelivery_count)
        self._arm_nacks()
        self._tell_kept()

    def given_back(self, given: GivenBack) -> None:
        """A transaction was aborted.

        On Shared and Key_Shared the broker sends what it gave back to whom it chooses, of a batch all that is not
        acknowledged: what is here of the rest of it would be there twice.
        """
        if self._subscription.options.shares_messages:
            if given.batches:
                self._asking.drop_rest(given.batches)
            return
        if not self._given_back:
            # A transaction may have acknowledged with many commands. Whoever waits for the abort goes on after this.
            self._loop.call_soon(self._on_given_back)
        self._given_back.append(given)

    def _on_given_back(self) -> None:
        given, self._given_back = self._given_back, []
        self._asking.redeliver_returned(given)

    def clear(self) -> None:
        """Everything comes again anyway."""
        self._nacks.clear()
        self._tell_kept()
        if self._unacked is not None:
            self._unacked.clear()
        self._dead.clear()
        self._era += 1
        for timer in (self._nack_timer, self._tick_timer, *self._unburied.values()):
            if timer is not None:
                timer.cancel()
        self._nack_timer = self._tick_timer = None
        self._unburied.clear()

    def close(self) -> None:
        """The consumer is closed, and not known here any more."""
        self.clear()
        self._asking = _Nobody()
        self._on_kept = None

    def _tell_kept(self) -> None:
        was, self._kept_bytes = self._kept_bytes, self._nacks.size_bytes
        if self._on_kept is not None and self._kept_bytes != was:
            self._on_kept(self._kept_bytes - was)

    # ---- timers

    def _arm_nacks(self) -> None:
        due_ms = self._nacks.next_due_ms
        if due_ms is None:
            return
        if self._nack_timer is not None:
            if self._nack_timer_ms <= due_ms:
                return
            self._nack_timer.cancel()
        self._nack_timer_ms = due_ms
        self._nack_timer = self._loop.call_at(due_ms / 1000, self._on_nacks_due)

    def _on_nacks_due(self) -> None:
        self._nack_timer = None
        # The timer may be early by the clock's resolution.
        keys = self._nacks.due(max(self._loop.time() * 1000, self._nack_timer_ms))
        self._arm_nacks()
        self._tell_kept()
        if keys:
            if self._subscription.interceptors is not None:
                self._subscription.interceptors.refused(self._ids(keys))
            self._redeliver(keys)

    def _on_tick(self) -> None:
        self._tick_timer = None
        unacked = self._unacked
        if unacked is None:
            return
        keys = unacked.tick()
        if len(unacked):
            self._tick_timer = self._loop.call_later(unacked.tick_ms / 1000, self._on_tick)
        if keys:
            if self._subscription.interceptors is not None:
                self._subscription.interceptors.timed_out(self._ids(keys))
            self._redeliver(keys)

    def _ids(self, keys: Sequence[EntryKey]) -> list[MessageId]:
        topic = self._topic
        return [MessageId(topic.partition, *key, topic_name=str(topic)) for key in keys]

    def _redeliver(self, keys: list[EntryKey]) -> None:
        dead = [key for key in keys if key in self._dead]
        if dead:
            self._bury(dead)
            keys = [key for key in keys if key not in self._dead and key not in dead]
        if not keys:
            return
        if self._subscription.options.shares_messages:
            self._asking.redeliver(keys)
        else:
            self._asking.redeliver_all()

    def _bury(self, keys: list[EntryKey]) -> None:
        entries = [self._dead.pop(key) for key in keys]
        self._asking.drop_entries(frozenset(keys))
        spawn(self._send_to_dead_letters(entries), name=f"dead letters of {self._topic}")

    async def _send_to_dead_letters(self, entries: list[EntryBatch]) -> None:
        dead_letters, era = self._subscription.dead_letters, self._era
        assert dead_letters is not None
        for entry in entries:
            assert entry.source is not None
            is_held = partial(entry.source.acks.in_transactions.is_held, entry.key)
            burying = dead_letters.bury(entry, partial(self._buried, entry), is_held)
            buried = await attempt_await(burying)
            if isinstance(buried, Raised):
                _log.error("dead letters of %s: %s", self._topic, buried, exc_info=buried.error)
            if buried is not True and era == self._era:
                # It could not be stored there: nothing is lost, it comes again.
                self._come_again(entry, entry.redelivery_count - dead_letters.redeliveries_max)

    def _buried(self, entry: EntryBatch, index: int) -> None:
        self._asking.acknowledge_buried(entry, index)

    def _come_again(self, entry: EntryBatch, tries: int) -> None:
        """Not at once: where nothing can be stored it would go round as fast as the broker can send it."""
        key = entry.key
        delay_ms = min(UNBURIED_FIRST_MS << min(tries, 16), UNBURIED_MAX_MS)
        self._unburied[key] = self._loop.call_later(delay_ms / 1000, self._on_unburied_due, key)

    def _on_unburied_due(self, key: EntryKey) -> None:
        del self._unburied[key]
        self._asking.redeliver([key])
