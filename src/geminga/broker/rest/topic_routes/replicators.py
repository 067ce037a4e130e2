"""Paths of subscriptions named ``pulsar.repl.<cluster>``: what is to be copied there, passed over by an operator.

And of Geminga's own, ``.../{topic}/sourcePositions``: up to where what other clusters copy here counts as repeated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from geminga.broker.access.core.actions import NamespaceOperation, TopicOperation
from geminga.broker.rest.calls.requests import (
    context_of,
    json_response,
    no_content,
    path_int,
    path_text,
    subscription_name,
    topic_of,
)
from geminga.broker.rest.calls.routing import TOPIC_PATH, Route
from geminga.broker.rest.calls.targets import partitions_or_self, persistent_topic, refuse_partitioned
from geminga.model.errors import ConflictError, NotFoundError, PreconditionFailedError, TopicNotFoundError
from geminga.model.topic_name import REPLICATOR_PREFIX, TopicName, is_valid_named_entity

if TYPE_CHECKING:
    from geminga.broker.topic.deduplication import TopicDeduplication
    from geminga.broker.topic.parts import CopiedTopic
    from geminga.broker.topic.persistent import PersistentTopic
    from geminga.model.position import Position


def is_replicators(request: Request) -> bool:
    """Whether the path names a replicator instead of a subscription."""
    return subscription_name(request).startswith(REPLICATOR_PREFIX)


async def create(request: Request, position: Position) -> Response:
    """Where copying to a cluster is to begin, made before the policies name it; on each partition that has none.

    409 where all have one: it was made before, or they are copied there.
    """
    from geminga.broker.geo.part import MADE_BEFORE  # with the first that asks

    topics, made, cursor = context_of(request).topics, 0, subscription_name(request)
    if not is_valid_named_entity(cursor.removeprefix(REPLICATOR_PREFIX)):
        raise PreconditionFailedError(f"{cursor}: expected the name of a cluster behind {REPLICATOR_PREFIX}")
    async for target in partitions_or_self(topics, topic_of(request)):
        await topics.registry.get(target, create=True)
        ledger = (await persistent_topic(topics, target)).ledger
        if cursor not in ledger.cursors:
            await ledger.open_cursor(cursor, initial=position, cursor_properties=MADE_BEFORE)
            made += 1
    if not made:
        raise ConflictError("Subscription already exists for topic")
    return no_content()


async def delete(request: Request) -> Response:
    """What :func:`create` made and no policy uses; 412 where the topic is copied there, 404 where there is none."""
    from geminga.broker.geo.part import GeoReplication  # with the first that asks

    topics, name, cursor = context_of(request).topics, topic_of(request), subscription_name(request)
    found = False
    async for target in partitions_or_self(topics, name, used=True):
        try:
            topic = await persistent_topic(topics, target)
        except (TopicNotFoundError, NotFoundError):
            if target == name:
                raise
            continue
        part = topic.parts.find(GeoReplication)
        cluster = cursor.removeprefix(REPLICATOR_PREFIX)
        if part is not None and cluster in part.replicators:
            raise PreconditionFailedError(f"{target} is copied to cluster {cluster}: its policies name it")
        if cursor in topic.ledger.cursors:
            await topic.ledger.delete_cursor(cursor)
            found = True
    if not found:
        raise NotFoundError("Replicator not found")
    return no_content()


async def skip_all(request: Request) -> Response:
    """Copy nothing of what is there now; what is on its way is copied all the same."""
    for topic, copied in await _each(request):
        await copied.cursor.clear_backlog(topic.ledger.extent.readable_position)
    return no_content()


async def skip(request: Request, count: int) -> Response:
    """Pass over the next so many entries; of one partition only."""
    _, copied = await _replicator(request, topic_of(request))
    await copied.cursor.skip(count)
    return no_content()


async def expire(request: Request) -> Response:
    """Pass over what was published more than so many seconds ago. 409 where there was nothing to look at."""
    from geminga.broker.geo.backlog import expire as pass_over  # with the first that asks

    seconds = path_int(request, "seconds")
    found = await _each(request)
    nothing = [(topic, copied) for topic, copied in found if not copied.backlog]
    for topic, copied in found:
        if copied.backlog:
            await pass_over(topic.ledger, copied, seconds * 1000, topic.services.runtime.clock.wall_ms)
    if nothing:
        topic, copied = nothing[0]
        raise ConflictError(
            f"Expire message by timestamp not issued on topic {topic.name} for subscription "
            f"{REPLICATOR_PREFIX}{copied.cluster}: there is no backlog"
        )
    return no_content()


async def _each(request: Request) -> list[tuple[PersistentTopic, CopiedTopic]]:
    """The replicator of the topic, or of every partition that is there; raises NotFoundError (404) if none has it."""
    name = topic_of(request)
    found = []
    async for target in partitions_or_self(context_of(request).topics, name, used=True):
        try:
            found.append(await _replicator(request, target))
        except (TopicNotFoundError, NotFoundError):
            if target == name:
                raise
    if not found:
        raise NotFoundError("Replicator not found")
    return found


async def _replicator(request: Request, name: TopicName) -> tuple[PersistentTopic, CopiedTopic]:
    from geminga.broker.geo.part import GeoReplication  # with the first that asks

    topic = await persistent_topic(context_of(request).topics, name)
    part = topic.parts.find(GeoReplication)
    cluster = subscription_name(request).removeprefix(REPLICATOR_PREFIX)
    copied = None if part is None else part.replicators.get(cluster)
    if copied is None:
        raise NotFoundError("Replicator not found")
    return topic, copied


async def source_positions(request: Request) -> Response:
    """By cluster: up to where what it copies here counts as repeated, and whether its replicator is connected.

    Where an operator took one away, also the last entry here that says nothing of it any more.
    """
    from geminga.broker.topic.deduplication import sources_of  # with the first that asks

    topic, dedup = await _deduplicated(request)
    connected = {producer.copies_from for producer in topic.producers.values()}
    return json_response(
        {
            "sources": [
                {"cluster": cluster, "position": position, "isConnected": cluster in connected}
                for cluster, position in sources_of(dedup).items()
            ],
            "forgotten": [
                {"cluster": cluster, "lastMessageId": f"{last}"} for cluster, last in dedup.forgotten.items()
            ],
        }
    )


async def forget_source_position(request: Request) -> Response:
    """Take one away that is not true: what the cluster sends from now on is stored, wherever it was stored there."""
    from geminga.broker.topic.deduplication import forget_source  # with the first that asks

    _, dedup = await _deduplicated(request)
    cluster = path_text(request, "cluster")
    return json_response({"cluster": cluster, "position": await forget_source(dedup, cluster)})


async def _deduplicated(request: Request) -> tuple[PersistentTopic, TopicDeduplication]:
    topics, name = context_of(request).topics, topic_of(request)
    await refuse_partitioned(topics, name, "Source positions are those of the partitions of a topic, one by one")
    topic = await persistent_topic(topics, name)
    if topic.dedup is None:
        raise PreconditionFailedError(f"{name} is not deduplicated: what other clusters send is stored, whatever it is")
    return topic, topic.dedup


ROUTES = [
    Route("GET", f"{TOPIC_PATH}/sourcePositions", source_positions, TopicOperation.GET_STATS),
    # Who may delete the topic may have messages of another cluster there twice.
    Route(
        "DELETE", f"{TOPIC_PATH}/sourcePositions/{{cluster}}", forget_source_position, NamespaceOperation.DELETE_TOPIC
    ),
]
