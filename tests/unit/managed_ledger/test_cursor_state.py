"""The state of a cursor, step by step: what is not there, and parts of batches."""

from __future__ import annotations

from geminga.managed_ledger.rules.cursor import CHANGED, NOTHING, CursorState
from geminga.managed_ledger.rules.positions import LedgerInfo, LedgerList
from geminga.model.position import Position

LEDGERS = LedgerList([LedgerInfo(1, 5)])


def test_entry_that_is_not_there_yet_can_not_be_acknowledged():
    state = CursorState(Position(1, 4))
    assert state.acknowledge([Position(1, 5)], None, LEDGERS) == NOTHING
    assert state.acknowledge([Position(2, 0)], None, LEDGERS) == NOTHING
    assert state.mark_delete == Position(1, 4)


def test_part_of_a_batch_that_is_acknowledged_cumulatively_is_a_change_once():
    state = CursorState(Position(1, 1))
    assert state.acknowledge_cumulative(Position(1, 2), (0b110,), LEDGERS) & CHANGED
    assert state.acknowledge_cumulative(Position(1, 2), (0b110,), LEDGERS) == NOTHING
    assert state.acknowledge_cumulative(Position(1, 2), (0b100,), LEDGERS) & CHANGED
    assert (state.mark_delete, state.ack_set(Position(1, 2))) == (Position(1, 1), (0b100,))
