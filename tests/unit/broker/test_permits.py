"""How many batches a consumer's permits are worth, by its type, the configuration and what its client said
(docs/formats/permits.md)."""

from __future__ import annotations

import pytest

from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.broker_world import TOPIC, BrokerWorld, Client, run_with_broker
from support.worlds.subscriptions import settle

Type, Sub = pb.BaseCommand, pb.CommandSubscribe
#: Messages in each batch, and batches.
BATCH, BATCHES = 100, 40
#: Of which there are half of a batch's messages.
PERMITS = 50


async def connected(world: BrokerWorld, *, permits_are_messages: bool) -> Client:
    client = Client(world.broker)
    flags = pb.FeatureFlags(geminga_permits_are_messages=permits_are_messages)
    connect = pb.CommandConnect(client_version="test", protocol_version=21, feature_flags=flags)
    client.send(pb.BaseCommand(type=Type.CONNECT, connect=connect))
    await client.expect(Type.CONNECTED)
    return client


@pytest.mark.parametrize(
    ("sub_type", "is_precise", "permits_are_messages", "expected"),
    [
        (Sub.Exclusive, False, False, 32),
        (Sub.Failover, False, False, 32),
        (Sub.Exclusive, True, False, 1),
        (Sub.Exclusive, False, True, 1),
        (Sub.Failover, False, True, 1),
        (Sub.Shared, False, False, 1),
        (Sub.Key_Shared, False, False, 1),
    ],
)
def test_batches_for_fewer_permits_than_one_has_messages(sub_type, is_precise, permits_are_messages, expected) -> None:
    async def scenario(world: BrokerWorld) -> None:
        publisher = await world.publisher()
        for number in range(BATCHES):
            metadata = {"num_messages_in_batch": BATCH}
            publisher.send_message(number, num_messages=BATCH, metadata=metadata)
            await publisher.receipt()
        client = await connected(world, permits_are_messages=permits_are_messages)
        # Of the first entry nothing is known, but that it is one.
        await client.subscribe(TOPIC, permits=1, subType=sub_type)
        await client.expect(Type.MESSAGE)
        await settle()
        assert not [command for command, _ in client.received if command.type == Type.MESSAGE]
        client.flow(BATCH - 1 + PERMITS)
        await settle()
        sent = [command for command, _ in client.received if command.type == Type.MESSAGE]
        assert len(sent) == expected
        # All the same, permits are what was asked for.
        (consumer,) = client.connection.members.consumers.values()
        assert consumer.permits == PERMITS - expected * BATCH

    run_with_broker(scenario, is_flow_control_precise=is_precise)
