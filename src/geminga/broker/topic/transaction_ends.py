"""How transactions end on a topic: a marker behind the last of their messages, on stable storage before it is said.

Markers of one turn of the loop are one append. On a topic that was terminated, which takes no marker, a snapshot says
how all that were open ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from geminga.broker.topic.parts import PartTopic
from geminga.broker.topic.publish import PublishBatch
from geminga.managed_ledger import AppendResult
from geminga.model.errors import (
    GemingaError,
    LedgerFencedError,
    NotAllowedError,
    TopicClosingError,
    TopicTerminatedError,
    UnavailableError,
)
from geminga.model.position import Position
from geminga.model.txn_id import TxnId
from geminga.runtime import Contained
from geminga.transaction.core.buffer import TransactionBufferState
from geminga.transaction.core.visible_end import VisibleEnd
from geminga.transaction.ports import BufferSnapshot
from geminga.wire.pulsar.markers import transaction_marker


class Ended(NamedTuple):
    """A transaction whose marker is being stored."""

    txn_id: TxnId
    commit: bool
    #: Hears that it is, or the error.
    stored: asyncio.Future[GemingaError | None]


class TransactionEnds:
    """See the module."""

    __slots__ = ("_ended", "_ending", "_hide", "_lost", "_markers", "_save", "_sealed", "_topic", "_visible", "is_lost")

    def __init__(
        self,
        topic: PartTopic,
        visible: VisibleEnd[PublishBatch],
        *,
        save: Callable[[BufferSnapshot], Awaitable[None]],
        ended: Callable[[TxnId, bool, Position], None],
        hide: Callable[[], None],
        lost: Callable[[GemingaError], None],
    ) -> None:
        """``save`` stores a snapshot, durable on return. ``ended`` hears of a stored marker: whose, whether it commits,
        where; ``hide`` that others may be to be hidden now; ``lost`` that nobody knows what is stored, which it tells
        :meth:`lose`.
        """
        self._topic = topic
        self._visible = visible
        self._save = save
        self._ended = ended
        self._hide = hide
        self._lost = lost
        #: Transactions whose marker is being written; they take nothing more.
        self._ending: dict[TxnId, asyncio.Future[None]] = {}
        #: Whose markers go with the next append.
        self._markers: list[Ended] = []
        #: Of a topic that was terminated: how transactions ended of which no snapshot says so yet (True: committed).
        self._sealed: dict[TxnId, bool] = {}
        #: Nobody knows what is stored: readers stop, and the topic is being closed.
        self.is_lost = False

    def check_is_taking(self, txn_id: TxnId) -> None:
        """Raise TopicClosingError, or NotAllowedError if the transaction is being ended."""
        if self.is_lost:
            raise TopicClosingError(f"Topic {self._topic.name} is being closed")
        if txn_id in self._ending:
            raise NotAllowedError(f"Transaction [{txn_id}] is being ended")

    def has_come(self, batch: PublishBatch) -> None:
        """A batch of a transaction has its answer: the end of the transaction may have waited for it."""
        txn_id = self._visible.has_come(batch)
        ended = self._ending.get(txn_id) if txn_id is not None else None
        if ended is not None and not ended.done():
            ended.set_result(None)

    def lose(self) -> None:
        """Nobody knows what is stored: no end waits for what is still coming."""
        self.is_lost = True
        for ended in self._ending.values():
            if not ended.done():
                ended.set_result(None)

    async def end(self, state: TransactionBufferState, txn_id: TxnId, *, commit: bool, has_gaps: bool) -> None:
        """Write the marker; on return it is on stable storage, and the same if it is done again. Raises GemingaError.

        ``has_gaps``: entries can not be read, which may be the transaction's.
        """
        if txn_id in self._ending:
            raise UnavailableError(f"transaction {txn_id} is being ended on {self._topic.name}")
        settled = self._ending[txn_id] = asyncio.get_running_loop().create_future()
        try:
            while self._visible.awaits(txn_id) and not self.is_lost:
                await settled
                settled = self._ending[txn_id] = asyncio.get_running_loop().create_future()
            if self.is_lost or self._topic.is_closing:
                raise TopicClosingError(f"Topic {self._topic.name} is being closed")
            is_terminated = self._topic.ledger.stored.terminated_position is not None
            if txn_id in state.open and is_terminated:
                await self._end_sealed(state, txn_id, commit=commit)
            elif txn_id in state.open:
                await self._append_marker(txn_id, commit=commit)
            elif has_gaps and not state.has_ended(txn_id) and not is_terminated:
                # It may have messages in what could not be read: should that come back, its end is known.
                await self._append_marker(txn_id, commit=commit)
            elif not state.has_ended(txn_id):
                await self.make_sure()
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
        # Behind the last entry, each at a place of its own: shadows ask for those behind the last marker they know of.
        sealed = [each for each in state.open if not self._sealed[each]]
        aborts.update((each, Position(end.ledger_id, end.entry_id + at)) for at, each in enumerate(sealed, 1))
        await self._save(BufferSnapshot(end, tuple(aborts.items())))
        opened = list(state.open)
        for each in opened:
            if self._sealed[each]:
                state.committed(each)
            else:
                state.was_aborted(each, aborts[each])
        self._hide()
        for each in opened:
            self._topic.parts.transaction_ended(each, is_committed=self._sealed[each])
        self._topic.parts.limit_moved()

    async def make_sure(self) -> None:
        """Before it is said that there is nothing to end: another broker, which has messages, may own the topic now.

        Raises LedgerFencedError.
        """
        try:
            await self._topic.ledger.stored.claim()
        except LedgerFencedError as error:
            self._lost(error)
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
        if not markers:
            return

        def done(result: AppendResult) -> None:
            # Whoever waits may have been called off: what is in the log counts all the same.
            with Contained(self._topic, "the end of a transaction", is_last=True):
                for index, each in enumerate(markers[result.index : result.index + result.count]):
                    if result.error is None:
                        self._ended(each.txn_id, each.commit, Position(result.ledger_id, result.first_entry_id + index))
                    elif not isinstance(result.error, TopicTerminatedError):
                        self._lost(result.error)
                    if not each.stored.done():
                        each.stored.set_result(result.error)

        now_ms = self._topic.services.runtime.clock.wall_ms()
        entries = [transaction_marker(each.txn_id, commit=each.commit, now_ms=now_ms) for each in markers]
        self._topic.publishing.append_own(entries, done)
