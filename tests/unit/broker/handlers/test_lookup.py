"""LOOKUP and PARTITIONED_METADATA."""

from __future__ import annotations

from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.broker_world import TOPIC, BrokerWorld, Client, Type, run_with_broker


async def look_up(client: Client, topic: str, listener: str = "") -> pb.CommandLookupTopicResponse:
    request = pb.CommandLookupTopic(topic=topic, request_id=client.next_request_id())
    if listener:
        request.advertised_listener_name = listener
    client.send(pb.BaseCommand(type=Type.LOOKUP, lookupTopic=request))
    answer = (await client.expect(Type.LOOKUP_RESPONSE)).lookupTopicResponse
    assert answer.request_id == request.request_id
    return answer


async def partitions(client: Client, topic: str, *, create: bool = True) -> pb.CommandPartitionedTopicMetadataResponse:
    request = pb.CommandPartitionedTopicMetadata(
        topic=topic, request_id=client.next_request_id(), metadata_auto_creation_enabled=create
    )
    client.send(pb.BaseCommand(type=Type.PARTITIONED_METADATA, partitionMetadata=request))
    return (await client.expect(Type.PARTITIONED_METADATA_RESPONSE)).partitionMetadataResponse


def test_lookup_gives_the_urls_of_the_listener() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        answer = await look_up(client, TOPIC)
        assert answer.response == pb.CommandLookupTopicResponse.Connect
        assert answer.brokerServiceUrl == "pulsar://broker:6650"
        assert answer.authoritative
        assert not answer.proxy_through_service_url
        answer = await look_up(client, TOPIC, "external")
        assert answer.brokerServiceUrl == "pulsar://example.org:7000"
        assert answer.brokerServiceUrlTls == "pulsar+ssl://example.org:7001"

    run_with_broker(scenario)


def test_lookup_of_what_is_not_there_fails_with_pulsars_codes() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        for topic, listener, code in (
            ("no/where/t", "", pb.TopicNotFound),
            ("persistent://x", "", pb.InvalidTopicName),
            (TOPIC, "unheard-of", pb.ServiceNotReady),
        ):
            answer = await look_up(client, topic, listener)
            assert answer.response == pb.CommandLookupTopicResponse.Failed
            assert answer.error == code

    run_with_broker(scenario)


def test_partitions_are_created_on_demand_unless_the_client_forbids_it() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        answer = await partitions(client, TOPIC, create=False)
        assert (answer.response, answer.error) == (
            pb.CommandPartitionedTopicMetadataResponse.Failed,
            pb.TopicNotFound,
        )
        assert (await partitions(client, TOPIC)).partitions == 2
        assert (await partitions(client, TOPIC, create=False)).partitions == 2
        assert (await partitions(client, "no/where/t")).error == pb.TopicNotFound

    run_with_broker(scenario, auto_topic_creation_type="partitioned", default_partitions=2)


def test_topic_without_partitions_has_none() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        assert (await partitions(client, TOPIC)).partitions == 0
        # Asking does not create it.
        assert not world.broker.topics
        await client.create_producer()
        assert (await partitions(client, TOPIC, create=False)).partitions == 0

    run_with_broker(scenario)
