"""Compaction of a topic: begun, looked at, given up. Paths are Pulsar's, but for DELETE, which is Geminga's own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import Response

from geminga.broker.access.core.actions import TopicOperation
from geminga.broker.resources.documents import Document
from geminga.broker.rest.calls.requests import context_of, json_response, no_content, topic_of
from geminga.broker.rest.calls.routing import TOPIC_PATH, Route
from geminga.broker.rest.calls.targets import is_partitioned
from geminga.broker.rest.topic_routes.topics import each_stored
from geminga.model.errors import TopicNotFoundError
from geminga.model.topic_name import TopicName

if TYPE_CHECKING:
    from geminga.broker.compaction.part import TopicCompaction
    from geminga.broker.topic.persistent import PersistentTopic

#: Of several partitions the first of these that one of them has.
_BY_WORTH: Final = ("RUNNING", "ERROR", "SUCCESS", "NOT_RUN")


def _part_of(topic: PersistentTopic) -> TopicCompaction | None:
    from geminga.broker.compaction.part import TopicCompaction

    return topic.parts.find(TopicCompaction)


async def trigger(request: Request) -> Response:
    """Begin; goes on in the background. Of each partition; 409 where it is under way."""
    from geminga.broker.compaction.part import compact

    await _require_topic(request)
    async for topic in each_stored(request, "Compaction"):
        await compact(topic)
    return no_content()


async def status(request: Request) -> Response:
    """What the last run since the topic was loaded came to; of partitions together, see :func:`joined`."""
    await _require_topic(request)
    found: list[Document] = []
    async for topic in each_stored(request, "Compaction"):
        part = _part_of(topic)
        found.append(
            {
                "status": part.status if part is not None else "NOT_RUN",
                "lastError": part.last_error if part is not None else "",
            }
        )
    return json_response(joined(found))


async def forget(request: Request) -> Response:
    """What was compacted is deleted, and whoever reads compacted messages reads the log from now on."""
    await _require_topic(request)
    async for topic in each_stored(request, "Compaction"):
        part = _part_of(topic)
        if part is not None:
            await part.forget()
    return no_content()


def joined(documents: Iterable[Document]) -> Document:
    """Of several partitions: running if one runs, else failed if one failed, else done if one is done."""
    found = list(documents)
    for worth in _BY_WORTH:
        for document in found:
            if document.get("status") == worth:
                return document
    return {"status": "NOT_RUN", "lastError": ""}


async def _require_topic(request: Request) -> TopicName:
    """The topic of the path; TopicNotFoundError, also where its namespace is not there, as in Pulsar here."""
    topics, name = context_of(request).topics, topic_of(request)
    if not await topics.registry.exists(name) and not await is_partitioned(topics, name):
        raise TopicNotFoundError(f"Topic {name} not found")
    return name


ROUTES: Final = [
    Route("PUT", f"{TOPIC_PATH}/compaction", trigger, TopicOperation.COMPACT),
    Route("GET", f"{TOPIC_PATH}/compaction", status, TopicOperation.COMPACT),
    Route("DELETE", f"{TOPIC_PATH}/compaction", forget, TopicOperation.COMPACT),
]
