"""What sending has in common with nothing else of a producer: which way a message goes, and the checks for room.

The fast path is :meth:`Sending.send_nowait` with bytes alone: an append, an addition, two comparisons; no task, no
future, no object per message. Batches gather in :mod:`.batching`; they and messages alone become frames in
:mod:`.framing`.
"""

from __future__ import annotations

import asyncio
from typing import Final, TypeVar, Unpack, cast

from geminga.client._api.errors import (
    AlreadyClosed,
    InvalidConfiguration,
    MemoryBufferIsFull,
    ProducerQueueIsFull,
    PulsarException,
    Timeout,
)
from geminga.client._api.message_id import MessageId
from geminga.client._api.options import ProducerOptions
from geminga.client._api.place import Place
from geminga.client._api.producer import EntryProducer, MessageFields
from geminga.client._api.producer import SendCallback as UserCallback
from geminga.client._api.transaction import Transaction, begin_in
from geminga.client._producing.batching import Batching
from geminga.client._producing.early_messages import EarlyMessages
from geminga.client._producing.framing import Framing
from geminga.client._producing.messages import MessageBuilder, check_callback
from geminga.client._producing.send_buffer import SendBuffer
from geminga.client.producer_rules.encoded_batch import EncodedBatch, WholeEntry
from geminga.client.producer_rules.frame_maker import FrameMaker
from geminga.client.producer_rules.memory_limit import MemoryLimit
from geminga.client.producer_rules.message import EncodedMessage
from geminga.client.producer_rules.producer_state import OPEN, State
from geminga.client.producer_rules.send_queue import SendCallback
from geminga.runtime import Clock, again, get_logger, next_turn, value_of

T = TypeVar("T")
_log = get_logger(__name__)

#: A batch that is due within so many seconds is due now.
_TIMER_SLACK_S: Final = 0.0005


class Sending(EntryProducer[T]):
    """The sending half of a :class:`TopicProducer`; not for use on its own."""

    __slots__ = (
        "_buffer",
        "_builder",
        "_clock",
        "_connecting",
        "_early",
        "_failure",
        "_frames",
        "_framing",
        "_is_batching",
        "_line",
        "_loop",
        "_memory",
        "_name",
        "_options",
        "_place",
        "_state",
        "_topic",
        "_unsure_resends",
        "batching",
        "take_unheard",
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
        self._line = self._buffer.line
        #: The first error that nobody heard of, once; for who flushes.
        self.take_unheard = self._buffer.take_unheard
        self._frames = FrameMaker(
            producer_id,
            compression=options.compression_type,
            is_chunking=options.chunking_enabled,
            chunk_bytes_max=options.chunk_max_message_size,
            encrypt=builder.encrypt,
        )
        #: Sent before the first connection, whose answer says where sequence ids begin.
        self._early = EarlyMessages(clock, memory, self._buffer, options.send_timeout_millis)
        #: The first connection, in the background.
        self._connecting: asyncio.Task[None] | None = None
        self._is_batching = options.batching_enabled
        self._framing = Framing(clock, self._frames, self._buffer, topic, options.initial_sequence_id)
        #: The open batches; partitioned producers look at them.
        self.batching = Batching(
            clock,
            options,
            takes_plain=builder.is_plain,
            check_room=self._check_may_open,
            on_batch=self._framing.add_batch,
        )

    # ---- sending

    def send_nowait(
        self, content: T | None, callback: UserCallback | None = None, **fields: Unpack[MessageFields]
    ) -> None:
        """See :meth:`Producer.send_nowait`."""
        batching = self.batching
        batch = batching.plain
        if batch is not None and not fields and type(content) is bytes:
            size = batch.size_bytes + len(content)
            if size <= batching.bytes_max:
                payloads = batch.payloads
                if callback is not None:
                    check_callback(callback)
                    batch.add_callback(callback)
                payloads.append(content)
                batch.size_bytes = size
                if len(payloads) >= batching.messages_max:
                    batching.close()
                return
        if fields and fields.get("txn") is not None:
            self._send_in_transaction(content, callback, fields)
            return
        check_callback(callback)
        self._send(self._builder.build(content, fields), callback)

    def _send_in_transaction(self, content: T | None, callback: UserCallback | None, fields: MessageFields) -> None:
        batching = self.batching
        batch = batching.batch
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
            if size <= batching.bytes_max and len(batch.payloads) < batching.messages_max - 1:
                batch.payloads.append(payload)
                batch.size_bytes = size
                return
        if is_plain and not self._is_batching and self._state is not State.NEW and isinstance(txn, Transaction):
            now_s = self._clock.monotonic()
            core = txn.check_takes(self._place, now_s)
            self._check_may_send()
            self._framing.add_plain(cast("bytes", content), core, now_s)
            return
        check_callback(callback)
        core = begin_in(txn, self._place)
        try:
            self._send(self._builder.build(content, fields), callback)
        finally:
            core.settle(None)

    def send_encoded(
        self,
        entry: EncodedBatch | EncodedMessage | WholeEntry,
        callback: UserCallback | None = None,
        *,
        txn: Transaction | None = None,
    ) -> None:
        """See :meth:`EntryProducer.send_encoded`."""
        if txn is None:
            self._send_encoded(entry, callback)
            return
        if isinstance(entry, WholeEntry):
            raise InvalidConfiguration("what was stored elsewhere is copied as it is, in no transaction")
        core = entry.txn = begin_in(txn, self._place)
        try:
            self._send_encoded(entry, callback)
        finally:
            core.settle(None)

    def _send_encoded(self, entry: EncodedBatch | EncodedMessage | WholeEntry, callback: UserCallback | None) -> None:
        self._check_may_send()
        if self._is_batching:
            self.batching.close()
        if isinstance(entry, WholeEntry):
            self._framing.add_whole(entry)
        elif isinstance(entry, EncodedMessage):
            self._framing.add_alone(entry, callback)
        else:
            self._framing.add_encoded(entry, callback)

    async def send(self, content: T | None, **fields: Unpack[MessageFields]) -> MessageId:
        """See :meth:`Producer.send`."""
        receipt: asyncio.Future[MessageId] = self._loop.create_future()
        await self.hand_over(content, receipt, fields)
        try:
            return await receipt
        except RuntimeError:
            self._place.check()  # a future of another loop
            raise
        finally:
            del receipt  # see runtime's value_of

    async def hand_over(self, content: T | None, receiver: SendCallback, fields: MessageFields) -> None:
        """:meth:`send` without its waiting for the receipt: ``receiver`` hears of that. Cancelled, it sent nothing."""
        # From here on it is under way in its transaction, also while it waits for room.
        core = begin_in(fields["txn"], self._place) if fields and fields.get("txn") is not None else None
        try:
            if self._options.block_if_queue_full and (self._line or self._is_full()):
                await self._wait_for_room(self._options.send_timeout_millis)
            self._send(self._builder.build(content, fields), receiver)
        finally:
            if core is not None:
                core.settle(None)
        if self._is_batching and self.open_messages:
            self.batching.want_receipt(is_idle=not self._buffer.queue.in_flight)

    def _send(self, message: EncodedMessage, callback: SendCallback | None, *, is_let_in: bool = False) -> None:
        """``is_let_in``: it was, before the producer was connected, whatever others hold by now."""
        if self._state is State.NEW:
            self._check_may_send()
            if message.txn is not None:
                message.txn.join()  # until it is taken from there
            self._early.add(message, callback)
        elif self._is_batching and message.is_batchable:
            self.batching.add(message, callback, is_let_in=is_let_in)
        else:
            if not is_let_in:
                self._check_may_send()
            if self._is_batching:
                self.batching.close()
            self._framing.add_alone(message, callback)
            self.batching.left(message.sequence_id)

    def _check_may_send(self) -> None:
        if self._state not in OPEN:
            raise again(self._failure or AlreadyClosed(f"producer {self._name} of {self._topic} is closed"))
        place = self._place
        place.check_process()
        if self._loop.is_closed():
            place.check()
        if self._memory.is_full:
            raise MemoryBufferIsFull(f"{self._memory.limit_bytes} bytes wait for their receipts")
        if self._is_full():
            raise ProducerQueueIsFull(f"{self.pending_messages} messages of {self._name} wait for their receipts")

    def _check_may_open(self) -> int:
        """A batch is about to: how many messages it may take, which are not looked at behind its first."""
        self._check_may_send()
        self._place.check()
        return self._buffer.room

    def _is_full(self) -> bool:
        if self._state is State.NEW and self._early.is_full:
            return True
        return self._buffer.is_full(self.open_messages)

    @property
    def open_messages(self) -> int:
        """Messages that are no frames yet."""
        return len(self._early) + self.batching.messages

    # ---- waiting

    async def flush(self) -> None:
        """See :meth:`Producer.flush`."""
        self._place.check()
        if self._connecting is not None:
            await asyncio.wait([self._connecting])
        self.batching.close()
        await self._buffer.wait_for_receipts()
        value_of(self.take_unheard())

    async def drain(self) -> None:
        """See :meth:`Producer.drain`."""
        self._place.check()
        await next_turn()
        if self._line or self._is_full():
            await self._wait_for_room()

    async def _wait_for_room(self, timeout_ms: int = 0) -> None:
        """Until there is, and all who waited before have theirs, or until it can not be used any more. Raises Timeout
        after ``timeout_ms``; 0: it takes as long as it takes."""
        line = self._line
        place = line.join()
        try:
            async with asyncio.timeout(timeout_ms / 1000 if timeout_ms else None):
                while self._state in OPEN:
                    if line.is_first(place):
                        if self._state is State.NEW and self._connecting is not None and self._is_full():
                            await asyncio.wait([self._connecting])
                            continue
                        if self._is_full():
                            self.batching.close()
                        if not self._is_full():
                            return
                        self._buffer.await_memory()
                    await line.called(place)
        except TimeoutError:
            held = f"{self.pending_messages} messages of {self._name}"
            if self._memory.is_full:
                held = f"{self._memory.limit_bytes} bytes of the client's producers"
            text = f"no room within {timeout_ms} ms: it was not stored; {held} wait for their receipts"
            raise Timeout(text) from None
        finally:
            line.leave(place)

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
    def schema_version(self) -> bytes:
        """See :attr:`EntryProducer.schema_version`."""
        return self._frames.schema_version

    @property
    def pending_messages(self) -> int:
        """See :attr:`Producer.pending_messages`."""
        return self._buffer.queue.messages + self.open_messages
