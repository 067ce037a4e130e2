"""The index: (ledger, entry) -> chunk of an entry log. One for all ledgers, as sorted runs. Pure.

A *row* says that ``entry_count`` entries of a ledger from ``first_entry_id`` lie in the chunk at ``location``; it may
name fewer than the chunk holds. A *run* is an immutable set of rows, sorted, those of one ledger disjoint. The
index is a list of runs, oldest first; the newest run that has an entry wins. Each flush adds a run; runs are
merged in the background. A row costs 24 bytes in memory, a ledger 12 more in each run that has it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from geminga.model.errors import invariant

_OFFSET_BITS: Final = 40
_OFFSET_MASK: Final = (1 << _OFFSET_BITS) - 1


def make_location(log_id: int, offset: int) -> int:
    """Log id (24 bits) and offset (40 bits: logs up to 1 TiB) as one number."""
    invariant(0 <= log_id < 1 << 24 and 0 <= offset <= _OFFSET_MASK, f"location {log_id}:{offset}")
    return log_id << _OFFSET_BITS | offset


def log_of(location: int) -> int:
    """The log id of a location."""
    return location >> _OFFSET_BITS


def offset_of(location: int) -> int:
    """The offset of a location."""
    return location & _OFFSET_MASK


class Row(NamedTuple):
    """``entry_count`` entries from ``first_entry_id`` in the chunk of ``size_bytes`` at ``location``."""

    first_entry_id: int
    entry_count: int
    size_bytes: int
    location: int


class IndexRun:
    """Immutable sorted rows, in columns. ``starts[i]:starts[i+1]`` are the rows of ``ledger_ids[i]``."""

    __slots__ = ("counts", "firsts", "ledger_ids", "locations", "run_id", "sizes", "starts", "state_ids")

    def __init__(self, run_id: int = 0) -> None:
        #: Number of the file that holds the run, 0 while it has none.
        self.run_id = run_id
        self.ledger_ids = array("q")
        self.starts = array("I", [0])
        self.firsts = array("q")
        self.counts = array("I")
        self.sizes = array("I")
        self.locations = array("Q")
        #: Ledgers whose state the file of this run carries.
        self.state_ids = array("q")

    def __len__(self) -> int:
        return len(self.firsts)

    def add_ledger(self, ledger_id: int, rows: Iterable[Row]) -> None:
        """Append the rows of one ledger, larger than all before, its rows sorted and disjoint."""
        invariant(not self.ledger_ids or ledger_id > self.ledger_ids[-1], f"ledger {ledger_id} out of order")
        for first, count, size, location in rows:
            self.firsts.append(first)
            self.counts.append(count)
            self.sizes.append(size)
            self.locations.append(location)
        if len(self.firsts) > self.starts[-1]:
            self.ledger_ids.append(ledger_id)
            self.starts.append(len(self.firsts))

    def add_slice(self, ledger_id: int, other: IndexRun, start: int, stop: int) -> None:
        """Append rows ``start:stop`` of ``other``, behind those of the same ledger if it was the last added."""
        if not self.ledger_ids or self.ledger_ids[-1] != ledger_id:
            self.ledger_ids.append(ledger_id)
            self.starts.append(self.starts[-1])
        self.firsts.extend(other.firsts[start:stop])
        self.counts.extend(other.counts[start:stop])
        self.sizes.extend(other.sizes[start:stop])
        self.locations.extend(other.locations[start:stop])
        self.starts[-1] = len(self.firsts)

    def bounds(self, ledger_id: int) -> tuple[int, int]:
        """Row numbers [start, stop) of a ledger; empty if it has none here."""
        at = bisect_left(self.ledger_ids, ledger_id)
        if at == len(self.ledger_ids) or self.ledger_ids[at] != ledger_id:
            return 0, 0
        return self.starts[at], self.starts[at + 1]

    def find(self, ledger_id: int, entry_id: int) -> Row | None:
        """The row that has the entry."""
        start, stop = self.bounds(ledger_id)
        if start == stop:
            return None
        at = bisect_right(self.firsts, entry_id, start, stop) - 1
        if at < start or entry_id >= self.firsts[at] + self.counts[at]:
            return None
        return self.row(at)

    def row(self, at: int) -> Row:
        """Row number ``at``."""
        return Row(self.firsts[at], self.counts[at], self.sizes[at], self.locations[at])

    def rows(self, ledger_id: int) -> list[Row]:
        """The rows of a ledger, sorted."""
        return [self.row(at) for at in range(*self.bounds(ledger_id))]

    def check_invariants(self) -> None:
        """Sorted ledgers, sorted disjoint rows, columns of equal length; tests call this after each step."""
        rows = len(self.firsts)
        invariant(
            rows == len(self.counts) == len(self.sizes) == len(self.locations) == self.starts[-1], "uneven columns"
        )
        invariant(len(self.starts) == len(self.ledger_ids) + 1, "starts do not fit ledgers")
        invariant(all(a < b for a, b in pairwise(self.ledger_ids)), "ledgers unsorted")
        for i in range(len(self.ledger_ids)):
            end = -1
            for at in range(self.starts[i], self.starts[i + 1]):
                invariant(self.firsts[at] >= end and self.counts[at] > 0, f"rows overlap at {at}")
                end = self.firsts[at] + self.counts[at]


class Index:
    """The runs of a bookie, oldest first."""

    __slots__ = ("runs",)

    def __init__(self, runs: Iterable[IndexRun] = ()) -> None:
        self.runs: list[IndexRun] = list(runs)

    def find(self, ledger_id: int, entry_id: int) -> Row | None:
        """The row that has the entry, of the newest run that has it."""
        for run in reversed(self.runs):
            row = run.find(ledger_id, entry_id)
            if row is not None:
                return row
        return None

    def last_entry_id(self, ledger_id: int) -> int:
        """Highest entry id of a ledger, -1 if it has none."""
        last = -1
        for run in self.runs:
            start, stop = run.bounds(ledger_id)
            if start != stop:
                last = max(last, run.firsts[stop - 1] + run.counts[stop - 1] - 1)
        return last

    def ledger_rows(self, ledger_id: int) -> list[Row]:
        """The per-ledger view: the effective rows of one ledger, sorted and disjoint."""
        rows: list[Row] = []
        for run in self.runs:
            rows = overlay(rows, run.rows(ledger_id))
        return rows

    def ledger_ids(self) -> list[int]:
        """Ledgers that have entries, sorted."""
        return sorted({ledger_id for run in self.runs for ledger_id in run.ledger_ids})

    def row_count(self) -> int:
        """Rows in all runs."""
        return sum(map(len, self.runs))


def overlay(older: Sequence[Row], newer: Sequence[Row]) -> list[Row]:
    """Both sets of sorted disjoint rows as one, ``newer`` winning; cut pieces keep their chunk's location."""
    if not older or not newer or older[-1].first_entry_id + older[-1].entry_count <= newer[0].first_entry_id:
        return [*older, *newer]
    merged = list(newer)
    covers = [(row.first_entry_id, row.first_entry_id + row.entry_count) for row in newer]
    starts = [start for start, _ in covers]
    for first, count, size, location in older:
        at = max(0, bisect_right(starts, first) - 1)
        position, end = first, first + count
        while position < end:
            if at == len(covers) or covers[at][0] >= end:
                merged.append(Row(position, end - position, size, location))
                break
            start, stop = covers[at]
            if start > position:
                merged.append(Row(position, start - position, size, location))
            position = max(position, stop)
            at += 1
    merged.sort()
    return merged


def merge_runs(
    runs: Sequence[IndexRun], is_dropped: Callable[[int], bool], rows_per_turn: int
) -> Generator[None, None, IndexRun]:
    """One run with the effective rows of ``runs`` (oldest first) without the dropped ledgers.

    Yields after about ``rows_per_turn`` rows, so that the caller can let others run.
    """
    merged = IndexRun()
    done_rows = 0
    for ledger_id in sorted({ledger_id for run in runs for ledger_id in run.ledger_ids}):
        if is_dropped(ledger_id):
            continue
        parts = [(run, *run.bounds(ledger_id)) for run in runs]
        parts = [part for part in parts if part[1] != part[2]]
        if _follow_each_other(parts):
            for run, start, stop in parts:
                merged.add_slice(ledger_id, run, start, stop)
        else:
            rows: list[Row] = []
            for run, _, _ in parts:
                rows = overlay(rows, run.rows(ledger_id))
            merged.add_ledger(ledger_id, rows)
        done_rows += sum(stop - start for _, start, stop in parts) + 1
        if done_rows >= rows_per_turn:
            done_rows = 0
            yield
    state_ids = {ledger_id for run in runs for ledger_id in run.state_ids}
    merged.state_ids.extend(sorted(ledger_id for ledger_id in state_ids if not is_dropped(ledger_id)))
    return merged


def _follow_each_other(parts: Sequence[tuple[IndexRun, int, int]]) -> bool:
    for (older, _, stop), (newer, start, _) in pairwise(parts):
        if older.firsts[stop - 1] + older.counts[stop - 1] > newer.firsts[start]:
            return False
    return True


def runs_to_merge(row_counts: Sequence[int], runs_max: int) -> int:
    """How many of the newest runs to merge (0: none), given the rows of each, oldest first.

    Beyond ``runs_max`` runs the newest are merged, together with every older one that is not at least twice as
    large as what has gathered: so each row is rewritten about log2(n) times.
    """
    if len(row_counts) <= runs_max:
        return 0
    gathered = 0
    for taken, rows in enumerate(reversed(row_counts)):
        if taken >= 2 and rows >= 2 * gathered and len(row_counts) - taken + 1 <= runs_max:
            return taken
        gathered += rows
    return len(row_counts)


def relocate(run: IndexRun, moves: dict[int, tuple[int, int]]) -> IndexRun:
    """The run with the chunks of ``moves`` (location -> new location, size) at their new places."""
    moved = IndexRun()
    moved.ledger_ids = run.ledger_ids
    moved.starts = run.starts
    moved.firsts = run.firsts
    moved.counts = run.counts
    moved.state_ids = run.state_ids
    moved.sizes = array("I", run.sizes)
    moved.locations = array("Q", run.locations)
    for at, location in enumerate(run.locations):
        move = moves.get(location)
        if move is not None:
            moved.locations[at], moved.sizes[at] = move
    return moved


def live_rows(runs: Iterable[IndexRun], is_deleted: Callable[[int], bool]) -> Iterator[Row]:
    """Every row of every ledger that is not deleted, also those a newer run hides."""
    for run in runs:
        for i, ledger_id in enumerate(run.ledger_ids):
            if not is_deleted(ledger_id):
                for at in range(run.starts[i], run.starts[i + 1]):
                    yield run.row(at)
