"""How long an ack set may be is known by the entry alone: long ones are checked against it, and cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from geminga.broker.core.ack_set import WORDS_MAX, WORDS_SHORT, cut_to_batch
from geminga.model import Position
from geminga.model.errors import NotAllowedError
from geminga.wire.pulsar.metadata import peek_metadata
from geminga.wire.pulsar.numbers import batch_size

if TYPE_CHECKING:
    from geminga.broker.subscription.subscription import Subscription
    from geminga.managed_ledger import ManagedLedger


def is_short(ack_set: Sequence[int]) -> bool:
    """Whether it is taken as it is."""
    return len(ack_set) <= WORDS_SHORT


async def fitting(
    subscription: Subscription, position: Position, ack_set: Sequence[int] | None
) -> tuple[bool, tuple[int, ...] | None]:
    """Whether there is such an entry, and the ack set without what lies behind its batch.

    NotAllowedError for a set that no batch can have; StorageError if the entry can not be read.
    """
    if ack_set is None:
        return True, None
    if is_short(ack_set):
        return True, tuple(ack_set)
    _check_length(ack_set)
    size = await _size(subscription.topic.ledger, position)
    return (False, None) if size is None else (True, cut_to_batch(ack_set, size))


async def size_and_words(
    ledger: ManagedLedger, position: Position, ack_set: Sequence[int]
) -> tuple[int, tuple[int, ...]]:
    """How many messages the entry really has, and the ack set without what lies behind them.

    NotAllowedError if there is no such entry, or no batch can have such a set; StorageError if it can not be read.
    """
    _check_length(ack_set)
    size = await _size(ledger, position)
    if size is None:
        raise NotAllowedError(
            f"There is no message {position.ledger_id}:{position.entry_id} that could be acknowledged"
        )
    return size, cut_to_batch(ack_set, size)


def _check_length(ack_set: Sequence[int]) -> None:
    if len(ack_set) > WORDS_MAX:
        raise NotAllowedError(f"An ack set of more than {WORDS_MAX} words")


async def _size(ledger: ManagedLedger, position: Position) -> int | None:
    """Messages of the entry; None: there is none."""
    entries = await ledger.reader.read([position])
    if not entries:
        return None
    data = entries[0].data
    metadata = peek_metadata(data)
    return batch_size(metadata, len(data)) if metadata is not None else 1
