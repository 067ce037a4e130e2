"""Schemas are taken and not kept."""

from __future__ import annotations

from geminga.wire._generated import pulsar_api_pb2 as pb
from support.broker_world import TOPIC, BrokerWorld, Type, run_with_broker

SCHEMA = pb.Schema(name="s", schema_data=b"{}", type=pb.Schema.Json)


def test_no_topic_has_a_schema_to_give() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        request = pb.CommandGetSchema(request_id=3, topic=TOPIC)
        client.send(pb.BaseCommand(type=Type.GET_SCHEMA, getSchema=request))
        answer = (await client.expect(Type.GET_SCHEMA_RESPONSE)).getSchemaResponse
        assert (answer.request_id, answer.error_code) == (3, pb.TopicNotFound)

    run_with_broker(scenario)


def test_given_schemas_are_taken_with_an_empty_version() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        request = pb.CommandGetOrCreateSchema(request_id=3, topic=TOPIC, schema=SCHEMA)
        client.send(pb.BaseCommand(type=Type.GET_OR_CREATE_SCHEMA, getOrCreateSchema=request))
        answer = (await client.expect(Type.GET_OR_CREATE_SCHEMA_RESPONSE)).getOrCreateSchemaResponse
        assert not answer.HasField("error_code")
        assert answer.schema_version == b""
        success = await client.create_producer(schema=SCHEMA)
        assert success.schema_version == b""
        await client.subscribe(schema=SCHEMA)

    run_with_broker(scenario)
