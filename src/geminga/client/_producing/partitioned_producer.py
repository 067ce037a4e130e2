"""The producer of a partitioned topic: a producer per partition, and a rule where each message goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar, Unpack

from geminga.client._api.errors import AlreadyClosed, InvalidMessage, PulsarException
from geminga.client._api.message_id import MessageId
from geminga.client._api.opening import Closable, close_unopened
from geminga.client._api.options import HashingScheme, PartitionsRoutingMode, ProducerOptions
from geminga.client._api.place import running_loop
from geminga.client._api.producer import MessageFields, Producer, SendCallback
from geminga.client._producing.messages import key_text, outgoing_message
from geminga.client._producing.topic_producer import TopicProducer
from geminga.client._transport.cluster import Cluster
from geminga.client.producer_rules.router import RoundRobin, partition_of_key
from geminga.runtime import all_ended, get_logger, spawn, tell

T = TypeVar("T")
_log = get_logger(__name__)


class PartitionedProducer(Producer[T], Generic[T]):
    """See the module's docstring.

    Round robin stays with a partition until the batch that is open there is closed, so that batches are full.
    """

    __slots__ = (
        "_adding",
        "_closing",
        "_cluster",
        "_current",
        "_is_closed",
        "_key_of",
        "_make",
        "_murmur3",
        "_on_closed",
        "_options",
        "_producers",
        "_round_robin",
        "_single",
        "_topic",
        "_unheard",
        "_update",
        "_update_timer",
    )

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        partitions: int,
        options: ProducerOptions,
        make: Callable[[int], TopicProducer[T]],
        *,
        key_of: Callable[[T], bytes] | None = None,
        on_closed: Callable[[Closable], None],
    ) -> None:
        """``make`` makes the producer of one partition, not connected; ``key_of`` gives the key that the schema takes
        from a value, None: it takes none; ``on_closed`` hears of the end of this one."""
        self._cluster = cluster
        self._key_of = key_of
        self._on_closed = on_closed
        self._topic = topic
        self._options = options
        self._make = make
        #: By partition; None: not made yet (lazy).
        self._producers: list[TopicProducer[T] | None] = [None] * partitions
        #: The first error that nobody heard of, of producers that others took the place of; raised by the next flush.
        self._unheard: PulsarException | None = None
        #: Of new partitions, while they are being connected.
        self._adding: list[TopicProducer[T]] = []
        self._murmur3 = options.hashing_scheme is HashingScheme.Murmur3_32Hash
        rng = cluster.runtime.rng
        self._round_robin = RoundRobin(rng.below(partitions))
        #: Where all messages without key go; -1: round robin.
        self._single = -1
        if options.message_routing_mode is PartitionsRoutingMode.UseSinglePartition:
            self._single = rng.below(partitions)
        #: Where round robin is now.
        self._current: TopicProducer[T] | None = None
        self._update_timer: asyncio.TimerHandle | None = None
        self._update: asyncio.Task[None] | None = None
        self._is_closed = False
        self._closing: asyncio.Task[None] | None = None

    # ---- sending

    def send_nowait(
        self, content: T | None, callback: SendCallback | None = None, **fields: Unpack[MessageFields]
    ) -> None:
        """See :meth:`Producer.send_nowait`."""
        current = self._current
        if fields or current is None or self._key_of is not None or not current.batching.batch.payloads:
            current = self._route(content, fields)
        current.send_nowait(content, callback, **fields)

    async def send(self, content: T | None, **fields: Unpack[MessageFields]) -> MessageId:
        """See :meth:`Producer.send`."""
        return await self._route(content, fields).send(content, **fields)

    async def hand_over(self, content: T | None, receiver: SendCallback, fields: MessageFields) -> None:
        """See :meth:`TopicProducer.hand_over`."""
        await self._route(content, fields).hand_over(content, receiver, fields)

    def _route(self, content: T | None, fields: MessageFields) -> TopicProducer[T]:
        if self._is_closed:
            raise AlreadyClosed(f"producer of {self._topic} is closed")
        if running_loop() is not self._cluster.place.loop:
            self._cluster.place.check()
        partitions = len(self._producers)
        router = self._options.message_router
        if self._key_of is not None and content is not None and fields.get("partition_key") is None:
            fields = {**fields, "partition_key": self._key_of(content)}
        if router is not None:
            index = router(outgoing_message(content, fields), partitions)
            if not isinstance(index, int) or not 0 <= index < partitions:
                raise InvalidMessage(f"message_router said {index!r}: expected a partition of {partitions}, from 0 on")
            return self._producer(index)
        key = fields.get("partition_key") if fields else None
        if key is not None:
            return self._producer(partition_of_key(key_text(key), partitions, murmur3=self._murmur3))
        if self._single >= 0:
            return self._producer(self._single)
        current = self._current
        if current is None or not current.open_messages:
            current = self._current = self._producer(self._round_robin.advance(partitions))
        return current

    def _producer(self, index: int) -> TopicProducer[T]:
        producer = self._producers[index]
        if producer is None or (self._options.lazy_start_partitioned_producers and not producer.is_usable):
            if producer is not None and self._unheard is None:
                self._unheard = producer.take_unheard()
            producer = self._producers[index] = self._make(index)
            producer.connect_soon()
        return producer

    # ---- waiting

    async def flush(self) -> None:
        """See :meth:`Producer.flush`."""
        results = await asyncio.gather(*(p.flush() for p in self._made()), return_exceptions=True)
        unheard, self._unheard = self._unheard, None
        for result in (unheard, *results):
            if result is not None:
                try:
                    raise result
                finally:
                    del result, results, unheard  # see runtime's value_of

    async def drain(self) -> None:
        """See :meth:`Producer.drain`."""
        for producer in self._made():
            await producer.drain()

    # ---- life

    async def connect(self) -> None:
        """Connect all partitions, or the first if the rest is lazy; raises what went wrong."""
        try:
            if self._options.lazy_start_partitioned_producers:
                first = max(self._single, 0)
                producer = self._producers[first] = self._make(first)
                await producer.connect()
            else:
                await self._connect_from(0, len(self._producers))
        except BaseException as error:
            await close_unopened(self.close(), error, name=f"close what was not opened of {self._topic}")
            raise
        self._arm_update()

    async def _connect_from(self, first: int, count: int) -> None:
        made = [self._make(index) for index in range(first, count)]
        self._producers[first:] = made
        await all_ended(producer.connect() for producer in made)

    def _arm_update(self) -> None:
        interval_ms = self._options.auto_update_partitions_interval_ms
        if interval_ms and not self._is_closed:
            loop = asyncio.get_running_loop()
            self._update_timer = loop.call_later(interval_ms / 1000, self._start_update)

    def _start_update(self) -> None:
        self._update = spawn(self._update_partitions(), name=f"partitions of {self._topic}")

    async def _update_partitions(self) -> None:
        """Ask for new partitions; partitions never become fewer."""
        try:
            # Of one that was deleted nothing is made again: it need not have as many as before.
            count = await self._cluster.lookup.partitions(self._topic, auto_create=False)
            known = len(self._producers)
            if count > known:
                if self._options.lazy_start_partitioned_producers:
                    self._producers.extend([None] * (count - known))
                else:
                    await self._add_partitions(known, count)
                for interceptor in self._options.interceptors:
                    tell(_log, "interceptor", interceptor.on_partitions_change, self._topic, count)
        except PulsarException as error:
            _log.warning("partitions of %s: %s", self._topic, error)
        self._arm_update()

    async def _add_partitions(self, known: int, count: int) -> None:
        made = self._adding = [self._make(index) for index in range(known, count)]
        try:
            results = await asyncio.gather(*(producer.connect() for producer in made), return_exceptions=True)
            failed = [result for result in results if result is not None]
            if failed:
                await asyncio.gather(*(producer.close() for producer in made))
                raise failed[0]
        finally:
            self._adding = []
        self._producers.extend(made)

    async def close(self) -> None:
        """See :meth:`Producer.close`."""
        self._cluster.place.check()
        self._is_closed = True
        self._current = None
        if self._update_timer is not None:
            self._update_timer.cancel()
        if self._update is not None:
            self._update.cancel()
        if self._closing is None:
            # Who was connecting new ones was cut off, and knows nothing of those that were connected already.
            closing = self._close([*self._made(), *self._adding])
            self._closing = spawn(closing, name=f"close producer of {self._topic}")
        # The client's end waits for this one's, whoever gave up waiting for it.
        await asyncio.shield(self._closing)

    async def _close(self, producers: list[TopicProducer[T]]) -> None:
        try:
            await asyncio.gather(*(producer.close() for producer in producers))
        finally:
            self._on_closed(self)

    def _made(self) -> list[TopicProducer[T]]:
        return [producer for producer in self._producers if producer is not None]

    # ---- what it is

    def topic(self) -> str:
        """See :meth:`Producer.topic`."""
        return self._topic

    def producer_name(self) -> str:
        """The name of the first partition's producer; without one given, each partition has its own."""
        return self._made()[0].producer_name()

    def last_sequence_id(self) -> int:
        """The highest of all partitions: each counts for itself."""
        return max(producer.last_sequence_id() for producer in self._made())

    def is_connected(self) -> bool:
        """Whether all partitions are that were connected so far."""
        return all(producer.is_connected() for producer in self._made())

    @property
    def partitions(self) -> int:
        """How many partitions it sends to."""
        return len(self._producers)

    @property
    def pending_messages(self) -> int:
        """See :attr:`Producer.pending_messages`."""
        return sum(producer.pending_messages for producer in self._made())
