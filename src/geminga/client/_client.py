"""``Client``: the connections of one process to one cluster, and what is made over them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import TracebackType
from typing import Final, Protocol, Self, TypeVar, Unpack, overload

from geminga.client._consuming.consumer import Consumer
from geminga.client._consuming.factory import Topics, subscribe
from geminga.client._consuming.options import ConsumerArguments, ConsumerOptions, ReaderArguments
from geminga.client._errors import AlreadyClosed, ForkedProcess, InvalidTopicName, PulsarException
from geminga.client._message_id import MessageId
from geminga.client._options import ClientOptions, check_argument
from geminga.client._producing.factory import ProducerArguments, create_producer
from geminga.client._producing.producer import Producer
from geminga.client._reader import Reader, ReaderListener, create_reader
from geminga.client._table_view import TableView, create_table_view
from geminga.client._transport.lookup import Lookup
from geminga.client._transport.pool import ConnectionPool
from geminga.client._transport.service_urls import ServiceUrls
from geminga.client.core.memory_limit import MemoryLimit
from geminga.client.core.option_kinds import TEXT
from geminga.client.schema._protocol import SchemaInfo, TopicSchema, VersionedSchema
from geminga.model.errors import InvalidTopicNameError
from geminga.model.topic_name import TopicName
from geminga.runtime import Runtime, get_logger, spawn
from geminga.runtime.fork import fork_generation

T = TypeVar("T")
_log = get_logger(__name__)


#: What closing waits for a key reader's thread; one that is stuck ends when it comes back.
_THREADS_END_S_MAX: Final = 1.0


class Closable(Protocol):
    """A producer, consumer, reader or table view of a client."""

    async def close(self) -> None:
        """Close it; harmless twice."""
        ...


class Client:
    """Connections to one cluster; made by :func:`geminga.client.connect`. Bound to the loop it is first used on.

    ``async with`` closes it at the end, and with it every producer and consumer.
    """

    def __init__(
        self, service_url: str, options: ClientOptions, runtime: Runtime, *, owns_threads: bool = False
    ) -> None:
        """``owns_threads``: those of ``runtime`` end with the client."""
        check_argument("service_url", service_url, TEXT)
        options.check()
        self._owns_threads = owns_threads
        self.options = options
        self.runtime = runtime
        self.service_urls = ServiceUrls(service_url, runtime.rng.below(1 << 16))
        self._request_id = 0
        self._producer_id = -1
        self._consumer_id = -1
        self.pool = ConnectionPool(runtime, self.service_urls, options, self._next_request_id)
        self.lookup = Lookup(runtime, self.pool, options)
        #: What all producers together hold.
        self.memory = MemoryLimit(options.memory_limit_bytes)
        self._fork_generation = fork_generation()
        #: Open ones, in order of creation.
        self._producers: dict[Closable, None] = {}
        self._others: dict[Closable, None] = {}
        self._is_closed = False
        self._closing: asyncio.Task[None] | None = None

    # ---- what users make

    @overload
    async def create_producer(
        self, topic: str, *, schema: None = None, **options: Unpack[ProducerArguments]
    ) -> Producer[bytes]: ...

    @overload
    async def create_producer(
        self, topic: str, *, schema: TopicSchema[T], **options: Unpack[ProducerArguments]
    ) -> Producer[T]: ...

    async def create_producer(
        self, topic: str, *, schema: TopicSchema[T] | None = None, **options: Unpack[ProducerArguments]
    ) -> Producer[T] | Producer[bytes]:
        """A producer on ``topic``, connected. ``schema`` encodes the contents; without one they are bytes.

        The options are those of :class:`ProducerOptions`. Raises InvalidConfiguration, InvalidTopicName, the broker's
        error (TopicNotFound, ProducerBusy, ProducerFenced, ...), or Timeout after ``operation_timeout_ms``.
        """
        self.check_usable()
        return await create_producer(self, self.parse_topic(topic), schema, options)

    @overload
    async def subscribe(
        self, topic: Topics, subscription_name: str, *, schema: None = None, **options: Unpack[ConsumerArguments]
    ) -> Consumer[bytes]: ...

    @overload
    async def subscribe(
        self, topic: Topics, subscription_name: str, *, schema: TopicSchema[T], **options: Unpack[ConsumerArguments]
    ) -> Consumer[T]: ...

    async def subscribe(
        self,
        topic: Topics,
        subscription_name: str,
        *,
        schema: TopicSchema[T] | None = None,
        **options: Unpack[ConsumerArguments],
    ) -> Consumer[T] | Consumer[bytes]:
        """A consumer of one topic, a list of topics, or all topics of a namespace that match a compiled pattern.

        ``schema`` decodes what ``Message.value()`` gives; the options are those of :class:`ConsumerOptions`. Raises
        InvalidConfiguration, InvalidTopicName, the broker's error (ConsumerBusy, TopicNotFound, SubscriptionNotFound,
        IncompatibleSchema, ...), or Timeout after ``operation_timeout_ms``.
        """
        self.check_usable()
        return await subscribe(self, topic, subscription_name, schema, ConsumerOptions(**options))

    @overload
    async def create_reader(
        self,
        topic: str | list[str],
        start_message_id: MessageId,
        *,
        schema: None = None,
        reader_listener: ReaderListener | None = None,
        reader_name: str = "",
        subscription_role_prefix: str = "",
        **options: Unpack[ReaderArguments],
    ) -> Reader[bytes]: ...

    @overload
    async def create_reader(
        self,
        topic: str | list[str],
        start_message_id: MessageId,
        *,
        schema: TopicSchema[T],
        reader_listener: ReaderListener | None = None,
        reader_name: str = "",
        subscription_role_prefix: str = "",
        **options: Unpack[ReaderArguments],
    ) -> Reader[T]: ...

    async def create_reader(
        self,
        topic: str | list[str],
        start_message_id: MessageId,
        *,
        schema: TopicSchema[T] | None = None,
        reader_listener: ReaderListener | None = None,
        reader_name: str = "",
        subscription_role_prefix: str = "",
        **options: Unpack[ReaderArguments],
    ) -> Reader[T] | Reader[bytes]:
        """A reader that starts behind ``start_message_id``, or at it with ``start_message_id_inclusive``.

        ``MessageId.earliest`` and ``MessageId.latest`` are the two ends. The options are those of
        :class:`ConsumerOptions`; raises what :meth:`subscribe` raises.
        """
        self.check_usable()
        given = ConsumerOptions(**options)
        return await create_reader(
            self,
            topic,
            start_message_id,
            schema,
            replace(given, consumer_name=reader_name) if reader_name else given,
            subscription_role_prefix=subscription_role_prefix,
            reader_listener=reader_listener,
        )

    @overload
    async def create_table_view(
        self,
        topic: str,
        subscription_name: str = "",
        *,
        schema: None = None,
        **options: Unpack[ReaderArguments],
    ) -> TableView[bytes]: ...

    @overload
    async def create_table_view(
        self,
        topic: str,
        subscription_name: str = "",
        *,
        schema: TopicSchema[T],
        **options: Unpack[ReaderArguments],
    ) -> TableView[T]: ...

    async def create_table_view(
        self,
        topic: str,
        subscription_name: str = "",
        *,
        schema: TopicSchema[T] | None = None,
        **options: Unpack[ReaderArguments],
    ) -> TableView[T] | TableView[bytes]:
        """A view of the newest value of each key, which already has everything that is in the topic now.

        Raises what :meth:`subscribe` raises.
        """
        self.check_usable()
        return await create_table_view(self, topic, subscription_name, schema, ConsumerOptions(**options))

    async def get_topic_partitions(self, topic: str) -> list[str]:
        """The names of the topic's partitions, or the topic itself if it has none."""
        self.check_usable()
        name = self.parse_topic(topic)
        count = await self.lookup.partitions(str(name), auto_create=False)
        return [str(name.with_partition(index)) for index in range(count)] or [str(name)]

    async def get_schema(self, topic: str, version: bytes | None = None) -> VersionedSchema | None:
        """The topic's schema of ``version``, or the newest; None if it has none."""
        self.check_usable()
        found = await self.lookup.schema(str(self.parse_topic(topic).partitioned_topic), version)
        return None if found is None else VersionedSchema(SchemaInfo.from_wire(found[0]), found[1])

    async def close(self) -> None:
        """Close producers (what they sent gets its receipts first), consumers and connections; harmless twice.

        Goes on to its end also when the caller is cancelled.
        """
        self.check_process()
        if self._closing is None:
            self._is_closed = True
            self._closing = spawn(self._close(), name="close client")
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        # The order: what consumers acknowledge and producers send still needs the connections.
        try:
            for group in (self._others, self._producers):
                results = await asyncio.gather(*(one.close() for one in list(group)), return_exceptions=True)
                for result in results:
                    if isinstance(result, PulsarException):
                        _log.info("closing the client: %s", result)
                    elif isinstance(result, Exception):
                        _log.error("closing the client: %s", result, exc_info=result)
        finally:
            await self.pool.close()
            if self._owns_threads:
                await self._end_threads()

    async def _end_threads(self) -> None:
        try:
            async with asyncio.timeout(_THREADS_END_S_MAX):
                await self.runtime.threads.close()
        except TimeoutError:
            _log.warning("closing the client: a key reader does not come back")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    # ---- for the client's own parts

    @property
    def is_closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._is_closed

    def check_usable(self) -> None:
        """Raise AlreadyClosed or ForkedProcess."""
        self.check_process()
        if self._is_closed:
            raise AlreadyClosed("the client is closed")

    def check_process(self) -> None:
        """Raise ForkedProcess in a child of the process that made the client."""
        if self._fork_generation != fork_generation():
            raise ForkedProcess(
                "this client was made before the process forked: its connections belong to the parent; "
                "make another client in the child"
            )

    def parse_topic(self, topic: str) -> TopicName:
        """The full name; raises InvalidTopicName."""
        check_argument("topic", topic, TEXT)
        try:
            return TopicName.parse(topic)
        except InvalidTopicNameError as error:
            raise InvalidTopicName(str(error)) from None

    def next_producer_id(self) -> int:
        """A number no other producer of this client has."""
        self._producer_id += 1
        return self._producer_id

    def next_consumer_id(self) -> int:
        """A number no other consumer of this client has."""
        self._consumer_id += 1
        return self._consumer_id

    def _next_request_id(self) -> int:
        self._request_id += 1
        return self._request_id

    def remember_producer(self, producer: Closable) -> None:
        """Close it with the client."""
        self._producers[producer] = None

    def forget_producer(self, producer: Closable) -> None:
        """It is closed."""
        self._producers.pop(producer, None)

    def remember(self, one: Closable) -> None:
        """Close a consumer, reader or table view with the client."""
        self._others[one] = None

    def forget(self, one: Closable) -> None:
        """It is closed."""
        self._others.pop(one, None)
