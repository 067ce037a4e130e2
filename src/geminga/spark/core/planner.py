"""Which task reads what: the ranges of a batch, packed and split into tasks.

The plan is a function of the two offsets and nothing else, never of the machine, so that a replayed batch has the same
tasks with the same rows. Small ranges share a task (a task costs some 40 ms), large ones are split by position.

How large a range is, is guessed from entry ids: within one ledger they are consecutive. Of a range over several
ledgers only the part in the last one can be split; the rest is one piece. Where the offset names cuts (found while
counting bytes), a range is split there instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from geminga.model.errors import invariant
from geminga.spark.core.offsets import ReadPosition, StreamOffset

#: A piece of fewer entries is not worth a task of its own.
ENTRIES_PER_TASK_MIN: Final = 32
#: What a piece weighs whose entries can not be counted.
UNKNOWN_ENTRIES: Final = 1024


@dataclass(frozen=True, slots=True, order=True)
class TopicRange:
    """Messages from ``start`` up to and without ``end`` of one topic or partition."""

    topic: str
    start: ReadPosition
    end: ReadPosition
    #: Whether ``start`` is where the whole range of the batch begins: only there messages can be missing when it is
    #: planned.
    is_first: bool = True

    @property
    def weight(self) -> int:
        """Entries in it, as far as one can tell."""
        if self.start.ledger_id == self.end.ledger_id:
            return max(1, self.end.entry_id - self.start.entry_id + (self.end.batch_index > 0))
        return UNKNOWN_ENTRIES + max(0, self.end.entry_id)


#: What one task reads, in order.
Task = tuple[TopicRange, ...]


def ranges_of(start: StreamOffset, end: StreamOffset) -> list[TopicRange]:
    """The topics' ranges of a batch, without empty ones, by name of the topic."""
    found = []
    for topic in sorted(end.topics):
        begin = start.start_of(topic, end)
        if begin is not None and begin < end.topics[topic]:
            found.append(TopicRange(topic, begin, end.topics[topic]))
    return found


def plan(start: StreamOffset, end: StreamOffset) -> list[Task]:
    """The tasks of the batch [start, end): every message of it is in exactly one of them."""
    ranges = ranges_of(start, end)
    invariant(end.tasks_max > 0, "an offset without a number of tasks can not be planned")
    if end.cuts:
        return [(piece,) for one in ranges for piece in _cut(one, end.cuts.get(one.topic, ()))]
    total = sum(one.weight for one in ranges)
    tasks = max(1, min(end.tasks_max, total // ENTRIES_PER_TASK_MIN))
    goal = max(1, -(-total // tasks))
    pieces = [piece for one in ranges for piece in split_range(one, goal)]
    return _packed(pieces, tasks)


def _cut(one: TopicRange, cuts: Sequence[ReadPosition]) -> list[TopicRange]:
    """The range cut at those of ``cuts`` that lie within it."""
    bounds = [one.start, *sorted({cut for cut in cuts if one.start < cut < one.end}), one.end]
    return [
        TopicRange(one.topic, begin, end, is_first=index == 0) for index, (begin, end) in enumerate(pairwise(bounds))
    ]


def split_range(one: TopicRange, goal: int) -> list[TopicRange]:
    """The range in pieces of about ``goal`` entries, cut between entries of the last ledger."""
    if round(one.weight / goal) <= 1:
        return [one]
    ledger_id = one.end.ledger_id
    first = one.start.entry_id if one.start.ledger_id == ledger_id else 0
    entries = one.end.entry_id - first
    cuts = [ReadPosition(ledger_id, 0)] if one.start.ledger_id != ledger_id else []
    count = round(entries / goal)
    cuts += [ReadPosition(ledger_id, first + entries * index // count) for index in range(1, count)]
    return _cut(one, cuts)


def _packed(pieces: Sequence[TopicRange], tasks: int) -> list[Task]:
    """Pieces in at most ``tasks`` tasks: the heaviest first, each to the task that has least."""
    loads = [0] * min(tasks, len(pieces))
    packed: list[list[TopicRange]] = [[] for _ in loads]
    order = sorted(range(len(pieces)), key=lambda index: (-pieces[index].weight, index))
    for index in order:
        lightest = min(range(len(loads)), key=lambda task: (loads[task], task))
        loads[lightest] += pieces[index].weight
        packed[lightest].append(pieces[index])
    return [tuple(sorted(task)) for task in sorted(packed, key=lambda task: min(task))]
