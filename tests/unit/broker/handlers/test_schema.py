"""GET_SCHEMA and GET_OR_CREATE_SCHEMA."""

from __future__ import annotations

from geminga.broker.handlers.schema import LANES
from geminga.model.topic_name import TopicName
from geminga.runtime import next_turn
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.commands import encode_command
from geminga.wire.pulsar.schema_info import SchemaInfo
from support.worlds.broker_world import TOPIC, BrokerWorld, Client, Type, run_with_broker
from support.worlds.schemas import B_OPTIONAL, A, record_info

FIRST, SECOND, UNFIT = (record_info(*fields) for fields in ([A], [A, B_OPTIONAL], [{"name": "a", "type": "long"}]))


async def get_schema(client: Client, topic: str = TOPIC, **fields) -> pb.CommandGetSchemaResponse:
    request = pb.CommandGetSchema(request_id=client.next_request_id(), topic=topic, **fields)
    client.send(pb.BaseCommand(type=Type.GET_SCHEMA, getSchema=request))
    answer = (await client.expect(Type.GET_SCHEMA_RESPONSE)).getSchemaResponse
    assert answer.request_id == request.request_id
    return answer


async def get_or_create(
    client: Client, info: SchemaInfo, topic: str = TOPIC, **fields: str
) -> pb.CommandGetOrCreateSchemaResponse:
    request = pb.CommandGetOrCreateSchema(
        request_id=client.next_request_id(), topic=topic, schema=info.to_wire(), **fields
    )
    client.send(pb.BaseCommand(type=Type.GET_OR_CREATE_SCHEMA, getOrCreateSchema=request))
    answer = (await client.expect(Type.GET_OR_CREATE_SCHEMA_RESPONSE)).getOrCreateSchemaResponse
    assert answer.request_id == request.request_id
    return answer


def test_schemas_are_given_by_version_or_newest() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher(schema=FIRST.to_wire())
        await client.create_producer(producer_id=2, schema=SECOND.to_wire())
        newest = await get_schema(client)
        assert newest.schema_version == bytes(7) + b"\1"
        assert SchemaInfo.from_wire(newest.schema).schema == SECOND.schema
        assert newest.schema.name == "public/default/topic"
        first = await get_schema(client, f"{TOPIC}-partition-0", schema_version=bytes(8))
        assert first.schema_version == bytes(8)
        assert first.schema.schema_data == FIRST.schema

    run_with_broker(scenario)


def test_what_is_not_there_is_told() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        missing = await get_schema(client)
        assert missing.error_code == pb.TopicNotFound
        assert missing.error_message == f"Topic not found or no-schema {TOPIC}"
        await client.create_producer(schema=FIRST.to_wire())
        assert (await get_schema(client, schema_version=bytes(7) + b"\1")).error_code == pb.TopicNotFound
        assert (await get_schema(client, schema_version=b"")).error_code == pb.IncompatibleSchema
        assert (await get_schema(client, "bad://x")).error_code == pb.InvalidTopicName
        await world.broker.schemas.registry.mark_deleted("public/default/topic")
        assert (await get_schema(client)).error_code == pb.TopicNotFound
        assert (await get_schema(client, schema_version=bytes(7) + b"\1")).error_code == pb.TopicNotFound
        assert not client.connection.members.requests

    run_with_broker(scenario)


def test_versions_from_before_a_deletion_are_not_given_away() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client, registry = await world.client(), world.broker.schemas.registry
        await client.create_producer(schema=FIRST.to_wire())
        await registry.mark_deleted("public/default/topic")
        gone = await get_schema(client, schema_version=bytes(8))
        assert (gone.error_code, gone.HasField("schema")) == (pb.TopicNotFound, False)
        assert gone.error_message == f"Topic not found or no-schema {TOPIC}"
        await client.create_producer(producer_id=2, schema=FIRST.to_wire())
        again = await get_schema(client, schema_version=bytes(7) + b"\2")
        assert SchemaInfo.from_wire(again.schema).schema == FIRST.schema
        assert (await get_schema(client, schema_version=bytes(8))).error_code == pb.TopicNotFound

    run_with_broker(scenario)


def test_get_or_create_adds_to_a_topic_that_exists() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        missing = await get_or_create(client, FIRST)
        assert (missing.error_code, missing.error_message) == (pb.TopicNotFound, f"Topic not found {TOPIC}")
        await world.broker.registry.create(TopicName.parse(TOPIC))
        assert (await get_or_create(client, FIRST)).schema_version == bytes(8)
        assert (await get_or_create(client, SECOND)).schema_version == bytes(7) + b"\1"
        answer = await get_or_create(client, UNFIT)
        assert answer.error_code == pb.IncompatibleSchema
        assert "long can not be read as int" in answer.error_message
        assert not client.connection.members.requests

    run_with_broker(scenario)


def test_who_asks_for_schemas_and_takes_none_is_given_no_more_of_them() -> None:
    large = record_info({**A, "doc": "x" * 100_000})
    count = 200

    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher(schema=large.to_wire())
        transport, take = client.transport, client.transport.on_write

        def untaken(data: bytes) -> None:
            take(data)
            if not transport.buffered_bytes:
                client.connection.pause_writing()
            transport.buffered_bytes += len(data)

        transport.on_write = untaken
        asked = [
            pb.BaseCommand(type=Type.GET_SCHEMA, getSchema=pb.CommandGetSchema(request_id=number, topic=TOPIC))
            for number in range(count)
        ]
        client.send_bytes(b"".join(map(encode_command, asked)))
        for _ in range(1000):
            await next_turn()
        assert transport.buffered_bytes <= (LANES + 1) * 101_000
        # All are answered by and by.
        answered: set[int] = set()
        while len(answered) < count:
            while client.received:
                answered.add(client.received.popleft()[0].getSchemaResponse.request_id)
            transport.buffered_bytes = 0
            client.connection.resume_writing()
            await next_turn()
        assert not client.connection.members.requests
        # One that goes meanwhile leaves nothing.
        client.send_bytes(b"".join(map(encode_command, asked)))
        for _ in range(100):
            await next_turn()
        client.lose()

    run_with_broker(scenario)


def test_get_or_create_adds_for_a_replicator_that_says_its_name() -> None:
    """As those of Pulsar 5.0 do; a name without it is anybody's."""

    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        await world.broker.registry.create(TopicName.parse(TOPIC))
        for key, value in (("", False), ("_with_replicator", True)):
            await world.resources.namespaces.set_policy("public/default", f"is_allow_auto_update_schema{key}", value)
        for fields in ({}, {"producerName": "producer"}):
            answer = await get_or_create(client, FIRST, **fields)
            assert answer.error_code == pb.IncompatibleSchema
        answer = await get_or_create(client, FIRST, producerName="pulsar.repl.west-->standalone")
        assert answer.schema_version == bytes(8)

    run_with_broker(scenario)
