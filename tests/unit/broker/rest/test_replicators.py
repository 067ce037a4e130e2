"""Subscriptions named ``pulsar.repl.<cluster>``: an operator passes over what is to be copied."""

from __future__ import annotations

import json

from geminga.broker.geo.part import CURSOR_PREFIX
from support.worlds.broker_world import BrokerWorld, run_with_broker
from support.worlds.other_cluster import join, replicate
from support.worlds.policy_levels import seconds
from support.worlds.rest_world import ask, rest_application
from unit.broker.geo.test_backlog import PATH, kept, late, posted


def test_an_operator_passes_over_some_all_or_what_is_old() -> None:
    async def scenario(world: BrokerWorld) -> None:
        other, client = await kept(world, 5)
        (replicator,) = other.replicators
        assert await posted(world, f"{PATH}/skip/2") == 204
        assert replicator.backlog == 3
        assert await posted(world, f"{PATH}/skip/-1") == 412
        client.lose()
        await seconds(100)
        await late(world, b"5")
        assert await posted(world, f"{PATH}/expireMessages/50") == 204
        assert replicator.backlog == 1
        assert await posted(world, f"{PATH}/skip_all") == 204
        assert replicator.backlog == 0
        # There is nothing to look at.
        assert await posted(world, f"{PATH}/expireMessages/50") == 409
        for call in ("skip_all", "skip/1", "expireMessages/1"):
            assert await posted(world, f"{PATH.replace('west', 'north')}/{call}") == 404
        other.away = None
        await seconds(200)
        assert other.payloads == []

    run_with_broker(scenario, delete_inactive_topics=False)


def test_copying_begins_where_an_operator_made_the_cursor() -> None:
    async def scenario(world: BrokerWorld) -> None:
        other = join(world)
        client = await world.client()
        await client.create_producer(producer_name="producer")
        for number in range(3):
            await client.publish(number, b"%d" % number)

        async def asked(method: str, path: str = PATH, body: object = None) -> int:
            data = b"" if body is None else json.dumps(body).encode()
            return (await ask(rest_application(world.broker), method, path, data)).status

        assert await asked("PUT", body={"ledgerId": -1, "entryId": -1}) == 204
        assert await asked("PUT", body="earliest") == 409
        assert await asked("PUT", PATH.replace("west", "north"), "latest") == 204
        assert await asked("PUT", PATH.replace("west", "no%20name"), "latest") == 412
        # It is there after a reload, and after policies that do not name its cluster.
        await world.restart()
        join(world, other)
        assert await asked("GET", "/admin/v2/persistent/public/default/topic/stats") == 200
        await replicate(world, "standalone", "south")
        assert {CURSOR_PREFIX + one for one in ("west", "north", "south")} <= {*world.topic.ledger.cursors}
        assert await asked("DELETE", PATH.replace("west", "south")) == 412
        assert await asked("DELETE", PATH.replace("west", "north")) == 204
        assert await asked("DELETE", PATH.replace("west", "north")) == 404
        await replicate(world, "standalone", "west")
        await seconds(1)
        assert other.payloads == [b"0", b"1", b"2"]
        # From then on it is as any other: it goes with its cluster.
        await replicate(world, "standalone")
        assert not [name for name in world.topic.ledger.cursors if name.startswith(CURSOR_PREFIX)]

    run_with_broker(scenario, delete_inactive_topics=False)
