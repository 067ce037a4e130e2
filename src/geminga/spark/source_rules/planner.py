"""Which task reads what: the ranges of a batch, packed and split into tasks.

The plan is a function of the two offsets and nothing else, never of the machine, so that a replayed batch has the same
tasks with the same rows. Small ranges share a task (a task costs some 40 ms), large ones are split by position.

How large a range is, is guessed from entry ids: within one ledger they are consecutive. A range over several ledgers is
divided when its batch is made, if the broker tells how long they are (docs/formats/ledger-lengths.md); else only the
part in the last ledger can be split, the rest is one piece. Where the offset names cuts (found while counting bytes), a
range is split there instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from geminga.model.errors import invariant
from geminga.spark.source_rules.offsets import Division, ReadPosition, StreamOffset

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
    if not ranges:
        return []  # Spark makes the first batch also where its end is its start, as the options or a symbol say it
    invariant(end.tasks_max > 0, "an offset without a number of tasks can not be planned")
    if end.cuts:
        return [(piece,) for one in ranges for piece in _cut(one, end.cuts.get(one.topic, ()))]
    weights = [_weight(one, end.divisions) for one in ranges]
    tasks, goal = _tasks_and_goal(sum(weights), end.tasks_max)
    pieces: list[tuple[TopicRange, int]] = []
    for one, weight in zip(ranges, weights, strict=True):
        division = end.divisions.get(one.topic)
        if division is None:
            pieces += [(piece, piece.weight) for piece in split_range(one, goal)]
        else:
            divided = _cut(one, division.cuts)
            pieces += [(piece, -(-weight // len(divided))) for piece in divided]
    return _packed(pieces, tasks)


def _weight(one: TopicRange, divisions: Mapping[str, Division]) -> int:
    division = divisions.get(one.topic)
    return one.weight if division is None else max(1, division.entries)


def _tasks_and_goal(total: int, tasks_max: int) -> tuple[int, int]:
    """How many tasks, and of how many entries each."""
    tasks = max(1, min(tasks_max, total // ENTRIES_PER_TASK_MIN))
    return tasks, max(1, -(-total // tasks))


def divide(
    ranges: Sequence[TopicRange], lengths: Mapping[str, Sequence[tuple[int, int]]], tasks_max: int
) -> dict[str, Division]:
    """How to divide the ranges over several ledgers among ``tasks_max`` tasks; ``lengths``: of their closed ledgers."""
    spans = {one.topic: _spans(one, lengths[one.topic]) for one in ranges if lengths.get(one.topic)}
    sizes = {topic: sum(entries for _, _, entries in found) for topic, found in spans.items()}
    total = sum(sizes.get(one.topic) or one.weight for one in ranges)
    _, goal = _tasks_and_goal(total, tasks_max)
    return {topic: Division(size, tuple(_even_cuts(spans[topic], round(size / goal)))) for topic, size in sizes.items()}


def _spans(one: TopicRange, lengths: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """(ledger, first entry, entries) of what the range has in each ledger."""
    found: list[tuple[int, int, int]] = []
    for ledger_id, entries in (*lengths, (one.end.ledger_id, one.end.entry_id)):
        is_first = ledger_id == one.start.ledger_id
        first = max(0, one.start.entry_id) if is_first else 0
        is_last = ledger_id == one.end.ledger_id
        behind = min(entries, one.end.entry_id) if is_last else entries
        is_reported = bool(found) and found[-1][0] == ledger_id
        if one.start.ledger_id <= ledger_id <= one.end.ledger_id and first < behind and not is_reported:
            found.append((ledger_id, first, behind - first))
    return found


def _even_cuts(spans: Iterable[tuple[int, int, int]], pieces: int) -> Iterable[ReadPosition]:
    """Positions between ``pieces`` pieces of as many entries each."""
    spans = list(spans)
    total = sum(entries for _, _, entries in spans)
    before = 0
    wanted = [total * index // pieces for index in range(1, pieces)]
    for ledger_id, first, entries in spans:
        yield from (ReadPosition(ledger_id, first + at - before) for at in wanted if before <= at < before + entries)
        before += entries


def entries_before(end: ReadPosition, lengths: Sequence[tuple[int, int]], entries: int) -> ReadPosition:
    """The position so many entries before ``end``; where the ledgers known begin if that is later.

    ``lengths``: id and entries of closed ledgers, ascending.
    """
    if end.entry_id >= entries:
        return ReadPosition(end.ledger_id, end.entry_id - entries)
    left, ledger_id = entries - end.entry_id, end.ledger_id
    for ledger_id_before, length in reversed([one for one in lengths if one[0] < end.ledger_id]):
        ledger_id = ledger_id_before
        if left <= length:
            return ReadPosition(ledger_id, length - left)
        left -= length
    return ReadPosition(ledger_id, 0)


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


def _packed(pieces: Sequence[tuple[TopicRange, int]], tasks: int) -> list[Task]:
    """Pieces, of such weights, in at most ``tasks`` tasks: the heaviest first, each to the task that has least."""
    loads = [0] * min(tasks, len(pieces))
    packed: list[list[TopicRange]] = [[] for _ in loads]
    order = sorted(range(len(pieces)), key=lambda index: (-pieces[index][1], index))
    for index in order:
        lightest = min(range(len(loads)), key=lambda task: (loads[task], task))
        piece, weight = pieces[index]
        loads[lightest] += weight
        packed[lightest].append(piece)
    return [tuple(sorted(task)) for task in sorted(packed, key=lambda task: min(task))]
