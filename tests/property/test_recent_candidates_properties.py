"""What is known of entries: that of the very same bytes at the same place, or nothing; never more than its limits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga.broker.core.dispatch.recent_candidates import BYTES_MAX, ENTRIES_MAX, ENTRY_BYTES_MAX, RecentCandidates
from geminga.broker.core.dispatch.shared import Candidate
from geminga.model import Position


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(0, 7), st.booleans()), max_size=60))
def test_found_is_what_was_kept_last_of_these_bytes_at_this_place(steps):
    payloads = [bytes([number % 2]) * 3 for number in range(8)]  # equal ones that are not the same
    recent, kept = RecentCandidates(), {}
    for ledger_id, entry_id, which, is_kept in steps:
        data = payloads[which]
        if is_kept:
            kept[which] = Candidate(Position(ledger_id, entry_id), data, 1)
            recent.keep(kept[which])
        expected = kept.get(which)
        found = recent.find(ledger_id, entry_id, data)
        assert found is (expected if expected and expected.position == (ledger_id, entry_id) else None)
    assert recent.size_bytes == 3 * len(kept)


@given(st.lists(st.integers(0, ENTRY_BYTES_MAX + 10), min_size=1, max_size=200))
def test_bytes_and_entries_have_their_limits(sizes):
    recent = RecentCandidates()
    for number, size in enumerate(sizes * 3):
        candidate = Candidate(Position(1, number), bytes(size), 1)
        recent.keep(candidate)
        assert (recent.find(1, number, candidate.data) is candidate) is (size <= ENTRY_BYTES_MAX)
        assert recent.size_bytes <= BYTES_MAX


def test_many_small_entries_are_forgotten_together():
    recent = RecentCandidates()
    for number in range(2 * ENTRIES_MAX + 1):
        # Two bytes are an object of their own each time; of a single byte there is one for all.
        recent.keep(Candidate(Position(1, number), bytes(2), 1))
        assert len(recent) <= ENTRIES_MAX
    assert (len(recent), recent.size_bytes) == (1, 2)
