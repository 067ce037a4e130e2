"""What is to be copied no more: the time to live takes the oldest of a backlog, an operator what they name.

As Pulsar has it: messages expire for replicators as for subscriptions. What is on its way then is copied all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from geminga.broker.core.expiry import ExpiryWalk
from geminga.broker.subscription.messages import entry_timestamp_ms
from geminga.broker.subscription.seek import EXPIRY_READ_BYTES
from geminga.runtime import next_turn

if TYPE_CHECKING:
    from geminga.broker.topic.parts import CopiedTopic
    from geminga.managed_ledger import ManagedLedger
    from geminga.model.position import Position


async def expire(
    ledger: ManagedLedger,
    copied: CopiedTopic,
    older_than_ms: int,
    now_ms: Callable[[], int],
    *,
    is_wanted: Callable[[], bool] = lambda: True,
) -> bool:
    """Pass over the oldest entries, those stored more than ``older_than_ms`` ago; whether there was any.

    What counts as stored when: ``core.expiry``. ``is_wanted`` is asked when they are found: the policy may have changed
    meanwhile. Raises StorageError.
    """
    began_ms = now_ms()
    walk = ExpiryWalk(
        ledger.extent.readable, copied.cursor.mark_delete_position, limit_ms=began_ms - older_than_ms, now_ms=began_ms
    )
    while (look := walk.next_look()) is not None:
        entries = await ledger.reader.read_range(look.first, look.entries_max, EXPIRY_READ_BYTES)
        walk.looked_at([(entry.position, entry_timestamp_ms(entry.data)) for entry in entries])
        await next_turn()
    return is_wanted() and expire_up_to(copied, walk.found)


def expire_up_to(copied: CopiedTopic, position: Position | None) -> bool:
    """Pass over every entry up to ``position``; whether that changes anything."""
    cursor = copied.cursor
    if position is None or position <= cursor.mark_delete_position:
        return False
    before = cursor.backlog_count
    cursor.acknowledge_cumulative(position)
    copied.expired += before - cursor.backlog_count
    return True
