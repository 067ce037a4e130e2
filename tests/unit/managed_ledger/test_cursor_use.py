"""When a cursor was last used."""

from __future__ import annotations

from geminga import sim
from geminga.managed_ledger.cursor.cursor_use import CursorUse


def test_use_is_now_while_it_lasts_and_then_when_it_ended():
    async def story(world):
        clock = world.node("broker").runtime.clock
        use = CursorUse(clock, 5)
        assert (use.last_active_ms, use.is_in_use) == (5, False)
        use.begin()
        await world.sleep(3)
        assert use.last_active_ms == clock.wall_ms()
        use.end()
        ended_ms = clock.wall_ms()
        await world.sleep(3)
        assert (use.last_active_ms, use.is_in_use) == (ended_ms, False)
        use.note()
        assert use.last_active_ms == clock.wall_ms()

    sim.run(story)


def test_unknown_use_counts_from_now_and_no_move_is_no_time():
    async def story(world):
        clock = world.node("broker").runtime.clock
        await world.sleep(2)
        use = CursorUse(clock)
        assert (use.last_active_ms, use.moved_ms) == (clock.wall_ms(), 0)
        use.on_moved()
        moved_ms = clock.wall_ms()
        await world.sleep(2)
        assert use.moved_ms == moved_ms

    sim.run(story)
