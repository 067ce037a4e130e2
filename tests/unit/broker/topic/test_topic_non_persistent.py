"""Non-persistent topics: now or never."""

from __future__ import annotations

from geminga.broker.topic.non_persistent import NonPersistentTopic
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.broker_world import BrokerWorld, Type, run_with_broker

TOPIC = "non-persistent://public/default/topic"
UINT64_MINUS_ONE = (1 << 64) - 1


def test_message_without_a_consumer_is_gone_and_counted() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher(TOPIC)
        client.send_message(0, b"lost", num_messages=2)
        await client.receipt()
        await client.subscribe(TOPIC)
        client.send_message(1, b"seen")
        _, payload = await client.expect_with_payload(Type.MESSAGE)
        assert payload.endswith(b"seen")
        topic = world.broker.topics[TOPIC]
        assert isinstance(topic, NonPersistentTopic)
        assert topic.publishing.messages_in == 3
        assert not topic.is_persistent

    run_with_broker(scenario)


def test_unload_sends_everybody_away() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher(TOPIC)
        await client.subscribe(TOPIC)
        await world.broker.registry.unload(world.broker.topics[TOPIC].name)
        kinds = {command.type for command, _ in client.received}
        assert {Type.CLOSE_PRODUCER, Type.CLOSE_CONSUMER} <= kinds
        assert TOPIC not in world.broker.topics

    run_with_broker(scenario)


def test_a_seek_moves_nothing_and_the_consumer_gets_what_comes_next() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher(TOPIC)
        await client.subscribe(TOPIC)
        earliest = pb.MessageIdData(ledgerId=UINT64_MINUS_ONE, entryId=UINT64_MINUS_ONE)
        for where in ({"message_id": earliest}, {"message_publish_time": 1}):
            seek = pb.CommandSeek(consumer_id=1, request_id=client.next_request_id(), **where)
            client.send(pb.BaseCommand(type=Type.SEEK, seek=seek))
            assert (await client.expect(Type.SUCCESS)).success.request_id == seek.request_id
        client.send(pb.BaseCommand(type=Type.SEEK, seek=pb.CommandSeek(consumer_id=1, request_id=99)))
        assert "were not present" in (await client.error()).message
        client.send_message(0, b"next")
        _, payload = await client.expect_with_payload(Type.MESSAGE)
        assert payload.endswith(b"next")

    run_with_broker(scenario)
