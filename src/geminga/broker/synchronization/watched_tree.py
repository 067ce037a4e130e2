"""Watches on the nodes that are kept alike, as many as may be; whoever is not watched is found by the next walk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from geminga.broker.synchronization.paths import namespace_at, partitioned_at
from geminga.metadata.ports import MetadataStore, Unsubscribe

#: Watches on values, and on children of what may have some: of those that a store allows one session (50,000) others
#: of the broker need theirs.
WATCHES_MAX: Final = 20_000
#: A place with many names is listed again after so long for each of them: making ten thousand must not list them ten
#: thousand times.
LISTED_MS_EACH: Final = 1
#: With fewer it is no matter.
LISTED_MIN: Final = 500
#: Paths that changed and were not looked at; more, and all are.
CHANGED_MAX: Final = 10_000


class WatchedTree:
    """See the module."""

    __slots__ = ("_changed", "_count", "_ends", "_heard", "_listed_s", "_metadata", "_unnoted", "is_walk_due")

    def __init__(self, metadata: MetadataStore, heard: Callable[[], None]) -> None:
        """``heard``: there is something to look at."""
        self._metadata = metadata
        self._heard = heard
        self._ends: dict[str, tuple[Unsubscribe, ...]] = {}
        self._count = 0
        self._changed: dict[str, None] = {}
        #: Of these, the ones that may be gone, and whose time is that of now.
        self._unnoted: dict[str, None] = {}
        #: Until when places with many names are left alone.
        self._listed_s: dict[str, float] = {}
        #: Whether all is to be looked at: more changed than is remembered.
        self.is_walk_due = False

    @property
    def waiting(self) -> int:
        """Paths that changed and were not looked at."""
        return len(self._changed)

    @property
    def is_full(self) -> bool:
        """Whether no more can be watched."""
        return self._count + 2 > WATCHES_MAX

    def is_watched(self, path: str) -> bool:
        """Whether its changes are heard of."""
        return path in self._ends

    def watch(self, path: str) -> None:
        """Hear of its changes, if there is room. Whoever reads it afterwards misses none."""
        if path in self._ends or self.is_full:
            return
        metadata = self._metadata
        ends = [metadata.watch_node(path, lambda _: self.add(path))]
        if not namespace_at(path) and partitioned_at(path) is None:
            ends.append(metadata.watch_children(path, lambda _: self.add(path)))
        self._ends[path] = tuple(ends)
        self._count += len(ends)

    def forget(self, path: str) -> None:
        """It is not there."""
        self._listed_s.pop(path, None)
        ends = self._ends.pop(path, ())
        self._count -= len(ends)
        for end in ends:
            end()

    def add(self, path: str) -> None:
        """It is to be looked at."""
        if len(self._changed) >= CHANGED_MAX and path not in self._changed:
            self.is_walk_due = True
        else:
            self._changed[path] = None
            self._unnoted[path] = None
        self._heard()

    def next_unnoted(self) -> str | None:
        """One that changed and was not asked for here since; None: there is none."""
        path = next(iter(self._unnoted), None)
        if path is not None:
            del self._unnoted[path]
        return path

    def next(self, now_s: float) -> str | None:
        """The one that is waiting longest and may be looked at now (seconds, monotonic), which waits no more."""
        for path in self._changed:
            if self._listed_s.get(path, now_s) <= now_s:
                del self._changed[path]
                return path
        return None

    def listed(self, path: str, count: int, now_s: float) -> None:
        """So many names are below a path, which is not looked at again too soon."""
        if count >= LISTED_MIN:
            self._listed_s[path] = now_s + count * LISTED_MS_EACH / 1000
        else:
            self._listed_s.pop(path, None)

    def due_s(self, now_s: float) -> float | None:
        """When one that is waiting may be looked at (seconds, monotonic); None: nothing waits."""
        return min((self._listed_s.get(path, now_s) for path in self._changed), default=None)

    def close(self) -> None:
        """Nothing is heard any more."""
        for path in list(self._ends):
            self.forget(path)
        self._changed.clear()
        self._unnoted.clear()
        self._listed_s.clear()
        self.is_walk_due = False
