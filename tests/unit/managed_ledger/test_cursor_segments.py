"""Parts on disk: who brings a ledger back, how often it is read, and what may not be put away."""

from __future__ import annotations

import pytest

from geminga.managed_ledger import ManagedLedgerConfig
from geminga.managed_ledger.rules import cursor_format
from geminga.model.errors import DiskFullError
from support.worlds.ledger_world import acknowledge, read_entries

CONFIG = ManagedLedgerConfig(
    max_entries_per_ledger=10, min_rollover_minutes=0, cursor_max_entries_per_ledger=60, max_ranges_in_metadata=2
)


@pytest.fixture(autouse=True)
def _few_inline_ranges(monkeypatch):
    monkeypatch.setattr(cursor_format, "INLINE_RANGES_MAX", 2)


async def alternating(w):
    """Forty entries in four ledgers, every second acknowledged; nothing is put away yet."""
    ml, cursor = await w.subscribed()
    positions = await w.fill(ml, 40)
    assert await acknowledge(cursor, positions[1::2]) is None
    return ml, cursor, positions


def test_what_is_not_on_disk_as_it_is_in_memory_is_not_put_away(in_world):
    async def scenario(w):
        _ml, cursor, positions = await alternating(w)
        changed, busy = positions[10].ledger_id, positions[20].ledger_id
        cursor.acknowledge([positions[10]])
        w.bookie.holds_replies = True
        cursor.state.read_position = positions[20]
        cursor.reading.read_entries(1, 100, lambda _: None)
        assert cursor.put_away(1 << 30) > 0
        assert cursor.state.acked.away_ids == [positions[0].ledger_id, positions[30].ledger_id]
        assert {changed, busy} == set(cursor.state.ledger_ids)
        w.bookie.holds_replies = False
        w.bookie.release()

    in_world(scenario, CONFIG)


def test_nothing_is_put_away_while_the_state_is_written_or_after_a_write_failed(in_world):
    async def scenario(w):
        _ml, cursor, positions = await alternating(w)
        w.bookie.holds_replies = True
        cursor.acknowledge([positions[10]], None, lambda _: None)
        await w.world.sleep(0.01)
        assert cursor.put_away(1 << 30) == 0
        w.bookie.holds_replies = False
        w.bookie.release()
        await w.world.sleep(0.01)
        cursor.put_away(200)
        away = cursor.state.acked.away_ids
        assert len(away) == 1
        w.bookie.add_error = DiskFullError("full")
        assert isinstance(await acknowledge(cursor, [positions[12]]), DiskFullError)
        assert cursor.put_away(1 << 30) == 0
        assert cursor.state.acked.away_ids == away
        w.bookie.add_error = None
        assert await acknowledge(cursor, [positions[14]]) is None
        assert cursor.put_away(1 << 30) > 0
        assert cursor.backlog_count == 20 - 3

    in_world(scenario, CONFIG)


def test_a_ledger_that_many_wait_for_is_read_once(in_world):
    async def scenario(w):
        _ml, cursor, positions = await alternating(w)
        cursor.put_away(1 << 30)
        before = w.bookie.read_calls
        answers = []
        for _ in range(5):
            cursor.load_ledger(positions[0].ledger_id, answers.append)
        await w.world.sleep(0.01)
        assert answers == [None] * 5
        assert w.bookie.read_calls == before + 1
        assert positions[0].ledger_id in cursor.state.ledger_ids

    in_world(scenario, CONFIG)


def test_a_ledger_whose_cursor_ledger_is_switched_while_it_is_read_is_read_again(in_world):
    async def scenario(w):
        _ml, cursor, positions = await alternating(w)
        cursor.put_away(1 << 30)
        old = cursor.store.ledger_id
        w.bookie.holds_replies = True
        answers = []
        cursor.load_ledger(positions[0].ledger_id, answers.append)
        held = list(w.bookie._held)
        w.bookie._held.clear()
        w.bookie.holds_replies = False
        # The read's answer is late: meanwhile everything is copied to a new ledger, and the old one deleted.
        await w.world.sleep(CONFIG.cursor_rollover_seconds)
        await cursor.set_properties({"a": 1})
        assert cursor.store.ledger_id > old
        for reply in held:
            reply()
        await w.world.sleep(0.01)
        assert answers == [None]
        assert cursor.state.is_acknowledged(positions[1])
        assert len(await read_entries(cursor)) == 5

    in_world(scenario, CONFIG)
