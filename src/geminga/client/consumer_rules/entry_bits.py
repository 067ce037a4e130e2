"""A set of entry ids as bits: a few bytes each where they are many, without a library in C.

Ids are kept in chunks of 1,024 neighbours, each one integer: 5 bytes an id where one of twenty is there, an eighth of a
byte where all are. One alone costs some 150 bytes: who has few keeps them in an array.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Final

_CHUNK_BITS: Final = 10
_MASK: Final = (1 << _CHUNK_BITS) - 1


class EntryBits:
    """Whole numbers from 0 on, in order when they are gone through."""

    __slots__ = ("_chunks", "_count")

    def __init__(self, entry_ids: Iterable[int] = ()) -> None:
        self._chunks: dict[int, int] = {}
        self._count = 0
        for entry_id in entry_ids:
            self.add(entry_id)

    def __contains__(self, entry_id: int) -> bool:
        return bool(self._chunks.get(entry_id >> _CHUNK_BITS, 0) >> (entry_id & _MASK) & 1)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        for chunk in sorted(self._chunks):
            first, bits = chunk << _CHUNK_BITS, self._chunks[chunk]
            while bits:
                lowest = bits & -bits
                yield first + lowest.bit_length() - 1
                bits ^= lowest

    def add(self, entry_id: int) -> None:
        """Nothing changes if it is there."""
        chunk = entry_id >> _CHUNK_BITS
        before = self._chunks.get(chunk, 0)
        after = before | 1 << (entry_id & _MASK)
        if after != before:
            self._chunks[chunk] = after
            self._count += 1

    def discard(self, entry_id: int) -> None:
        """Nothing changes if it is not there."""
        if entry_id not in self:
            return
        chunk = entry_id >> _CHUNK_BITS
        after = self._chunks[chunk] ^ 1 << (entry_id & _MASK)
        if after:
            self._chunks[chunk] = after
        else:
            del self._chunks[chunk]
        self._count -= 1

    def remove(self, entry_id: int) -> None:
        """Raises KeyError if it is not there."""
        if entry_id not in self:
            raise KeyError(entry_id)
        self.discard(entry_id)

    @property
    def chunk_count(self) -> int:
        """Chunks that have an id."""
        return len(self._chunks)

    @property
    def size_bytes(self) -> int:
        """Memory of the chunks and of the table that holds them."""
        return sys.getsizeof(self._chunks) + sum(map(sys.getsizeof, self._chunks.values())) + 32 * len(self._chunks)
