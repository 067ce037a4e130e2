"""Partitioned topics: create, complete, grow, delete.

A partition is created as an empty managed ledger, which is one write to the metadata store, and is loaded when it is
used. Whatever is cut off is gone on with by a request: creation by :meth:`Partitions.create_missing`, growth and
deletion by the same request again. Until then clients have what is missing created when they use it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from geminga.model.errors import ConflictError, PreconditionFailedError, TopicNotFoundError
from geminga.model.position import EARLIEST
from geminga.model.topic_name import PARTITION_SUFFIX, TopicName

if TYPE_CHECKING:
    from geminga.broker.service import Broker

#: Partitions of one topic where ``maxNumPartitionsPerPartitionedTopic`` sets no lower bound.
PARTITIONS_MAX: Final = 1_000_000
#: Partitions created or deleted at the same time: they share a commit of the metadata store.
PARTITIONS_AT_ONCE: Final = 128


class Partitions:
    """See the module."""

    __slots__ = ("_broker",)

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def create(self, name: TopicName, partitions: int, properties: Mapping[str, str] | None = None) -> None:
        """Create a partitioned topic with its partitions; raises ConflictError, PreconditionFailedError.

        Cut off, it is a partitioned topic of that many all the same.
        """
        broker = self._broker
        await broker.registry.require_namespace(name)
        self.check_count(partitions)
        if await broker.registry.exists(name):
            raise ConflictError("This topic already exists")
        await broker.registry.check_topic_limit(name, partitions)
        await broker.resources.create_partitioned_topic(name, partitions, properties)
        await self._make(name, range(partitions))

    async def create_missing(self, name: TopicName) -> None:
        """Create those partitions that are not there, with the subscriptions of the first; raises NotFoundError."""
        count = await self._count(name)
        if not name.is_persistent:
            return
        present = {partition.partition async for partition in self._stored(name)}
        await self._make(name, (missing := [index for index in range(count) if index not in present]))
        if 0 in present:
            await self._copy_subscriptions(name, missing)

    async def grow(self, name: TopicName, partitions: int) -> None:
        """Add partitions; raises NotFoundError, ConflictError for fewer than there are.

        Clients hear of them when all are there and have the subscriptions of the first: what is published to them
        before a consumer comes is not lost to it.
        """
        broker = self._broker
        self.check_count(partitions)
        present = await self._count(name)
        if partitions < present:
            raise ConflictError(f"{name} has {present} partitions and can not shrink to {partitions}")
        await broker.registry.check_topic_limit(name, partitions - present)
        await self._make(name, range(present, partitions))
        await self._copy_subscriptions(name, range(present, partitions))
        await broker.resources.update_partitioned_topic(name, partitions)

    async def delete(self, name: TopicName, *, force: bool = False) -> None:
        """Delete a partitioned topic and its partitions.

        Raises NotFoundError, PreconditionFailedError if in use, ConflictError if partitions are added meanwhile.
        """
        broker, steps = self._broker, self._broker.admin_steps()
        found = await broker.resources.partitioned_topics.find(name)
        if found is None or name.is_partition:
            raise TopicNotFoundError(f"Partitioned topic not found {name}")
        for topic in list(broker.topics.values()):
            await steps.next()
            if not force and topic.name.is_partition and topic.is_in_use and topic.name.partitioned_topic == name:
                raise PreconditionFailedError("Topic has active producers/subscriptions")
        batch: list[TopicName] = []
        async for partition in self._stored(name):
            batch.append(partition)
            if len(batch) == PARTITIONS_AT_ONCE:
                await self._delete(batch, force)
                batch = []
        await self._delete(batch, force)
        await broker.registry.delete_partitioned_metadata(name, found.version)

    async def is_used(self, partition: TopicName) -> bool:
        """Whether a partition is loaded, or has had messages or subscriptions."""
        registry, ledgers = self._broker.registry, self._broker.ledgers
        if not partition.is_persistent or not registry.is_free(partition):
            return not registry.is_free(partition)
        return await registry.exists(partition) and not await ledgers.is_unused(partition.managed_ledger_name)

    def check_count(self, partitions: int) -> None:
        """Raise PreconditionFailedError unless a topic may have so many."""
        limit = self._broker.config.partitions_max or PARTITIONS_MAX
        if not 1 <= partitions <= limit:
            raise PreconditionFailedError(f"Number of partitions should be 1 to {limit}, not {partitions}")

    async def _count(self, name: TopicName) -> int:
        found = await self._broker.resources.partitioned_topic_metadata(name)
        if not found or name.is_partition:
            raise TopicNotFoundError(f"Partitioned topic not found {name}")
        return found

    async def _stored(self, name: TopicName) -> AsyncIterator[TopicName]:
        """The partitions that are there: stored, or loaded of a topic that is not persistent."""
        broker, steps = self._broker, self._broker.admin_steps()
        if not name.is_persistent:
            loaded = [topic.name for topic in broker.topics.values()]
            for each in loaded:
                await steps.next()
                if each.is_partition and each.partitioned_topic == name:
                    yield each
            return
        begin = f"{name.encoded_local_name}{PARTITION_SUFFIX}"
        for encoded in await broker.ledgers.encoded_names(f"{name.namespace}/persistent"):
            await steps.next()
            if encoded.startswith(begin):
                partition = TopicName.parse(f"persistent://{name.namespace}/{unquote(encoded)}")
                if partition.is_partition and partition.partitioned_topic == name:
                    yield partition

    async def _make(self, name: TopicName, indexes: range | list[int]) -> None:
        if not name.is_persistent:
            return
        ledgers, steps = self._broker.ledgers, self._broker.admin_steps()
        for start in range(0, len(indexes), PARTITIONS_AT_ONCE):
            await steps.next()
            names = [name.with_partition(index) for index in indexes[start : start + PARTITIONS_AT_ONCE]]
            await asyncio.gather(*(ledgers.create(partition.managed_ledger_name) for partition in names))

    async def _copy_subscriptions(self, name: TopicName, indexes: range | list[int]) -> None:
        if not name.is_persistent or not indexes:
            return
        broker, steps = self._broker, self._broker.admin_steps()
        model = await broker.get_topic(name.with_partition(0), create=True)
        durable = [subscription.name for subscription in model.subscriptions.values() if subscription.is_durable]
        if not durable:
            return
        for index in indexes:
            await steps.next()
            partition = name.with_partition(index)
            was_free = broker.registry.is_free(partition)
            topic = await broker.registry.load(partition)
            for subscription in durable:
                await topic.ensure_subscription(subscription, EARLIEST)
            if was_free and not topic.is_in_use:
                await broker.unload_topic(partition)

    async def _delete(self, partitions: list[TopicName], force: bool) -> None:
        broker = self._broker
        free = [partition for partition in partitions if broker.registry.is_free(partition)]
        deletions = (broker.ledgers.delete_unused(partition.managed_ledger_name) for partition in free)
        gone = {partition for partition, is_gone in zip(free, await asyncio.gather(*deletions), strict=True) if is_gone}
        steps = broker.admin_steps()
        for partition in partitions:
            await steps.next()
            if partition not in gone:
                try:
                    await broker.delete_topic(partition, force=force)
                except TopicNotFoundError:
                    continue
