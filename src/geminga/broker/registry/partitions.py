"""Partitioned topics: create, complete, grow, delete.

A partition is created as an empty managed ledger, which is one write to the metadata store, and so is each of its
subscriptions; it is loaded when it is used, by the broker that owns it. Whatever is cut off is gone on with by a
request: creation by :meth:`Partitions.create_missing`, growth and deletion by the same request again. Until then
clients have what is missing created when they use it.

A deletion marks the topic as deleted first: from then on nothing of it is served, so that no client that reconnects
makes a partition of what is deleted. One that was cut off is finished by the same request, or when a client asks for
the topic. What is asked for one topic takes turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from geminga.broker.upkeep.admin_steps import AdminSteps
from geminga.model.errors import (
    ConflictError,
    GemingaError,
    NotFoundError,
    PreconditionFailedError,
    TopicNotFoundError,
    TransactionTopicError,
)
from geminga.model.limits import PARTITIONS_MAX
from geminga.model.position import EARLIEST
from geminga.model.topic_name import (
    PARTITION_SUFFIX,
    SHADOW_SOURCE,
    SYSTEM_NAMESPACE,
    TopicName,
    decode_name,
    encode_name,
    is_internal_cursor,
)
from geminga.runtime import Clock, KeyedLocks, Part, get_logger, spawn
from geminga.wire.managed_ledger import CursorInfoRecord

if TYPE_CHECKING:
    from geminga.broker.configuration.broker_config import BrokerConfig
    from geminga.broker.core.new_subscription import NewSubscription
    from geminga.broker.registry.ports import SharingClusters, TopicsElsewhere
    from geminga.broker.registry.topic_registry import TopicRegistry
    from geminga.broker.resources import PartitionedTopic, Resources
    from geminga.managed_ledger import ManagedLedgerFactory

_log = get_logger(__name__)

#: Partitions created or deleted at the same time: they share a commit of the metadata store.
PARTITIONS_AT_ONCE: Final = 128
#: What is said of a name that is taken, as in Pulsar.
EXISTS: Final = "This topic already exists"
#: What Pulsar's brokers keep for themselves among the properties of a subscription: it is of the one partition.
_INTERNAL: Final = "#pulsar.internal."


class Partitions:
    """See the module."""

    __slots__ = (
        "_clock",
        "_config",
        "_elsewhere",
        "_finishing",
        "_forget",
        "_is_stopping",
        "_ledgers",
        "_part",
        "_registry",
        "_resources",
        "_sharing",
        "_turns",
    )

    def __init__(
        self,
        config: BrokerConfig,
        ledgers: ManagedLedgerFactory,
        resources: Resources,
        registry: TopicRegistry,
        *,
        forget: Callable[[TopicName], Awaitable[None]],
        clock: Clock,
        is_stopping: Callable[[], bool],
        part: Part,
        elsewhere: TopicsElsewhere | None = None,
        sharing: SharingClusters | None = None,
    ) -> None:
        """``forget``: delete the policies and schemas of a topic. ``is_stopping``: long work ends at its next step.

        ``elsewhere``: partitions of other brokers; None: what needs them is refused. ``sharing``: clusters that share
        numbers of partitions with this one; None: there are none.
        """
        self._config = config
        self._elsewhere = elsewhere
        self._sharing = sharing
        self._ledgers = ledgers
        self._resources = resources
        self._registry = registry
        self._forget = forget
        self._clock = clock
        self._is_stopping = is_stopping
        self._part = part
        #: By full name.
        self._turns = KeyedLocks()
        #: Full names of those whose deletion is being finished for a client's sake.
        self._finishing: set[str] = set()

    async def create(self, name: TopicName, partitions: int, properties: Mapping[str, str] | None = None) -> None:
        """Create a partitioned topic with its partitions; raises ConflictError, PreconditionFailedError.

        Cut off, it is a partitioned topic of that many all the same.
        """
        registry = self._registry
        async with self._turn(name):
            await registry.require_namespace(name)
            self.check_count(partitions)
            if await registry.exists(name):
                raise ConflictError(EXISTS)
            with await registry.room_for(name, range(partitions)):
                await self._resources.create_partitioned_topic(name, partitions, properties)
                if await self._is_made_whole(name) and await self._is_taken_back(name, is_wanted=True):
                    raise ConflictError(EXISTS)
                try:
                    await self._make(name, range(partitions))
                except TopicNotFoundError:
                    await self._is_taken_back(name, is_wanted=False)
                    raise

    async def _is_made_whole(self, name: TopicName) -> bool:
        """Whether a topic of that name, without partitions, was made meanwhile.

        Who looks whether it may make one behind this finds the partitioned one (``new_topics``).
        """
        load = self._registry.loads.find(str(name))
        if load is not None:
            await asyncio.wait([load.done])
        return await self._registry.exists(name)

    async def _is_taken_back(self, name: TopicName, *, is_wanted: bool) -> bool:
        """Delete a partitioned topic that was made a moment ago; False: it stands, for others give way to it.

        ``is_wanted``: else it goes all the same. Raises MetadataError.
        """
        topics = self._resources.partitioned_topics
        while (found := await topics.find_stored(name)) is not None and not found.is_deleted:
            if is_wanted and found.stands:
                return False
            with suppress(ConflictError, NotFoundError):  # it changed: looked at anew
                await topics.delete(name, expected_version=found.version)
        return True

    async def create_missing(self, name: TopicName) -> None:
        """Create those partitions that are not there, with the subscriptions of the first; raises NotFoundError."""
        async with self._turn(name):
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
        self.check_count(partitions)
        async with self._turn(name):
            present = await self._count(name)
            if partitions < present:
                raise ConflictError(f"{name} has {present} partitions and can not shrink to {partitions}")
            added = range(present, partitions)
            with await self._registry.room_for(name, added) if added else nullcontext():
                await self._make(name, added)
                await self._copy_subscriptions(name, added)
                if self._sharing is not None:
                    await self._sharing.make_partitions(name, partitions)
                await self._resources.update_partitioned_topic(name, partitions)

    async def make_for_others(self, name: TopicName, partitions: int) -> None:
        """Make what a topic gets when a cluster that shares its number of partitions makes them ``partitions``.

        Raises NotFoundError.
        """
        self.check_count(partitions)
        async with self._turn(name):
            present = await self._count(name)
            await self._make(name, range(present, partitions))
            await self._copy_subscriptions(name, range(present, partitions))

    async def delete(self, name: TopicName, *, force: bool = False, is_namespace_going: bool = False) -> None:
        """Delete a partitioned topic and its partitions, or finish a deletion that was cut off.

        Raises NotFoundError; TopicNotServedError for partitions of another broker, PreconditionFailedError if in use:
        then it is served as before; ConflictError if another broker changes it meanwhile; others, then it stays
        marked. ``is_namespace_going``: its policies and schemas are left to who deletes the namespace.

        The number of partitions stays where clusters that share it have some: what is deleted then is this cluster's.
        Raises UnavailableError, with nothing done, where one of them does not tell.
        """
        topics = self._resources.partitioned_topics
        if name.is_of_transactions and name.namespace == SYSTEM_NAMESPACE:
            raise TransactionTopicError(f"{name} is what the cluster's transaction coordinators are, and stays")
        if await topics.find_stored(name) is None or name.is_partition:
            raise TopicNotFoundError(f"Partitioned topic not found {name}")
        async with self._turn(name):
            found = await topics.find_stored(name)
            if found is None:
                return  # by who had the turn before
            await self._require_here(name)
            if not force:
                try:
                    await self._require_unused(name)
                except PreconditionFailedError:
                    if found.is_deleted:
                        await self._serve_again(name, found)
                    raise
            if self._sharing is not None and await self._sharing.holders(name):
                await self._delete_stored(name)
                await self._forget(name)
                return
            marked = await self._mark(name, found)
            try:
                await self._delete_marked(name, marked, force=force, is_namespace_going=is_namespace_going)
            except PreconditionFailedError:
                await self._serve_again(name, found)
                raise

    async def _serve_again(self, name: TopicName, found: PartitionedTopic) -> None:
        """Its deletion is refused. One that was begun before goes on being one, unless all that it is of is there."""
        if found.is_deleted and not found.is_if_empty:
            if self._sharing is not None and await self._sharing.others(name.namespace):
                return  # another cluster may be at it
            for index in range(found.partitions):
                if not await self._registry.exists(name.with_partition(index)):
                    return
        await self._resources.partitioned_topics.mark_deleted(name, False, partitions=found.partitions)

    async def delete_if_empty(self, name: TopicName) -> bool:
        """Delete a partitioned topic none of whose partitions is there; whether it was.

        Raises ConflictError, NotFoundError, StorageError.
        """
        topics = self._resources.partitioned_topics
        if str(name) in self._turns:
            return False
        async with self._turn(name):
            found = await topics.find(name)
            if found is None or await self._has_any(name, found.partitions):
                return False
            if self._sharing is not None and await self._sharing.others(name.namespace):
                # They may have some, and are not asked each time that nobody uses the topic here.
                return False
            marked = await self._mark(name, found, is_if_empty=True)
            if await self._has_any(name, found.partitions):
                await topics.mark_deleted(name, False, partitions=found.partitions)
                return False
            await self._delete_marked(name, marked, force=False, is_namespace_going=False)
        return True

    def finish_deletion_soon(self, name: TopicName) -> None:
        """A client asked for a topic whose deletion was cut off, unless it is under way."""
        key = str(name)
        if key not in self._turns and key not in self._finishing and not self._is_stopping():
            self._finishing.add(key)
            spawn(self._finish_deletion(name), name=f"finish the deletion of {key}", part=self._part)

    async def until_done(self, namespace: str) -> None:
        """Until what is being done now to the namespace's partitioned topics is done."""
        beginnings = tuple(f"{domain}://{namespace}/" for domain in ("persistent", "non-persistent"))
        await self._turns.until_free(lambda key: key.startswith(beginnings))

    async def _finish_deletion(self, name: TopicName) -> None:
        try:
            async with self._turn(name):
                found = await self._resources.partitioned_topics.find_stored(name)
                if found is None or not found.is_deleted or await self._is_others_deletion(name, found):
                    return
                if found.is_if_empty and await self._has_any(name, found.partitions):
                    # They came before the mark, and nobody asked for their deletion.
                    await self._resources.partitioned_topics.mark_deleted(name, False, partitions=found.partitions)
                    _log.info("%s was to be deleted without partitions, and has some: it is served again", name)
                    return
                await self._delete_marked(name, found, force=False, is_namespace_going=False)
                _log.info("finished the deletion of %s", name)
        except GemingaError as error:
            _log.warning("the deletion of %s could not be finished: %s", name, error)
        finally:
            self._finishing.discard(str(name))

    async def _is_others_deletion(self, name: TopicName, marked: PartitionedTopic) -> bool:
        """Whether another cluster may be at it, or was cut off: it is left to who asks for it again.

        Partitions that are here it can not have meant: they are served again.
        """
        if self._sharing is None or not await self._sharing.others(name.namespace):
            return False
        if await self._has_any(name, marked.partitions):
            await self._resources.partitioned_topics.mark_deleted(name, False, partitions=marked.partitions)
            _log.warning("%s was marked as deleted, by this cluster or one that shares it, and has partitions", name)
        return True

    async def _mark(self, name: TopicName, found: PartitionedTopic, *, is_if_empty: bool = False) -> PartitionedTopic:
        """On return nothing that found the topic unmarked is being loaded any more."""
        topics, partitions = self._resources.partitioned_topics, found.partitions
        version = await topics.mark_deleted(name, True, partitions=partitions, is_if_empty=is_if_empty)
        await self._registry.until_loaded(f"{name}{PARTITION_SUFFIX}")
        return replace(found, is_deleted=True, is_if_empty=is_if_empty, version=version)

    async def _delete_marked(
        self, name: TopicName, marked: PartitionedTopic, *, force: bool, is_namespace_going: bool
    ) -> None:
        """What is stored of the topic itself goes last: until then the request can be sent again."""
        if not force:
            await self._require_unused(name)
        await self._delete_stored(name)
        if not is_namespace_going:
            await self._forget(name)
        await self._resources.delete_partitioned_topic(name, expected_version=marked.version)

    async def _delete_stored(self, name: TopicName) -> None:
        """Nobody used it when that was looked at, or it goes all the same: who came since ends none of it half-way."""
        batch: list[TopicName] = []
        async for partition in self._stored(name):
            batch.append(partition)
            if len(batch) == PARTITIONS_AT_ONCE:
                await self._delete(batch)
                batch = []
        await self._delete(batch)

    async def _require_unused(self, name: TopicName) -> None:
        for topic in self._registry.loaded_of(name):
            if topic.name.is_partition and topic.is_in_use:
                raise PreconditionFailedError("Topic has active producers/subscriptions")
        if self._elsewhere is not None:
            async for partition in self._stored(name):
                if not await self._elsewhere.is_here(partition) and await self._elsewhere.is_in_use(partition):
                    raise PreconditionFailedError("Topic has active producers/subscriptions")

    async def _require_here(self, name: TopicName) -> None:
        """Before anything is done that only the owner of each partition can do. Raises TopicNotServedError where there
        is one that is not we, and nobody to ask."""
        if self._elsewhere is not None:
            return
        async for partition in self._stored(name):
            await self._registry.require_here(partition)

    async def _has_any(self, name: TopicName, partitions: int) -> bool:
        for index in range(partitions):
            if await self._registry.exists(name.with_partition(index)):
                return True
        return not name.is_persistent and bool(await self._loaded_elsewhere(name))

    async def _loaded_elsewhere(self, name: TopicName) -> list[TopicName]:
        """Partitions without storage that other brokers have, which alone know of them. Raises UnavailableError."""
        if self._elsewhere is None:
            return []
        found = sorted(await self._elsewhere.non_persistent(name.namespace))
        partitions = [TopicName.parse(text) for text in found if text.startswith(f"{name}{PARTITION_SUFFIX}")]
        return [each for each in partitions if each.is_partition and each.partitioned_topic == name]

    def deletion_of(self, namespace: str) -> AbstractAsyncContextManager[None]:
        """Around the deletion of a whole namespace: one at a time, in the order in which they came."""
        return self._turns.of(f"deletion of {namespace}")

    def creation_of(self, name: TopicName, subscription: str = "") -> AbstractAsyncContextManager[None]:
        """Around the creation of a topic without partitions by an administrator, or of a subscription: of two the
        second finds what the first made."""
        return self._turns.of(f"creation of {name} {subscription}")

    def _turn(self, name: TopicName) -> AbstractAsyncContextManager[None]:
        return self._turns.of(str(name))

    async def is_used(self, partition: TopicName) -> bool:
        """Whether a partition is loaded, or has had messages or subscriptions."""
        registry, ledgers = self._registry, self._ledgers
        if not partition.is_persistent or not registry.is_free(partition):
            return not registry.is_free(partition)
        return await registry.exists(partition) and not await ledgers.is_unused(partition.managed_ledger_name)

    def check_count(self, partitions: int) -> None:
        """Raise PreconditionFailedError unless a topic may have so many."""
        if not 1 <= partitions <= self.most:
            raise PreconditionFailedError(f"Number of partitions should be 1 to {self.most}, not {partitions}")

    @property
    def most(self) -> int:
        """Partitions that a topic may have, as it is configured now."""
        return self._config.partitions_max or PARTITIONS_MAX

    async def _count(self, name: TopicName) -> int:
        found = await self._resources.partitioned_topic_metadata(name)
        if not found or name.is_partition:
            raise TopicNotFoundError(f"Partitioned topic not found {name}")
        return found

    async def _stored(self, name: TopicName) -> AsyncIterator[TopicName]:
        """The partitions that are there: stored, or loaded of a topic that is not persistent, by whatever broker."""
        if not name.is_persistent:
            for topic in self._registry.loaded_of(name):
                if topic.name.is_partition:
                    yield topic.name
            for partition in await self._loaded_elsewhere(name):
                yield partition
            return
        steps = self._steps()
        begin = f"{name.encoded_local_name}{PARTITION_SUFFIX}"
        for encoded in await self._ledgers.encoded_names(f"{name.namespace}/persistent"):
            await steps.next()
            if encoded.startswith(begin):
                partition = TopicName.parse(f"persistent://{name.namespace}/{decode_name(encoded)}")
                if partition.is_partition and partition.partitioned_topic == name:
                    yield partition

    def _steps(self) -> AdminSteps:
        return AdminSteps(self._clock, self._is_stopping)

    async def _make(self, name: TopicName, indexes: range | list[int]) -> None:
        if not name.is_persistent:
            return
        ledgers, steps = self._ledgers, self._steps()
        found = await self._resources.partitioned_topics.find_stored(name)
        source = None if found is None else found.properties.get(SHADOW_SOURCE)
        shown = {SHADOW_SOURCE: source} if source else None
        for start in range(0, len(indexes), PARTITIONS_AT_ONCE):
            await steps.next()
            # A namespace that is being deleted gets nothing new.
            await self._registry.require_namespace(name)
            names = [name.with_partition(index) for index in indexes[start : start + PARTITIONS_AT_ONCE]]
            await asyncio.gather(*(ledgers.create(partition.managed_ledger_name, shown) for partition in names))
        # Loaded by the first that are made.
        from geminga.broker.registry.new_topics import may_have_partitions

        if indexes and not await may_have_partitions(self._resources, name):
            for index in indexes:
                await ledgers.delete_unused(name.with_partition(index).managed_ledger_name)
            raise TopicNotFoundError(f"{name} was deleted while its partitions were made")

    async def _copy_subscriptions(self, name: TopicName, indexes: range | list[int]) -> None:
        """The durable subscriptions of partition 0 begin with the first message of the new partitions, too."""
        if not name.is_persistent or not indexes:
            return
        steps = self._steps()
        wanted = await self._subscriptions_of(name.with_partition(0))
        for index in indexes if wanted else ():
            await steps.next()
            await self._subscribe(name.with_partition(index), wanted)

    async def _subscriptions_of(self, partition: TopicName) -> list[NewSubscription]:
        """Those that are durable, with what they get by: consumers bring it in vain to one that is there."""
        from geminga.broker.core.new_subscription import NewSubscription
        from geminga.managed_ledger.rules.cursor import REPLICATED, REPLICATED_PROPERTY

        found = []
        for cursor, record in (await self._ledgers.stored_cursors(partition.managed_ledger_name)).items():
            if not is_internal_cursor(cursor):
                texts = {key: text for key, text in record.cursor_properties.items() if not key.startswith(_INTERNAL)}
                is_replicated = record.properties.get(REPLICATED_PROPERTY) == REPLICATED
                found.append(NewSubscription(decode_name(cursor), texts, is_replicated))
        return found

    async def _subscribe(self, partition: TopicName, wanted: Sequence[NewSubscription]) -> None:
        """Where nobody used the partition, a subscription is a node; else whoever owns the topic creates it."""
        from geminga.managed_ledger.rules.cursor import REPLICATED, REPLICATED_PROPERTY

        registry = self._registry
        if self._elsewhere is not None and not await self._elsewhere.is_here(partition):
            await self._elsewhere.subscribe(partition, wanted)
            return
        cursors = {
            encode_name(one.name): CursorInfoRecord(
                -1,
                EARLIEST,
                properties={REPLICATED_PROPERTY: REPLICATED} if one.is_replicated else {},
                cursor_properties=one.properties,
            )
            for one in wanted
        }
        if registry.is_free(partition) and await self._ledgers.add_cursors(partition.managed_ledger_name, cursors):
            if not registry.is_free(partition):
                # Whoever opened it meanwhile may not have found them.
                await registry.until_loaded(str(partition))
                await registry.unload(partition)
            return
        was_free = registry.is_free(partition)
        topic = await registry.load(partition)
        for one in wanted:
            with suppress(ConflictError):
                await topic.create_subscription(one.name, EARLIEST, one.properties, is_replicated=one.is_replicated)
        if was_free and not topic.is_in_use:
            await registry.unload(partition)

    async def _delete(self, partitions: list[TopicName]) -> None:
        """Each at its owner, who alone knows whether it is used. Raises TopicNotServedError where that is not we."""
        registry = self._registry
        if self._elsewhere is not None:
            away = [partition for partition in partitions if not await self._elsewhere.is_here(partition)]
            await asyncio.gather(*(self._elsewhere.delete(partition, force=True) for partition in away))
            partitions = [partition for partition in partitions if partition not in away]
        for partition in partitions:
            await registry.require_here(partition)
        free = [partition for partition in partitions if registry.is_free(partition)]
        deletions = (self._ledgers.delete_unused(partition.managed_ledger_name) for partition in free)
        gone = {partition for partition, is_gone in zip(free, await asyncio.gather(*deletions), strict=True) if is_gone}
        steps = self._steps()
        for partition in partitions:
            await steps.next()
            if partition not in gone:
                try:
                    await registry.delete(partition, force=True)
                except TopicNotFoundError:
                    if await registry.exists(partition):
                        raise
