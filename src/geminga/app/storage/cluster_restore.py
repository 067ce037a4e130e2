"""Reads a backup of a cluster: looks at its ledgers, makes a standalone's data directory of it, opens it for a cluster.

To a standalone each ledger is written to a bookie of the new directory under its id, closed where it ended; the nodes
of the cluster's bookies and ledgers go, all others are as they were. Nothing of the cluster is asked or needed.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Final

from geminga.app.storage.backup_writing import COPY_BYTES, LANE
from geminga.app.storage.bookies import LocalBookies
from geminga.app.storage.cluster_target import BackupContents
from geminga.app.storage.cluster_tree import LEFT_OUT, each
from geminga.app.storage.core.backup_format import FILES_DIRECTORY, BackupManifest
from geminga.app.storage.core.ledger_segments import (
    HEADER_BYTES,
    LedgerSegment,
    by_ledger,
    consumed,
    fault,
    header_fault,
    needed,
    split_records,
)
from geminga.app.storage.data_directory import METADATA_FILE
from geminga.app.storage.ledger_writing import append_all, custom_metadata_of
from geminga.app.storage.restoring import Restoring
from geminga.bookie import BookieConfig
from geminga.bookie.disk_io import read
from geminga.bookkeeper import BookKeeper, LocalBookiePool
from geminga.bookkeeper.installation import INSTALLATION_PATH
from geminga.bookkeeper.ledger_ids import ID_GENERATOR_PATH, keep_ids_above, next_ledger_id
from geminga.managed_ledger.shared.metadata_io import ROOT as MANAGED_LEDGERS
from geminga.metadata import SqliteMetadataStore
from geminga.metadata.copying import WINDOW_NODES
from geminga.metadata.core.copying import SourceNode
from geminga.metadata.core.tree import NO_SESSION
from geminga.metadata.sqlite_tree import SqliteTree
from geminga.model.errors import DataDirectoryError
from geminga.runtime import ReadRequest, Runtime
from geminga.wire.bookkeeper.ledger_metadata import LedgerMetadata, decode_ledger_metadata
from geminga.wire.bookkeeper.ledger_path import LEDGERS_ROOT, ledger_id_of_path, ledger_path

#: Of faults that are told.
NAMED_MAX: Final = 20
#: Nodes of a backup that are not copied to a cluster: its own ledgers and bookies have others.
_NOT_RESTORED: Final = LEFT_OUT - {MANAGED_LEDGERS}


def ledger_faults(tree: SqliteTree, manifest: BackupManifest) -> list[str]:
    """What is wrong between the metadata in a backup and its segments. Raises StorageError."""
    segments = by_ledger(manifest.files)
    faults: list[str] = []
    path = ""
    while nodes := tree.nodes_after(path, WINDOW_NODES):
        for node in nodes:
            ledger_id = ledger_id_of_path(node.path)
            if ledger_id is not None:
                last = decode_ledger_metadata(node.value, ledger_id).last_entry_id
                story = fault(ledger_id, segments.pop(ledger_id, []), last)
                faults += [story] if story is not None else []
        path = nodes[-1].path
    faults += [f"ledger {ledger_id}: the backup's metadata do not know it" for ledger_id in segments]
    return faults[:NAMED_MAX]


async def segment_faults(runtime: Runtime, directory: str, manifest: BackupManifest) -> list[str]:
    """Segments that can not be read to their ends: checksums say that files are as they were written, not as what."""
    faults: list[str] = []
    for segments in by_ledger(manifest.files).values():
        for segment in segments:
            try:
                async with aclosing(payloads_of(runtime, directory, segment)) as parts:
                    async for _ in parts:
                        pass
            except DataDirectoryError as error:
                faults.append(str(error))
                if len(faults) >= NAMED_MAX:
                    return faults
    return faults


async def payloads_of(
    runtime: Runtime, directory: str, segment: LedgerSegment
) -> AsyncGenerator[Sequence[bytes], None]:
    """Its entries, some at a time: about :data:`COPY_BYTES`, one at least. Raises DataDirectoryError, OSError."""
    path = f"{directory}/{FILES_DIRECTORY}/{segment.file.stored}"
    file = await runtime.disk.open_file(path, lane=LANE)
    try:

        async def part(offset: int, size: int) -> bytes:
            size = min(size, segment.file.size_bytes - offset)
            if size <= 0:
                return b""
            (data,) = await read(runtime.disk, [ReadRequest(file, offset, size)], lane=LANE)
            if isinstance(data, OSError):
                raise data
            return data

        story = header_fault(await part(0, HEADER_BYTES), segment)
        if story is not None:
            raise DataDirectoryError(story)
        offset, found = HEADER_BYTES, 0
        while offset < segment.file.size_bytes:
            data = await part(offset, COPY_BYTES)
            if needed(data) > len(data):
                data = await part(offset, needed(data))
            payloads = list(split_records(data))
            if not payloads:
                break
            offset += consumed(payloads)
            found += len(payloads)
            yield payloads
        if offset != segment.file.size_bytes or found != segment.entries:
            raise DataDirectoryError(
                f"{path} ({segment.file.name}) has {found} whole entries, expected {segment.entries} and nothing behind"
            )
    finally:
        await runtime.disk.close_file(file)


def entries_of(backup: Restoring, segment: LedgerSegment) -> AsyncGenerator[Sequence[bytes], None]:
    """See :func:`payloads_of`."""
    backup.told(segment.file)
    return payloads_of(backup.runtime, backup.directory, segment)


async def fill(backup: Restoring, target: str) -> None:
    """Fill ``target``, which has the backup's metadata file, with its ledgers. Raises StorageError, OSError."""
    runtime = backup.runtime
    closers: list[Callable[[], Awaitable[None]]] = []
    try:
        metadata = await SqliteMetadataStore.open(runtime, os.path.join(target, METADATA_FILE))
        closers.append(metadata.close)
        free = await next_ledger_id(metadata)
        kept = await _take_out_ledgers(metadata)
        bookies = LocalBookies(
            runtime,
            metadata,
            target,
            BookieConfig(),
            count=1,
            left_out=(),
            on_open=lambda _, close: closers.append(close),
        )
        await bookies.open()
        bookkeeper = BookKeeper(runtime, metadata, LocalBookiePool(bookies.by_id))
        segments = by_ledger(backup.manifest.files)
        for ledger_id in sorted(kept):
            await _restore_ledger(backup, bookkeeper, ledger_id, kept[ledger_id], segments.get(ledger_id, []))
        await keep_ids_above(metadata, max(free - 1, max(kept, default=-1)))
    finally:
        for close in reversed(closers):
            await close()


class BackupTree:
    """The nodes in the metadata file of a backup, without those that are not restored; on a thread of its own."""

    def __init__(self, runtime: Runtime, path: str) -> None:
        self._threads = runtime.threads
        self._path = path
        self._tree: SqliteTree | None = None

    async def nodes_after(self, path: str, limit: int) -> Sequence[SourceNode]:
        """See ``NodeSource``. Raises CorruptionError."""
        while nodes := await self._threads.call(LANE, partial(self._nodes_after, path, limit)):
            kept = [_without_left_out(node) for node in nodes if not _is_left_out(node.path)]
            if kept:
                return kept
            path = nodes[-1].path
        return ()

    def _nodes_after(self, path: str, limit: int) -> Sequence[SourceNode]:
        return self._opened().nodes_after(path, limit)

    async def ledgers(self) -> dict[int, LedgerMetadata]:
        """Of each ledger what its node says. Raises CorruptionError."""
        return await self._threads.call(LANE, self._ledgers)

    def _ledgers(self) -> dict[int, LedgerMetadata]:
        found: dict[int, LedgerMetadata] = {}
        path = ""
        while nodes := self._opened().nodes_after(path, WINDOW_NODES):
            for node in nodes:
                ledger_id = ledger_id_of_path(node.path)
                if ledger_id is not None:
                    found[ledger_id] = decode_ledger_metadata(node.value, ledger_id)
            path = nodes[-1].path
        return found

    async def value(self, path: str) -> bytes | None:
        """Of one node; None: it is not there. Raises CorruptionError."""

        def read_value() -> bytes | None:
            node = self._opened().get(path, NO_SESSION)
            return None if node is None else node.value

        return await self._threads.call(LANE, read_value)

    async def clusters(self) -> list[str]:
        """Names of the clusters that it knows."""
        return await self._threads.call(LANE, lambda: _clusters(self._opened()))

    async def close(self) -> None:
        """Let go of the file."""
        tree, self._tree = self._tree, None
        if tree is not None:
            await self._threads.call(LANE, tree.close)

    def _opened(self) -> SqliteTree:
        """On the thread that uses it, as SQLite wants it."""
        if self._tree is None:
            self._tree = SqliteTree(self._path, read_only=True)
        return self._tree


async def contents_of(backup: Restoring, tree: BackupTree) -> BackupContents:
    """What a verified backup has, to be restored to a cluster. Raises CorruptionError, DataDirectoryError."""
    ledgers = await tree.ledgers()
    counted = await tree.value(ID_GENERATOR_PATH)
    free = int(counted) if counted else 0
    manifest = backup.manifest
    return BackupContents(
        manifest.backup_id,
        backup.directory,
        tree,
        ledgers,
        by_ledger(manifest.files),
        max(free, max(ledgers, default=-1) + 1),
        await tree.value(INSTALLATION_PATH),
        partial(entries_of, backup),
    )


def _is_left_out(path: str) -> bool:
    return any(path == one or path.startswith(f"{one}/") for one in _NOT_RESTORED)


def _without_left_out(node: SourceNode) -> SourceNode:
    parent = "" if node.path == "/" else node.path
    return node._replace(children=tuple(name for name in node.children if not _is_left_out(f"{parent}/{name}")))


def _clusters(tree: SqliteTree) -> list[str]:
    return [name for name in tree.children("/admin/clusters") if name != "global"]


def clusters_in(target: str) -> list[str]:
    """Names of the clusters that the metadata of a restored directory know. Raises StorageError."""
    tree = SqliteTree(os.path.join(target, METADATA_FILE), read_only=True)
    try:
        return _clusters(tree)
    finally:
        tree.close()


async def _take_out_ledgers(metadata: SqliteMetadataStore) -> dict[int, LedgerMetadata]:
    """Remove the nodes of the cluster's ledgers; what they said."""
    found: dict[int, LedgerMetadata] = {}
    gone: list[str] = []
    path = ""
    while nodes := await metadata.nodes_after(path, WINDOW_NODES):
        for node in nodes:
            if node.path == LEDGERS_ROOT or node.path.startswith(f"{LEDGERS_ROOT}/"):
                gone.append(node.path)
                ledger_id = ledger_id_of_path(node.path)
                if ledger_id is not None:
                    found[ledger_id] = decode_ledger_metadata(node.value, ledger_id)
        path = nodes[-1].path
    by_depth: dict[int, list[str]] = {}
    for one in gone:
        by_depth.setdefault(one.count("/"), []).append(one)
    for depth in sorted(by_depth, reverse=True):
        paths = by_depth[depth]
        for start in range(0, len(paths), WINDOW_NODES):
            await each(metadata.delete, paths[start : start + WINDOW_NODES])
    return found


async def _restore_ledger(
    backup: Restoring,
    bookkeeper: BookKeeper,
    ledger_id: int,
    metadata: LedgerMetadata,
    segments: Sequence[LedgerSegment],
) -> None:
    handle = await bookkeeper.readmit_ledger(
        ledger_id,
        ensemble_size=1,
        write_quorum=1,
        ack_quorum=1,
        custom_metadata=custom_metadata_of(metadata),
        password=metadata.password,
    )
    for segment in segments:
        async with aclosing(entries_of(backup, segment)) as parts:
            async for payloads in parts:
                await append_all(handle, payloads)
                await backup.pace.copied(sum(map(len, payloads)))
    await handle.close()
    if handle.last_add_confirmed != metadata.last_entry_id:
        raise DataDirectoryError(
            f"ledger {ledger_id} was restored up to entry {handle.last_add_confirmed}, expected "
            f"{metadata.last_entry_id} ({ledger_path(ledger_id)})"
        )
