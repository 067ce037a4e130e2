"""Asks for topics of a list, and for one with all that its page shows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from geminga.admin.errors import AdminError, NotFoundError
from geminga.app.console.core.cursor_moves import NOWHERE, CursorMove, move_to
from geminga.app.console.core.positions import EntryPlace, ledgers_of
from geminga.app.console.core.topic_rows import Document, ListedTopic, TopicRow, numbers_of
from geminga.app.console.reading.browsing import partitions_of
from geminga.app.console.reading.choosing import topic_named
from geminga.app.console.tables import Refusal

if TYPE_CHECKING:
    from geminga.admin import AdminClient

#: Entries of a backlog whose messages are counted: the broker reads each of them for that.
COUNTED_ENTRIES: Final = 10_000
#: Partitions that an act asks about one by one.
PARTITIONS_ASKED_MAX: Final = 64


class Looked(NamedTuple):
    """A topic, as it answers."""

    name: str
    #: 0: it is not partitioned.
    partitions: int
    stats: Document

    @property
    def subscriptions(self) -> Document:
        """By name."""
        found: Document = self.stats.get("subscriptions", {})
        return found

    def subscription(self, name: str) -> Document:
        """One of them; raises Refusal."""
        found: Document | None = self.subscriptions.get(name)
        if found is None:
            raise Refusal(f"{self.name} has no subscription {name}.", 404)
        return found


async def look(admin: AdminClient, text: str) -> Looked:
    """Statistics of a topic, of all partitions together; raises Refusal, AdminError."""
    name = str(topic_named(text))
    partitions = await partitions_of(admin, name)
    asks: dict[str, bool] = {"precise_backlog": True, "backlog_size": True, "earliest_time": True}
    if partitions:
        return Looked(name, partitions, await admin.topics.partitioned_stats(name, **asks))
    return Looked(name, 0, await admin.topics.stats(name, **asks))


async def rows_of(admin: AdminClient, topics: Sequence[ListedTopic], now_ms: int) -> list[TopicRow]:
    """With their statistics, all at the same time."""
    return list(await asyncio.gather(*(_row(admin, topic, now_ms) for topic in topics)))


async def _row(admin: AdminClient, topic: ListedTopic, now_ms: int) -> TopicRow:
    # Producers and consumers are counted by those who are told; a list of 1,000 consumers is not its business.
    asks: dict[str, bool] = {"without_publishers": True, "without_consumers": True}
    try:
        if topic.partitions is not None:
            stats = await admin.topics.partitioned_stats(topic.name, **asks)
        else:
            stats = await admin.topics.stats(topic.name, **asks)
    except NotFoundError:
        return TopicRow(topic.name, topic.partitions, None, "deleted meanwhile, or never used")
    except AdminError as error:
        return TopicRow(topic.name, topic.partitions, None, error.reason)
    return TopicRow(topic.name, topic.partitions, numbers_of(stats, now_ms))


async def messages_waiting(admin: AdminClient, looked: Looked, subscription: str) -> int | None:
    """Messages that a subscription has not acknowledged, those of batches one by one; None: too many to be counted, or
    not to be seen. What statistics call messages are entries, as in Pulsar: a batch is one."""
    entries = int(looked.subscription(subscription).get("msgBacklog", 0))
    if not entries:
        return 0
    if entries > COUNTED_ENTRIES or looked.partitions > PARTITIONS_ASKED_MAX:
        return None
    names = [f"{looked.name}-partition-{number}" for number in range(looked.partitions)] or [looked.name]
    found = await asyncio.gather(*(_counted(admin, name, subscription) for name in names))
    counts = [count for count in found if count is not None]
    return sum(counts) if len(counts) == len(found) else None


async def _counted(admin: AdminClient, topic: str, subscription: str) -> int | None:
    try:
        found = await admin.subscriptions.analyze_backlog(topic, subscription)
    except AdminError:
        return None
    return None if found.get("aborted") else int(found.get("messages", 0))


async def moves(
    admin: AdminClient, looked: Looked, subscription: str, *, to_ms: int | None, place: EntryPlace | None
) -> CursorMove:
    """What moving a cursor does, of all partitions: to the first message since ``to_ms``, or to ``place``; neither: to
    the end. Raises Refusal, AdminError."""
    if not looked.partitions:
        return await _move(admin, looked.name, subscription, to_ms, place)
    if looked.partitions > PARTITIONS_ASKED_MAX:
        raise Refusal(
            f"{looked.name} has {looked.partitions:,} partitions, and what this does is counted for "
            f"{PARTITIONS_ASKED_MAX} at most. Do it for its partitions, one by one.",
            409,
        )
    names = [f"{looked.name}-partition-{number}" for number in range(looked.partitions)]
    found = await asyncio.gather(*(_move(admin, name, subscription, to_ms, place) for name in names))
    whole = NOWHERE
    for move in found:
        whole = whole.plus(move)
    return whole


async def _move(
    admin: AdminClient, topic: str, subscription: str, to_ms: int | None, place: EntryPlace | None
) -> CursorMove:
    internal = await admin.topics.internal_stats(topic)
    cursor: dict[str, Any] | None = internal.get("cursors", {}).get(subscription)
    if cursor is None:
        return NOWHERE
    if to_ms is not None:
        found = await admin.messages.message_id_at(topic, to_ms)
        place = EntryPlace(int(found["ledgerId"]), int(found["entryId"]))
    return move_to(ledgers_of(internal), cursor, place)
