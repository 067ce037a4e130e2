"""The last message of a topic that a consumer can get: markers and what is hidden behind it do not count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from geminga.broker.subscription.messages import is_marker, last_batch_index
from geminga.model import Position
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import peek_metadata

if TYPE_CHECKING:
    from geminga.broker.compacted.reads import CompactedMessages
    from geminga.managed_ledger import ManagedLedger

#: What parts of the topic say of entries that no reader is to see.
Hides = Sequence[Callable[[Position, pb.MessageMetadata], bool]]
#: What there is when there is no message.
NO_MESSAGE: Final = Position(-1, -1)


async def last_message_id(
    ledger: ManagedLedger, hides: Hides = (), compacted: CompactedMessages | None = None
) -> tuple[Position, int]:
    """(position, index of the last message in its batch or -1); (NO_MESSAGE, -1) if the topic has none.

    ``compacted``: of what a consumer of compacted messages gets: up to the horizon the log does not count.
    """
    if compacted is not None and ledger.extent.readable_position <= compacted.horizon:
        return await _last_compacted(compacted)
    found = await _last_of_log(ledger, hides)
    if compacted is not None and found[0] <= compacted.horizon:
        return await _last_compacted(compacted)
    return found


async def _last_compacted(compacted: CompactedMessages) -> tuple[Position, int]:
    from geminga.broker.core.compaction.entry_messages import last_index_of

    entry = await compacted.last()
    return (NO_MESSAGE, -1) if entry is None else (entry.position, last_index_of(entry.data))


async def _last_of_log(ledger: ManagedLedger, hides: Hides) -> tuple[Position, int]:
    position = ledger.extent.readable_position
    first = ledger.ledgers.first_position
    # Each step is one entry of the log: it ends at its beginning.
    while position.entry_id >= 0 and position >= first:
        entries = await ledger.reader.read([position])
        if not entries:
            break  # trimmed
        data = entries[0].data
        if not is_marker(data) and not (hides and _is_hidden(position, data, hides)):
            return position, last_batch_index(data)
        position = ledger.ledgers.previous_position(position)
    return NO_MESSAGE, -1


def _is_hidden(position: Position, data: bytes, hides: Hides) -> bool:
    metadata = peek_metadata(data)
    return metadata is not None and any(hide(position, metadata) for hide in hides)
