"""What the registry uses of the parts that stand on it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from geminga.broker.resources import Document
from geminga.model.topic_name import TopicName

if TYPE_CHECKING:
    from geminga.broker.core.new_subscription import NewSubscription
    from geminga.broker.topic.base import Topic
    from geminga.managed_ledger import ManagedLedger

#: Makes a topic that is not loaded yet; without a managed ledger: one that is not persistent.
MakeTopic: TypeAlias = "Callable[[TopicName, ManagedLedger | None], Topic]"


class Belongings(NamedTuple):
    """What a topic has outside of its log, and loses with it: policies and schemas."""

    #: The policies of a topic; empty: none of its own. Raises GemingaError.
    policies: Callable[[TopicName], Awaitable[Document]]
    #: Delete them, and the schemas. With policies by which that was decided: ConflictError if they are others by now.
    #: Raises GemingaError.
    forget: Callable[[TopicName, Document | None], Awaitable[None]]


class TopicsElsewhere(Protocol):
    """Topics that other brokers serve; all raise UnavailableError where those do not answer, StorageError."""

    async def is_here(self, name: TopicName) -> bool:
        """Whether it is this broker's own."""
        ...

    async def non_persistent(self, namespace: str) -> set[str]:
        """Full names of those of a namespace that they have loaded and that store nothing."""
        ...

    async def is_in_use(self, name: TopicName) -> bool:
        """Whether producers or consumers are connected to it at its owner."""
        ...

    async def delete(self, name: TopicName, *, force: bool) -> None:
        """Delete it at its owner; nothing if it is not there. Raises PreconditionFailedError if it is in use."""
        ...

    async def subscribe(self, name: TopicName, subscriptions: Sequence[NewSubscription]) -> None:
        """Durable subscriptions that begin with its first message, where there are none."""
        ...


class SharingClusters(Protocol):
    """Clusters that share tenants, policies and numbers of partitions with this one."""

    async def others(self, namespace: str) -> Sequence[str]:
        """Those that the namespace lives in, or may. Raises MetadataError."""
        ...

    async def holders(self, name: TopicName) -> Sequence[str]:
        """Those of them that have partitions of a topic. Raises UnavailableError where one does not tell."""
        ...

    async def make_partitions(self, name: TopicName, partitions: int) -> None:
        """Have those that are missing made there, with the subscriptions of the first, before their number is told.

        Raises UnavailableError where one does not.
        """
        ...


class PartitionedCalls(NamedTuple):
    """What single topics need of the partitioned ones."""

    #: Create a partitioned topic of so many partitions; raises ConflictError.
    create: Callable[[TopicName, int], Awaitable[None]]
    #: Somebody asked for a topic whose deletion was cut off.
    finish_deletion_soon: Callable[[TopicName], None]
