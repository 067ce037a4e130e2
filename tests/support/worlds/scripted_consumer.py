"""A scripted broker for one consumer: it records what the consumer says, with the virtual time, and sends messages."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from geminga.client import Consumer, Message
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar import commands
from geminga.wire.pulsar.batch import encode_batch
from geminga.wire.pulsar.hot import encode_message_head
from geminga.wire.pulsar.metadata import encode_entry
from support.worlds.scripted_broker import polite

Type = pb.BaseCommand


def entry_bytes(payloads: Sequence[bytes], *, batched: bool = False, **fields) -> bytes:
    """An entry of one message, or of a batch."""
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, **fields)
    if not batched:
        return encode_entry(metadata, payloads[0])
    metadata.num_messages_in_batch = len(payloads)
    return encode_entry(metadata, encode_batch(payloads, 0))


def singles(count: int) -> list[bytes]:
    """Entries of one message each: ``0``, ``1`` and so on."""
    return [entry_bytes([b"%d" % number]) for number in range(count)]


async def take(consumer: Consumer[bytes], count: int) -> list[Message[bytes]]:
    """The next messages, each of which has to come within five seconds."""
    return [await consumer.receive(5000) for _ in range(count)]


def message_frame(consumer_id: int, entry_id: int, entry: bytes, **head) -> bytes:
    """A MESSAGE frame of ledger 1."""
    return encode_message_head(consumer_id, 1, entry_id, -1, len(entry), **head) + entry


class ConsumerScript:
    """Answers as a broker does; ``entries`` go out with the first FLOW of each SUBSCRIBE."""

    def __init__(
        self, entries: Sequence[bytes] = (), *, answers_acks: bool = True, refuses_acks: int | None = None
    ) -> None:
        """``refuses_acks``: the code of the error that answers ACKs; None: none."""
        self.entries = list(entries)
        self.refuses_acks = refuses_acks
        self.answers_acks = answers_acks
        #: (virtual seconds, command), without the handshake.
        self.heard: list[tuple[float, pb.BaseCommand]] = []
        self._sent_for: set[int] = set()

    def __call__(self, command: pb.BaseCommand) -> list[bytes]:
        now = asyncio.get_running_loop().time()
        if command.type == Type.SUBSCRIBE:
            self.heard.append((now, command))
            self._sent_for.discard(command.subscribe.consumer_id)
            return [commands.success(command.subscribe.request_id)]
        if command.type == Type.CLOSE_CONSUMER:
            return [commands.success(command.close_consumer.request_id)]
        if command.type == Type.FLOW:
            self.heard.append((now, command))
            return self._first(command.flow.consumer_id)
        if command.type == Type.ACK:
            self.heard.append((now, command))
            if self.answers_acks and command.ack.HasField("request_id"):
                response = pb.CommandAckResponse(consumer_id=command.ack.consumer_id, request_id=command.ack.request_id)
                if self.refuses_acks is not None:
                    response.error = self.refuses_acks
                return [
                    commands.encode_command(pb.BaseCommand(type=Type.ACK_RESPONSE, ackResponse=response)),
                ]
            return []
        if command.type == Type.REDELIVER_UNACKNOWLEDGED_MESSAGES:
            self.heard.append((now, command))
            return []
        return polite(command)

    def _first(self, consumer_id: int) -> list[bytes]:
        if consumer_id in self._sent_for:
            return []
        self._sent_for.add(consumer_id)
        return [message_frame(consumer_id, number, entry) for number, entry in enumerate(self.entries)]

    def of(self, kind: int) -> list[tuple[float, pb.BaseCommand]]:
        """What was heard of one kind."""
        return [(when, command) for when, command in self.heard if command.type == kind]

    def acked(self) -> list[int]:
        """Entry ids of all ACKs, in order."""
        return [one.entryId for _, command in self.of(Type.ACK) for one in command.ack.message_id]
