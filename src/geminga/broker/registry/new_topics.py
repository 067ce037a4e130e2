"""Topics that were made a moment ago: whether namespace and partitioned topic still want them.

Brokers remember policies, and hear of a deletion late or, for a minute, never. Whoever deletes a namespace or a
partitioned topic writes so first, and looks at what is there then; whoever makes a topic makes its ledger first, and
reads then whether it may: one of the two finds what the other one wrote. What is left of one whose deletion was cut off
goes before there is one of that name again.
"""

from __future__ import annotations

from geminga.broker.registry.ports import Belongings
from geminga.broker.resources import Resources
from geminga.broker.topic.base import Topic
from geminga.model.errors import GemingaError
from geminga.model.topic_name import SHADOW_SOURCE, TopicName
from geminga.runtime import get_logger

_log = get_logger(__name__)


async def may_be_new(resources: Resources, name: TopicName) -> bool:
    """False: the topic's namespace, or the topic of which it is a partition, is deleted. Raises MetadataError."""
    policies = await resources.find_namespace_policies(name.namespace)
    if policies is None or policies.is_deleted:
        return False
    if not name.is_partition:
        return True
    found = await resources.partitioned_topics.find_stored(name)
    if found is None:
        return True
    # The partitions of a shadow topic are made with it, or as missed ones: what they show is said then.
    return not found.is_deleted and not found.properties.get(SHADOW_SOURCE)


async def may_have_partitions(resources: Resources, name: TopicName) -> bool:
    """False: the partitioned topic is not there any more, or it or its namespace is being deleted.

    Raises MetadataError.
    """
    found = await resources.partitioned_topics.find_stored(name)
    return found is not None and not found.is_deleted and await may_be_new(resources, name)


async def delete_rest(topic: Topic, belongings: Belongings) -> None:
    """Of a topic that is loaded, and of which nobody knows yet. Raises GemingaError."""
    _log.warning("%s was being deleted, and that was cut off: what is left of it is deleted", topic.name)
    topic.life.close()
    try:
        if not topic.name.is_partition:
            await belongings.forget(topic.name, None)
        await topic.delete_storage()
    except GemingaError:
        await topic.drop_storage()
        raise
