"""What this cluster stores that another one's change must not take away; :class:`ports.Guard`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from geminga.broker.core.deletion import CAUGHT_UP_MODE
from geminga.broker.policies.core.deletion_rows import (
    BACKLOG_QUOTAS,
    INACTIVE_TOPICS,
    MESSAGE_TTL,
    SUBSCRIPTION_EXPIRY,
)
from geminga.broker.policies.core.readers import QuotaAction
from geminga.broker.policies.rules import TopicRules
from geminga.broker.resources import Resources
from geminga.broker.resources.clusters import CLUSTERS_PATH
from geminga.broker.resources.namespaces import LOCAL_POLICIES_PATH
from geminga.broker.synchronization.core.deciding import Objections
from geminga.broker.synchronization.paths import (
    cluster_at,
    namespace_at,
    partitioned_at,
    partitions_in,
    takes_out,
)
from geminga.metadata.ports import MetadataStore
from geminga.model.errors import NodeNotEmptyError, NoSuchNodeError, NotFoundError, PreconditionFailedError
from geminga.model.topic_name import PARTITION_SUFFIX, SYSTEM_NAMESPACE, TopicName, decode_name
from geminga.runtime import get_logger

_log = get_logger(__name__)

#: Where topics are stored, by namespace and domain.
TOPICS_PATH: Final = "/managed-ledgers"
#: Partitions that are looked for one by one; of more all topics of the namespace are listed.
ASKED_MAX: Final = 100
#: Of the topic, on whatever level it is set: what loses events that nobody reads for a while.
_LIMITS: Final = (
    (MESSAGE_TTL, "s", "time to live"),
    (SUBSCRIPTION_EXPIRY, "minutes", "time after which subscriptions expire"),
)


class StoredTopics:
    """See the module."""

    __slots__ = ("_cluster", "_make_partitions", "_metadata", "_resources", "_rules", "topic")

    def __init__(
        self,
        metadata: MetadataStore,
        resources: Resources,
        cluster: str,
        topic: TopicName,
        make_partitions: Callable[[TopicName, int], Awaitable[None]],
        rules: Callable[[TopicName], Awaitable[TopicRules]],
    ) -> None:
        """``topic``: of the events. ``make_partitions`` of this cluster, up to a number, with the subscriptions of the
        first; raises GemingaError. ``rules``: by which a topic goes; raises StorageError."""
        self._metadata = metadata
        self._resources = resources
        self._cluster = cluster
        #: As of the port.
        self.topic = topic
        self._make_partitions = make_partitions
        self._rules = rules

    async def keeps(self, path: str) -> str:
        """As of the port."""
        if cluster_at(path) == self._cluster:
            return "it is this cluster"
        namespace, partitioned = namespace_at(path), partitioned_at(path)
        if namespace == SYSTEM_NAMESPACE:
            return "this cluster's own topics are to be in it"
        if namespace and await self._metadata.children(f"{TOPICS_PATH}/{namespace}/persistent"):
            return "topics of it are stored here (leftTopics counts and deletes them once it lives elsewhere)"
        if partitioned is not None and await self._partitions_from(path, 0, await self._count(path)):
            return "partitions of it are stored here: delete the topic here, too"
        return ""

    async def objections(self, path: str, stored: bytes | None, value: bytes | None) -> Objections:
        """As of the port."""
        if stored is None:
            return Objections()
        if value is None:
            return Objections(keeps=await self.keeps(path))
        is_partitioned = partitioned_at(path) is not None
        if is_partitioned and partitions_in(value) > partitions_in(stored):
            return Objections(grows=True)
        if is_partitioned and partitions_in(value) < partitions_in(stored):
            shrinks = await self._partitions_from(path, partitions_in(value), partitions_in(stored))
            return Objections(shrinks=shrinks)
        leaves = bool(namespace_at(path)) and takes_out(self._cluster, stored, value)
        return Objections(leaves=leaves)

    async def prepare(self, path: str, stored: bytes | None, value: bytes | None) -> None:
        """As of the port: clients hear of more partitions when they are there, with the subscriptions of the first."""
        found, count = partitioned_at(path), partitions_in(value)
        if found is None or found.domain != "persistent" or not 0 < partitions_in(stored) < count:
            return
        name = TopicName.parse(f"{found.domain}://{found.namespace}/{decode_name(found.encoded)}")
        try:
            await self._make_partitions(name, count)
        except (NotFoundError, PreconditionFailedError) as error:
            # Time mends neither that nor the number.
            _log.warning("%s gets %d partitions without their subscriptions: %s", name, count, error)

    async def removed(self, path: str) -> None:
        """As of the port: how a namespace is cut into bundles here is nothing to a later one of its name."""
        if namespace := namespace_at(path):
            try:
                await self._metadata.delete(f"{LOCAL_POLICIES_PATH}/{namespace}")
            except (NoSuchNodeError, NodeNotEmptyError):
                pass

    async def others(self) -> Sequence[str]:
        """As of the port: as its namespace says."""
        policies = await self._resources.namespaces.find(self.topic.namespace)
        clusters = () if policies is None else policies.replication_clusters
        return sorted({*clusters} - {self._cluster})

    async def knows(self, cluster: str) -> bool:
        """As of the port."""
        return await self._metadata.exists(f"{CLUSTERS_PATH}/{cluster}")

    async def doubts(self) -> str:
        """As of the port."""
        policies = await self._resources.namespaces.find(self.topic.namespace)
        if policies is None:
            return f"there is no namespace {self.topic.namespace}, in which the topic of its changes is to be"
        if not await self.others():
            return f"namespace {self.topic.namespace}, which has the topic of its changes, lives in no other cluster"
        rules = await self._rules(self.topic)
        for row, unit, what in _LIMITS:
            limit = rules[row]
            if limit > 0:
                return (
                    f"changes that a cluster does not get within {limit} {unit}, the {what} of {self.topic}, are lost"
                )
        if any(quota is not None and quota.action is QuotaAction.EVICT for quota in rules[BACKLOG_QUOTAS]):
            return f"changes that a cluster does not get before a backlog quota of {self.topic} evicts them are lost"
        inactive = rules[INACTIVE_TOPICS]
        if inactive.is_deleted and inactive.mode == CAUGHT_UP_MODE:
            return (
                f"{self.topic} is deleted when all of it is read and nobody uses it for {inactive.after_s} s: what "
                "comes before a broker listens again is lost"
            )
        return ""

    async def _count(self, path: str) -> int:
        node = await self._metadata.get(path)
        return 0 if node is None else partitions_in(node.value)

    async def _partitions_from(self, path: str, index: int, count: int) -> bool:
        """Whether partitions from that number on, of so many, are stored here."""
        found = partitioned_at(path)
        if found is None:
            return False
        place, begin = f"{TOPICS_PATH}/{found.namespace}/{found.domain}", f"{found.encoded}{PARTITION_SUFFIX}"
        if count - index <= ASKED_MAX:
            for number in range(index, count):
                if await self._metadata.exists(f"{place}/{begin}{number}"):
                    return True
            return False
        names = await self._metadata.children(place)
        numbers = [name.removeprefix(begin) for name in names if name.startswith(begin)]
        return any(number.isascii() and number.isdigit() and int(number) >= index for number in numbers)
