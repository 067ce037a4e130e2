"""What statistics tell of what failed: to administrators of the tenant all of it, to others only that it did.

Who may produce or consume reads a topic's statistics. Errors in them name what brokers use to reach other clusters,
bookies and buckets: addresses, paths, files of credentials.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import Response

from geminga.broker.access.core.actions import TopicOperation
from geminga.broker.resources.documents import Document, Json
from geminga.broker.rest.calls.requests import json_response
from geminga.model.errors import AuthenticationError, AuthorizationError

if TYPE_CHECKING:
    from geminga.broker.statistics.answer_turns import AnswerTurns

#: What others are told in place of an error.
NOT_TOLD: Final = "something failed; who administers the tenant is told what"
#: Fields that are errors.
FIELDS: Final = frozenset(("disconnectedReason", "error", "lastError", "reason"))
#: Parts of statistics that have such fields. Elsewhere users choose names: of properties, producers, subscriptions.
PLACES: Final = ("filesToDelete", "geminga", "holes", "replication", "restore", "skipped")
#: The same of these.
NAMED_BY_USERS: Final = frozenset(("deduplication", "unreadOf"))


async def told(request: Request, document: Document, turns: AnswerTurns | None = None) -> Response:
    """The answer to who asks; in several turns, where it may be long."""
    hushed = without_errors(document)
    if hushed != document and not await _administers(request):
        document = hushed
    if turns is None or turns.are_few:
        return json_response(document)
    from geminga.broker.rest.calls.long_json import long_json_response  # most answers are short

    return await long_json_response(document, turns)


async def _administers(request: Request) -> bool:
    try:
        await request.state.asks_again(request, action=TopicOperation.OFFLOAD)
    except (AuthenticationError, AuthorizationError):
        return False
    return True


def without_errors(document: Document) -> Document:
    """Statistics of a topic, or of partitions, its ledgers in the lake, or its holes."""
    found = _hushed({key: value for key, value in document.items() if key in FIELDS})
    assert isinstance(found, dict)
    found = {**document, **found}
    for place in PLACES:
        if place in document:
            found[place] = _hushed(document[place])
    partitions = document.get("partitions")
    if isinstance(partitions, dict):
        found["partitions"] = {
            name: without_errors(each) if isinstance(each, dict) else each for name, each in partitions.items()
        }
    return found


def _hushed(value: Json) -> Json:
    if isinstance(value, list):
        return [_hushed(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: item if key in NAMED_BY_USERS else _said(key, item) for key, item in value.items()}


def _said(key: str, value: Json) -> Json:
    return NOT_TOLD if key in FIELDS and isinstance(value, str) and value else _hushed(value)
