"""Makes a backup of a cluster while it serves, from its metadata store and its bookies: ``docs/formats/backup.md``.

Nothing there is fenced, sealed or changed, and brokers need not know. For each topic: its cursors' nodes -> the ledgers
that they name -> the node of its managed ledger -> the ledgers that this names. So no cursor is ahead of the
messages. Transactions are of several topics: that none was begun or ended meanwhile is looked at in the logs of
their coordinators, and where one was, all is brought up to date once more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

from geminga.app.storage.backup_writing import COPY_BYTES, LANE, Copying, ManifestWriter
from geminga.app.storage.cluster_tree import (
    TopicCursors,
    TreeCopy,
    attached_of,
    compacted_in,
    each,
    ledgers_of,
    offloaded_of,
    topic_paths,
    transaction_logs,
)
from geminga.app.storage.core.backup_format import CLUSTER_ORIGIN, FILES_DIRECTORY, WORK_FILE, BackupFile, stored_name
from geminga.app.storage.core.ledger_segments import (
    LedgerSegment,
    by_ledger,
    encode_header,
    encode_records,
    segment_name,
    usable,
)
from geminga.app.storage.data_directory import DIRECTORY_FORMAT
from geminga.bookie.disk_io import append, unlink_if_there
from geminga.bookkeeper import BookKeeper
from geminga.bookkeeper.ledger_handle import LedgerHandle
from geminga.bookkeeper.ledger_ids import ID_GENERATOR_PATH, next_ledger_id
from geminga.metadata import SqliteMetadataStore, cas
from geminga.metadata.ports import MetadataStore
from geminga.metadata.sqlite_file import SNAPSHOT_SUFFIX
from geminga.model.crc32c import crc32c
from geminga.model.errors import CorruptionError, DataDirectoryError, NoSuchLedgerError, StorageError
from geminga.runtime import Runtime, answer_of, get_logger
from geminga.version import __version__
from geminga.wire.bookkeeper.bookie_registration import INSTANCE_ID_PATH
from geminga.wire.bookkeeper.ledger_metadata import LedgerMetadata, encode_ledger_metadata
from geminga.wire.bookkeeper.ledger_path import ledger_path

#: Topics that are copied at once: each holds no more than :data:`COPY_BYTES`, or one entry, in memory.
TOPICS_AT_ONCE: Final = 16
#: Times that a topic is read again because ledgers went while it was copied.
TOPIC_ATTEMPTS: Final = 8
#: Times that all is brought up to date because transactions were begun or ended meanwhile.
ATTEMPTS: Final = 4
#: Of entries that are asked for at once.
_READ_ENTRIES: Final = 1000
#: A ledger that gives nothing for so long can not be read now.
_READ_S: Final = 60.0

_log = get_logger(__name__)


class ClusterFacts:
    """What the manifest says of a cluster."""

    directory_format = DIRECTORY_FORMAT
    program = f"geminga {__version__}"

    def __init__(self, cluster_id: str) -> None:
        self.origin = f"{CLUSTER_ORIGIN}{cluster_id}"
        self.bookies: dict[str, str] = {}

    @classmethod
    async def of(cls, metadata: MetadataStore) -> ClusterFacts:
        """Raises DataDirectoryError where there is no cluster, MetadataError."""
        node = await metadata.get(INSTANCE_ID_PATH)
        text = "" if node is None else node.value.decode("ascii", "replace").strip()
        if not text:
            raise DataDirectoryError(
                f"the metadata store has no {INSTANCE_ID_PATH}: expected that of a cluster, in which bookies have "
                "started (geminga initialize-cluster-metadata)"
            )
        return cls(text)


class ClusterConnection(NamedTuple):
    """How a cluster is reached."""

    metadata: MetadataStore
    bookkeeper: BookKeeper


class ClusterBackup(ManifestWriter):
    """See the module."""

    def __init__(
        self, runtime: Runtime, directory: str, facts: ClusterFacts, cluster: ClusterConnection, copying: Copying
    ) -> None:
        super().__init__(runtime.disk, directory, facts, copying)
        self._runtime = runtime
        self._metadata = cluster.metadata
        self._bookkeeper = cluster.bookkeeper
        self._work = f"{directory}/{FILES_DIRECTORY}/{WORK_FILE}"
        #: Segments of this attempt, and of what was there before it.
        self._ledgers: dict[int, list[LedgerSegment]] = {}
        self._kept: dict[int, list[LedgerSegment]] = {}
        #: Those that something in the copy names: of a topic that is deleted, or read again, there may be others.
        self._named: set[int] = set()
        self._locks: dict[int, asyncio.Lock] = {}
        #: Ledgers that topics name and that are not in the cluster.
        self.lost_ledgers: set[int] = set()
        #: Topics that were copied.
        self.topics = 0

    async def _collect(self) -> tuple[int, list[BackupFile]]:
        before = by_ledger(self._have.values())
        for attempt in range(ATTEMPTS):
            known = before if attempt == 0 else self._ledgers
            made = await self._attempt(known)
            if made is not None:
                return made
            _log.warning("transactions were begun or ended while the backup was made: it is brought up to date")
        raise DataDirectoryError(
            f"transactions were begun or ended in each of {ATTEMPTS} attempts, so that none has all topics as of one "
            "moment: stop what uses transactions, or the brokers (not the bookies), and make the backup then"
        )

    async def _attempt(self, known: dict[int, list[LedgerSegment]]) -> tuple[int, list[BackupFile]] | None:
        self._ledgers = {}
        self._kept = known
        self._locks.clear()
        self._named.clear()
        self.lost_ledgers.clear()
        await self._metadata.sync()
        as_of_ms = self._runtime.clock.wall_ms()
        logs = await self._log_ends()
        await self._forget_work()
        target = await SqliteMetadataStore.open(self._runtime, self._work)
        try:
            paths = await topic_paths(self._metadata)
            self.topics = len(paths)
            for start in range(0, len(paths), TOPICS_AT_ONCE):
                await each(partial(self._topic, target), paths[start : start + TOPICS_AT_ONCE])
            tree = TreeCopy(self._metadata, target)
            await tree.run()
            await self._copy(target, sorted(tree.schema_ledgers))
            self._named.update(tree.schema_ledgers)
            for ledger_id in sorted(self._ledgers.keys() - self._named):
                await self._forget(target, ledger_id)
            # All ids that the copy names are below it, also those of ledgers that were lost.
            free = await next_ledger_id(self._metadata)
            await target.put(ID_GENERATOR_PATH, b"%d" % free, expected_version=None)
            if await self._log_ends() != logs:
                return None
            snapshot = target.snapshot()
            try:
                await snapshot.take()
                metadata = await self._put_metadata(snapshot.write_to)
            finally:
                await snapshot.close()
        finally:
            await target.close()
            await self._forget_work()
        return as_of_ms, [metadata, *(one.file for segments in self._ledgers.values() for one in segments)]

    async def _forget_work(self) -> None:
        for suffix in ("", "-wal", "-shm", "-journal", SNAPSHOT_SUFFIX):
            await unlink_if_there(self._disk, f"{self._work}{suffix}")

    async def _log_ends(self) -> dict[str, tuple[int, int]]:
        """Where the log of each coordinator of transactions ends now."""
        ends: dict[str, tuple[int, int]] = {}
        for path, ledger_id in (await transaction_logs(self._metadata)).items():
            try:
                handle = await self._bookkeeper.copied_ledger(ledger_id) if ledger_id >= 0 else None
            except NoSuchLedgerError:
                handle = None  # it went on in another one meanwhile
            ends[path] = ledger_id, -1 if handle is None else handle.last_add_confirmed
        return ends

    # ---- topics

    async def _topic(self, target: MetadataStore, path: str) -> None:
        before: tuple[TopicCursors, bytes] | None = None
        for _ in range(TOPIC_ATTEMPTS):
            cursors = await self._cursors(path)
            lost = await self._copy(target, cursors.ledger_ids())
            compacted = await self._compacted(cursors.of_compaction)
            lost += await self._copy(target, compacted)
            node = await self._metadata.get(path)
            if node is None:
                return  # it was deleted
            if node.value:
                own = [record.ledger_id for record in ledgers_of(node.value)]
                lost += await self._copy(target, [*own, *attached_of(node.value)])
                await self._copy(target, [record.ledger_id for record in offloaded_of(node.value)])
            now = cursors, node.value
            if not lost or now == before:
                break
            # Ledgers go when others have taken their place, or when nobody needs them: the nodes say it by now.
            before = now
        else:
            raise StorageError(f"{path} changed {TOPIC_ATTEMPTS} times while it was copied: ledgers {lost} went")
        if lost:
            _log.error("%s names ledgers that are not in the cluster: %s", path, lost)
            self.lost_ledgers.update(lost)
        self._named.update(cursors.ledger_ids(), compacted)
        if node.value:
            self._named.update(attached_of(node.value))
            self._named.update(record.ledger_id for record in (*ledgers_of(node.value), *offloaded_of(node.value)))
        await target.put(path, node.value, expected_version=None)
        for name, value in cursors.values.items():
            await target.put(f"{path}/{name}", value, expected_version=None)

    async def _compacted(self, ledger_id: int) -> Sequence[int]:
        """What the cursor of compaction with this ledger names, as far as that was copied: its node says it late, and
        of a broker of another make nothing else does."""
        segments = self._ledgers.get(ledger_id)
        if not segments:
            return ()
        try:
            handle = await self._bookkeeper.copied_ledger(ledger_id)
            for entry_id in range(segments[-1].last_entry_id, -1, -1):
                try:
                    found = compacted_in((await handle.read_entries(entry_id, entry_id))[0])
                except CorruptionError:
                    continue  # as whoever brings the cursor back
                if found is not None:
                    return found
        except StorageError:
            if await self._is_there(ledger_id):
                raise
            # Another one took its place: it is found to be lost, and looked for again.
            return (ledger_id,)
        return ()

    async def _cursors(self, path: str) -> TopicCursors:
        names = await self._metadata.children(path)
        values = {name: await self._metadata.get(f"{path}/{name}") for name in names}
        return TopicCursors({name: node.value for name, node in values.items() if node is not None})

    # ---- ledgers

    async def _copy(self, target: MetadataStore, ledger_ids: Iterable[int]) -> list[int]:
        """Copy ledgers as they are now; those that are not there."""
        lost: list[int] = []
        for ledger_id in ledger_ids:
            # Topics may share one, as a shadow topic does: whoever comes later gets what was added since.
            async with self._locks.setdefault(ledger_id, asyncio.Lock()):
                try:
                    handle = await self._bookkeeper.copied_ledger(ledger_id)
                    await self._ledger(handle)
                except StorageError:
                    if await self._is_there(ledger_id):
                        raise
                    if ledger_id in self._ledgers:
                        await self._forget(target, ledger_id)
                    lost.append(ledger_id)
                    continue
                value = encode_ledger_metadata(_sealed(handle))
                await target.put(ledger_path(ledger_id), value, expected_version=None)
        return lost

    async def _forget(self, target: MetadataStore, ledger_id: int) -> None:
        del self._ledgers[ledger_id]
        await cas.remove(target, ledger_path(ledger_id))

    async def _is_there(self, ledger_id: int) -> bool:
        """Whether it was not deleted meanwhile, whatever its bookies say."""
        try:
            await self._bookkeeper.read_ledger(ledger_id)
        except NoSuchLedgerError:
            return False
        return True

    async def _ledger(self, handle: LedgerHandle) -> None:
        ledger_id, last = handle.ledger_id, handle.last_add_confirmed
        known = self._ledgers.get(ledger_id) or self._kept.get(ledger_id, [])
        segments: list[LedgerSegment] = []
        for segment in usable(known, last):
            if not await self._has(segment.file):
                break
            segments.append(segment)
            if segment.file.stored not in self._counted:
                self._counted.add(segment.file.stored)
                self._progress.files_kept += 1
                self._progress.bytes_kept += segment.file.size_bytes
        first = segments[-1].last_entry_id + 1 if segments else 0
        if first <= last:
            name = segment_name(ledger_id, first, last)
            stored = stored_name(self._serial, name)
            size, crc = await self._write_segment(handle, first, f"{self._files}/{stored}")
            file = self._stored(BackupFile(name, stored, size, crc))
            segments.append(LedgerSegment(ledger_id, first, last, file))
        self._ledgers[ledger_id] = segments

    async def _write_segment(self, handle: LedgerHandle, first: int, path: str) -> tuple[int, int]:
        """Entries from ``first`` to the end; bytes, and their checksum."""
        last = handle.last_add_confirmed
        header = encode_header(handle.ledger_id, first)
        await unlink_if_there(self._disk, path)
        file = await self._disk.open_file(path, lane=LANE, create=True)
        try:
            await append(self._disk, file, 0, (header,), sync=False)
            offset, crc = len(header), crc32c(header)
            while first <= last:
                until = min(last, first + _READ_ENTRIES - 1)
                try:
                    async with asyncio.timeout(_READ_S):
                        payloads = await answer_of(partial(handle.read, first, until, bytes_max=COPY_BYTES))
                except TimeoutError as error:
                    raise StorageError(
                        f"ledger {handle.ledger_id}: entry {first} could not be read in {_READ_S:.0f} s"
                    ) from error
                buffers = encode_records(payloads)
                await append(self._disk, file, offset, buffers, sync=False)
                for buffer in buffers:
                    crc = crc32c(buffer, crc)
                size = sum(map(len, buffers))
                offset += size
                first += len(payloads)
                if self._pace is not None:
                    await self._pace.copied(size)
            await self._disk.sync_file(file)
        finally:
            await self._disk.close_file(file)
        return offset, crc


def _sealed(handle: LedgerHandle) -> LedgerMetadata:
    """Its metadata as those of a ledger that ends where the copy ends; its length is made anew where it is restored."""
    metadata = handle.metadata
    return metadata.closed(last_entry_id=handle.last_add_confirmed, length_bytes=metadata.length_bytes)
