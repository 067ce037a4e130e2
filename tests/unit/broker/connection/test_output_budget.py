"""Consumers that take nothing: what is held for all of them is bounded, and those who read go on."""

from __future__ import annotations

import asyncio

from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.broker.connection.back_pressure import WRITE_BUFFER_HIGH_BYTES
from geminga.broker.connection.output_budget import TURNS_MAX, OutputBudget
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.broker_world import BrokerWorld, Client, Type, run_with_broker
from support.worlds.policy_levels import seconds

MEBIBYTE = 1024 * 1024
STUCK = 50
ENTRIES = 12
ENTRY_BYTES = MEBIBYTE
UNSENT_MAX = 64 * MEBIBYTE


async def stuck_client(world: BrokerWorld) -> Client:
    """A client whose socket takes nothing from now on."""
    client = await world.client()
    transport = client.transport

    def on_write(data: bytes) -> None:
        transport.buffered_bytes += len(data)
        if transport.buffered_bytes > WRITE_BUFFER_HIGH_BYTES and client.connection.output.is_writable:
            client.connection.pause_writing()

    transport.on_write = on_write
    return client


def subscribe(client: Client, name: str) -> None:
    request = pb.CommandSubscribe(
        topic="persistent://public/default/topic",
        subscription=name,
        subType=pb.CommandSubscribe.Exclusive,
        consumer_id=1,
        request_id=1,
        initialPosition=pb.CommandSubscribe.Earliest,
    )
    client.send(pb.BaseCommand(type=Type.SUBSCRIBE, subscribe=request))


async def fill(world: BrokerWorld) -> None:
    producer = await world.publisher()
    for i in range(ENTRIES):
        await producer.publish(i, b"x" * ENTRY_BYTES)


async def many_stuck(world: BrokerWorld) -> list[Client]:
    clients = [await stuck_client(world) for _ in range(STUCK)]
    for i, client in enumerate(clients):
        subscribe(client, f"stuck-{i}")
    await seconds(0.01)
    for client in clients:
        client.send(pb.BaseCommand(type=Type.FLOW, flow=pb.CommandFlow(consumer_id=1, messagePermits=1000)))
    await seconds(0.05)
    return clients


def unsent(clients: list[Client]) -> int:
    return sum(0 if client.is_closed else client.transport.buffered_bytes for client in clients)


def test_stuck_consumers_hold_little_together_and_others_go_on() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await fill(world)
        clients = await many_stuck(world)
        group = BrokerConfig().dispatcher_max_read_size_bytes + ENTRY_BYTES
        assert unsent(clients) <= 2 * UNSENT_MAX + group
        reader = await world.subscriber(subscription="reader")
        loop = asyncio.get_running_loop()
        began = loop.time()
        for _ in range(ENTRIES):
            await reader.expect(Type.MESSAGE)
        assert loop.time() - began < 1.0
        for _ in range(20):
            await seconds(1)
            assert unsent(clients) <= 2 * UNSENT_MAX + group
        # Who takes nothing is cut off as long as others wait for the room, and no longer.
        assert 0 < sum(client.is_closed for client in clients) < STUCK
        budget = world.broker.output_budget
        assert budget.size_bytes == unsent(clients)

    run_with_broker(scenario, keep_alive_interval_s=3600)


def test_shortage_ends_when_clients_take_what_they_were_sent() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await fill(world)
        clients = await many_stuck(world)
        budget = world.broker.output_budget
        assert budget.is_short
        for _ in range(200):
            for client in clients:
                if not client.is_closed and client.transport.buffered_bytes:
                    client.transport.buffered_bytes = 0
                    client.connection.resume_writing()
            await seconds(0.02)
        assert not budget.is_short
        assert budget.size_bytes == 0
        assert all(client.connection.output.is_writable for client in clients)
        topic = next(iter(world.broker.topics.values()))
        for client in clients:
            [consumer] = client.connection.members.consumers.values()
            assert consumer.messages_out == ENTRIES
        assert len(topic.subscriptions) == STUCK

    run_with_broker(scenario, keep_alive_interval_s=3600)


def test_answers_that_nobody_takes_are_bounded_over_all_clients() -> None:
    """No dispatcher waits, and no connection is over its mark: 300 clients held 120 MB of answers."""

    async def scenario(world: BrokerWorld) -> None:
        clients = [await stuck_client(world) for _ in range(300)]
        budget = world.broker.output_budget
        budget._limit_bytes = 16 * MEBIBYTE
        most = 0
        for _ in range(40):
            for client in clients:
                # As answers of requests are written.
                client.connection.output.write(b"a" * 10_000)
            await seconds(0.25)
            most = max(most, unsent(clients))
        assert most > budget._limit_bytes
        assert most <= 3 * budget._limit_bytes
        await seconds(10)
        assert unsent(clients) <= 2 * budget._limit_bytes
        assert sum(client.is_closed for client in clients) < 300
        # And a client that takes its answers is none of them.
        reader = await world.client()
        reader.connection.output.write(b"a" * MEBIBYTE)
        await seconds(10)
        assert not reader.is_closed

    run_with_broker(scenario)


class Waiting:
    """A connection whose dispatchers want to write, and whether they may."""

    unsent_bytes = 0

    def __init__(self, has_taken_nothing: int = 0) -> None:
        self.unsent_bytes = has_taken_nothing
        self.has_turn = False

    def must_wait(self) -> None:
        self.has_turn = False

    def may_write_again(self, *, has_turn: bool = False) -> None:
        self.has_turn = has_turn


def test_everybody_who_waits_gets_a_turn_as_far_as_there_are_any() -> None:
    async def scenario() -> None:
        full, waiting = Waiting(UNSENT_MAX + 1), [Waiting() for _ in range(TURNS_MAX + 3)]
        budget = OutputBudget(asyncio.get_running_loop().time, UNSENT_MAX)
        for one in (full, *waiting):
            budget.join(one, lambda reason: None)
        budget.note(full, full.unsent_bytes)
        for one in waiting:
            budget.wait(one)
        # One look finds room for all of them: those who came first are still asked for when the others have written.
        budget.wrote(full)
        budget._next_turns()
        assert sum(one.has_turn for one in waiting) == TURNS_MAX
        budget.close()

    asyncio.run(scenario())
