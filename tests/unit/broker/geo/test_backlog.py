"""What is to be copied no more: too old by the time to live, or passed over by an operator."""

from __future__ import annotations

import pytest

from geminga.model.errors import StorageError
from support.worlds.broker_world import BrokerWorld, Client, run_with_broker, send_frame
from support.worlds.other_cluster import OtherCluster, join, replicate
from support.worlds.policy_levels import seconds, set_topic
from support.worlds.rest_world import ask, rest_application

PATH = "/admin/v2/persistent/public/default/topic/subscription/pulsar.repl.west"


async def kept(world: BrokerWorld, count: int) -> tuple[OtherCluster, Client]:
    """So many entries for a cluster that is away."""
    other = join(world)
    other.away = StorageError("away")
    client = await world.publisher(producer_name="producer")
    await replicate(world, "standalone", "west")
    for number in range(count):
        await client.publish(number, b"%d" % number)
    return other, client


async def late(world: BrokerWorld, payload: bytes) -> None:
    """Published by another client, as one that is silent for a minute is cut off."""
    client = await world.publisher(producer_name="late")
    now_ms = world.topic.services.runtime.clock.wall_ms()
    client.send_bytes(send_frame(0, payload, metadata={"publish_time": now_ms}))
    await client.receipt()


async def posted(world: BrokerWorld, path: str) -> int:
    return (await ask(rest_application(world.broker), "POST", path, b"")).status


@pytest.mark.parametrize("count", [3, 40])
def test_a_backlog_expires_after_the_time_to_live_and_is_counted(count: int) -> None:
    """The first look is of 8 entries, the next of twice as many each: 40 take three."""

    async def scenario(world: BrokerWorld) -> None:
        other, client = await kept(world, count)
        await set_topic(world, "messageTTLInSeconds", 60)
        await world.broker.policies_changed("public/default")
        upkeep, topic = world.broker.policy_upkeep, world.topic
        await upkeep.expire_messages(topic)
        assert other.replicators[0].backlog == count
        client.lose()
        await seconds(61)
        await late(world, b"late")
        await upkeep.expire_messages(topic)
        assert (other.replicators[0].backlog, other.replicators[0].expired) == (1, count)
        other.away = None
        await seconds(120)
        assert other.payloads == [b"late"]

    run_with_broker(scenario, delete_inactive_topics=False)


def test_what_expires_while_it_is_copied_is_passed_over() -> None:
    """The cursor is further than what was read last."""

    async def scenario(world: BrokerWorld) -> None:
        other, client = await kept(world, 0)
        other.away, other.entries_max, other.is_silent = None, 1, True
        await seconds(10)
        for number in range(4):
            await client.publish(number, b"%d" % number)
        await seconds(1)
        assert other.payloads == [b"0"]
        assert await posted(world, f"{PATH}/skip_all") == 204
        other.answer()
        await seconds(1)
        await client.publish(4, b"4")
        await seconds(1)
        assert (other.payloads, other.links, other.replicators[0].backlog) == ([b"0", b"4"], 1, 0)

    run_with_broker(scenario, delete_inactive_topics=False)
