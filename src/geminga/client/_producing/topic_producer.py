"""The producer of one topic or partition: batches, frames, and its life on the broker.

The fast path is :meth:`TopicProducer.send_nowait` with bytes alone: an append, an addition, two comparisons; no task,
no future, no object per message. A batch is encoded, checksummed and written when it is full, when its delay is over,
on ``flush``, or, if somebody awaits a receipt, as soon as nothing is in flight.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import TYPE_CHECKING, Final, TypeVar, Unpack

from geminga.client._errors import (
    AlreadyClosed,
    MemoryBufferIsFull,
    MessageTooBig,
    NotAllowedError,
    NotConnected,
    ProducerFenced,
    ProducerQueueIsFull,
    PulsarException,
    Timeout,
    TopicTerminated,
    UnexpectedError,
    as_client_error,
)
from geminga.client._message_id import MessageId
from geminga.client._options import BatchingType, ProducerOptions
from geminga.client._producing import requests
from geminga.client._producing.early_messages import EarlyMessages
from geminga.client._producing.messages import MessageBuilder, check_callback
from geminga.client._producing.producer import MessageFields, Producer
from geminga.client._producing.producer import SendCallback as UserCallback
from geminga.client._producing.send_buffer import SendBuffer
from geminga.client._transport.connection import ClientConnection
from geminga.client._transport.link import Link
from geminga.client.core.batcher import Batch
from geminga.client.core.encoded_batch import EncodedBatch
from geminga.client.core.frame_maker import FrameMaker, TooBig
from geminga.client.core.key_batcher import KeyBatcher
from geminga.client.core.message import EncodedMessage
from geminga.client.core.send_queue import SendCallback
from geminga.runtime import Raised, attempt, get_logger, next_turn, spawn
from geminga.wire._generated import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from geminga.client._client import Client

T = TypeVar("T")
_log = get_logger(__name__)

#: A batch that is due within so many seconds is due now.
_TIMER_SLACK_S: Final = 0.0005


class State(Enum):
    """Life of a producer."""

    #: Never connected so far.
    NEW = "new"
    #: Connected once, and trying to be again.
    CONNECTING = "connecting"
    READY = "ready"
    CLOSING = "closing"
    CLOSED = "closed"
    #: An error that trying again can not mend.
    FAILED = "failed"


_OPEN: Final = (State.NEW, State.CONNECTING, State.READY)


class TopicProducer(Producer[T]):
    """See the module's docstring."""

    __slots__ = (
        "_access",
        "_access_epoch",
        "_batch_bytes_max",
        "_batch_messages_max",
        "_batch_timer",
        "_buffer",
        "_builder",
        "_client",
        "_closing",
        "_connecting",
        "_delay_s",
        "_early",
        "_epoch",
        "_failure",
        "_flush_scheduled",
        "_frames",
        "_is_batching",
        "_is_plain",
        "_keyed",
        "_link",
        "_loop",
        "_name",
        "_next_sequence_id",
        "_options",
        "_producer_id",
        "_state",
        "_stored_sequence_id",
        "_topic",
        "batch",
    )

    def __init__(
        self, client: Client, topic: str, options: ProducerOptions, builder: MessageBuilder[T], *, partition: int = -1
    ) -> None:
        self._client = client
        self._topic = topic
        self._options = options
        self._builder = builder
        self._loop = asyncio.get_running_loop()
        self._producer_id = client.next_producer_id()
        self._name = options.producer_name
        #: Of the next PRODUCER.
        self._epoch = 0
        #: Of exclusive access, as the broker granted it.
        self._access_epoch: int | None = None
        #: While it waits for exclusive access.
        self._access: asyncio.Future[pb.BaseCommand] | None = None
        self._state = State.NEW
        self._failure: PulsarException | None = None
        self._buffer = SendBuffer(
            client,
            partition=partition,
            timeout_ms=options.send_timeout_millis,
            messages_max=options.max_pending_messages,
        )
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
        #: Sent before the first connection, whose answer says where sequence ids begin.
        self._early = EarlyMessages(client.runtime.clock, self._buffer, options.send_timeout_millis)
        self._connecting: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
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
        check_callback(callback)
        self._send(self._builder.build(content, fields), callback)

    def send_encoded(self, entry: EncodedBatch | EncodedMessage, callback: UserCallback | None = None) -> None:
        """Hand over an entry that is encoded already, behind everything before; raises as :meth:`send_nowait` does.

        ``callback`` hears of it once, with an id that has no index in the batch.
        """
        self._check_may_send()
        self._close_batch()
        if isinstance(entry, EncodedMessage):
            self._add_alone(entry, callback)
            return
        clock = self._client.runtime.clock
        try:
            pending = self._frames.encoded(entry, callback, clock.monotonic(), clock.wall_ms())
        except TooBig as error:
            raise MessageTooBig(str(error)) from None
        self._next_sequence_id = max(self._next_sequence_id, entry.highest_sequence_id + 1)
        self._buffer.add(pending)

    async def send(self, content: T | None, **fields: Unpack[MessageFields]) -> MessageId:
        """See :meth:`Producer.send`."""
        if self._options.block_if_queue_full:
            while self._state in _OPEN and self._is_full():
                await self._wait_for_room()
        receipt: asyncio.Future[MessageId] = self._loop.create_future()
        self._send(self._builder.build(content, fields), receipt)
        if self._is_batching:
            self._flush_when_idle()
        try:
            return await receipt
        except RuntimeError:
            self._client.place.check()  # a future of another loop
            raise

    def _send(self, message: EncodedMessage, callback: SendCallback | None) -> None:
        if self._state is State.NEW:
            self._check_may_send()
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
                self._client.place.check()
                is_custom = message.sequence_id is not None
                batch = self.batch = Batch(self._client.runtime.clock.monotonic(), is_custom=is_custom)
                self._is_plain = not is_custom and self._builder.is_plain
                self._arm_batch_timer(self._delay_s)
            batch.add(message, callback)
            if len(batch.payloads) >= self._batch_messages_max or batch.size_bytes >= self._batch_bytes_max:
                self._close_batch()

    def _send_keyed(self, keyed: KeyBatcher, message: EncodedMessage, callback: SendCallback | None) -> None:
        if keyed.messages and not keyed.fits(message, self._batch_bytes_max, self._stored_sequence_id):
            self._close_batch()
        if not keyed.messages:
            self._check_may_send()
            self._client.place.check()
            self._arm_batch_timer(self._delay_s)
        keyed.add(message, callback, self._client.runtime.clock.monotonic())
        if keyed.messages >= self._batch_messages_max or keyed.size_bytes >= self._batch_bytes_max:
            self._close_batch()

    def _check_may_send(self) -> None:
        if self._state not in _OPEN:
            raise self._failure or AlreadyClosed(f"producer {self._name} of {self._topic} is closed")
        place = self._client.place
        place.check_process()
        if self._loop.is_closed():
            place.check()
        if self._client.memory.is_full:
            raise MemoryBufferIsFull(f"{self._client.memory.limit_bytes} bytes wait for their receipts")
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
            left_s = opened_s + self._delay_s - self._client.runtime.clock.monotonic()
            if left_s > _TIMER_SLACK_S:  # it was opened after the timer was armed
                self._arm_batch_timer(left_s)
            else:
                self._close_batch()

    def _close_batch(self) -> None:
        """What is in open batches becomes frames."""
        if self._keyed is not None:
            for keyed in self._keyed.take():
                self._add_batch(keyed)
        elif self.batch.payloads:
            batch, self.batch = self.batch, Batch(0.0)
            self._is_plain = False
            self._add_batch(batch)

    def _add_batch(self, batch: Batch) -> None:
        # Who sent it has gone on: whatever is raised here ends in the futures and callbacks of the batch, nowhere else.
        pending = attempt(self._frames.batch, batch, self._next_sequence_id, self._client.runtime.clock.wall_ms())
        if isinstance(pending, Raised):
            self._refuse_batch(batch, pending.error)
        else:
            self._next_sequence_id = max(self._next_sequence_id, pending.highest_sequence_id + 1)
            self._buffer.add(pending)

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
        self._buffer.refuse(batch.callbacks, count, failure)

    def _add_alone(self, message: EncodedMessage, callback: SendCallback | None) -> None:
        clock = self._client.runtime.clock
        sequence_id = self._next_sequence_id if message.sequence_id is None else message.sequence_id
        try:
            frames = self._frames.message(message, sequence_id, callback, clock.monotonic(), clock.wall_ms())
        except TooBig as error:
            raise MessageTooBig(str(error)) from None
        self._next_sequence_id = max(self._next_sequence_id, sequence_id + 1)
        for pending in frames:
            self._buffer.add(pending)

    # ---- the connection's events

    async def _attach(self, connection: ClientConnection) -> None:
        """Say PRODUCER on ``connection``; afterwards everything pending is written again, in order."""
        request_id = connection.next_request_id()
        command = self._create_command(request_id)
        connection.register_producer(self._producer_id, self)
        try:
            timeout_s = self._client.options.operation_timeout_ms / 1000
            answer = (await connection.request(command, request_id, timeout_s)).producer_success
            while not answer.producer_ready:
                # Waiting for exclusive access, for as long as it takes.
                self._access = connection.expect_again(request_id)
                answer = (await self._access).producer_success
        except BaseException as error:
            connection.forget_request(request_id)
            connection.unregister_producer(self._producer_id)
            if not isinstance(error, PulsarException) or isinstance(error, Timeout):
                # The broker may make it all the same: it must not stay there without us.
                connection.send_unanswered(requests.close(self._producer_id, connection.next_request_id()))
            raise
        if not connection.has_producer(self._producer_id):
            # Closed by the broker, or the connection was lost, in the very read that brought the answer.
            raise NotConnected(f"producer of {self._topic} was closed as soon as it was made")
        if self._state not in _OPEN:
            connection.unregister_producer(self._producer_id)
            raise AlreadyClosed(f"producer of {self._topic} was closed")
        self._name = answer.producer_name
        self._frames.connected(answer.producer_name, connection.max_message_size, answer.schema_version)
        if answer.HasField("topic_epoch"):
            self._access_epoch = answer.topic_epoch
        if self._state is State.NEW:
            self._stored_sequence_id = answer.last_sequence_id
            self._begin(answer.last_sequence_id)
        self._link.connection = connection
        self._state = State.READY
        self._buffer.connected(connection)
        for message, callback in self._early.take():
            sent = attempt(self._send, message, callback)
            if isinstance(sent, Raised):
                self._early.refuse(callback, as_client_error(sent.error, "sending"))

    def _begin(self, last_sequence_id: int) -> None:
        if self._next_sequence_id < 0:
            self._next_sequence_id = last_sequence_id + 1
        self._buffer.last_sequence_id = max(last_sequence_id, self._next_sequence_id - 1)

    def _create_command(self, request_id: int) -> pb.BaseCommand:
        epoch = self._epoch
        self._epoch += 1
        return requests.create(
            self._topic,
            self._producer_id,
            request_id,
            self._options,
            name=self._name,
            epoch=epoch,
            topic_epoch=self._access_epoch,
            is_encrypted=self._builder.encrypt is not None,
            schema=self._builder.schema,
        )

    def on_receipt(self, sequence_id: int, highest_sequence_id: int, ledger_id: int, entry_id: int) -> None:
        """A frame was stored."""
        self._buffer.receipt(sequence_id, ledger_id, entry_id)
        if (
            self._is_batching
            and not self._buffer.queue.in_flight
            and (self.batch if self._keyed is None else self._keyed).is_awaited
        ):
            self._close_batch()

    def on_send_error(self, sequence_id: int, error: PulsarException) -> None:
        """A frame was refused."""
        if isinstance(error, TopicTerminated | ProducerFenced):
            self._fail(error)
        elif isinstance(error, NotAllowedError):
            self._buffer.refused(sequence_id, error)
        else:
            # Damaged on the way, or what the broker can not do now. To keep the order, everything from here on is
            # sent again over a new connection, until the send timeout.
            _log.warning("producer %s of %s: %s; sending again", self._name, self._topic, error)
            connection = self._link.connection
            if connection is not None:
                connection.close(NotConnected(f"sending again after: {error}"))

    def on_closed_by_broker(self, assigned_url: str) -> None:
        """The topic moves, or is unloaded."""
        self._disconnected(assigned_url)

    def on_connection_lost(self, error: PulsarException) -> None:
        """The connection is gone."""
        self._disconnected("")

    def on_writable(self) -> None:
        """The transport takes data again."""
        self._buffer.write()

    def _disconnected(self, assigned_url: str) -> None:
        if self._state is State.READY:
            self._state = State.CONNECTING
            self._buffer.disconnected()
            self._link.lost(assigned_url)
        elif self._state is State.CLOSING:
            self._link.connection = None
            self._end(State.CLOSED, AlreadyClosed(f"producer {self._name}: the connection was lost while closing"))
        elif self._access is not None and not self._access.done():
            self._access.set_exception(NotConnected(f"producer of {self._topic} was closed while it waited for access"))

    # ---- life

    async def connect(self) -> None:
        """The first connection; raises what went wrong."""
        try:
            await self._link.connect()
        except BaseException as error:
            failure: PulsarException = AlreadyClosed("creating it was given up")
            if isinstance(error, Exception):
                failure = as_client_error(error, f"connecting the producer of {self._topic}")
            self._end(State.FAILED, failure)
            raise

    def connect_soon(self) -> None:
        """Connect in the background; what is sent meanwhile waits, and fails if connecting fails."""
        if self._connecting is None and self._state is State.NEW:
            self._connecting = spawn(self._connect_quietly(), name=f"connect producer of {self._topic}")

    async def _connect_quietly(self) -> None:
        try:
            await self.connect()
        except PulsarException as error:
            _log.warning("producer of %s: %s", self._topic, error)

    async def flush(self) -> None:
        """See :meth:`Producer.flush`."""
        self._client.place.check()
        if self._connecting is not None:
            await asyncio.wait([self._connecting])
        self._close_batch()
        await self._buffer.wait_for_receipts()
        self._buffer.raise_unheard()

    async def drain(self) -> None:
        """See :meth:`Producer.drain`."""
        self._client.place.check()
        await next_turn()
        while self._state in _OPEN and self._is_full():
            await self._wait_for_room()

    async def _wait_for_room(self) -> None:
        if self._state is State.NEW and self._connecting is not None:
            await asyncio.wait([self._connecting])
            return
        self._close_batch()
        if self._is_full():
            await self._buffer.wait_for_room()

    async def close(self) -> None:
        """See :meth:`Producer.close`."""
        self._client.place.check()
        if self._state in _OPEN and self._closing is None:
            self._closing = spawn(self._close(), name=f"close producer of {self._topic}")
        if self._closing is not None:
            await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._close_batch()
        connection = self._link.connection
        try:
            if self._state is State.READY and connection is not None:
                self._state = State.CLOSING
                async with asyncio.timeout(self._client.options.operation_timeout_ms / 1000):
                    await self._buffer.wait_for_receipts()
                    if self._link.connection is not None:
                        await self._close_on_broker(connection)
        except (TimeoutError, PulsarException) as error:
            _log.info("closing producer %s of %s: %s", self._name, self._topic, error)
        finally:
            text = f"producer {self._name} of {self._topic} was closed before the receipt came: it may be stored"
            self._end(State.CLOSED, AlreadyClosed(text))

    async def _close_on_broker(self, connection: ClientConnection) -> None:
        request_id = connection.next_request_id()
        connection.unregister_producer(self._producer_id)
        self._link.connection = None
        timeout_s = self._client.options.operation_timeout_ms / 1000
        await connection.request(requests.close(self._producer_id, request_id), request_id, timeout_s)

    def _fail(self, error: PulsarException) -> None:
        self._end(State.FAILED, error)

    def _end(self, state: State, error: PulsarException) -> None:
        """Closed or failed: everything pending fails with ``error``."""
        if self._state in (State.CLOSED, State.FAILED):
            return
        connection = self._link.connection
        if connection is not None and not connection.is_closed:
            connection.unregister_producer(self._producer_id)
            connection.send_unanswered(requests.close(self._producer_id, connection.next_request_id()))
        self._state = state
        self._failure = error if state is State.FAILED else None
        self._link.close()
        if self._connecting is not None:
            self._connecting.cancel()
        if self._batch_timer is not None:
            self._batch_timer.cancel()
            self._batch_timer = None
        self._client.forget_producer(self)
        self._early.fail(error)
        self._buffer.disconnected()
        self._close_batch()
        self._buffer.fail_all(error)

    # ---- what it is

    def topic(self) -> str:
        """See :meth:`Producer.topic`."""
        return self._topic

    def producer_name(self) -> str:
        """See :meth:`Producer.producer_name`."""
        return self._name

    def last_sequence_id(self) -> int:
        """See :meth:`Producer.last_sequence_id`."""
        return self._buffer.last_sequence_id

    def is_connected(self) -> bool:
        """See :meth:`Producer.is_connected`."""
        return self._state is State.READY and self._link.connection is not None

    @property
    def is_usable(self) -> bool:
        """Neither closed nor failed."""
        return self._state in _OPEN

    @property
    def pending_messages(self) -> int:
        """See :attr:`Producer.pending_messages`."""
        return self._buffer.queue.messages + self.open_messages
