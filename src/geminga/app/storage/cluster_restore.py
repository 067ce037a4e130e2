"""Looks at the ledgers in a backup of a cluster, and makes a standalone's data directory of it.

Each ledger is written to a bookie of the new directory under its id, closed where it ended; the nodes of the cluster's
bookies and ledgers go, all others are as they were. Nothing of the cluster is asked or needed.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Final

from geminga.app.storage.backup_writing import COPY_BYTES, LANE
from geminga.app.storage.bookies import LocalBookies
from geminga.app.storage.cluster_tree import each
from geminga.app.storage.core.backup_format import FILES_DIRECTORY, BackupFile, BackupManifest
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
from geminga.bookie import BookieConfig
from geminga.bookie.disk_io import read
from geminga.bookkeeper import BookKeeper, LocalBookiePool
from geminga.bookkeeper.installation import META_INSTALLATION
from geminga.bookkeeper.ledger_handle import LedgerHandle
from geminga.bookkeeper.ledger_ids import keep_ids_above
from geminga.metadata import SqliteMetadataStore
from geminga.metadata.copying import WINDOW_NODES
from geminga.metadata.sqlite_tree import SqliteTree
from geminga.model.errors import DataDirectoryError, GemingaError
from geminga.runtime import ReadRequest, Runtime, answer_of
from geminga.wire.bookkeeper.ledger_metadata import META_PLACEMENT, LedgerMetadata, decode_ledger_metadata
from geminga.wire.bookkeeper.ledger_path import LEDGERS_ROOT, ledger_id_of_path, ledger_path

#: Of faults that are told.
NAMED_MAX: Final = 20
#: Not of this cluster any more: where the ledger may lie, and whose it is.
_DROPPED: Final = (META_PLACEMENT, META_INSTALLATION)


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


async def fill(
    runtime: Runtime, directory: str, target: str, manifest: BackupManifest, told: Callable[[BackupFile], None]
) -> None:
    """Fill ``target``, which has the backup's metadata file, with its ledgers. Raises StorageError, OSError."""
    closers: list[Callable[[], Awaitable[None]]] = []
    try:
        metadata = await SqliteMetadataStore.open(runtime, os.path.join(target, METADATA_FILE))
        closers.append(metadata.close)
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
        segments = by_ledger(manifest.files)
        for ledger_id in sorted(kept):
            await _restore_ledger(runtime, bookkeeper, directory, ledger_id, kept[ledger_id], segments, told)
        await keep_ids_above(metadata, max(kept, default=-1))
    finally:
        for close in reversed(closers):
            await close()


def clusters_in(target: str) -> list[str]:
    """Names of the clusters that the metadata of a restored directory know. Raises StorageError."""
    tree = SqliteTree(os.path.join(target, METADATA_FILE), read_only=True)
    try:
        return [name for name in tree.children("/admin/clusters") if name != "global"]
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
    runtime: Runtime,
    bookkeeper: BookKeeper,
    directory: str,
    ledger_id: int,
    metadata: LedgerMetadata,
    segments: dict[int, list[LedgerSegment]],
    told: Callable[[BackupFile], None],
) -> None:
    custom = {key: value for key, value in metadata.custom_metadata.items() if key not in _DROPPED}
    handle = await bookkeeper.readmit_ledger(
        ledger_id, ensemble_size=1, write_quorum=1, ack_quorum=1, custom_metadata=custom
    )
    for segment in segments.get(ledger_id, []):
        told(segment.file)
        async with aclosing(payloads_of(runtime, directory, segment)) as parts:
            async for payloads in parts:
                await answer_of(partial(_append, handle, payloads))
    await handle.close()
    if handle.last_add_confirmed != metadata.last_entry_id:
        raise DataDirectoryError(
            f"ledger {ledger_id} was restored up to entry {handle.last_add_confirmed}, expected "
            f"{metadata.last_entry_id} ({ledger_path(ledger_id)})"
        )


def _append(handle: LedgerHandle, payloads: Sequence[bytes], done: Callable[[int | GemingaError], None]) -> None:
    handle.append(payloads, lambda first, count, error: done(first + count if error is None else error))
