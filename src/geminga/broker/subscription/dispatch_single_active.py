"""Dispatch of Exclusive and Failover subscriptions: read for the active consumer, send, repeat."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from geminga.broker.core.dispatch.hash_ranges import StickyRanges, sticky_hash_of
from geminga.broker.core.dispatch.single_active import SingleActiveDispatcher
from geminga.broker.subscription.consumer import NO_EPOCH, Consumer, Exclusive, Failover
from geminga.broker.subscription.dispatch import ROUNDS_MAX, Dispatch, DispatchedSubscription
from geminga.broker.subscription.entry_filter import filter_entries, without_left_out
from geminga.model import Position
from geminga.model.errors import StorageError
from geminga.runtime import Contained
from geminga.wire.pulsar.keys import murmur3_32

if TYPE_CHECKING:
    from geminga.broker.compacted.reads import CompactedReads
    from geminga.broker.subscription.given_back import GivenBack
    from geminga.managed_ledger import Entry
    from geminga.transaction.core.pending_acks import Released


class SingleActiveDispatch(Dispatch):
    """See the module."""

    __slots__ = ("_compacted", "_core", "_given_back", "_pause", "_ranges", "_seen")

    def __init__(self, subscription: DispatchedSubscription, consumer: Consumer) -> None:
        super().__init__(subscription, consumer.type)
        name = subscription.topic.name
        by_index = name.is_partition and not self._config.active_consumer_failover_consistent_hashing
        self._core: SingleActiveDispatcher[Consumer] = SingleActiveDispatcher(
            is_exclusive=consumer.type == Exclusive,
            partition_index=name.partition if by_index else -1,
            topic=str(name),
            hash_of=murmur3_32,
        )
        #: Runs while nobody is sent anything, after the active consumer changed.
        self._pause: asyncio.TimerHandle | None = None
        #: What an Exclusive consumer wants to see of all keys (readers of a key hash range do); None: everything.
        self._ranges: StickyRanges | None = None
        #: The last entry that was sent, or passed over, since the log was read anew; None: none was.
        self._seen: Position | None = None
        #: Of an active consumer that reads what was compacted; None: the active one does not.
        self._compacted: CompactedReads | None = None
        #: While what aborted transactions gave back is sent again; None: nothing is.
        self._given_back: GivenBack | None = None
        self.follow_filters()

    @property
    def consumers(self) -> list[Consumer]:
        """The consumers, best candidate first."""
        return self._core.consumers

    @property
    def active_consumer(self) -> Consumer | None:
        """The consumer that gets the messages."""
        return self._core.active

    def add(self, consumer: Consumer) -> None:
        """A consumer joins; ConsumerBusyError if the type does not allow it."""
        ranges = self._ranges_of(consumer)
        if self._core.add(consumer):
            self._ranges = ranges
            self._activate()
        elif self.type == Failover:
            consumer.notify_active_change(is_active=False)

    def remove(self, consumer: Consumer) -> None:
        """A consumer leaves; what the active one had is sent to the next."""
        if self._core.remove(consumer):
            self._activate()

    def _ranges_of(self, consumer: Consumer) -> StickyRanges | None:
        meta = consumer.key_shared_meta
        if self.type != Exclusive or meta is None or not meta.hashRanges:
            return None
        ranges = StickyRanges()
        ranges.want(consumer, [(r.start, r.end) for r in meta.hashRanges])
        ranges.add(consumer)
        return ranges

    def redeliver(self, consumer: Consumer, positions: Sequence[Position] | None, epoch: int) -> None:
        """All that is not acknowledged comes again, whatever ``positions`` says: order is kept."""
        del positions
        if epoch != NO_EPOCH:
            if epoch < consumer.epoch:
                return
            # Also for one that is sent nothing now: from here on its client drops whatever has an older epoch.
            consumer.start_epoch(epoch)
        if consumer is not self._core.active or self._pause is not None:
            return
        with self.contained:
            self._read_anew()
            self.wake()

    def _read_anew(self) -> None:
        """From the first entry that is not acknowledged, all of it."""
        self._seen = self._given_back = None
        self.reader.rewind()
        self._read_compacted_anew()

    def _read_compacted_anew(self) -> None:
        """The same of what was compacted, if the active consumer reads that."""
        active = self._core.active
        self._leave_compacted()
        if active is not None and active.reads_compacted:
            from geminga.broker.compacted.reads import CompactedReads

            self._compacted = CompactedReads(self.subscription.topic, self.reader.cursor, active.compacted_from)

    def _leave_compacted(self) -> None:
        if self._compacted is not None:
            self._compacted.close()
            self._compacted = None

    def held(self, consumer: Consumer, entries: Iterable[tuple[Position, int]]) -> None:
        """What is sent is not counted here."""

    def settled(self, positions: Sequence[Position]) -> None:
        """As :meth:`held`."""

    def give_back(self, released: Released) -> None:
        """A transaction was aborted: what it held, and nothing else of what was sent, is sent again.

        After a cumulative acknowledgment all is: Pulsar's Java client drops what it prefetched then.
        """
        from geminga.broker.subscription.given_back import GivenBack

        if self._core.active is None or self._pause is not None:
            return  # whoever becomes active is sent all that is not acknowledged
        if released.cumulative is not None:
            self._read_anew()
        elif self._seen is not None:
            if self._given_back is None:
                self._given_back = GivenBack(self._seen)
            self._given_back.until = self._seen
            self._given_back.add(released.acks)
            self.reader.rewind()
            self._read_compacted_anew()
        self.wake()

    def close(self) -> None:
        """No more dispatch."""
        super().close()
        self._leave_compacted()
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None

    def wake(self) -> None:
        """Read and send as long as the active consumer wants and there is something."""
        if self._is_waking or self.reader.is_busy or self._is_closed or self._retry is not None:
            self._is_woken = True
            return
        self._is_waking = self._is_woken = True
        rounds = 0
        while not self.reader.is_busy and self._pause is None and not self._is_closed and self._retry is None:
            wanted = self._core.entries_wanted(self._entries_max, self._batches_least)
            if not wanted or (self._nothing_read and not self._is_woken):
                break
            self._is_woken = self._nothing_read = False
            compacted = self._compacted
            if not self.reader.cursor.reading.has_more_entries and not (compacted is not None and compacted.has_more):
                self._at_end()
                break
            if rounds == ROUNDS_MAX:
                self.wake_later()
                break
            rounds += 1
            bytes_max = self._bytes_max
            if self._turns is not None:
                wanted, bytes_max = self._turns.room(wanted, bytes_max)
                if not wanted:
                    break
                self._turns.reserve(wanted)
            self.reader.read(wanted, bytes_max, self._on_read, compacted=compacted)
        self._is_waking = False

    def _on_read(self, result: Sequence[Entry] | StorageError) -> None:
        if isinstance(result, StorageError):
            self._read_failed(result)
            return
        active = self._core.active
        if self._is_closed or active is None:
            self._read_anew()
            return
        self._failures = 0
        if result and active.connection.output.is_held:
            # It was read before the shortage, and is read again when there is room: that wakes the consumer.
            self.reader.go_back_to(result[0].position)
            if active.can_receive():
                self.wake_later()
            return
        self._nothing_read = not result
        if result:
            now_ms = self.subscription.now_ms()
            unwanted: list[Position] = []
            cursor = self.reader.cursor
            ranges = self._ranges
            hashes = sticky_hash_of if ranges is not None else None
            # What was compacted may be another entry than the one that others got there.
            recent = self.subscription.recent_candidates() if self._compacted is None else None
            entries = filter_entries(
                result,
                cursor,
                sticky_hash_of=hashes,
                delayed=None,
                unwanted=unwanted,
                recent=recent,
                hides=self.subscription.topic.hides,
                held=self.subscription.transactions.held,
            )
            last = result[-1].position
            if self._compacted is not None:
                entries = without_left_out(entries)
            if self._given_back is not None:
                entries = self._given_back.taken_from(entries)
                if self._given_back.is_over(last):
                    self._given_back = None
            if self._seen is None or last > self._seen:
                self._seen = last
            if ranges is not None:
                # Left unacknowledged, as Pulsar leaves them: they are somebody else's.
                entries = [entry for entry in entries if ranges.select(entry.sticky_hash) is not None]
            if entries:
                active.note_sent(sum([entry.message_count for entry in entries]), len(entries))
                active.send(entries, redeliveries=None, now_ms=now_ms)
                self._sent(entries)
            if unwanted:
                if self.subscription.snapshots is not None:
                    self.subscription.snapshots.passed_over(result, unwanted)
                cursor.acknowledge(unwanted)
        if not self._is_waking and (result or self._is_woken):
            self.wake()

    def _activate(self) -> None:
        """There is a new active consumer, or none.

        As in Pulsar each one of Failover waits ``activeConsumerFailoverDelayTimeMillis`` before it is told and sent
        anything, from the first change on: what the one before holds may still be acknowledged, and of a group that
        starts together the first to come seldom stays the active one.
        """
        if self._is_closed:  # all of them go
            self.reader.rewind()
            return
        self._read_anew()
        delay_ms = self._config.active_consumer_failover_delay_ms
        if self.type != Failover or delay_ms <= 0:
            if self._core.active is not None:
                self._start_active()
        elif self._pause is None and self._core.active is not None:
            self._pause = asyncio.get_running_loop().call_later(delay_ms / 1000, self._on_pause_over)

    def _on_pause_over(self) -> None:
        self._pause = None
        with Contained(self.subscription, "the change of the active consumer"):
            self._read_anew()
            self._start_active()

    def _start_active(self) -> None:
        active = self._core.active
        if self.type == Failover:
            for consumer in self._core.consumers:
                consumer.notify_active_change(is_active=consumer is active)
        self.wake()
