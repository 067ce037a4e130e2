"""Who is let in: producers and consumers with and without schemas, by policy."""

from __future__ import annotations

import pytest

from geminga.broker.schema.core.strategy import Strategy
from geminga.model.topic_name import TopicName
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.schema_info import SchemaInfo, SchemaType
from support.worlds.broker_world import TOPIC, BrokerWorld, Client, Type, run_with_broker
from support.worlds.schemas import B_OPTIONAL, A, B, record_info

FIRST, SECOND, UNFIT = (record_info(*fields).to_wire() for fields in ([A], [A, B_OPTIONAL], [A, B]))
WIDER = record_info({"name": "a", "type": "long"}, B_OPTIONAL).to_wire()
STRING = SchemaInfo("STRING", SchemaType.STRING, b"null").to_wire()
AUTO_CONSUME = SchemaInfo("AUTO_CONSUME", SchemaType.AUTO_CONSUME).to_wire()
NAMESPACE = "public/default"


def version(number: int) -> bytes:
    return number.to_bytes(8, "big")


async def refused(client: Client) -> str:
    error = await client.error()
    assert error.error == pb.IncompatibleSchema
    return error.message


async def subscribe_refused(client: Client, **fields) -> str:
    request = pb.CommandSubscribe(
        topic=fields.pop("topic", TOPIC),
        subscription="sub",
        subType=pb.CommandSubscribe.Shared,
        consumer_id=77,
        request_id=client.next_request_id(),
        **fields,
    )
    client.send(pb.BaseCommand(type=Type.SUBSCRIBE, subscribe=request))
    return await refused(client)


def test_producers_add_schemas_and_are_told_the_version() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        assert (await client.create_producer(producer_id=1, schema=FIRST)).schema_version == version(0)
        assert (await client.create_producer(producer_id=2, schema=SECOND)).schema_version == version(1)
        assert (await client.create_producer(producer_id=3, schema=FIRST)).schema_version == version(0)
        client.request_producer(producer_id=4, schema=WIDER)
        assert "long can not be read as int" in await refused(client)
        assert (await client.create_producer(producer_id=5)).schema_version == b""

    run_with_broker(scenario)


def test_bytes_of_the_go_client_are_a_schema_with_a_version() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        # Type NONE: its messages carry the version, and its consumers ask for the schema of that version.
        none = pb.Schema(name="Bytes", schema_data=b"", type=0)
        assert (await client.create_producer(schema=none)).schema_version == version(0)
        found = await world.broker.schemas.registry.get("public/default/topic", 0)
        assert found is not None
        assert not found.is_deleted
        await client.subscribe(schema=none)
        client.request_producer(producer_id=2, schema=FIRST)
        assert "NONE" in await refused(client)

    run_with_broker(scenario)


def test_consumers_of_bytes_read_every_topic_producers_of_bytes_must_fit() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        none = pb.Schema(name="Bytes", schema_data=b"", type=0)
        await client.create_producer(producer_id=1, schema=FIRST)
        await client.subscribe(schema=none)
        client.request_producer(producer_id=2, schema=none)
        assert "NONE" in await refused(client)

    run_with_broker(scenario)


def test_partitions_share_their_topics_schemas() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.broker.partitions.create(TopicName.parse(TOPIC), 2)
        client = await world.client()
        for index in range(2):
            answer = await client.create_producer(f"{TOPIC}-partition-{index}", producer_id=index, schema=FIRST)
            assert answer.schema_version == version(0)
        registry = world.broker.schemas.registry
        assert len(await registry.live("public/default/topic")) == 1
        await world.broker.registry.delete(TopicName.parse(f"{TOPIC}-partition-0"), force=True)
        assert await registry.has_schema("public/default/topic")
        await world.broker.partitions.delete(TopicName.parse(TOPIC), force=True)
        assert not await registry.has_schema("public/default/topic")

    run_with_broker(scenario)


def test_schemas_survive_a_restart_and_die_with_the_topic() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher(schema=FIRST)
        await world.restart()
        client = await world.client()
        client.request_producer(producer_id=1, schema=STRING)
        assert "AVRO, new schema type STRING" in await refused(client)
        await world.broker.registry.delete(TopicName.parse(TOPIC), force=True)
        assert (await client.create_producer(producer_id=2, schema=STRING)).schema_version == version(0)

    run_with_broker(scenario)


def test_topics_of_both_domains_share_schemas_until_the_last_goes() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        other = "non-persistent://public/default/topic"
        await client.create_producer(producer_id=1, schema=FIRST)
        await client.create_producer(other, producer_id=2, schema=FIRST)
        registry = world.broker.schemas.registry
        await world.broker.registry.delete(TopicName.parse(other), force=True)
        assert await registry.has_schema("public/default/topic")
        await world.broker.registry.delete(TopicName.parse(TOPIC), force=True)
        assert not await registry.has_schema("public/default/topic")

    run_with_broker(scenario)


def test_a_namespace_takes_schemas_without_topics_with_it() -> None:
    async def scenario(world: BrokerWorld) -> None:
        schemas = world.broker.schemas
        for schema_id in ("public/default/a", "public/default/b%2Fc", "public/other/a"):
            await schemas.registry.put_if_absent(schema_id, record_info(A), Strategy.FULL)
        await schemas.forget_namespace("public/default")
        found = [
            await schemas.registry.has_schema(f"public/{name}") for name in ("default/a", "default/b%2Fc", "other/a")
        ]
        assert found == [False, False, True]

    run_with_broker(scenario)


def test_the_first_consumer_of_an_unused_topic_adds_its_schema() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.subscriber(schema=FIRST)
        assert await world.broker.schemas.registry.has_schema("public/default/topic")
        client.request_producer(schema=STRING)
        await refused(client)

    run_with_broker(scenario)


def test_auto_consume_brings_no_schema_and_does_not_count() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.subscriber(schema=AUTO_CONSUME, subType=pb.CommandSubscribe.Shared)
        assert not await world.broker.schemas.registry.has_schema("public/default/topic")
        await client.subscribe(schema=FIRST, consumer_id=2, subType=pb.CommandSubscribe.Shared)
        assert await world.broker.schemas.registry.has_schema("public/default/topic")

    run_with_broker(scenario)


@pytest.mark.parametrize("use", ["consumer", "producer", "message"])
def test_a_topic_in_use_without_schema_takes_no_consumer_with_one(use: str) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        if use == "consumer":
            await client.subscribe(subType=pb.CommandSubscribe.Shared)
        else:
            await client.create_producer()
            if use == "message":
                await client.publish(0)
                await client.close_producer()
        assert "does not have schema" in await subscribe_refused(client, schema=FIRST)

    run_with_broker(scenario)


def test_consumers_must_fit_the_topics_schema() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher(schema=FIRST)
        assert "field b" in await subscribe_refused(client, schema=UNFIT)
        assert "STRING" in await subscribe_refused(client, schema=STRING)
        await client.subscribe(schema=SECOND, consumer_id=1, subType=pb.CommandSubscribe.Shared)
        await client.subscribe(consumer_id=2, subType=pb.CommandSubscribe.Shared)

    run_with_broker(scenario)


def test_non_persistent_topics_have_schemas_too() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        topic = "non-persistent://public/default/topic"
        assert (await client.create_producer(topic, schema=FIRST)).schema_version == version(0)
        assert "STRING" in await subscribe_refused(client, topic=topic, schema=STRING)

    run_with_broker(scenario)


@pytest.mark.parametrize("by", ["namespace", "broker"])
def test_where_schemas_are_enforced_producers_need_one(by: str) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        if by == "namespace":
            await set_policy(world, "schema_validation_enforced", True)
        await client.create_producer(producer_id=1)
        await client.create_producer("persistent://public/default/other", producer_id=2, schema=FIRST)
        client.request_producer("persistent://public/default/other", producer_id=3)
        assert "SchemaValidationEnforced" in await refused(client)

    run_with_broker(scenario, **({"schema_validation_enforced": True} if by == "broker" else {}))


async def set_policy(world: BrokerWorld, key: str, value: object) -> None:
    await world.resources.namespaces.set_policy(NAMESPACE, key, value)
    await world.broker.policies_changed(NAMESPACE)


def test_the_namespaces_strategy_comes_before_the_brokers() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher(producer_id=1, schema=FIRST)
        client.request_producer(producer_id=2, schema=SECOND)
        assert "ALWAYS_INCOMPATIBLE" in await refused(client)
        await set_policy(world, "schema_compatibility_strategy", "FORWARD")
        assert (await client.create_producer(producer_id=3, schema=UNFIT)).schema_version == version(1)
        await set_policy(world, "schema_compatibility_strategy", "UNDEFINED")
        await set_policy(world, "schema_auto_update_compatibility_strategy", "AlwaysCompatible")
        assert (await client.create_producer(producer_id=4, schema=STRING)).schema_version == version(2)

    run_with_broker(scenario, schema_compatibility_strategy="ALWAYS_INCOMPATIBLE")


def test_undefined_everywhere_is_full() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher(producer_id=1, schema=FIRST)
        client.request_producer(producer_id=2, schema=UNFIT)
        assert "FULL" in await refused(client)

    run_with_broker(scenario, schema_compatibility_strategy="UNDEFINED")


def test_where_producers_may_not_add_they_need_a_known_schema() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        client.request_producer(producer_id=1, schema=FIRST)
        assert "auto updating is disabled" in await refused(client)
        await set_policy(world, "is_allow_auto_update_schema", True)
        await client.create_producer(producer_id=2, schema=FIRST)
        await set_policy(world, "is_allow_auto_update_schema", False)
        await client.create_producer(producer_id=3, schema=FIRST)
        client.request_producer(producer_id=4, schema=SECOND)
        assert "auto updating is disabled" in await refused(client)

    run_with_broker(scenario, allow_auto_update_schema=False)


def test_replicators_may_add_where_they_are_told_to_and_others_may_not() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        await set_policy(world, "is_allow_auto_update_schema", False)
        replicator = {"producer_name": "pulsar.repl.west-->standalone"}
        client.request_producer(producer_id=1, schema=FIRST, **replicator)
        assert "auto updating is disabled" in await refused(client)
        await set_policy(world, "is_allow_auto_update_schema_with_replicator", True)
        client.request_producer(producer_id=2, schema=FIRST)
        assert "auto updating is disabled" in await refused(client)
        success = await client.create_producer(producer_id=3, schema=FIRST, **replicator)
        assert success.schema_version == version(0)
        client.request_producer(producer_id=4, schema=UNFIT, producer_name="pulsar.repl.north-->standalone")
        assert "FULL" in await refused(client)

    run_with_broker(scenario)


def test_replicator_that_brought_nothing_yet_keeps_no_consumer_with_a_schema_out() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher(producer_id=1, producer_name="pulsar.repl.west-->standalone")
        await client.subscribe(consumer_id=1, schema=FIRST)
        # One of its own without a schema does, as before: nobody knows what it sends.
        await client.create_producer(TOPIC + "2", producer_id=2)
        assert "does not have schema" in await subscribe_refused(client, topic=TOPIC + "2", schema=FIRST)

    run_with_broker(scenario)
