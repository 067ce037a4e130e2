"""Frames on their way to the broker: written in order, answered in order, written again after a loss, given up in time.

Between the pure queue and the world: the connection to write to, the client's memory limit, the timer of the send
timeout, and those who wait for receipts or for room.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from functools import partial
from itertools import repeat
from typing import cast

from geminga.client._api.errors import NotConnected, PulsarException, Timeout, as_client_error
from geminga.client._api.message_id import MessageId
from geminga.client._api.producer import SendCallback as UserCallback
from geminga.client._api.transaction import refusal_of, wanted
from geminga.client._producing.room_line import RoomLine
from geminga.client._transport.connection import ClientConnection
from geminga.client.producer_rules.memory_limit import MemoryLimit
from geminga.client.producer_rules.send_queue import PendingSend, ReceiptMismatch, SendCallback, SendQueue
from geminga.client.rules.transaction import TransactionCore
from geminga.runtime import Clock, Raised, attempt, get_logger

_log = get_logger(__name__)


class SendBuffer:
    """What one producer has without receipt."""

    __slots__ = (
        "_ahead",
        "_awaited",
        "_awaits_memory",
        "_clock",
        "_connection",
        "_loop",
        "_memory",
        "_partition",
        "_refusal",
        "_through",
        "_timeout_ms",
        "_timer",
        "_unheard_error",
        "last_sequence_id",
        "line",
        "messages_max",
        "queue",
    )

    def __init__(
        self, clock: Clock, memory: MemoryLimit, *, partition: int, timeout_ms: int, messages_max: int
    ) -> None:
        """``memory`` is shared by all producers of a client; ``messages_max`` 0: only that limits."""
        self.queue = SendQueue()
        self.messages_max = messages_max
        #: Highest sequence id that has its receipt.
        self.last_sequence_id = -1
        self._clock = clock
        self._memory = memory
        self._partition = partition
        self._timeout_ms = timeout_ms
        self._loop = asyncio.get_running_loop()
        self._connection: ClientConnection | None = None
        #: Transactions whose coordinator was told of the topic and has not answered -> the connection on which what
        #: is sent comes behind that; None: it is lost.
        self._ahead: dict[TransactionCore, ClientConnection | None] = {}
        #: The transaction of the last one, registered or told over the present connection; None: that is to be seen.
        self._through: TransactionCore | None = None
        self._timer: asyncio.TimerHandle | None = None
        #: Those who wait for room.
        self.line = RoomLine()
        #: The frame that somebody waited for last, and what is done when it is out of the queue; None: nobody does.
        self._awaited: tuple[PendingSend, asyncio.Future[None]] | None = None
        #: The memory limit wakes those who wait for room once it has some.
        self._awaits_memory = False
        self._unheard_error: PulsarException | None = None
        #: When the broker last said why it can not store now (monotonic), and what it said.
        self._refusal: tuple[float, str] | None = None

    # ---- out

    def add(self, pending: PendingSend) -> None:
        """Write it, or keep it until there is a connection that takes it."""
        self.queue.add(pending)
        self._memory.reserve(pending.size_bytes)
        if self._timer is None and self._timeout_ms:
            self._arm_timer()
        self.write()

    def add_in(self, txn: TransactionCore, target: tuple[str], pending: PendingSend) -> None:
        """The same in a transaction: it is held, with all behind it, until the coordinator knows of the topic, or was
        told over this very connection."""
        txn.join()
        pending.gate = txn
        if txn is self._through and not txn.is_over:
            self.add(pending)
            return
        refusal = refusal_of(txn)
        if refusal is not None:
            self._memory.reserve(pending.size_bytes)
            self._finish(pending, -1, -1, refusal)
            return
        if txn.is_registered(target) or self._is_told(txn, target):
            self._through = txn if self._connection is not None else None
            self.add(pending)
            return
        is_asked = not self.queue.hold(pending, txn)
        self.add(pending)
        if not is_asked:
            asked = attempt(wanted, txn, target, partial(self._registered, txn))
            if isinstance(asked, Raised):
                self._registered(txn, asked.error)

    def _is_told(self, txn: TransactionCore, target: tuple[str]) -> bool:
        """Whether the coordinator hears of the topic before it gets what is written now."""
        connection = self._connection
        if connection is None:
            return False
        if txn in self._ahead:
            return self._ahead[txn] is connection
        if not txn.want_ahead(target, connection, partial(self._registered, txn)):
            return False
        self._ahead[txn] = connection
        return True

    def _registered(self, txn: TransactionCore, error: Exception | None) -> None:
        """The coordinator answered: what is held for the transaction is written, or refused."""
        self._ahead.pop(txn, None)
        if error is None:
            self.queue.open_gate(txn)
        else:
            self._through = None
            for refused in self.queue.refuse_gate(txn):
                self._finish(refused, -1, -1, as_client_error(error, "sending"))
        self.write()

    def connected(self, connection: ClientConnection) -> None:
        """Write everything, from the oldest on, to a new connection."""
        self.disconnected()
        for pending in self.queue.take_gated(lambda gate: refusal_of(cast("TransactionCore", gate)) is not None):
            self._finish(pending, -1, -1, refusal_of(cast("TransactionCore", pending.gate)))
        self._connection = connection
        self.write()

    def disconnected(self) -> None:
        """Keep everything until there is a connection again."""
        self.queue.connection_lost(self._ahead)
        self._ahead = dict.fromkeys(self._ahead)
        self._through = None
        self._connection = None

    def write(self) -> None:
        """Write as much as the transport takes."""
        connection, queue = self._connection, self.queue
        if connection is not None:
            while connection.is_writable:
                pending = queue.next_to_write()
                if pending is None:
                    return
                connection.write(pending.frame)

    # ---- answers

    def receipt(self, sequence_id: int, ledger_id: int, entry_id: int) -> None:
        """A frame was stored."""
        try:
            pending = self.queue.receipt(sequence_id)
        except ReceiptMismatch as error:
            _log.warning("%s; everything is sent again", error)
            if self._connection is not None:
                self._connection.abort(NotConnected(str(error)))
            return
        if pending is not None:
            if pending.highest_sequence_id > self.last_sequence_id:
                self.last_sequence_id = pending.highest_sequence_id
            self._finish(pending, ledger_id, entry_id, None)

    def refused(self, sequence_id: int, error: PulsarException) -> None:
        """The oldest frame will never be stored, nor the message that it is a part of; those behind it go on. Another
        one: late, nothing happens."""
        oldest = self.queue.oldest
        if oldest is not None and oldest.sequence_id == sequence_id:
            pending = self.queue.receipt(sequence_id)
            if pending is not None:
                for refused in (pending, *self.queue.take_rest()):
                    self._finish(refused, -1, -1, error)

    def refused_for_now(self, error: PulsarException) -> None:
        """What is to be sent again: who waits in vain for it is told why."""
        self._refusal = self._clock.monotonic(), str(error)

    def moved(self) -> None:
        """What is sent from here on goes to another cluster: there the rest of a message is nothing without the parts
        that were stored before."""
        for pending in self.queue.take_rest():
            self._finish(
                pending,
                -1,
                -1,
                NotConnected("the topic moved, or the client went on, to another cluster in the midst of the message"),
            )

    def fail_all(self, error: PulsarException) -> None:
        """The end: everything fails, everybody who waits goes on."""
        self._through = None
        self._connection = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for pending in self.queue.take_all():
            self._finish(pending, -1, -1, error)
        self.line.call_all()

    def refuse(self, callbacks: list[tuple[int, SendCallback]] | None, messages: int, error: PulsarException) -> None:
        """Messages failed: tell those who want to hear, remember the error for the others."""
        heard: list[UserCallback] = []
        for _, receiver in callbacks or ():
            if not isinstance(receiver, asyncio.Future):
                heard.append(cast("UserCallback", receiver))
            elif not receiver.done():
                receiver.set_exception(error)
        if heard:
            self._loop.call_soon(self._tell, iter(heard), error, repeat(None))
        if len(callbacks or ()) < messages and self._unheard_error is None:
            self._unheard_error = error

    @property
    def unheard_error(self) -> PulsarException | None:
        """The first error that nobody heard of yet."""
        return self._unheard_error

    def take_unheard(self) -> PulsarException | None:
        """The first error that nobody heard of; only once."""
        error, self._unheard_error = self._unheard_error, None
        return error

    def _finish(self, pending: PendingSend, ledger_id: int, entry_id: int, error: PulsarException | None) -> None:
        self._memory.release(pending.size_bytes)
        shared = pending.first_chunk_id
        if shared is not None and pending.chunk_index == 0:
            shared.append((ledger_id, entry_id))
        callbacks = pending.callbacks
        if pending.on_end is not None:
            pending.on_end(pending.sequence_id, pending.highest_sequence_id, error)
        elif error is not None:
            self.refuse(callbacks, pending.messages, error)
        elif callbacks is not None:
            index, receiver = callbacks[0]
            if index < 0 and not shared and isinstance(receiver, asyncio.Future):
                # A message alone whose receipt is awaited: the way of a round trip, as short as can be.
                if not receiver.done():
                    receiver.set_result(MessageId(self._partition, ledger_id, entry_id))
            else:
                first_chunk = MessageId(self._partition, *shared[0]) if shared else None
                self._tell_ids(callbacks, ledger_id, entry_id, pending.messages, first_chunk)
        if pending.waiters is not None:
            for wake in pending.waiters:
                wake()
            self._awaited = None
        if pending.gate is not None:
            cast("TransactionCore", pending.gate).settle(error)
        if self.line:
            self._wake_for_room()

    def _wake_for_room(self) -> None:
        if self._is_queue_full(0):
            return
        if not self._memory.is_full:
            self.line.call()
        else:
            # Filled by others since they began to wait: none of this producer's receipts may follow.
            self.await_memory()

    def await_memory(self) -> None:
        """If all producers together hold too much, those in line are called once there is room."""
        if self._memory.is_full and not self._awaits_memory:
            self._awaits_memory = True
            self._memory.on_room(self._on_memory)

    def _on_memory(self) -> None:
        self._awaits_memory = False
        self.line.call()

    def _tell_ids(
        self,
        receivers: list[tuple[int, SendCallback]],
        ledger_id: int,
        entry_id: int,
        messages: int,
        first_chunk: MessageId | None,
    ) -> None:
        partition = self._partition
        heard: list[UserCallback] = []
        ids: list[MessageId] = []
        for index, receiver in receivers:
            size = messages if index >= 0 else 0
            message_id = MessageId(partition, ledger_id, entry_id, index, size, first_chunk=first_chunk)
            if not isinstance(receiver, asyncio.Future):
                heard.append(cast("UserCallback", receiver))
                ids.append(message_id)
            elif not receiver.done():
                receiver.set_result(message_id)
        if heard:
            self._loop.call_soon(self._tell, iter(heard), None, iter(ids))

    def _tell(
        self, callbacks: Iterator[UserCallback], error: PulsarException | None, ids: Iterator[MessageId | None]
    ) -> None:
        # From the loop, those of a batch in one go: what one raises is for the loop's exception handler, not for the
        # connection, and the rest goes on in the next turn.
        is_done = False
        try:
            for callback in callbacks:
                callback(error, next(ids))
            is_done = True
        finally:
            if not is_done:
                self._loop.call_soon(self._tell, callbacks, error, ids)

    # ---- time

    def _arm_timer(self) -> None:
        oldest = self.queue.oldest
        if oldest is not None:
            left_s = oldest.created_s + self._timeout_ms / 1000 - self._clock.monotonic()
            self._timer = self._loop.call_later(max(left_s, 0.001), self._expire)

    def _expire(self) -> None:
        self._timer = None
        before_s = self._clock.monotonic() - self._timeout_ms / 1000
        cause = ""
        if self._refusal is not None and self._refusal[0] >= before_s:
            cause = f"; the broker said last: {self._refusal[1]}"
        for pending in self.queue.expire(before_s):
            if pending.was_written:
                text = f"no receipt within {self._timeout_ms} ms: unknown whether it was stored"
            else:
                text = f"not sent within {self._timeout_ms} ms: it was not stored"
            self._finish(pending, -1, -1, Timeout(text + cause))
        self._arm_timer()

    # ---- waiting

    def is_full(self, open_messages: int) -> bool:
        """Whether nothing more may be sent now; ``open_messages`` are not frames yet."""
        return self._memory.is_full or self._is_queue_full(open_messages)

    @property
    def room(self) -> int:
        """Messages that it takes now, if none are open."""
        return self.messages_max - self.queue.messages if self.messages_max else sys.maxsize

    def _is_queue_full(self, open_messages: int) -> bool:
        return 0 < self.messages_max <= self.queue.messages + open_messages

    async def wait_for_receipts(self) -> None:
        """Until everything that is here now is answered or given up."""
        newest = self.queue.newest
        if newest is None:
            return
        if self._awaited is None or self._awaited[0] is not newest:
            gone: asyncio.Future[None] = self._loop.create_future()
            newest.waiters = [*(newest.waiters or ()), partial(_wake, gone)]
            self._awaited = newest, gone
        # Shared by all who wait for the same frame: who gives up leaves nothing behind, however often.
        await asyncio.shield(self._awaited[1])


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
