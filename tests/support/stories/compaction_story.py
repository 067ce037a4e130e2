"""A topic that is published to by key, compacted, trimmed, and read with and without what was compacted; and a model.

The model is a list of messages. A reader of compacted messages gets the newest one of each key, as far as the topic was
compacted when it read, and all behind that.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from geminga.bookkeeper.memory import MemoryBookie
from geminga.broker.compaction import run
from geminga.broker.compaction.part import RUNNING, TopicCompaction, compact
from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.broker.topic.persistent import PersistentTopic
from geminga.managed_ledger import ManagedLedgerConfig
from geminga.managed_ledger.log import attached
from geminga.managed_ledger.named_ledgers import all_named_ledgers
from geminga.managed_ledger.rules.catch_up_share import WAIT_MAX_S
from geminga.managed_ledger.shared import crash_points as ml_points
from geminga.metadata.memory import MemoryMetadata
from geminga.model.errors import GemingaError
from geminga.model.position import EARLIEST, Position
from geminga.sim import SimNode, SimWorld
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.batch import decode_batch, single_message_head
from geminga.wire.pulsar.compression import LZ4, NONE, ZLIB, compress, decompress
from geminga.wire.pulsar.metadata import encode_entry, split_entry
from support.stories.lives import last_life
from support.worlds.broker_world import ENDPOINTS, BrokerWorld, Client, Type
from support.worlds.policy_levels import seconds, set_topic, topic_of
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
    #: When it was published.
    at_ms: int


class Got(NamedTuple):
    """One message as a consumer was sent it."""

    position: Position
    index: int
    key: str | None
    value: str
    at_ms: int


class CompactionStory:
    """See the module."""

    def __init__(self, world: BrokerWorld) -> None:
        self.world = world
        self.sent: list[Sent] = []
        #: How many of them were there when the topic was compacted last.
        self.compacted = 0
        #: Messages that delete their key are kept until they are so old.
        self.tombstones_ms = world.config.compaction_tombstones_s * 1000
        self._sequence_id = 0
        self._consumers = 0
        self._client: Client | None = None

    async def hold(self, threshold: int = 1 << 40) -> None:
        """From now on nothing is trimmed that was not compacted: the topic has a threshold, which nothing reaches."""
        await self.topic()
        await set_topic(self.world, "compactionThreshold", threshold)

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
            at_ms = self.now_ms
            position = await self._send(group, batched, compression, encrypted, {"publish_time": at_ms, **metadata})
            for index, (key, value) in enumerate(group):
                self.sent.append(Sent(position, index if batched else -1, key, value, at_ms))
        return position

    @property
    def now_ms(self) -> int:
        """By the broker's clock."""
        return self.world.runtime.clock.wall_ms()

    async def _send(
        self, group: Sequence[tuple[str | None, str]], batched: bool, compression: int, encrypted: bool, extra: dict
    ) -> Position:
        client = await self._producer()
        metadata = pb.MessageMetadata(
            producer_name="producer", sequence_id=self._sequence_id, compression=compression, **extra
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

    def is_old(self, one: Got | Sent) -> bool:
        """Whether it deletes its key, and need not be kept any more."""
        return not one.value and one.at_ms < self.now_ms - self.tombstones_ms

    def expected(self, start: int = 0) -> list[Got]:
        """What the model says that a reader of compacted messages gets, from the ``start``-th message on.

        Of what was compacted without messages that deleted their keys long ago: the next compaction takes them out.
        """
        newest: dict[str, Sent] = {}
        for message in self.sent[: self.compacted]:
            if message.key is None:
                continue
            newest.pop(message.key, None)
            if message.value or (self.tombstones_ms and not self.is_old(message)):
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
        return [Got(position, -1, key, payload.decode(), metadata.publish_time)]
    return [
        Got(
            position,
            index,
            one.partition_key if one.HasField("partition_key") else None,
            value.decode(),
            metadata.publish_time,
        )
        for index, (one, value) in enumerate(decode_batch(payload, metadata.num_messages_in_batch))
        if not one.compacted_out
    ]


#: Moments of a compaction, of trimming and of the cursor's writes.
POINTS: Final = (
    attached.MADE,
    attached.NAMED,
    attached.FORGOTTEN,
    run.BEGUN,
    run.WRITTEN,
    run.NAMED,
    ml_points.TRIM_FLUSHED,
    ml_points.TRIM_LISTED,
    ml_points.CURSOR_CREATED,
    ml_points.CURSOR_LEDGER_CREATED,
    ml_points.CURSOR_MARKER_APPENDED,
    ml_points.CURSOR_MARKER_DURABLE,
    ml_points.CURSOR_LEDGER_NAMED,
)
LIVES: Final = 6
STEPS: Final = 14
KEYS: Final = 7
#: Longer than all else that a life does.
TOMBSTONES_S: Final = 2000


async def compacted(world: BrokerWorld, *messages: tuple[str | None, str]) -> CompactionStory:
    """Of a topic that was compacted with these messages in it."""
    story = CompactionStory(world)
    await story.publish(*messages)
    await story.compact()
    return story


async def only_compacted(world: BrokerWorld, *messages: tuple[str | None, str]) -> CompactionStory:
    """The same, and its log has been trimmed of all of them."""
    story = CompactionStory(world)
    await story.hold()
    await story.publish(*messages)
    await story.compact()
    assert await story.trim() == 0
    return story


class CompactionLives:
    """Some lives of a broker over one storage, of any steps; most end in a crash while something is compacted."""

    #: Where it may crash.
    points: Sequence[str] = POINTS

    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self.rng = world.rng("compaction")
        self.node = world.node("broker")
        self.server = MemoryMetadata()
        self.bookie = MemoryBookie()
        self.sent: list[Sent] = []
        self.compacted = 0
        self.value = 0
        #: Draws of their own, so that what others come to stays as it was.
        self.ages = world.rng("tombstones")
        self.tombstones_s = self.ages.choice((0, TOMBSTONES_S))

    async def run(self) -> None:
        """All lives; the last one has no crash."""
        for life in range(LIVES):
            is_last = life == LIVES - 1
            if not is_last and self.rng.random() < 0.8:
                self.world.crash_at(self.rng.choice(self.points), self.rng.choice((1, 1, 2, 3)), node=self.node)
            await last_life(self.node, partial(self.live, is_first=not life, is_last=is_last))
            self.world.crash(self.node, reason="end of life")

    async def live(self, node: SimNode, *, is_first: bool, is_last: bool) -> None:
        """One life."""
        config = BrokerConfig(
            keep_alive_interval_s=1_000_000,
            delete_inactive_topics=False,
            compaction_threshold_bytes=1 << 40,
            compaction_tombstones_s=self.tombstones_s,
        )
        ledgers = ManagedLedgerConfig(max_entries_per_ledger=self.rng.choice((2, 5, 50)), min_rollover_minutes=0)
        world = BrokerWorld(node.runtime, config, ledgers, server=self.server, bookie=self.bookie)
        if is_first and not self.sent:
            await world.start()
        else:
            await world.broker.start(ENDPOINTS)
        story = CompactionStory(world)
        story.sent, story.compacted = self.sent, self.compacted
        await self.learn(story)
        await self.check(story)
        for _ in range(STEPS):
            await self.step(story)
        await self.check(story)
        if is_last:
            await story.compact()
            await self.check(story)
            await self.check_tombstones(story)
            await self.check_ledgers(story)
        if is_last or self.rng.random() < 0.5:
            await world.stop()

    async def learn(self, story: CompactionStory) -> None:
        """What was being published when the last life ended may be stored, and nobody was told."""
        last = self.sent[-1].position if self.sent else EARLIEST
        self.sent += [Sent(*got) for got in await story.read(read_compacted=False) if got.position > last]

    async def step(self, story: CompactionStory) -> None:
        """Anything."""
        if self.tombstones_s and self.ages.random() < 0.05:
            await seconds(TOMBSTONES_S + 1)
        roll = self.rng.random()
        if roll < 0.5:
            await self.publish(story)
        elif roll < 0.75:
            with suppress(GemingaError):  # of a run that is under way
                await story.compact()
            await self.check(story)
        elif roll < 0.85:
            await story.trim()
        elif roll < 0.93:
            await (await story.topic()).ledger.roll()
        else:
            await self.check(story)

    async def publish(self, story: CompactionStory) -> None:
        """Some messages of few keys, in one of the ways that clients have."""
        messages: list[tuple[str | None, str]] = []
        for _ in range(self.rng.randint(1, 5)):
            key = None if self.rng.random() < 0.05 else f"k{self.rng.randrange(KEYS)}"
            self.value += 1
            messages.append((key, "" if self.rng.random() < 0.2 else f"v{self.value}"))
        await story.publish(
            *messages, batched=self.rng.random() < 0.5, compression=self.rng.choice((NONE, NONE, LZ4, ZLIB))
        )

    def anywhere(self) -> tuple[int, pb.MessageIdData]:
        """The number of a message that is the first of its entry, and that entry."""
        start = self.rng.randrange(len(self.sent))
        position = self.sent[start].position
        while start and self.sent[start - 1].position == position:
            start -= 1
        return start, pb.MessageIdData(ledgerId=position.ledger_id, entryId=position.entry_id)

    async def check(self, story: CompactionStory) -> None:
        """Readers get what the model says, from the beginning and from anywhere; what was compacted stays so."""
        part = await story.part()
        if part is not None:
            horizon = part.horizon
            compacted = sum(message.position <= horizon for message in self.sent)
            assert compacted >= self.compacted, f"compacted up to {self.compacted} before, now up to {compacted}"
            self.compacted = story.compacted = compacted
        got, wanted = await self.read(story), story.expected()
        assert got == wanted, f"a reader got {got}, wanted {wanted}, compacted up to {story.compacted}"
        if self.sent:
            start, at = self.anywhere()
            got, wanted = await self.read(story, start_message_id=at), story.expected(start)
            assert got == wanted, f"a reader from {start} got {got}, wanted {wanted}"

    async def read(self, story: CompactionStory, **fields: object) -> list[Got]:
        """Without those of what was compacted that may be there or not."""
        found = await story.read(**fields)
        if not story.compacted or not story.tombstones_ms:
            return found
        horizon = self.sent[story.compacted - 1].position
        return [one for one in found if one.position > horizon or not story.is_old(one)]

    async def check_tombstones(self, story: CompactionStory) -> None:
        """A compaction takes out those that are old, and only those."""
        await seconds(TOMBSTONES_S + 1)
        await story.publish(("last", "value"))
        await story.compact()
        assert await story.read() == story.expected()

    async def check_ledgers(self, story: CompactionStory) -> None:
        """One ledger of what was compacted, and none that nobody names but those of a crash before they were named."""
        topic, part = await story.topic(), await story.part()
        assert part is not None
        assert part.served is not None
        assert topic.ledger.attached().ids == (part.served.ledger_id,)
        bookkeeper, stray = story.world.ledgers.bookkeeper, []
        named = await all_named_ledgers(story.world.metadata)
        for ledger_id in set(await bookkeeper.ledger_ids()) - named:
            about = (await bookkeeper.read_ledger(ledger_id)).metadata.custom_metadata
            if about.get("component") == b"compacted-topic":
                stray.append(ledger_id)
        # Those are orphans, which are collected.
        cut_off = self.world.points.crashes[attached.MADE] + self.world.points.crashes[attached.FORGOTTEN]
        assert len(stray) <= cut_off, (
            f"nobody names {stray}, and {cut_off} crashes came before one was named, or deleted"
        )


async def compaction_lives(world: SimWorld) -> None:
    """The story of one seed."""
    await CompactionLives(world).run()
