"""Acknowledgments: from message ids on the wire to the cursor and the dispatcher's books.

Pulsar's behaviour, with its corners: cumulative ones are not for Shared and Key_Shared; a consumer may acknowledge
what another consumer of the subscription holds; without ``acknowledgmentAtBatchIndexLevelEnabled`` an
acknowledgment of part of a batch is dropped (the client will acknowledge the whole batch when it is through).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from geminga.broker.core.ack_properties import NO_PROPERTIES
from geminga.broker.subscription.ack_sets import is_short
from geminga.broker.subscription.consumer import INDIVIDUAL_ACK_TYPES, Consumer
from geminga.broker.subscription.dispatch_shared import SharedDispatch
from geminga.broker.subscription.entry_filter import count_bits
from geminga.model import Position
from geminga.model.errors import GemingaError, NotAllowedError, StorageError
from geminga.runtime import Contained
from geminga.wire.pulsar.hot import AckedId

if TYPE_CHECKING:
    from geminga.broker.subscription.subscription import Subscription

#: Called once the acknowledgment is durable, or with what went wrong.
AckDone = Callable[[GemingaError | None], None]


def needs_turns(ids: Iterable[AckedId]) -> bool:
    """Whether an ack set among them is long enough to be checked against its entry first (``long_commands``)."""
    found = False
    for _, _, ack_set in ids:  # any(...) would make a generator for each acknowledgment
        found |= ack_set is not None and not is_short(ack_set)
    return found


def acknowledge(
    subscription: Subscription,
    consumer: Consumer,
    ids: Sequence[AckedId],
    *,
    is_cumulative: bool,
    done: AckDone | None,
    properties: Mapping[str, int] = NO_PROPERTIES,
) -> None:
    """Apply an ACK; ``done`` (only if the client asked for a response) is called once it is durable.

    ``properties`` are kept with the position that a cumulative one moves; with single ones, as in Pulsar, they are not.

    Its ack sets are short, or known to fit their batches (``ack_sets``).
    """
    consumer.last_acked_ms = subscription.topic.services.runtime.clock.wall_ms()
    cursor = subscription.cursor
    if cursor.is_in_memory:
        _apply(subscription, consumer, ids, is_cumulative, done, properties)
        return
    # How many messages of a batch are left is known only with what was acknowledged of it before.
    with Contained(subscription, "an acknowledgment"):
        cursor.when_loaded(
            {acked[0] for acked in ids},
            partial(_apply, subscription, consumer, ids, is_cumulative, done, properties),
            partial(_answer, done),
        )


def _apply(
    subscription: Subscription,
    consumer: Consumer,
    ids: Sequence[AckedId],
    is_cumulative: bool,
    done: AckDone | None,
    properties: Mapping[str, int],
) -> None:
    dispatch = subscription.dispatch
    with Contained(subscription, "an acknowledgment") if dispatch is None else dispatch.contained:
        if is_cumulative:
            _acknowledge_cumulative(subscription, consumer, ids, done, properties)
        else:
            _acknowledge_individual(subscription, consumer, ids, done)
        if dispatch is not None and subscription.topic.ledger.stored.terminated_position is not None:
            dispatch.wake_later()  # this may have been the last one before the end of the topic


def _acknowledge_cumulative(
    subscription: Subscription,
    consumer: Consumer,
    ids: Sequence[AckedId],
    done: AckDone | None,
    properties: Mapping[str, int],
) -> None:
    if consumer.type in INDIVIDUAL_ACK_TYPES:
        _answer(done, NotAllowedError("Cumulative acknowledgment is not allowed on Shared and Key_Shared"))
        return
    if len(ids) != 1:
        _answer(done, NotAllowedError(f"Cumulative acknowledgment of {len(ids)} message ids instead of one"))
        return
    ledger_id, entry_id, ack_set = ids[0]
    position = Position(ledger_id, entry_id)
    if ack_set is not None and not any(ack_set):
        ack_set = None
    if ack_set is not None and not subscription.topic.services.config.acknowledgment_at_batch_index_level_enabled:
        # The batch itself is not through: everything before it is.
        position, ack_set = subscription.topic.ledger.ledgers.previous_position(position), None
    consumer.messages_acked += 1
    subscription.cursor.acknowledge_cumulative(position, ack_set, done, properties=properties)


def _acknowledge_individual(
    subscription: Subscription, consumer: Consumer, ids: Sequence[AckedId], done: AckDone | None
) -> None:
    dispatch = subscription.dispatch
    positions: list[Position] = []
    ack_sets: list[Sequence[int] | None] = []
    has_ack_set = False
    by_index = subscription.topic.services.config.acknowledgment_at_batch_index_level_enabled
    for ledger_id, entry_id, ack_set in ids:
        if ack_set is not None and any(ack_set):
            if not by_index:
                continue
            has_ack_set = True
            ack_sets.append(ack_set)
        else:
            ack_sets.append(None)  # all of it, or the last of its batch
        positions.append(Position(ledger_id, entry_id))
    if not positions:
        _answer(done, None)
        return
    if isinstance(dispatch, SharedDispatch):
        wants_wake = False
        for position, words in zip(positions, ack_sets, strict=True):
            count = dispatch.pending_count(consumer, position)
            remaining = 0 if words is None else _remaining(subscription, position, words)
            consumer.messages_acked += max(0, count - remaining)
            if dispatch.acknowledged(consumer, position, remaining):
                wants_wake = True
        if wants_wake:
            dispatch.wake_later()
    else:
        consumer.messages_acked += len(positions)
    subscription.cursor.acknowledge(positions, ack_sets if has_ack_set else None, done)
    if isinstance(dispatch, SharedDispatch) and dispatch.pause.is_on:
        dispatch.wake_later()


def _remaining(subscription: Subscription, position: Position, ack_set: Sequence[int]) -> int:
    """Messages of the batch that are left after this acknowledgment and all before it."""
    before = subscription.cursor.state.ack_set(position)
    if before is None:
        return count_bits(ack_set)
    return count_bits([a & b for a, b in zip(before, ack_set, strict=False)])


def _answer(done: AckDone | None, error: StorageError | NotAllowedError | None) -> None:
    if done is not None:
        done(error)
