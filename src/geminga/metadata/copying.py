"""Copying a metadata tree into an empty one of another store: written, counted, compared; begun again after any crash.

Order: what can not be written there is found before anything is -> the marker -> nodes, parents first -> counters ->
every node compared -> (the caller notes at the source that it was moved) -> the marker goes. While the marker is there
nothing starts on the target, so that an attempt that finds it may make everything as the source is now.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, Protocol, TypeAlias

from geminga.metadata import cas
from geminga.metadata.core.copying import (
    MARKER_PATH,
    RESTORING_PATH,
    Marker,
    SourceNode,
    Summary,
    TreeDigest,
    begins_anew,
    decode_marker,
    is_of_target,
    several,
)
from geminga.metadata.counters import use_up
from geminga.metadata.ports import MUST_NOT_EXIST, MetadataStore
from geminga.model.errors import (
    BadVersionError,
    DataDirectoryError,
    MetadataError,
    UnknownOutcomeError,
)
from geminga.runtime import all_ended, crash_point

#: Nodes that are under way at once.
WINDOW_NODES: Final = 500
#: And their values' bytes, unless one alone has more.
WINDOW_BYTES: Final = 16 * 1024 * 1024
#: Attempts at one node: lost races, and connections lost before the answer.
NODE_ATTEMPTS_MAX: Final = 16

BEGUN: Final = "metadata.copy.begun"
WINDOW_WRITTEN: Final = "metadata.copy.window"
COUNTED: Final = "metadata.copy.counted"
COMPARED: Final = "metadata.copy.compared"
ENDED: Final = "metadata.copy.ended"

#: What is done, how many nodes, of how many.
OnProgress: TypeAlias = Callable[[str, int, int], None]


class NodeSource(Protocol):
    """A tree that nobody changes meanwhile."""

    async def nodes_after(self, path: str, limit: int) -> Sequence[SourceNode]:
        """Persistent nodes behind ``path`` (empty: from the root on) by their parents' paths and their names."""
        ...


async def scan(source: NodeSource, target_name: str, check: Callable[[str, bytes], None]) -> Summary:
    """What is to be copied. Raises MetadataError that names the nodes which ``check`` raises one for."""
    digest = TreeDigest()
    refused: list[str] = []
    async for nodes in _windows(source):
        for node in nodes:
            digest.add(node.path, node.value)
            try:
                check(node.path, node.value)
            except MetadataError as error:
                refused.append(str(error))
    if refused:
        raise MetadataError(
            f"{len(refused)} nodes can not be kept by {target_name}, and nothing was written there: {several(refused)}"
        )
    return digest.summary()


async def _windows(source: NodeSource) -> AsyncIterator[Sequence[SourceNode]]:
    path = ""
    while nodes := await source.nodes_after(path, WINDOW_NODES):
        window: list[SourceNode] = []
        size_bytes = 0
        for node in nodes:
            if window and size_bytes + len(node.value) > WINDOW_BYTES:
                yield window
                window, size_bytes = [], 0
            window.append(node)
            size_bytes += len(node.value)
        yield window
        path = nodes[-1].path


class MetadataCopy:
    """One attempt. The calls are in the order in which they are to be made."""

    def __init__(
        self,
        source: NodeSource,
        target: MetadataStore,
        marker: Marker,
        target_name: str,
        *,
        of: int,
        added: Sequence[str] = (),
        counted_elsewhere: Sequence[str] = (),
        on_progress: OnProgress = lambda what, done, of: None,
    ) -> None:
        """``of``: nodes that there are. ``added``: nodes that the target has beside the source's.

        ``counted_elsewhere``: nodes whose counters the caller raises, as those of what is below.
        """
        self._source = source
        self._target = target
        self._marker = marker
        self._target_name = target_name
        self._added = tuple(added)
        self._counted_elsewhere = tuple(counted_elsewhere)
        self._on_progress = on_progress
        self._of = of
        #: Whether an earlier attempt left something.
        self.is_resumed = False

    async def look(self) -> None:
        """Look whether the target is empty, or this copy's. Raises DataDirectoryError, MetadataError."""
        target = self._target
        await target.sync()
        node = await target.get(MARKER_PATH)
        marker = None if node is None else decode_marker(node.value, self._target_name)
        names = await target.children("/")
        self.is_resumed = not begins_anew(names, marker, self._marker.copy_id, self._target_name)

    async def begin(self) -> None:
        """Mark the target, after a look. Raises DataDirectoryError, MetadataError."""
        if not await cas.put_if_absent(self._target, MARKER_PATH, self._marker.encode()) and not self.is_resumed:
            raise DataDirectoryError(f"another copy to {self._target_name} began meanwhile")
        crash_point(BEGUN)

    async def write(self) -> None:
        """Make every node as it is at the source. Raises MetadataError."""
        done = 0
        async for nodes in _windows(self._source):
            # In their order: requests are sent in it, so that a parent is there before its children.
            await all_ended(self._write_node(node) for node in nodes)
            if self.is_resumed:
                await all_ended(self._remove_others(node) for node in nodes)
            done += len(nodes)
            self._on_progress("copied", done, self._of)
            crash_point(WINDOW_WRITTEN)

    async def count(self) -> None:
        """Bring the counters of sequential nodes to at least those of the source. Raises MetadataError."""
        async for nodes in _windows(self._source):
            for node in nodes:
                if node.next_sequence and not self._is_counted_elsewhere(node.path):
                    await use_up(self._target, node.path, node.next_sequence)
        crash_point(COUNTED)

    async def compare(self) -> Summary:
        """Read every node of the target. Raises MetadataError that names those that differ."""
        digest = TreeDigest()
        stories: list[str] = []
        async for nodes in _windows(self._source):
            found: list[bytes] = [b""] * len(nodes)
            await all_ended(self._compare_node(node, i, found, stories) for i, node in enumerate(nodes))
            for node, value in zip(nodes, found, strict=True):
                digest.add(node.path, value)
            self._on_progress("compared", digest.summary().nodes, self._of)
        if stories:
            raise MetadataError(
                f"{len(stories)} nodes of {self._target_name} are not as they were written: "
                f"{several(sorted(stories))}. Does somebody else write there? The same command makes them equal again"
            )
        crash_point(COMPARED)
        return digest.summary()

    async def end(self) -> None:
        """From now on the target may be used. Fine if it was ended before. Raises DataDirectoryError, MetadataError."""
        node = await self._target.get(MARKER_PATH)
        if node is not None:
            marker = decode_marker(node.value, self._target_name)
            if marker.copy_id != self._marker.copy_id:
                raise DataDirectoryError(f"{self._target_name} holds an unfinished copy of {marker.source}")
            await cas.remove_read(self._target, MARKER_PATH, node)
        crash_point(ENDED)

    # ---- inside

    async def _write_node(self, node: SourceNode) -> None:
        target = self._target
        version: int = MUST_NOT_EXIST
        for _ in range(NODE_ATTEMPTS_MAX):
            try:
                await target.put(node.path, node.value, expected_version=version)
                return
            except (BadVersionError, UnknownOutcomeError):
                found = await target.get(node.path)
            if found is not None and found.value == node.value:
                return
            version = MUST_NOT_EXIST if found is None else found.stat.version
        raise MetadataError(f"{node.path} could not be written to {self._target_name} in {NODE_ATTEMPTS_MAX} attempts")

    async def _remove_others(self, node: SourceNode) -> None:
        """What an earlier attempt wrote, and the source has no more."""
        others = set(await self._target.children(node.path)) - set(node.children)
        for name in sorted(others):
            path = _child(node.path, name)
            if not is_of_target(path, self._added):
                await self._remove(path)

    async def _remove(self, path: str) -> None:
        for name in await self._target.children(path):
            await self._remove(_child(path, name))
        await cas.remove(self._target, path)

    async def _compare_node(self, node: SourceNode, index: int, values: list[bytes], stories: list[str]) -> None:
        found = await self._target.get(node.path)
        if found is None:
            stories.append(f"{node.path} is missing")
            return
        values[index] = found.value
        if found.value != node.value:
            stories.append(f"{node.path} has another value")
        if found.stat.is_ephemeral:
            stories.append(f"{node.path} is ephemeral")
        for name in sorted(set(await self._target.children(node.path)) - set(node.children)):
            path = _child(node.path, name)
            if not is_of_target(path, self._added) and await self._is_there_to_stay(path):
                stories.append(f"{path} is not the source's")
        if node.next_sequence and not self._is_counted_elsewhere(node.path):
            counter = await self._target.next_sequence(node.path)
            if counter < node.next_sequence:
                stories.append(f"{node.path} counts {counter}, expected {node.next_sequence} or more")

    async def _is_there_to_stay(self, path: str) -> bool:
        """What counters were brought up with goes with its session, where its deletion was cut off."""
        found = await self._target.get(path)
        return found is not None and not found.stat.is_ephemeral

    def _is_counted_elsewhere(self, path: str) -> bool:
        return any(path == one or path.startswith(f"{one}/") for one in self._counted_elsewhere)


async def refuse_unfinished(store: MetadataStore, name: str, *, while_restored: bool = False) -> None:
    """Raise DataDirectoryError while a copy to this store is unfinished.

    ``while_restored``: not where a backup is restored to it, which needs bookies.
    """
    node = await store.get(MARKER_PATH)
    if node is not None:
        source = decode_marker(node.value, name).source
        raise DataDirectoryError(
            f"{name} holds an unfinished copy of the metadata of {source}: run geminga metadata copy {source} {name} "
            "again until it is done"
        )
    node = None if while_restored else await store.get(RESTORING_PATH)
    if node is not None:
        source = decode_marker(node.value, name, RESTORING_PATH).source
        raise DataDirectoryError(
            f"{name} holds a part of the backup in {source}: run geminga backup restore {source} --metadata {name} "
            "again until it is done"
        )


def _child(path: str, name: str) -> str:
    return f"/{name}" if path == "/" else f"{path}/{name}"
