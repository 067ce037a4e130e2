"""Lookups of topics that other brokers serve, as clients see them."""

from __future__ import annotations

import pytest

from geminga.broker.ownership.endpoints import Endpoints
from geminga.broker.ownership.ports import Elsewhere
from geminga.model.errors import ServerError
from geminga.model.topic_name import TopicName
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.broker_world import TOPIC, BrokerWorld, Client, run_with_broker
from support.worlds.ownership import OwnershipTable, endpoints_of

Response = pb.CommandLookupTopicResponse


async def look_up(client: Client, topic: str = TOPIC, **fields: object) -> pb.CommandLookupTopicResponse:
    request = pb.CommandLookupTopic(topic=topic, request_id=client.next_request_id(), **fields)
    client.send(pb.BaseCommand(type=pb.BaseCommand.LOOKUP, lookupTopic=request))
    return (await client.expect(pb.BaseCommand.LOOKUP_RESPONSE)).lookupTopicResponse


def run(scenario) -> None:
    table = OwnershipTable(["a", "b"])

    async def main(world: BrokerWorld) -> None:
        await scenario(world, await world.client(), table)

    run_with_broker(main, ownership=table.brokers["a"])


@pytest.mark.parametrize("is_authoritative", [False, True])
def test_lookup_here_connects_here(is_authoritative: bool) -> None:
    async def scenario(world: BrokerWorld, client: Client, table: OwnershipTable) -> None:
        answer = await look_up(client, authoritative=is_authoritative)
        assert (answer.response, answer.brokerServiceUrl) == (Response.Connect, "pulsar://broker:6650")
        assert answer.authoritative
        assert table.brokers["a"].asked == [(TOPIC, is_authoritative)]

    run(scenario)


@pytest.mark.parametrize("is_authoritative", [False, True])
def test_lookup_of_what_another_broker_serves_connects_there_through_the_same_listener(is_authoritative: bool) -> None:
    async def scenario(world: BrokerWorld, client: Client, table: OwnershipTable) -> None:
        table.default = "b"
        answer = await look_up(client, authoritative=is_authoritative)
        assert (answer.response, answer.brokerServiceUrl) == (Response.Connect, "pulsar://b:6650")
        answer = await look_up(client, advertised_listener_name="external")
        assert (answer.response, answer.brokerServiceUrl) == (Response.Connect, "pulsar://b.example.org:7000")
        answer = await look_up(client, advertised_listener_name="nowhere")
        assert (answer.response, answer.error) == (Response.Failed, pb.ServiceNotReady)

    run(scenario)


def test_lookup_of_what_another_broker_is_to_serve_is_sent_on_once() -> None:
    async def scenario(world: BrokerWorld, client: Client, table: OwnershipTable) -> None:
        table.brokers["a"].beliefs[TOPIC] = Elsewhere(Endpoints(endpoints_of("b")), is_owner=False)
        answer = await look_up(client)
        assert (answer.response, answer.brokerServiceUrl) == (Response.Redirect, "pulsar://b:6650")
        assert answer.authoritative
        answer = await look_up(client, authoritative=True)
        assert (answer.response, answer.error) == (Response.Failed, pb.ServiceNotReady)
        assert "do not agree" in answer.message

    run(scenario)


def test_lookup_of_what_nobody_serves_is_to_be_tried_again() -> None:
    async def scenario(world: BrokerWorld, client: Client, table: OwnershipTable) -> None:
        table.default = None
        answer = await look_up(client)
        assert (answer.response, answer.error) == (Response.Failed, pb.ServiceNotReady)
        assert "No broker was available to own" in answer.message
        # What is not there is told by any broker.
        answer = await look_up(client, "persistent://public/nowhere/topic")
        assert (answer.response, answer.error) == (Response.Failed, pb.TopicNotFound)

    run(scenario)


def test_producer_and_consumer_of_a_topic_elsewhere_are_told_to_look_up_again_and_nothing_is_opened() -> None:
    async def scenario(world: BrokerWorld, client: Client, table: OwnershipTable) -> None:
        for table.default in ("b", None):
            for topic in (TOPIC, f"{TOPIC}-partition-0", "non-persistent://public/default/passing"):
                client.request_producer(topic)
                await client.check_error(ServerError.SERVICE_NOT_READY, "look it up again")
                request = pb.CommandSubscribe(
                    topic=topic,
                    subscription="sub",
                    subType=pb.CommandSubscribe.Exclusive,
                    consumer_id=1,
                    request_id=client.next_request_id(),
                )
                client.send(pb.BaseCommand(type=pb.BaseCommand.SUBSCRIBE, subscribe=request))
                assert (await client.error()).error == ServerError.SERVICE_NOT_READY
        assert not world.broker.topics
        # Nothing was made of it in metadata either.
        assert not await world.broker.registry.exists(TopicName.parse(TOPIC))

    run(scenario)
