"""``/admin/v2/{persistent|non-persistent}``: topics themselves: create, delete, list, statistics, unload, end, empty.

Where a path names a partitioned topic, operations that make sense for all partitions are carried out on each.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractContextManager, nullcontext

from starlette.requests import Request
from starlette.responses import Response

from geminga.broker.access.core.actions import NamespaceOperation, TenantAdministration, TopicOperation
from geminga.broker.administration.services import AdministeredTopics
from geminga.broker.core.dedup_source import FORGOTTEN_PROPERTY
from geminga.broker.geo.migration import MADE_PROPERTY, MOVED_PROPERTY
from geminga.broker.ownership.core.bundles import topic_hash
from geminga.broker.registry.namespaces import TopicMode
from geminga.broker.resources.documents import Document, Json
from geminga.broker.rest.calls.requests import (
    RestError,
    check_properties_size,
    context_of,
    domain_of,
    flag,
    json_response,
    message_id_json,
    namespace_of,
    new_topic_of,
    no_content,
    nothing_set,
    text_map_body,
    topic_of,
)
from geminga.broker.rest.calls.routing import TOPIC_PATH, TOPICS_PATH, Route
from geminga.broker.rest.calls.targets import (
    existing_topic,
    is_partitioned,
    names_response,
    partitions_or_self,
    persistent_topic,
    refuse_partition_name,
    refuse_partitioned,
    require_namespace,
)
from geminga.broker.rest.namespace_routes.bundles import cut_of
from geminga.broker.rest.topic_routes.internal_stats import internal_info, internal_stats
from geminga.broker.rest.topic_routes.troubles import told
from geminga.broker.statistics.partitioned import merging_steps, partitioned_metadata
from geminga.broker.statistics.topics import add_stored
from geminga.broker.topic.base import Topic
from geminga.broker.topic.persistent import DELETION_PROPERTY, EPOCH_PROPERTY, PersistentTopic
from geminga.broker.topic.ports import GOING_LOGS_PROPERTY, TRANSACTIONS_PROPERTY
from geminga.managed_ledger.rules.attached import ATTACHED_PROPERTY, COMPACTED_PROPERTY
from geminga.managed_ledger.rules.unreadable import SKIPPED_PROPERTY
from geminga.model.errors import (
    ConflictError,
    NotAllowedError,
    NotFoundError,
    NotInThisClusterError,
    PreconditionFailedError,
    TopicNotFoundError,
)
from geminga.model.topic_name import PARTITION_SUFFIX, SHADOW_SOURCE, TopicName
from geminga.runtime import Turns

#: What is a number to Pulsar behind the name of a partitioned topic.
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")
#: Properties of a topic that are the broker's own and are neither shown nor changed here.
INTERNAL_PROPERTIES = (
    EPOCH_PROPERTY,
    DELETION_PROPERTY,
    TRANSACTIONS_PROPERTY,
    GOING_LOGS_PROPERTY,
    SKIPPED_PROPERTY,
    FORGOTTEN_PROPERTY,
    ATTACHED_PROPERTY,
    COMPACTED_PROPERTY,
    MOVED_PROPERTY,
    MADE_PROPERTY,
)


async def list_topics(request: Request) -> Response:
    """Topics of a namespace and domain, or of its ``bundle``, partitions one by one."""
    topics, namespace, domain = context_of(request).topics, namespace_of(request), domain_of(request)
    cut = await cut_of(context_of(request), namespace)
    mode = TopicMode.PERSISTENT if domain == "persistent" else TopicMode.NON_PERSISTENT
    names = await topics.registry.list(namespace, mode=mode, has_system=flag(request, "includeSystemTopic"))
    bundle = request.query_params.get("bundle")
    if bundle:
        names = [name for name in names if cut.at(topic_hash(name)).range == bundle]
    return await names_response(topics, names)


async def list_partitioned_topics(request: Request) -> Response:
    """Partitioned topics of a namespace and domain."""
    resources, namespace = context_of(request).resources, namespace_of(request)
    await resources.namespaces.get(namespace)
    names = await resources.partitioned_topics.list(namespace, domain_of(request))
    if not flag(request, "includeSystemTopic"):
        names = [name for name in names if not TopicName.parse(name).is_system]
    return json_response([*names])


async def create_topic(request: Request) -> Response:
    """Create a topic that is not partitioned; the body may hold its properties."""
    properties = _visible(await text_map_body(request))
    check_properties_size("a topic", properties)
    namespace_of(request)  # has a reason of its own
    topics, name = context_of(request).topics, new_topic_of(request)
    await require_namespace(topics, name)
    await _refuse_partition_of_nothing(topics, name)
    async with topics.partitions.creation_of(name):
        with await _room_for(topics, name):
            await _create(topics, name, properties)
    return no_content()


async def _create(topics: AdministeredTopics, name: TopicName, properties: Mapping[str, str]) -> None:
    try:
        if properties.get(SHADOW_SOURCE):
            from geminga.broker.registry import new_shadows  # with the first

            await new_shadows.create(topics.registry, topics.resources, topics.ledgers, name, properties)
        else:
            await topics.registry.create(name, properties)
    except TopicNotFoundError as error:
        if await topics.resources.partitioned_topics.find(name) is None:
            raise
        # It gave way to one that was made at the same time.
        raise ConflictError("This topic already exists") from error


async def _room_for(topics: AdministeredTopics, name: TopicName) -> AbstractContextManager[None]:
    """The registry takes the same places: here it is another status, as in Pulsar."""
    if await topics.registry.exists(name):
        return nullcontext()
    try:
        return await topics.registry.room_for(name)
    except NotInThisClusterError:
        raise
    except PreconditionFailedError as error:
        raise ConflictError(error.told) from error


async def _refuse_partition_of_nothing(topics: AdministeredTopics, name: TopicName) -> None:
    """Raise 412 for a name such as ``t-partition-3`` unless the topic ``t`` has that partition, as Pulsar does."""
    whole, mark, index = name.local_name.rpartition(PARTITION_SUFFIX)
    if not mark or not _WHOLE_NUMBER.fullmatch(index):
        return
    found = await topics.resources.partitioned_topics.find(TopicName.parse(f"{name.domain}://{name.namespace}/{whole}"))
    refusal = f'Can\'t create topic {name.local_name} with "{PARTITION_SUFFIX}" followed by'
    if found is None:
        raise RestError(412, f"{refusal} numeric value if there isn't a partitioned topic {whole} created.")
    if not 0 <= int(index) < found.partitions:
        raise RestError(412, f"{refusal} a number smaller than number of partition of partitioned topic {whole}")


async def delete_topic(request: Request) -> Response:
    """Delete; with ``force`` also while producers and consumers are connected."""
    topics, name = context_of(request).topics, topic_of(request)
    if await is_partitioned(topics, name):
        raise ConflictError(
            f"{name} is a partitioned topic, instead of calling delete topic, please call delete-partitioned-topic."
        )
    if not name.is_persistent and not await topics.registry.exists(name):
        if await topics.resources.namespaces.find(name.namespace) is not None:
            return no_content()  # it stored nothing
        raise TopicNotFoundError(f"Topic {name} not found")
    # Another broker may ask for it that deletes the namespace: then what all its topics share is left to that one.
    policies = await topics.resources.namespaces.find(name.namespace)
    is_going = policies is not None and policies.is_deleted
    await topics.registry.delete(name, force=flag(request, "force"), is_namespace_going=is_going)
    return no_content()


async def get_stats(request: Request) -> Response:
    """Statistics of one topic or partition."""
    topics, name = context_of(request).topics, topic_of(request)
    topic = await existing_topic(topics, name)
    async with context_of(request).statistics.turns() as turns:
        return await told(request, await _stats_of(request, topic, turns), turns)


async def get_partitioned_stats(request: Request) -> Response:
    """Sums over all partitions, and with ``perPartition`` (the default) each one's own."""
    topics, name = context_of(request).topics, topic_of(request)
    refuse_partition_name(name)
    found = await topics.resources.partitioned_topics.find(name)
    if found is None:
        await require_namespace(topics, name)
        raise TopicNotFoundError(
            f"Partitioned Topic {name} not found" if name.is_persistent else f"Partitioned topic not found {name}"
        )
    async with context_of(request).statistics.turns() as turns:
        each: dict[str, Document] = {}
        async for partition in partitions_or_self(topics, name, used=True):
            try:
                topic = await topics.registry.get(partition, create=False, is_for_client=False)
            except TopicNotFoundError:
                continue  # nobody used this partition yet
            each[str(partition)] = await _stats_of(request, topic, turns)
        stats = await turns.through(
            merging_steps(
                found.partitions, list(each.values()), is_persistent=name.is_persistent, properties=found.properties
            )
        )
        if flag(request, "perPartition", True):
            stats["partitions"] = {**each}
        return await told(request, stats, turns)


async def get_internal_stats(request: Request) -> Response:
    """Ledgers and cursors of one topic or partition."""
    topics, name = context_of(request).topics, topic_of(request)
    try:
        topic = await existing_topic(topics, name)
    except TopicNotFoundError as error:
        if name.is_persistent:
            raise
        raise TopicNotFoundError("Topic not found") from error
    context = context_of(request)
    async with context.statistics.turns() as turns:
        return await told(request, await internal_stats(context.schemas, topic, turns), turns)


async def get_partitioned_internal_stats(request: Request) -> Response:
    """Ledgers and cursors of every partition."""
    topics, name = context_of(request).topics, topic_of(request)
    found = None if name.is_partition else await topics.resources.partitioned_topics.find(name)
    if found is None:
        await require_namespace(topics, name)
        raise TopicNotFoundError(f"Partitioned Topic {name} not found")
    context, each = context_of(request), Document()
    async with context.statistics.turns() as turns:
        async for partition in partitions_or_self(topics, name, used=True):
            try:
                topic = await topics.registry.get(partition, create=False, is_for_client=False)
            except TopicNotFoundError:
                continue  # nobody used this partition yet
            each[str(partition)] = await internal_stats(context.schemas, topic, turns)
        metadata = partitioned_metadata(found.partitions, found.properties)
        return await told(request, {"metadata": metadata, "partitions": each}, turns)


async def get_internal_info(request: Request) -> Response:
    """What is stored of the topic's ledgers and cursors, or of each partition's; nothing is loaded for it."""
    topics, name = context_of(request).topics, topic_of(request)
    if not name.is_persistent:
        raise NotAllowedError("a non-persistent topic has nothing stored")
    found = None if name.is_partition else await topics.resources.partitioned_topics.find(name)
    if found is None:
        info = await context_of(request).ledgers.info(name.managed_ledger_name)
        if info is None:
            await require_namespace(topics, name)
            raise TopicNotFoundError(f"Topic {name} not found")
        return json_response(internal_info(info, context_of(request).clock.wall_ms()))
    # Whoever serves them: it is what is stored.
    each, steps = Document(), topics.steps()
    for partition in (name.with_partition(index) for index in range(found.partitions)):
        await steps.next()
        info = await context_of(request).ledgers.info(partition.managed_ledger_name)
        if info is not None:
            each[str(partition)] = internal_info(info, context_of(request).clock.wall_ms())
    return json_response({"version": 0, "partitions": each})


async def unload(request: Request) -> Response:
    """Close the topic (or each partition): clients look it up again, its next use loads it again."""
    topics, name = context_of(request).topics, topic_of(request)
    async for each in partitions_or_self(topics, name):
        if each == name:
            await existing_topic(topics, name)
        await topics.registry.unload(each)
    return no_content()


async def terminate(request: Request) -> Response:
    """End the topic: nothing can be published any more. Answers its last message id, as Pulsar without a partition."""
    topics, name = context_of(request).topics, topic_of(request)
    _require_persistent(name)
    await refuse_partitioned(topics, name, "Termination of a partitioned topic is not allowed")
    await existing_topic(topics, name)
    position = await topics.registry.terminate(name)
    return json_response(message_id_json(position))


async def terminate_partitions(request: Request) -> Response:
    """End every partition; answers index -> last message id."""
    topics, name = context_of(request).topics, topic_of(request)
    ended: Document = {}
    async for partition in await _partitions(request, name):
        position = await topics.registry.terminate(partition)
        ended[str(partition.partition)] = message_id_json(position)
    return json_response(ended)


async def truncate(request: Request) -> Response:
    """Acknowledge all messages for all subscriptions, and delete them, whatever retention says; of every partition."""
    name = topic_of(request)
    if not name.is_persistent:
        raise PreconditionFailedError("unsupport truncate")
    if name.is_system:
        raise NotAllowedError(f"{name} is the broker's own: what it stores is in force, and can not be truncated")
    async for topic in each_stored(request, "Truncate"):
        await topic.truncate()
    return no_content()


async def trim(request: Request) -> Response:
    """Delete what all subscriptions have acknowledged and retention does not hold, now rather than soon; of every
    partition."""
    try:
        async for topic in each_stored(request, "Trim"):
            await topic.ledger.trimmer.trim()
    except NotFoundError as error:
        raise TopicNotFoundError(f"Topic {topic_of(request)} not found") from error
    return nothing_set()


async def each_stored(request: Request, what: str) -> AsyncIterator[PersistentTopic]:
    """The topic, or the partitions that are there; raises as :func:`persistent_topic`."""
    topics, name = context_of(request).topics, topic_of(request)
    if not name.is_persistent:
        raise NotAllowedError(f"{what} on a non-persistent topic is not allowed")
    async for target in partitions_or_self(topics, name, used=True):
        try:
            yield await persistent_topic(topics, target, what)
        except TopicNotFoundError:
            if target == name:
                raise


async def last_message_id(request: Request) -> Response:
    """The id of the newest message."""
    name = topic_of(request)
    try:
        topic = await persistent_topic(context_of(request).topics, name, "GetLastMessageId")
    except NotFoundError as error:
        raise TopicNotFoundError(f"Topic {name} not found") from error
    return json_response(message_id_json(topic.max_read_position, name.partition))


async def get_properties(request: Request) -> Response:
    """The topic's properties."""
    _require_persistent(topic_of(request))
    properties: dict[str, Json] = {**_visible(await _properties(request))}
    if not properties and await is_partitioned(context_of(request).topics, topic_of(request)):
        return nothing_set()
    return json_response(properties)


async def set_properties(request: Request) -> Response:
    """Add properties, replacing those of the same name."""
    given = await text_map_body(request)
    _require_persistent(topic_of(request))
    present = await _properties(request)
    check_properties_size("a topic", {**present, **given})
    await _replace_properties(request, present, {**present, **given})
    return no_content()


async def remove_property(request: Request) -> Response:
    """Remove the property ``key``."""
    key = request.query_params.get("key", "")
    _require_persistent(topic_of(request))
    present = await _properties(request)
    await _replace_properties(request, present, {name: value for name, value in present.items() if name != key})
    return no_content()


def _require_persistent(name: TopicName) -> None:
    if not name.is_persistent:
        raise RestError(406, "Need to provide a persistent topic name")


async def _properties(request: Request) -> dict[str, str]:
    topics, name = context_of(request).topics, topic_of(request)
    found = None if name.is_partition else await topics.resources.partitioned_topics.find(name)
    if found is not None:
        return dict(found.properties)
    topic = await topics.registry.get(name, create=False, is_for_client=False)
    assert isinstance(topic, PersistentTopic)
    return dict(topic.ledger.stored.properties)


async def _replace_properties(request: Request, before: dict[str, str], properties: dict[str, str]) -> None:
    topics, name = context_of(request).topics, topic_of(request)
    if before.get(SHADOW_SOURCE, "") != properties.get(SHADOW_SOURCE, ""):
        raise PreconditionFailedError(
            f"{SHADOW_SOURCE} is said when a topic is created, and does not change afterwards"
        )
    if not name.is_partition and await topics.resources.partitioned_topics.find(name) is not None:
        await topics.resources.partitioned_topics.set_properties(name, properties)
        return
    ledger = (await persistent_topic(topics, name)).ledger
    await ledger.stored.set_properties(_visible(properties), kept=INTERNAL_PROPERTIES)


def _visible(properties: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in properties.items() if key not in INTERNAL_PROPERTIES}


async def _partitions(request: Request, name: TopicName) -> AsyncIterator[TopicName]:
    topics = context_of(request).topics
    found = await topics.resources.partitioned_topics.find(name)
    if found is None or name.is_partition:
        await require_namespace(topics, name)
        raise NotAllowedError(
            "Termination of a non-partitioned topic is not allowed using partitioned-terminate, "
            "please use terminate commands"
        )
    return partitions_or_self(topics, name)


async def _stats_of(request: Request, topic: Topic, turns: Turns) -> Document:
    """``TopicStats`` with what the query asks for, and without what it excludes."""
    stats = await context_of(request).statistics.of_topic(topic, turns)
    await add_stored(topic, stats, turns, for_each=flag(request, "getEarliestTimeInBacklog"))
    if flag(request, "excludePublishers"):
        stats["publishers"] = []
    subscriptions = stats.get("subscriptions")
    if flag(request, "excludeConsumers") and isinstance(subscriptions, dict):
        for subscription in subscriptions.values():
            if isinstance(subscription, dict):
                empty: list[Json] = []
                subscription["consumers"] = empty
    return stats


#: Of namespaces.
LISTS = [
    Route("GET", f"{TOPICS_PATH}/partitioned", list_partitioned_topics, NamespaceOperation.GET_TOPICS),
    Route("GET", TOPICS_PATH, list_topics, NamespaceOperation.GET_TOPICS),
]
#: Of one topic.
ROUTES = [
    Route("GET", f"{TOPIC_PATH}/stats", get_stats, TopicOperation.GET_STATS),
    Route("GET", f"{TOPIC_PATH}/partitioned-stats", get_partitioned_stats, TopicOperation.GET_STATS),
    Route("GET", f"{TOPIC_PATH}/internalStats", get_internal_stats, TopicOperation.GET_STATS),
    Route("GET", f"{TOPIC_PATH}/partitioned-internalStats", get_partitioned_internal_stats, TopicOperation.GET_STATS),
    Route("GET", f"{TOPIC_PATH}/internal-info", get_internal_info, TopicOperation.GET_STATS),
    Route("PUT", f"{TOPIC_PATH}/unload", unload, TopicOperation.UNLOAD),
    Route("POST", f"{TOPIC_PATH}/terminate", terminate, TopicOperation.TERMINATE),
    Route("POST", f"{TOPIC_PATH}/terminate/partitions", terminate_partitions, TopicOperation.TERMINATE),
    # In Pulsar the tenant's administrators may truncate, as they may delete.
    Route("DELETE", f"{TOPIC_PATH}/truncate", truncate, TenantAdministration.TRUNCATE_TOPIC),
    Route("POST", f"{TOPIC_PATH}/trim", trim, TopicOperation.TRIM_TOPIC),
    Route("GET", f"{TOPIC_PATH}/lastMessageId", last_message_id, TopicOperation.PEEK_MESSAGES),
    Route("GET", f"{TOPIC_PATH}/properties", get_properties, TopicOperation.GET_METADATA),
    Route("PUT", f"{TOPIC_PATH}/properties", set_properties, TopicOperation.UPDATE_METADATA),
    Route("DELETE", f"{TOPIC_PATH}/properties", remove_property, TopicOperation.DELETE_METADATA),
    Route("PUT", TOPIC_PATH, create_topic, NamespaceOperation.CREATE_TOPIC),
    Route("DELETE", TOPIC_PATH, delete_topic, NamespaceOperation.DELETE_TOPIC),
]
