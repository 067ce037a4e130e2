from __future__ import annotations

from geminga.bookie.core.ledger_states import LedgerStateRow, LedgerStates, decode_states, encode_states


def test_states_round_trip_with_shared_keys():
    rows = [LedgerStateRow(1, b"a", False), LedgerStateRow(5, b"", True), LedgerStateRow(1 << 50, b"a", True)]
    data = encode_states(rows)
    assert list(decode_states(data)) == rows
    assert data.count(b"a") == 1
    assert list(decode_states(encode_states([]))) == []


def test_changes_make_a_ledger_dirty_once():
    states = LedgerStates()
    assert states.know(3, b"k")
    assert not states.know(3, b"k")
    assert states.take_dirty() == {3}
    states.fence(3)
    states.fence(3)
    assert states.take_dirty() == {3}
    states.fence(3)
    assert states.take_dirty() == set()
    assert states.rows([3, 4]) == [LedgerStateRow(3, b"k", True)]


def test_master_keys_are_bounded(monkeypatch):
    monkeypatch.setattr("geminga.bookie.core.ledger_states.KEYS_MAX", 2)
    states = LedgerStates()
    states.know(1, b"a")
    states.know(2, b"b")
    assert states.has_room_for(b"a")
    assert not states.has_room_for(b"c")


def test_master_keys_of_deleted_ledgers_make_room_for_others(monkeypatch):
    monkeypatch.setattr("geminga.bookie.core.ledger_states.KEYS_MAX", 2)
    states = LedgerStates()
    for ledger_id, key in ((1, b"a"), (2, b"b"), (3, b"b")):
        states.know(ledger_id, key)
    states.delete([2])
    # Another ledger has it still.
    assert not states.has_room_for(b"c")
    states.delete([3])
    assert states.has_room_for(b"c")
    states.know(4, b"c")
    assert not states.has_room_for(b"b")
    assert list(decode_states(encode_states(states.rows([1, 4])))) == states.rows([1, 4])


def test_deleted_ledger_stays_deleted_when_old_rows_are_read():
    states = LedgerStates()
    states.know(3, b"k")
    states.limbo.add(3)
    states.delete([3, 8])
    states.restore([LedgerStateRow(3, b"k", True), LedgerStateRow(4, b"k", True), LedgerStateRow(4, b"k", False)])
    assert set(states.master_keys) == {4}
    assert states.fenced == {4}
    assert 3 in states.deleted
    assert 8 in states.deleted
    assert 3 not in states.limbo
    assert states.take_dirty() == set()
