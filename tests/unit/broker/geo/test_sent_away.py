"""Producers of which something was dropped as their topic was to move, where it stays then: nothing overtakes that."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise

import pytest

from geminga.bookkeeper import MemoryBookie
from geminga.broker.geo.migration import TOLD_A_TURN, Stage, TopicMigration
from geminga.model.errors import UnavailableError
from geminga.runtime import next_turn, spawn, wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.broker_world import TOPIC, BrokerWorld, Client, Type, run_with_broker
from support.worlds.policy_levels import topic_of
from unit.broker.geo.test_migration import GREEN, Green, moving, ready


async def dropped(world: BrokerWorld, client: Client, in_vain: asyncio.Event) -> TopicMigration:
    """Of a producer's messages 0 waits for its bookies, and 1 is dropped; ``in_vain``: the topic can not move."""
    assert isinstance(world.bookie, MemoryBookie)
    green = ready(world, Green())

    async def prepare(topic, place) -> None:
        green.prepared.append((str(topic.name), place))
        if len(green.prepared) > 1:
            await in_vain.wait()
            raise UnavailableError("it went away")

    green.prepare = prepare  # type: ignore[method-assign]
    await client.create_producer(producer_name="producer")
    world.bookie.holds_replies = True
    client.send_message(0)
    part = await moving(world)
    await wait_ms(100)
    assert part.stage is Stage.DRAINING
    client.send_message(1)
    return part


def test_what_was_dropped_is_not_overtaken_where_nothing_moves_any_more() -> None:
    async def scenario(world: BrokerWorld) -> None:
        assert isinstance(world.bookie, MemoryBookie)
        client = await world.client()
        await dropped(world, client, asyncio.Event())
        await world.resources.clusters.change_policies(
            "standalone", lambda _: {"migrated": False, "migratedClusterUrl": GREEN}
        )
        await wait_ms(100)
        client.send_message(2)
        await wait_ms(100)
        world.bookie.release()
        assert (await client.receipt()).sequence_id == 0
        await client.expect(Type.CLOSE_PRODUCER)
        topic = await topic_of(world)
        assert topic.ledger.ledgers.entry_count == 1
        await wait_ms(100)
        assert topic.parts.find(TopicMigration) is None
        await client.create_producer(producer_name="producer", epoch=1)
        for sequence_id in (1, 2):
            await client.publish(sequence_id)
        assert topic.ledger.ledgers.entry_count == 3

    run_with_broker(scenario)


def test_others_are_let_in_again_though_who_was_to_go_closed_meanwhile() -> None:
    async def scenario(world: BrokerWorld) -> None:
        assert isinstance(world.bookie, MemoryBookie)
        client, in_vain = await world.client(), asyncio.Event()
        part = await dropped(world, client, in_vain)
        client.send(
            pb.BaseCommand(
                type=Type.CLOSE_PRODUCER, close_producer=pb.CommandCloseProducer(producer_id=1, request_id=77)
            )
        )
        await wait_ms(100)
        world.bookie.release()
        assert (await client.expect(Type.SUCCESS)).success.request_id == 77
        in_vain.set()
        await wait_ms(100)
        assert (part.stage, part.reason) == (Stage.PREPARING, "it went away")
        await client.create_producer(producer_name="another")
        await client.publish(0)

    run_with_broker(scenario)


@pytest.mark.parametrize("kind", ["persistent", "non-persistent"])
def test_many_clients_are_led_to_the_other_cluster_in_several_turns(kind: str) -> None:
    many = 2 * TOLD_A_TURN + 3

    async def scenario(world: BrokerWorld) -> None:
        client, name = await world.client(), TOPIC.replace("persistent", kind)
        ready(world, Green())
        for number in range(many):
            await client.create_producer(name, producer_id=number)
            await client.subscribe(name, number, subType=pb.CommandSubscribe.Shared)
        topic = world.broker.topics[name]
        present: list[int] = []

        async def look() -> None:
            while not present or present[-1]:
                present.append(len(topic.producers) + len(topic.subscriptions["sub"].consumers))
                await next_turn()

        looking = spawn(look(), name="look")
        await world.resources.clusters.change_policies(
            "standalone", lambda _: {"migrated": True, "migratedClusterUrl": GREEN}
        )
        await looking
        left = [before - now for before, now in pairwise(present) if before > now]
        assert sum(left) == 2 * many
        assert max(left) == TOLD_A_TURN
        told = Counter(command.type for command, _ in client.received)
        assert told[Type.TOPIC_MIGRATED] == told[Type.CLOSE_PRODUCER] + told[Type.CLOSE_CONSUMER] == 2 * many

    run_with_broker(scenario)
