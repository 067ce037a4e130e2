"""The last message of a topic that a consumer can get: markers behind it do not count (FACTS P32)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from geminga.broker.subscription.messages import is_marker, last_batch_index
from geminga.model import Position

if TYPE_CHECKING:
    from geminga.managed_ledger import ManagedLedger

#: What there is when there is no message.
NO_MESSAGE: Final = Position(-1, -1)


async def last_message_id(ledger: ManagedLedger) -> tuple[Position, int]:
    """(position, index of the last message in its batch or -1); (NO_MESSAGE, -1) if the topic has none."""
    position = ledger.last_confirmed_position
    first = ledger.first_position
    # Each step is one entry of the log: it ends at its beginning.
    while position.entry_id >= 0 and position >= first:
        entries = await ledger.read([position])
        if not entries:
            break  # trimmed
        if not is_marker(entries[0].data):
            return position, last_batch_index(entries[0].data)
        position = ledger.previous_position(position)
    return NO_MESSAGE, -1
