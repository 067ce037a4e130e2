"""One tree in two stores: what the clusters of an instance share, and all else, which is one cluster's.

Implements ``metadata.ports.MetadataStore``. Which node is where is said by a :class:`TreeDivision`. The session that
listeners hear of is the cluster's own: what is ephemeral, locks and elections among them, is there. That the shared
store is away fails what reads or writes there, and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol, Unpack

from geminga.metadata.ports import MetadataStore, Node, Notification, PutOptions, PutResult, SessionEvent, Unsubscribe


class TreeDivision(Protocol):
    """Which nodes are shared. Pure; paths are absolute."""

    def is_shared(self, path: str) -> bool:
        """Whether the node is in the shared store."""
        ...

    def is_border(self, path: str) -> bool:
        """Whether a node has children in both stores."""
        ...


class DividedMetadataStore:
    """See the module."""

    __slots__ = ("_division", "_own", "_shared")

    def __init__(self, own: MetadataStore, shared: MetadataStore, division: TreeDivision) -> None:
        self._own = own
        self._shared = shared
        self._division = division

    def _is_parent_of_both(self, path: str) -> bool:
        """Whether it is no node of its own: it may have come to be in the shared store alone."""
        return self._division.is_border(path) and not self._division.is_shared(path)

    def _of(self, path: str) -> MetadataStore:
        return self._shared if self._division.is_shared(path) else self._own

    async def get(self, path: str) -> Node | None:
        """See ``MetadataStore.get``."""
        node = await self._of(path).get(path)
        if node is None and self._is_parent_of_both(path):
            return await self._shared.get(path)
        return node

    async def exists(self, path: str) -> bool:
        """See ``MetadataStore.exists``; a border is where it has children."""
        return await self._of(path).exists(path) or (self._is_parent_of_both(path) and await self._shared.exists(path))

    async def children(self, path: str) -> list[str]:
        """See ``MetadataStore.children``; of a border those of both stores that are where they belong."""
        if not self._division.is_border(path):
            return await self._of(path).children(path)
        own, shared = await asyncio.gather(self._own.children(path), self._shared.children(path))
        below, division = path.removesuffix("/"), self._division
        # A store may have, as parents of what is its own, nodes that belong to the other.
        names = {name for name in own if not division.is_shared(f"{below}/{name}")}
        names.update(name for name in shared if division.is_shared(f"{below}/{name}"))
        names.update(name for name in shared if self._is_parent_of_both(f"{below}/{name}"))
        return sorted(names)

    async def next_sequence(self, path: str) -> int:
        """See ``MetadataStore.next_sequence``."""
        return await self._of(path).next_sequence(path)

    async def sync(self, path: str = "/") -> None:
        """See ``MetadataStore.sync``; of both only where there is something of both."""
        if self._division.is_border(path):
            await asyncio.gather(self._own.sync(path), self._shared.sync(path))
        else:
            await self._of(path).sync(path)

    async def put(self, path: str, value: bytes, **options: Unpack[PutOptions]) -> PutResult:
        """See ``MetadataStore.put``."""
        return await self._of(path).put(path, value, **options)

    async def take_sequences(self, path: str, count: int) -> Sequence[int]:
        """See ``MetadataStore.take_sequences``."""
        return await self._of(path).take_sequences(path, count)

    async def delete(self, path: str, *, expected_version: int | None = None) -> None:
        """See ``MetadataStore.delete``."""
        await self._of(path).delete(path, expected_version=expected_version)

    def watch_node(self, path: str, callback: Callable[[Notification], None]) -> Unsubscribe:
        """See ``MetadataStore.watch_node``."""
        return self._of(path).watch_node(path, callback)

    def watch_children(self, path: str, callback: Callable[[Notification], None]) -> Unsubscribe:
        """See ``MetadataStore.watch_children``."""
        if not self._division.is_border(path):
            return self._of(path).watch_children(path, callback)
        ends = [store.watch_children(path, callback) for store in (self._own, self._shared)]

        def unsubscribe() -> None:
            for end in ends:
                end()

        return unsubscribe

    def on_session_event(self, callback: Callable[[SessionEvent], None]) -> Unsubscribe:
        """See ``MetadataStore.on_session_event``; of the cluster's own store."""
        return self._own.on_session_event(callback)

    async def close(self) -> None:
        """End both sessions."""
        try:
            await self._shared.close()
        finally:
            await self._own.close()
