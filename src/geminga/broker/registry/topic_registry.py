"""The topics of this broker: load on demand, create, list, unload, delete; partitioned topics.

Only what this broker owns is opened, and what is taken from it is unloaded. Whoever asks while a topic is loaded waits
for the same result. One that ends is gone from here only when its ledger is closed: the next load starts clean.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from geminga.broker.core.deletion import Hold
from geminga.broker.failures import BrokenPart, Failures
from geminga.broker.geo.residence import require_life_in
from geminga.broker.ownership.ports import Here, Ownership, Topics
from geminga.broker.policies.core.limit_rows import AUTO_TOPIC_CREATION, MAX_TOPICS
from geminga.broker.registry.loaded_topics import LoadedTopics
from geminga.broker.registry.namespaces import Namespaces, TopicMode, check_new_name, is_fit_for_new
from geminga.broker.registry.topic_loads import Load, TopicLoads
from geminga.model.errors import (
    ConflictError,
    GemingaError,
    LedgerFencedError,
    NotAllowedError,
    PreconditionFailedError,
    TopicNotFoundError,
    TopicNotServedError,
    TransactionTopicError,
    UnavailableError,
)
from geminga.model.topic_name import PARTITION_SUFFIX, TopicName, decode_name, is_internal_cursor, is_of_transactions
from geminga.runtime import Clock, Contained, Part, Turns, carried_out, get_logger, spawn

if TYPE_CHECKING:
    from geminga.broker.configuration.broker_config import BrokerConfig
    from geminga.broker.policies.core.readers import TopicCreation
    from geminga.broker.policies.rules import Levels
    from geminga.broker.registry.ports import Belongings, MakeTopic, PartitionedCalls
    from geminga.broker.resources import Document, Policies, Resources
    from geminga.broker.topic.base import Topic
    from geminga.broker.topic.persistent import PersistentTopic
    from geminga.managed_ledger import ManagedLedgerFactory
    from geminga.model.position import Position

    #: Places that are kept while the block runs in which topics are made.
    Room = AbstractContextManager[None]
    #: What holds a topic that is closed; raises GemingaError where that can not be told.
    WhyItStays = Callable[[Topic], Awaitable[Hold | None]]

_log = get_logger(__name__)

#: Topics unloaded at the same time when the broker closes, or loses them.
UNLOADS_AT_ONCE: Final = 256
#: How often the policies of a topic are applied while it is loaded, where they change each time.
APPLY_ATTEMPTS_MAX: Final = 100
#: Where it does not matter how many topics there are.
NO_LIMIT: Final = nullcontext()


class TopicRegistry:
    """See the module."""

    __slots__ = (
        "_belongings",
        "_clock",
        "_config",
        "_dropped",
        "_ending",
        "_failures",
        "_is_closing",
        "_ledgers",
        "_levels",
        "_make_topic",
        "_namespaces",
        "_open_topics",
        "_others_non_persistent",
        "_ownership",
        "_part",
        "_partitioned",
        "_policy_changes",
        "_resources",
        "loaded",
        "loads",
    )

    def __init__(
        self,
        config: BrokerConfig,
        ledgers: ManagedLedgerFactory,
        resources: Resources,
        namespaces: Namespaces,
        ownership: Ownership,
        *,
        make_topic: MakeTopic,
        belongings: Belongings,
        partitioned: PartitionedCalls,
        levels: Callable[[Policies], Levels],
        policy_changes: Callable[[], int],
        failures: Failures,
        clock: Clock,
        is_closing: Callable[[], bool],
        dropped: Callable[[], None],
        part: Part,
        others_non_persistent: Callable[[str], Awaitable[set[str]]] | None = None,
    ) -> None:
        """``others_non_persistent``: those of a namespace that other brokers have; None: there are none.

        ``levels``: what a namespace's policies come to. ``policy_changes``: counts changes of policies,
        of whatever. ``is_closing``: nothing is loaded any more.

        ``dropped``: a topic that broke was let go as it was.
        """
        self._config = config
        self._ledgers = ledgers
        self._resources = resources
        self._namespaces = namespaces
        self._ownership = ownership
        self._make_topic = make_topic
        self._belongings = belongings
        self._partitioned = partitioned
        self._levels = levels
        self._policy_changes = policy_changes
        self._others_non_persistent = others_non_persistent
        self._failures = failures
        self._clock = clock
        self._is_closing = is_closing
        self._dropped = dropped
        self._part = part
        ownership.listen(self)
        #: By full name.
        self._open_topics = LoadedTopics()
        self.loaded: Mapping[str, Topic] = self._open_topics.by_name
        self.loads = TopicLoads(self._load_now, clock, failures, config)
        #: Topics being unloaded or deleted.
        self._ending: dict[str, asyncio.Future[None]] = {}

    # ---- one topic

    async def get(self, name: TopicName, *, create: bool, is_for_client: bool = True) -> Topic:
        """The topic, loaded if need be. ``create``: on demand, if the policies allow it.

        ``is_for_client``: where many are to be loaded it comes before those that are only looked at.

        Raises TopicNotFoundError, UnavailableError, NotAllowedError, StorageError, NotInThisClusterError;
        TopicNotServedError unless it is this broker's.
        """
        topic = self.loaded.get(str(name))
        if topic is not None and not topic.is_closing:
            return topic
        if create:
            return await self._load_within(await self._room_on_demand(name), name, is_for_client=is_for_client)
        if is_for_client:
            await self._namespaces.require_life_in(name.namespace, self._config.cluster_name)
        return await self._load(name, create=False, is_for_client=is_for_client)

    async def _load_within(self, room: Room | None, name: TopicName, *, is_for_client: bool) -> Topic:
        """Loaded, and made if there is ``room``, which is kept to the end."""

        async def loaded() -> Topic:
            with room or NO_LIMIT:
                return await self._load(name, create=room is not None, is_for_client=is_for_client)

        is_kept = room is not None and room is not NO_LIMIT
        return await (carried_out(loaded(), name=f"make {name}", part=self._part) if is_kept else loaded())

    async def create(self, name: TopicName, properties: Mapping[str, str] | None = None) -> Topic:
        """Create by the administrator's wish; raises ConflictError if it exists, NotFoundError of its namespace."""
        await self.require_namespace(name)
        if await self.exists(name) or await self._partitions(name):
            raise ConflictError("This topic already exists")
        room = await self.room_for(name)
        if not (properties and name.is_persistent):
            return await self._load_within(room, name, is_for_client=False)
        from geminga.broker.registry.new_topics import create_with  # with the first topic that is made

        is_made = self._config.enable_persistent_topics and not name.is_of_transactions
        with room:
            return await create_with(self, self._resources, self._ledgers, name, properties, is_made=is_made)

    async def load(self, name: TopicName) -> Topic:
        """The topic, created if need be whatever the policies say; raises UnavailableError, StorageError."""
        return await self._load(name, create=True)

    def is_free(self, name: TopicName) -> bool:
        """Whether the topic is neither loaded nor being loaded or ended."""
        key = str(name)
        return key not in self.loaded and key not in self.loads and key not in self._ending

    async def exists(self, name: TopicName) -> bool:
        """Whether the topic is stored, or loaded if it is not persistent."""
        return str(name) in self.loaded or (name.is_persistent and await self._ledgers.exists(name.managed_ledger_name))

    async def subscription_names(self, name: TopicName) -> list[str]:
        """Of a topic that is loaded, or stored: it is not loaded for that. Raises StorageError."""
        topic = self.loaded.get(str(name))
        if topic is not None:
            return [*topic.subscriptions]
        cursors = await self._ledgers.cursor_names(name.managed_ledger_name) if name.is_persistent else ()
        return [decode_name(cursor) for cursor in cursors if not is_internal_cursor(cursor)]

    async def unload(self, name: TopicName) -> None:
        """Send its clients away and close it; nothing if it is not loaded."""
        await self._end(name, delete=False)

    async def unload_fenced(self, name: TopicName) -> None:
        """Another broker opened its ledger, rightly or not: whose it is is found out anew, then it may be loaded."""
        self._ownership.doubt(name)
        await self.unload(name)

    def drop_soon(self, topic: Topic) -> None:
        """A topic broke: cut its clients off and let go of it, saving nothing that it made of what is stored."""
        spawn(self._drop(topic), name=f"drop {topic.name}", part=self._part)

    async def delete(self, name: TopicName, *, force: bool = False, is_namespace_going: bool = False) -> None:
        """Delete with everything stored. Raises TopicNotFoundError; PreconditionFailedError while it is in use.

        ``is_namespace_going``: its policies and schemas are left to who deletes the namespace, with all others'.
        """
        while True:
            topic = await self._load(name, create=False, is_for_deletion=True)
            consumers = sum(len(subscription.consumers) for subscription in topic.subscriptions.values())
            for count, what in ((len(topic.producers), "producers"), (consumers, "consumers")):
                if count and not force:
                    raise PreconditionFailedError(f"Topic has {count} connected {what}")
            # Who ended it first may have unloaded it only.
            if await self._end(name, delete=True, is_namespace_going=is_namespace_going) is None:
                return

    async def delete_unless(self, topic: Topic, why_it_stays: WhyItStays) -> Hold | None:
        """Delete a loaded topic that nobody uses; what held it, else None.

        It is closed at once, before anything is awaited. ``why_it_stays`` is asked when no client can come any more
        and the ledger is ours for certain; if something holds it then, it has been unloaded and no more.
        Raises GemingaError; then it is unloaded, and as much of it is left as could not be deleted.
        """
        if self.loaded.get(str(topic.name)) is not topic or str(topic.name) in self._ending or topic.is_closing:
            return Hold.CLOSING
        return await self._end(topic.name, delete=True, why_it_stays=why_it_stays)

    async def terminate(self, name: TopicName) -> Position:
        """End a persistent topic: no more publishing; returns its last position. Raises NotAllowedError."""
        topic = await self._load(name, create=False)
        if not name.is_persistent:
            raise NotAllowedError("Termination of a non-persistent topic is not allowed")
        return await cast("PersistentTopic", topic).terminate()

    async def close(self) -> None:
        """Unload everything."""
        self.loads.refuse(lambda _: True, lambda _: UnavailableError("the broker is closing"))
        while (load := next(iter(self.loads), None)) is not None:
            await load.done
        while self.loaded:
            await self._unload_all([topic.name for topic in self.loaded.values()])

    async def _unload_all(self, names: Iterable[TopicName]) -> None:
        """System topics last: others keep in them what spares the next load work."""
        system: list[TopicName] = []
        others: list[TopicName] = []
        for name in names:
            (system if name.is_system else others).append(name)
        for some in (others, system):
            for start in range(0, len(some), UNLOADS_AT_ONCE):
                await self._unload_some(some[start : start + UNLOADS_AT_ONCE])

    async def _unload_some(self, names: Sequence[TopicName]) -> None:
        results = await asyncio.gather(*(self.unload(name) for name in names), return_exceptions=True)
        for name, result in zip(names, results, strict=True):
            if isinstance(result, GemingaError):
                _log.warning("closing %s: %s", name, result)
            elif result is not None:
                with Contained(self._part, f"closing {name}", is_last=True):
                    raise result

    # ---- what is told of ownership

    def given(self, topics: Topics) -> None:
        """They are loaded when somebody wants them: anew, for what is loaded from before may be out of date.

        A broker may be given back what it never heard that it lost.
        """
        stale = [topic.name for topic in self.loaded.values() if topics(topic.name)]
        if stale:
            spawn(self._unload_all(stale), name=f"unload {len(stale)} topics of before", part=self._part)

    async def taken(self, topics: Topics) -> None:
        """Unload them; those whose loading began while they were ours are never served."""
        self.loads.refuse(topics, _not_served)
        loads = [load for load in self.loads if topics(load.name)]
        for load in loads:
            load.is_taken = True
        await self._unload_all([topic.name for topic in self.loaded.values() if topics(topic.name)])
        if loads:
            await asyncio.wait([load.done for load in loads])

    def loaded_of(self, whole: TopicName) -> list[Topic]:
        """That topic and its partitions, as many as are loaded."""
        return self._open_topics.of(whole)

    async def require_here(self, name: TopicName) -> None:
        """Raise TopicNotServedError, upon which clients look it up again, unless the topic is this broker's."""
        owner = await self._ownership.owner_of(name)
        if not isinstance(owner, Here):
            raise _not_served(name)

    async def _load(
        self, name: TopicName, *, create: bool, is_for_deletion: bool = False, is_for_client: bool = False
    ) -> Topic:
        key = str(name)
        if name.is_of_transactions:
            # Its owner has it open.
            raise TransactionTopicError(f"Can not create transaction system topic {name}")
        while True:
            while (ending := self._ending.get(key)) is not None:
                await asyncio.shield(ending)
            topic = self.loaded.get(key)
            if topic is not None:
                return topic
            load = self.loads.find(key)
            if load is None or not is_for_deletion:
                break
            # It may be refused what a deletion is not.
            await asyncio.shield(load.done)
        if load is None:
            self._failures.check(BrokenPart.TOPIC, (key,))
            if self._is_closing():
                raise UnavailableError("the broker is closing")
            load = Load(name, create=create, is_for_deletion=is_for_deletion)
            self.loads.ask(load, is_for_client=is_for_client)
        elif create and not await self.loads.make(load, is_for_client=is_for_client):
            return await self._load(name, create=True, is_for_client=is_for_client)
        return await self.loads.result(load, is_for_client=is_for_client)

    async def until_loaded(self, *beginnings: str) -> None:
        """Until what is being loaded now of topics whose full names begin so has been, or could not be.

        What waits for its turn has found nothing yet.
        """
        loads = [load.done for load in self.loads if str(load.name).startswith(beginnings)]
        if loads:
            await asyncio.wait(loads)

    async def _load_now(self, load: Load) -> Topic:
        try:
            return await self._open(load, load.name, create=load.create, is_for_deletion=load.is_for_deletion)
        except LedgerFencedError:
            self._ownership.doubt(load.name)
            raise

    async def _open(self, load: Load, name: TopicName, *, create: bool, is_for_deletion: bool) -> Topic:
        config = self._config
        await self.require_here(name)
        if create:
            # Who deletes the namespace waits for loads that found it (``until_loaded``); later ones do not find it.
            await self.require_namespace(name)
        # The same of who deletes a partitioned topic.
        is_asked = name.is_partition or not name.is_persistent
        partitions = await self._partitions(name, also_deleted=is_for_deletion) if is_asked else 0
        if not (config.enable_persistent_topics if name.is_persistent else config.enable_non_persistent_topics):
            raise NotAllowedError(f"{name.domain} topics are not enabled")
        if not name.is_persistent:
            if not create and not partitions:
                raise _not_found(name)
            topic = self._make_topic(name, None)
        else:
            ledgers = self._ledgers
            if not create and not await ledgers.exists(name.managed_ledger_name):
                raise _not_found(name)
            ledger = await ledgers.open(name.managed_ledger_name)
            if ledger.stored.is_new:
                from geminga.broker.registry.new_topics import stays_new  # with the first topic that is made

                if not (create and await stays_new(self._resources, name)):
                    self._namespaces.forget(name.namespace)
                    await ledgers.delete(name.managed_ledger_name)
                    raise _not_found(name)
            topic = self._make_topic(name, ledger)
        changes = self._policy_changes()
        try:
            await topic.load()
            for _ in range(APPLY_ATTEMPTS_MAX):
                if self._policy_changes() == changes:
                    break
                # Whoever changed policies meanwhile told those that were loaded.
                changes = self._policy_changes()
                await topic.apply_policies()
            else:
                raise UnavailableError(f"the policies of {name} change all the time")
            if load.is_taken:
                raise _not_served(name)
        except GemingaError:
            # By the next time another broker may have had the topic: what is open would be out of date then.
            await topic.drop_storage()
            raise
        if topic.life.is_going:
            from geminga.broker.registry.new_topics import is_rest_deleted  # few deletions are cut off

            if await is_rest_deleted(topic, self._belongings, is_for_deletion=is_for_deletion):
                return await self._open(load, name, create=create, is_for_deletion=False)
        self._open_topics.add(topic)
        return topic

    async def _drop(self, topic: Topic) -> None:
        key = str(topic.name)
        while (ending := self._ending.get(key)) is not None:
            await asyncio.shield(ending)
        if self.loaded.get(key) is not topic:
            return
        ended = self._ending[key] = asyncio.get_running_loop().create_future()
        try:
            topic.cut_off()
            await topic.drop_storage()
        finally:
            self._open_topics.discard(topic.name)
            del self._ending[key]
            ended.set_result(None)
            self._dropped()

    async def _end(
        self, name: TopicName, *, delete: bool, why_it_stays: WhyItStays | None = None, is_namespace_going: bool = False
    ) -> Hold | None:
        key = str(name)
        while (ending := self._ending.get(key)) is not None:
            await asyncio.shield(ending)
        if (topic := self.loaded.get(key)) is None:
            return Hold.CLOSING
        ended = self._ending[key] = asyncio.get_running_loop().create_future()
        topic.life.close(self._ownership.departure_of(name))

        async def to_its_end() -> Hold | None:
            try:
                await topic.detach_all()
                hold = await self._delete_detached(topic, why_it_stays, is_namespace_going) if delete else Hold.CLOSING
                if hold is not None:
                    await topic.close_storage()
            finally:
                # Also after an error: what can not be closed can not be used, and the next load recovers it.
                self._open_topics.discard(name)
                del self._ending[key]
                ended.set_result(None)
            return hold

        # Called off half way it left a ledger open with closed cursors: no later load came to its end.
        return await carried_out(to_its_end(), name=f"end {name}", part=self._part)

    async def _delete_detached(
        self, topic: Topic, why_it_stays: WhyItStays | None, is_namespace_going: bool
    ) -> Hold | None:
        """Claim, ask, note, delete; what holds it. Once it is noted, whoever loads it finishes."""
        name = topic.name
        judged: Document | None = None
        try:
            if why_it_stays is not None and not topic.life.is_going:
                await topic.claim_storage()
                judged = await self._belongings.policies(name)
                if (hold := await why_it_stays(topic)) is not None:
                    return hold
            await topic.note_deletion(is_judged=judged is not None)
            if not name.is_partition and not is_namespace_going:
                await self._belongings.forget(name, judged)
            if judged is not None:  # policies that changed meanwhile have kept it; what comes is of another topic
                await topic.note_deletion()
            await topic.delete_storage()
        except GemingaError:
            await topic.close_storage()
            raise
        return None

    # ---- creation on demand

    async def _room_on_demand(self, name: TopicName) -> Room | None:
        """For a topic that may be made if it is not there; None: it may not."""
        policies = await self.require_namespace(name)
        is_allowed, topic_type, _ = self.auto_creation(policies)
        if is_allowed and topic_type == "non-partitioned" and not name.is_partition and is_fit_for_new(name):
            is_limited = self._levels(policies).value(MAX_TOPICS)
            if not is_limited and await self._resources.partitioned_topics.find_stored(name) is None:
                return NO_LIMIT  # whether it is there makes no difference
        if name.is_system or await self.exists(name):
            return NO_LIMIT
        check_new_name(name)
        partitions = await self._partitions(name)
        if name.is_partition:
            if name.partition >= partitions:
                from geminga.broker.registry.new_topics import require_partition  # few ask for what is none

                await self.require_here(name)
                await require_partition(self._resources, name, is_made=is_allowed)
            return NO_LIMIT
        if partitions:
            raise NotAllowedError(f"{name} is a partitioned topic: only its partitions take producers and consumers")
        return await self.room_for(name) if is_allowed and topic_type == "non-partitioned" else None

    def auto_creation(self, policies: Policies) -> TopicCreation:
        """Whether topics are created on demand in a namespace, of which type, with how many partitions."""
        return self._levels(policies).value(AUTO_TOPIC_CREATION)

    async def require_namespace(self, name: TopicName) -> Policies:
        """The policies of the topic's namespace; raises TopicNotFoundError if there is none, NotInThisClusterError."""
        policies = await self._namespaces.policies(name.namespace)
        if policies is None:
            raise TopicNotFoundError(f"Namespace {name.namespace} of topic {name} does not exist{name.missing_hint}")
        if policies.is_deleted:
            raise TopicNotFoundError(f"Namespace {name.namespace} is being deleted")
        require_life_in(policies, name.namespace, self._config.cluster_name)
        return policies

    async def room_for(self, name: TopicName, partitions: Iterable[int] = ()) -> Room:
        """For the topic, or partitions of it, which are made in the block; PreconditionFailedError for too many."""
        limit = self._levels(await self.require_namespace(name)).value(MAX_TOPICS)
        if not limit:
            return NO_LIMIT
        names = [f"{name}{PARTITION_SUFFIX}{index}" for index in partitions] or [f"{name}"]
        there, refusal = name.namespace, "Exceed maximum number of topics in namespace."
        listed = partial(self.list, there, mode=TopicMode.ALL, is_local=True)
        return await self._resources.vacancies.take(f"topics of {there}", names, limit, listed, refusal=refusal)

    # ---- partitioned topics

    async def partitioned_count(self, name: TopicName, *, create: bool = False) -> int:
        """Partitions of a topic, 0 if it is not partitioned; ``create``: on demand by policy.

        Raises TopicNotFoundError if there is no such topic and none may be created.
        """
        policies = await self.require_namespace(name)
        partitions = await self._partitions(name) if not name.is_partition else 0
        if partitions or name.is_partition or not create:
            return partitions
        is_allowed, topic_type, default = self.auto_creation(policies)
        if (is_allowed and topic_type != "partitioned" and is_fit_for_new(name)) or await self.exists(name):
            return 0  # in the first case whether it is there makes no difference
        if not is_allowed:
            raise _not_found(name)
        check_new_name(name)
        try:
            await self._partitioned.create(name, default)
        except ConflictError:
            return await self._partitions(name)
        return default

    async def _partitions(self, name: TopicName, *, also_deleted: bool = False) -> int:
        """Of the topic, or of the partition's topic; 0: it has none.

        Raises TopicNotFoundError if it is being deleted, unless ``also_deleted``.
        """
        found = await self._resources.partitioned_topics.find_stored(name)
        if found is None:
            return 0
        if found.is_deleted and not also_deleted:
            self._partitioned.finish_deletion_soon(name.partitioned_topic)
            raise TopicNotFoundError(f"Partitioned topic {name.partitioned_topic} is being deleted")
        return found.partitions

    # ---- lists

    async def list(
        self,
        namespace: str,
        *,
        mode: TopicMode = TopicMode.PERSISTENT,
        has_system: bool = False,
        is_local: bool = False,
    ) -> list[str]:
        """Full names of the topics of ``tenant/namespace`` (partitions one by one), sorted.

        ``has_system``: also the broker's own, which clients and administrators do not see; never logs of transactions.
        ``is_local``: without the non-persistent topics of other brokers, which only they know; else UnavailableError
        is raised where one of them does not answer.
        """
        from geminga.broker.registry.topic_names import non_persistent_names, persistent_names

        found: list[str] = []
        turns = Turns(self._clock)
        if mode is not TopicMode.NON_PERSISTENT:
            found += await persistent_names(self._ledgers, namespace, turns, has_system=has_system)
        if mode is not TopicMode.PERSISTENT:
            here = await non_persistent_names(self.loaded, self._resources, namespace, turns)
            if self._others_non_persistent is not None and not is_local:
                here |= await self._others_non_persistent(namespace)
            found += here
        found.sort()  # nearly sorted, so that it takes time linear in their number
        return found

    async def delete_logs(self, namespace: str) -> None:
        """What transactions keep in a namespace whose topics were deleted. Raises StorageError."""
        for encoded in await self._ledgers.encoded_names(f"{namespace}/persistent"):
            if is_of_transactions(namespace, decode_name(encoded)):
                await self._ledgers.delete(f"{namespace}/persistent/{encoded}")


def _not_served(name: TopicName) -> TopicNotServedError:
    return TopicNotServedError(f"Topic {name} is not served by this broker, look it up again")


def _not_found(name: TopicName) -> TopicNotFoundError:
    return TopicNotFoundError(f"Topic {name} not found")
