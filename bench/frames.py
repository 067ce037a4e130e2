"""Frames of the load generator, encoded before the clock starts, once for all runs of one size, in a mapped file.

Message ``i`` is a SEND of producer 0 with sequence id ``i``: metadata (producer name ``bench``, the same sequence id),
CRC32C, and a payload of the wanted size. Nothing is encoded while a rate is measured.
"""

from __future__ import annotations

import mmap
import random
from array import array
from pathlib import Path

import crc32c

from geminga.wire._generated import pulsar_api_pb2 as pb

PRODUCER_NAME = "bench"
#: Everything a SEND_RECEIPT has before its sequence id: type, field 7, (length), producer id 0, tag of the sequence id.
SEQUENCE_OFFSET = 15


def varint(value: int) -> bytes:
    """Protobuf's variable-length integer."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def frame(command: pb.BaseCommand) -> bytes:
    """A command as a frame."""
    data = command.SerializeToString()
    return (len(data) + 4).to_bytes(4, "big") + len(data).to_bytes(4, "big") + data


def send_frame(sequence_id: int, payload: bytes) -> bytes:
    """One SEND."""
    metadata = pb.MessageMetadata(
        producer_name=PRODUCER_NAME, sequence_id=sequence_id, publish_time=1_700_000_000_000
    ).SerializeToString()
    body = len(metadata).to_bytes(4, "big") + metadata + payload
    command = pb.BaseCommand(type=pb.BaseCommand.SEND)
    command.send.producer_id = 0
    command.send.sequence_id = sequence_id
    encoded = command.SerializeToString()
    rest = b"\x0e\x01" + crc32c.crc32c(body).to_bytes(4, "big") + body
    return (len(encoded) + 4 + len(rest)).to_bytes(4, "big") + len(encoded).to_bytes(4, "big") + encoded + rest


def write_frames(path: Path, count: int, payload_bytes: int, *, first: int = 0) -> None:
    """``count`` SEND frames into ``path`` and their ends into ``path`` + ``.ends`` (64-bit)."""
    payload = random.Random(payload_bytes).randbytes(payload_bytes)
    ends = array("Q", [0])
    total = 0
    with path.open("wb") as file:
        for sequence_id in range(first, first + count):
            data = send_frame(sequence_id, payload)
            total += len(data)
            ends.append(total)
            file.write(data)
    path.with_name(path.name + ".ends").write_bytes(ends.tobytes())


class Frames:
    """The frames of a file, mapped."""

    def __init__(self, path: Path) -> None:
        self.ends = array("Q")
        self.ends.frombytes(path.with_name(path.name + ".ends").read_bytes())
        with path.open("rb") as file:
            self.data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        for start in range(0, len(self.data), mmap.PAGESIZE):  # fault the pages in before the clock starts
            self.data[start]

    def __len__(self) -> int:
        return len(self.ends) - 1


def connect_frame() -> bytes:
    """CONNECT as an official client of protocol version 20 would."""
    command = pb.BaseCommand(type=pb.BaseCommand.CONNECT)
    command.connect.client_version = "geminga-bench"
    command.connect.protocol_version = 20
    command.connect.feature_flags.supports_auth_refresh = True
    return frame(command)


def producer_frame(topic: str) -> bytes:
    """PRODUCER with producer id 0 and request id 1; the broker chooses the name."""
    command = pb.BaseCommand(type=pb.BaseCommand.PRODUCER)
    command.producer.topic = topic
    command.producer.producer_id = 0
    command.producer.request_id = 1
    return frame(command)


def subscribe_frame(topic: str, subscription: str, *, request_id: int = 1, consumer_id: int = 0) -> bytes:
    """SUBSCRIBE, Exclusive, durable, from the earliest message."""
    command = pb.BaseCommand(type=pb.BaseCommand.SUBSCRIBE)
    subscribe = command.subscribe
    subscribe.topic = topic
    subscribe.subscription = subscription
    subscribe.subType = pb.CommandSubscribe.Exclusive
    subscribe.consumer_id = consumer_id
    subscribe.request_id = request_id
    subscribe.durable = True
    subscribe.initialPosition = pb.CommandSubscribe.Earliest
    return frame(command)


def close_consumer_frame(consumer_id: int, request_id: int) -> bytes:
    """CLOSE_CONSUMER."""
    command = pb.BaseCommand(type=pb.BaseCommand.CLOSE_CONSUMER)
    command.close_consumer.consumer_id = consumer_id
    command.close_consumer.request_id = request_id
    return frame(command)


def flow_frame(permits: int) -> bytes:
    """FLOW for consumer 0."""
    command = pb.BaseCommand(type=pb.BaseCommand.FLOW)
    command.flow.consumer_id = 0
    command.flow.messagePermits = permits
    return frame(command)


def ack_frame(message_ids: list[bytes], *, is_cumulative: bool) -> bytes:
    """ACK for consumer 0 of encoded ``MessageIdData``."""
    fields = b"\x08\x00\x10" + (b"\x01" if is_cumulative else b"\x00")
    fields += b"".join(b"\x1a" + varint(len(one)) + one for one in message_ids)
    command = b"\x08\x0a\x52" + varint(len(fields)) + fields
    return (len(command) + 4).to_bytes(4, "big") + len(command).to_bytes(4, "big") + command
