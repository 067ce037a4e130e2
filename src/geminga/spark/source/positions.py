"""Questions to brokers, over the binary protocol: which topics there are, where they begin and end, what is when.

A *probe* is a reader without permits: it gets no message, and asks for the last one. Nothing of it outlives its
connection. All of this runs on the client's loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from geminga.client import BatchSource, Client, EntryBatch, EntryStream, MessageId, TopicNotFound
from geminga.client.consumer_rules.topic_pattern import TopicPattern
from geminga.runtime import all_ended
from geminga.spark.rules.own_topics import is_own
from geminga.spark.source_rules.errors import TopicError
from geminga.spark.source_rules.offsets import BEGINNING, Division, ReadPosition
from geminga.spark.source_rules.options import TopicChoice
from geminga.spark.source_rules.planner import TopicRange, divide

T = TypeVar("T")

#: Topics asked at the same time.
PARALLEL_MAX: Final = 64
#: Clocks of producers may differ so much: a search by time starts that much before it.
CLOCK_SLACK_MS: Final = 60_000


async def in_parallel(what: Iterable[T], do: Callable[[T], Awaitable[object]]) -> None:
    """``do`` each of ``what``, some at a time; raises the first error after all have ended."""
    limit = asyncio.Semaphore(PARALLEL_MAX)

    async def one(item: T) -> None:
        async with limit:
            await do(item)

    await all_ended(one(item) for item in what)


async def find_topics(client: Client, choice: TopicChoice) -> list[str]:
    """The full names of the topics and partitions to read, sorted; raises TopicError if a named one is not there."""
    found: set[str] = set()
    if choice.pattern:
        pattern = TopicPattern.parse(choice.pattern, must_be_linear=True)
        listed = await client.lookup.topics_of_namespace(pattern.namespace)
        names: Iterable[str] = sorted(name for name in pattern.topics(listed.topics) if not is_own(name))
    else:
        names = choice.names

    async def look(name: str) -> None:
        try:
            found.update(await client.get_topic_partitions(name))
        except TopicNotFound as error:
            raise TopicError(f"{name}: {error}") from error

    await in_parallel(names, look)
    return sorted(found)


class Probe:
    """Asks about one topic or partition; connected on first use."""

    def __init__(self, client: Client, topic: str, name: str, *, is_read_compacted: bool = False) -> None:
        """``is_read_compacted``: the end is that of who reads so, and nobody can say where it begins."""
        self.topic = topic
        self._stream: EntryStream[EntryBatch] = client.entry_stream(
            topic, window_bytes=1, permits_max=0, name=name, is_read_compacted=is_read_compacted
        )
        self._is_read_compacted = is_read_compacted
        self._is_open = False
        #: Its topic was deleted, be it there again: this probe is told nothing any more.
        self.is_gone = False
        #: Where the topic began when this was opened, once its end was asked for; its beginning: not known.
        self.first = BEGINNING

    async def open(self) -> None:
        """Raises what subscribing raises; TopicError if there is no such topic."""
        if not self._is_open:
            try:
                await self._stream.open(BatchSource(self._stream))
            except TopicNotFound as error:
                raise TopicError(f"{self.topic}: {error}") from error
            self._is_open = True

    async def end(self) -> ReadPosition:
        """Behind the last message that readers can get; the topic's beginning if there is none."""
        await self.open()
        try:
            last, marked = await self._stream.last_message_id()
        except TopicNotFound:
            self.is_gone = True
            raise
        if marked is not None and not self._is_read_compacted:
            self.first = ReadPosition(marked.ledger_id(), marked.entry_id() + 1)
        return behind(last)

    async def ledger_lengths(self, ledger_id: int) -> list[tuple[int, int]]:
        """Id and entries of the closed ledgers from one on; nothing if the broker does not tell."""
        await self.open()
        return await self._stream.ledger_lengths(ledger_id)

    async def leaves_cursors(self) -> bool:
        """Whether the broker leaves cursors where they are when the ledger they stand in goes: Geminga's does."""
        await self.open()
        return bool((await self._stream.connected()).features.geminga_ledger_lengths)

    async def close(self) -> None:
        """Harmless twice."""
        await self._stream.close()


async def divisions_of(
    probes: Mapping[str, Probe], ranges: Sequence[TopicRange], tasks_max: int
) -> dict[str, Division]:
    """How to divide those of the ranges that lie in several ledgers, as far as brokers tell how long these are."""
    lengths: dict[str, list[tuple[int, int]]] = {}

    async def ask(one: TopicRange) -> None:
        lengths[one.topic] = await probes[one.topic].ledger_lengths(one.start.ledger_id)

    over_several = (one for one in ranges if one.start.ledger_id != one.end.ledger_id and one.topic in probes)
    await in_parallel(over_several, ask)
    return divide(ranges, lengths, tasks_max)


def behind(last: MessageId) -> ReadPosition:
    """The next unread position behind a whole entry; the beginning for "no message"."""
    if last.entry_id() < 0:
        return BEGINNING
    return ReadPosition(last.ledger_id(), last.entry_id() + 1)


async def first_position(client: Client, topic: str, name: str) -> ReadPosition | None:
    """Where the topic begins now; None: the broker does not say."""
    stream: EntryStream[EntryBatch] = client.entry_stream(topic, window_bytes=1, permits_max=0, name=name)
    try:
        await stream.open(BatchSource(stream))
        _, marked = await stream.last_message_id()
    finally:
        await stream.close()
    if marked is None:
        return None
    return ReadPosition(marked.ledger_id(), marked.entry_id() + 1)


def lost_text(topic: str, start: ReadPosition, first: ReadPosition) -> str:
    """What to say when the ledger of ``start`` is not there any more and the topic begins at ``first``."""
    return (
        f"{topic}: messages from {start} on are gone, the topic begins at {first}. Their ledger was deleted before it "
        "was read: by retention, by a time to live, because no subscription held it, or because the topic or its "
        "subscription was deleted. Set subscription=NAME (a durable cursor), give the topic retention, or set "
        "failOnDataLoss=false to go on without them"
    )


async def position_at_time(client: Client, topic: str, time_ms: int, name: str) -> ReadPosition:
    """A position that no message published at or after ``time_ms`` lies before, as far as clocks can be trusted."""
    return await client.lookup.retry(
        lambda: _position_at_time(client, topic, time_ms, name), f"position in {topic} at {time_ms}"
    )


async def _position_at_time(client: Client, topic: str, time_ms: int, name: str) -> ReadPosition:
    reader = await client.create_reader(topic, MessageId.earliest, subscription_role_prefix=name)
    try:
        await reader.seek(max(0, time_ms - CLOCK_SLACK_MS))
        marked = (await reader.mark_delete_positions())[0]
    finally:
        await reader.close()
    return BEGINNING if marked is None else ReadPosition(marked.ledger_id(), marked.entry_id() + 1)


async def ends_of(probes: Sequence[Probe]) -> dict[str, ReadPosition]:
    """The end of each probe's topic."""
    found: dict[str, ReadPosition] = {}

    async def ask(probe: Probe) -> None:
        found[probe.topic] = await probe.end()

    await in_parallel(probes, ask)
    return found
