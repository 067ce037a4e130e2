"""The last message of a topic that a consumer can get: markers and what is hidden behind it do not count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from geminga.broker.subscription.messages import is_marker, last_batch_index
from geminga.model import EARLIEST, Position
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import peek_metadata

if TYPE_CHECKING:
    from geminga.broker.compacted.reads import CompactedMessages
    from geminga.managed_ledger import ManagedLedger

#: What parts of the topic say of entries that no reader is to see.
Hides = Sequence[Callable[[Position, pb.MessageMetadata], bool]]
#: What there is when there is no message.
NO_MESSAGE: Final = Position(-1, -1)
#: Nothing of a topic is known to be hidden.
NO_TAIL: Final = (EARLIEST, EARLIEST)


class KnowsTail(Protocol):
    """A topic, as far as it is known that there is nothing to see at its end."""

    #: Behind the first of these, and up to the second, there is no message that anybody gets.
    hidden_tail: tuple[Position, Position]


class _NothingKnown:
    """A topic of which nothing is remembered."""

    __slots__ = ("hidden_tail",)

    def __init__(self) -> None:
        self.hidden_tail = NO_TAIL


async def last_message_id(
    ledger: ManagedLedger,
    hides: Hides = (),
    compacted: CompactedMessages | None = None,
    tail: KnowsTail | None = None,
) -> tuple[Position, int]:
    """(position, index of the last message in its batch or -1); (NO_MESSAGE, -1) if the topic has none.

    ``compacted``: of what a consumer of compacted messages gets: up to the horizon the log does not count.
    ``tail`` remembers what was passed over: clients ask again and again, and give up waiting where that takes long.
    """
    if compacted is not None and ledger.extent.readable_position <= compacted.horizon:
        return await _last_compacted(compacted)
    found = await _last_of_log(ledger, hides, tail if tail is not None else _NothingKnown())
    if compacted is not None and found[0] <= compacted.horizon:
        return await _last_compacted(compacted)
    return found


async def _last_compacted(compacted: CompactedMessages) -> tuple[Position, int]:
    from geminga.broker.core.compaction.entry_messages import last_index_of

    entry = await compacted.last()
    return (NO_MESSAGE, -1) if entry is None else (entry.position, last_index_of(entry.data))


async def _last_of_log(ledger: ManagedLedger, hides: Hides, tail: KnowsTail) -> tuple[Position, int]:
    position = last = ledger.extent.readable_position
    first = ledger.ledgers.first_position
    behind, through = tail.hidden_tail
    # Whether nothing that is known to be hidden lies further on: what was passed over is one stretch then.
    is_whole = through == EARLIEST
    # Each step is one entry of the log: it ends at its beginning.
    while position.entry_id >= 0 and position >= first:
        if behind < position <= through:
            position, is_whole = behind, True
            continue
        entries = await ledger.reader.read([position])
        if not entries:
            break  # trimmed
        data = entries[0].data
        is_seen = not is_marker(data) and not (hides and _is_hidden(position, data, hides))
        if not is_seen:
            position = ledger.ledgers.previous_position(position)
        if (is_whole or is_seen) and tail.hidden_tail[1] <= last != position:
            tail.hidden_tail = position, last
        if is_seen:
            return position, last_batch_index(data)
    return NO_MESSAGE, -1


def _is_hidden(position: Position, data: bytes, hides: Hides) -> bool:
    metadata = peek_metadata(data)
    return metadata is not None and any(hide(position, metadata) for hide in hides)
