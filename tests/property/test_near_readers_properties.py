"""Where entries come from, and who comes for them: against sets of single entries."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga.managed_ledger.rules.near_readers import (
    NEAR_ENTRIES,
    CameFrom,
    Span,
    coming_for,
    least_needed,
    near,
    plan,
)
from geminga.model.position import Position

LEDGERS = st.integers(1, 2)
#: Of readers, in order.
POSITIONS = st.lists(st.builds(Position, LEDGERS, st.integers(0, 70)), max_size=6).map(sorted)
SPANS = st.builds(lambda ledger, first, count: Span(ledger, first, first + count), LEDGERS, *[st.integers(0, 30)] * 2)


def entries_of(span: Span) -> set[tuple[int, int]]:
    return {(span.ledger_id, entry_id) for entry_id in range(span.first, span.end)}


@given(LEDGERS, st.integers(0, 40), st.integers(0, 20), st.lists(SPANS, max_size=2), st.lists(SPANS, max_size=3))
def test_nothing_is_read_that_is_there_or_on_its_way(ledger_id, first, more, held, coming):
    last = first + more
    way, up_to = plan(ledger_id, first, last, held, coming)
    assert first <= up_to <= last, "at least one entry, and none that was not asked for"
    asked = {(ledger_id, entry_id) for entry_id in range(first, up_to + 1)}
    there = set().union(*map(entries_of, held))
    on_its_way = [entries_of(span) for span in coming]
    if (ledger_id, first) in there:
        assert way is CameFrom.MEMORY
        assert any(asked <= entries_of(each) for each in held)
    elif any((ledger_id, first) in each for each in on_its_way):
        assert way is CameFrom.COMING
        assert any(asked <= each for each in on_its_way)
    else:
        assert way is CameFrom.STORAGE
        assert not asked & there.union(*on_its_way)
        assert up_to == last or (ledger_id, up_to + 1) in there.union(*on_its_way)


@given(SPANS, POSITIONS, st.booleans())
def test_who_comes_for_a_span_is_in_its_ledger_and_not_past_it_nor_far_behind(span, positions, is_far):
    moved = NEAR_ENTRIES if is_far else 0
    span = Span(span.ledger_id, span.first + moved, span.end + moved)
    found = near(span, positions)
    coming = [
        each
        for each in positions
        if each.ledger_id == span.ledger_id and each.entry_id < span.end and span.first - each.entry_id <= NEAR_ENTRIES
    ]
    assert found.readers == len(coming)
    assert found.least == min([each.entry_id for each in coming], default=span.end)


@given(st.lists(SPANS, max_size=3), POSITIONS)
def test_nothing_is_let_go_that_somebody_near_comes_for(held, positions):
    held = sorted(held)
    for index, (span, least) in enumerate(zip(held, least_needed(held, positions), strict=True)):
        assert span.first <= least <= span.end or least < span.first
        for position in positions:
            if position.ledger_id == span.ledger_id and span.first <= position.entry_id < span.end:
                assert least <= position.entry_id
        if any(near(before, positions).readers for before in held[:index]):
            assert least == span.first
        elif not near(span, positions).readers:
            assert least == span.end
        others = [each for each in held if each.ledger_id < span.ledger_id]
        assert coming_for(span, held, positions) == sum(near(each, positions).readers for each in (span, *others))
