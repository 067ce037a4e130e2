"""Topics that were made a moment ago: whether namespace and partitioned topic still want them.

Brokers remember policies, and hear of a deletion late or, for a minute, never. Whoever deletes a namespace or a
partitioned topic, or makes a partitioned one, writes so first, and looks at what is there then; whoever makes a topic
makes its ledger first, and reads then whether it may: one of the two finds what the other one wrote. Where both do,
of a topic and a partitioned one of its name, the partitioned one's node decides: who made the topic writes there that
it stands, or finds that it was taken back. What is left of one whose deletion was cut off goes before there is one of
that name again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, cast

from geminga.broker.registry.ports import Belongings
from geminga.broker.resources import Resources
from geminga.broker.topic.base import Topic
from geminga.broker.topic.persistent import stay
from geminga.model.errors import GemingaError, NotAllowedError, NotFoundError, TopicNotFoundError
from geminga.model.topic_name import SHADOW_SOURCE, TopicName
from geminga.runtime import get_logger

_log = get_logger(__name__)

if TYPE_CHECKING:
    from geminga.broker.topic.persistent import PersistentTopic
    from geminga.managed_ledger import ManagedLedgerFactory


class Loading(Protocol):
    """The topics of a broker, as they are needed here."""

    async def require_here(self, name: TopicName) -> None:
        """Raises TopicNotServedError."""

    async def load(self, name: TopicName) -> Topic:
        """Made, if need be."""


async def create_with(
    topics: Loading,
    resources: Resources,
    ledgers: ManagedLedgerFactory,
    name: TopicName,
    properties: Mapping[str, str],
    *,
    is_made: bool,
) -> Topic:
    """A persistent topic that is not there, with these properties. ``is_made``: else loading it says why it is not.

    Raises GemingaError.
    """
    if is_made:
        await topics.require_here(name)
        await make_with(resources, ledgers, name, properties)
    topic = await topics.load(name)
    stored = cast("PersistentTopic", topic).ledger.stored
    if not properties.items() <= stored.properties.items():
        # A client made it first.
        await stored.add_properties(properties)
    return topic


async def make_with(
    resources: Resources, ledgers: ManagedLedgerFactory, name: TopicName, properties: Mapping[str, str]
) -> None:
    """Make a topic that is not there, which has its properties from the beginning: cut off, it is not without them.

    Raises TopicNotFoundError, MetadataError.
    """
    is_used = gives_way = False
    while not gives_way:
        await ledgers.create(name.managed_ledger_name, properties)
        if await may_be_new(resources, name):
            return
        is_used = ledgers.get(name.managed_ledger_name) is not None and await _is_kept(resources, name.namespace)
        if is_used:
            break  # by a client, already: what that published stays
        await ledgers.delete(name.managed_ledger_name)
        gives_way = await _gives_way(resources, name)
    raise TopicNotFoundError(
        f"Topic {name} not found: its namespace was deleted meanwhile, or a partitioned topic of that name made"
    )


async def stays_new(resources: Resources, name: TopicName) -> bool:
    """As :func:`may_be_new`, of a topic that nobody uses yet; False: it has given way. Raises MetadataError."""
    while not await may_be_new(resources, name):
        if await _gives_way(resources, name):
            return False
    return True


async def _gives_way(resources: Resources, name: TopicName) -> bool:
    """Whether a topic that may not be new goes; False: the partitioned one that it was to go for went itself."""
    if name.is_partition or not await _is_kept(resources, name.namespace):
        return True
    try:
        await resources.partitioned_topics.let_stand(name)
    except NotFoundError:
        # One that is being deleted is still there.
        return await resources.partitioned_topics.find_stored(name) is not None
    return True


async def may_be_new(resources: Resources, name: TopicName) -> bool:
    """False: the topic's namespace, or the topic of which it is a partition, is deleted; or there is a partitioned one
    of that name, whose consumers would get nothing of this one. Raises MetadataError."""
    if not await _is_kept(resources, name.namespace):
        return False
    found = await resources.partitioned_topics.find_stored(name)
    if found is None or (name.is_system and not name.is_partition):
        return True
    # The partitions of a shadow topic are made with it, or as missed ones: what they show is said then.
    return name.is_partition and not found.is_deleted and not found.properties.get(SHADOW_SOURCE)


async def require_partition(resources: Resources, name: TopicName, *, is_made: bool) -> None:
    """Raise unless the topic has that partition: NotAllowedError, in Pulsar's words. MetadataError.

    ``is_made``: it would be made on demand; else TopicNotFoundError is raised where there is no partitioned topic.
    """
    # Whoever asks may have heard of it by a server that is ahead of ours, and would not come again.
    await resources.sync()
    found = await resources.partitioned_topics.find(name)
    if found is not None and name.partition < found.partitions:
        return
    if found is not None:
        raise NotAllowedError(f"Illegal topic partition name {name} with max allowed {found.partitions} partitions")
    if is_made:
        raise NotAllowedError(f"Partition metadata not found for the partitioned topic: {name}")
    raise TopicNotFoundError(f"Topic {name} not found")


async def may_have_partitions(resources: Resources, name: TopicName) -> bool:
    """False: the partitioned topic is not there any more, or it or its namespace is being deleted.

    Raises MetadataError.
    """
    found = await resources.partitioned_topics.find_stored(name)
    return found is not None and not found.is_deleted and await _is_kept(resources, name.namespace)


async def _is_kept(resources: Resources, namespace: str) -> bool:
    policies = await resources.find_namespace_policies(namespace)
    return policies is not None and not policies.is_deleted


async def is_rest_deleted(topic: Topic, belongings: Belongings, *, is_for_deletion: bool) -> bool:
    """Whether it is gone; of a topic that is loaded, and of which nobody knows yet. Raises GemingaError.

    One that nobody used, and whose policies are there, lost nothing yet: it stays, as somebody uses it now, and else is
    judged anew, also by what its namespace says now. ``is_for_deletion``: whoever loads it deletes it himself.
    """
    try:
        if topic.life.is_judged and await belongings.policies(topic.name):
            _log.warning("%s was being deleted, and that was cut off before anything of it was: it stays", topic.name)
            await stay(cast("PersistentTopic", topic))
            return False
        if is_for_deletion:
            return False
        _log.warning("%s was being deleted, and that was cut off: what is left of it is deleted", topic.name)
        topic.life.close()
        if not topic.name.is_partition:
            await belongings.forget(topic.name, None)
        await topic.delete_storage()
    except GemingaError:
        await topic.drop_storage()
        raise
    return True
