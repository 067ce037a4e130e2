"""Tables whose topics other brokers serve, of whichever make: read and written by our own client as any client would.

By lookup, from the beginning on, with what Pulsar's brokers have compacted; the topic may move meanwhile. Imported by
who composes brokers that share a cluster; a broker that owns everything never needs it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from geminga.broker.system_topics.table import Table, TableMessage, TableSource, TableValue, Take
from geminga.client import Client, Message, MessageId, Producer, PulsarException, Reader
from geminga.client.schema import MessageDecoder, MessageEncoder, SchemaInfo, SchemaSource, SchemaType
from geminga.model.errors import GemingaError, UnavailableError
from geminga.model.position import Position
from geminga.model.topic_name import TopicName
from geminga.runtime import Part, get_logger, spawn, wait_ms

S = TypeVar("S")

#: How long is waited for what the owner says is there.
CATCH_UP_S_MAX: Final = 30.0
#: Until a table that could not be followed is tried again: doubled from the first to the last.
FOLLOW_FIRST_MS: Final = 500
FOLLOW_MAX_MS: Final = 60_000
#: Schemas that values are written with, each of which has a producer; older ones are closed.
PRODUCERS_MAX: Final = 4

_log = get_logger(__name__)


class ClientTables:
    """One client for all tables; :class:`geminga.broker.system_topics.table.TablesElsewhere`."""

    __slots__ = ("_client", "_part")

    def __init__(self, client: Callable[[], Client], *, part: Part | None = None) -> None:
        """``client``: when there is something to read; it is closed by whoever made it. ``part`` hears of what is
        unexpected."""
        self._client = client
        self._part = part

    def open(self, source: TableSource[S]) -> Table[S]:
        """As the port says."""
        return ClientTable(source, self._client, self._part)


class ClientTable(Generic[S]):
    """See the module; :class:`geminga.broker.system_topics.table.Table`. It is always behind: only the owner knows."""

    __slots__ = (
        "_client",
        "_following",
        "_heard",
        "_is_ended",
        "_last",
        "_opening",
        "_part",
        "_producers",
        "_reader",
        "_source",
        "_take",
        "_taken",
        "_taking",
        "_took",
    )

    is_behind = True
    was_compacted = False

    def __init__(self, source: TableSource[S], client: Callable[[], Client], part: Part | None) -> None:
        self._source = source
        self._client = client
        self._part = part
        self._take: Take | None = None
        self._heard: Callable[[], None] | None = None
        self._reader: Reader[Any] | None = None
        self._opening = asyncio.Lock()
        #: The message that was taken last.
        self._last = MessageId.earliest
        #: Counts those that were taken, and tells of each.
        self._taken = 0
        self._took = asyncio.Event()
        #: Held while one is.
        self._taking = asyncio.Lock()
        self._following: asyncio.Task[None] | None = None
        #: Nobody has it any more: what is being opened for it is closed.
        self._is_ended = False
        #: By schema.
        self._producers: dict[bytes, Producer[bytes]] = {}

    @property
    def name(self) -> TopicName:
        """As of the port."""
        return self._source.name

    # ---- reading

    async def read(self, take: Take, heard: Callable[[], None] | None = None) -> None:
        """As of the port."""
        self._take = take
        await self.catch_up()
        self._heard = heard

    def told(self) -> None:
        """As of the port: it hears by itself."""

    async def catch_up(self) -> None:
        """As of the port: its owner is asked whether there is more."""
        try:
            async with asyncio.timeout(CATCH_UP_S_MAX):
                await self._catch_up()
        except TimeoutError as error:
            raise UnavailableError(f"{self.name} was not read up to its end within {CATCH_UP_S_MAX:g} s") from error
        except PulsarException as error:
            raise self._unavailable("read", error) from error

    async def _catch_up(self) -> None:
        reader = await self._open()
        if reader is None:
            return
        while True:
            taken = self._taken
            if not await reader.has_message_available():
                break
            while self._taken == taken:
                if self._reader is not reader:
                    raise UnavailableError(f"{self.name} is not read up to its end: reading it failed")
                self._took.clear()
                await self._took.wait()
        async with self._taking:
            return

    async def _open(self) -> Reader[Any] | None:
        """None: there is no such topic, and it is not to be made. Raises PulsarException, StorageError,
        UnavailableError."""
        async with self._opening:
            self._require_in_use()
            if self._reader is None and await self._source.exists(self.name):
                reader: Reader[Any] = await self._client().create_reader(
                    str(self.name), self._last, is_read_compacted=True, stats_interval_ms=0
                )
                if self._is_ended:
                    await reader.close()
                    self._require_in_use()
                self._reader = reader
                self._following = spawn(self._follow(self._reader), name=f"follow {self.name}", part=self._part)
            return self._reader

    async def _follow(self, reader: Reader[Any]) -> None:
        try:
            while True:
                message = await reader.read_next()
                async with self._taking:
                    assert self._take is not None
                    await self._take(_table_message(message))
                    self._last = message.message_id()
                self._taken += 1
                self._took.set()
                if self._heard is not None:
                    self._heard()
        except (PulsarException, GemingaError) as error:
            self._reader = None
            self._took.set()
            if not self._client().lifetime.is_closed:
                _log.warning("%s is not followed now: %s", self.name, error)
                spawn(self._again(), name=f"follow {self.name} again", part=self._part)
        finally:
            await reader.close()

    async def _again(self) -> None:
        delay_ms = FOLLOW_FIRST_MS
        while self._following is not None and not self._client().lifetime.is_closed:
            await wait_ms(delay_ms)
            delay_ms = min(2 * delay_ms, FOLLOW_MAX_MS)
            try:
                if self._following is not None:
                    await self.catch_up()
                return
            except GemingaError as error:
                _log.warning("%s", error)

    def end(self) -> None:
        """As of the port."""
        self._is_ended = True
        following, self._following, self._heard = self._following, None, None
        if following is not None:
            following.cancel()
        self._reader = None
        producers, self._producers = list(self._producers.values()), {}
        if producers:
            spawn(_close_all(producers), name=f"close producers of {self.name}", part=self._part)

    async def at(self, positions: Sequence[Position]) -> dict[Position, TableMessage]:
        """As of the port."""
        found: dict[Position, TableMessage] = {}
        try:
            async with asyncio.timeout(CATCH_UP_S_MAX):
                for position in positions:
                    message = await self._at(position)
                    if message is not None:
                        found[position] = message
        except (TimeoutError, PulsarException) as error:
            raise self._unavailable("read", error) from error
        return found

    async def _at(self, position: Position) -> TableMessage | None:
        if not await self._source.exists(self.name):
            return None
        start = MessageId(-1, position.ledger_id, position.entry_id, -1)
        async with self._client().create_reader(
            str(self.name), start, start_message_id_inclusive=True, is_read_compacted=True, stats_interval_ms=0
        ) as reader:
            if not await reader.has_message_available():
                return None
            message = await reader.read_next()
        place = message.message_id()
        is_it = (place.ledger_id(), place.entry_id()) == position
        return _table_message(message) if is_it else None

    async def schema(self, encoded_version: bytes) -> S:
        """As of the port: all brokers' schemas are in one registry."""
        return await self._source.schema(encoded_version)

    # ---- writing

    async def append(self, values: Sequence[TableValue]) -> bool:
        """As of the port; what was stored is read again, behind what others stored before."""
        try:
            async with asyncio.timeout(CATCH_UP_S_MAX):
                for value in values:
                    producer = await self._producer(value.schema)
                    clusters = list(value.clusters) or None
                    await producer.send(value.data, partition_key=value.key, replication_clusters=clusters)
        except (TimeoutError, PulsarException) as error:
            raise self._unavailable("written", error) from error
        if self._take is None:
            return True
        await self.catch_up()
        return False

    async def _producer(self, schema: bytes) -> Producer[bytes]:
        self._require_in_use()
        producer = self._producers.get(schema)
        if producer is None:
            while len(self._producers) >= PRODUCERS_MAX:
                await self._producers.pop(next(iter(self._producers))).close()
            producer = await self._client().create_producer(
                str(self.name),
                schema=EncodedSchema(SchemaInfo(self._source.schema_name, SchemaType.AVRO, schema)),
                batching_enabled=False,
            )
            if self._is_ended:
                await producer.close()
                self._require_in_use()
            self._producers[schema] = producer
        return producer

    def _require_in_use(self) -> None:
        if self._is_ended:
            raise UnavailableError(f"{self.name} changed hands meanwhile")

    def is_worn(self, live: int, live_bytes: int | None = None) -> bool:
        """As of the port: its owner sees to that."""
        del live, live_bytes
        return False

    async def rewrite(self, values: Sequence[TableValue]) -> None:
        """As of the port: nothing."""

    def _unavailable(self, what: str, error: BaseException) -> UnavailableError:
        return UnavailableError(f"{self.name} can not be {what} now: {error or 'no answer in time'}")


class EncodedSchema:
    """The schema of values that are encoded already."""

    def __init__(self, info: SchemaInfo) -> None:
        self.info = info
        self.sets_key = False

    async def bind_producer(self, topic: str, source: SchemaSource) -> MessageEncoder[bytes]:
        """The same for every topic."""
        del topic, source
        return self

    async def bind_consumer(self, topic: str, source: SchemaSource) -> MessageDecoder[bytes]:
        """Nothing is read with it."""
        raise AssertionError(f"{topic} is read as bytes, not with {source}")

    def encode(self, value: bytes) -> bytes:
        """As it is."""
        return value

    def encode_key(self, value: bytes) -> bytes:
        """Never asked for."""
        return value


async def _close_all(producers: Sequence[Producer[bytes]]) -> None:
    for producer in producers:
        await producer.close()


def _table_message(message: Message[Any]) -> TableMessage:
    is_null = message.has_null_value()
    data = b"" if is_null else message.data()
    return TableMessage(
        message.partition_key(), is_null, data, message.schema_version(), f"message {message.message_id()}"
    )
