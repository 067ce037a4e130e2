"""Messages as columns: what rows become before they are entries, without an object per message.

Everything is as the wire has it already: keys are bytes of text (base64 if they were bytes that are none), properties
are encoded fields. A column that no row needs is None.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import add, itemgetter
from typing import Final, TypeVar

V = TypeVar("V")
#: What a message counts for beside its payload, key and properties when entries are cut, bytes.
MESSAGE_OVERHEAD_BYTES: Final = 16
#: The columns that hold bytes.
BYTE_COLUMNS: Final = ("payloads", "keys", "properties", "ordering_keys")


@dataclass(slots=True)
class MessageColumns:
    """Columns of equal length; ``payloads`` None: a null value."""

    payloads: list[bytes | None]
    keys: list[bytes | None] | None = None
    #: Whether each key is base64 of bytes; None: none of them.
    base64_keys: list[bool] | None = None
    #: Milliseconds since the epoch.
    event_times_ms: list[int | None] | None = None
    #: Encoded ``properties`` fields of SingleMessageMetadata, which are those of MessageMetadata with another number.
    properties: list[bytes] | None = None
    ordering_keys: list[bytes | None] | None = None
    #: Milliseconds since the epoch.
    deliver_at_ms: list[int | None] | None = None
    #: Names of the columns that may hold null; None: nobody knows, and looking costs as much as encoding.
    nullable: frozenset[str] | None = None

    def has_null(self, name: str) -> bool:
        """Whether a column may hold null; False is sure."""
        if self.nullable is not None:
            return name in self.nullable
        column = getattr(self, name)
        return column is not None and None in column

    def __len__(self) -> int:
        return len(self.payloads)

    def take(self, indices: Sequence[int]) -> MessageColumns:
        """The rows at ``indices``, in that order; ``indices`` is not empty."""
        pick = itemgetter(*indices) if len(indices) > 1 else None

        def picked(values: list[V]) -> list[V]:
            return list(pick(values)) if pick is not None else [values[indices[0]]]

        return MessageColumns(
            picked(self.payloads),
            None if self.keys is None else picked(self.keys),
            None if self.base64_keys is None else picked(self.base64_keys),
            None if self.event_times_ms is None else picked(self.event_times_ms),
            None if self.properties is None else picked(self.properties),
            None if self.ordering_keys is None else picked(self.ordering_keys),
            None if self.deliver_at_ms is None else picked(self.deliver_at_ms),
            self.nullable,
        )

    def part(self, start: int, end: int) -> MessageColumns:
        """The rows from ``start`` up to ``end``."""
        return MessageColumns(
            self.payloads[start:end],
            None if self.keys is None else self.keys[start:end],
            None if self.base64_keys is None else self.base64_keys[start:end],
            None if self.event_times_ms is None else self.event_times_ms[start:end],
            None if self.properties is None else self.properties[start:end],
            None if self.ordering_keys is None else self.ordering_keys[start:end],
            None if self.deliver_at_ms is None else self.deliver_at_ms[start:end],
            self.nullable,
        )

    def extend(self, other: MessageColumns) -> None:
        """Append the rows of ``other``, which has the same columns."""
        if self.nullable is not None:
            self.nullable = None if other.nullable is None else self.nullable | other.nullable
        if self.base64_keys is not None or other.base64_keys is not None:
            mine = self.base64_keys or [False] * len(self)
            self.base64_keys = mine + (other.base64_keys or [False] * len(other))
        self.payloads += other.payloads
        if self.keys is not None and other.keys is not None:
            self.keys += other.keys
        if self.event_times_ms is not None and other.event_times_ms is not None:
            self.event_times_ms += other.event_times_ms
        if self.properties is not None and other.properties is not None:
            self.properties += other.properties
        if self.ordering_keys is not None and other.ordering_keys is not None:
            self.ordering_keys += other.ordering_keys
        if self.deliver_at_ms is not None and other.deliver_at_ms is not None:
            self.deliver_at_ms += other.deliver_at_ms

    def sizes(self) -> list[int]:
        """What each row counts for when entries are cut, bytes."""
        sizes = [MESSAGE_OVERHEAD_BYTES] * len(self)
        for name in BYTE_COLUMNS:
            column: Sequence[bytes] | None = getattr(self, name)
            if column is not None:
                if self.has_null(name):
                    column = [value or b"" for value in column]
                sizes = list(map(add, sizes, map(len, column)))
        return sizes


def cut_entries(columns: MessageColumns, messages_max: int, bytes_max: int) -> list[tuple[int, int]]:
    """Where entries begin and end, from the first row on: as many rows as fit, at least one; a delayed row is alone.

    A function of the rows and the two limits alone: attempts that number the same rows cut the same entries.
    """
    count = len(columns)
    ends_bytes = list(accumulate(columns.sizes()))
    delays = columns.deliver_at_ms
    cuts = []
    start = 0
    before = 0
    while start < count:
        end = min(bisect_right(ends_bytes, before + bytes_max, start), start + messages_max)
        end = max(end, start + 1)
        if delays is not None:
            end = _before_delayed(delays, start, end)
        cuts.append((start, end))
        before = ends_bytes[end - 1]
        start = end
    return cuts


def _before_delayed(delays: list[int | None], start: int, end: int) -> int:
    if delays[start] is not None:
        return start + 1
    return next((row for row in range(start + 1, end) if delays[row] is not None), end)
