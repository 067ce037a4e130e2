"""What is kept of a log that is read once more: by the bits and numbers that the first reading left."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from geminga.broker.core.compaction.entry_messages import Steps, count_of, repacked
from geminga.broker.core.compaction.newest import NewestMessages


class SecondReading:
    """Is given the same entries in the same order, in whatever pieces."""

    __slots__ = ("_counts", "_kept", "_number")

    def __init__(self, newest: NewestMessages) -> None:
        """``newest``: settled."""
        self._kept = newest.kept
        self._counts = newest.counts.read()
        #: Of the next message.
        self._number = 0

    def kept_of(self, entries: Sequence[bytes], is_hidden: Callable[[int], bool]) -> Steps[list[tuple[int, bytes]]]:
        """Index, and what is kept, of those of which anything is. Most are not even parsed.

        ``is_hidden``: whether the first reading did not get the entry at an index.
        """
        found: list[tuple[int, bytes]] = []
        index = 0
        for count, alike in self._counts.take(len(entries)):
            end = index + alike
            if count == 1:
                bits = self._kept.bits(self._number, alike)
                self._number += alike
                if bits:
                    # Texts of a number in base two take a time that grows with its length alone.
                    text = f"{bits:0{alike}b}"[::-1]
                    found += [(at, entries[at]) for at, bit in enumerate(text, index) if bit == "1"]
                yield
            elif count != 0:
                for at in range(index, end):
                    data = yield from self._kept_of(entries[at], at, count, is_hidden)
                    if data is not None:
                        found.append((at, data))
                    yield
            index = end
        return found

    def _kept_of(
        self, entry: bytes, index: int, known: int | None, is_hidden: Callable[[int], bool]
    ) -> Steps[bytes | None]:
        count = known
        if count is None:
            count = 0 if is_hidden(index) else count_of(entry)
        bits = self._kept.bits(self._number, count)
        self._number += count
        if not bits:
            return None
        if bits.bit_count() == count:
            return entry
        return (yield from repacked(entry, count, bits))
