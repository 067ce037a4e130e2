"""How far readers see while messages of transactions are being stored, are stored, and end."""

from __future__ import annotations

from geminga.model.position import LATEST, Position
from geminga.model.txn_id import TxnId
from geminga.transaction.core.visible_end import VisibleEnd

ONE, TWO = TxnId(0, 1), TxnId(0, 2)


def at(entry_id: int) -> Position:
    return Position(3, entry_id)


def before(position: Position) -> Position:
    return Position(position.ledger_id, position.entry_id - 1)


def test_what_is_coming_stops_readers_where_the_log_is_known() -> None:
    end: VisibleEnd[str] = VisibleEnd(at(4))
    assert end.limit(None, before) == LATEST
    end.comes("a", ONE)
    end.told = at(6)  # others publish meanwhile
    end.comes("b", ONE)
    assert end.limit(None, before) == at(4)
    assert end.limit(at(9), before) == at(8), "a stored message stops them by itself"
    assert (end.coming("a"), end.coming("c")) == (ONE, None)


def test_a_transaction_is_awaited_until_the_last_of_it_has_come() -> None:
    end: VisibleEnd[str] = VisibleEnd(at(4))
    for batch, txn_id in (("a", ONE), ("b", TWO), ("c", ONE)):
        end.comes(batch, txn_id)
    assert end.has_come("a") is None
    assert end.awaits(ONE)
    assert end.has_come("b") == TWO
    assert end.has_come("c") == ONE
    assert not end.awaits(ONE)
    assert end.limit(None, before) == LATEST


def test_an_end_lets_readers_up_to_its_marker_unless_another_is_open() -> None:
    end: VisibleEnd[str] = VisibleEnd(at(4))
    end.comes("a", ONE)
    end.marked(at(7), is_open=True)
    assert (end.told, end.limit(None, before)) == (at(7), at(4))
    end.marked(at(8), is_open=False)
    assert (end.told, end.limit(None, before)) == (at(8), at(8))


def test_a_snapshot_never_passes_an_open_transaction() -> None:
    end: VisibleEnd[str] = VisibleEnd(at(4))
    assert end.settled(None, before) == at(4)
    assert end.settled(at(3), before) == at(2)
    assert end.settled(at(9), before) == at(4)
