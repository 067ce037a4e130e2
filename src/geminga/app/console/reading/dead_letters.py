"""How many dead letters wait to be sent back, and where the next ones would go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geminga.app.console.core.letters import origin_of, waiting_letters
from geminga.app.console.reading.browsing import Browsing, browse, partitions_of
from geminga.app.handles.redrive import SUBSCRIPTION

if TYPE_CHECKING:
    from geminga.admin import AdminClient


async def letters_waiting(admin: AdminClient, topic: str) -> int:
    """Entries of a topic of letters, all partitions together, that were not sent back. Raises AdminError."""
    waiting = 0
    for name in await _partitions(admin, topic):
        stats = await admin.topics.stats(name, without_publishers=True, without_consumers=True)
        internal = await admin.topics.internal_stats(name)
        waiting += waiting_letters(stats, int(internal.get("numberOfEntries", 0)), SUBSCRIPTION)
    return waiting


async def targets_of(admin: AdminClient, topic: str) -> list[str]:
    """Where the newest letters of a topic go back to; empty among them: they name no origin that is allowed."""
    found = set()
    for name in await _partitions(admin, topic):
        page = await browse(admin, Browsing(name))
        found |= {origin_of(name, each.message.properties).target for each in page.messages}
    return sorted(found)


async def _partitions(admin: AdminClient, topic: str) -> list[str]:
    count = await partitions_of(admin, topic)
    return [f"{topic}-partition-{number}" for number in range(count)] or [topic]
