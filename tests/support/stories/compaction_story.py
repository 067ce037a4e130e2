"""A topic that is published to by key, compacted, trimmed, and read with and without what was compacted; and a model.

The model is a list of messages. A reader of compacted messages gets the newest one of each key, as far as the topic was
compacted when it read, and all behind that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from geminga.broker.compaction.part import RUNNING, TopicCompaction, compact
from geminga.broker.topic.persistent import PersistentTopic
from geminga.managed_ledger.rules.catch_up_share import WAIT_MAX_S
from geminga.model.position import Position
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.batch import decode_batch, single_message_head
from geminga.wire.pulsar.compression import compress, decompress
from geminga.wire.pulsar.metadata import encode_entry, split_entry
from support.worlds.broker_world import BrokerWorld, Client, Type
from support.worlds.policy_levels import seconds, topic_of
from support.worlds.subscriptions import settle

#: Virtual seconds that a compaction may take.
PATIENCE_S = 300
READER = {"durable": False, "read_compacted": True}


class Sent(NamedTuple):
    """One message: its entry, its index in the batch (-1: none), key and value (empty: it deletes the key)."""

    position: Position
    index: int
    key: str | None
    value: str


class Got(NamedTuple):
    """One message as a consumer was sent it."""

    position: Position
    index: int
    key: str | None
    value: str


class CompactionStory:
    """See the module."""

    def __init__(self, world: BrokerWorld) -> None:
        self.world = world
        self.sent: list[Sent] = []
        #: How many of them were there when the topic was compacted last.
        self.compacted = 0
        self._sequence_id = 0
        self._consumers = 0
        self._client: Client | None = None

    async def publish(
        self,
        *messages: tuple[str | None, str],
        batched: bool = False,
        compression: int = 0,
        encrypted: bool = False,
        **metadata: object,
    ) -> Position:
        """An entry for each message, or one batch of them; ``(key, value)``. Where the last entry is."""
        groups = [messages] if batched else [(message,) for message in messages]
        position = Position(-1, -1)
        for group in groups:
            position = await self._send(group, batched, compression, encrypted, metadata)
            for index, (key, value) in enumerate(group):
                self.sent.append(Sent(position, index if batched else -1, key, value))
        return position

    async def _send(
        self, group: Sequence[tuple[str | None, str]], batched: bool, compression: int, encrypted: bool, extra: dict
    ) -> Position:
        client = await self._producer()
        metadata = pb.MessageMetadata(
            producer_name="producer", sequence_id=self._sequence_id, publish_time=1, compression=compression, **extra
        )
        if batched:
            payload = b"".join(
                single_message_head(len(value), index, partition_key=key) + value.encode()
                for index, (key, value) in enumerate(group)
            )
            metadata.num_messages_in_batch = len(group)
        else:
            ((key, value),) = group
            payload = value.encode()
            if key is not None:
                metadata.partition_key = key
        metadata.uncompressed_size = len(payload)
        payload = compress(compression, payload)
        if encrypted:
            metadata.encryption_keys.add(key="k", value=b"v")
            payload = b"nonce" + payload[::-1]
        client.send_message(self._sequence_id, entry=encode_entry(metadata, payload), num_messages=len(group))
        self._sequence_id += 1
        found = (await client.receipt()).message_id
        return Position(found.ledgerId, found.entryId)

    async def _producer(self) -> Client:
        if self._client is None or self._client.is_closed:
            self._client = await self.world.client()
            await self._client.create_producer()
        return self._client

    async def topic(self) -> PersistentTopic:
        """Loaded."""
        return await topic_of(self.world)

    async def part(self) -> TopicCompaction | None:
        """Of compaction; None: there is none."""
        return (await self.topic()).parts.find(TopicCompaction)

    async def compact(self) -> TopicCompaction:
        """Compact, as by command; returns when it is over."""
        before = len(self.sent)
        await compact(await self.topic())
        part = await self.over()
        if part.status == "SUCCESS":
            self.compacted = before
        return part

    async def over(self) -> TopicCompaction:
        """When no run is under way."""
        part = await self.part()
        assert part is not None
        for _ in range(PATIENCE_S * 10):
            if part.status != RUNNING:
                return part
            await seconds(0.1)
        raise AssertionError(f"still {part.status}: {part.last_error}")

    async def trim(self) -> int:
        """Delete all that nobody holds; how many entries are left in the log."""
        log = (await self.topic()).ledger
        log.trimmer.set_retention(retention_ms=0, retention_bytes=0)
        await log.roll()
        await log.trimmer.trim()
        return log.ledgers.entry_count

    async def restart(self) -> None:
        """Orderly; on the same storage."""
        self._client = None
        await self.world.restart()

    # ---- reading

    async def read(self, **fields: object) -> list[Got]:
        """All that a new consumer gets."""
        client = await self.world.client()
        self._consumers += 1
        name = f"reader-{self._consumers}"
        await client.subscribe(**{"subscription": name, **READER, **fields})
        found: list[Got] = []
        while True:
            await settle(WAIT_MAX_S)
            await seconds(0.1)
            if not client.received:
                break
            while client.received:
                command, payload = client.received.popleft()
                if command.type == Type.MESSAGE:
                    found += messages_of(command.message.message_id, payload)
        client.lose()
        await settle()
        return found

    def expected(self, start: int = 0) -> list[Got]:
        """What the model says that a reader of compacted messages gets, from the ``start``-th message on."""
        newest: dict[str, Sent] = {}
        for message in self.sent[: self.compacted]:
            if message.key is None:
                continue
            newest.pop(message.key, None)
            if message.value:
                newest[message.key] = message
        kept = {id(message) for message in newest.values()}
        return [
            Got(*message)
            for place, message in enumerate(self.sent)
            if place >= start and (place >= self.compacted or id(message) in kept)
        ]


def messages_of(message_id: pb.MessageIdData, entry: bytes) -> list[Got]:
    """The messages of an entry that a client passes on: none that was left out of its batch."""
    position = Position(message_id.ledgerId, message_id.entryId)
    metadata, start = split_entry(entry)
    assert metadata is not None
    payload = entry[start:]
    if metadata.encryption_keys:
        payload = payload[len(b"nonce") :][::-1]
    payload = decompress(metadata.compression, payload, metadata.uncompressed_size)
    if not metadata.HasField("num_messages_in_batch"):
        key = metadata.partition_key if metadata.HasField("partition_key") else None
        return [Got(position, -1, key, payload.decode())]
    return [
        Got(position, index, one.partition_key if one.HasField("partition_key") else None, value.decode())
        for index, (one, value) in enumerate(decode_batch(payload, metadata.num_messages_in_batch))
        if not one.compacted_out
    ]
