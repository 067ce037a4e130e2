"""``/admin/v2/{domain}/.../{topic}/partitions`` and ``createMissedPartitions``: partitioned topics."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga.broker.resources.documents import Json
from geminga.broker.rest.core.unbuilt import TOPIC_PROPERTIES, refuse_unbuilt
from geminga.broker.rest.requests import (
    RestError,
    context_of,
    flag,
    json_body,
    json_response,
    no_content,
    topic_of,
)
from geminga.broker.rest.routing import TOPIC_PATH
from geminga.model.errors import TopicNotFoundError
from geminga.model.topic_name import PARTITION_SUFFIX


def _count(value: Json) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise RestError(400, "the body must be the number of partitions")
    if value < 1:
        raise RestError(406, f"a partitioned topic has at least one partition, not {value}")
    return value


async def create(request: Request) -> Response:
    """Create; the body is the number of partitions, or an object with it and with properties."""
    body = await json_body(request)
    properties: dict[str, str] = {}
    if isinstance(body, dict):
        given = body.get("properties")
        if isinstance(given, dict):
            properties = {key: str(value) for key, value in given.items()}
            refuse_unbuilt(properties, TOPIC_PROPERTIES)
        body = body.get("partitions")
    count = _count(body)
    name = topic_of(request)
    if PARTITION_SUFFIX in name.local_name:  # as Pulsar: its partitions could be taken for those of another topic
        raise RestError(412, f"the name of a partitioned topic can not hold {PARTITION_SUFFIX!r}: {name}")
    await context_of(request).broker.create_partitioned_topic(name, count, properties)
    return no_content()


async def update(request: Request) -> Response:
    """Grow to the number of partitions in the body."""
    broker, name = context_of(request).broker, topic_of(request)
    count = _count(await json_body(request))
    found = await broker.resources.partitioned_topics.find(name)
    if found is None:
        raise TopicNotFoundError(f"partitioned topic {name} does not exist")
    if count < found.partitions:
        raise RestError(422, f"{name} has {found.partitions} partitions and can not shrink to {count}")
    await broker.update_partitions(name, count)
    return no_content()


async def create_missing(request: Request) -> Response:
    """Create those partitions that are not there: what a stop or a crash cut off is completed."""
    await context_of(request).broker.partitions.create_missing(topic_of(request))
    return no_content()


async def read(request: Request) -> Response:
    """The number of partitions; 0 for a topic that is not partitioned.

    With ``checkAllowAutoCreation`` a topic that does not exist is created if the policies say partitioned.
    """
    broker, name = context_of(request).broker, topic_of(request)
    creates = flag(request, "checkAllowAutoCreation")
    await broker.partitioned_count(name, create=creates)
    found = None if name.is_partition else await broker.resources.partitioned_topics.find(name)
    if found is None:
        if not creates and not await broker.topic_exists(name):
            raise TopicNotFoundError(f"topic {name} does not exist")
        return json_response({"partitions": 0, "deleted": False})
    return json_response(
        {"partitions": found.partitions, "deleted": found.is_deleted, "properties": {**found.properties}}
    )


async def delete(request: Request) -> Response:
    """Delete the topic with all its partitions."""
    await context_of(request).broker.delete_partitioned_topic(topic_of(request), force=flag(request, "force"))
    return no_content()


_PATH = f"{TOPIC_PATH}/partitions"

ROUTES = [
    Route(_PATH, create, methods=["PUT"]),
    Route(_PATH, update, methods=["POST"]),
    Route(_PATH, read, methods=["GET"]),
    Route(_PATH, delete, methods=["DELETE"]),
    Route(f"{TOPIC_PATH}/createMissedPartitions", create_missing, methods=["POST"]),
]
