"""Things that a broker does with very many of something, each in two parts: what is there before, and what is counted.

A story is an asynchronous generator that is given a broker and a number: up to its ``yield`` it prepares.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence

from starlette.types import ASGIApp

from geminga.model.topic_name import TopicName
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import encode_entry
from support.worlds.broker_world import BrokerWorld, Client, send_frame
from support.worlds.rest_world import ask, rest_application
from support.worlds.schemas import record_info

Story = Callable[[BrokerWorld, int], AsyncIterator[None]]
STORIES: dict[str, Story] = {}

DEFAULT = "/admin/v2/persistent/public/default"
TOPIC = f"{DEFAULT}/topic"
SCHEMAS = "/admin/v2/schemas/public/default/topic"
NAMESPACE = "/admin/v2/namespaces/public/default"
Command, Sub = pb.BaseCommand, pb.CommandSubscribe
PRODUCER = 1_000_000


def story(tell: Story) -> Story:
    STORIES[tell.__name__] = tell
    return tell


async def rest(application: ASGIApp, method: str, path: str, body: bytes = b"") -> bytes:
    answer = await ask(application, method, path, body)
    assert answer.status in (200, 204), (method, path, answer)
    return answer.body


async def with_topics(world: BrokerWorld, count: int) -> ASGIApp:
    for number in range(count):
        await world.broker.registry.get(TopicName.parse(f"persistent://public/default/t{number}"), create=True)
    return rest_application(world.broker)


async def with_messages(world: BrokerWorld, count: int, sub_type: int, permits: int) -> tuple[Client, list[list[int]]]:
    client = await world.publisher(producer_id=PRODUCER)
    await client.subscribe(permits=permits, subType=sub_type)
    ids = [list(await client.publish(number, producer_id=PRODUCER)) for number in range(count)]
    await asyncio.sleep(1)
    return client, ids


async def with_consumers(world: BrokerWorld, count: int, sub_type: int) -> Client:
    client = await world.client()
    for number in range(count):
        await client.subscribe(consumer_id=number, subType=sub_type)
    return client


async def with_subscriptions(world: BrokerWorld, count: int) -> Client:
    client = await world.client()
    for number in range(count):
        await client.subscribe(consumer_id=number, subscription=f"s{number}")
    return client


def acknowledge(client: Client, ids: Sequence[Sequence[int]]) -> None:
    ack = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual)
    for ledger_id, entry_id in ids:
        ack.message_id.add(ledgerId=ledger_id, entryId=entry_id)
    client.send(Command(type=Command.ACK, ack=ack))


async def lost(client: Client) -> None:
    client.lose()
    await asyncio.sleep(1)


# ---- topics


@story
async def topics_are_made(world: BrokerWorld, count: int) -> AsyncIterator[None]:
    yield
    await with_topics(world, count)


@story
async def topics_are_looked_at(world: BrokerWorld, count: int) -> AsyncIterator[None]:
    application = await with_topics(world, count)
    await rest(application, "GET", "/metrics")
    yield
    for path in ("/metrics", "/admin/v2/broker-stats/topics", "/admin/v2/broker-stats/load-report", DEFAULT):
        await rest(application, "GET", path)


@story
async def topics_have_nothing_to_do_for_an_hour(world: BrokerWorld, count: int) -> AsyncIterator[None]:
    await with_topics(world, count)
    yield
    await asyncio.sleep(3600)


@story
async def topics_are_unloaded(world: BrokerWorld, count: int) -> AsyncIterator[None]:
    application = await with_topics(world, count)
    yield
    await rest(application, "PUT", f"{NAMESPACE}/unload")


@story
async def topics_follow_their_namespace(world: BrokerWorld, count: int) -> AsyncIterator[None]:
    application = await with_topics(world, count)
    yield
    policy = b'{"retentionTimeInMinutes": 10, "retentionSizeInMB": 10}'
    await rest(application, "POST", f"{NAMESPACE}/retention", policy)
    await asyncio.sleep(1)


@story
async def topics_get_policies(world: BrokerWorld, count: int) -> AsyncIterator[None]:
    application = await with_topics(world, count)
    yield
    for number in range(count):
        await rest(application, "POST", f"{DEFAULT}/t{number}/maxProducers", b"3")


@story
async def topics_are_listed_to_a_client_and_watched(world: BrokerWorld, count: int) -> AsyncIterator[None]:
    await with_topics(world, count)
    client = await world.client()
    yield
    request = pb.CommandWatchTopicList(
        request_id=client.next_request_id(),
        watcher_id=1,
        namespace="public/default",
        topics_pattern="persistent://public/default/.*",
    )
    client.send(Command(type=Command.WATCH_TOPIC_LIST, watchTopicList=request))
    await client.expect(Command.WATCH_TOPIC_LIST_SUCCESS)


@story
async def a_topic_has_partitions(world: BrokerWorld, count: int) -> AsyncIterator[None]:
    application = rest_application(world.broker)
    yield
    await rest(application, "PUT", f"{TOPIC}/partitions", str(count).encode())
    await rest(application, "PUT", f"{TOPIC}/subscription/s")
    await rest(application, "GET", f"{TOPIC}/partitioned-stats")
    await rest(application, "DELETE", f"{TOPIC}/partitions?force=true")


@story
async def a_topic_has_ledgers(world: BrokerWorld, count: int) -> AsyncIterator[None]:
    application = rest_application(world.broker)
    client = await world.subscriber(permits=0)
    for number in range(count):
        client = await world.publisher()
        await client.publish(number)
        await rest(application, "PUT", f"{TOPIC}/unload")
    client = await world.client()
    yield
    await client.subscribe(permits=count)
    await asyncio.sleep(5)
    await rest(application, "GET", f"{TOPIC}/internalStats")


@story
async def a_topic_has_schemas(world: BrokerWorld, count: int) -> AsyncIterator[None]:
    application = rest_application(world.broker)
    yield
    for number in range(count):
        fields = ({"name": f"f{one}", "type": "int", "default": 0} for one in (number, number + 1))
        definition = record_info(*fields).schema.decode()
        body = json.dumps({"type": "AVRO", "schema": definition, "properties": {}}).encode()
        told = await rest(application, "POST", f"{SCHEMAS}/schema", body)
        assert json.loads(told)["version"] == {"version": number}, told
    await rest(application, "GET", f"{SCHEMAS}/schemas")


# ---- clients


@story
async def connections_come_and_go(world: BrokerWorld, count: int) -> AsyncIterator[None]:
    yield
    for client in [await world.client() for _ in range(count)]:
        client.lose()
    await asyncio.sleep(1)


@story
async def producers_come_and_go(world: BrokerWorld, count: int) -> AsyncIterator[None]:
    client = await world.client()
    yield
    for number in range(count):
        await client.create_producer(producer_id=number)
        await client.publish(0, producer_id=number)
    await lost(client)


@story
async def producers_wait_for_one(world: BrokerWorld, count: int) -> AsyncIterator[None]:
    client = await world.publisher(producer_id=0, producer_access_mode=pb.ProducerAccessMode.Exclusive)
    yield
    for number in range(1, count):
        client.request_producer(producer_id=number, producer_access_mode=pb.ProducerAccessMode.WaitForExclusive)
    await asyncio.sleep(1)
    await lost(client)


@story
async def topics_are_looked_up(world: BrokerWorld, count: int) -> AsyncIterator[None]:
    client = await world.client()
    yield
    for number in range(count):
        lookup = pb.CommandLookupTopic(
            topic=f"persistent://public/default/{number}", request_id=client.next_request_id()
        )
        client.send(Command(type=Command.LOOKUP, lookupTopic=lookup))
        await client.expect(Command.LOOKUP_RESPONSE)


# ---- subscriptions


@story
async def subscriptions_are_made_looked_at_and_deleted(world: BrokerWorld, count: int) -> AsyncIterator[None]:
    application = rest_application(world.broker)
    yield
    client = await with_subscriptions(world, count)
    for path in ("stats", "internalStats", "subscriptions"):
        await rest(application, "GET", f"{TOPIC}/{path}")
    for number in range(count):
        unsubscribe = pb.CommandUnsubscribe(consumer_id=number, request_id=client.next_request_id())
        client.send(Command(type=Command.UNSUBSCRIBE, unsubscribe=unsubscribe))
        await client.expect(Command.SUCCESS)


@story
async def subscriptions_get_messages(world: BrokerWorld, count: int) -> AsyncIterator[None]:
    client = await with_subscriptions(world, count)
    await client.create_producer(producer_id=PRODUCER)
    yield
    for number in range(5):
        await client.publish(number, producer_id=PRODUCER)
    await asyncio.sleep(1)


@story
async def readers_come_and_go(world: BrokerWorld, count: int) -> AsyncIterator[None]:
    client, _ = await with_messages(world, 5, Sub.Shared, 0)
    yield
    for number in range(count):
        await client.subscribe(consumer_id=number + 2, subscription=f"r{number}", durable=False)
    await lost(client)


def of_consumers(name: str, sub_type: int) -> None:
    async def dispatch(world: BrokerWorld, count: int) -> AsyncIterator[None]:
        client = await with_consumers(world, count, sub_type)
        await client.create_producer(producer_id=PRODUCER)
        yield
        for number in range(count):
            await client.publish(number, producer_id=PRODUCER)
        await asyncio.sleep(1)
        await lost(client)

    async def one_by_one(world: BrokerWorld, count: int) -> AsyncIterator[None]:
        yield
        client = await with_consumers(world, count, sub_type)
        for number in range(count):
            close = pb.CommandCloseConsumer(consumer_id=number, request_id=client.next_request_id())
            client.send(Command(type=Command.CLOSE_CONSUMER, close_consumer=close))
            await client.expect(Command.SUCCESS)

    async def again(world: BrokerWorld, count: int) -> AsyncIterator[None]:
        client, _ = await with_messages(world, count, sub_type, 4 * count)
        yield
        for _ in range(3):
            redeliver = pb.CommandRedeliverUnacknowledgedMessages(consumer_id=1)
            command = Command.REDELIVER_UNACKNOWLEDGED_MESSAGES
            client.send(Command(type=command, redeliverUnacknowledgedMessages=redeliver))
            await asyncio.sleep(1)

    async def permits(world: BrokerWorld, count: int) -> AsyncIterator[None]:
        client, _ = await with_messages(world, count, sub_type, 0)
        yield
        for _ in range(count):
            client.send(Command(type=Command.FLOW, flow=pb.CommandFlow(consumer_id=1, messagePermits=1)))
            await asyncio.sleep(0.001)

    STORIES[f"{name}_consumers_get_messages"] = dispatch
    STORIES[f"{name}_consumers_come_and_go"] = one_by_one
    STORIES[f"{name}_messages_are_delivered_again"] = again
    STORIES[f"{name}_messages_are_asked_for_one_by_one"] = permits


for name, sub_type in (("shared", Sub.Shared), ("key_shared", Sub.Key_Shared), ("failover", Sub.Failover)):
    of_consumers(name, sub_type)


def of_acknowledgments(name: str, order: Callable[[list[list[int]]], list[list[int]]]) -> None:
    async def each(world: BrokerWorld, count: int) -> AsyncIterator[None]:
        client, ids = await with_messages(world, count, Sub.Shared, count)
        yield
        for one in order(ids):
            acknowledge(client, [one])
        await asyncio.sleep(2)

    async def at_once(world: BrokerWorld, count: int) -> AsyncIterator[None]:
        client, ids = await with_messages(world, count, Sub.Shared, count)
        yield
        acknowledge(client, order(ids))
        await asyncio.sleep(2)

    STORIES[f"messages_are_acknowledged_{name}"] = each
    STORIES[f"messages_are_acknowledged_{name}_at_once"] = at_once


of_acknowledgments("in_order", lambda ids: ids)
of_acknowledgments("backwards", lambda ids: ids[::-1])
of_acknowledgments("every_other_one_first", lambda ids: ids[::2] + ids[1::2])


@story
async def messages_are_refused_one_by_one(world: BrokerWorld, count: int) -> AsyncIterator[None]:
    client, ids = await with_messages(world, count, Sub.Shared, 4 * count)
    yield
    for ledger_id, entry_id in ids:
        redeliver = pb.CommandRedeliverUnacknowledgedMessages(consumer_id=1)
        redeliver.message_ids.add(ledgerId=ledger_id, entryId=entry_id)
        command = Command.REDELIVER_UNACKNOWLEDGED_MESSAGES
        client.send(Command(type=command, redeliverUnacknowledgedMessages=redeliver))
        await asyncio.sleep(0.01)


@story
async def messages_are_delayed(world: BrokerWorld, count: int) -> AsyncIterator[None]:
    client, _ = await with_messages(world, 0, Sub.Shared, count)
    yield
    now_ms = world.runtime.clock.wall_ms()
    for number in range(count):
        metadata = pb.MessageMetadata(
            producer_name="p",
            sequence_id=number,
            publish_time=now_ms,
            deliver_at_time=now_ms + 5000 + number * 7919 % 100_000,
        )
        client.send_bytes(send_frame(number, producer_id=PRODUCER, entry=encode_entry(metadata, b"x")))
        await client.receipt()
    await asyncio.sleep(200)


@story
async def messages_expire(world: BrokerWorld, count: int) -> AsyncIterator[None]:
    await with_messages(world, count, Sub.Shared, 0)
    application = rest_application(world.broker)
    yield
    await rest(application, "POST", f"{NAMESPACE}/messageTTL", b"1")
    await asyncio.sleep(600)


# ---- what an operator makes


@story
async def namespaces_and_tenants_are_made(world: BrokerWorld, count: int) -> AsyncIterator[None]:
    application = rest_application(world.broker)
    yield
    for number in range(count):
        await rest(application, "PUT", f"/admin/v2/namespaces/public/n{number}", b"{}")
        await rest(application, "PUT", f"/admin/v2/tenants/t{number}", b'{"allowedClusters": ["standalone"]}')
    await rest(application, "GET", "/admin/v2/tenants")
    await rest(application, "GET", "/admin/v2/namespaces/public")
