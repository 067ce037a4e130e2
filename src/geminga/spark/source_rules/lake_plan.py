"""Which part of a range is read from which file of a lake, and what is left to the broker. Pure.

The seam lies between ledgers: a closed ledger that is in the lake is read from its file, all else from the broker. The
pieces of a range follow each other without gap and overlap, and tasks are runs of pieces, so the order of rows is that
of the topic whatever is where.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from geminga.spark.source_rules.offsets import ReadPosition
from geminga.spark.source_rules.planner import TopicRange, split_range

#: Bytes of an entry of a topic that has nothing in the lake, as a guess.
ENTRY_BYTES: Final = 64 * 1024


class PlannedFile(NamedTuple):
    """A ledger whose messages are read from its file."""

    ledger_id: int
    #: Below the root.
    path: str
    entries: int
    size_bytes: int
    #: The first entry of each row group.
    first_entries: tuple[int, ...]
    next_ledger_id: int | None
    #: Whether any of its messages can be wanted, by their time.
    is_wanted: bool = True
    #: Whether all its rows are messages.
    is_pure: bool = False
    #: Of its largest row group.
    group_rows_max: int = 0
    #: Whether the file has a column of message ids.
    has_ids: bool = False
    #: Whether no message of it has properties.
    is_without_properties: bool = False


@dataclass(frozen=True, slots=True)
class LakeRange:
    """Messages from ``start`` up to and without ``end``, of one ledger, that lie in row groups of its file."""

    topic: str
    start: ReadPosition
    end: ReadPosition
    path: str
    first_group: int
    #: Behind the last one.
    end_group: int


Piece = TopicRange | LakeRange


class Unit(NamedTuple):
    """What is not divided any more, and about how many bytes it has."""

    piece: Piece
    size_bytes: int


def units_of(one: TopicRange, ledgers: Sequence[PlannedFile], goal_bytes: int) -> list[Unit]:
    """The range, divided; ``ledgers`` ascend. Ranges of the broker are cut at about ``goal_bytes``."""
    entries = sum(ledger.entries for ledger in ledgers)
    entry_bytes = max(1, sum(ledger.size_bytes for ledger in ledgers) // entries) if entries else ENTRY_BYTES
    units: list[Unit] = []
    at = one.start

    def from_broker(end: ReadPosition) -> None:
        if at >= end:
            return
        left = TopicRange(one.topic, at, end, is_first=bool(units) or one.is_first)
        pieces = split_range(left, max(1, goal_bytes // entry_bytes))
        units.extend(Unit(piece, piece.weight * entry_bytes) for piece in pieces)

    for ledger in ledgers:
        begin = max(at, ReadPosition(ledger.ledger_id, 0))
        end = min(one.end, ReadPosition(ledger.ledger_id, ledger.entries))
        if begin >= end:
            continue
        from_broker(begin)
        if ledger.is_wanted:
            units += _groups(one.topic, ledger, begin, end)
        at = _behind(ledger, end)
    from_broker(one.end)
    return units


def _behind(ledger: PlannedFile, end: ReadPosition) -> ReadPosition:
    """Where what follows ``end`` begins: in the ledger itself, or in the one that follows it, if that is known.

    The broker is asked from there on, and says whether that ledger has gone.
    """
    if end.entry_id < ledger.entries or ledger.next_ledger_id is None:
        return end
    return ReadPosition(ledger.next_ledger_id, 0)


def _groups(topic: str, ledger: PlannedFile, start: ReadPosition, end: ReadPosition) -> Iterable[Unit]:
    for group, first in enumerate(ledger.first_entries):
        is_last = group + 1 == len(ledger.first_entries)
        behind = ledger.entries if is_last else ledger.first_entries[group + 1]
        begins = max(start, ReadPosition(ledger.ledger_id, first))
        ends = min(end, ReadPosition(ledger.ledger_id, behind))
        if begins < ends:
            size = max(1, ledger.size_bytes * (behind - first) // max(1, ledger.entries))
            yield Unit(LakeRange(topic, begins, ends, ledger.path, group, group + 1), size)


def pack(units: Sequence[Unit], tasks: int) -> list[tuple[Piece, ...]]:
    """At most ``tasks`` runs of about the same size, in order; what of one file follows each other is one piece."""
    total = sum(unit.size_bytes for unit in units)
    packed: dict[int, list[Piece]] = {}
    before = 0
    for piece, size in units:
        task = packed.setdefault(before * tasks // total, [])
        before += size
        last = task[-1] if task else None
        if isinstance(last, LakeRange) and isinstance(piece, LakeRange) and last.path == piece.path:
            task[-1] = replace(last, end=piece.end, end_group=piece.end_group)
        else:
            task.append(piece)
    return [tuple(task) for task in packed.values()]
