"""How much one batch takes: bytes and messages over all topics together, counted entry by entry.

Entries of all topics are offered in order of their publish time, so topics with a backlog advance together in time,
and none waits for another's share. What is taken is a prefix of each topic. The limit in messages is exact (a batch
may be cut within), the one in bytes is kept except that a batch takes at least one entry.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from geminga.model.errors import invariant
from geminga.spark.source_rules.offsets import ReadPosition


class ChunkHead(NamedTuple):
    """Which piece of a chunked message an entry is."""

    uuid: str | bytes
    #: From 0.
    number: int
    #: Of the whole message.
    pieces: int


class Counted(NamedTuple):
    """An entry as its headers tell: nothing of it was decompressed."""

    ledger_id: int
    entry_id: int
    #: 0: a chunk that is not the last of its message.
    messages: int
    #: Bytes of the payload, decompressed.
    size_bytes: int
    publish_time_ms: int
    #: Whether ids of its messages have an index in the batch.
    is_batch: bool = True
    #: None: the entry is no piece of a message.
    chunk: ChunkHead | None = None

    @property
    def behind(self) -> ReadPosition:
        """The position behind it."""
        return ReadPosition(self.ledger_id, self.entry_id + 1)


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one batch; 0: none."""

    bytes_max: int = 0
    messages_max: int = 0
    #: Fewer messages are not worth a batch, for a while.
    messages_min: int = 0
    #: A task reads about so many bytes.
    bytes_per_task: int = 0

    @property
    def are_any(self) -> bool:
        """Whether anything must be counted."""
        return bool(self.bytes_max or self.messages_max or self.messages_min or self.bytes_per_task)


@dataclass(slots=True)
class Budget:
    """One batch as it fills."""

    limits: Limits
    #: Where it ends so far; topics of which nothing was taken are missing.
    ends: dict[str, ReadPosition] = field(default_factory=dict)
    #: Where tasks are to be cut, by topic.
    cuts: dict[str, list[ReadPosition]] = field(default_factory=dict)
    messages: int = 0
    size_bytes: int = 0
    #: By topic: messages of which pieces were taken, and not the first.
    unbegun: dict[str, set[str | bytes]] = field(default_factory=dict)
    _since_cut: dict[str, int] = field(default_factory=dict)
    #: By topic: messages of which the first piece was taken.
    _begun: dict[str, set[str | bytes]] = field(default_factory=dict)

    def offer(self, topic: str, entry: Counted, first_index: int = 0) -> bool:
        """Take the entry, from ``first_index`` on; False: the batch is full, and perhaps took the first part of it."""
        messages = max(0, entry.messages - first_index)
        size = entry.size_bytes * messages // entry.messages if entry.messages else entry.size_bytes
        limits = self.limits
        if limits.bytes_max and self.size_bytes and self.size_bytes + size > limits.bytes_max:
            return False
        room = limits.messages_max - self.messages if limits.messages_max else messages
        invariant(room >= 0, f"{self.messages} of {limits.messages_max} messages were taken")
        if messages > room:
            if room and entry.is_batch:
                self._take(topic, ReadPosition(entry.ledger_id, entry.entry_id, first_index + room), room, size)
            return False
        self._cut(topic, ReadPosition(entry.ledger_id, entry.entry_id, first_index), size)
        self._take(topic, entry.behind, messages, size)
        if entry.chunk is not None:
            self._note(topic, entry.chunk)
        return True

    def _note(self, topic: str, chunk: ChunkHead) -> None:
        begun = self._begun.setdefault(topic, set())
        if not chunk.number:
            begun.add(chunk.uuid)
        elif chunk.uuid not in begun:
            self.unbegun.setdefault(topic, set()).add(chunk.uuid)

    def _take(self, topic: str, end: ReadPosition, messages: int, size: int) -> None:
        invariant(end > self.ends.get(topic, ReadPosition(-1, -1)), f"{topic} went back to {end}")
        self.ends[topic] = end
        self.messages += messages
        self.size_bytes += size

    def _cut(self, topic: str, at: ReadPosition, size: int) -> None:
        goal = self.limits.bytes_per_task
        if not goal:
            return
        since = self._since_cut.get(topic, 0)
        if since and since + size > goal:
            self.cuts.setdefault(topic, []).append(at)
            since = 0
        self._since_cut[topic] = since + size
