"""The order of a task's rows: a function of the rows as a set, whatever order Spark brings them in.

Rows are sorted by the columns that the user names, if any, then by key and payload, then by every other field of the
message: rows that are still equal are the same message, and it does not matter which of them comes first.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable, Sequence
from operator import ne
from typing import Any, Final

from geminga.spark.sink_rules.message_columns import MessageColumns

#: A column's values that compare with each other, or None.
OrderColumn = Sequence[Any]

_SIGN: Final = 1 << 63
_DOUBLE: Final = struct.Struct(">d")
_BITS: Final = struct.Struct(">Q")


def sorted_rows(
    messages: MessageColumns, ordered_by: Sequence[OrderColumn] = (), partitions: OrderColumn | None = None
) -> list[int]:
    """The rows' indices in order; ``ordered_by`` are columns of the same length, the first one counts most.

    ``partitions`` tells apart what are equal messages for different partitions.
    """
    others = [
        column
        for column in (
            messages.base64_keys,
            messages.event_times_ms,
            messages.properties,
            messages.ordering_keys,
            messages.deliver_at_ms,
            partitions,
        )
        if column is not None
    ]
    getters = [_getter(column) for column in others]
    by_payload = _getter(messages.payloads, messages.has_null("payloads"))
    rows: list[int] = []
    for group in _rows_by_key(messages):
        if len(group) > 1:
            group.sort(key=by_payload)
            if getters:
                _sort_equals(group, messages.payloads, getters)
        rows += group
    for column in reversed(ordered_by):
        rows.sort(key=_getter(column))
    return rows


def _rows_by_key(messages: MessageColumns) -> list[list[int]]:
    """The rows of each key, keys in order; rows without key come first."""
    if messages.keys is None:
        return [list(range(len(messages)))]
    groups: defaultdict[bytes | None, list[int]] = defaultdict(list)
    for row, key in enumerate(messages.keys):
        groups[key].append(row)
    keys = sorted(key for key in groups if key is not None)
    return [groups[None], *(groups[key] for key in keys)]


def sortable_double(value: float | None) -> int | None:
    """A number that orders as Spark orders doubles: NaN last, and equal to itself; -0.0 before 0.0."""
    if value is None:
        return None
    if value != value:
        return 1 << 64
    bits: int = _BITS.unpack(_DOUBLE.pack(value))[0]
    return ~bits & (_SIGN - 1) if bits & _SIGN else bits | _SIGN


def _getter(column: OrderColumn, has_null: bool = True) -> Callable[[int], Any]:
    """A key for sorting rows by a column; null comes first. ``has_null`` False: there is none for sure."""
    if not has_null or None not in column:
        return column.__getitem__
    pairs = [(False, None) if value is None else (True, value) for value in column]
    # Tuples of equal first parts compare their second parts: two nulls are the same object, and equal.
    return pairs.__getitem__


def _sort_equals(rows: list[int], payloads: Sequence[bytes | None], others: Sequence[Callable[[int], Any]]) -> None:
    """Sort each run of rows with the same payload by the other fields."""
    start = 0
    ordered = [payloads[row] for row in rows]
    for end, is_other in enumerate(map(ne, ordered, ordered[1:]), 1):
        if is_other:
            if end - start > 1:
                rows[start:end] = sorted(rows[start:end], key=lambda row: [get(row) for get in others])
            start = end
    if len(rows) - start > 1:
        rows[start:] = sorted(rows[start:], key=lambda row: [get(row) for get in others])
