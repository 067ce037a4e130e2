"""How each subscription of a topic stands with one message, and why nothing moves (the doctor's sentences)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from geminga.admin.errors import AdminError, NotFoundError
from geminga.app.console.core.delivery import DeliveryFacts, MessageDelivery, delivery_of, is_told_by_cursor
from geminga.app.console.core.moments import MomentError, milliseconds_of
from geminga.app.console.core.positions import StartPlace, start_of
from geminga.app.handles.core.causes import Finding
from geminga.app.handles.doctor import examine

if TYPE_CHECKING:
    from geminga.admin import AdminClient
    from geminga.app.console.core.entries import ViewedMessage

#: Subscriptions that one page tells of.
SUBSCRIPTIONS_TOLD_MAX: Final = 20
#: Backlogs that are looked through at the same time.
BACKLOGS_AT_ONCE: Final = 2
#: Of brokers, which nobody reads a topic by.
_OWN: Final = ("pulsar.repl.", "__")


class SubscriptionStanding(NamedTuple):
    """Of one subscription with the message."""

    subscription: str
    delivery: MessageDelivery
    #: Why what it has not acknowledged does not move.
    findings: Sequence[Finding]


class Deliveries(NamedTuple):
    """Of all that were asked about."""

    standings: Sequence[SubscriptionStanding]
    #: About the topic as a whole.
    findings: Sequence[Finding]
    #: Subscriptions beyond :data:`SUBSCRIPTIONS_TOLD_MAX`.
    left_out: int


async def deliveries_of(
    admin: AdminClient, topic: str, message: ViewedMessage, start: StartPlace, *, subscription: str = "", now_ms: int
) -> Deliveries:
    """``start``: where the message is; ``subscription``: about it alone; ``now_ms``: since the epoch.

    A topic without partitions, or one partition. Raises AdminError.
    """
    stats, internal = await asyncio.gather(admin.topics.stats(topic), admin.topics.internal_stats(topic))
    known: Mapping[str, Any] = stats.get("subscriptions") or {}
    if subscription and subscription not in known:
        raise NotFoundError(topic, 404, f"there is no subscription {subscription} any more")
    names = [subscription] if subscription else sorted(name for name in known if not name.startswith(_OWN))
    told = names[:SUBSCRIPTIONS_TOLD_MAX]
    cursors: Mapping[str, Any] = internal.get("cursors") or {}
    turns = asyncio.Semaphore(BACKLOGS_AT_ONCE)

    async def backlog_of(name: str) -> Mapping[str, Any] | None:
        async with turns:
            cursor = cursors.get(name) or {}
            return await _backlog(admin, topic, name, start, cursor, in_batch=message.batch_index >= 0)

    found, *backlogs = await asyncio.gather(examine(admin, topic, now_ms=now_ms), *map(backlog_of, told))
    findings = [each for several in found.values() for each in several]
    standings = []
    for name, backlog in zip(told, backlogs, strict=True):
        facts = DeliveryFacts(
            start.place,
            message.batch_index,
            _deliver_at_ms(message),
            now_ms,
            known[name],
            cursors.get(name) or {},
            (backlog or {}).get("positions"),
        )
        mine = [each for each in findings if each.subscription == name]
        standings.append(SubscriptionStanding(name, delivery_of(facts), mine))
    of_topic = [each for each in findings if not each.subscription]
    return Deliveries(standings, of_topic, max(len(names) - SUBSCRIPTIONS_TOLD_MAX, 0))


async def standings_of(
    admin: AdminClient, topic: str, subscription: str, messages: Sequence[ViewedMessage], *, now_ms: int
) -> Mapping[str, MessageDelivery]:
    """By id, of the messages of a page with one subscription. Raises AdminError."""
    if not messages:
        return {}
    stats = await admin.topics.stats(topic)
    known: Mapping[str, Any] = stats.get("subscriptions") or {}
    if subscription not in known:
        raise NotFoundError(topic, 404, f"there is no subscription {subscription}")
    cursors = (await admin.topics.internal_stats(topic)).get("cursors") or {}
    starts = {message.id: start_of(message.id) for message in messages}
    first = min(starts.values())
    in_batch = any(message.batch_index >= 0 for message in messages)
    cursor = cursors.get(subscription) or {}
    page = await _backlog(admin, topic, subscription, first, cursor, in_batch=in_batch)
    told = (page or {}).get("positions")
    further = (page or {}).get("nextMessageId")
    end = start_of(str(further)).place if further else None
    found = {}
    for message in messages:
        place = starts[message.id].place
        # Behind what was looked at only the ranges of the cursor say something.
        is_told = told is not None and (end is None or place < end)
        facts = DeliveryFacts(
            place,
            message.batch_index,
            _deliver_at_ms(message),
            now_ms,
            known[subscription],
            cursor,
            told if is_told else None,
        )
        found[message.id] = delivery_of(facts)
    return found


async def _backlog(
    admin: AdminClient,
    topic: str,
    subscription: str,
    start: StartPlace,
    cursor: Mapping[str, Any],
    *,
    in_batch: bool,
) -> Mapping[str, Any] | None:
    """What is not acknowledged from a message on; None: the cursor tells as much, or nobody does.

    A broker looks through thousands of entries for it.
    """
    if is_told_by_cursor(cursor, in_batch=in_batch):
        return None
    try:
        return await admin.subscriptions.analyze_backlog(topic, subscription, positions=True, start=str(start.place))
    except AdminError:
        return None


def _deliver_at_ms(message: ViewedMessage) -> int:
    try:
        return milliseconds_of(message.deliver_at) if message.deliver_at else 0
    except MomentError:
        return 0
