"""Positions over a ledger list, against the plain list of all entries."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga.managed_ledger.rules.positions import LedgerInfo, LedgerList
from geminga.model.position import Position


@st.composite
def ledger_lists(draw):
    ids = draw(st.lists(st.integers(0, 12), unique=True, max_size=6).map(sorted))
    return LedgerList([LedgerInfo(ledger_id, draw(st.integers(0, 4)), closed_ms=1) for ledger_id in ids])


def entries_of(ledgers):
    return [Position(info.ledger_id, entry_id) for info in ledgers.infos for entry_id in range(info.entries)]


positions = st.builds(Position, st.integers(-1, 14), st.integers(-1, 6))


@given(ledger_lists(), positions)
def test_next_and_previous_are_the_neighbours_in_the_list_of_entries(ledgers, position):
    entries = entries_of(ledgers)
    following = [entry for entry in entries if entry > position]
    before = [entry for entry in entries if entry < position]
    found = ledgers.next_position(position)
    assert found == following[0] if following else found not in entries and found >= position
    found = ledgers.previous_position(position)
    assert found == before[-1] if before else found.entry_id == -1


@given(ledger_lists(), positions)
def test_at_or_after_is_the_first_entry_not_before(ledgers, position):
    entries = [entry for entry in entries_of(ledgers) if entry >= position]
    found = ledgers.at_or_after(position)
    assert found == entries[0] if entries else found not in entries_of(ledgers)
    assert ledgers.at_or_after(found) == found


@given(ledger_lists(), positions, positions)
def test_counts_and_indexes_are_those_of_the_list(ledgers, first, last):
    entries = entries_of(ledgers)
    assert ledgers.count_between(first, last) == len([entry for entry in entries if first <= entry <= last])
    assert ledgers.index_of(first) == len([entry for entry in entries if entry < first])
    assert ledgers.entry_count == len(entries)
    for index, entry in enumerate(entries):
        assert ledgers.position_at(index) == entry
    assert ledgers.position_at(len(entries)) not in entries


@given(ledger_lists(), positions, st.lists(st.integers(1, 9), min_size=6, max_size=6))
def test_bytes_behind_a_position_are_those_of_the_entries_behind_it(ledgers, position, sizes):
    # Entries of one ledger have one size, so that their mean is exact.
    size_of = {info.ledger_id: size for info, size in zip(ledgers.infos, sizes, strict=False)}
    for info in ledgers.infos:
        info.size_bytes = info.entries * size_of[info.ledger_id]
    behind = [entry for entry in entries_of(ledgers) if entry > position]
    assert ledgers.bytes_behind(position) == sum(size_of[entry.ledger_id] for entry in behind)


@given(ledger_lists())
def test_first_and_last_are_the_ends_of_the_list(ledgers):
    entries = entries_of(ledgers)
    if entries:
        assert ledgers.first_position == entries[0]
        assert ledgers.last_position == entries[-1]
    else:
        assert ledgers.last_position.entry_id == -1
        assert ledgers.count_between(ledgers.first_position, ledgers.last_position) == 0


@given(ledger_lists(), positions)
def test_a_cut_list_is_the_list_of_the_entries_up_to_there(ledgers, last):
    everything = entries_of(ledgers)
    cut = ledgers.cut(last)
    assert entries_of(cut) == [entry for entry in everything if entry <= last]
    assert cut.last_position == max(entries_of(cut), default=cut.last_position)
    assert cut.last_position <= last or cut.last_position.entry_id == -1
    assert entries_of(ledgers) == everything
    assert cut.last is None or cut.last.ledger_id < last.ledger_id or not cut.last.closed_ms


@given(ledger_lists(), st.sets(st.integers(0, 12)))
def test_removed_ledgers_leave_the_rest(ledgers, going):
    expected = [entry for entry in entries_of(ledgers) if entry.ledger_id not in going]
    ledgers.remove(going)
    assert entries_of(ledgers) == expected
    assert ledgers.entry_count == len(expected)
