"""Topics that show another one: who may be named, and what the owners of the two say to each other.

The latter is Geminga's own, between brokers: ``GET`` and ``PUT {topic}/shadowState`` (:mod:`broker.core.source_word`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import Response

from geminga.broker.access.core.actions import SuperUser
from geminga.broker.core.coercion import LONG_MAX, Json, number_of
from geminga.broker.rest.calls.requests import context_of, json_body, json_response, no_content, topic_of
from geminga.broker.rest.calls.routing import TOPIC_PATH, Route
from geminga.model.errors import InvalidTopicNameError, PreconditionFailedError
from geminga.model.position import Position
from geminga.model.topic_name import SHADOW_SOURCE, TopicName

if TYPE_CHECKING:
    from geminga.broker.administration.services import AdministeredTopics

#: Shadows of one topic: each costs its owner a telling for what is published.
SHADOWS_MAX: Final = 100


async def check_shadows(topics: AdministeredTopics, source: TopicName, value: Json) -> None:
    """Raise PreconditionFailedError unless each is a topic that was made to show ``source``. StorageError."""
    texts = value if isinstance(value, list) else []
    if len(texts) > SHADOWS_MAX:
        raise PreconditionFailedError(f"A topic has at most {SHADOWS_MAX} shadow topics, not {len(texts)}")
    for text in texts:
        try:
            name = TopicName.parse(str(text))
        except InvalidTopicNameError as error:
            raise PreconditionFailedError(f"Invalid shadow topic name: {error}") from error
        if not name.is_persistent:
            raise PreconditionFailedError("Only persistent topic can be set as shadow topic")
        properties = await _properties_of(topics, name)
        if properties is None:
            raise PreconditionFailedError(f"Shadow topic [{text}] not exists.")
        shown = properties.get(SHADOW_SOURCE, "")
        if not shown or TopicName.parse(shown) != source:
            what = f"shows {shown}" if shown else "shows no other topic"
            raise PreconditionFailedError(f"Shadow topic [{text}] was not created to show {source}: it {what}")


async def _properties_of(topics: AdministeredTopics, name: TopicName) -> Mapping[str, str] | None:
    found = None if name.is_partition else await topics.resources.partitioned_topics.find(name)
    if found is not None:
        return found.properties
    info = await topics.ledgers.info(name.managed_ledger_name)
    return None if info is None else info.record.properties


async def state(request: Request) -> Response:
    """What a source says to the owner of its shadow ``shadow``, who knows of aborts up to a position."""
    from geminga.broker.core.source_word import word_json

    query = request.query_params
    known = Position(*(number_of(query.get(key), key, LONG_MAX) for key in ("ledgerId", "entryId")))
    shadows = context_of(request).topics.shadows()
    word = await shadows.answer(topic_of(request), TopicName.parse(query.get("shadow", "")), known)
    return json_response(word_json(word))


async def tell(request: Request) -> Response:
    """The owner of its source tells a shadow. One that is not loaded is not loaded for that."""
    from geminga.broker.core.source_word import word_of

    context_of(request).topics.shadows().heard(topic_of(request), word_of(await json_body(request)))
    return no_content()


_STATE: Final = f"{TOPIC_PATH}/shadowState"

ROUTES: Final = [
    Route("GET", _STATE, state, SuperUser.SHOW_TOPIC),
    Route("PUT", _STATE, tell, SuperUser.SHOW_TOPIC),
]
