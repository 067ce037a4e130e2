"""Which bookies there are: those registered in the metadata store, or those of this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from geminga.metadata.ports import MetadataStore, Unsubscribe
from geminga.model.bookie_port import Availability, Bookie
from geminga.wire.bookkeeper.bookie_registration import AVAILABLE_PATH, READ_ONLY_NAME, READ_ONLY_PATH


class LiveBookies(NamedTuple):
    """Ids, sorted. Who is in neither is lost."""

    writable: tuple[str, ...]
    read_only: tuple[str, ...] = ()

    @property
    def all(self) -> frozenset[str]:
        """Everybody whose copies count."""
        return frozenset(self.writable + self.read_only)


class BookieRegistry(Protocol):
    """Tells who is registered."""

    async def registered(self) -> LiveBookies:
        """Now, read from the source; raises MetadataError."""
        ...

    def watch(self, callback: Callable[[], None]) -> Unsubscribe:
        """Hear that something may have changed; may come late, twice or never."""
        ...


class MetadataBookieRegistry:
    """Of a cluster: the ephemeral nodes of its bookies."""

    __slots__ = ("_store",)

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def registered(self) -> LiveBookies:
        """See :class:`BookieRegistry`.

        Who goes from one list to the other is in both for a moment, and in neither of two that were read one after
        the other if it went the other way between: one list is read before and after.
        """
        before = await self._store.children(AVAILABLE_PATH)
        read_only = await self._store.children(READ_ONLY_PATH)
        after = await self._store.children(AVAILABLE_PATH)
        writable = sorted({*after, *before}.difference([READ_ONLY_NAME], {*read_only} - {*after}))
        return LiveBookies(tuple(writable), tuple(name for name in read_only if name not in writable))

    def watch(self, callback: Callable[[], None]) -> Unsubscribe:
        """See :class:`BookieRegistry`."""
        ends = [self._store.watch_children(path, lambda _: callback()) for path in (AVAILABLE_PATH, READ_ONLY_PATH)]

        def unsubscribe() -> None:
            for end in ends:
                end()

        return unsubscribe


class LocalBookieRegistry:
    """Of a standalone: the bookies in its process, as far as they work."""

    __slots__ = ("_bookies", "_callbacks")

    def __init__(self, bookies: Mapping[str, Bookie]) -> None:
        self._bookies = dict(sorted(bookies.items()))
        self._callbacks: list[Callable[[], None]] = []
        for bookie in self._bookies.values():
            bookie.watch(self._changed)

    async def registered(self) -> LiveBookies:
        """See :class:`BookieRegistry`."""
        states = {name: bookie.availability for name, bookie in self._bookies.items()}
        return LiveBookies(
            tuple(name for name, state in states.items() if state is Availability.WRITABLE),
            tuple(name for name, state in states.items() if state is Availability.READ_ONLY),
        )

    def watch(self, callback: Callable[[], None]) -> Unsubscribe:
        """See :class:`BookieRegistry`."""
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)

    def _changed(self, _: Availability) -> None:
        for callback in tuple(self._callbacks):
            callback()
