"""``Client``: the connections of one process to one cluster, and what is made over them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Final, TypeVar, Unpack, overload

from geminga.client._api.errors import PulsarException
from geminga.client._api.lifetime import Lifetime
from geminga.client._api.message_id import MessageId
from geminga.client._api.opening import ClosedAtEnd, Opening
from geminga.client._api.options import ClientOptions, check_argument
from geminga.client._api.place import Place
from geminga.client._api.producer import Producer
from geminga.client._api.service_targets import ServiceUrlProvider
from geminga.client._api.topic_names import parse_topic
from geminga.client._api.transaction import OpeningTransaction, Transaction, milliseconds, new_transaction
from geminga.client._consuming.factory import ConsumerFactory, Topics, subscribe_with
from geminga.client._entry_stream import WINDOW_BYTES_DEFAULT, Entry, EntryStream
from geminga.client._messages.consumer import Consumer
from geminga.client._messages.consumer_options import ConsumerArguments, ReaderArguments
from geminga.client._producing.factory import ProducerArguments, ProducerFactory, create_producer
from geminga.client._reader import Reader, ReaderListener, create_reader
from geminga.client._table_view import TableView, create_table_view
from geminga.client._transport.cluster import Cluster
from geminga.client._transport.coordinators import Coordinators
from geminga.client._transport.lookup import Lookup
from geminga.client._transport.pool import ConnectionPool
from geminga.client._transport.service_urls import ServiceUrls
from geminga.client._transport.switching import Switching
from geminga.client.consumer_rules.entry_window import PERMITS_MAX, EntryWindow
from geminga.client.consumer_rules.prefetch import PrefetchBudget
from geminga.client.producer_rules.memory_limit import MemoryLimit
from geminga.client.rules.option_kinds import FLAG, INT64_MAX, NOTHING, TEXT, Either, Instance, Kind, Number, Pair
from geminga.client.schema._protocol import SchemaInfo, TopicSchema, VersionedSchema
from geminga.model.txn_id import TxnId
from geminga.runtime import Runtime, get_logger, spawn

T = TypeVar("T")
E = TypeVar("E", bound=Entry)
_log = get_logger(__name__)


_VERSION: Final = Either(NOTHING, Instance(bytes, "bytes"))
_POSITION: Final = Pair(Number(-1, INT64_MAX))
_TXN_ID: Final = Instance(TxnId, "a TxnId")
_TXN_NUMBERS: Final = Pair(Number(0, 2**64 - 1))
_STREAM_KINDS: Final[Mapping[str, Kind]] = {
    "start": _POSITION,
    "end": Either(NOTHING, _POSITION),
    "window_bytes": Number(1, INT64_MAX),
    "permits_max": Number(0, PERMITS_MAX),
    "name": TEXT,
    "is_read_compacted": FLAG,
    "wants_heads": FLAG,
}
#: What closing waits for a key reader's thread; one that is stuck ends when it comes back.
_THREADS_END_S_MAX: Final = 1.0


class _StoredSchemas:
    """Schemas of topics, asked of their brokers (:class:`geminga.client.schema._protocol.SchemaSource`)."""

    __slots__ = ("_lifetime", "_lookup")

    def __init__(self, lifetime: Lifetime, lookup: Lookup) -> None:
        self._lifetime = lifetime
        self._lookup = lookup

    async def get_schema(self, topic: str, version: bytes | None = None) -> VersionedSchema | None:
        """See :meth:`Client.get_schema`."""
        self._lifetime.check_usable()
        check_argument("version", version, _VERSION)
        found = await self._lookup.schema(str(parse_topic(topic).partitioned_topic), version)
        return None if found is None else VersionedSchema(SchemaInfo.from_wire(found[0]), found[1])


async def _make_letter_producer(
    producers: ProducerFactory, topic: str, initial_subscription_name: str, schema: SchemaInfo | None
) -> Producer[bytes]:
    arguments: ProducerArguments = {
        "initial_subscription_name": initial_subscription_name,
        "batching_enabled": False,
        "chunking_enabled": True,  # what was chunked does not fit into one message here, either
    }
    if schema is None:
        return await create_producer(producers, topic, None, arguments)
    from geminga.client.schema._primitives import BytesOf  # loaded by whoever has letters with a schema

    return await create_producer(producers, topic, BytesOf(schema), arguments)


class Client(ClosedAtEnd):
    """Connections to one cluster; made by :func:`geminga.client.connect`. Bound to the loop it is first used on.

    ``async with`` closes it at the end, and with it every producer and consumer.
    """

    def __init__(
        self,
        service_url: str | ServiceUrlProvider,
        options: ClientOptions,
        runtime: Runtime,
        *,
        owns_threads: bool = False,
    ) -> None:
        """``owns_threads``: those of ``runtime`` end with the client. Raises InvalidUrl and InvalidConfiguration."""
        provider = None if isinstance(service_url, str) or not hasattr(service_url, "watch") else service_url
        first = None if provider is None else provider.first
        url = service_url if first is None else first.service_url
        check_argument("service_url", url, TEXT)
        options.check()
        own, options = options, options if first is None else first.options(options)
        options.check()
        self._owns_threads = owns_threads
        self.options = options
        self.runtime = runtime
        self.service_urls = ServiceUrls(f"{url}", runtime.rng.below(1 << 16))
        # No part knows the client: what it makes is gone with it, without Python's collector.
        next_request_id = itertools.count(1).__next__
        self.pool = ConnectionPool(runtime, self.service_urls, options, next_request_id)
        self._switching = None if provider is None else Switching(runtime, self.pool, own, provider, next_request_id)
        self.lookup = Lookup(runtime, self.pool, options)
        #: What all producers together hold.
        self.memory = MemoryLimit(options.memory_limit_bytes)
        self.place = Place()
        self.lifetime = Lifetime(self.place)
        #: What the parts below reach the cluster by; none of them knows the client.
        prefetch = PrefetchBudget(options.prefetch_limit_bytes) if options.prefetch_limit_bytes else None
        self.cluster = Cluster(runtime, options, self.pool, self.lookup, self.place, prefetch=prefetch)
        self._schemas = _StoredSchemas(self.lifetime, self.lookup)
        self.producers = ProducerFactory(self.cluster, self.memory, self.lifetime, self._schemas)
        letters = partial(_make_letter_producer, self.producers)
        self.consumers = ConsumerFactory(self.cluster, self.lifetime, self._schemas, letters)
        self._coordinators = Coordinators(self.cluster)
        self._closing: asyncio.Task[None] | None = None

    def _those_of_now(self) -> Coordinators:
        """Of the cluster that the client has now."""
        if self._coordinators.are_left:
            self._coordinators = Coordinators(self.cluster)
        return self._coordinators

    # ---- what users make

    @overload
    def create_producer(
        self, topic: str, *, schema: None = None, **options: Unpack[ProducerArguments]
    ) -> Opening[Producer[bytes]]: ...

    @overload
    def create_producer(
        self, topic: str, *, schema: TopicSchema[T], **options: Unpack[ProducerArguments]
    ) -> Opening[Producer[T]]: ...

    def create_producer(
        self, topic: str, *, schema: TopicSchema[T] | None = None, **options: Unpack[ProducerArguments]
    ) -> Opening[Producer[T]] | Opening[Producer[bytes]]:
        """A producer on ``topic``, connected. ``schema`` encodes the contents; without one they are bytes.

        To be awaited, or entered: ``async with client.create_producer(...) as producer`` closes it at the end. The
        options are those of :class:`ProducerOptions`. Raises InvalidConfiguration, InvalidTopicName, the broker's
        error (TopicNotFound, ProducerBusy, ProducerFenced, ...), or Timeout after ``operation_timeout_ms``.
        """
        return Opening(create_producer(self.producers, topic, schema, options))

    @overload
    def subscribe(
        self, topic: Topics, subscription_name: str, *, schema: None = None, **options: Unpack[ConsumerArguments]
    ) -> Opening[Consumer[bytes]]: ...

    @overload
    def subscribe(
        self, topic: Topics, subscription_name: str, *, schema: TopicSchema[T], **options: Unpack[ConsumerArguments]
    ) -> Opening[Consumer[T]]: ...

    def subscribe(
        self,
        topic: Topics,
        subscription_name: str,
        *,
        schema: TopicSchema[T] | None = None,
        **options: Unpack[ConsumerArguments],
    ) -> Opening[Consumer[T]] | Opening[Consumer[bytes]]:
        """A consumer of one topic, a list of topics, or all topics of a namespace that match a compiled pattern.

        ``schema`` decodes what ``Message.value()`` gives; the options are those of :class:`ConsumerOptions`. Raises
        InvalidConfiguration, InvalidTopicName, the broker's error (ConsumerBusy, TopicNotFound, SubscriptionNotFound,
        IncompatibleSchema, ...), or Timeout after ``operation_timeout_ms``.
        """
        return Opening(subscribe_with(self.consumers, topic, subscription_name, schema, options))

    @overload
    def create_reader(
        self,
        topic: str | list[str],
        start_message_id: MessageId,
        *,
        schema: None = None,
        reader_listener: ReaderListener | None = None,
        reader_name: str = "",
        subscription_role_prefix: str = "",
        **options: Unpack[ReaderArguments],
    ) -> Opening[Reader[bytes]]: ...

    @overload
    def create_reader(
        self,
        topic: str | list[str],
        start_message_id: MessageId,
        *,
        schema: TopicSchema[T],
        reader_listener: ReaderListener | None = None,
        reader_name: str = "",
        subscription_role_prefix: str = "",
        **options: Unpack[ReaderArguments],
    ) -> Opening[Reader[T]]: ...

    def create_reader(
        self,
        topic: str | list[str],
        start_message_id: MessageId,
        *,
        schema: TopicSchema[T] | None = None,
        reader_listener: ReaderListener | None = None,
        reader_name: str = "",
        subscription_role_prefix: str = "",
        **options: Unpack[ReaderArguments],
    ) -> Opening[Reader[T]] | Opening[Reader[bytes]]:
        """A reader that starts behind ``start_message_id``, or at it with ``start_message_id_inclusive``.

        ``MessageId.earliest`` and ``MessageId.latest`` are the two ends, with which alone a reader of several topics or
        partitions may start. The options are those of :class:`ConsumerOptions`; raises what :meth:`subscribe` raises.
        """
        opening = create_reader(
            self.consumers,
            topic,
            start_message_id,
            schema,
            options,
            reader_name=reader_name,
            subscription_role_prefix=subscription_role_prefix,
            reader_listener=reader_listener,
        )
        return Opening(opening)

    @overload
    def create_table_view(
        self,
        topic: str,
        subscription_name: str = "",
        *,
        schema: None = None,
        **options: Unpack[ReaderArguments],
    ) -> Opening[TableView[bytes]]: ...

    @overload
    def create_table_view(
        self,
        topic: str,
        subscription_name: str = "",
        *,
        schema: TopicSchema[T],
        **options: Unpack[ReaderArguments],
    ) -> Opening[TableView[T]]: ...

    def create_table_view(
        self,
        topic: str,
        subscription_name: str = "",
        *,
        schema: TopicSchema[T] | None = None,
        **options: Unpack[ReaderArguments],
    ) -> Opening[TableView[T]] | Opening[TableView[bytes]]:
        """A view of the newest value of each key, which already has everything that is in the topic now.

        It reads what was compacted, and what lies behind, unless ``is_read_compacted=False``.

        Raises what :meth:`subscribe` raises.
        """
        return Opening(create_table_view(self.consumers, topic, subscription_name, schema, options))

    def entry_stream(
        self,
        topic: str,
        start: tuple[int, int] = (-1, -1),
        *,
        end: tuple[int, int] | None = None,
        window_bytes: int = WINDOW_BYTES_DEFAULT,
        permits_max: int = PERMITS_MAX,
        name: str = "reader",
        is_read_compacted: bool = False,
        wants_heads: bool = False,
    ) -> EntryStream[E]:
        """The entries of a topic without partitions, or of one partition, as they were sent; to be opened.

        ``start``: (ledger id, entry id) of the first that may come, (-1, -1): the topic's first. ``end``: entries from
        there on are of no use; some may come all the same. It holds about ``window_bytes``, and asks for at most
        ``permits_max`` messages at a time (0: none ever come). ``name``: what its subscriptions are called, with
        something random behind it. ``wants_heads``: without payloads, where the broker can
        (docs/formats/entry-heads.md). Raises InvalidConfiguration, InvalidTopicName.
        """
        given = {"start": start, "end": end, "window_bytes": window_bytes, "permits_max": permits_max, "name": name}
        for key, value in {**given, "is_read_compacted": is_read_compacted, "wants_heads": wants_heads}.items():
            check_argument(key, value, _STREAM_KINDS[key])
        return EntryStream(
            self.cluster,
            self.lifetime,
            parse_topic(topic),
            (start[0], start[1]),
            window=EntryWindow(window_bytes, permits_max),
            end=end,
            name=name,
            is_read_compacted=is_read_compacted,
            wants_heads=wants_heads,
        )

    def transaction(self, timeout: timedelta | float = 60.0) -> Opening[Transaction]:
        """A transaction: messages sent and acknowledged with ``txn=`` that count all together, or not at all.

        To be awaited, or entered: ``async with client.transaction() as txn`` commits it at the end, and aborts it if an
        exception comes out of the block. ``timeout``: seconds, or a timedelta, after which the broker aborts it if it
        is open still; until then it holds back readers of its topics. Raises InvalidConfiguration, NotAllowedError
        where the cluster has no transactions, the broker's error, or Timeout after ``operation_timeout_ms``.
        """
        return OpeningTransaction(
            new_transaction(
                self._those_of_now(),
                self.lifetime,
                self.runtime.clock,
                milliseconds("timeout", timeout),
                self.cluster.timeout_s,
            )
        )

    async def end_transaction(self, txn_id: TxnId, *, commit: bool) -> None:
        """Commit or abort a transaction by its id: one that was detached, or whose client is gone.

        Any client of the role that began it may. Fine if it has ended that way already and its coordinator knows.
        Raises InvalidTxnStatusError if it is ending, or has ended, the other way; TransactionNotFound if its
        coordinator does not know it (any more); the broker's error, or Timeout after ``operation_timeout_ms``: then it
        may be asked again. Raises InvalidConfiguration for what is no id.
        """
        self.lifetime.check_usable()
        check_argument("txn_id", txn_id, _TXN_ID)
        check_argument("txn_id", txn_id, _TXN_NUMBERS)
        check_argument("commit", commit, FLAG)
        _, error = await self._those_of_now().end(txn_id, commit=commit)
        if error is not None:
            try:
                raise error
            finally:
                del error  # see runtime's value_of

    async def get_topic_partitions(self, topic: str) -> list[str]:
        """The names of the topic's partitions, or the topic itself if it has none.

        Raises InvalidTopicName, the broker's error, or Timeout after ``operation_timeout_ms``.
        """
        self.lifetime.check_usable()
        name = parse_topic(topic)
        count = await self.lookup.partitions(str(name), auto_create=False)
        return [str(name.with_partition(index)) for index in range(count)] or [str(name)]

    async def get_schema(self, topic: str, version: bytes | None = None) -> VersionedSchema | None:
        """The topic's schema of ``version``, or the newest; None if it has none.

        Raises InvalidTopicName, InvalidConfiguration for a version that is no bytes, the broker's error, or Timeout
        after ``operation_timeout_ms``.
        """
        return await self._schemas.get_schema(topic, version)

    async def close(self) -> None:
        """Close producers (what they sent gets its receipts first), consumers and connections; harmless twice.

        Goes on to its end also when the caller is cancelled.
        """
        self.place.check()
        if self._closing is None:
            self.lifetime.is_closed = True
            self._closing = spawn(self._close(), name="close client")
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        # The order: what consumers acknowledge and producers send still needs the connections.
        try:
            for group in (self.lifetime.others, self.lifetime.producers):
                results = await asyncio.gather(*(one.close() for one in list(group)), return_exceptions=True)
                for result in results:
                    if isinstance(result, PulsarException):
                        _log.info("closing the client: %s", result)
                    elif isinstance(result, Exception):
                        _log.error("closing the client: %s", result, exc_info=result)
        finally:
            if self._switching is not None:
                self._switching.close()
            await self.pool.close()
            if self._owns_threads:
                await self._end_threads()

    async def _end_threads(self) -> None:
        try:
            async with asyncio.timeout(_THREADS_END_S_MAX):
                await self.runtime.threads.close()
        except TimeoutError:
            _log.warning("closing the client: a key reader does not come back")

    # ---- for the client's own parts

    @property
    def is_in_use(self) -> bool:
        """Whether it has producers, consumers, readers or table views that are open."""
        return bool(self.lifetime.producers or self.lifetime.others)

    @property
    def is_closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self.lifetime.is_closed
