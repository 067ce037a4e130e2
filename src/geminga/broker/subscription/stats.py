"""Statistics of subscriptions and consumers under Pulsar's JSON names, for the REST API, /metrics and CONSUMER_STATS.

Nothing is computed while nobody asks: counters are plain ints, and a rate is the change since the last time
somebody asked, at least :data:`RATE_WINDOW_MIN_S` ago.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from geminga.broker.core.dispatch.consumer_state import ConsumerState
from geminga.broker.core.dispatch.draining_hashes import DrainingHash
from geminga.broker.core.dispatch.hash_ranges import ConsistentHashRing, StickyKeySelector
from geminga.broker.core.dispatch.key_shared import KeySharedDispatcher
from geminga.broker.core.expiry import stored_between, stored_ms
from geminga.broker.subscription.consumer import INDIVIDUAL_ACK_TYPES, Consumer, Key_Shared
from geminga.broker.subscription.dispatch_shared import SharedDispatch
from geminga.broker.subscription.messages import entry_timestamp_ms
from geminga.broker.subscription.non_persistent import NonPersistentSubscription
from geminga.broker.subscription.rates import Rates
from geminga.broker.subscription.seek import is_replicated
from geminga.broker.subscription.subscription import Subscription
from geminga.managed_ledger.rules.unreadable import is_lost
from geminga.model.errors import StorageError
from geminga.wire._generated import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from geminga.managed_ledger import Entry, ManagedCursor

Json = dict[str, object]
#: Of a topic of either kind.
AnySubscription = Subscription | NonPersistentSubscription

#: Of a time to the second, in ISO 8601.
_SECONDS_DIGITS: Final = 19
#: The end of the year 9999, milliseconds since the epoch.
TIME_MS_MAX: Final = 253_402_300_799_999
#: What the statistics of a subscription have where no filter was asked, and no rate has held it.
NOT_IN_GEMINGA: Final[Mapping[str, int]] = dict.fromkeys(
    (
        "filterProcessedMsgCount",
        "filterAcceptedMsgCount",
        "filterRejectedMsgCount",
        "filterRescheduledMsgCount",
        "dispatchThrottledMsgEventsBySubscriptionLimit",
        "dispatchThrottledBytesEventsBySubscriptionLimit",
        "dispatchThrottledMsgEventsByTopicLimit",
        "dispatchThrottledBytesEventsByTopicLimit",
        "dispatchThrottledMsgEventsByBrokerLimit",
        "dispatchThrottledBytesEventsByBrokerLimit",
    ),
    0,
)
#: Of a subscription of a non-persistent topic: it has no backlog, and outlives nothing.
NOTHING_STORED: Final[Mapping[str, object]] = {
    "msgBacklog": 0,
    "backlogSize": 0,
    "msgBacklogNoDelayed": 0,
    "msgDelayed": 0,
    "msgInReplay": 0,
    "unackedMessages": 0,
    "blockedSubscriptionOnUnackedMsgs": False,
    "msgExpired": 0,
    "totalMsgExpired": 0,
    "msgRateExpired": 0.0,
    "lastExpireTimestamp": 0,
    "lastMarkDeleteAdvancedTimestamp": 0,
    "isDurable": False,
    "durable": False,
    "nonContiguousDeletedMessagesRanges": 0,
    "nonContiguousDeletedMessagesRangesSerializedSize": 0,
    "delayedMessageIndexSizeInBytes": 0,
}
#: Names of the subscription types, as Pulsar prints them.
TYPE_NAMES: Final = {
    pb.CommandSubscribe.Exclusive: "Exclusive",
    pb.CommandSubscribe.Shared: "Shared",
    pb.CommandSubscribe.Failover: "Failover",
    pb.CommandSubscribe.Key_Shared: "Key_Shared",
}


def _consumer_stats(consumer: Consumer, draining: Sequence[DrainingHash] = ()) -> Json:
    """``ConsumerStats`` of Pulsar's topic statistics; ``draining``: its hashes that moved on, Key_Shared only."""
    rates = _consumer_rates(consumer)
    is_individual = consumer.type in INDIVIDUAL_ACK_TYPES
    stats: Json = {
        "msgRateOut": rates[0],
        "msgThroughputOut": rates[1],
        "bytesOutCounter": consumer.bytes_out,
        "msgOutCounter": consumer.messages_out,
        "msgRateRedeliver": rates[2],
        "messageAckRate": rates[3],
        "chunkedMessageRate": rates[4],
        "consumerName": consumer.name,
        "availablePermits": consumer.permits,
        "unackedMessages": consumer.unacked_count if is_individual else 0,
        "avgMessagesPerEntry": round(consumer.messages_per_entry),
        "blockedConsumerOnUnackedMsgs": consumer.was_blocked,
        "address": consumer.connection.peer,
        "connectedSince": iso_time(consumer.connected_since_ms),
        "clientVersion": consumer.connection.client_version,
        "lastAckedTimestamp": consumer.last_acked_ms,
        "lastAckedTime": iso_time(consumer.last_acked_ms),
        "lastConsumedTimestamp": consumer.last_consumed_ms,
        "lastConsumedTime": iso_time(consumer.last_consumed_ms),
        "lastConsumedFlowTimestamp": consumer.last_flow_ms,
        "firstMessagesSentTimestamp": consumer.first_sent_ms,
        "firstConsumedFlowTimestamp": consumer.first_flow_ms,
        "drainingHashesCount": len(draining),
        "drainingHashesClearedTotal": consumer.draining_cleared,
        "drainingHashesUnackedMessages": sum(each.messages for each in draining),
        "metadata": dict(consumer.metadata),
    }
    if consumer.type == Key_Shared:
        stats["keyHashRangeArrays"] = _key_ranges(consumer)
        if not isinstance(consumer.subscription, NonPersistentSubscription):
            stats["drainingHashes"] = [
                {"hash": each.sticky_hash, "unackMsgs": each.messages, "blockedAttempts": each.blocked_attempts}
                for each in draining
            ]
    return stats


def consumers_stats(subscription: AnySubscription) -> Iterator[tuple[Consumer, Json]]:
    """``ConsumerStats`` of each consumer. Clients decide how many there are; some come and go while they are told."""
    draining = _draining(subscription)
    for consumer in [*subscription.consumers]:
        yield consumer, _consumer_stats(consumer, draining.get(consumer, ()))


def subscription_counts(subscription: AnySubscription) -> Json:
    """``SubscriptionStats`` without what each consumer has."""
    if isinstance(subscription, NonPersistentSubscription):
        stats = _common_stats(subscription)
        stats |= NOTHING_STORED
        return stats | {
            "subscriptionProperties": {},
            "msgDropRate": _rates(subscription)[5],
            **_filter_counts(subscription),
        }
    dispatch = subscription.dispatch
    shared = dispatch if isinstance(dispatch, SharedDispatch) else None
    due = shared.due if shared is not None else None
    delayed = due.count if due is not None else 0
    backlog = subscription.cursor.backlog_count
    stats = _common_stats(subscription)
    stats |= {
        "msgExpired": subscription.entries_expired,
        "totalMsgExpired": subscription.entries_expired,
        "msgRateExpired": _rates(subscription)[6],
        "lastExpireTimestamp": subscription.last_expired_ms,
        "lastMarkDeleteAdvancedTimestamp": subscription.cursor.use.moved_ms,
        "blockedSubscriptionOnUnackedMsgs": shared is not None and shared.core.is_blocked,
        "msgBacklog": backlog,
        "backlogSize": unacknowledged_bytes(subscription),
        "msgBacklogNoDelayed": backlog - delayed,
        "msgDelayed": delayed,
        "msgInReplay": len(shared.core.replay) if shared is not None else 0,
        "unackedMessages": shared.core.unacked_count if shared is not None else 0,
        "isDurable": subscription.is_durable,
        "durable": subscription.is_durable,
        "subscriptionProperties": dict(subscription.cursor.cursor_properties),
        "nonContiguousDeletedMessagesRanges": subscription.cursor.state.acked.range_count,
        "nonContiguousDeletedMessagesRangesSerializedSize": _saved_ranges_bytes(subscription.cursor),
        "delayedMessageIndexSizeInBytes": due.memory_bytes if due is not None else 0,
        **subscription.throttled_counts,
        **_filter_counts(subscription),
    }
    if dispatch is not None and dispatch.read_error is not None:
        # Pulsar tells nobody; those who wait for messages are to see why none come.
        stats["readError"] = {
            "ledgerId": subscription.cursor.read_position.ledger_id,
            "error": dispatch.read_error.told,
            "isLost": is_lost(dispatch.read_error),
        }
    if dispatch is not None and dispatch.held_by is not None:
        # What the counters above say of the past, said of now; as little as Pulsar tells of the next.
        stats["heldByRate"] = dispatch.held_by.level
    if delayed and due is not None and due.next_due_ms is not None:
        stats["nextDueTimestamp"] = due.next_due_ms
    if shared is not None and isinstance(shared.core, KeySharedDispatcher):
        stats |= {
            "allowOutOfOrderDelivery": shared.allows_out_of_order,
            "keySharedMode": shared.key_shared_mode,
        }
    return stats


def _filter_counts(subscription: AnySubscription) -> Json:
    """What its entry filters said, in messages; nothing where it never had any."""
    found = subscription.filter
    if found is None:
        return {}
    failure: Json = {}
    if found.error is not None and subscription.consumers and subscription.topic.filters is not None:
        # Pulsar tells nobody; those who wait for messages are to see why none come, or why too many.
        failure["filterFailure"] = {
            "filters": ",".join(found.filters.names),
            "error": str(found.error),
            "isHeld": found.is_held,
        }
    return {
        **failure,
        "filterProcessedMsgCount": found.processed,
        "filterAcceptedMsgCount": found.accepted,
        "filterRejectedMsgCount": found.rejected,
        "filterRescheduledMsgCount": found.rescheduled,
        "filterUnfilteredMsgCount": found.unfiltered,
    }


def backlog_bytes(subscription: Subscription, *, is_limited: bool = True) -> int:
    """Bytes that are kept for it: of the ledgers behind the mark-delete position, and by the mean entry of its own.

    ``is_limited``: without what is stored and may not be read yet.
    """
    return _bytes_behind(subscription, lambda _: 0, is_limited=is_limited)


def _saved_ranges_bytes(cursor: ManagedCursor) -> int:
    """Bytes of the newest save that holds such ranges; 0 without any, or if it is not by this process."""
    return cursor.store.saved_bytes if cursor.store is not None and cursor.state.acked.range_count else 0


def unacknowledged_bytes(subscription: Subscription) -> int:
    """The same without what is acknowledged behind the mark-delete position, by the mean entry of each ledger."""
    return _bytes_behind(subscription, subscription.cursor.state.acked.count_in, is_limited=True)


def _bytes_behind(subscription: Subscription, acknowledged_in: Callable[[int], int], *, is_limited: bool) -> int:
    ledger_id, entry_id = subscription.cursor.mark_delete_position
    ledger = subscription.topic.ledger
    size_bytes = 0
    for info in reversed((ledger.extent.readable if is_limited else ledger.ledgers).infos):
        if info.ledger_id < ledger_id:
            break
        left = info.entries - entry_id - 1 if info.ledger_id == ledger_id else info.entries
        left -= acknowledged_in(info.ledger_id)
        if left > 0:
            whole = ledger.ledgers.find(info.ledger_id) or info
            size_bytes += whole.size_bytes * left // whole.entries
    return size_bytes


async def oldest_publish_time_ms(subscription: Subscription) -> int | None:
    """What the oldest entry that is not acknowledged says of its time; None without a backlog. Raises StorageError."""
    entry = await _oldest_entry(subscription)
    return None if entry is None else entry_timestamp_ms(entry.data)


async def oldest_stored_ms(subscription: Subscription) -> int | None:
    """When the oldest entry that is not acknowledged counts as stored (``core.expiry``), at most now; None without a
    backlog. Of one in a closed ledger that can not be read: the latest that it can be. Raises StorageError."""
    ledgers = subscription.topic.ledger.ledgers
    try:
        entry = await _oldest_entry(subscription)
    except StorageError:
        oldest = ledgers.next_position(subscription.cursor.mark_delete_position)
        info = ledgers.find(oldest.ledger_id)
        if info is None or not info.closed_ms:
            raise
        return stored_between(ledgers, info, subscription.now_ms())[1]
    info = ledgers.find(entry.ledger_id) if entry is not None else None
    if entry is None or info is None:
        return None
    return stored_ms(ledgers, info, entry_timestamp_ms(entry.data), subscription.now_ms())


async def _oldest_entry(subscription: Subscription) -> Entry | None:
    if not subscription.cursor.backlog_count:
        return None
    ledger = subscription.topic.ledger
    entries = await ledger.reader.read([ledger.ledgers.next_position(subscription.cursor.mark_delete_position)])
    return entries[0] if entries else None


def totals(subscription: AnySubscription) -> tuple[int, int, int, int, int]:
    """Messages out, bytes out, messages redelivered, messages acknowledged, chunks out; gone consumers included."""
    consumers = subscription.consumers
    return (
        subscription.messages_out_closed + sum(c.messages_out for c in consumers),
        subscription.bytes_out_closed + sum(c.bytes_out for c in consumers),
        subscription.messages_redelivered_closed + sum(c.messages_redelivered for c in consumers),
        subscription.messages_acked_closed + sum(c.messages_acked for c in consumers),
        subscription.chunks_out_closed + sum(c.chunks_out for c in consumers),
    )


def consumer_stats_response(request_id: int, consumer_id: int, consumer: Consumer | None) -> pb.BaseCommand:
    """CONSUMER_STATS_RESPONSE."""
    if consumer is None:
        response = pb.CommandConsumerStatsResponse(
            request_id=request_id, error_message=f"no consumer {consumer_id} on this connection"
        )
        response.error_code = pb.ConsumerNotFound
    else:
        subscription = consumer.subscription
        rates = _consumer_rates(consumer)
        response = pb.CommandConsumerStatsResponse(
            request_id=request_id,
            msgRateOut=rates[0],
            msgThroughputOut=rates[1],
            msgRateRedeliver=rates[2],
            messageAckRate=rates[3],
            consumerName=consumer.name,
            availablePermits=max(0, consumer.permits),
            unackedMessages=max(0, consumer.unacked_count),
            blockedConsumerOnUnackedMsgs=consumer.was_blocked,
            address=consumer.connection.peer,
            connectedSince=iso_time(consumer.connected_since_ms),
            type=TYPE_NAMES[consumer.type],
            msgBacklog=subscription.cursor.backlog_count if isinstance(subscription, Subscription) else 0,
        )
    return pb.BaseCommand(type=pb.BaseCommand.CONSUMER_STATS_RESPONSE, consumerStatsResponse=response)


def iso_time(time_ms: int) -> str:
    """A time as Pulsar prints it: ISO 8601, UTC, no digits that it does not need; past the calendar, its end."""
    time_ms = min(max(time_ms, 0), TIME_MS_MAX)
    moment = datetime.fromtimestamp(time_ms // 1000, UTC)
    return moment.isoformat()[:_SECONDS_DIGITS] + f".{time_ms % 1000:03d}".rstrip("0").rstrip(".") + "Z"


def _draining(subscription: AnySubscription) -> Mapping[ConsumerState, Sequence[DrainingHash]]:
    """Hashes that moved on and are held until their messages are acknowledged: Key_Shared only."""
    shared = subscription.dispatch if isinstance(subscription, Subscription) else None
    core = shared.core if isinstance(shared, SharedDispatch) else None
    return core.draining() if isinstance(core, KeySharedDispatcher) else {}


def _common_stats(subscription: AnySubscription) -> Json:
    rates, draining = _rates(subscription), _draining(subscription)
    messages, size_bytes, _, _, _ = totals(subscription)
    consumers = subscription.consumers
    active = subscription.active_consumer
    replicated = isinstance(subscription, Subscription) and is_replicated(subscription)
    stats: Json = {
        "msgRateOut": rates[0],
        "msgThroughputOut": rates[1],
        "bytesOutCounter": size_bytes,
        "msgOutCounter": messages,
        "msgRateRedeliver": rates[2],
        "messageAckRate": rates[3],
        "chunkedMessageRate": rates[4],
        "type": TYPE_NAMES[subscription.type] if subscription.type is not None else "None",
        "lastConsumedTimestamp": max([subscription.last_consumed_ms, *(c.last_consumed_ms for c in consumers)]),
        "lastConsumedFlowTimestamp": max([subscription.last_flow_ms, *(c.last_flow_ms for c in consumers)]),
        "lastAckedTimestamp": max([subscription.last_acked_ms, *(c.last_acked_ms for c in consumers)]),
        "isReplicated": replicated,
        "replicated": replicated,
        "allowOutOfOrderDelivery": False,
        "earliestMsgPublishTimeInBacklog": 0,
        "consumersAfterMarkDeletePosition": {},
        "drainingHashesCount": sum(map(len, draining.values())),
        "drainingHashesClearedTotal": subscription.draining_cleared_closed + sum(c.draining_cleared for c in consumers),
        "drainingHashesUnackedMessages": sum(each.messages for hashes in draining.values() for each in hashes),
        **NOT_IN_GEMINGA,
    }
    if active is not None:
        stats["activeConsumerName"] = active.name
    return stats


def _rates(subscription: AnySubscription) -> tuple[float, ...]:
    if subscription.rates is None:
        subscription.rates = Rates()
    dropped = subscription.messages_dropped if isinstance(subscription, NonPersistentSubscription) else 0
    expired = 0 if isinstance(subscription, NonPersistentSubscription) else subscription.entries_expired
    now = subscription.services.runtime.clock.monotonic()
    return subscription.rates.update(now, (*totals(subscription), dropped, expired))


def _consumer_rates(consumer: Consumer) -> tuple[float, ...]:
    if consumer.rates is None:
        consumer.rates = Rates()
    counters = (
        consumer.messages_out,
        consumer.bytes_out,
        consumer.messages_redelivered,
        consumer.messages_acked,
        consumer.chunks_out,
    )
    return consumer.rates.update(consumer.subscription.services.runtime.clock.monotonic(), counters)


def _key_ranges(consumer: Consumer) -> list[list[int]]:
    """First and last hash of each key range, those that touch as one."""
    subscription = consumer.subscription
    selector: StickyKeySelector | None = None
    if isinstance(subscription, NonPersistentSubscription):
        selector = subscription.selector
    elif isinstance(subscription, Subscription) and isinstance(subscription.dispatch, SharedDispatch):
        core = subscription.dispatch.core
        selector = core.selector if isinstance(core, KeySharedDispatcher) else None
    ranges: list[list[int]] = []
    for first, last, owner in selector.ranges() if selector is not None else ():
        if owner is not consumer:
            continue
        if isinstance(selector, ConsistentHashRing):
            # No key has the hash 0 there.
            first = max(first, 1)
        if ranges and ranges[-1][1] == first - 1:
            ranges[-1][1] = last
        else:
            ranges.append([first, last])
    return ranges
