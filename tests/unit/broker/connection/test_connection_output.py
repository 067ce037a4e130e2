"""What a connection writes, together and in order."""

from __future__ import annotations

import asyncio

from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.commands import PONG_FRAME, success
from support.worlds.broker_world import BrokerWorld, Type, run_with_broker


async def turn() -> None:
    await asyncio.sleep(0)  # noqa: TID251  # a turn of the loop, not time


def test_what_is_written_soon_leaves_in_order_with_what_is_written_now() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        client.connection.output.write_soon(success(1))
        client.connection.output.write_soon(success(2))
        assert not client.received
        client.connection.output.write(PONG_FRAME)
        client.connection.output.write_soon(success(3))
        await turn()
        await turn()
        kinds = [(command.type, command.success.request_id) for command, _ in client.received]
        assert kinds == [(Type.SUCCESS, 1), (Type.SUCCESS, 2), (Type.PONG, 0), (pb.BaseCommand.SUCCESS, 3)]

    run_with_broker(scenario)
