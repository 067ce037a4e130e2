"""Counts what lies ahead of a stream: a reader in the driver that looks at the headers of entries only.

It works with any broker and needs no administration: sizes and numbers of messages stand in the metadata in front of
each entry, nothing is decompressed. Geminga's broker sends those metadata alone (``wire.pulsar.entry_head``). What was
counted and not taken stays for the next batch, so nothing is counted twice; how far it runs ahead is bounded by the
window of its reader and by what a batch may take.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from geminga.client import Client, EntryStream, PulsarException, ReadError
from geminga.spark.source.positions import in_parallel
from geminga.spark.source_rules.admission import Budget, ChunkHead, Counted, Limits
from geminga.spark.source_rules.errors import ReadTimeoutError
from geminga.spark.source_rules.offsets import BEGINNING, ReadPosition
from geminga.spark.source_rules.options import ReaderConfiguration
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.consumer_codec import MessageHeadDecoder
from geminga.wire.pulsar.entry_head import metadata_bounds, split_head
from geminga.wire.pulsar.frame import Frame

#: Bytes of entries that a scout runs ahead, on their way included. It keeps what it counted of them.
WINDOW_BYTES: Final = 4 << 20
#: ... that those of a query run ahead together, and one does at least, however many they are.
WINDOWS_BYTES_MAX: Final = 256 << 20
WINDOW_BYTES_LEAST: Final = 16 << 10
#: Bytes of the one message that a watch may be sent.
_WATCH_WINDOW_BYTES: Final = 1
#: After so long without an entry the broker is asked whether there is anything left, milliseconds; doubled each time.
FIRST_WAIT_MS: Final = 250


def window_of(topics: int) -> int:
    """Bytes that a scout runs ahead in a query that reads so many ``topics``."""
    return max(WINDOW_BYTES_LEAST, min(WINDOW_BYTES, WINDOWS_BYTES_MAX // max(1, topics)))


class EntryHead(NamedTuple):
    """An entry without its payload."""

    ledger_id: int
    entry_id: int
    batch_size: int
    size_bytes: int
    counted: Counted


class HeadSource:
    """Makes :class:`EntryHead` of frames."""

    def __init__(self, stream: EntryStream[EntryHead]) -> None:
        self._stream = stream
        self._heads = MessageHeadDecoder()

    def close(self) -> None:
        """It tells nobody."""

    def connected(self, message_bytes_max: int) -> None:
        """Nothing to start over."""

    def read(self, frames: Sequence[Frame]) -> Iterable[EntryHead]:
        """The head of each entry; the stream fails at one that can not be read."""
        are_heads = self._stream.are_heads
        for command, data in frames:
            head = self._heads.decode(command)
            try:
                if are_heads:
                    encoded, left_out = split_head(data)
                    counted = _counted(head.ledger_id, head.entry_id, encoded, left_out)
                else:
                    left_out = 0
                    counted = count_entry(head.ledger_id, head.entry_id, data)
            except (DecodeError, ValueError) as error:
                where = f"{self._stream.topic}: entry {head.ledger_id}:{head.entry_id}"
                self._stream.fail(ReadError(f"{where} can not be read: {error}"))
                return
            self._stream.seen((head.ledger_id, head.entry_id))
            # How far it runs ahead goes by what the broker reads for it, wherever that stays.
            size = len(data) + left_out
            yield EntryHead(head.ledger_id, head.entry_id, max(1, counted.messages), size, counted)


class WatchSource(HeadSource):
    """Passes over chunks that end no message: a watch neither holds them nor rings for what is no row yet."""

    def read(self, frames: Sequence[Frame]) -> Iterable[EntryHead]:
        """The heads of entries in which a message ends."""
        for head in super().read(frames):
            if head.counted.messages or head.counted.chunk is None:
                yield head
            else:
                self._stream.window.arrived(1, head.size_bytes)
                self._stream.window.taken(1, head.size_bytes)


async def open_watch(
    client: Client, topic: str, at: ReadPosition, name: str, *, is_read_compacted: bool
) -> EntryStream[EntryHead]:
    """A stream that is sent one message from ``at`` on, when there is one. Raises what subscribing raises."""
    stream: EntryStream[EntryHead] = client.entry_stream(
        topic,
        at.entry,
        window_bytes=_WATCH_WINDOW_BYTES,
        permits_max=1,
        name=name,
        is_read_compacted=is_read_compacted,
        wants_heads=True,
    )
    try:
        await stream.open(WatchSource(stream))
    except (PulsarException, asyncio.CancelledError):
        await stream.close()
        raise
    return stream


def count_entry(ledger_id: int, entry_id: int, data: bytes) -> Counted:
    """What the headers of a stored entry say; raises DecodeError, ValueError."""
    begin, end = metadata_bounds(data)
    return _counted(ledger_id, entry_id, data[begin:end], len(data) - end)


def _counted(ledger_id: int, entry_id: int, encoded: bytes, payload_bytes: int) -> Counted:
    metadata = pb.MessageMetadata.FromString(encoded)
    is_batch = metadata.HasField("num_messages_in_batch")
    messages = metadata.num_messages_in_batch if is_batch else 1
    chunk = None
    if metadata.num_chunks_from_msg > 1:
        chunk = ChunkHead(metadata.uuid, metadata.chunk_id, metadata.num_chunks_from_msg)
        messages = 1 if chunk.number == chunk.pieces - 1 else 0
    is_whole = metadata.compression and metadata.num_chunks_from_msg <= 1
    size = metadata.uncompressed_size if is_whole else payload_bytes
    return Counted(ledger_id, entry_id, messages, size, metadata.publish_time, is_batch, chunk)


class Scout:
    """Of one topic. It keeps what it counted until a batch begins behind it: a batch may be asked for again."""

    def __init__(
        self,
        client: Client,
        topic: str,
        at: ReadPosition,
        config: ReaderConfiguration,
        window_bytes: int = WINDOW_BYTES,
    ) -> None:
        self.topic = topic
        #: Where the batch begins; everything counted from here on is kept.
        self.at = at
        self._config = config
        self._counted: deque[Counted] = deque()
        #: How many of them the batch being filled has taken.
        self._taken = 0
        self._is_open = False
        self._stream: EntryStream[EntryHead] = client.entry_stream(
            topic,
            at.entry,
            window_bytes=window_bytes,
            name=config.name,
            is_read_compacted=config.is_read_compacted,
            wants_heads=True,
        )

    def begin(self, at: ReadPosition) -> bool:
        """A batch begins at ``at``; False: that is nowhere in what was counted, another scout must go there."""
        end = self._counted[-1].behind if self._counted else self.at
        if at != self.at and not self.at < at <= end:
            return False
        self.at = at
        while self._counted and self._counted[0].behind <= at:
            self._counted.popleft()
        self._taken = 0
        return True

    async def next(self, end: ReadPosition) -> Counted | None:
        """The next entry below ``end`` that this batch has not; None: there is none. Raises ReadTimeoutError."""
        if not self._is_open:
            await self._stream.open(HeadSource(self._stream))
            self._is_open = True
        waited_ms = 0
        wait_ms = FIRST_WAIT_MS
        while self._taken == len(self._counted):
            if self._counted and self._counted[-1].behind >= end:
                return None
            heads = await self._stream.take(wait_ms)
            self._counted.extend(head.counted for head in heads)
            if heads:
                continue
            waited_ms += wait_ms
            last, _ = await self._stream.last_message_id()
            if (last.ledger_id(), last.entry_id()) < self._stream.next_entry and not self._stream.has_arrived():
                return None
            if waited_ms >= self._config.poll_timeout_ms:
                raise ReadTimeoutError(
                    f"{self.topic}: the broker has messages below {end} and sent none for {waited_ms} ms "
                    "(pollTimeoutMs)"
                )
            wait_ms *= 2
        entry = self._counted[self._taken]
        if ReadPosition(entry.ledger_id, entry.entry_id) >= end:
            return None
        self._taken += 1
        return entry

    def on_arrival(self) -> asyncio.Future[None]:
        """Done as soon as more can be counted."""
        return self._stream.on_arrival()

    def first_index(self, entry: Counted) -> int:
        """The first message of ``entry`` that the batch may take."""
        return self.at.batch_index if self.at.entry == (entry.ledger_id, entry.entry_id) else 0

    async def close(self) -> None:
        """Harmless twice."""
        await self._stream.close()


async def begin_of_unfinished(
    client: Client,
    topic: str,
    start: ReadPosition,
    end: ReadPosition,
    config: ReaderConfiguration,
    window_bytes: int = WINDOW_BYTES,
) -> ReadPosition | None:
    """Where the first chunked message begins that has pieces in [start, end) and is not whole there.

    None: all are whole. BEGINNING: one began before ``start``. Raises ReadTimeoutError, and what the client
    raises.
    """
    scout = Scout(client, topic, start, config, window_bytes)
    begun: dict[str | bytes, ReadPosition] = {}
    try:
        while (entry := await scout.next(end)) is not None:
            if entry.chunk is None:
                continue
            uuid, number, pieces = entry.chunk
            if number == pieces - 1:
                begun.pop(uuid, None)
            else:
                begun.setdefault(uuid, ReadPosition(entry.ledger_id, entry.entry_id) if not number else BEGINNING)
    finally:
        await scout.close()
    return min(begun.values(), default=None)


class Scouts:
    """One scout for each topic that is behind; runs on the client's loop."""

    def __init__(self, client: Client, config: ReaderConfiguration) -> None:
        self._client = client
        self._config = config
        self._scouts: dict[str, Scout] = {}

    async def fill(
        self, starts: Mapping[str, ReadPosition], ends: Mapping[str, ReadPosition], limits: Limits
    ) -> tuple[Budget, bool]:
        """A batch within ``limits`` from ``starts`` on, and whether it has everything below ``ends``."""
        behind = sorted(topic for topic, end in ends.items() if starts[topic] < end)
        await self._stand_at({topic: starts[topic] for topic in behind}, window_of(len(ends)))
        budget = Budget(limits)
        #: What each topic's scout has next, oldest first.
        heads: list[tuple[int, str, Counted]] = []
        found: dict[str, Counted | None] = {}

        async def look(topic: str) -> None:
            found[topic] = await self._scouts[topic].next(ends[topic])

        await in_parallel(behind, look)
        for topic in behind:
            self._push(heads, topic, found[topic])
        while heads:
            _, topic, entry = heapq.heappop(heads)
            scout = self._scouts[topic]
            if not budget.offer(topic, entry, scout.first_index(entry)):
                return budget, False
            self._push(heads, topic, await scout.next(ends[topic]))
        return budget, True

    @staticmethod
    def _push(heads: list[tuple[int, str, Counted]], topic: str, entry: Counted | None) -> None:
        if entry is not None:
            heapq.heappush(heads, (entry.publish_time_ms, topic, entry))

    async def wait(self, timeout_s: float) -> None:
        """Until any of them has something new, or the time is over."""
        waiting = [scout.on_arrival() for scout in self._scouts.values()]
        if waiting:
            await asyncio.wait(waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)

    async def forget(self, topic: str) -> None:
        """The topic is gone: nobody waits for what comes of it."""
        scout = self._scouts.pop(topic, None)
        if scout is not None:
            await scout.close()

    async def _stand_at(self, starts: Mapping[str, ReadPosition], window_bytes: int) -> None:
        """Scouts that stand elsewhere (after a restart, or as the batch was not used) begin anew."""

        async def stand(topic: str) -> None:
            scout = self._scouts.get(topic)
            if scout is not None:
                if scout.begin(starts[topic]):
                    return
                await scout.close()
            self._scouts[topic] = Scout(self._client, topic, starts[topic], self._config, window_bytes)

        await in_parallel(starts, stand)

    async def close(self) -> None:
        """Leave the broker."""
        scouts, self._scouts = self._scouts, {}
        await in_parallel(scouts.values(), Scout.close)
