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
from support.client_world import PORT, URL, BrokerOnNode, HostileProxy

T = TypeVar("T")
Script = Callable[[pb.BaseCommand], list[bytes]]

#: Short times, so that faults are noticed within some virtual seconds.
CLIENT: gc.ClientArguments = {
    "operation_timeout_ms": 8_000,
    "connection_timeout_ms": 2_000,
    "keep_alive_interval_ms": 2_000,
    "initial_backoff_ms": 20,
    "maximum_backoff_ms": 500,
}


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
        return [commands.partitions(command.partitionMetadata.request_id, 0)]
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
        return await _with_client(world, scenario, options)

    return sim.run(main)


def run_with_broker(scenario: Callable[[gc.Client, BrokerOnNode], Awaitable[T]], *, broker=None, **options) -> T:
    """Run ``scenario(client, broker)`` against a real broker; nothing may be left of the client afterwards."""

    async def main(world: sim.SimWorld) -> T:
        broker_node, proxy_node = world.node("broker"), world.node("proxy")
        on_node, proxy = BrokerOnNode(broker_node, **(broker or {})), HostileProxy(world, proxy_node)
        proxy.is_hostile = False
        await broker_node.run(lambda _: on_node.start())
        await proxy_node.run(lambda _: proxy.start())
        return await _with_client(world, lambda client: scenario(client, on_node), options)

    return sim.run(main)


async def _with_client(world: sim.SimWorld, scenario: Callable[[gc.Client], Awaitable[T]], options) -> T:
    node = world.node("client")

    async def with_client(_: sim.SimNode) -> T:
        async with asyncio.timeout(300), gc.connect(URL, runtime=node.runtime, **{**CLIENT, **options}) as client:
            return await scenario(client)

    result = await node.run(with_client)
    await world.sleep(1)
    left = [task.get_name() for task, boot in world.loop.pending_tasks() if boot is node.boot]
    assert left == [], f"tasks left behind: {left}"
    assert world.network.connections(node) == []
    return result
