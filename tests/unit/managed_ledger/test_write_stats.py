"""What is told of stored entries."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga.managed_ledger.rules.write_stats import WriteStats


def test_what_waited_for_its_ledger_took_longer_than_its_write() -> None:
    stats = WriteStats()
    stats.stored([b"x" * 100, b"x" * 600], 700, 0.150, 0.002)
    stats.stored([b"x"], 1, 0.002, 0.002)
    written, of_ledger = stats.latencies(0.0)
    assert written.counts == (0, 0, 1, 0, 0, 0, 0, 2, 0, 0)
    assert of_ledger.counts == (0, 0, 3, 0, 0, 0, 0, 0, 0, 0)
    assert (written.total, of_ledger.total) == (302_000.0, 6000.0)
    assert stats.sizes.window(0.0) == ((2, 0, 1, 0, 0, 0, 0, 0, 0), 701)


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=30))
def test_every_size_is_counted_in_its_bucket(lengths: list[int]) -> None:
    entries = [b"x" * length for length in lengths]
    together, alone = WriteStats(), WriteStats()
    together.stored(entries, sum(lengths), 0.001, 0.001)
    for entry in entries:
        alone.stored([entry], len(entry), 0.001, 0.001)
    counts, total = together.sizes.window(0.0)
    assert counts == alone.sizes.window(0.0).counts
    assert round(total) == sum(lengths)
    assert together.latencies(0.0)[0].counts == alone.latencies(0.0)[0].counts
