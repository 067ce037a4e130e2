"""Transactions that publish to a topic: the shell around :mod:`geminga.transaction.core.buffer`.

A topic without transactions pays nothing: the part is idle. Before the first message of a transaction is stored a
snapshot is, so that whoever loads the topic next knows that its log must be read. Messages of open transactions hold
readers back from the moment they come.

After a write of which nobody knows whether it was stored the topic is closed: reading its log again tells, and until
then nobody reads what may be uncommitted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import ClassVar, Final

from geminga.broker.topic.buffer_snapshot import Beginnings, find_snapshot, remove_snapshot, replayed
from geminga.broker.topic.parts import PartTopic, Stats, TopicPart
from geminga.broker.topic.ports import TRANSACTIONS_PROPERTY
from geminga.broker.topic.publish import PublishBatch
from geminga.broker.topic.transaction_ends import TransactionEnds
from geminga.managed_ledger import AppendResult, Entry
from geminga.managed_ledger.replaying import replay
from geminga.managed_ledger.rules.unreadable import Gap, is_lost
from geminga.model.errors import GemingaError, LedgerFencedError, NotAllowedError, TopicTerminatedError
from geminga.model.position import LATEST, Position
from geminga.model.txn_id import TxnId
from geminga.runtime import Turns, get_logger, spawn
from geminga.transaction.core.buffer import TransactionBufferState
from geminga.transaction.core.held_back import Hold
from geminga.transaction.core.visible_end import VisibleEnd
from geminga.transaction.ports import BufferSnapshot, BufferSnapshots, Registrations
from geminga.transaction.snapshot_keeping import SnapshotKeeping
from geminga.transaction.strays import AGAIN_MAX_MS, StrayWatch, check_is_taking
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.markers import transaction_of

_log = get_logger(__name__)

#: Entries, and bytes, that one read of a recovery brings.
RECOVERY_ENTRIES: Final = 500
RECOVERY_BYTES: Final = 4 << 20
#: Milliseconds at least from a change to a snapshot, for each aborted transaction in it: some 20 times what it costs.
SNAPSHOT_MS: Final = 0.1
#: Those taken from a snapshot in one turn of the loop.
RESTORED_PER_TURN: Final = 1_000
_marker: Final = attrgetter("marker")


class TransactionBuffer(TopicPart):
    """See the module."""

    name: ClassVar[str] = "transactionBuffer"

    __slots__ = (
        "_beginning",
        "_ends",
        "_has_gaps",
        "_in_doubt",
        "_is_hiding",
        "_keeping",
        "_registrations",
        "_since",
        "_snapshots",
        "_strays",
        "_topic",
        "_visible",
        "recovered_ms",
        "recovering_ms",
        "state",
    )

    def __init__(self, topic: PartTopic) -> None:
        self._topic = topic
        services, name = topic.services, str(topic.name)
        snapshots, registrations = services.snapshots, services.registrations
        assert snapshots is not None
        assert registrations is not None
        self._snapshots: BufferSnapshots = snapshots
        self._registrations: Registrations = registrations
        #: A transaction was aborted: entries are looked at.
        self._is_hiding = False
        #: None: the topic never had a transaction.
        self.state: TransactionBufferState | None = None
        #: Since when each open transaction holds readers back, ms since the epoch, and who published its first message.
        self._since: Beginnings = {}
        #: How far readers may see.
        self._visible: VisibleEnd[PublishBatch] = VisibleEnd(topic.ledger.extent.readable_position)
        #: Stores what spares the next load reading the log.
        self._keeping = SnapshotKeeping(name, snapshots, services.runtime.clock, topic, self._take_snapshot)
        #: Writes their ends.
        self._ends = TransactionEnds(
            topic,
            self._visible,
            save=self._keeping.save,
            ended=self._marked,
            hide=self._hide,
            lost=self._lose,
        )
        #: Asks what becomes of open transactions.
        self._strays = StrayWatch(self._undoubted, name, registrations, self._abort_stray, name=name, part=topic)
        #: Open ones whose end may be in entries that can not be read: they hold readers until that is known.
        self._in_doubt: set[TxnId] = set()
        #: There are such entries: no snapshot passes them.
        self._has_gaps = False
        #: While the first snapshot is being written.
        self._beginning: asyncio.Lock | None = None
        #: When the log began to be read, and had been read; ms since the epoch, 0: never.
        self.recovering_ms = self.recovered_ms = 0

    @classmethod
    def is_wanted(cls, topic: PartTopic) -> bool:
        """Where transactions are on, for topics of users."""
        return topic.services.snapshots is not None and not topic.name.is_system

    @property
    def is_idle(self) -> bool:
        """There was no transaction yet."""
        return self.state is None

    # ---- life

    async def load(self) -> None:
        """From the newest snapshot, read the log forward. Raises GemingaError."""
        snapshot = await find_snapshot(self._snapshots, self._topic)
        if snapshot is None:
            return
        self.recovering_ms = self._topic.services.runtime.clock.wall_ms()
        state = TransactionBufferState()
        turns = Turns(self._topic.services.runtime.clock, steps_max=RESTORED_PER_TURN)
        for txn_id, marker in snapshot.aborts:
            if turns.is_over():
                await turns.next()
            state.restored(txn_id, marker)
        ledger = self._topic.ledger
        position = max(ledger.ledgers.next_position(snapshot.position), ledger.ledgers.first_position)

        def take(entries: Sequence[Entry]) -> None:
            for entry in entries:
                replayed(state, self._since, entry)

        def holed(gap: Gap) -> None:
            # What is only out of reach is waited for, and the topic with it: a transaction may have begun there, and a
            # reader would see it before its end.
            if not is_lost(gap.error):
                raise gap.error
            # The same where a lost one comes back: it is not read before the next load knows what is in it.
            ledger.stored.withheld[gap.ledger_id] = gap.error
            self._has_gaps = True
            self._in_doubt.update(state.open)

        await replay(ledger, position, take, holed, entries_max=RECOVERY_ENTRIES, bytes_max=RECOVERY_BYTES)
        self.state = state
        self._is_hiding = bool(state.aborted)
        self._visible.told = ledger.extent.last_confirmed_position
        self.recovered_ms = self._topic.services.runtime.clock.wall_ms()
        if state.open:
            self._topic.services.watch_held(self)
            self._strays.watch(first_ms=0)

    def _undoubted(self) -> list[TxnId]:
        """Open ones of which their coordinator may say how they ended."""
        return [] if self.state is None else [each for each in self.state.open if each not in self._in_doubt]

    async def _abort_stray(self, txn_id: TxnId) -> None:
        if self.state is not None:
            await self._ends.end(self.state, txn_id, commit=False, has_gaps=self._has_gaps)

    async def begin(self) -> TransactionBufferState:
        """Be ready for messages of transactions. Raises GemingaError."""
        ledger = self._topic.ledger
        if self.state is None or TRANSACTIONS_PROPERTY not in ledger.stored.properties:
            if self._beginning is None:
                self._beginning = asyncio.Lock()
            async with self._beginning:
                if TRANSACTIONS_PROPERTY not in ledger.stored.properties:
                    await ledger.stored.add_properties({TRANSACTIONS_PROPERTY: "true"})
                if self.state is None:
                    await self._keeping.save(BufferSnapshot(ledger.extent.last_confirmed_position))
                    self.state = TransactionBufferState()
                    # Nothing of a transaction was taken until now.
                    self._visible.told = self._topic.ledger.extent.readable_position
                    self._topic.parts.idleness_changed()
        return self.state

    async def close(self) -> None:
        """Save what spares the next load reading the log."""
        self._stop()
        if self.state is not None and self.state.changes and self._may_save:
            await self._keeping.try_to_save(self._snapshot(self.state))

    def drop(self) -> None:
        """Nothing is saved: the next load reads the log."""
        self._stop()

    async def delete(self) -> None:
        """The snapshot goes with the topic."""
        self._stop()
        if self.state is not None:
            await remove_snapshot(self._snapshots, self._topic)

    @property
    def _may_save(self) -> bool:
        """Whether it is known what is stored, all of it."""
        return not self._ends.is_lost and not self._has_gaps

    def _snapshot(self, state: TransactionBufferState) -> BufferSnapshot:
        aborts = tuple(zip(state.aborted, map(_marker, state.aborted.values()), strict=True))
        position = self._visible.settled(state.first_held, self._topic.ledger.ledgers.previous_position)
        return BufferSnapshot(position, aborts)

    def _take_snapshot(self) -> BufferSnapshot | None:
        if self.state is None or not self._may_save:
            return None
        self.state.changes = 0
        # What is forgotten here keeps the aborted transactions as few as the log's ledgers have.
        self.state.trimmed(self._topic.ledger.ledgers.first_position.ledger_id)
        self._hide()
        return self._snapshot(self.state)

    def _stop(self) -> None:
        self._keeping.stop()
        self._strays.stop()

    # ---- publishing

    def is_ready_for(self, txn_id: TxnId) -> bool:
        """As :class:`TakesTransactions` says."""
        if self.state is None or TRANSACTIONS_PROPERTY not in self._topic.ledger.stored.properties:
            # The property alone may say that the log is to be read, where snapshots are lost.
            return False
        return txn_id in self.state.open or self._registrations.standing(txn_id, str(self._topic.name)) is not None

    async def get_ready_for(self, txn_id: TxnId) -> None:
        """As :class:`TakesTransactions` says."""
        name = str(self._topic.name)
        check_is_taking(await self._registrations.find_standing(txn_id, name), txn_id, name)
        await self.begin()

    def check_may_publish(self, txn_id: TxnId) -> None:
        """Raise NotAllowedError if the transaction is over, being ended, or not one that this topic will hear of."""
        self._ends.check_is_taking(txn_id)
        if self.state is None:
            raise NotAllowedError(f"Topic {self._topic.name} was not prepared for transactions")
        self.state.check_may_publish(txn_id)
        if txn_id not in self.state.open:
            name = str(self._topic.name)
            standing = self._registrations.standing(txn_id, name)
            if standing is not None:  # else it was asked, before it was ready
                check_is_taking(standing, txn_id, name)

    def admit(self, batch: PublishBatch) -> Iterable[PublishBatch]:
        """Hold readers back before a message of a transaction is where they could get it."""
        if batch.transaction is not None and self.state is not None:
            self._visible.comes(batch, TxnId(*batch.transaction))
            if not self.state.open:
                self._topic.parts.limit_moved()
        return (batch,)

    def stored(self, batch: PublishBatch, result: AppendResult) -> None:
        """From now on the message itself holds readers back."""
        self._visible.told = Position(result.ledger_id, result.first_entry_id + result.count - 1)
        txn_id = self._visible.coming(batch)
        if txn_id is None or self.state is None:
            return
        before = self.state.first_held
        self.state.stored(txn_id, Position(result.ledger_id, result.first_entry_id))
        if txn_id not in self._since and txn_id in self.state.open:
            self._since[txn_id] = (self._topic.services.runtime.clock.wall_ms(), batch.producer.name)
            self._topic.services.watch_held(self)
            self._strays.watch(first_ms=AGAIN_MAX_MS)
        if batch.is_answered:
            self._ends.has_come(batch)
        self._limit_moved_since(before)

    def hold(self) -> Hold | None:
        """The transaction that readers wait for, as :class:`HoldsBack` says."""
        if self.state is None or not self.state.open or self._strays.is_stopped:
            return None
        txn_id = next(iter(self.state.open))
        since_ms, producer = self._since[txn_id]
        # Of those from before the load a client's clock said it; nothing is open for longer than transactions may be.
        since_ms = max(since_ms, self.recovered_ms - self._topic.services.config.transaction_timeout_max_ms)
        now_ms = self._topic.services.runtime.clock.wall_ms()
        return Hold(txn_id, min(since_ms, now_ms), str(self._topic.name), producer=producer)

    def failed(self, batch: PublishBatch, error: GemingaError) -> None:
        """A message of a transaction may be stored or not."""
        if self._visible.coming(batch) is not None:
            if batch.is_answered:
                self._ends.has_come(batch)
            if isinstance(error, TopicTerminatedError):
                self._topic.parts.limit_moved()  # what is behind the end of a topic was not stored, for certain
            else:
                self._lose(error)

    def _lose(self, error: GemingaError) -> None:
        if self._ends.is_lost:
            return
        self._ends.lose()
        services, name = self._topic.services, self._topic.name
        _log.warning("%s: closed, for nobody knows whether a transaction's entry was stored: %s", name, error)
        if not self._topic.is_closing:
            unload = services.unload_fenced if isinstance(error, LedgerFencedError) else services.unload
            spawn(unload(name), name=f"unload {name}", part=services.whole)

    # ---- ends

    async def end(self, txn_id: TxnId, *, commit: bool, low_watermark: int) -> None:
        """Write the marker; on return it is on stable storage, and the same if it is done again. Raises GemingaError.

        ``low_watermark``: everything of that coordinator up to this number is over; what is open here is aborted, but
        for what may have ended in entries that can not be read.
        """
        state = self.state
        if state is None:
            await self._ends.make_sure()  # it never published here
            return
        await self._ends.end(state, txn_id, commit=commit, has_gaps=self._has_gaps)
        for stray in state.low_watermark(txn_id.coordinator, low_watermark):
            if stray not in self._in_doubt:  # it may be over by a commit
                await self._ends.end(state, stray, commit=False, has_gaps=self._has_gaps)

    def _marked(self, txn_id: TxnId, commit: bool, marker: Position) -> None:
        """The marker is stored."""
        state = self.state
        if state is None:
            return
        before = state.first_held
        self._since.pop(txn_id, None)
        if commit:
            state.committed(txn_id)
        else:
            state.was_aborted(txn_id, marker)
            self._hide()
        self._topic.parts.transaction_ended(txn_id, is_committed=commit)
        self._visible.marked(marker, is_open=bool(state.open))
        self._limit_moved_since(before)
        config = self._topic.services.config
        self._keeping.changed(
            state.changes,
            delay_ms=max(config.transaction_buffer_snapshot_min_ms, len(state.aborted) * SNAPSHOT_MS),
            changes_max=max(config.transaction_buffer_snapshot_max_count, len(state.aborted)),
        )

    # ---- reading

    def _limit_moved_since(self, before: Position | None) -> None:
        """Readers hear of it, unless the same message holds them back as ``before``; many are open beside it."""
        if before is None or self.state is None or self.state.first_held != before:
            self._topic.parts.limit_moved()

    def read_limit(self) -> Position:
        """The entry before the first message of the first open transaction."""
        if self.state is None:
            return LATEST
        ledger = self._topic.ledger
        limit = self._visible.limit(self.state.first_held, ledger.ledgers.previous_position)
        return min(limit, ledger.extent.readable_position) if self._ends.is_lost else limit

    @property
    def is_hiding(self) -> bool:
        """Whether a transaction was aborted: until one is, entries are not looked at."""
        return self._is_hiding

    def _hide(self) -> None:
        """From now on, or no more: before readers get what is to be hidden."""
        is_hiding = self.state is not None and bool(self.state.aborted)
        if is_hiding is not self._is_hiding:
            self._is_hiding = is_hiding
            self._topic.parts.idleness_changed()

    def hides(self, position: Position, metadata: pb.MessageMetadata) -> bool:
        """Messages of aborted transactions."""
        txn_id = transaction_of(metadata)
        return txn_id is not None and self.state is not None and self.state.hides(txn_id, position)

    def stats(self) -> Stats:
        """As Pulsar names them."""
        state = self.state
        return {
            "state": "NoSnapshot" if state is None else "Ready",
            "maxReadPosition": str(self._topic.ledger.extent.readable_position),
            "lastSnapshotTimestamps": self._keeping.saved_ms,
            "lowWaterMarks": {str(number): mark for number, mark in state.low_watermarks.items()} if state else {},
            "ongoingTxnSize": len(state.open) if state else 0,
            "recoverStartTime": self.recovering_ms,
            "recoverEndTime": self.recovered_ms,
            "totalAbortedTransactions": len(state.aborted) if state else 0,
        }

    @property
    def in_doubt_count(self) -> int:
        """Transactions whose end may be in entries that can not be read."""
        return sum(each in self._in_doubt for each in (self.state.open if self.state is not None else ()))
