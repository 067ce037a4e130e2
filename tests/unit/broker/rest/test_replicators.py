"""Subscriptions named ``pulsar.repl.<cluster>``: an operator passes over what is to be copied."""

from __future__ import annotations

import json

import pytest

from geminga.broker.geo.part import CURSOR_PREFIX
from support.worlds.broker_world import BrokerWorld, run_with_broker
from support.worlds.other_cluster import join, replicate
from support.worlds.policy_levels import seconds
from support.worlds.rest_world import ask, rest_application
from support.worlds.rights_world import TOPIC, Story, tell
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
        client = await world.publisher(producer_name="producer")
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


TOPIC_PATH = "/admin/v2/persistent/public/default/t"


@pytest.mark.parametrize("partitions", [0, 2])
def test_what_is_copied_to_a_cluster_is_an_administrator_s_to_begin_and_to_leave_out(partitions: int) -> None:
    """Who may consume skips his own messages, and nobody's copies: they would be missing in the other cluster."""

    async def scenario(story: Story) -> None:
        tenant = {"adminRoles": ["owner"], "allowedClusters": ["standalone"]}
        await story.do("POST", "/admin/v2/tenants/public", tenant)
        await story.grant("jane", "produce", "consume")
        where, topic = TOPIC_PATH, TOPIC
        if partitions:
            await story.do("PUT", f"{TOPIC_PATH}/partitions", partitions)
            topic = f"{TOPIC}-partition-0"
        await story.producer("jane", topic)

        async def asked(role: str, method: str, rest: str = "", body: object = None) -> int:
            data = b"" if body is None else json.dumps(body).encode()
            path = f"{where}/subscription/pulsar.repl.west{rest}"
            return (await ask(story.application, method, path, data, role=role)).status

        for rest in ("", "/skip_all", "/skip/1", "/expireMessages/1"):
            for method in ("PUT", "DELETE") if not rest else ("POST",):
                assert await asked("jane", method, rest, "latest" if method == "PUT" else None) == 403
        ledger = story.world.broker.topics[topic].ledger  # type: ignore[attr-defined]
        assert "pulsar.repl.west" not in ledger.cursors
        assert await asked("owner", "PUT", body="latest") == 204
        assert "pulsar.repl.west" in ledger.cursors
        assert await asked("jane", "DELETE") == 403
        assert await asked("owner", "DELETE") == 204
        # Her own are hers.
        own = f"{where}/subscription/pulsar.replica"
        assert (await ask(story.application, "PUT", own, b'"latest"', role="jane")).status == 204
        assert (await ask(story.application, "POST", f"{own}/skip_all", b"", role="jane")).status == 204

    tell(scenario)
