"""Moving a cursor: SEEK of a client and what the administration asks for (reset, skip, clear, expire).

As in Pulsar, consumers are disconnected before the cursor is reset and come back by themselves. Skipping forward
leaves them connected: what they hold and was skipped is settled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from geminga.broker.compacted.reads import noted_start
from geminga.broker.core.expiry import ExpiryWalk
from geminga.broker.subscription.ack_sets import fitting
from geminga.broker.subscription.dispatch_shared import SharedDispatch
from geminga.broker.subscription.messages import entry_timestamp_ms
from geminga.managed_ledger.rules.cursor import REPLICATED, REPLICATED_PROPERTY
from geminga.model import EARLIEST, LATEST, Position
from geminga.model.errors import StorageError
from geminga.runtime import Contained, get_logger, next_turn

if TYPE_CHECKING:
    from geminga.broker.subscription.ports import DispatchedTopic
    from geminga.broker.subscription.subscription import Subscription
    from geminga.managed_ledger import Entry, ManagedLedger

_log = get_logger(__name__)

#: Bytes of entries that an expiry holds at a time.
EXPIRY_READ_BYTES: Final = 1024 * 1024


async def position_at_time(ledger: ManagedLedger, timestamp_ms: int) -> Position:
    """The first entry published at ``timestamp_ms`` or later; LATEST if there is none."""
    before = await ledger.reader.find_last(lambda entry: entry_timestamp_ms(entry.data) < timestamp_ms)
    return EARLIEST if before is None else ledger.ledgers.next_position(before)


async def seek(subscription: Subscription, position: Position, ack_set: Sequence[int] | None = None) -> None:
    """The next entry delivered is ``position`` (EARLIEST and LATEST are understood); with an ``ack_set``, only the
    messages of it whose bit is set."""
    by_index = subscription.services.config.acknowledgment_at_batch_index_level_enabled
    if position in (EARLIEST, LATEST) or not by_index:
        ack_set = None
    _, ack_set = await fitting(subscription, position, ack_set)
    await subscription.fence()
    try:
        await subscription.transactions.leave_to_cursor()
        cursor = subscription.cursor
        await cursor.reset(position)
        # Of what was noted before, the reset left none.
        noted = noted_start(subscription.topic, position)
        if noted:
            await cursor.set_properties({**cursor.properties, **noted})
        if ack_set:
            cursor.acknowledge([position], [ack_set])
    finally:
        subscription.unfence()


def is_behind_compacted(topic: DispatchedTopic) -> bool:
    """Whether the end of the topic is that of what was compacted: its log is empty."""
    return topic.compacted is not None and not topic.ledger.ledgers.entry_count


async def seek_to_time(subscription: Subscription, timestamp_ms: int) -> None:
    """The next entry delivered is the first one published at ``timestamp_ms`` or later."""
    await seek(subscription, await position_at_time(subscription.topic.ledger, timestamp_ms))


async def skip(subscription: Subscription, count: int) -> None:
    """Acknowledge the next ``count`` entries that are not acknowledged."""
    await subscription.cursor.skip(count)
    _settle(subscription)


async def clear_backlog(subscription: Subscription, through: Position = LATEST) -> None:
    """Acknowledge everything, up to ``through``."""
    await subscription.cursor.clear_backlog(through)
    _settle(subscription)


async def expire(
    subscription: Subscription, older_than_ms: int, *, is_wanted: Callable[[], bool] = lambda: True
) -> bool:
    """Acknowledge the oldest entries, those stored more than ``older_than_ms`` ago; whether there was any.

    What counts as stored when: ``core.expiry``. At most one ledger is read, in several turns of the loop. ``is_wanted``
    is asked when they are found: the policy may have changed meanwhile. If the cursor was moved meanwhile nothing is
    acknowledged: it may stand before entries that were not looked at. Raises StorageError.
    """
    cursor, ledger = subscription.cursor, subscription.topic.ledger
    now_ms, moves = subscription.now_ms(), subscription.moves
    walk = ExpiryWalk(
        ledger.extent.readable, cursor.mark_delete_position, limit_ms=now_ms - older_than_ms, now_ms=now_ms
    )
    while (look := walk.next_look()) is not None:
        entries = await ledger.reader.read_range(look.first, look.entries_max, EXPIRY_READ_BYTES)
        left = {entry.position for entry in await cursor.unacknowledged(entries)}
        walk.looked_at([(e.position, entry_timestamp_ms(e.data) if e.position in left else None) for e in entries])
        await next_turn()
    is_as_found = subscription.moves == moves and not subscription.is_moving
    return is_as_found and is_wanted() and expire_up_to(subscription, walk.found)


def expire_up_to(subscription: Subscription, position: Position | None) -> bool:
    """Acknowledge every entry up to ``position``; whether that changes anything."""
    cursor = subscription.cursor
    subscription.last_expired_ms = subscription.now_ms()
    if position is None or position <= cursor.mark_delete_position:
        return False

    def expire() -> None:
        with Contained(subscription, "expiry"):
            before = cursor.backlog_count
            cursor.acknowledge_cumulative(position)
            subscription.entries_expired += before - cursor.backlog_count
            _settle(subscription)

    def refuse(error: StorageError) -> None:
        _log.warning("%s: nothing expired: %s", subscription.name, error)

    cursor.when_loaded(cursor.ledgers_around(position), expire, refuse)
    return True


def follow(subscription: Subscription, position: Position) -> None:
    """Another cluster acknowledged everything up to what is ``position`` here; never back, nor past the topic's end."""
    cursor = subscription.cursor
    position = min(position, subscription.topic.ledger.extent.readable_position)
    if position <= cursor.mark_delete_position or subscription.is_moving:
        return

    def acknowledge() -> None:
        with Contained(subscription, "following another cluster"):
            cursor.acknowledge_cumulative(position)
            _settle(subscription)

    def refuse(error: StorageError) -> None:
        _log.warning("%s: it does not follow another cluster now: %s", subscription.name, error)

    cursor.when_loaded(cursor.ledgers_around(position), acknowledge, refuse)


async def peek(subscription: Subscription, number: int) -> tuple[Entry | None, int]:
    """The ``number``-th (from 1) entry that is not acknowledged, or None, and how many there are up to it.

    Nothing changes, and however far back it looks, one read of entries is held at a time.
    """
    cursor, ledger = subscription.cursor, subscription.topic.ledger
    bytes_max = subscription.services.config.dispatcher_max_read_size_bytes
    found = 0
    position = ledger.ledgers.next_position(cursor.mark_delete_position)
    while entries := await ledger.reader.read_range(position, number - found, bytes_max):
        for entry in await cursor.unacknowledged(entries):
            found += 1
            if found == number:
                return entry, found
        position = ledger.ledgers.next_position(entries[-1].position)
        await next_turn()  # what is in memory is read within the call
    return None, found


async def peek_stored(ledger: ManagedLedger, number: int, bytes_max: int) -> Entry | None:
    """The ``number``-th (from 1) entry that may be read, or None; as :func:`peek`."""
    found, position = 0, ledger.ledgers.first_position
    while entries := await ledger.reader.read_range(position, number - found, bytes_max):
        found += len(entries)
        if found == number:
            return entries[-1]
        position = ledger.ledgers.next_position(entries[-1].position)
        await next_turn()  # what is in memory is read within the call
    return None


def _settle(subscription: Subscription) -> None:
    dispatch = subscription.dispatch
    with Contained(subscription, "moving its cursor"):
        if isinstance(dispatch, SharedDispatch):
            dispatch.acknowledged_up_to(subscription.cursor.mark_delete_position)
        elif dispatch is not None:
            dispatch.wake_later()
        else:
            subscription.redeliveries.forget_up_to(subscription.cursor.mark_delete_position)
        subscription.topic.forget_delays()


def is_replicated(subscription: Subscription) -> bool:
    """Whether its position is told to other clusters, and is to follow theirs. A Reader's never is."""
    return subscription.is_durable and subscription.cursor.properties.get(REPLICATED_PROPERTY) == REPLICATED


async def set_replicated(subscription: Subscription, is_wanted: bool) -> None:
    """Durable on return. Raises StorageError."""
    if is_wanted == is_replicated(subscription):
        return
    cursor = subscription.cursor
    properties = {key: value for key, value in cursor.properties.items() if key != REPLICATED_PROPERTY}
    if is_wanted:
        properties[REPLICATED_PROPERTY] = REPLICATED
    await cursor.set_properties(properties)
    subscription.topic.subscriptions_changed()
