from __future__ import annotations

from geminga.bookie.stats import BookieStats
from support.clusters.bookie_node import BookieNode, entries_of, run_bookie


def test_stats_start_at_zero_and_are_plain_ints():
    stats = BookieStats()
    assert {getattr(stats, name) for name in BookieStats.__slots__ if name != "read_latency"} == {0}
    assert stats.read_latency.quantiles(0.0, ()).seen == 0


def test_stats_count_adds_reads_and_flushes():
    async def main(case: BookieNode) -> None:
        before = case.bookie.stats.flushes
        await case.add(1, 0, entries_of(1, 0, 3, size=50))
        await case.read(1, 0, 1)
        await case.bookie.flush()
        stats = case.bookie.stats
        assert (stats.added_entries, stats.added_bytes, stats.read_entries) == (3, 150, 2)
        assert stats.read_latency.quantiles(0.0, ()).seen == 2
        assert stats.flushes == before + 1

    run_bookie(main)
