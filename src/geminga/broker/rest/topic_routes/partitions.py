"""``/admin/v2/{domain}/.../{topic}/partitions`` and ``createMissedPartitions``: partitioned topics."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from geminga.broker.access.core.actions import NamespaceOperation, PolicyName, TopicOperation, writing
from geminga.broker.core.coercion import number_of, object_of, text_of
from geminga.broker.geo.residence import MAKE_ONLY
from geminga.broker.resources.documents import Document, Json
from geminga.broker.resources.initialization import COORDINATORS_TOPIC
from geminga.broker.rest.calls.requests import (
    RestError,
    check_properties_size,
    context_of,
    flag,
    json_body,
    json_response,
    namespace_of,
    new_topic_of,
    no_content,
    required_body,
    topic_of,
)
from geminga.broker.rest.calls.routing import TOPIC_PATH, Route
from geminga.broker.rest.calls.targets import is_partitioned, refuse_partition_name, require_namespace
from geminga.model.errors import ConflictError, TopicNotFoundError
from geminga.model.topic_name import SHADOW_SOURCE

#: What official clients ask with when they look a topic up over HTTP, and administrators do not.
CLIENTS_FLAG: Final = "checkAllowAutoCreation"


def _count(value: Json) -> int:
    """Nothing and an empty text are 0, as in Pulsar."""
    return 0 if value is None or value == "" else number_of(value, "the number of partitions")


async def create(request: Request) -> Response:
    """Create; the body is the number of partitions, or an object with it and with properties."""
    namespace_of(request)  # has a reason of its own
    body = await json_body(request)
    properties: dict[str, str] = {}
    if isinstance(body, dict):
        given = body.get("properties")
        if given is not None:
            given = object_of(given, "properties")
            properties = {key: text_of(value, key) for key, value in given.items() if value is not None}
            check_properties_size("a topic", properties)
        body = body.get("partitions")
    count, name = _count(body), new_topic_of(request)
    # As in Pulsar: its partitions could be taken for those of another topic.
    refuse_partition_name(name)
    await require_namespace(context_of(request).topics, name)
    if count < 1:
        raise RestError(406, "Number of partitions should be more than 0")
    most = context_of(request).topics.partitions.most
    if count > most:
        raise RestError(406, f"Number of partitions should be less than or equal to {most}")
    if properties.get(SHADOW_SOURCE):
        from geminga.broker.registry.new_shadows import check_source  # with the first

        topics = context_of(request).topics
        await check_source(topics.resources, topics.ledgers, name, properties, count)
    await context_of(request).topics.partitions.create(name, count, properties)
    return no_content()


async def update(request: Request) -> Response:
    """Grow to the number of partitions in the body; for a cluster that shares the number: make them and leave it."""
    topics, name = context_of(request).topics, topic_of(request)
    body = await required_body(request)
    refuse_partition_name(name)
    count = _count(body)
    found = await topics.resources.partitioned_topics.find(name)
    if found is None:
        raise ConflictError(f"Topic {name} is not the partitioned topic.")
    if count < found.partitions:
        raise RestError(
            422, f"Desired partitions {count} can't be less than the current partitions {found.partitions}."
        )
    if count > topics.partitions.most:
        raise RestError(
            422,
            f"Desired partitions {count} can't be greater than the maximum partitions per topic "
            f"{topics.partitions.most}.",
        )
    if context_of(request).configuration_url and flag(request, MAKE_ONLY):
        await topics.partitions.make_for_others(name, count)
    else:
        await topics.partitions.grow(name, count)
    return no_content()


async def create_missing(request: Request) -> Response:
    """Create those partitions that are not there: what a stop or a crash cut off is completed."""
    topics, name = context_of(request).topics, new_topic_of(request)
    refuse_partition_name(name)
    if not await is_partitioned(topics, name):
        await require_namespace(topics, name)
        raise TopicNotFoundError(f"Topic {name} does not exist")
    await topics.partitions.create_missing(name)
    return no_content()


async def read(request: Request) -> Response:
    """The number of partitions; 0 for a topic that is not partitioned.

    With ``checkAllowAutoCreation`` a topic that does not exist is created if the policies say partitioned. It is a
    client that looks a topic up then: to those a broker without transactions has no coordinators (handlers/lookup.py).
    """
    topics, name = context_of(request).topics, topic_of(request)
    is_client = CLIENTS_FLAG in request.query_params
    if is_client and name == COORDINATORS_TOPIC and context_of(request).transactions is None:
        return json_response({"partitions": 0, "deleted": False})
    creates = flag(request, CLIENTS_FLAG)
    await require_namespace(topics, name)
    await topics.registry.partitioned_count(name, create=creates)
    found = None if name.is_partition else await topics.resources.partitioned_topics.find(name)
    if found is None:
        if not creates and not await topics.registry.exists(name):
            raise TopicNotFoundError(f"Topic {name} not found")
        return json_response({"partitions": 0, "deleted": False})
    metadata: Document = {"partitions": found.partitions, "deleted": found.is_deleted}
    if found.properties:
        metadata["properties"] = {**found.properties}
    return json_response(metadata)


async def delete(request: Request) -> Response:
    """Delete the topic with all its partitions."""
    topics, name = context_of(request).topics, topic_of(request)
    if name.is_partition:
        refuse_partition_name(name)
    try:
        await topics.partitions.delete(name, force=flag(request, "force"))
    except TopicNotFoundError as error:
        if await topics.registry.exists(name):
            raise ConflictError(
                f"{name} is a non-partitioned topic. Instead of calling delete-partitioned-topic please call delete."
            ) from error
        raise TopicNotFoundError(f"Topic {name} not found.") from error
    return no_content()


_PATH = f"{TOPIC_PATH}/partitions"

ROUTES = [
    Route("PUT", _PATH, create, NamespaceOperation.CREATE_TOPIC),
    Route("POST", _PATH, update, writing(PolicyName.PARTITION)),
    Route("GET", _PATH, read, TopicOperation.LOOKUP),
    Route("DELETE", _PATH, delete, NamespaceOperation.DELETE_TOPIC),
    Route("POST", f"{TOPIC_PATH}/createMissedPartitions", create_missing, writing(PolicyName.PARTITION)),
]
