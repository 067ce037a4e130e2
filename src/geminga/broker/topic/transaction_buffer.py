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
from typing import ClassVar, Final, NamedTuple

from geminga.broker.topic.buffer_snapshot import Beginnings, find_snapshot, remove_snapshot, replayed
from geminga.broker.topic.parts import PartTopic, Stats, TopicPart
from geminga.broker.topic.ports import TRANSACTIONS_PROPERTY
from geminga.broker.topic.publish import PublishBatch
from geminga.managed_ledger import AppendResult, Entry
from geminga.managed_ledger.replaying import replay
from geminga.managed_ledger.rules.unreadable import Gap, is_lost
from geminga.model.errors import (
    GemingaError,
    LedgerFencedError,
    NotAllowedError,
    TopicClosingError,
    TopicTerminatedError,
    UnavailableError,
)
from geminga.model.position import LATEST, Position
from geminga.model.txn_id import TxnId
from geminga.runtime import Contained, Turns, get_logger, spawn
from geminga.transaction.core.buffer import TransactionBufferState
from geminga.transaction.core.held_back import Hold
from geminga.transaction.ports import BufferSnapshot, BufferSnapshots, Registrations
from geminga.transaction.strays import AGAIN_MAX_MS, check_is_taking, settle_strays
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.markers import transaction_marker, transaction_of

_log = get_logger(__name__)

#: Entries, and bytes, that one read of a recovery brings.
RECOVERY_ENTRIES: Final = 500
RECOVERY_BYTES: Final = 4 << 20
#: Milliseconds at least from a change to a snapshot, for each aborted transaction in it: some 20 times what it costs.
SNAPSHOT_MS: Final = 0.1
#: Those taken from a snapshot in one turn of the loop.
RESTORED_PER_TURN: Final = 1_000
_marker: Final = attrgetter("marker")


class Ended(NamedTuple):
    """A transaction whose marker is being stored."""

    txn_id: TxnId
    commit: bool
    #: Hears that it is, or the error.
    stored: asyncio.Future[GemingaError | None]


class TransactionBuffer(TopicPart):
    """See the module."""

    name: ClassVar[str] = "transactionBuffer"

    __slots__ = (
        "_beginning",
        "_coming",
        "_coming_of",
        "_ending",
        "_floor",
        "_has_gaps",
        "_in_doubt",
        "_is_broken",
        "_is_hiding",
        "_is_saving",
        "_is_stopped",
        "_last_told",
        "_markers",
        "_registrations",
        "_sealed",
        "_settling",
        "_since",
        "_snapshots",
        "_timer",
        "_topic",
        "recovered_ms",
        "recovering_ms",
        "saved_ms",
        "state",
    )

    def __init__(self, topic: PartTopic) -> None:
        self._topic = topic
        snapshots = topic.services.snapshots
        registrations = topic.services.registrations
        assert snapshots is not None
        assert registrations is not None
        self._snapshots: BufferSnapshots = snapshots
        self._registrations: Registrations = registrations
        #: Asks what becomes of open transactions.
        self._settling: asyncio.Task[None] | None = None
        #: A transaction was aborted: entries are looked at.
        self._is_hiding = False
        #: None: the topic never had a transaction.
        self.state: TransactionBufferState | None = None
        #: Since when each open transaction holds readers back, ms since the epoch, and who published its first message.
        self._since: Beginnings = {}
        #: Batches of transactions that are being stored.
        self._coming: dict[PublishBatch, TxnId] = {}
        #: How many of those each transaction has.
        self._coming_of: dict[TxnId, int] = {}
        #: Readers stop here while messages of transactions are being stored, and none is stored yet that stops them:
        #: nobody knows where the first of them will lie.
        self._floor = LATEST
        #: Open ones whose end may be in entries that can not be read: they hold readers until that is known.
        self._in_doubt: set[TxnId] = set()
        #: There are such entries: no snapshot passes them.
        self._has_gaps = False
        #: Everything up to here is known to the state.
        self._last_told = topic.ledger.extent.readable_position
        #: Transactions whose marker is being written; they take nothing more.
        self._ending: dict[TxnId, asyncio.Future[None]] = {}
        #: Of a topic that was terminated: how transactions ended of which no snapshot says so yet (True: committed).
        self._sealed: dict[TxnId, bool] = {}
        #: Whose markers go with the next append.
        self._markers: list[Ended] = []
        #: While the first snapshot is being written.
        self._beginning: asyncio.Lock | None = None
        self._is_saving = self._is_stopped = False
        #: Nobody knows what is stored: readers stop, and the topic is being closed.
        self._is_broken = False
        #: Runs from the first change since the last snapshot to the next one.
        self._timer: asyncio.TimerHandle | None = None
        #: When the log began to be read, and had been read; when a snapshot was stored; ms since the epoch, 0: never.
        self.recovering_ms = self.recovered_ms = self.saved_ms = 0

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
        self._last_told = ledger.extent.last_confirmed_position
        self.recovered_ms = self._topic.services.runtime.clock.wall_ms()
        if state.open:
            self._topic.services.watch_held(self)
            self._settle(first_ms=0)

    def _settle(self, first_ms: int) -> None:
        """See that nothing is held back for a transaction that is over."""

        async def settle() -> None:
            await settle_strays(
                lambda: () if self.state is None else [each for each in self.state.open if each not in self._in_doubt],
                str(self._topic.name),
                self._registrations,
                self._abort_stray,
                first_ms=first_ms,
            )
            self._settling = None

        if self._settling is None and not self._is_stopped:
            self._settling = spawn(settle(), name=f"strays of {self._topic.name}", part=self._topic)

    async def _abort_stray(self, txn_id: TxnId) -> None:
        if self.state is not None:
            await self._end(self.state, txn_id, commit=False)

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
                    await self._save(BufferSnapshot(ledger.extent.last_confirmed_position))
                    self.state = TransactionBufferState()
                    # Nothing of a transaction was taken until now.
                    self._last_told = self._topic.ledger.extent.readable_position
                    self._topic.idleness_changed()
        return self.state

    async def close(self) -> None:
        """Save what spares the next load reading the log."""
        self._stop()
        if self.state is not None and self.state.changes and not self._is_broken and not self._has_gaps:
            await self._save_quietly(self._snapshot(self.state))

    def drop(self) -> None:
        """Nothing is saved: the next load reads the log."""
        self._stop()

    async def delete(self) -> None:
        """The snapshot goes with the topic."""
        self._stop()
        if self.state is not None:
            await remove_snapshot(self._snapshots, self._topic)

    def _snapshot(self, state: TransactionBufferState) -> BufferSnapshot:
        aborts = tuple(zip(state.aborted, map(_marker, state.aborted.values()), strict=True))
        return BufferSnapshot(min(self._limit(state), self._last_told), aborts)

    def _save_soon(self) -> None:
        if not self._is_saving and not self._is_broken and not self._has_gaps and self.state is not None:
            self._is_saving = True
            self._stop_timer()
            self.state.changes = 0
            # What is forgotten here keeps the aborted transactions as few as the log's ledgers have.
            self.state.trimmed(self._topic.ledger.ledgers.first_position.ledger_id)
            self._hide()
            name = f"save aborted transactions of {self._topic.name}"
            spawn(self._save_quietly(self._snapshot(self.state)), name=name, part=self._topic)

    async def _save_quietly(self, snapshot: BufferSnapshot) -> None:
        try:
            await self._save(snapshot)
        except GemingaError as error:
            _log.warning("%s: aborted transactions were not saved, a restart reads more: %s", self._topic.name, error)
            self._changed()
        finally:
            self._is_saving = False

    async def _save(self, snapshot: BufferSnapshot) -> None:
        await self._snapshots.put(str(self._topic.name), snapshot)
        self.saved_ms = self._topic.services.runtime.clock.wall_ms()

    def _changed(self) -> None:
        state, services = self.state, self._topic.services
        if state is None:
            return
        if self._timer is None:
            # A snapshot has all of them: what it costs, and how much it writes, is to follow what changes.
            delay_ms = max(services.config.transaction_buffer_snapshot_min_ms, len(state.aborted) * SNAPSHOT_MS)
            self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._on_timer)
        if state.changes >= max(services.config.transaction_buffer_snapshot_max_count, len(state.aborted)):
            self._save_soon()

    def _on_timer(self) -> None:
        self._timer = None
        with Contained(self._topic, "a snapshot of aborted transactions"):
            self._save_soon()

    def _stop(self) -> None:
        self._is_stopped = True
        self._stop_timer()
        if self._settling is not None:
            self._settling.cancel()
            self._settling = None

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

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
        if self._is_broken:
            raise TopicClosingError(f"Topic {self._topic.name} is being closed")
        if self.state is None:
            raise NotAllowedError(f"Topic {self._topic.name} was not prepared for transactions")
        if txn_id in self._ending:
            raise NotAllowedError(f"Transaction [{txn_id}] is being ended")
        self.state.check_may_publish(txn_id)
        if txn_id not in self.state.open:
            name = str(self._topic.name)
            standing = self._registrations.standing(txn_id, name)
            if standing is not None:  # else it was asked, before it was ready
                check_is_taking(standing, txn_id, name)

    def admit(self, batch: PublishBatch) -> Iterable[PublishBatch]:
        """Hold readers back before a message of a transaction is where they could get it."""
        if batch.transaction is not None and self.state is not None:
            if not self._coming:
                self._floor = self._last_told
            txn_id = self._coming[batch] = TxnId(*batch.transaction)
            self._coming_of[txn_id] = self._coming_of.get(txn_id, 0) + 1
            if not self.state.open:
                self._topic.read_limit_moved()
        return (batch,)

    def stored(self, batch: PublishBatch, result: AppendResult) -> None:
        """From now on the message itself holds readers back."""
        self._last_told = Position(result.ledger_id, result.first_entry_id + result.count - 1)
        txn_id = self._coming.get(batch)
        if txn_id is None or self.state is None:
            return
        before = self.state.first_held
        self.state.stored(txn_id, Position(result.ledger_id, result.first_entry_id))
        if txn_id not in self._since and txn_id in self.state.open:
            self._since[txn_id] = (self._topic.services.runtime.clock.wall_ms(), batch.producer.name)
            self._topic.services.watch_held(self)
            self._settle(first_ms=AGAIN_MAX_MS)
        if batch.is_answered:
            self._has_come(batch)
        self._limit_moved_since(before)

    def hold(self) -> Hold | None:
        """The transaction that readers wait for, as :class:`HoldsBack` says."""
        if self.state is None or not self.state.open or self._is_stopped:
            return None
        txn_id = next(iter(self.state.open))
        since_ms, producer = self._since[txn_id]
        if since_ms < self.recovered_ms:
            # A client's clock said so; nothing is open for longer than transactions may be.
            since_ms = max(since_ms, self.recovered_ms - self._topic.services.config.transaction_timeout_max_ms)
        now_ms = self._topic.services.runtime.clock.wall_ms()
        return Hold(txn_id, min(since_ms, now_ms), str(self._topic.name), producer=producer)

    def failed(self, batch: PublishBatch, error: GemingaError) -> None:
        """A message of a transaction may be stored or not."""
        if batch in self._coming:
            if batch.is_answered:
                self._has_come(batch)
            if isinstance(error, TopicTerminatedError):
                self._topic.read_limit_moved()  # what is behind the end of a topic was not stored, for certain
            else:
                self._lose(error)

    def _has_come(self, batch: PublishBatch) -> None:
        txn_id = self._coming.pop(batch)
        left = self._coming_of.pop(txn_id) - 1
        if left:
            self._coming_of[txn_id] = left
            return
        ended = self._ending.get(txn_id)
        if ended is not None and not ended.done():
            ended.set_result(None)

    def _lose(self, error: GemingaError) -> None:
        if self._is_broken:
            return
        self._is_broken = True
        for ended in self._ending.values():
            if not ended.done():
                ended.set_result(None)  # it does not wait for what is still coming
        services, name = self._topic.services, self._topic.name
        _log.warning("%s: closed, for nobody knows whether a transaction's entry was stored: %s", name, error)
        if not self._topic.is_closing:
            unload = services.unload_fenced if isinstance(error, LedgerFencedError) else services.unload
            spawn(unload(name), name=f"unload {name}", part=services.whole)

    # ---- ends

    async def end(self, txn_id: TxnId, *, commit: bool, low_watermark: int) -> None:
        """Write the marker; on return it is on stable storage, and the same if it is done again. Raises GemingaError.

        ``low_watermark``: everything of that coordinator up to this number is over; what is open here is aborted.
        """
        state = self.state
        if state is None:
            await self._make_sure()  # it never published here
            return
        await self._end(state, txn_id, commit=commit)
        for stray in state.low_watermark(txn_id.coordinator, low_watermark):
            await self._end(state, stray, commit=False)

    async def _end(self, state: TransactionBufferState, txn_id: TxnId, *, commit: bool) -> None:
        if txn_id in self._ending:
            raise UnavailableError(f"transaction {txn_id} is being ended on {self._topic.name}")
        settled = self._ending[txn_id] = asyncio.get_running_loop().create_future()
        try:
            while txn_id in self._coming_of and not self._is_broken:
                await settled
                settled = self._ending[txn_id] = asyncio.get_running_loop().create_future()
            if self._is_broken or self._topic.is_closing:
                raise TopicClosingError(f"Topic {self._topic.name} is being closed")
            ledger = self._topic.ledger
            if txn_id in state.open and ledger.stored.terminated_position is not None:
                await self._end_sealed(state, txn_id, commit=commit)
            elif txn_id in state.open:
                await self._append_marker(txn_id, commit=commit)
            elif self._has_gaps and not state.has_ended(txn_id) and ledger.stored.terminated_position is None:
                # It may have messages in what could not be read: should that come back, its end is known.
                await self._append_marker(txn_id, commit=commit)
            elif not state.has_ended(txn_id):
                await self._make_sure()
        finally:
            del self._ending[txn_id]

    async def _end_sealed(self, state: TransactionBufferState, txn_id: TxnId, *, commit: bool) -> None:
        """The topic was terminated, and takes no marker: a snapshot of its end says how all that were open ended.

        It can say so of all of them alone, for it names those that were aborted, and its position says that the others
        were not: who comes before the last one is told to come again.
        """
        self._sealed[txn_id] = commit
        if any(each not in self._sealed for each in state.open):
            raise UnavailableError(
                f"{self._topic.name} is terminated: transaction {txn_id} ends with the others that are open on it"
            )
        end = self._topic.ledger.extent.last_confirmed_position
        aborts = {each: aborted.marker for each, aborted in state.aborted.items()}
        aborts.update((each, end) for each in state.open if not self._sealed[each])
        await self._save(BufferSnapshot(end, tuple(aborts.items())))
        for each in list(state.open):
            if self._sealed[each]:
                state.committed(each)
            else:
                state.was_aborted(each, end)
        self._hide()
        self._topic.read_limit_moved()

    async def _make_sure(self) -> None:
        """Before it is said that there is nothing to end: another broker, which has messages, may own the topic now.

        Raises LedgerFencedError.
        """
        try:
            await self._topic.ledger.stored.claim()
        except LedgerFencedError as error:
            self._lose(error)
            raise

    async def _append_marker(self, txn_id: TxnId, *, commit: bool) -> None:
        loop = asyncio.get_running_loop()
        stored: asyncio.Future[GemingaError | None] = loop.create_future()
        if not self._markers:
            # Those of other transactions that end in this turn go with it.
            loop.call_soon(self._append_markers)
        self._markers.append(Ended(txn_id, commit, stored))
        error = await stored
        if isinstance(error, TopicTerminatedError):
            raise UnavailableError(f"{self._topic.name} was terminated while {txn_id} ended")
        if error is not None:
            raise UnavailableError(f"nobody knows whether the end of {txn_id} is stored") from error

    def _append_markers(self) -> None:
        markers = [each for each in self._markers if not each.stored.cancelled()]
        self._markers = []
        state = self.state
        if not markers or state is None:
            return

        def done(result: AppendResult) -> None:
            # Whoever waits may have been called off: what is in the log counts all the same.
            with Contained(self._topic, "the end of a transaction", is_last=True):
                for index, each in enumerate(markers[result.index : result.index + result.count]):
                    if result.error is None:
                        self._marked(state, each, Position(result.ledger_id, result.first_entry_id + index))
                    elif not isinstance(result.error, TopicTerminatedError):
                        self._lose(result.error)
                    if not each.stored.done():
                        each.stored.set_result(result.error)

        now_ms = self._topic.services.runtime.clock.wall_ms()
        entries = [transaction_marker(each.txn_id, commit=each.commit, now_ms=now_ms) for each in markers]
        self._topic.append_own(entries, done)

    def _marked(self, state: TransactionBufferState, ended: Ended, marker: Position) -> None:
        """The marker is stored."""
        txn_id, commit, _ = ended
        before = state.first_held
        self._last_told = marker
        self._since.pop(txn_id, None)
        if commit:
            state.committed(txn_id)
        else:
            state.was_aborted(txn_id, marker)
            self._hide()
        self._topic.transaction_ended(txn_id, is_committed=commit)
        if not state.open:
            self._floor = marker
        self._limit_moved_since(before)
        self._changed()

    # ---- reading

    def _limit(self, state: TransactionBufferState) -> Position:
        first = state.first_held
        return LATEST if first is None else self._topic.ledger.ledgers.previous_position(first)

    def _limit_moved_since(self, before: Position | None) -> None:
        """Readers hear of it, unless the same message holds them back as ``before``; many are open beside it."""
        if before is None or self.state is None or self.state.first_held != before:
            self._topic.read_limit_moved()

    def read_limit(self) -> Position:
        """The entry before the first message of the first open transaction."""
        if self.state is None:
            return LATEST
        limit = self._floor if self._coming and not self.state.open else self._limit(self.state)
        return min(limit, self._topic.ledger.extent.readable_position) if self._is_broken else limit

    @property
    def is_hiding(self) -> bool:
        """Whether a transaction was aborted: until one is, entries are not looked at."""
        return self._is_hiding

    def _hide(self) -> None:
        """From now on, or no more: before readers get what is to be hidden."""
        is_hiding = self.state is not None and bool(self.state.aborted)
        if is_hiding is not self._is_hiding:
            self._is_hiding = is_hiding
            self._topic.idleness_changed()

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
            "lastSnapshotTimestamps": self.saved_ms,
            "lowWaterMarks": {str(number): mark for number, mark in state.low_watermarks.items()} if state else {},
            "ongoingTxnSize": len(state.open) if state else 0,
            "recoverStartTime": self.recovering_ms,
            "recoverEndTime": self.recovered_ms,
            "totalAbortedTransactions": len(state.aborted) if state else 0,
        }

    def stats_of(self, txn_id: TxnId) -> Stats:
        """What the topic has of a transaction, as Pulsar names it; of one that it never saw too."""
        state = self.state
        first = state.open.get(txn_id) if state is not None else None
        is_aborted = state is not None and txn_id in state.aborted
        return {**({"startPosition": str(first)} if first is not None else {}), "aborted": is_aborted}

    @property
    def in_doubt_count(self) -> int:
        """Transactions whose end may be in entries that can not be read."""
        return sum(each in self._in_doubt for each in (self.state.open if self.state is not None else ()))

    def counts(self) -> tuple[int, int, int]:
        """Transactions that are open, committed and aborted; the latter two since the topic was loaded."""
        state = self.state
        return (0, 0, 0) if state is None else (len(state.open), state.aborted_count, state.committed_count)
