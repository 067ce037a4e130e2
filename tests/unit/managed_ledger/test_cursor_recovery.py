"""The newest complete state of a cursor: in its node, or in the ledger that names."""

from __future__ import annotations

from geminga.managed_ledger.cursor.cursor_recovery import recover_cursor
from geminga.managed_ledger.rules.acked_entries import AckedBitmap
from geminga.managed_ledger.shared.metadata_io import cursor_path
from geminga.wire.managed_ledger import CursorInfoRecord, decode_cursor_info
from support.worlds.ledger_world import NAME, acknowledge


async def recovered(w, ml, record):
    return await recover_cursor(record, ml.ledgers, w.bookkeeper, name="s", make=AckedBitmap, room_bytes=1 << 20)


async def record_of(w):
    return decode_cursor_info((await w.store.get(cursor_path(NAME, "s"))).value)


def test_state_is_that_of_the_cursor_ledger(in_world):
    async def scenario(w):
        ml, cursor, positions = await w.with_cursor(9)
        await acknowledge(cursor, [positions[0], positions[4]])
        found, source, _ = await recovered(w, ml, await record_of(w))
        assert source.ledger_id == cursor.store.ledger_id
        assert (found.state.mark_delete, found.state.acked.count) == (positions[0], 1)
        assert found.state.is_acknowledged(positions[4])

    in_world(scenario)


def test_state_is_that_of_the_node_without_a_ledger_or_with_one_that_is_gone(in_world):
    async def scenario(w):
        ml, positions = await w.filled(9)
        for ledger_id in (-1, 987_654):
            record = CursorInfoRecord(ledger_id, positions[3], (), (), {}, {}, 0)
            found, source, _ = await recovered(w, ml, record)
            assert (found.state.mark_delete, source) == (positions[3], None)

    in_world(scenario)


def test_state_is_that_of_the_node_if_its_ledger_holds_none(in_world):
    async def scenario(w):
        ml, positions = await w.filled(9)
        empty = await w.bookkeeper.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
        record = CursorInfoRecord(empty.ledger_id, positions[2], (), (), {}, {}, 0)
        found, source, _ = await recovered(w, ml, record)
        assert (found.state.mark_delete, source) == (positions[2], None)

    in_world(scenario)
