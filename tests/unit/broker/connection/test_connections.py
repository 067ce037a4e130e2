"""How many connections there may be, in all and from one address."""

from __future__ import annotations

import pytest

from geminga.runtime import next_turn
from support.worlds.broker_world import BrokerWorld, Client, run_with_broker


@pytest.mark.parametrize("setting", ["connections_max", "connections_per_ip_max"])
def test_connection_beyond_the_limit_is_told_why_and_makes_room_when_it_is_gone(setting: str) -> None:
    async def scenario(world: BrokerWorld) -> None:
        kept = [await world.client() for _ in range(2)]
        refused = Client(world.broker, 50000)
        text = (await refused.error()).message
        assert text == f"reached brokerMaxConnections{'' if setting == 'connections_max' else 'PerIp'}=2"
        assert refused.is_closed
        kept[0].lose()
        connections = world.broker.connections
        for _ in range(3):
            await next_turn()
        assert list(connections.open) == [kept[1].connection]
        await world.client()
        assert (len(connections.open), connections.opened_count) == (2, 4)

    run_with_broker(scenario, **{setting: 2})
