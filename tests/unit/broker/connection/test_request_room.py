"""Requests of many clients that wait for something that hangs: few of each, and not ever more of those that left."""

from __future__ import annotations

import asyncio

import pytest

from geminga.broker.connection import request_room
from geminga.broker.connection.core.read_gate import PauseReason
from geminga.broker.connection.request_room import REQUESTS_FEW
from geminga.runtime import next_turn
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.broker_world import BrokerWorld, Client, Type, run_with_broker

LIMIT = 100


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_room, "REQUESTS_UNDER_WAY_MAX", LIMIT)


class Hanging:
    """What requests wait for."""

    def __init__(self) -> None:
        self.is_over = asyncio.Event()

    async def ask(self, client: Client, count: int = 1) -> None:
        for _ in range(count):
            client.connection.run(self._wait(), "hangs")
        await next_turn()

    async def _wait(self) -> None:
        await self.is_over.wait()


def ask_partitions(client: Client) -> None:
    request = pb.CommandPartitionedTopicMetadata(topic="persistent://public/default/topic", request_id=7)
    client.send(pb.BaseCommand(type=Type.PARTITIONED_METADATA, partitionMetadata=request))


async def partitions(client: Client) -> pb.CommandPartitionedTopicMetadataResponse:
    ask_partitions(client)
    return (await client.expect(Type.PARTITIONED_METADATA_RESPONSE)).partitionMetadataResponse


def test_who_asks_much_waits_and_who_asks_little_is_served() -> None:
    async def scenario(world: BrokerWorld) -> None:
        hanging = Hanging()
        much, little = await world.client(), await world.client()
        await hanging.ask(much, LIMIT + 1)
        assert much.connection.gate.reasons == PauseReason.REQUEST_ROOM
        await hanging.ask(little, REQUESTS_FEW)
        assert not little.connection.gate.reasons
        assert not (await partitions(little)).HasField("error")
        hanging.is_over.set()
        await next_turn()
        await next_turn()
        assert not much.connection.gate.reasons
        assert world.broker.requests.count == 0

    run_with_broker(scenario)


def test_requests_of_connections_that_are_gone_count_until_they_end() -> None:
    async def scenario(world: BrokerWorld) -> None:
        hanging = Hanging()
        for _ in range(2 * LIMIT // REQUESTS_FEW + 1):
            gone = await world.client()
            await hanging.ask(gone, REQUESTS_FEW)
            gone.lose()
        await next_turn()
        client = await world.client()
        answer = await partitions(client)
        assert answer.error == pb.TooManyRequests
        assert "requests of all clients are under way" in answer.message
        assert world.broker.requests.count >= 2 * LIMIT
        assert not world.broker.requests.held
        hanging.is_over.set()
        await next_turn()
        await next_turn()
        assert not (await partitions(client)).HasField("error")

    run_with_broker(scenario)


def test_a_connection_that_is_held_and_goes_is_forgotten() -> None:
    async def scenario(world: BrokerWorld) -> None:
        hanging = Hanging()
        client = await world.client()
        await hanging.ask(client, LIMIT + 1)
        assert list(world.broker.requests.held) == [client.connection.load]
        client.lose()
        await next_turn()
        assert not world.broker.requests.held
        hanging.is_over.set()

    run_with_broker(scenario)
