"""Valid frames of every command a client sends, and seeded ways to damage them."""

from __future__ import annotations

import random

from bench.frames import send_frame

from geminga.wire._generated import pulsar_api_pb2 as pb
from support.processes.raw_protocol import frame

#: Largest frame a mutation may make, bytes.
FRAME_BYTES_MAX = 4_000


def valid_frames(topic: str, subscription: str) -> list[bytes]:
    """One of each command that a client may send, all naming things that exist."""
    kinds = pb.BaseCommand
    frames = [send_frame(0, b"payload"), send_frame(70_000, b"p" * 300)]

    def add(kind: int, field: str, **values: object) -> None:
        command = kinds(type=kind)
        target = getattr(command, field)
        target.SetInParent()
        for name, value in values.items():
            setattr(target, name, value)
        frames.append(frame(command))

    add(kinds.CONNECT, "connect", client_version="m", protocol_version=20, auth_method_name="none", auth_data=b"")
    add(kinds.PRODUCER, "producer", topic=topic, producer_id=0, request_id=1, producer_name="m", encrypted=False)
    add(kinds.SUBSCRIBE, "subscribe", topic=topic, subscription=subscription, subType=1, consumer_id=1, request_id=2)
    add(kinds.FLOW, "flow", consumer_id=1, messagePermits=10)
    add(kinds.PARTITIONED_METADATA, "partitionMetadata", topic=topic, request_id=3)
    add(kinds.LOOKUP, "lookupTopic", topic=topic, request_id=4, authoritative=False)
    add(kinds.GET_TOPICS_OF_NAMESPACE, "getTopicsOfNamespace", namespace="public/default", request_id=5)
    add(kinds.UNSUBSCRIBE, "unsubscribe", consumer_id=1, request_id=6)
    add(kinds.SEEK, "seek", consumer_id=1, request_id=7, message_publish_time=5)
    add(kinds.GET_LAST_MESSAGE_ID, "getLastMessageId", consumer_id=1, request_id=8)
    add(kinds.REDELIVER_UNACKNOWLEDGED_MESSAGES, "redeliverUnacknowledgedMessages", consumer_id=1)
    add(kinds.CLOSE_PRODUCER, "close_producer", producer_id=0, request_id=9)
    add(kinds.CLOSE_CONSUMER, "close_consumer", consumer_id=1, request_id=10)
    add(kinds.CONSUMER_STATS, "consumerStats", consumer_id=1, request_id=11)
    add(kinds.GET_SCHEMA, "getSchema", topic=topic, request_id=12)
    add(kinds.PING, "ping")
    add(kinds.PONG, "pong")
    add(kinds.NEW_TXN, "newTxn", request_id=14)
    add(
        kinds.WATCH_TOPIC_LIST,
        "watchTopicList",
        request_id=15,
        watcher_id=1,
        namespace="public/default",
        topics_pattern=".*",
    )
    schema = kinds(type=kinds.GET_OR_CREATE_SCHEMA)
    schema.getOrCreateSchema.request_id = 13
    schema.getOrCreateSchema.topic = topic
    schema.getOrCreateSchema.schema.name = "s"
    schema.getOrCreateSchema.schema.type = pb.Schema.String
    schema.getOrCreateSchema.schema.schema_data = b""
    frames.append(frame(schema))
    ack = kinds(type=kinds.ACK)
    ack.ack.consumer_id = 1
    ack.ack.ack_type = 0
    ack.ack.message_id.add(ledgerId=1, entryId=2, ack_set=[3, 4])
    frames.append(frame(ack))
    return frames


def mutate(rng: random.Random, frames: list[bytes]) -> bytes:
    """A damaged frame: flipped, cut, repeated, spliced, mis-sized, unknown, or noise."""
    data = bytearray(rng.choice(frames))
    for _ in range(rng.choice((1, 1, 2, 5))):
        kind = rng.randrange(9)
        at = rng.randrange(len(data)) if data else 0
        if kind <= 2 and data:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 3:
            del data[at:]
        elif kind == 4:
            data[at:at] = data[at : at + rng.randrange(1, 20)]
        elif kind == 5:
            other = rng.choice(frames)
            data[at:] = other[rng.randrange(len(other)) :]
        elif kind == 6 and len(data) >= 8:
            data[rng.choice((0, 4, 6))] = rng.randrange(256)
            data[rng.choice((3, 7))] = rng.randrange(256)
        elif kind == 7:
            data = bytearray(frame_of(b"\x08" + bytes((rng.randrange(128),)) + rng.randbytes(rng.randrange(12))))
        else:
            data[at : at + 4] = rng.randbytes(4)
    return bytes(data[:FRAME_BYTES_MAX])


def frame_of(command: bytes) -> bytes:
    """Any bytes as the command of a well-formed frame."""
    return (len(command) + 4).to_bytes(4, "big") + len(command).to_bytes(4, "big") + command


def is_whole(data: bytes) -> bool:
    """Whether a broker that reads these bytes is at the beginning of the next frame afterwards."""
    return len(data) >= 8 and int.from_bytes(data[:4], "big") == len(data) - 4
