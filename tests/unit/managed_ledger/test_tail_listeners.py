"""Who is told that there is more to read."""

from __future__ import annotations

from geminga import sim
from geminga.managed_ledger.tail_listeners import TailListeners


def test_each_is_told_once_a_turn_until_it_is_removed():
    async def story(world):
        told = []
        listeners = TailListeners()
        remove = listeners.add(lambda: told.append("a"))
        listeners.add(lambda: told.append("b"))
        for _ in range(3):
            listeners.tell_later(None)
        assert told == []
        await world.sleep(0.01)
        assert told == ["a", "b"]
        remove()
        remove()
        listeners.tell_later(None)
        await world.sleep(0.01)
        assert told == ["a", "b", "b"]

    sim.run(story)
