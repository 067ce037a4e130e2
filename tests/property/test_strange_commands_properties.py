"""Commands that are well-formed and make no sense: each is answered or closes its connection, and the broker goes on.

An exception that no handler expects would stop the broker (its fatal handler), and here fails the simulation.
"""

from __future__ import annotations

import asyncio
import random

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from geminga.model.topic_name import TopicName
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.commands import encode_command
from support.broker_world import TOPIC, BrokerWorld, Client, Type, run_with_broker, send_frame

COMMANDS_PER_SEED = 250
#: Messages within messages are filled this deep.
DEPTH_MAX = 3
TEXTS = (
    TOPIC,
    TOPIC,
    TOPIC,
    "public/default",
    "persistent://public/default/parts-partition-1",
    "persistent://public/default/parts-partition-99999999999",
    "non-persistent://public/default/np",
    "",
    "x",
    "s",
    "sub",
    "a/b%2F\u0000\n",
    "persistent://public/default/",
    "persistent://no/where/t",
    "persistent://public/default/.*",
    "persistent://public/default/((((a+)+)+)+)$",
    "\U0001f600" * 3,
    "-",
    "..",
)
NUMBERS = (0, 0, 1, 1, 1, 2, 5, 63, 64, (1 << 31) - 1, (1 << 31), (1 << 32) - 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
BITS = {
    FieldDescriptor.CPPTYPE_INT32: 32,
    FieldDescriptor.CPPTYPE_INT64: 64,
    FieldDescriptor.CPPTYPE_UINT32: 32,
    FieldDescriptor.CPPTYPE_UINT64: 64,
}
SIGNED = (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64)
#: What a client of this protocol may send, CONNECT aside; some need what others made.
KINDS = [
    "producer",
    "close_producer",
    "subscribe",
    "close_consumer",
    "flow",
    "ack",
    "unsubscribe",
    "seek",
    "getLastMessageId",
    "lookupTopic",
    "partitionMetadata",
    "getTopicsOfNamespace",
    "watchTopicList",
    "watchTopicListClose",
    "consumerStats",
    "getSchema",
    "getOrCreateSchema",
    "redeliverUnacknowledgedMessages",
    "newTxn",
    "addPartitionToTxn",
    "addSubscriptionToTxn",
    "endTxn",
    "send",
    "tcClientConnectRequest",
    "ping",
    "pong",
    "authResponse",
]


#: Types by their names without underscores, and the names by fields.
TYPES = {value.name.replace("_", "").lower(): value.number for value in Type.Type.DESCRIPTOR.values}
TYPE_NAMES = {name: name.replace("_", "").lower() for name in KINDS} | {
    "lookupTopic": "lookup",
    "partitionMetadata": "partitionedmetadata",
}


def fill(message: Message, choose: random.Random, depth: int = 0) -> None:
    """Set required fields and some of the others to values that may mean something, or nothing."""
    for field in message.DESCRIPTOR.fields:
        is_required = field.is_required
        if not is_required and choose.random() < 0.5:
            continue
        values = [_value(field, choose, depth) for _ in range(choose.choice((1, 1, 2, 5)) if field.is_repeated else 1)]
        if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
            if depth >= DEPTH_MAX and not is_required:
                continue
            for _ in values:
                target = getattr(message, field.name).add() if field.is_repeated else getattr(message, field.name)
                target.SetInParent()
                fill(target, choose, depth + 1)
        elif field.is_repeated:
            getattr(message, field.name).extend(values)
        else:
            setattr(message, field.name, values[0])


def _value(field: FieldDescriptor, choose: random.Random, depth: int) -> object:
    kind = field.cpp_type
    if kind in BITS:
        bits = BITS[kind]
        number = choose.choice(NUMBERS) & ((1 << bits) - 1)
        return number - (1 << bits) if kind in SIGNED and number >> (bits - 1) else number
    if kind == FieldDescriptor.CPPTYPE_STRING:
        text = choose.choice(TEXTS)
        return text.encode() if field.type == FieldDescriptor.TYPE_BYTES else text
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        return choose.choice(field.enum_type.values).number
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return choose.random() < 0.5
    return 0.5


def strange_command(choose: random.Random) -> bytes:
    """One frame."""
    name = choose.choice(KINDS)
    command = pb.BaseCommand()
    command.type = TYPES[TYPE_NAMES[name]]
    getattr(command, name).SetInParent()
    fill(getattr(command, name), choose)
    if name == "send":
        return send_frame(choose.choice((0, 1, (1 << 63))), producer_id=choose.choice((0, 1, 2)))
    return encode_command(command)


@pytest.mark.parametrize("seed", range(12))
def test_strange_commands_never_stop_the_broker(seed: int) -> None:
    async def scenario(world: BrokerWorld) -> None:
        choose = random.Random(seed)
        await world.broker.create_partitioned_topic(TopicName.parse("persistent://public/default/parts"), 2)
        client = await world.client()
        for index in range(COMMANDS_PER_SEED):
            if client.is_closed:
                client = await world.client()
            client.send_bytes(strange_command(choose))
            if index % 10 == 0:
                await _turns(choose.randrange(20))
        await _turns(200)
        await _still_serves(world)
        client.lose()
        for topic in world.broker.topics.values():
            topic.check_invariants()

    run_with_broker(scenario)


async def _still_serves(world: BrokerWorld) -> None:
    client: Client = await world.client()
    topic = "persistent://public/default/untouched"
    await client.create_producer(topic)
    position = await client.publish(0)
    await client.subscribe(topic)
    message = (await client.expect(Type.MESSAGE)).message.message_id
    assert (message.ledgerId, message.entryId) == position


async def _turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)  # noqa: TID251  # turns of the loop, not time
