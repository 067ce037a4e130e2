"""A broker that answers each kind of command with what a script says, and clients of ours in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import geminga.client as gc
from geminga import sim
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar import commands
from geminga.wire.pulsar.commands import decode_command
from geminga.wire.pulsar.frame import FrameDecoder
from geminga.wire.pulsar.hot import encode_partitions
from support.worlds.client_scenario import ClientScenario
from support.worlds.client_world import PORT, URL, BrokerOnNode

T = TypeVar("T")
Script = Callable[[pb.BaseCommand], list[bytes]]


class Scripted(asyncio.Protocol):
    """One connection of a scripted broker."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.decoder = FrameDecoder(5 << 20)

    def connection_made(self, transport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        for command, _ in self.decoder.feed(data):
            for answer in self.script(decode_command(command)):
                self.transport.write(answer)


def polite(command: pb.BaseCommand) -> list[bytes]:
    """The usual answers of a broker, except to SEND."""
    if command.type == pb.BaseCommand.CONNECT:
        return [commands.connected("scripted", 21, 5 << 20, pb.FeatureFlags())]
    if command.type == pb.BaseCommand.PING:
        return [commands.PONG_FRAME]
    if command.type == pb.BaseCommand.PARTITIONED_METADATA:
        return [encode_partitions(command.partitionMetadata.request_id, 0)]
    if command.type == pb.BaseCommand.LOOKUP:
        return [commands.lookup_connect(command.lookupTopic.request_id, URL, "", is_authoritative=True)]
    if command.type == pb.BaseCommand.PRODUCER:
        answer = {"last_sequence_id": -1, "schema_version": b"", "topic_epoch": None, "is_ready": True}
        return [commands.producer_success(command.producer.request_id, "named", **answer)]
    if command.type == pb.BaseCommand.CLOSE_PRODUCER:
        return [commands.success(command.close_producer.request_id)]
    return []


def run_against(script: Script, scenario: Callable[[gc.Client], Awaitable[T]], **options) -> T:
    """Run ``scenario(client)`` against a scripted broker; nothing may be left of the client afterwards."""

    async def main(world: sim.SimWorld) -> T:
        server = world.node("proxy")
        await server.run(lambda _: server.runtime.network.listen(lambda: Scripted(script), "0.0.0.0", PORT))
        return await _with_client(ClientScenario(world), scenario, options)

    return sim.run(main)


def run_with_broker(scenario: Callable[[gc.Client, BrokerOnNode], Awaitable[T]], *, broker=None, **options) -> T:
    """Run ``scenario(client, broker)`` against a real broker; nothing may be left of the client afterwards."""

    async def main(world: sim.SimWorld) -> T:
        on_stage = await ClientScenario(world, **(broker or {})).start()
        return await _with_client(on_stage, lambda client: scenario(client, on_stage.broker), options)

    return sim.run(main)


async def _with_client(on_stage: ClientScenario, scenario: Callable[[gc.Client], Awaitable[T]], options) -> T:
    async def with_client(_: sim.SimNode) -> T:
        async with asyncio.timeout(300), on_stage.connect(**options) as client:
            return await scenario(client)

    result = await on_stage.client_node.run(with_client)
    await on_stage.check_nothing_left(1)
    return result
