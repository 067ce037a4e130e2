"""How far a log reaches, against plain lists: what is stored, cut where readers stop."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.managed_ledger.rules.extent import Extent
from geminga.managed_ledger.rules.positions import LedgerInfo, LedgerList
from geminga.model.position import EARLIEST, LATEST, Position

#: What befalls a log: entries appended, a ledger begun, one recovered with more, the oldest trimmed, a limit set.
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 3)),
        st.tuples(st.just("roll"), st.just(0)),
        st.tuples(st.just("recover"), st.integers(0, 2)),
        st.tuples(st.just("trim"), st.just(0)),
        st.tuples(st.just("limit"), st.integers(-2, 12)),
    ),
    max_size=30,
)


@given(_STEPS)
def test_extent_is_what_is_stored_cut_at_the_limit(steps: list[tuple[str, int]]) -> None:
    """Against the entries as a list: nothing behind the limit is readable, and everything before it is."""
    ledgers = LedgerList([LedgerInfo(1)])
    extent, stored, limit = Extent(ledgers), list[Position](), LATEST
    for step, number in steps:
        before = [position for position in stored if position <= limit]
        last = ledgers.last
        assert last is not None
        said: bool | None = None
        if step in ("append", "recover"):
            fresh = [Position(last.ledger_id, last.entries + i) for i in range(number)]
            last.entries += number
            stored += fresh
            if step == "recover":
                extent.recovered()
            else:
                said = extent.confirmed(fresh[-1])
        elif step == "roll":
            last.closed_ms = 1
            ledgers.append(LedgerInfo(last.ledger_id + 1))
        elif step == "trim" and len(ledgers) > 1 and last.entries:
            gone = ledgers.infos[0].ledger_id
            stored = [position for position in stored if position.ledger_id != gone]
            before = [position for position in before if position.ledger_id != gone]
            ledgers.remove([gone])
            extent.listed()
        elif step == "limit":
            limit = {-2: LATEST, -1: EARLIEST}.get(number) or Position(1 + number // 4, number % 4)
            said = extent.limit(limit)
        readable = [position for position in stored if position <= limit]
        if stored:
            assert extent.last_confirmed_position == stored[-1]
        assert extent.readable.entry_count == len(readable)
        if readable:
            assert extent.readable_position == readable[-1]
        assert extent.is_limited or len(readable) == len(stored)
        if said is not None:
            assert said == (len(readable) > len(before))


def test_limited_extent_says_that_appended_entries_can_not_be_read() -> None:
    ledgers = LedgerList([LedgerInfo(1, 2)])
    extent = Extent(ledgers)
    assert not extent.is_limited
    assert not extent.limit(Position(1, 1))
    ledgers.infos[0].entries = 3
    assert not extent.confirmed(Position(1, 2))
    assert (extent.readable_position, extent.last_confirmed_position) == ((1, 1), (1, 2))
    assert extent.is_limited
    assert extent.limit(LATEST)
    assert extent.readable is ledgers


@pytest.mark.parametrize("limit", [Position(1, 1), LATEST])
def test_trimmed_ledger_is_readable_no_more(limit: Position) -> None:
    ledgers = LedgerList([LedgerInfo(1, 2, closed_ms=1), LedgerInfo(2, 2)])
    extent = Extent(ledgers)
    extent.limit(limit)
    ledgers.remove([1])
    extent.listed()
    assert extent.readable.find(1) is None
    assert extent.readable.entry_count == (0 if limit != LATEST else 2)
