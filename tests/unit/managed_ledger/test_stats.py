"""What an operator is told."""

from __future__ import annotations

from geminga.managed_ledger.stats import internal_stats
from support.worlds.ledger_world import acknowledge


def test_stats_tell_ledgers_and_cursors(in_world):
    async def scenario(w):
        ml, cursor = await w.subscribed()
        positions = await w.fill(ml, 12)
        await acknowledge(cursor, positions[2:4])
        stats = internal_stats(ml)
        assert (stats["numberOfEntries"], stats["state"], len(stats["ledgers"])) == (12, "LedgerOpened", 2)
        assert stats["cursors"]["s"]["numberOfEntriesSinceFirstNotAckedMessage"] == 12
        assert stats["cursors"]["s"]["totalNonContiguousDeletedMessagesRange"] == 1

    in_world(scenario)
