"""What is kept of a log that is read once more: by the bits and numbers that the first reading left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from geminga.broker.core.compaction.entry_messages import STEP_ENTRIES, Steps, count_of, repacked
from geminga.broker.core.compaction.newest import NewestMessages
from geminga.model.position import Position
from geminga.wire.pulsar.compacted import CompactedEntry, encode_compacted


class PlacedEntry(Protocol):
    """One entry of the topic."""

    @property
    def position(self) -> Position:
        """Where it is."""
        ...

    @property
    def data(self) -> bytes:
        """As it lies there."""
        ...


class SecondReading:
    """Is given the same entries in the same order, in whatever pieces."""

    __slots__ = ("_counts", "_kept", "_number")

    def __init__(self, newest: NewestMessages) -> None:
        """``newest``: settled."""
        self._kept = newest.kept
        self._counts = newest.counts.read()
        #: Of the next message.
        self._number = 0

    def kept_of(self, entries: Sequence[PlacedEntry], is_hidden: Callable[[PlacedEntry], bool]) -> Steps[list[bytes]]:
        """Those of which anything is kept, as they are stored (``wire.pulsar.compacted``). Most are not even parsed.

        ``is_hidden``: whether the first reading did not get it.
        """
        found: list[bytes] = []
        index = 0
        for count, alike in self._counts.take(len(entries)):
            end = index + alike
            if count == 1:
                bits = self._kept.bits(self._number, alike)
                self._number += alike
                if bits:
                    # Texts of a number in base two take a time that grows with its length alone.
                    text = f"{bits:0{alike}b}"[::-1]
                    for at, bit in enumerate(text, index):
                        if bit == "1":
                            entry = entries[at]
                            found.append(encode_compacted(CompactedEntry(entry.position, entry.data)))
                            if not len(found) % STEP_ENTRIES:
                                yield
                yield
            elif count != 0:
                for entry in entries[index:end]:
                    data = yield from self._kept_of(entry, count, is_hidden)
                    if data is not None:
                        found.append(encode_compacted(CompactedEntry(entry.position, data)))
                    yield
            index = end
        return found

    def _kept_of(
        self, entry: PlacedEntry, known: int | None, is_hidden: Callable[[PlacedEntry], bool]
    ) -> Steps[bytes | None]:
        count = known
        if count is None:
            count = 0 if is_hidden(entry) else count_of(entry.data)
        bits = self._kept.bits(self._number, count)
        self._number += count
        if not bits:
            return None
        if bits.bit_count() == count:
            return entry.data
        return (yield from repacked(entry.data, count, bits))
