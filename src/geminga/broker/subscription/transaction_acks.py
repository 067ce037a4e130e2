"""What a durable subscription acknowledges in transactions: between its consumers, its cursor and the pending-ack log.

What a transaction holds is with no consumer any more, and is delivered to none; an abort gives it back. The log is made
with the first such acknowledgment, and read when the topic is loaded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from geminga.broker.core.dispatch.redelivery import RedeliveryCounts
from geminga.broker.subscription.ack_sets import is_short, size_and_words
from geminga.broker.subscription.consumer import INDIVIDUAL_ACK_TYPES, Consumer
from geminga.broker.subscription.dispatch import Dispatch
from geminga.broker.subscription.entry_filter import bits_of_words
from geminga.broker.subscription.messages import position_from
from geminga.broker.subscription.ports import LoggedSubscription
from geminga.managed_ledger.rules.unreadable import is_lost
from geminga.model.errors import (
    GemingaError,
    LedgerFencedError,
    NotAllowedError,
    StorageError,
    TopicClosingError,
    UnavailableError,
)
from geminga.model.position import Position
from geminga.model.txn_id import Standing, TxnId, TxnSubscription
from geminga.runtime import Contained, again, get_logger, spawn
from geminga.transaction.core.held_back import Hold
from geminga.transaction.core.pending_acks import WHOLE, CumulativeAck, Released, TxnAck, whole_or_part
from geminga.transaction.pending_ack_handle import PendingAckHandle, left_words
from geminga.transaction.ports import Registrations
from geminga.transaction.strays import AGAIN_MAX_MS, StrayWatch, check_is_taking
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.numbers import BATCH_MESSAGES_BELIEVED
from geminga.wire.pulsar.transaction_log import PendingAckRecord

_log = get_logger(__name__)

T = TypeVar("T")


class AckingSubscription(LoggedSubscription, Protocol):
    """The subscription."""

    @property
    def dispatch(self) -> Dispatch | None:
        """Present while there are consumers."""
        ...

    @property
    def redeliveries(self) -> RedeliveryCounts:
        """How often entries were sent again."""
        ...

    @property
    def is_moving(self) -> bool:
        """Whether somebody moves the cursor now, or deletes it."""
        ...

    async def claim(self) -> None:
        """Raise LedgerFencedError if another broker owns the topic."""
        ...


def acknowledged_bits(ack_set: Sequence[int], batch_size: int) -> tuple[int, int]:
    """What an ack set (a set bit: NOT acknowledged) of a batch acknowledges, and of how many messages.

    :data:`WHOLE` where there is none, or nothing is left and nobody says of how many: the rest of an entry. Nothing
    left of a known number names each of them.
    """
    left = bits_of_words(ack_set)
    size = max(batch_size, left.bit_length())
    return (~left & ((1 << size) - 1), size) if size and ack_set else (WHOLE, 0)


def _ledgers_of(acks: Sequence[TxnAck]) -> set[int]:
    return {ack.position.ledger_id for ack in acks}


class TransactionAcks:
    """See the module."""

    __slots__ = (
        "_handle",
        "_is_deleted",
        "_is_lost",
        "_is_stopped",
        "_opening",
        "_since",
        "_strays",
        "_subscription",
        "_whose",
        "recovered_ms",
        "recovering_ms",
    )

    def __init__(self, subscription: AckingSubscription) -> None:
        self._subscription = subscription
        #: None: it never acknowledged in a transaction.
        self._handle: PendingAckHandle | None = None
        self._opening = asyncio.Lock()
        self._is_lost = self._is_stopped = False
        #: No log is made any more: the next one of that name would find it.
        self._is_deleted = False
        #: When each transaction that holds something began to, ms since the epoch; without those that did when it was
        #: loaded.
        self._since: dict[TxnId, int] = {}
        #: As coordinators know it.
        self._whose = TxnSubscription(str(subscription.topic.name), subscription.name)
        #: Asks what becomes of transactions that hold something; None: nobody can be asked.
        self._strays: StrayWatch | None = None
        registrations = subscription.services.registrations
        if registrations is not None:
            self._strays = StrayWatch(
                lambda: self._handle.acks if self._handle is not None else (),
                self._whose,
                registrations,
                self._abort,
                name=f"{subscription.name} of {subscription.topic.name}",
                part=subscription,
            )
        #: When its log began to be read, and had been read, ms since the epoch; 0: never.
        self.recovering_ms = self.recovered_ms = 0

    # ---- life

    async def load(self) -> None:
        """Bring back what is held. Raises GemingaError."""
        subscription = self._subscription
        logs = subscription.services.pending_ack_logs
        if logs is None or not await logs.exists(subscription.topic.name, subscription.name):
            return
        handle = await self._open()
        if handle.acks:
            self._subscription.services.watch_held(self)
            self._watch_strays(first_ms=0)

    def _watch_strays(self, first_ms: int) -> None:
        """See that nothing is held for a transaction that is over."""
        if self._strays is not None:
            self._strays.watch(first_ms)

    async def _abort(self, txn_id: TxnId) -> None:
        if self._handle is not None:
            await self._handle.end(txn_id, commit=False, low_watermark=-1)

    def _stop(self) -> None:
        self._since.clear()
        self._is_stopped = True
        if self._strays is not None:
            self._strays.stop()

    async def close(self) -> None:
        """The topic is unloaded. Raises StorageError."""
        self._stop()
        if self._handle is not None and self._is_lost:
            await self._handle.abandon()
        elif self._handle is not None:
            await self._handle.close()

    async def abandon(self) -> None:
        """The topic broke, or is another broker's: nothing is saved."""
        self._stop()
        if self._handle is not None:
            await self._handle.abandon()

    async def let_go(self) -> None:
        """The subscription is being deleted: nothing is taken any more. The log stays as it is. Raises StorageError."""
        self._is_deleted = True
        self._stop()
        async with self._opening:
            handle, self._handle = self._handle, None
        if handle is not None:
            await handle.close()

    async def note_deletion(self) -> None:
        """Behind :meth:`let_go`, and before the subscription goes: so does its log then. Raises StorageError."""
        subscription = self._subscription
        logs = subscription.services.pending_ack_logs
        if logs is not None and self.recovering_ms:
            await logs.note_deletion(subscription.name, subscription.topic.ledger)

    async def delete_log(self) -> None:
        """Behind :meth:`let_go`; a damaged one stays. Raises StorageError."""
        subscription = self._subscription
        logs = subscription.services.pending_ack_logs
        if logs is None or not self.recovering_ms:
            return
        try:
            await logs.delete(subscription.topic.name, subscription.name, subscription.topic.ledger)
        except StorageError as error:
            if not is_lost(error):
                raise
            _log.error("%s %s: its log is damaged and stays: %s", subscription.topic.name, subscription.name, error)

    async def _open(self) -> PendingAckHandle:
        subscription = self._subscription
        logs = subscription.services.pending_ack_logs
        if logs is None:
            raise NotAllowedError("Transactions are not enabled on this broker")
        async with self._opening:
            if self._handle is None:
                if self._is_deleted:
                    # Not that there is none: a coordinator would take its transactions for heard, and the deletion may
                    # fail yet. Once it is gone nobody finds it here.
                    raise UnavailableError(f"Subscription {subscription.name} is being deleted")
                if self._is_lost:
                    raise TopicClosingError(f"Topic {subscription.topic.name} is being closed")
                clock = subscription.services.runtime.clock
                self.recovering_ms = clock.wall_ms()
                topic = subscription.topic
                log = await logs.open(topic.name, subscription.name, subscription, topic.ledger)
                try:
                    handle = await PendingAckHandle.open(log, self, self._lost)
                except GemingaError:
                    await log.abandon()
                    raise
                self._handle = handle
                self.recovered_ms = clock.wall_ms()
        return self._handle

    def _lost(self, error: GemingaError) -> None:
        """Nobody knows what the log holds: the topic is loaded anew, and the log read."""
        if self._is_lost:
            return
        self._is_lost = True
        services, topic = self._subscription.services, self._subscription.topic
        _log.warning(
            "%s %s: closed, its transactions may be another broker's: %s", topic.name, self._subscription.name, error
        )
        unload = services.unload_fenced if isinstance(error, LedgerFencedError) else services.unload
        spawn(unload(topic.name), name=f"unload {topic.name}", part=services.whole)

    # ---- what transactions do

    async def acknowledge(
        self, consumer: Consumer, txn_id: TxnId, ids: Sequence[pb.MessageIdData], *, is_cumulative: bool
    ) -> None:
        """Hold these; durable on return. Raises NotAllowedError, TransactionConflictError, GemingaError."""
        if is_cumulative and consumer.type in INDIVIDUAL_ACK_TYPES:
            raise NotAllowedError("Cumulative acknowledgment is not allowed on Shared and Key_Shared")
        if is_cumulative and len(ids) != 1:
            raise NotAllowedError(f"Cumulative acknowledgment of {len(ids)} message ids instead of one")
        acks = await self._checked(ids)
        # As without a transaction: else a client could have any number of entries held that there are not.
        acks = [ack for ack in acks if self._is_there(consumer, ack.position, is_cumulative=is_cumulative)]
        registrations = self._subscription.services.registrations
        if registrations is None:
            raise NotAllowedError("Transactions are not enabled on this broker")
        standing = await self._standing(registrations, txn_id)
        handle = self._handle or await self._open()

        def hold() -> PendingAckRecord | None:
            # Nothing may come between this question and the holding: an end that is told finds all there is to end.
            check_is_taking(registrations.standing(txn_id, self._whose) or standing, txn_id, self._whose)
            if is_cumulative and acks:
                return handle.hold_up_to(CumulativeAck(txn_id, *whole_or_part(acks[0])))
            return handle.hold(txn_id, acks)

        await handle.store(await self._in_memory(acks, hold))
        self._begin_hold(txn_id)
        self._watch_strays(AGAIN_MAX_MS)
        if not is_cumulative:
            self._when_in_memory(
                acks, partial(self._take_from, consumer, handle, acks), "an acknowledgment in a transaction"
            )

    def _take_from(self, consumer: Consumer, handle: PendingAckHandle, acks: Sequence[TxnAck]) -> None:
        """No consumer has what is held any more."""
        dispatch = self._subscription.dispatch
        if dispatch is not None:
            dispatch.held(consumer, [(ack.position, self._left(handle, ack)) for ack in acks])

    async def _standing(self, registrations: Registrations, txn_id: TxnId) -> Standing:
        is_first = self._handle is None or not self._handle.acks.holds(txn_id)
        if is_first or registrations.standing(txn_id, self._whose) is not None:
            return await registrations.find_standing(txn_id, self._whose)
        return Standing.TAKING  # its coordinator, at another broker, was asked about the first

    def _left(self, handle: PendingAckHandle, ack: TxnAck) -> int:
        """How many messages of the entry are neither held nor acknowledged."""
        bits = handle.acks.held(ack.position) | self.acked_bits(ack.position)
        return 0 if bits == WHOLE else (~bits & ((1 << ack.batch_size) - 1)).bit_count()

    async def _checked(self, ids: Sequence[pb.MessageIdData]) -> list[TxnAck]:
        """Message ids of a client; NotAllowedError for one that names nothing that anybody could have got."""
        ledger = self._subscription.topic.ledger
        readable = ledger.extent.readable_position
        acks: list[TxnAck] = []
        for one in ids:
            position, size = position_from(one), one.batch_size
            words: Sequence[int] = one.ack_set
            if position > readable or min(position) < 0:
                raise NotAllowedError(f"There is no message {position} that could be acknowledged")
            # The Go client says what is left of a batch, and not how large it is.
            if size > BATCH_MESSAGES_BELIEVED or not is_short(words) or (words and not size):
                size, words = await size_and_words(ledger, position, words)
            acks.append(TxnAck(position, *acknowledged_bits(words, size)))
        return acks

    def _is_there(self, consumer: Consumer, position: Position, *, is_cumulative: bool) -> bool:
        """Whether it names an entry; what is acknowledged already, and gone, is a conflict, unless it is one that was
        compacted and is in the log no more."""
        info = self._subscription.topic.ledger.ledgers.find(position.ledger_id)
        if info is None and consumer.reads_compacted:
            return False
        if is_cumulative or position <= self.mark_delete_position:
            return True
        return info is not None and position.entry_id < info.entries

    async def end(self, txn_id: TxnId, *, commit: bool, low_watermark: int) -> None:
        """Let it count, or give it back; durable on return. Raises GemingaError."""
        if self._is_lost:
            raise TopicClosingError(f"Topic {self._subscription.topic.name} is being closed")
        if self._subscription.is_moving:
            # What is committed now would be acknowledged in part, or once more after a restart: see leave_to_cursor.
            raise UnavailableError(f"the cursor of subscription {self._subscription.name} is being moved, try again")
        if self._handle is None or not self._handle.acks.holds(txn_id):
            # Before it is said that there is nothing to end: another broker may own the topic, and the log, now.
            try:
                await self._subscription.claim()
            except LedgerFencedError as error:
                self._lost(error)
                raise
            await self._open_if_made_elsewhere()
        if self._handle is not None:
            await self._handle.end(txn_id, commit=commit, low_watermark=low_watermark)
            self._since.pop(txn_id, None)
            if not self._handle.acks:
                self._since.clear()

    async def leave_to_cursor(self) -> None:
        """Before the cursor is moved back: a restart acknowledges nothing once more. Raises StorageError."""
        if self._handle is not None:
            await self._handle.leave_to_cursor()

    async def _open_if_made_elsewhere(self) -> None:
        """A broker that had the topic before, and did not know yet that it lost it, may have made the log since the
        topic was loaded here: what it held counts."""
        subscription, logs = self._subscription, self._subscription.services.pending_ack_logs
        if self._handle is not None or logs is None:
            return
        if await logs.exists(subscription.topic.name, subscription.name):
            await self._open()

    # ---- what waits

    def _begin_hold(self, txn_id: TxnId) -> None:
        if txn_id not in self._since:
            self._since[txn_id] = self._subscription.services.runtime.clock.wall_ms()
            self._subscription.services.watch_held(self)

    def hold(self) -> Hold | None:
        """The transaction that holds something for longest, as :class:`HoldsBack` says."""
        acks = self._handle.acks if self._handle is not None and not self._is_stopped else None
        if not acks:
            return None
        # They come in the order in which they began, the one that acknowledges cumulatively apart.
        oldest = [next(iter(acks)), *([acks.cumulative.txn_id] if acks.cumulative is not None else [])]
        since_ms, txn_id = min((self._since.get(each, self.recovered_ms), each) for each in oldest)
        return Hold(txn_id, since_ms, self._whose.topic, self._whose.subscription)

    async def _in_memory(self, acks: Sequence[TxnAck], action: Callable[[], T]) -> T:
        """What ``action`` gives or raises, called with what was acknowledged of their ledgers in memory, which may be
        put away again by the next turn of the loop. Raises StorageError."""
        ready: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        act, refuse = partial(_act, ready, action), partial(_refuse, ready)
        self._subscription.cursor.when_loaded(_ledgers_of(acks), act, refuse)
        try:
            return await ready
        finally:
            del ready, act, refuse  # see runtime's value_of

    def _when_in_memory(self, acks: Sequence[TxnAck], action: Callable[[], None], what: str) -> None:
        """The same for who does not wait, in the order in which it is asked for; nothing if the cursor ends first."""
        subscription = self._subscription

        def act() -> None:
            with Contained(subscription, what):
                action()

        def refuse(error: StorageError) -> None:
            _log.info("%s %s: %s: %s", subscription.topic.name, subscription.name, what, error)

        subscription.cursor.when_loaded(_ledgers_of(acks), act, refuse)

    # ---- the cursor, as the log's owner uses it

    @property
    def mark_delete_position(self) -> Position:
        """Everything up to it is acknowledged."""
        return self._subscription.cursor.mark_delete_position

    def acked_bits(self, position: Position) -> int:
        """Which messages of an entry are acknowledged."""
        cursor = self._subscription.cursor
        if cursor.state.is_acknowledged(position):
            return WHOLE
        words = cursor.state.ack_set(position)
        # What is behind the end of the batch is asked of nobody.
        return 0 if words is None else ~bits_of_words(words)

    async def save(self) -> None:
        """Until all that is acknowledged is durable. Raises StorageError."""
        await self._subscription.cursor.flush()

    def apply(self, released: Released, done: Callable[[StorageError | None], None]) -> None:
        """Acknowledge for good; ``done`` once that is durable."""
        cursor = self._subscription.cursor
        waiting = bool(released.acks) + (released.cumulative is not None)
        errors: list[StorageError] = []

        def one_done(error: StorageError | None) -> None:
            nonlocal waiting
            waiting -= 1
            if error is not None:
                errors.append(error)
            if not waiting:
                done(errors[0] if errors else None)

        if released.acks:
            words = [left_words(ack) or None for ack in released.acks]
            cursor.acknowledge([ack.position for ack in released.acks], words if any(words) else None, one_done)
            self._when_in_memory(
                released.acks, partial(self._forget_gone, released.acks), "the commit of a transaction"
            )
        if released.cumulative is not None:
            ack = released.cumulative
            cursor.acknowledge_cumulative(ack.position, left_words(ack) or None, one_done)

    def _forget_gone(self, acks: Sequence[TxnAck]) -> None:
        """Of these, what is acknowledged as a whole by now."""
        subscription = self._subscription
        gone = [ack for ack in acks if subscription.cursor.state.is_acknowledged(ack.position)]
        subscription.redeliveries.forget(ack.position for ack in gone)
        if subscription.dispatch is None:
            subscription.redeliveries.tidy()
        else:
            # Of these a consumer may be said to have what the transaction held.
            subscription.dispatch.settled([ack.position for ack in gone if ack.bits != WHOLE])

    def release(self, released: Released) -> None:
        """What was held may be delivered again."""
        # Behind what is still to be taken from a consumer for the transaction.
        self._when_in_memory(released.acks, partial(self._give_back, released), "the abort of a transaction")

    def _give_back(self, released: Released) -> None:
        dispatch = self._subscription.dispatch
        if dispatch is not None:
            dispatch.give_back(released)

    # ---- dispatch

    def held(self, position: Position) -> int:
        """Which messages of an entry are not to be delivered now, as bits; 0: none."""
        handle = self._handle
        if handle is None:
            return 0
        bits = handle.acks.held(position)
        cumulative = handle.acks.cumulative
        if cumulative is not None and position <= cumulative.position:
            bits |= cumulative.bits if position == cumulative.position else WHOLE
        return bits

    @property
    def is_holding(self) -> bool:
        """Whether anything is held."""
        return self._handle is not None and bool(self._handle.acks)

    # ---- questions

    @property
    def ended(self) -> tuple[int, int]:
        """Transactions that held something here and were committed, and aborted, since it was loaded."""
        return (0, 0) if self._handle is None else (self._handle.committed, self._handle.aborted)

    def stats(self) -> dict[str, object]:
        """As Pulsar names them."""
        handle = self._handle
        marks = handle.low_watermarks if handle is not None else {}
        return {
            "state": "None" if handle is None else "Ready",
            "lowWaterMarks": {str(number): mark for number, mark in marks.items()},
            "ongoingTxnSize": len(handle) if handle is not None else 0,
            "recoverStartTime": self.recovering_ms,
            "recoverEndTime": self.recovered_ms,
        }

    def stats_of(self, txn_id: TxnId) -> dict[str, object]:
        """What a transaction holds cumulatively, as Pulsar names it; of one that was never here too."""
        cumulative = self._handle.acks.cumulative if self._handle is not None else None
        if cumulative is None or cumulative.txn_id != txn_id:
            return {}
        position = str(cumulative.position)
        if cumulative.bits != WHOLE:
            position += f":{cumulative.bits.bit_length() - 1}"
        return {"cumulativeAckPosition": position}

    def position_state(self, position: Position, batch_index: int | None, batch_size: int) -> str:
        """Pulsar's word for how an entry, or a message of it, stands here.

        ``batch_size``: how many messages the entry has; 0: it is no batch.
        """
        if self._handle is None:
            return "PendingAckNotReady"
        if position <= self.mark_delete_position:
            return "MarkDelete"
        acks = self._handle.acks
        bits = acks.held(position)
        if not bits:
            return "NotInPendingAck"
        if batch_index is None:
            return "PendingAck"
        if batch_index >= (acks.batch_size(position) or batch_size):
            return "InvalidPosition"
        return "PendingAck" if bits >> batch_index & 1 else "NotInPendingAck"


def _act(ready: asyncio.Future[T], action: Callable[[], T]) -> None:
    if ready.done():
        return  # who waited was called off
    try:
        ready.set_result(action())
    except GemingaError as error:
        # A copy: the error's frames have the future.
        ready.set_exception(again(error))


def _refuse(ready: asyncio.Future[T], error: StorageError) -> None:
    if not ready.done():
        ready.set_exception(error)
