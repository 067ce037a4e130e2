"""The tasks of a batch read: topics, their ends and beginnings as they are now, split and packed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from geminga.client import Client
from geminga.runtime import get_logger
from geminga.spark.source.positions import (
    CLOCK_SLACK_MS,
    Probe,
    divisions_of,
    ends_of,
    find_topics,
    in_parallel,
    position_at_time,
)
from geminga.spark.source.scout import Scout
from geminga.spark.source_rules.errors import TopicError
from geminga.spark.source_rules.offsets import BEGINNING, ReadPosition, StreamOffset
from geminga.spark.source_rules.options import ReaderConfiguration, SourceOptions
from geminga.spark.source_rules.planner import Task, TopicRange, plan, ranges_of

_log = get_logger(__name__)

#: Entries of each topic whose size is looked at for ``targetBytesPerTask``.
SAMPLE_ENTRIES: Final = 16
#: Tasks of one batch read that ``targetBytesPerTask`` asks for at most.
TASKS_MAX: Final = 4096


async def plan_batch(client: Client, options: SourceOptions) -> list[Task]:
    """The tasks; raises TopicError, and what the client raises."""
    start, end = await bounds_of_batch(client, options)
    tasks_max = options.tasks_max
    ranges = ranges_of(start, end)
    name, is_compacted = options.reader.name, options.reader.is_read_compacted
    probes = {one.topic: Probe(client, one.topic, name, is_read_compacted=is_compacted) for one in ranges}
    try:
        divisions = await divisions_of(probes, ranges, tasks_max)
        if options.target_bytes_per_task:
            entries = {one.topic: divisions[one.topic].entries for one in ranges if one.topic in divisions}
            size = await _estimated_bytes(client, ranges, entries, options.reader)
            tasks_max = max(1, min(TASKS_MAX, -(-size // options.target_bytes_per_task)))
            divisions = await divisions_of(probes, ranges, tasks_max)
    finally:
        await in_parallel(probes.values(), Probe.close)
    return plan(start, replace(end, tasks_max=tasks_max, divisions=divisions))


async def bounds_of_batch(client: Client, options: SourceOptions) -> tuple[StreamOffset, StreamOffset]:
    """Where the batch begins and ends in each topic; raises TopicError, and what the client raises."""
    topics = await find_topics(client, options.topics)
    narrowed = options.narrowed
    check_given("startingOffsets", options.start.topics, topics)
    check_given("endingOffsets", options.end or (), topics)
    if narrowed.topics is not None:
        topics = [topic for topic in topics if topic in narrowed.topics]
    reading = options.bounded_reader
    name = options.reader.name
    probes = [Probe(client, topic, name, is_read_compacted=reading.is_read_compacted) for topic in topics]
    try:
        ends = await ends_of(probes)
    finally:
        await in_parallel(probes, Probe.close)
    warn_beyond("startingOffsets", options.start.topics, ends)
    warn_beyond("endingOffsets", options.end or {}, ends)
    starts = {probe.topic: probe.first for probe in probes}
    time_ms = reading.time_from_ms
    if options.start.init is None:
        starts.update({topic: at for topic, at in options.start.topics.items() if topic in starts})
    elif isinstance(time_ms, int):
        starts = await starts_at_time(client, topics, time_ms, reading)
    if options.end is not None:
        ends = {topic: min(end, options.end.get(topic, end)) for topic, end in ends.items()}
    elif reading.time_to_ms is not None:
        behind = await at_time(client, topics, reading.time_to_ms + 2 * CLOCK_SLACK_MS, name)
        ends = {topic: min(end, behind[topic]) for topic, end in ends.items()}
    if narrowed.message is not None:
        at = narrowed.message
        starts = {topic: max(start, at) for topic, start in starts.items()}
        ends = {topic: min(end, at._replace(batch_index=at.batch_index + 1)) for topic, end in ends.items()}
    return StreamOffset(topics=starts), StreamOffset(topics=ends)


async def _estimated_bytes(
    client: Client, ranges: Iterable[TopicRange], entries: Mapping[str, int], config: ReaderConfiguration
) -> int:
    """Bytes of the ranges, by the first entries of each and by how many there are, where that is known."""
    sizes: list[int] = []

    async def sample(one: TopicRange) -> None:
        scout = Scout(client, one.topic, one.start, config)
        found: list[int] = []
        try:
            while len(found) < SAMPLE_ENTRIES and (entry := await scout.next(one.end)) is not None:
                found.append(entry.size_bytes)
        finally:
            await scout.close()
        sizes.append(sum(found) * entries.get(one.topic, one.weight) // max(1, len(found)))

    await in_parallel(ranges, sample)
    return sum(sizes)


def check_given(option: str, given: Iterable[str], topics: Iterable[str]) -> None:
    """Raise TopicError if the user's positions name a topic that is not read."""
    unknown = sorted(set(given) - set(topics))
    if unknown:
        raise TopicError(f"{option}: {unknown[0]} is none of the topics read (a partition is named with its number)")


def warn_beyond(what: str, positions: Mapping[str, ReadPosition], ends: Mapping[str, ReadPosition]) -> None:
    """Say which positions lie behind the end of their topic; of an empty topic nobody can tell."""
    for topic, end in sorted(ends.items()):
        position = positions.get(topic, BEGINNING)
        if position > end > BEGINNING:
            _log.warning(
                "%s: %s of %s is behind the topic's end, %s: nothing can be read between the two. "
                "Was the topic deleted and made again, or is the position another topic's?",
                what,
                position,
                topic,
                end,
            )


async def starts_at_time(
    client: Client, topics: Iterable[str], time_ms: int, config: ReaderConfiguration
) -> dict[str, ReadPosition]:
    """Of each topic, where to begin for all that was published at or after the time."""
    if config.is_read_compacted:  # brokers find times in ledgers alone
        return dict.fromkeys(topics, BEGINNING)
    return await at_time(client, topics, time_ms, config.name)


async def at_time(client: Client, topics: Iterable[str], time_ms: int, name: str) -> dict[str, ReadPosition]:
    """Of each topic, a position before every message published at or after the time."""
    found: dict[str, ReadPosition] = {}

    async def look(topic: str) -> None:
        found[topic] = await position_at_time(client, topic, time_ms, name)

    await in_parallel(topics, look)
    return found
