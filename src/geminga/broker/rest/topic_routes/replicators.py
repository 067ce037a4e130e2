"""Paths of subscriptions named ``pulsar.repl.<cluster>``: what is to be copied there, passed over by an operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from geminga.broker.rest.calls.requests import context_of, no_content, path_int, subscription_name, topic_of
from geminga.broker.rest.calls.targets import partitions_or_self, persistent_topic
from geminga.model.errors import ConflictError, NotFoundError, TopicNotFoundError
from geminga.model.topic_name import REPLICATOR_PREFIX, TopicName

if TYPE_CHECKING:
    from geminga.broker.topic.parts import CopiedTopic
    from geminga.broker.topic.persistent import PersistentTopic


def is_replicators(request: Request) -> bool:
    """Whether the path names a replicator instead of a subscription."""
    return subscription_name(request).startswith(REPLICATOR_PREFIX)


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
