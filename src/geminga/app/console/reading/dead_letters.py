"""How many dead letters wait to be sent back, and where the next ones would go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from geminga.app.console.core.letters import origin_of, waiting_letters
from geminga.app.console.reading.browsing import Browsing, browse, partitions_of
from geminga.app.console.reading.topics import PARTITIONS_ASKED_MAX
from geminga.app.handles.redrive import SUBSCRIPTION

if TYPE_CHECKING:
    from geminga.admin import AdminClient

#: Partitions whose newest letters are looked at for where they go.
TARGETS_TOLD_MAX: Final = 8


async def letters_waiting(admin: AdminClient, topic: str) -> int | None:
    """Entries of a topic of letters, all partitions together, that were not sent back. Raises AdminError.

    None: it has more partitions than are asked.
    """
    count = await partitions_of(admin, topic)
    if count > PARTITIONS_ASKED_MAX:
        return None
    waiting = 0
    for name in _names(topic, count):
        stats = await admin.topics.stats(name, without_publishers=True, without_consumers=True)
        internal = await admin.topics.internal_stats(name)
        waiting += waiting_letters(stats, int(internal.get("numberOfEntries", 0)), SUBSCRIPTION)
    return waiting


async def targets_of(admin: AdminClient, topic: str) -> list[str]:
    """Where the newest letters of a topic go back to; empty among them: they name no origin that is allowed.

    Of many partitions the first are asked. Raises AdminError.
    """
    found: set[str] = set()
    count = await partitions_of(admin, topic)
    for name in _names(topic, min(count, TARGETS_TOLD_MAX)):
        page = await browse(admin, Browsing(name))
        found |= {origin_of(name, each.message.properties).target for each in page.messages}
    return sorted(found)


def _names(topic: str, count: int) -> list[str]:
    return [f"{topic}-partition-{number}" for number in range(count)] or [topic]
