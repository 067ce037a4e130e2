"""The producer of one topic or partition: batches, the queue of pending sends, receipts, resending.

The fast path is :meth:`TopicProducer.send_nowait` with bytes alone: an append, an addition, two comparisons; no task,
no future, no object per message. A batch is encoded, checksummed and written when it is full, when its delay is over,
on ``flush``, or, if somebody awaits a receipt, as soon as nothing is in flight.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import TYPE_CHECKING, TypeVar, Unpack

from geminga.client._connection import ClientConnection
from geminga.client._errors import (
    AlreadyClosed,
    ChecksumError,
    MemoryBufferIsFull,
    MessageTooBig,
    NotAllowedError,
    NotConnected,
    ProducerFenced,
    ProducerQueueIsFull,
    PulsarException,
    Timeout,
    TopicTerminated,
)
from geminga.client._link import Link
from geminga.client._message_id import MessageId
from geminga.client._options import ProducerOptions
from geminga.client._producer import MessageFields, Producer, SendCallback
from geminga.client._producer_messages import MessageBuilder
from geminga.client.core.batcher import Batch
from geminga.client.core.frame_maker import FrameMaker, TooBig
from geminga.client.core.message import EncodedMessage
from geminga.client.core.send_queue import PendingSend, ReceiptMismatch, SendQueue
from geminga.runtime import get_logger
from geminga.wire._generated import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from geminga.client._client import Client

T = TypeVar("T")
_log = get_logger(__name__)


class State(Enum):
    """Life of a producer."""

    CONNECTING = "connecting"
    READY = "ready"
    CLOSING = "closing"
    CLOSED = "closed"
    #: An error that trying again can not mend; see ``_failure``.
    FAILED = "failed"


class TopicProducer(Producer[T]):
    """See the module's docstring."""

    __slots__ = (
        "_access_epoch",
        "_batch",
        "_batch_bytes_max",
        "_batch_messages_max",
        "_batch_timer",
        "_builder",
        "_client",
        "_delay_s",
        "_epoch",
        "_failure",
        "_flush_scheduled",
        "_frames",
        "_is_batching",
        "_is_plain",
        "_last_sequence_id",
        "_link",
        "_loop",
        "_name",
        "_next_sequence_id",
        "_options",
        "_partition",
        "_producer_id",
        "_queue",
        "_room_waiters",
        "_state",
        "_timeout_timer",
        "_topic",
        "_unheard_error",
    )

    def __init__(
        self,
        client: Client,
        topic: str,
        options: ProducerOptions,
        builder: MessageBuilder[T],
        *,
        partition: int = -1,
    ) -> None:
        self._client = client
        self._topic = topic
        self._options = options
        self._builder = builder
        self._partition = partition
        self._loop = asyncio.get_running_loop()
        self._producer_id = client.next_producer_id()
        self._name = options.producer_name
        #: Grows with each PRODUCER, so that the broker tells a returning producer from a second one.
        self._epoch = 0
        #: Of exclusive access, as the broker granted it.
        self._access_epoch: int | None = None
        self._state = State.CONNECTING
        self._failure: PulsarException | None = None
        self._queue = SendQueue()
        self._frames = FrameMaker(
            self._producer_id,
            compression=options.compression_type,
            is_chunking=options.chunking_enabled,
            chunk_bytes_max=options.chunk_max_message_size,
            encrypt=builder.encrypt,
        )
        self._link = Link(
            client.runtime,
            client.pool,
            client.lookup,
            client.options,
            topic,
            attach=self._attach,
            on_failed=self._fail,
        )
        initial = options.initial_sequence_id
        self._next_sequence_id = -1 if initial is None else initial + 1
        self._last_sequence_id = -1 if initial is None else initial
        self._is_batching = options.batching_enabled
        self._batch_messages_max = options.batching_max_messages
        self._batch_bytes_max = options.batching_max_allowed_size_in_bytes
        self._delay_s = options.batching_max_publish_delay_ms / 1000
        #: The open batch; closed ones are frames in the queue.
        self._batch = Batch(0.0)
        #: The fast path may append to the open batch.
        self._is_plain = False
        self._batch_timer: asyncio.TimerHandle | None = None
        self._timeout_timer: asyncio.TimerHandle | None = None
        self._flush_scheduled = False
        self._room_waiters: list[asyncio.Future[None]] = []
        self._unheard_error: PulsarException | None = None

    # ---- sending

    def send_nowait(
        self, content: T | None, callback: SendCallback | None = None, **fields: Unpack[MessageFields]
    ) -> None:
        """See :meth:`Producer.send_nowait`."""
        if self._is_plain and callback is None and not fields and type(content) is bytes:
            batch = self._batch
            payloads = batch.payloads
            size = batch.size_bytes + len(content)
            if size <= self._batch_bytes_max:
                payloads.append(content)
                batch.size_bytes = size
                if len(payloads) >= self._batch_messages_max:
                    self._close_batch()
                return
        self._send(self._builder.build(content, fields), callback)

    async def send(self, content: T | None, **fields: Unpack[MessageFields]) -> MessageId:
        """See :meth:`Producer.send`."""
        if self._options.block_if_queue_full:
            while self._state in (State.READY, State.CONNECTING) and self._is_full():
                await self._wait_for_room()
        receipt: asyncio.Future[MessageId] = self._loop.create_future()

        def done(error: PulsarException | None, message_id: MessageId | None) -> None:
            if receipt.done():
                return
            if error is not None:
                receipt.set_exception(error)
            elif message_id is not None:
                receipt.set_result(message_id)

        self._send(self._builder.build(content, fields), done)
        self._send_awaited()
        return await receipt

    def _send(self, message: EncodedMessage, callback: SendCallback | None) -> None:
        if not (self._is_batching and message.is_batchable):
            self._check_may_send()
            self._close_batch()
            self._enqueue_alone(message, callback)
            return
        batch = self._batch
        if batch.payloads and not batch.fits(message, self._batch_bytes_max):
            self._close_batch()
            batch = self._batch
        if not batch.payloads:
            self._check_may_send()
            batch = self._open_batch(is_custom=message.sequence_id is not None)
        batch.add(message, callback)
        if len(batch.payloads) >= self._batch_messages_max or batch.size_bytes >= self._batch_bytes_max:
            self._close_batch()

    def _send_awaited(self) -> None:
        """Somebody waits for the receipt of what was sent last: do not let it wait for the batch's delay alone."""
        if self._batch.payloads:
            self._batch.is_awaited = True
            if not self._queue.in_flight and not self._flush_scheduled:
                # At the end of this turn, so that all that are sent in it become one batch.
                self._flush_scheduled = True
                self._loop.call_soon(self._flush_awaited)

    def _flush_awaited(self) -> None:
        self._flush_scheduled = False
        if self._batch.is_awaited:
            self._close_batch()

    def _check_may_send(self) -> None:
        state = self._state
        if state is not State.READY and state is not State.CONNECTING:
            raise self._failure or AlreadyClosed(f"producer {self._name} of {self._topic} is closed")
        self._client.check_process()
        if self._client.memory.is_full:
            raise MemoryBufferIsFull(f"{self._client.memory.limit_bytes} bytes wait for their receipts")
        limit = self._options.max_pending_messages
        if limit and self._queue.messages >= limit:
            raise ProducerQueueIsFull(f"{limit} messages of {self._name} wait for their receipts")

    def _is_full(self) -> bool:
        limit = self._options.max_pending_messages
        pending = self._queue.messages + len(self._batch.payloads)
        return self._client.memory.is_full or (limit > 0 and pending >= limit)

    # ---- batches

    def _open_batch(self, *, is_custom: bool) -> Batch:
        batch = self._batch = Batch(self._client.runtime.clock.monotonic(), is_custom=is_custom)
        self._is_plain = not is_custom and self._builder.is_plain
        if self._batch_timer is None:
            self._batch_timer = self._loop.call_later(self._delay_s, self._batch_due)
        return batch

    def _batch_due(self) -> None:
        self._batch_timer = None
        if self._batch.payloads:
            left_s = self._batch.opened_s + self._delay_s - self._client.runtime.clock.monotonic()
            if left_s > 0.0005:  # it was opened after the timer was armed
                self._batch_timer = self._loop.call_later(left_s, self._batch_due)
            else:
                self._close_batch()

    def _close_batch(self) -> None:
        """The open batch, if it has messages, becomes a frame."""
        batch = self._batch
        count = len(batch.payloads)
        if not count:
            return
        self._batch = Batch(0.0)
        self._is_plain = False
        clock = self._client.runtime.clock
        first = self._next_sequence_id
        if not batch.is_custom:
            self._next_sequence_id += count
        try:
            pending = self._frames.batch(batch, first, clock.monotonic(), clock.wall_ms())
        except TooBig as error:
            self._refuse(batch.callbacks, count, MessageTooBig(str(error)))
            return
        self._enqueue(pending)

    def _refuse(self, callbacks: list[tuple[int, SendCallback]] | None, count: int, error: PulsarException) -> None:
        for _, callback in callbacks or ():
            callback(error, None)
        if len(callbacks or ()) < count and self._unheard_error is None:
            self._unheard_error = error

    def _enqueue_alone(self, message: EncodedMessage, callback: SendCallback | None) -> None:
        sequence_id = message.sequence_id
        if sequence_id is None:
            sequence_id = self._next_sequence_id
        clock = self._client.runtime.clock
        try:
            frames = self._frames.message(message, sequence_id, callback, clock.monotonic(), clock.wall_ms())
        except TooBig as error:
            raise MessageTooBig(str(error)) from None
        if message.sequence_id is None:
            self._next_sequence_id += 1
        for pending in frames:
            self._enqueue(pending)

    def _enqueue(self, pending: PendingSend) -> None:
        self._queue.add(pending)
        self._client.memory.reserve(pending.size_bytes)
        if self._timeout_timer is None and self._options.send_timeout_millis:
            self._arm_timeout()
        self._write_queued()

    def _write_queued(self) -> None:
        connection = self._link.connection
        queue = self._queue
        if connection is None or self._state is State.CONNECTING:
            return
        while queue.queued and connection.is_writable:
            pending = queue.next_to_write()
            if pending is not None:
                connection.write(pending.frame)

    # ---- the connection's events

    async def _attach(self, connection: ClientConnection) -> None:
        """Say PRODUCER on ``connection``; afterwards everything pending is written again, in order."""
        options = self._options
        request_id = connection.next_request_id()
        request = pb.CommandProducer(
            topic=self._topic,
            producer_id=self._producer_id,
            request_id=request_id,
            epoch=self._epoch,
            encrypted=self._builder.encrypt is not None,
            user_provided_producer_name=bool(options.producer_name),
            producer_access_mode=pb.ProducerAccessMode.ValueType(int(options.access_mode)),
        )
        self._epoch += 1
        if self._name:
            request.producer_name = self._name
        if self._access_epoch is not None:
            request.topic_epoch = self._access_epoch
        if options.initial_subscription_name:
            request.initial_subscription_name = options.initial_subscription_name
        for name, value in options.properties.items():
            request.metadata.add(key=name, value=value)
        schema = self._builder.schema
        if schema is not None:
            request.schema.CopyFrom(schema)
        connection.register_producer(self._producer_id, self)
        try:
            command = pb.BaseCommand(type=pb.BaseCommand.PRODUCER, producer=request)
            timeout_s = self._client.options.operation_timeout_ms / 1000
            answer = (await connection.request(command, request_id, timeout_s)).producer_success
            if not answer.producer_ready:
                # Waiting for exclusive access, for as long as it takes.
                answer = (await connection.expect_again(request_id)).producer_success
        except BaseException as error:
            connection.unregister_producer(self._producer_id)
            if not isinstance(error, PulsarException) or isinstance(error, Timeout):
                # The broker may make it all the same: it must not stay there without us.
                self._leave(connection)
            raise
        self._attached(connection, answer)

    def _attached(self, connection: ClientConnection, answer: pb.CommandProducerSuccess) -> None:
        if self._state not in (State.CONNECTING, State.READY) or connection.is_closed:
            return
        self._name = self._frames.producer_name = answer.producer_name
        self._frames.message_bytes_max = connection.max_message_size
        if answer.schema_version:
            self._frames.schema_version = answer.schema_version
        if answer.HasField("topic_epoch"):
            self._access_epoch = answer.topic_epoch
        if self._next_sequence_id < 0:
            self._last_sequence_id = answer.last_sequence_id
            self._next_sequence_id = answer.last_sequence_id + 1
        self._link.connection = connection
        self._state = State.READY
        self._queue.connection_lost()
        self._write_queued()

    def _leave(self, connection: ClientConnection) -> None:
        if connection.is_closed:
            return
        request_id = connection.next_request_id()
        command = pb.BaseCommand(
            type=pb.BaseCommand.CLOSE_PRODUCER,
            close_producer=pb.CommandCloseProducer(producer_id=self._producer_id, request_id=request_id),
        )
        # Nobody waits for the answer, which is dropped when it comes.
        connection.send_unanswered(command)

    def on_receipt(self, sequence_id: int, highest_sequence_id: int, ledger_id: int, entry_id: int) -> None:
        """A frame was stored."""
        try:
            pending = self._queue.receipt(sequence_id)
        except ReceiptMismatch as error:
            connection = self._link.connection
            _log.warning("producer %s of %s: %s; sending again", self._name, self._topic, error)
            if connection is not None:
                connection.abort(NotConnected(str(error)))
            return
        if pending is None:
            return
        if pending.highest_sequence_id > self._last_sequence_id:
            self._last_sequence_id = pending.highest_sequence_id
        self._finished(pending, ledger_id, entry_id, None)
        if self._batch.is_awaited and not self._queue.in_flight:
            self._close_batch()

    def on_send_error(self, sequence_id: int, error: PulsarException) -> None:
        """A frame was refused."""
        if isinstance(error, TopicTerminated | ProducerFenced):
            self._fail(error)
        elif isinstance(error, NotAllowedError):
            oldest = self._queue.oldest
            if oldest is not None and oldest.sequence_id == sequence_id:
                self.on_refused(sequence_id, error)
        else:
            # ChecksumError: damaged on the way. Others: what the broker can not do now. In order to keep the order,
            # everything from here on is sent again on a new connection, until the send timeout.
            if isinstance(error, ChecksumError):
                _log.warning("producer %s of %s: %s; sending again", self._name, self._topic, error)
            connection = self._link.connection
            if connection is not None:
                connection.close(NotConnected(f"sending again after: {error}"))

    def on_refused(self, sequence_id: int, error: PulsarException) -> None:
        """The oldest frame will never be stored; those behind it go on."""
        pending = self._queue.receipt(sequence_id)
        if pending is not None:
            self._finished(pending, -1, -1, error)

    def on_closed_by_broker(self, assigned_url: str) -> None:
        """The topic moves, or is unloaded."""
        self._disconnected(assigned_url)

    def on_connection_lost(self, error: PulsarException) -> None:
        """The connection is gone."""
        self._disconnected("")

    def on_writable(self) -> None:
        """The transport takes data again."""
        if self._state is not State.CONNECTING:
            self._write_queued()

    def _disconnected(self, assigned_url: str) -> None:
        if self._state is State.READY:
            self._state = State.CONNECTING
            self._queue.connection_lost()
            self._link.lost(assigned_url)
        elif self._state is State.CLOSING:
            self._link.connection = None
            self._end(State.CLOSED, AlreadyClosed(f"producer {self._name}: the connection was lost while closing"))

    # ---- results

    def _finished(self, pending: PendingSend, ledger_id: int, entry_id: int, error: PulsarException | None) -> None:
        self._client.memory.release(pending.size_bytes)
        shared = pending.first_chunk_id
        if shared is not None and pending.chunk_index == 0:
            shared.append((ledger_id, entry_id))
        callbacks = pending.callbacks
        if error is not None:
            self._refuse(callbacks, pending.messages, error)
        elif callbacks is not None:
            first_chunk = MessageId(self._partition, *shared[0]) if shared and pending.chunks > 1 else None
            count = pending.messages
            for index, callback in callbacks:
                size = count if index >= 0 else 0
                callback(None, MessageId(self._partition, ledger_id, entry_id, index, size, first_chunk=first_chunk))
        if pending.waiters is not None:
            for wake in pending.waiters:
                wake()
        if self._room_waiters and not self._is_full():
            waiters, self._room_waiters = self._room_waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def _arm_timeout(self) -> None:
        oldest = self._queue.oldest
        if oldest is None or not self._options.send_timeout_millis:
            return
        due_s = oldest.created_s + self._options.send_timeout_millis / 1000
        left_s = max(due_s - self._client.runtime.clock.monotonic(), 0.001)
        self._timeout_timer = self._loop.call_later(left_s, self._expire)

    def _expire(self) -> None:
        self._timeout_timer = None
        timeout_ms = self._options.send_timeout_millis
        before_s = self._client.runtime.clock.monotonic() - timeout_ms / 1000
        for pending in self._queue.expire(before_s):
            self._finished(
                pending, -1, -1, Timeout(f"no receipt within {timeout_ms} ms: unknown whether it was stored")
            )
        self._arm_timeout()

    def _fail(self, error: PulsarException) -> None:
        self._end(State.FAILED, error)

    def _end(self, state: State, error: PulsarException) -> None:
        """Closed or failed: everything pending fails with ``error``."""
        if self._state in (State.CLOSED, State.FAILED):
            return
        connection = self._link.connection
        if connection is not None:
            connection.unregister_producer(self._producer_id)
            self._leave(connection)
        self._close_batch()
        self._state = state
        self._failure = error if state is State.FAILED else None
        self._link.close()
        for timer in (self._batch_timer, self._timeout_timer):
            if timer is not None:
                timer.cancel()
        self._batch_timer = self._timeout_timer = None
        self._client.forget_producer(self)
        for pending in self._queue.take_all():
            self._finished(pending, -1, -1, error)
        for waiter in self._room_waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._room_waiters.clear()

    # ---- waiting

    async def flush(self) -> None:
        """See :meth:`Producer.flush`."""
        self._client.check_process()
        self._close_batch()
        await self._wait_for_receipts()
        error, self._unheard_error = self._unheard_error, None
        if error is not None:
            raise error

    async def _wait_for_receipts(self) -> None:
        newest = self._queue.newest
        if newest is None:
            return
        gone: asyncio.Future[None] = self._loop.create_future()
        if newest.waiters is None:
            newest.waiters = []
        newest.waiters.append(lambda: None if gone.done() else gone.set_result(None))
        await gone

    async def drain(self) -> None:
        """See :meth:`Producer.drain`."""
        await asyncio.sleep(0)
        while self._state in (State.READY, State.CONNECTING) and self._is_full():
            await self._wait_for_room()

    async def _wait_for_room(self) -> None:
        self._close_batch()
        waiter: asyncio.Future[None] = self._loop.create_future()
        if self._client.memory.is_full:
            self._client.memory.on_room(lambda: None if waiter.done() else waiter.set_result(None))
        self._room_waiters.append(waiter)
        await waiter

    # ---- life

    async def connect(self) -> None:
        """The first connection; raises what went wrong."""
        try:
            await self._link.connect()
        except BaseException as error:
            failure = error if isinstance(error, PulsarException) else AlreadyClosed("creating it was given up")
            self._end(State.FAILED, failure)
            raise

    async def close(self) -> None:
        """See :meth:`Producer.close`."""
        if self._state in (State.CLOSED, State.FAILED):
            return
        self._client.check_process()
        self._close_batch()
        connection = self._link.connection
        if self._state is State.READY and connection is not None:
            self._state = State.CLOSING
            try:
                async with asyncio.timeout(self._client.options.operation_timeout_ms / 1000):
                    await self._wait_for_receipts()
                    if self._link.connection is not None:
                        await self._close_on_broker(connection)
            except (TimeoutError, PulsarException) as error:
                _log.info("closing producer %s of %s: %s", self._name, self._topic, error)
        self._end(State.CLOSED, AlreadyClosed(f"producer {self._name} of {self._topic} was closed"))

    async def _close_on_broker(self, connection: ClientConnection) -> None:
        request_id = connection.next_request_id()
        command = pb.BaseCommand(
            type=pb.BaseCommand.CLOSE_PRODUCER,
            close_producer=pb.CommandCloseProducer(producer_id=self._producer_id, request_id=request_id),
        )
        connection.unregister_producer(self._producer_id)
        self._link.connection = None
        await connection.request(command, request_id, self._client.options.operation_timeout_ms / 1000)

    def topic(self) -> str:
        """See :meth:`Producer.topic`."""
        return self._topic

    def producer_name(self) -> str:
        """See :meth:`Producer.producer_name`."""
        return self._name

    def last_sequence_id(self) -> int:
        """See :meth:`Producer.last_sequence_id`."""
        return self._last_sequence_id

    def is_connected(self) -> bool:
        """See :meth:`Producer.is_connected`."""
        return self._state is State.READY and self._link.connection is not None

    @property
    def pending_messages(self) -> int:
        """See :attr:`Producer.pending_messages`."""
        return self._queue.messages + len(self._batch.payloads)
