"""AUTH_RESPONSE, PONG and feature flags; CONNECT and keep-alive are with the connection's tests."""

from __future__ import annotations

from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.broker_world import BrokerWorld, Client, Type, run_with_broker


def test_unasked_auth_response_changes_nothing() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        client.send(pb.BaseCommand(type=Type.AUTH_RESPONSE, authResponse=pb.CommandAuthResponse()))
        client.send(pb.BaseCommand(type=Type.PONG, pong=pb.CommandPong()))
        assert not client.is_closed
        assert not client.received

    run_with_broker(scenario)


def test_entry_metadata_goes_only_to_clients_that_know_it_from_brokers_that_expose_it() -> None:
    async def scenario(world: BrokerWorld) -> None:
        for knows in (True, False):
            client = Client(world.broker)
            flags = pb.FeatureFlags(supports_broker_entry_metadata=knows)
            connect = pb.CommandConnect(client_version="x" * 1000, protocol_version=20, feature_flags=flags)
            client.send(pb.BaseCommand(type=Type.CONNECT, connect=connect))
            await client.expect(Type.CONNECTED)
            assert client.connection.supports_broker_entry_metadata == knows
            assert len(client.connection.client_version) == 200

    run_with_broker(scenario, expose_entry_metadata=True)
