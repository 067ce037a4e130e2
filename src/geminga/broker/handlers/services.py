"""What the handlers of commands use of the broker around them; made once, where the broker is put together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from geminga.broker.access.ports import Access
    from geminga.broker.configuration.broker_config import BrokerConfig
    from geminga.broker.ownership.lookup import TopicLookup
    from geminga.broker.registry.namespaces import TopicMode
    from geminga.broker.registry.topic_watches import TopicListWatcher
    from geminga.broker.schema.registry import SchemaRegistry
    from geminga.broker.topic.base import Topic
    from geminga.model.topic_name import TopicName
    from geminga.runtime import Clock
    from geminga.transaction.coordinator import TransactionCoordinator
    from geminga.transaction.ports import Participants
    from geminga.wire._generated import pulsar_api_pb2 as pb
    from geminga.wire.pulsar.schema_info import SchemaInfo


class Topics(Protocol):
    """The topics of the cluster. All of it may raise GemingaError."""

    #: Those that this broker has open, by full name.
    loaded: Mapping[str, Topic]

    async def get(self, name: TopicName, *, create: bool) -> Topic:
        """The topic, loaded; ``create``: made if it is not there and policies allow that."""
        ...

    async def exists(self, name: TopicName) -> bool:
        """Whether it is there, loaded or not."""
        ...

    async def partitioned_count(self, name: TopicName, *, create: bool) -> int:
        """Partitions of a partitioned topic, 0 for another one; ``create``: made as policies say."""
        ...

    async def list(self, namespace: str, *, mode: TopicMode) -> list[str]:
        """Names of a namespace's topics, partitions one by one."""
        ...


class Schemas(Protocol):
    """The schemas of topics. All of it may raise GemingaError."""

    @property
    def registry(self) -> SchemaRegistry:
        """All schemas by their ids."""
        ...

    async def admit_producer(self, topic: Topic, request: pb.CommandProducer) -> bytes:
        """The version that a producer publishes with, added if it is new; empty: it has none."""
        ...

    async def add(self, name: TopicName, info: SchemaInfo | None, producer_name: str = "") -> bytes:
        """The version of a schema, added if it is new, fits and that producer may bring it; empty for None."""
        ...


class Coordinators(Protocol):
    """The transaction coordinators of the cluster."""

    async def find(self, number: int) -> TransactionCoordinator:
        """One that is here, open; raises TransactionCoordinatorNotFoundError, GemingaError."""
        ...

    @property
    def open(self) -> Mapping[int, TransactionCoordinator]:
        """Those that are open, by number."""
        ...


class Transactions(Protocol):
    """What a broker has for transactions."""

    @property
    def coordinators(self) -> Coordinators:
        """Those that are here."""
        ...

    @property
    def participants(self) -> Participants:
        """Topics and subscriptions."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandServices:
    """One for all handlers of a broker."""

    #: Of the program, told to clients.
    version: str
    config: BrokerConfig
    #: Who is let in, and to what.
    access: Access
    clock: Clock
    topics: Topics
    schemas: Schemas
    lookup: TopicLookup
    #: A producer's name that none ever had; raises GemingaError.
    name_producer: Callable[[], Awaitable[str]]
    #: Begins to watch the topics of a namespace.
    watch_topics: Callable[[TopicListWatcher], None]
    #: Held by what takes many turns of the loop.
    long_work: asyncio.Semaphore
    #: Loaded with the first use, raises UnavailableError; None: the broker has no transactions.
    transactions: Callable[[], Transactions] | None = None
