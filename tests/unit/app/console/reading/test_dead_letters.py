"""How many letters wait, and where they go."""

from __future__ import annotations

import pytest

from geminga.app.console.reading import dead_letters
from geminga.app.console.reading.dead_letters import letters_waiting, targets_of
from support.worlds.broker_world import BrokerWorld, run_with_broker
from support.worlds.handles_world import sim_admin
from support.worlds.rest_world import rest_application

LETTERS, ORIGIN = "persistent://public/default/orders-billing-DLQ", "persistent://public/default/orders"


def test_letters_of_all_partitions_are_counted_unless_they_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(world: BrokerWorld) -> None:
        admin = sim_admin(rest_application(world.broker))
        await admin.topics.create_partitioned(LETTERS, 3)
        letter = {"payload": "x", "properties": {"REAL_TOPIC": ORIGIN}}
        await admin.messages.publish(LETTERS, {"messages": [letter, letter, letter, {"payload": "stray"}]})
        assert await letters_waiting(admin, LETTERS) == 4
        assert await targets_of(admin, LETTERS) == ["", ORIGIN]
        monkeypatch.setattr(dead_letters, "PARTITIONS_ASKED_MAX", 2)
        assert await letters_waiting(admin, LETTERS) is None

    run_with_broker(main)
