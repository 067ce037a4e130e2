"""Ledgers of a topic that can not be read, and giving one up: paths of Geminga's own, ``.../{topic}/holes``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import Response

from geminga.broker.access.core.actions import NamespaceOperation, TopicOperation
from geminga.broker.core.coercion import LONG_MAX, number_of, object_of
from geminga.broker.resources.documents import Document, Json
from geminga.broker.rest.calls.requests import RestError, context_of, json_response, required_body, topic_of
from geminga.broker.rest.calls.routing import TOPIC_PATH, Route
from geminga.broker.rest.calls.targets import persistent_topic, refuse_partitioned
from geminga.broker.rest.topic_routes.troubles import told
from geminga.managed_ledger.rules.unreadable import Hole, skipped_of
from geminga.model.position import Position

if TYPE_CHECKING:
    from geminga.broker.topic.persistent import PersistentTopic


_OF_PARTITIONS: Final = "Ledgers are those of the partitions of a topic, one by one"


async def _topic(request: Request) -> PersistentTopic:
    topics, name = context_of(request).topics, topic_of(request)
    await refuse_partitioned(topics, name, _OF_PARTITIONS)
    return await persistent_topic(topics, name, "Looking for ledgers that can not be read")


async def look(request: Request) -> Response:
    """Ledgers that can not be read, who has not read them, and those that were given up. ``ledgerId``, perhaps several:
    only these, read whole."""
    topic = await _topic(request)
    ids = [number_of(text, "ledgerId", LONG_MAX) for text in request.query_params.getlist("ledgerId")]
    holes = await topic.services.ledgers.find_holes(topic.ledger, ids)
    skipped: list[Json] = [
        {
            "ledgerId": one.ledger_id,
            "entries": one.entries,
            "size": one.size_bytes,
            "closed": one.closed_ms,
            "skipped": one.skipped_ms,
            "error": one.error,
        }
        for one in skipped_of(topic.ledger.stored.properties)
    ]
    return await told(
        request, {"holes": [_document(hole, _loss(topic, hole.ledger_id)) for hole in holes], "skipped": skipped}
    )


def _document(hole: Hole, loss: Document) -> Document:
    return {
        "ledgerId": hole.ledger_id,
        "entries": hole.entries,
        "size": hole.size_bytes,
        "closed": hole.closed_ms,
        "firstMessageId": f"{Position(hole.ledger_id, 0)}",
        "lastMessageId": f"{Position(hole.ledger_id, hole.entries - 1)}",
        "isLost": hole.is_lost,
        "readableEntries": hole.readable,
        "error": hole.error,
        **loss,
    }


def _loss(topic: PersistentTopic, ledger_id: int) -> Document:
    """What goes with a ledger beside its entries."""
    info = topic.ledger.ledgers.find(ledger_id)
    last = Position(ledger_id, info.entries - 1 if info is not None else -1)
    unread: Document = {}
    for name, subscription in topic.subscriptions.items():
        cursor = subscription.cursor
        mark_delete = cursor.mark_delete_position
        begin = max(Position(ledger_id, 0), Position(mark_delete.ledger_id, mark_delete.entry_id + 1))
        count = topic.ledger.ledgers.count_between(begin, last) - cursor.state.acked.count_in(ledger_id)
        if begin <= last and count > 0:
            unread[name] = count
    buffer = topic.transaction_buffer
    return {
        "unreadOf": unread,
        "forgetsSequenceIds": topic.dedup is not None and ledger_id in topic.ledger.stored.gaps,
        "transactionsInDoubt": buffer.in_doubt_count if buffer is not None else 0,
    }


async def skip(request: Request) -> Response:
    """Give up a ledger that can not be read, and load the topic anew behind it; answers what it had. ``end``: only what
    lies behind the newest entry that can be read, of a ledger whose end keeps the topic from being loaded."""
    body = await required_body(request)
    options = object_of(body, "what is to be skipped")
    ledger_id = number_of(options.get("ledgerId"), "ledgerId", LONG_MAX)
    if _flag(options, "end"):
        return await _give_up_end(request, ledger_id, options)
    topic = await _topic(request)
    loss = _loss(topic, ledger_id)
    hole = await topic.services.ledgers.skip_hole(
        topic.ledger, ledger_id, is_forced=_flag(options, "force"), is_whole=_flag(options, "whole")
    )
    # What dispatchers, deduplication and transactions have in memory is of a log that had it.
    await topic.services.unload(topic.name)
    return json_response(_document(hole, loss))


async def _give_up_end(request: Request, ledger_id: int, options: Document) -> Response:
    """Of a topic that can not be loaded, since nobody can tell where its last ledger, or a subscription's, ends."""
    topics, name = context_of(request).topics, topic_of(request)
    await refuse_partitioned(topics, name, _OF_PARTITIONS)
    await topics.registry.require_here(name)
    end = await topics.ledgers.give_up_end(
        name.managed_ledger_name, ledger_id, is_forced=_flag(options, "force"), is_dry=_flag(options, "dry")
    )
    return json_response(
        {
            "ledgerId": ledger_id,
            "lastMessageId": f"{Position(ledger_id, end.last_entry_id)}",
            "lostEntries": end.newest_entry_id - end.last_entry_id,
            "isLost": not end.doubts,
            "outOfReach": list(end.doubts),
            "error": end.error,
        }
    )


def _flag(options: Document, name: str) -> bool:
    value = options.get(name, False)
    if not isinstance(value, bool):
        raise RestError(400, f"{name} must be true or false, not {value!r}")
    return value


ROUTES = [
    Route("GET", f"{TOPIC_PATH}/holes", look, TopicOperation.GET_STATS),
    # Who may delete the topic may delete what is left of a part of it.
    Route("PUT", f"{TOPIC_PATH}/holes/skip", skip, NamespaceOperation.DELETE_TOPIC),
]
