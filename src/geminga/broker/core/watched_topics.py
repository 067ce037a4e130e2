"""The topics of a namespace that one pattern matches, as those who watch it were told.

Pure. Every watcher of a pattern was told the same: the list at its beginning, then each change.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

from geminga.wire.pulsar.commands import topics_hash

#: Bytes of a command beside its names, and of a name beside its text, at most.
COMMAND_BYTES: Final = 64
NAME_BYTES: Final = 8


class TopicChange(NamedTuple):
    """What a watcher is to be told; names sorted. ``hash`` is that of the list that results."""

    came: list[str]
    went: list[str]
    hash: str

    def pieces(self, bytes_max: int) -> list[TopicChange]:
        """The same in commands of at most so many bytes, as far as a single name allows.

        Until the last one the client is to know a hash that no list has (an empty one): if it hears no more, it is
        told the whole list when it watches again.
        """
        room = left = bytes_max - COMMAND_BYTES
        found = [TopicChange([], [], "")]
        for names, is_new in ((self.came, True), (self.went, False)):
            for name in names:
                size_bytes = len(name.encode()) + NAME_BYTES
                if size_bytes > left < room:
                    found.append(TopicChange([], [], ""))
                    left = room
                left -= size_bytes
                (found[-1].came if is_new else found[-1].went).append(name)
        found[-1] = found[-1]._replace(hash=self.hash)
        return found


class WatchedTopics:
    """See the module. ``names`` are full names that match, sorted, each once."""

    __slots__ = ("_hash", "_names")

    def __init__(self, names: Iterable[str]) -> None:
        self._names = list(names)
        self._hash: str | None = None

    @property
    def names(self) -> Sequence[str]:
        """Sorted."""
        return self._names

    @property
    def hash(self) -> str:
        """See :func:`topics_hash`."""
        if self._hash is None:
            self._hash = topics_hash(self._names)
        return self._hash

    def change(self, came: Collection[str], went: Collection[str]) -> TopicChange | None:
        """Names that match came, others went, matching or not; none is both. None if that is no news.

        Takes time linear in the list only if there is news.
        """
        new = sorted(name for name in came if not self._has(name))
        gone = {name for name in went if self._has(name)}
        if not new and not gone:
            return None
        kept = [name for name in self._names if name not in gone] if gone else self._names
        self._names = sorted([*kept, *new])  # two sorted runs: a merge
        self._hash = None
        return TopicChange(new, sorted(gone), self.hash)

    def _has(self, name: str) -> bool:
        index = bisect_left(self._names, name)
        return index < len(self._names) and self._names[index] == name
