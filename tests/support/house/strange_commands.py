"""Commands that are well-formed and make no sense: fields at random, from values that may mean something."""

from __future__ import annotations

import random

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.commands import encode_command
from support.worlds.broker_world import TOPIC, Type, send_frame

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
KINDS = (
    *("producer", "close_producer", "send", "subscribe", "close_consumer", "flow", "ack", "unsubscribe", "seek"),
    *("redeliverUnacknowledgedMessages", "getLastMessageId", "consumerStats", "lookupTopic", "partitionMetadata"),
    *("getTopicsOfNamespace", "watchTopicList", "watchTopicListClose", "getSchema", "getOrCreateSchema"),
    *("tcClientConnectRequest", "newTxn", "addPartitionToTxn", "addSubscriptionToTxn", "endTxn"),
    *("ping", "pong", "authResponse"),
)


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


def strange_commands(seed: int, count: int) -> list[bytes]:
    """Frames; the same for the same seed."""
    choose = random.Random(seed)
    return [strange_command(choose) for _ in range(count)]
