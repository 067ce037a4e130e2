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


def test_what_is_acknowledged_again_does_not_move_on_when_its_ledger_is_gone():
    """Who asks where it stands (Spark's stream) is told where everything was acknowledged, not what came in between."""
    state = CursorState(Position(1, 4))
    left = LedgerList([LedgerInfo(2, 3)])
    for ack_set in (None, (0b1,)):
        assert state.acknowledge_cumulative(Position(1, 4), ack_set, left) == NOTHING
        assert state.acknowledge_cumulative(Position(1, 2), ack_set, left) == NOTHING
    assert state.mark_delete == Position(1, 4)
    assert state.acknowledge_cumulative(Position(2, 1), None, left) & CHANGED
    assert state.mark_delete == Position(2, 1)


def test_part_of_a_batch_that_is_acknowledged_cumulatively_is_a_change_once():
    state = CursorState(Position(1, 1))
    assert state.acknowledge_cumulative(Position(1, 2), (0b110,), LEDGERS) & CHANGED
    assert state.acknowledge_cumulative(Position(1, 2), (0b110,), LEDGERS) == NOTHING
    assert state.acknowledge_cumulative(Position(1, 2), (0b100,), LEDGERS) & CHANGED
    assert (state.mark_delete, state.ack_set(Position(1, 2))) == (Position(1, 1), (0b100,))
