"""What sending has in common with nothing else of a producer: batches, their timer, and the checks for room.

The fast path is :meth:`Sending.send_nowait` with bytes alone: an append, an addition, two comparisons; no task, no
future, no object per message. A batch is encoded, checksummed and written when it is full, when its delay is over, on
``flush``, or, if somebody awaits a receipt, as soon as nothing is in flight.
"""

from __future__ import annotations

import asyncio
from typing import Final, TypeVar, Unpack, cast

from geminga.client._api.errors import (
    AlreadyClosed,
    MemoryBufferIsFull,
    MessageTooBig,
    ProducerQueueIsFull,
    PulsarException,
    UnexpectedError,
    as_client_error,
)
from geminga.client._api.message_id import MessageId
from geminga.client._api.options import BatchingType, ProducerOptions
from geminga.client._api.place import Place
from geminga.client._api.producer import EntryProducer, MessageFields
from geminga.client._api.producer import SendCallback as UserCallback
from geminga.client._api.transaction import Transaction, begin_in
from geminga.client._producing.early_messages import EarlyMessages
from geminga.client._producing.messages import MessageBuilder, check_callback
from geminga.client._producing.send_buffer import SendBuffer
from geminga.client.producer_rules.batcher import Batch
from geminga.client.producer_rules.encoded_batch import EncodedBatch
from geminga.client.producer_rules.frame_maker import FrameMaker, TooBig
from geminga.client.producer_rules.key_batcher import KeyBatcher
from geminga.client.producer_rules.memory_limit import MemoryLimit
from geminga.client.producer_rules.message import EncodedMessage
from geminga.client.producer_rules.producer_state import OPEN, State
from geminga.client.producer_rules.send_queue import PendingSend, SendCallback
from geminga.client.rules.transaction import TransactionCore
from geminga.runtime import Clock, Raised, attempt, get_logger, next_turn

T = TypeVar("T")
_log = get_logger(__name__)

#: A batch that is due within so many seconds is due now.
_TIMER_SLACK_S: Final = 0.0005


class Sending(EntryProducer[T]):
    """The sending half of a :class:`TopicProducer`; not for use on its own."""

    __slots__ = (
        "_batch_bytes_max",
        "_batch_messages_max",
        "_batch_timer",
        "_buffer",
        "_builder",
        "_clock",
        "_connecting",
        "_delay_s",
        "_early",
        "_failure",
        "_flush_scheduled",
        "_frames",
        "_is_batching",
        "_is_plain",
        "_keyed",
        "_loop",
        "_memory",
        "_name",
        "_next_sequence_id",
        "_options",
        "_place",
        "_state",
        "_stored_sequence_id",
        "_target",
        "_topic",
        "_unsure_resends",
        "batch",
    )

    def __init__(
        self,
        clock: Clock,
        place: Place,
        memory: MemoryLimit,
        topic: str,
        options: ProducerOptions,
        builder: MessageBuilder[T],
        *,
        producer_id: int,
        partition: int,
    ) -> None:
        self._clock = clock
        self._place = place
        self._memory = memory
        self._topic = topic
        #: As transactions know it.
        self._target = (topic,)
        self._options = options
        self._builder = builder
        self._loop = asyncio.get_running_loop()
        self._name = options.producer_name
        self._state = State.NEW
        self._unsure_resends = 0
        self._failure: PulsarException | None = None
        self._buffer = SendBuffer(
            clock,
            memory,
            partition=partition,
            timeout_ms=options.send_timeout_millis,
            messages_max=options.max_pending_messages,
        )
        self._frames = FrameMaker(
            producer_id,
            compression=options.compression_type,
            is_chunking=options.chunking_enabled,
            chunk_bytes_max=options.chunk_max_message_size,
            encrypt=builder.encrypt,
        )
        #: Sent before the first connection, whose answer says where sequence ids begin.
        self._early = EarlyMessages(clock, self._buffer, options.send_timeout_millis)
        #: The first connection, in the background.
        self._connecting: asyncio.Task[None] | None = None
        initial = options.initial_sequence_id
        #: The last one that the broker had when the producer was made: batches of the user's own ids end there.
        self._stored_sequence_id = -1
        self._next_sequence_id = -1 if initial is None else initial + 1
        self._is_batching = options.batching_enabled
        # A batch passes the check for room once, with its first message.
        limit = options.max_pending_messages or options.batching_max_messages
        self._batch_messages_max = min(options.batching_max_messages, limit)
        self._batch_bytes_max = options.batching_max_allowed_size_in_bytes
        self._delay_s = options.batching_max_publish_delay_ms / 1000
        #: The open batch; closed ones are frames.
        self.batch = Batch(0.0)
        self._keyed = KeyBatcher() if options.batching_type is BatchingType.KeyBased else None
        #: The fast path may append to the open batch.
        self._is_plain = False
        self._batch_timer: asyncio.TimerHandle | None = None
        self._flush_scheduled = False

    # ---- sending

    def send_nowait(
        self, content: T | None, callback: UserCallback | None = None, **fields: Unpack[MessageFields]
    ) -> None:
        """See :meth:`Producer.send_nowait`."""
        if self._is_plain and not fields and type(content) is bytes:
            batch = self.batch
            size = batch.size_bytes + len(content)
            if size <= self._batch_bytes_max:
                payloads = batch.payloads
                if callback is not None:
                    check_callback(callback)
                    batch.add_callback(callback)
                payloads.append(content)
                batch.size_bytes = size
                if len(payloads) >= self._batch_messages_max:
                    self._close_batch()
                return
        if fields and fields.get("txn") is not None:
            self._send_in_transaction(content, callback, fields)
            return
        check_callback(callback)
        self._send(self._builder.build(content, fields), callback)

    def _send_in_transaction(self, content: T | None, callback: UserCallback | None, fields: MessageFields) -> None:
        batch = self.batch
        txn = fields["txn"]
        # An open batch of an open transaction, and nothing but bytes: as quick as without one.
        is_plain = len(fields) == 1 and type(content) is bytes and callback is None and self._builder.is_plain
        if (
            is_plain
            and batch.txn is not None
            and isinstance(txn, Transaction)
            and txn.core is batch.txn
            and not batch.is_custom
        ):
            payload = cast("bytes", content)
            size = batch.size_bytes + len(payload)
            if size <= self._batch_bytes_max and len(batch.payloads) < self._batch_messages_max - 1:
                batch.payloads.append(payload)
                batch.size_bytes = size
                return
        if is_plain and not self._is_batching and self._state is not State.NEW and isinstance(txn, Transaction):
            now_s = self._clock.monotonic()
            core = txn.check_takes(self._place, now_s)
            self._check_may_send()
            payload = cast("bytes", content)
            sequence_id = self._next_sequence_id
            pending = self._frames.plain_message(payload, core, sequence_id, now_s, self._clock.wall_ms())
            if pending is None:
                self._add_alone(EncodedMessage(payload, txn=core), None)
                return
            self._next_sequence_id = sequence_id + 1
            self._buffer.add_in(core, self._target, pending)
            return
        check_callback(callback)
        core = begin_in(txn, self._place)
        try:
            self._send(self._builder.build(content, fields), callback)
        finally:
            core.settle(None)

    def send_encoded(
        self,
        entry: EncodedBatch | EncodedMessage,
        callback: UserCallback | None = None,
        *,
        txn: Transaction | None = None,
    ) -> None:
        """See :meth:`EntryProducer.send_encoded`."""
        if txn is None:
            self._send_encoded(entry, callback)
            return
        core = entry.txn = begin_in(txn, self._place)
        try:
            self._send_encoded(entry, callback)
        finally:
            core.settle(None)

    def _send_encoded(self, entry: EncodedBatch | EncodedMessage, callback: UserCallback | None) -> None:
        self._check_may_send()
        self._close_batch()
        if isinstance(entry, EncodedMessage):
            self._add_alone(entry, callback)
            return
        clock = self._clock
        try:
            pending = self._frames.encoded(entry, callback, clock.monotonic(), clock.wall_ms())
        except TooBig as error:
            raise MessageTooBig(str(error)) from None
        self._next_sequence_id = max(self._next_sequence_id, entry.highest_sequence_id + 1)
        self._add_frame(pending, entry.txn)

    async def send(self, content: T | None, **fields: Unpack[MessageFields]) -> MessageId:
        """See :meth:`Producer.send`."""
        # From here on it is under way in its transaction, also while it waits for room.
        core = begin_in(fields["txn"], self._place) if fields and fields.get("txn") is not None else None
        receipt: asyncio.Future[MessageId] = self._loop.create_future()
        try:
            if self._options.block_if_queue_full:
                while self._state in OPEN and self._is_full():
                    await self._wait_for_room()
            self._send(self._builder.build(content, fields), receipt)
        finally:
            if core is not None:
                core.settle(None)
        if self._is_batching:
            self._flush_when_idle()
        try:
            return await receipt
        except RuntimeError:
            self._place.check()  # a future of another loop
            raise

    def _send(self, message: EncodedMessage, callback: SendCallback | None) -> None:
        if self._state is State.NEW:
            self._check_may_send()
            if message.txn is not None:
                message.txn.join()  # until it is taken from there
            self._early.add(message, callback)
        elif not (self._is_batching and message.is_batchable):
            self._check_may_send()
            if self._is_batching:
                self._close_batch()
            self._add_alone(message, callback)
        elif self._keyed is not None:
            self._send_keyed(self._keyed, message, callback)
        else:
            batch = self.batch
            if batch.payloads and not batch.fits(message, self._batch_bytes_max, self._stored_sequence_id):
                self._close_batch()
                batch = self.batch
            if not batch.payloads:
                self._check_may_send()
                self._place.check()
                is_custom = message.sequence_id is not None
                txn = message.txn
                batch = self.batch = Batch(self._clock.monotonic(), is_custom=is_custom, txn=txn)
                self._is_plain = not is_custom and txn is None and self._builder.is_plain
                if txn is not None:
                    self._opened_in(txn)
                self._arm_batch_timer(self._delay_s)
            batch.add(message, callback)
            if len(batch.payloads) >= self._batch_messages_max or batch.size_bytes >= self._batch_bytes_max:
                self._close_batch()

    def _send_keyed(self, keyed: KeyBatcher, message: EncodedMessage, callback: SendCallback | None) -> None:
        if keyed.messages and not keyed.fits(message, self._batch_bytes_max, self._stored_sequence_id):
            self._close_batch()
        if not keyed.messages:
            self._check_may_send()
            self._place.check()
            if message.txn is not None:
                self._opened_in(message.txn)
            self._arm_batch_timer(self._delay_s)
        keyed.add(message, callback, self._clock.monotonic())
        if keyed.messages >= self._batch_messages_max or keyed.size_bytes >= self._batch_bytes_max:
            self._close_batch()

    def _check_may_send(self) -> None:
        if self._state not in OPEN:
            raise self._failure or AlreadyClosed(f"producer {self._name} of {self._topic} is closed")
        place = self._place
        place.check_process()
        if self._loop.is_closed():
            place.check()
        if self._memory.is_full:
            raise MemoryBufferIsFull(f"{self._memory.limit_bytes} bytes wait for their receipts")
        if self._is_full():
            raise ProducerQueueIsFull(f"{self.pending_messages} messages of {self._name} wait for their receipts")

    def _is_full(self) -> bool:
        if self._state is State.NEW and self._early.is_full:
            return True
        return self._buffer.is_full(self.open_messages)

    # ---- batches

    @property
    def open_messages(self) -> int:
        """Messages that are no frames yet."""
        return len(self._early) + (self._keyed.messages if self._keyed is not None else len(self.batch.payloads))

    def _flush_when_idle(self) -> None:
        """Somebody waits for the receipt of what was sent last: do not let it wait for the batch's delay alone."""
        open_ = self.batch if self._keyed is None else self._keyed
        if self.open_messages:
            open_.is_awaited = True
            if not self._buffer.queue.in_flight and not self._flush_scheduled:
                # At the end of this turn, so that all that are sent in it become one batch.
                self._flush_scheduled = True
                self._loop.call_soon(self._flush_awaited)

    def _flush_awaited(self) -> None:
        self._flush_scheduled = False
        if (self.batch if self._keyed is None else self._keyed).is_awaited and self._state is not State.NEW:
            self._close_batch()

    def _arm_batch_timer(self, delay_s: float) -> None:
        if self._batch_timer is None:
            self._batch_timer = self._loop.call_later(delay_s, self._batch_due)

    def _batch_due(self) -> None:
        self._batch_timer = None
        if self.open_messages:
            opened_s = self.batch.opened_s if self._keyed is None else self._keyed.opened_s
            left_s = opened_s + self._delay_s - self._clock.monotonic()
            if left_s > _TIMER_SLACK_S:  # it was opened after the timer was armed
                self._arm_batch_timer(left_s)
            else:
                self._close_batch()

    def _opened_in(self, txn: TransactionCore) -> None:
        """What is open now is the transaction's: it is under way, and leaves at the latest when that is to end."""
        txn.join()
        txn.flush_at_end(self._close_batch)

    def _close_batch(self) -> None:
        """What is in open batches becomes frames."""
        if self._keyed is not None:
            txn = self._keyed.txn
            for keyed in self._keyed.take():
                self._add_batch(keyed)
            if txn is not None:
                txn.settle(None)
        elif self.batch.payloads:
            batch, self.batch = self.batch, Batch(0.0)
            self._is_plain = False
            self._add_batch(batch)
            if batch.txn is not None:
                batch.txn.settle(None)

    def _add_batch(self, batch: Batch) -> None:
        # Who sent it has gone on: whatever is raised here ends in the futures and callbacks of the batch, nowhere else.
        pending = attempt(self._frames.batch, batch, self._next_sequence_id, self._clock.wall_ms())
        if isinstance(pending, Raised):
            self._refuse_batch(batch, pending.error)
        else:
            self._next_sequence_id = max(self._next_sequence_id, pending.highest_sequence_id + 1)
            self._add_frame(pending, batch.txn)

    def _add_frame(self, pending: PendingSend, txn: TransactionCore | None) -> None:
        if txn is None:
            self._buffer.add(pending)
        else:
            self._buffer.add_in(txn, self._target, pending)

    def _refuse_batch(self, batch: Batch, error: Exception) -> None:
        count = len(batch)
        if count > 1 and not isinstance(error, PulsarException):
            # Together too big for the broker, or one of them can not be encoded: the others can.
            for single in batch.singles():
                self._add_batch(single)
            return
        failure = MessageTooBig(str(error)) if isinstance(error, TooBig) else as_client_error(error, "encoding")
        if isinstance(failure, UnexpectedError):
            _log.error("producer %s of %s: %s", self._name, self._topic, failure, exc_info=error)
        if batch.txn is not None:
            batch.txn.fail(failure)
        self._buffer.refuse(batch.callbacks, count, failure)

    def _add_alone(self, message: EncodedMessage, callback: SendCallback | None) -> None:
        clock = self._clock
        sequence_id = self._next_sequence_id if message.sequence_id is None else message.sequence_id
        try:
            frames = self._frames.message(message, sequence_id, callback, clock.monotonic(), clock.wall_ms())
        except TooBig as error:
            raise MessageTooBig(str(error)) from None
        self._next_sequence_id = max(self._next_sequence_id, sequence_id + 1)
        for pending in frames:
            self._add_frame(pending, message.txn)

    # ---- waiting

    async def flush(self) -> None:
        """See :meth:`Producer.flush`."""
        self._place.check()
        if self._connecting is not None:
            await asyncio.wait([self._connecting])
        self._close_batch()
        await self._buffer.wait_for_receipts()
        self._buffer.raise_unheard()

    async def drain(self) -> None:
        """See :meth:`Producer.drain`."""
        self._place.check()
        await next_turn()
        while self._state in OPEN and self._is_full():
            await self._wait_for_room()

    async def _wait_for_room(self) -> None:
        if self._state is State.NEW and self._connecting is not None:
            await asyncio.wait([self._connecting])
            return
        self._close_batch()
        if self._is_full():
            await self._buffer.wait_for_room()

    # ---- what it has

    def last_sequence_id(self) -> int:
        """See :meth:`Producer.last_sequence_id`."""
        return self._buffer.last_sequence_id

    @property
    def is_usable(self) -> bool:
        """See :attr:`EntryProducer.is_usable`."""
        return self._state in OPEN

    @property
    def unsure_resends(self) -> int:
        """See :attr:`EntryProducer.unsure_resends`."""
        return self._unsure_resends

    @property
    def pending_messages(self) -> int:
        """See :attr:`Producer.pending_messages`."""
        return self._buffer.queue.messages + self.open_messages
