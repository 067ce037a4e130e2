"""Requests for a partitioned topic whose partitions several brokers serve: each partition is asked at its owner.

The very same request goes to every partition, or another one of a single topic that says the same, and the answers
become one. Where all partitions are here, and where there is one broker, the handlers do it themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, cast

from starlette.requests import Request
from starlette.responses import Response

from geminga.broker.resources.documents import Document, Json
from geminga.broker.rest.calls.owners import AUTHORITATIVE
from geminga.broker.rest.calls.requests import (
    RestError,
    body_bytes,
    context_of,
    flag,
    json_response,
    no_content,
    nothing_set,
    topic_of,
)
from geminga.broker.rest.calls.routing import Handler, Route
from geminga.broker.rest.calls.targets import UNUSED_LOADED_MAX
from geminga.broker.rest.topic_routes import compaction, messages, subscriptions, topics
from geminga.broker.rest.topic_routes.troubles import told
from geminga.broker.statistics.partitioned import merging_steps, partitioned_metadata
from geminga.model.errors import UnavailableError
from geminga.model.topic_name import TopicName

if TYPE_CHECKING:
    from geminga.broker.peers.http_client import PeerAnswer
    from geminga.broker.peers.topics import PeerTopics

#: Partitions asked at the same time.
PARTITIONS_AT_ONCE: Final = 64


class PartitionAnswer(NamedTuple):
    """What a partition's owner said."""

    partition: TopicName
    answer: PeerAnswer

    @property
    def is_good(self) -> bool:
        """Whether it was done."""
        return self.answer.is_good

    @property
    def document(self) -> Document:
        """The body; raises UnavailableError where it is no JSON object."""
        found = self.answer.json()
        if not isinstance(found, dict):
            raise UnavailableError(f"the broker at {self.answer.url} answered what is no JSON object")
        return found


class ScatterGather(NamedTuple):
    """How one row is carried out on partitions."""

    #: Of all answers, by partition; statistics are made in steps, and told according to who asks.
    join: Callable[[Request, Sequence[PartitionAnswer]], Response | Generator[None, None, Document]]
    #: Refusals that are none where another partition did it.
    passed_over: frozenset[int] = frozenset()
    #: Refusals that are none at all.
    nothing: frozenset[int] = frozenset()
    #: What is asked of a partition instead, behind its path; None: the same.
    rest: str | None = None


def over_partitions(routes: Iterable[Route]) -> list[Route]:
    """The same routes; those that partitions answer together do so wherever these are."""
    return [
        route.answered_by(_gathered(route.endpoint, GATHERED[route.endpoint])) if route.endpoint in GATHERED else route
        for route in routes
    ]


def _gathered(handler: Handler, spread: ScatterGather) -> Handler:
    @wraps(handler)
    async def serve(request: Request) -> Response:
        peers = context_of(request).topics.elsewhere
        if peers is not None:
            partitions = await _partitions(request)
            if not await _are_here(request, peers, partitions):
                joined = spread.join(request, await _ask_all(request, peers, partitions, spread))
                if isinstance(joined, Response):
                    return joined
                async with context_of(request).statistics.turns() as turns:
                    return await told(request, await turns.through(joined), turns)
        return await handler(request)

    return serve


async def _partitions(request: Request) -> list[TopicName]:
    """Of the topic; those that nobody used are left out where there are many. None: it is not partitioned."""
    parts, name = context_of(request).topics, topic_of(request)
    found = None if name.is_partition else await parts.resources.partitioned_topics.find(name)
    if found is None:
        return []
    request.state.partitions = found.partitions
    request.state.properties = found.properties
    is_all = found.partitions <= UNUSED_LOADED_MAX or request.method != "GET"
    steps, asked = parts.steps(), []
    for index in range(found.partitions):
        await steps.next()
        partition = name.with_partition(index)
        if is_all or await parts.partitions.is_used(partition):
            asked.append(partition)
    return asked


async def _are_here(request: Request, peers: PeerTopics, partitions: Sequence[TopicName]) -> bool:
    steps = context_of(request).topics.steps()
    for partition in partitions:
        await steps.next()
        if not await peers.is_here(partition):
            return False
    return True


async def _ask_all(
    request: Request, peers: PeerTopics, partitions: Sequence[TopicName], spread: ScatterGather
) -> list[PartitionAnswer]:
    """The good answers; see :func:`settled`. What comes behind a refusal that counts is not asked any more."""
    query = "&".join(
        item
        for item in request.scope["query_string"].decode("latin-1").split("&")
        if item and item.partition("=")[0] != AUTHORITATIVE
    )
    # "", admin, v2, domain, tenant, namespace, topic, and what is behind.
    behind = request.scope["path"].split("/")[7:]
    rest = spread.rest if spread.rest is not None else "".join(f"/{part}" for part in behind)
    body = await body_bytes(request)
    found: list[PartitionAnswer] = []
    for start in range(0, len(partitions), PARTITIONS_AT_ONCE):
        some = partitions[start : start + PARTITIONS_AT_ONCE]
        answers = await asyncio.gather(
            *(peers.ask(partition, request.method, rest, query=query, body=body) for partition in some)
        )
        found += map(PartitionAnswer, some, answers)
        if any(one.answer.status not in spread.passed_over | spread.nothing for one in found if not one.is_good):
            break
    return settled(found, spread)


def settled(answers: Sequence[PartitionAnswer], spread: ScatterGather) -> list[PartitionAnswer]:
    """The good ones; raises the first refusal that counts, as its status where the request was at fault."""
    good = [one for one in answers if one.is_good]
    refused = [one for one in answers if not one.is_good]
    for one in refused:
        if one.answer.status not in spread.passed_over | spread.nothing:
            _refuse(one)
    if not good and refused and refused[0].answer.status not in spread.nothing:
        _refuse(refused[0])
    return good


def _refuse(one: PartitionAnswer) -> NoReturn:
    status = one.answer.status
    if 400 <= status < 500:
        raise RestError(status, one.answer.reason)
    raise UnavailableError(f"{one.partition}: {one.answer.reason} (the broker at {one.answer.url})")


# ---- how answers become one


def _done(_request: Request, _answers: Sequence[PartitionAnswer]) -> Response:
    return no_content()


def _quietly_done(_request: Request, _answers: Sequence[PartitionAnswer]) -> Response:
    return nothing_set()


def _names(_request: Request, answers: Sequence[PartitionAnswer]) -> Response:
    found: dict[str, None] = {}
    for one in answers:
        names = one.answer.json()
        found.update(dict.fromkeys(str(name) for name in (names if isinstance(names, list) else ())))
    return json_response([*found])


def _together(_request: Request, answers: Sequence[PartitionAnswer]) -> Response:
    return json_response({key: value for one in answers for key, value in one.document.items()})


def _first(_request: Request, answers: Sequence[PartitionAnswer]) -> Response:
    return json_response(answers[0].document)


def _stats(request: Request, answers: Sequence[PartitionAnswer]) -> Generator[None, None, Document]:
    each = yield from _documents(answers)
    name = topic_of(request)
    stats = yield from merging_steps(
        _count(request), list(each.values()), is_persistent=name.is_persistent, properties=request.state.properties
    )
    if flag(request, "perPartition", True):
        stats["partitions"] = {**each}
    return stats


def _internal_stats(request: Request, answers: Sequence[PartitionAnswer]) -> Generator[None, None, Document]:
    each = yield from _documents(answers)
    return {"metadata": partitioned_metadata(_count(request), request.state.properties), "partitions": {**each}}


def _documents(answers: Sequence[PartitionAnswer]) -> Generator[None, None, dict[str, Document]]:
    """By partition; each is parsed in a step."""
    each: dict[str, Document] = {}
    for one in answers:
        yield
        each[str(one.partition)] = one.document
    return each


def _count(request: Request) -> int:
    count: int = request.state.partitions
    return count


def _by_index(_request: Request, answers: Sequence[PartitionAnswer]) -> Response:
    return json_response({str(one.partition.partition): one.document for one in answers})


def _backlog(request: Request, answers: Sequence[PartitionAnswer]) -> Response:
    sums = dict.fromkeys(("storageSize", "totalMessages", "messageBacklog"), 0)
    ledgers: list[Json] = []
    cursors: Document = {}
    for document in (one.document for one in answers):
        for key in sums:
            value = document.get(key)
            sums[key] += value if isinstance(value, int) else 0
        of_partition = document.get("dataLedgerDetails")
        ledgers += of_partition if isinstance(of_partition, list) else []
        of_cursors = document.get("cursorDetails")
        cursors.update(of_cursors if isinstance(of_cursors, dict) else {})
    return json_response(
        {
            **answers[0].document,
            **cast("Document", sums),
            "topicName": str(topic_of(request)),
            "dataLedgerDetails": ledgers,
            "cursorDetails": cursors,
        }
    )


def _compaction(_request: Request, answers: Sequence[PartitionAnswer]) -> Response:
    return json_response(compaction.joined(one.document for one in answers))


_MISSING: Final = frozenset({404})
#: By handler.
GATHERED: Final[dict[Handler, ScatterGather]] = {
    subscriptions.list_subscriptions: ScatterGather(_names, nothing=_MISSING),
    subscriptions.create_subscription: ScatterGather(_done, passed_over=frozenset({409})),
    subscriptions.delete_subscription: ScatterGather(_done, passed_over=_MISSING),
    subscriptions.skip_all: ScatterGather(_done, passed_over=_MISSING),
    subscriptions.expire_messages: ScatterGather(_done, passed_over=_MISSING),
    subscriptions.expire_all: ScatterGather(_done, passed_over=_MISSING),
    subscriptions.reset_to_time: ScatterGather(_done, passed_over=_MISSING),
    subscriptions.get_properties: ScatterGather(_first, passed_over=_MISSING),
    subscriptions.set_properties: ScatterGather(_done, passed_over=_MISSING),
    subscriptions.get_replicated: ScatterGather(_together, passed_over=_MISSING),
    subscriptions.set_replicated: ScatterGather(_done, passed_over=_MISSING),
    compaction.trigger: ScatterGather(_done, nothing=_MISSING),
    compaction.status: ScatterGather(_compaction, nothing=_MISSING),
    compaction.forget: ScatterGather(_done, nothing=_MISSING),
    messages.backlog: ScatterGather(_backlog, passed_over=_MISSING),
    topics.get_partitioned_stats: ScatterGather(_stats, nothing=_MISSING, rest="/stats"),
    topics.get_partitioned_internal_stats: ScatterGather(_internal_stats, nothing=_MISSING, rest="/internalStats"),
    topics.unload: ScatterGather(_done, nothing=_MISSING),
    topics.truncate: ScatterGather(_done, nothing=_MISSING),
    topics.trim: ScatterGather(_quietly_done, nothing=_MISSING),
    topics.terminate_partitions: ScatterGather(_by_index, rest="/terminate"),
}
