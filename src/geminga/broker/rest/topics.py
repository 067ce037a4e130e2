"""``/admin/v2/{persistent|non-persistent}``: topics themselves: create, delete, list, statistics, unload, end.

Where a path names a partitioned topic, operations that make sense for all partitions are carried out on each.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga.broker.namespaces import TopicMode
from geminga.broker.resources.documents import Document, Json
from geminga.broker.rest.core.unbuilt import TOPIC_PROPERTIES, refuse_unbuilt
from geminga.broker.rest.internal_stats import internal_info, internal_stats
from geminga.broker.rest.partitioned_stats import merged_stats
from geminga.broker.rest.requests import (
    RestError,
    context_of,
    domain_of,
    flag,
    json_response,
    message_id_json,
    namespace_of,
    no_content,
    text_map_body,
    topic_of,
)
from geminga.broker.rest.routing import TOPIC_PATH, TOPICS_PATH
from geminga.broker.rest.stats import add_stored
from geminga.broker.rest.targets import names_response, partitions_or_self, persistent_topic
from geminga.broker.topic import EPOCH_PROPERTY
from geminga.broker.topic_base import Topic
from geminga.model.errors import NotAllowedError, TopicNotFoundError
from geminga.model.topic_name import TopicName

#: Properties of a topic that are the broker's own and are neither shown nor changed here.
INTERNAL_PROPERTIES = (EPOCH_PROPERTY,)


async def list_topics(request: Request) -> Response:
    """Topics of a namespace and domain, partitions one by one."""
    broker, namespace, domain = context_of(request).broker, namespace_of(request), domain_of(request)
    await broker.resources.namespaces.get(namespace)
    mode = TopicMode.PERSISTENT if domain == "persistent" else TopicMode.NON_PERSISTENT
    return await names_response(broker, await broker.list_topics(namespace, mode=mode))


async def list_partitioned_topics(request: Request) -> Response:
    """Partitioned topics of a namespace and domain."""
    resources, namespace = context_of(request).broker.resources, namespace_of(request)
    await resources.namespaces.get(namespace)
    return json_response([*await resources.partitioned_topics.list(namespace, domain_of(request))])


async def create_topic(request: Request) -> Response:
    """Create a topic that is not partitioned; the body may hold its properties."""
    properties = await text_map_body(request)
    refuse_unbuilt(properties, TOPIC_PROPERTIES)
    await context_of(request).broker.create_topic(topic_of(request), properties)
    return no_content()


async def delete_topic(request: Request) -> Response:
    """Delete; with ``force`` also while producers and consumers are connected."""
    await context_of(request).broker.delete_topic(topic_of(request), force=flag(request, "force"))
    return no_content()


async def get_stats(request: Request) -> Response:
    """Statistics of one topic or partition."""
    broker, name = context_of(request).broker, topic_of(request)
    return json_response(await _stats_of(request, await broker.get_topic(name, create=False)))


async def get_partitioned_stats(request: Request) -> Response:
    """Sums over all partitions, and with ``perPartition`` (the default) each one's own."""
    broker, name = context_of(request).broker, topic_of(request)
    found = await broker.resources.partitioned_topics.find(name)
    if found is None:
        raise TopicNotFoundError(f"partitioned topic {name} does not exist")
    each: dict[str, Document] = {}
    async for partition in partitions_or_self(broker, name, used=True):
        try:
            topic = await broker.get_topic(partition, create=False)
        except TopicNotFoundError:
            continue  # nobody used this partition yet
        each[str(partition)] = await _stats_of(request, topic)
    stats = merged_stats(found.partitions, list(each.values()), is_persistent=name.is_persistent)
    if flag(request, "perPartition", True):
        stats["partitions"] = {**each}
    return json_response(stats)


async def get_internal_stats(request: Request) -> Response:
    """Ledgers and cursors of one topic or partition."""
    broker, name = context_of(request).broker, topic_of(request)
    return json_response(await internal_stats(broker, await broker.get_topic(name, create=False)))


async def get_partitioned_internal_stats(request: Request) -> Response:
    """Ledgers and cursors of every partition."""
    broker, name = context_of(request).broker, topic_of(request)
    found = await broker.resources.partitioned_topics.find(name)
    if found is None:
        raise TopicNotFoundError(f"Partitioned Topic {name} not found")
    each: Document = {}
    async for partition in partitions_or_self(broker, name, used=True):
        try:
            topic = await broker.get_topic(partition, create=False)
        except TopicNotFoundError:
            continue  # nobody used this partition yet
        each[str(partition)] = await internal_stats(broker, topic)
    return json_response({"metadata": {"partitions": found.partitions, "deleted": False}, "partitions": each})


async def get_internal_info(request: Request) -> Response:
    """What is stored of the topic's ledgers and cursors, or of each partition's; nothing is loaded for it."""
    broker, name = context_of(request).broker, topic_of(request)
    if not name.is_persistent:
        raise NotAllowedError("a non-persistent topic has nothing stored")
    found = None if name.is_partition else await broker.resources.partitioned_topics.find(name)
    if found is None:
        info = await broker.ledgers.info(name.managed_ledger_name)
        if info is None:
            raise TopicNotFoundError(f"Topic {name} not found")
        return json_response(internal_info(info, broker.runtime.clock.wall_ms()))
    each: Document = {}
    async for partition in partitions_or_self(broker, name):
        info = await broker.ledgers.info(partition.managed_ledger_name)
        if info is not None:
            each[str(partition)] = internal_info(info, broker.runtime.clock.wall_ms())
    return json_response({"version": 0, "partitions": each})


async def unload(request: Request) -> Response:
    """Close the topic (or each partition): clients look it up again, its next use loads it again."""
    broker, name = context_of(request).broker, topic_of(request)
    async for each in partitions_or_self(broker, name):
        if each == name:
            await broker.get_topic(name, create=False)
        await broker.unload_topic(each)
    return no_content()


async def terminate(request: Request) -> Response:
    """End the topic: nothing can be published any more. Answers its last message id."""
    broker, name = context_of(request).broker, topic_of(request)
    if await broker.resources.partitioned_topics.find(name) is not None and not name.is_partition:
        raise NotAllowedError(f"{name} is partitioned: end it at terminate/partitions")
    if not name.is_persistent:
        raise NotAllowedError("a non-persistent topic can not be ended")
    position = await broker.terminate_topic(name)
    return json_response(message_id_json(position, name.partition))


async def terminate_partitions(request: Request) -> Response:
    """End every partition; answers index -> last message id."""
    broker, name = context_of(request).broker, topic_of(request)
    ended: Document = {}
    async for partition in await _partitions(request, name):
        ended[str(partition.partition)] = message_id_json(await broker.terminate_topic(partition), partition.partition)
    return json_response(ended)


async def last_message_id(request: Request) -> Response:
    """The id of the newest message."""
    name = topic_of(request)
    topic = await persistent_topic(context_of(request).broker, name)
    return json_response(message_id_json(topic.last_position, name.partition))


async def get_properties(request: Request) -> Response:
    """The topic's properties."""
    return json_response({**_visible(await _properties(request))})


async def set_properties(request: Request) -> Response:
    """Add properties, replacing those of the same name."""
    given = await text_map_body(request)
    refuse_unbuilt(given, TOPIC_PROPERTIES)
    await _replace_properties(request, {**await _properties(request), **given})
    return no_content()


async def remove_property(request: Request) -> Response:
    """Remove the property ``key``."""
    key = request.query_params.get("key", "")
    present = await _properties(request)
    await _replace_properties(request, {name: value for name, value in present.items() if name != key})
    return no_content()


async def _properties(request: Request) -> dict[str, str]:
    broker, name = context_of(request).broker, topic_of(request)
    found = None if name.is_partition else await broker.resources.partitioned_topics.find(name)
    if found is not None:
        return dict(found.properties)
    return dict((await persistent_topic(broker, name)).ledger.properties)


async def _replace_properties(request: Request, properties: dict[str, str]) -> None:
    broker, name = context_of(request).broker, topic_of(request)
    if not name.is_partition and await broker.resources.partitioned_topics.find(name) is not None:
        await broker.resources.partitioned_topics.set_properties(name, properties)
        return
    ledger = (await persistent_topic(broker, name)).ledger
    kept = {key: value for key, value in ledger.properties.items() if key in INTERNAL_PROPERTIES}
    await ledger.set_properties({**_visible(properties), **kept})


def _visible(properties: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in properties.items() if key not in INTERNAL_PROPERTIES}


async def _partitions(request: Request, name: TopicName) -> AsyncIterator[TopicName]:
    broker = context_of(request).broker
    found = await broker.resources.partitioned_topics.find(name)
    if found is None or name.is_partition:
        raise RestError(405, f"{name} is not partitioned")
    return partitions_or_self(broker, name)


async def _stats_of(request: Request, topic: Topic) -> Document:
    """``TopicStats`` with what the query asks for, and without what it excludes."""
    stats = context_of(request).statistics.of_topic(topic)
    await add_stored(topic, stats, for_each=flag(request, "getEarliestTimeInBacklog"))
    if flag(request, "excludePublishers"):
        stats["publishers"] = []
    subscriptions = stats.get("subscriptions")
    if flag(request, "excludeConsumers") and isinstance(subscriptions, dict):
        for subscription in subscriptions.values():
            if isinstance(subscription, dict):
                empty: list[Json] = []
                subscription["consumers"] = empty
    return stats


ROUTES = [
    Route(f"{TOPICS_PATH}/partitioned", list_partitioned_topics, methods=["GET"]),
    Route(TOPICS_PATH, list_topics, methods=["GET"]),
    Route(f"{TOPIC_PATH}/stats", get_stats, methods=["GET"]),
    Route(f"{TOPIC_PATH}/partitioned-stats", get_partitioned_stats, methods=["GET"]),
    Route(f"{TOPIC_PATH}/internalStats", get_internal_stats, methods=["GET"]),
    Route(f"{TOPIC_PATH}/partitioned-internalStats", get_partitioned_internal_stats, methods=["GET"]),
    Route(f"{TOPIC_PATH}/internal-info", get_internal_info, methods=["GET"]),
    Route(f"{TOPIC_PATH}/unload", unload, methods=["PUT"]),
    Route(f"{TOPIC_PATH}/terminate", terminate, methods=["POST"]),
    Route(f"{TOPIC_PATH}/terminate/partitions", terminate_partitions, methods=["POST"]),
    Route(f"{TOPIC_PATH}/lastMessageId", last_message_id, methods=["GET"]),
    Route(f"{TOPIC_PATH}/properties", get_properties, methods=["GET"]),
    Route(f"{TOPIC_PATH}/properties", set_properties, methods=["PUT"]),
    Route(f"{TOPIC_PATH}/properties", remove_property, methods=["DELETE"]),
    Route(TOPIC_PATH, create_topic, methods=["PUT"]),
    Route(TOPIC_PATH, delete_topic, methods=["DELETE"]),
]
