"""Which partition each row goes to: where it says, else where its key says, else all partitions in turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from geminga.client.producer_rules.router import partition_of_key
from geminga.spark.rules.option_values import OptionError

#: So many rows without key go to one partition before the next one has its turn: entries stay full.
KEYLESS_RUN_ROWS: Final = 1000
#: Keys whose partition a router remembers.
KEYS_CACHED_MAX: Final = 65_536


class Router:
    """The rows of one partitioned topic; what it says of a row without key depends on its number alone."""

    __slots__ = ("_cache", "_is_murmur3", "keyless_rows", "partitions")

    def __init__(self, partitions: int, *, is_murmur3: bool, keyless_rows: int = 0) -> None:
        self.partitions = partitions
        self._is_murmur3 = is_murmur3
        #: Rows without key so far; where the count begins says which partition is first.
        self.keyless_rows = keyless_rows
        self._cache: dict[bytes, int] = {}

    def route(self, keys: Sequence[bytes | None] | None, given: Sequence[int | None] | None, rows: int) -> list[int]:
        """The partition of each of ``rows`` rows; raises OptionError for one that the topic does not have."""
        routed: list[int] = []
        for row in range(rows):
            partition = given[row] if given is not None else None
            if partition is not None and partition >= 0:
                if partition >= self.partitions:
                    raise OptionError(f"__partition is {partition}, while the topic has {self.partitions}")
            elif keys is not None and (key := keys[row]) is not None:
                known = self._cache.get(key)
                partition = self._of_key(key) if known is None else known
            else:
                partition = self.keyless_rows // KEYLESS_RUN_ROWS % self.partitions
                self.keyless_rows += 1
            routed.append(partition)
        return routed

    def _of_key(self, key: bytes) -> int:
        partition = partition_of_key(key.decode(), self.partitions, murmur3=self._is_murmur3)
        if len(self._cache) < KEYS_CACHED_MAX:
            self._cache[key] = partition
        return partition


def rows_by_destination(destinations: Sequence[int]) -> dict[int, list[int]]:
    """Destination -> its rows, in order; destinations in the order of their first rows."""
    grouped: dict[int, list[int]] = {}
    for row, destination in enumerate(destinations):
        rows = grouped.get(destination)
        if rows is None:
            grouped[destination] = [row]
        else:
            rows.append(row)
    return grouped
