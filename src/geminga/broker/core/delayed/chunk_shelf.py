"""The chunks of the delayed index (:mod:`.time_buckets`): found by position, and by what is due next. Pure.

Chunks seldom share a stretch of the log: what was added in order never does. Those that do (a reader that went back and
found what nobody had read; a snapshot of an older form) stand in one *stack*, of which there are few chunks.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final

from pyroaring import BitMap

from geminga.broker.core.delayed.chunks import DelayedChunk
from geminga.broker.core.delayed.column import NO_BUCKET
from geminga.broker.core.delayed.marks import Mark
from geminga.model import Position, invariant

#: Chunks of one stack: so many are asked for an entry.
STACK_MAX: Final = 8
#: Chunks whose members are unpacked, at most: some 10 KiB and 3 ms each.
VIEWS_MAX: Final = 8
_STACK_BYTES: Final = 400
_NO_MARK: Final[Mark] = (NO_BUCKET, 0, 0)
_NOBODY: Final[tuple[tuple[int, int], tuple[int, int], list[DelayedChunk]]] = (0, 0), (-1, -1), []


class ChunkShelf:
    """See the module."""

    __slots__ = ("_asked", "_firsts", "_lasts", "_numbers", "_order", "_stacks", "_viewed", "count")

    def __init__(self) -> None:
        #: By stack, ascending and apart: its first and last position, and its chunks.
        self._firsts: list[Position] = []
        self._lasts: list[Position] = []
        self._stacks: list[list[DelayedChunk]] = []
        #: A heap of (first mark, number, chunk) of all chunks.
        self._order: list[tuple[Mark, int, DelayedChunk]] = []
        self._numbers = count()
        #: Chunks whose members were unpacked, the latest last.
        self._viewed: list[DelayedChunk] = []
        #: The stack that was asked for an entry last.
        self._asked: tuple[tuple[int, int], tuple[int, int], list[DelayedChunk]] = _NOBODY
        #: Entries in all of them.
        self.count = 0

    @property
    def first_mark(self) -> Mark:
        """Bucket and position that nothing here lies before."""
        return self._order[0][0] if self._order else _NO_MARK

    @property
    def memory_bytes(self) -> int:
        """About what all of it takes."""
        return _STACK_BYTES * len(self._stacks) + sum(chunk.memory_bytes for chunk in self.chunks())

    def chunks(self) -> Iterator[DelayedChunk]:
        """All of them, in log order of the stacks."""
        for stack in self._stacks:
            yield from stack

    # ---- look

    def contains(self, ledger_id: int, entry_id: int) -> bool:
        """Whether an entry waits here."""
        position = (ledger_id, entry_id)
        first, last, stack = self._asked
        if not first <= position <= last:
            index = bisect_right(self._firsts, position) - 1
            if index < 0 or self._lasts[index] < position:
                return False
            stack = self._stacks[index]
            self._asked = self._firsts[index], self._lasts[index], stack
        for chunk in stack:
            if chunk.view is None:
                self._unpack(chunk)
            if chunk.contains(ledger_id, entry_id):
                return True
        return False

    def is_free(self, first: Position, last: Position) -> bool:
        """Whether no chunk lies between these, them included."""
        low, high = self._between(first, last)
        return low == high

    def members(self, ledger_id: int, first: int, end: int) -> BitMap:
        """The entry ids of a ledger from ``first`` to before ``end``."""
        found = BitMap()
        low, high = self._between(Position(ledger_id, first), Position(ledger_id, end - 1))
        for stack in self._stacks[low:high]:
            for chunk in stack:
                if chunk.stretch.first < (ledger_id, end) and chunk.stretch.last >= (ledger_id, first):
                    self._unpack(chunk)
                    found |= chunk.entry_ids(ledger_id, first, end)
        return found

    def count_before(self, position: Position) -> int:
        """How many entries lie before ``position`` in the log."""
        total = 0
        for chunk in self.chunks():
            if chunk.stretch.last < position:
                total += chunk.count
            elif chunk.stretch.first < position:
                self._unpack(chunk)
                total += chunk.count_through(position.ledger_id, position.entry_id - 1)
        return total

    # ---- change

    def add(self, chunk: DelayedChunk) -> bool:
        """Keep a chunk of which nothing is here yet; False, and nothing changed, if too many share its stretch."""
        first, last = chunk.stretch.first, chunk.stretch.last
        low, high = self._between(first, last)
        stack = [chunk]
        for shared in self._stacks[low:high]:
            stack += shared
        if len(stack) > STACK_MAX:
            return False
        if low < high:
            first, last = min(first, self._firsts[low]), max(last, self._lasts[high - 1])
        self._asked = _NOBODY
        self._firsts[low:high] = [first]
        self._lasts[low:high] = [last]
        self._stacks[low:high] = [stack]
        self.count += chunk.count
        heappush(self._order, (chunk.first_mark, next(self._numbers), chunk))
        return True

    def take_next(self, mark: Mark) -> tuple[DelayedChunk, array[int]] | None:
        """Remove some of what is due first, and perhaps a little that is due later: keys of a chunk. None if nothing
        lies at or before ``mark``."""
        if not self._order or self._order[0][0] > mark:
            return None
        (bucket, _, _), number, chunk = heappop(self._order)
        keys = chunk.take_next(bucket)
        self.count -= len(keys)
        if chunk.count:
            heappush(self._order, (chunk.first_mark, number, chunk))
        else:
            self._remove(chunk)
        return chunk, keys

    def discard_through(self, position: Position) -> int:
        """Forget what lies at or before ``position``; how many those were."""
        before = self.count
        end = bisect_right(self._firsts, position)
        gone: set[int] = set()
        self._asked = _NOBODY
        for index in range(end - 1, -1, -1):
            left = []
            for chunk in self._stacks[index]:
                if chunk.stretch.last <= position:
                    self.count -= chunk.count
                else:
                    if chunk.stretch.first <= position:
                        self._unpack(chunk)
                        self.count -= chunk.discard_through(*position)
                    if chunk.count:
                        left.append(chunk)
                        continue
                gone.add(id(chunk))
            self._stacks[index] = left
            if not left:
                del self._firsts[index], self._lasts[index], self._stacks[index]
        if gone:
            self._order = [item for item in self._order if id(item[2]) not in gone]
            heapify(self._order)
            self._viewed = [chunk for chunk in self._viewed if id(chunk) not in gone]
        return before - self.count

    def check_invariants(self) -> None:
        """Raise InvariantError if the state can not be; tests call it after every step."""
        chunks = list(self.chunks())
        invariant(self.count == sum(chunk.count for chunk in chunks), f"{self.count} counted")
        invariant({id(chunk) for chunk in chunks} == {id(item[2]) for item in self._order}, "chunks and their order")
        invariant(all(chunk.first_mark == first for first, _, chunk in self._order), "a chunk is due at another time")
        invariant(len(self._viewed) <= VIEWS_MAX, f"{len(self._viewed)} chunks are unpacked")
        ends = [end for pair in zip(self._firsts, self._lasts, strict=True) for end in pair]
        invariant(ends == sorted(ends) and all(a < b for a, b in zip(ends[1::2], ends[2::2], strict=False)), "stacks")
        for first, last, stack in zip(self._firsts, self._lasts, self._stacks, strict=True):
            invariant(0 < len(stack) <= STACK_MAX, f"a stack of {len(stack)}")
            for chunk in stack:
                invariant(first <= chunk.stretch.first <= chunk.stretch.last <= last, "a chunk is not in its stack")
                invariant(chunk.view is None or len(chunk.view) == chunk.count, "members are not what is counted")

    def _between(self, first: Position, last: Position) -> tuple[int, int]:
        """Which stacks have anything of this stretch, perhaps."""
        return bisect_left(self._lasts, first), bisect_right(self._firsts, last)

    def _unpack(self, chunk: DelayedChunk) -> None:
        """Its members are about to be asked for."""
        if chunk.view is None:
            chunk.members()
        elif chunk in self._viewed:
            self._viewed.remove(chunk)
        else:
            return
        self._viewed.append(chunk)
        if len(self._viewed) > VIEWS_MAX:
            self._viewed.pop(0).view = None

    def _remove(self, chunk: DelayedChunk) -> None:
        self._asked = _NOBODY
        index = bisect_right(self._firsts, chunk.stretch.first) - 1
        stack = [kept for kept in self._stacks[index] if kept is not chunk]
        if stack:
            self._stacks[index] = stack
        else:
            del self._firsts[index], self._lasts[index], self._stacks[index]
        self._viewed = [kept for kept in self._viewed if kept is not chunk]
