"""What is stored here of a namespace that does not live in this cluster any more, and its deletion.

``GET namespaces/{tenant}/{namespace}/leftTopics`` counts it; ``DELETE ...?topics=N`` deletes it if there are still so
many topics: who asks has seen the counts. Both are Geminga's own: Apache's brokers delete such topics by themselves.

The namespace's policies are read from the store before anything goes, and again before each topic: where they can not
be read, or name this cluster again, nothing more is deleted. Topics of users go first, what brokers keep for them last
(``__change_events`` behind all others): what was cut short goes on with the next count and request. Nothing makes them
again, for a topic of a namespace that lives elsewhere is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from geminga.broker.access.core.actions import NamespaceOperation, TenantOperation
from geminga.broker.rest.calls.requests import RestError, context_of, json_response, namespace_of, no_content, query_int
from geminga.broker.rest.calls.routing import Route
from geminga.broker.rest.namespace_routes.deletion import (
    delete_partitioned,
    delete_topic,
    partitioned_topics_of_namespace,
    topics_of_namespace,
)
from geminga.model.errors import ConflictError
from geminga.model.topic_name import CHANGE_EVENTS, REPLICATOR_PREFIX, TopicName

if TYPE_CHECKING:
    from geminga.broker.rest.calls.context import RestContext


class Left(NamedTuple):
    """What there is."""

    #: Topics of users, partitions one by one.
    topics: int = 0
    #: Topics that brokers keep for the namespace.
    system_topics: int = 0
    ledgers: int = 0
    bytes: int = 0
    #: Topics with entries that were not copied to another cluster, as far as what is stored says.
    not_copied: int = 0


async def count(request: Request) -> Response:
    """Counts, from what is stored: nothing is loaded."""
    context, namespace = context_of(request), namespace_of(request)
    await _require_gone(context, namespace)
    topics, found = context.topics, Left()
    steps = topics.steps()
    for name in await topics_of_namespace(topics, namespace, has_system=True):
        await steps.next()
        info = await topics.ledgers.info(name.managed_ledger_name) if name.is_persistent else None
        kind = "system_topics" if name.is_system else "topics"
        found = found._replace(**{kind: getattr(found, kind) + 1})
        if info is not None:
            copies = [cursor for cursor in info.cursors if cursor.startswith(REPLICATOR_PREFIX)]
            found = found._replace(
                ledgers=found.ledgers + len(info.record.ledgers),
                bytes=found.bytes + sum(ledger.size_bytes for ledger in info.record.ledgers),
                not_copied=found.not_copied + any(map(info.has_unread, copies)),
            )
    return json_response(
        {
            "topics": found.topics,
            "systemTopics": found.system_topics,
            "ledgers": found.ledgers,
            "bytes": found.bytes,
            "topicsNotCopied": found.not_copied,
        }
    )


async def delete(request: Request) -> Response:
    """Delete them all, if ``topics`` is how many there are of users."""
    context, namespace = context_of(request), namespace_of(request)
    asked = query_int(request, "topics")
    if asked is None:
        raise RestError(412, "topics must say how many topics are to be deleted: GET of the same path counts them")
    await _require_gone(context, namespace)
    topics = context.topics
    names = await topics_of_namespace(topics, namespace, has_system=True)
    found = sum(not name.is_system for name in names)
    if found != asked:
        raise ConflictError(f"{namespace} has {found} topics here, not {asked}: nothing was deleted")
    steps = topics.steps()
    # A number of partitions that clusters share is that of the cluster where the namespace lives.
    for whole in () if context.shares_configuration else await partitioned_topics_of_namespace(topics, namespace):
        await steps.next()
        await _require_gone(context, namespace)
        await delete_partitioned(topics, whole)
    for name in sorted(await topics_of_namespace(topics, namespace, has_system=True), key=turn_of):
        await steps.next()
        await _require_gone(context, namespace)
        await delete_topic(topics, name)
    await topics.registry.delete_logs(namespace)
    # Policies were in a topic of the namespace; schemas are this cluster's own.
    await topics.forget_namespace(namespace)
    return no_content()


def turn_of(name: TopicName) -> tuple[bool, bool, str]:
    """Users' topics first, policies of topics last."""
    return name.is_system, name.local_name == CHANGE_EVENTS, str(name)


async def _require_gone(context: RestContext, namespace: str) -> None:
    """Raise RestError (412) unless the namespace's policies, as they are stored now, leave this cluster out.

    NotFoundError, MetadataError: nothing may be concluded then.
    """
    # They may lie in another store than the topics, of which a server that lags behind would tell what was before.
    await context.resources.sync()
    policies = await context.resources.namespaces.get(namespace)
    if policies.is_deleted or policies.lives_in(context.cluster):
        raise RestError(412, f"{namespace} lives in cluster {context.cluster}: nothing of it is left over")


_PATH: Final = "/admin/v2/namespaces/{tenant}/{namespace}/leftTopics"

ROUTES: Final = [
    Route("GET", _PATH, count, NamespaceOperation.GET_TOPICS),
    Route("DELETE", _PATH, delete, TenantOperation.DELETE_NAMESPACE),
]
