"""Makes a backup in a directory, beside the one that is there: ``docs/formats/backup.md``.

Order: leftovers of an attempt before are removed -> new files, each synced -> their directory synced -> the manifest,
replaced atomically -> files that it does not name are removed. Whatever ends in between leaves the manifest that was
there, and all files that it names.
"""

from __future__ import annotations

import os.path
import secrets
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from geminga.app.storage.core.backup_format import (
    FILES_DIRECTORY,
    MANIFEST_FILE,
    BackupFile,
    BackupManifest,
    decode_manifest,
    encode_manifest,
    is_stored_name,
    stored_name,
)
from geminga.app.storage.data_directory import METADATA_FILE
from geminga.app.storage.pace import Pace
from geminga.bookie.cut import CutFile
from geminga.bookie.disk_io import append, read, unlink_if_there
from geminga.model.crc32c import crc32c
from geminga.model.errors import DataDirectoryError
from geminga.runtime import ReadRequest, crash_point
from geminga.runtime.ports import Disk

#: Read and written at a time, bytes.
COPY_BYTES: Final = 1024 * 1024
LANE: Final = "backup"
#: Of the file by which a server is shown that who asks may write in the directory.
REQUEST_PREFIX: Final = "request-"

LEFTOVERS_REMOVED: Final = "backup.leftovers_removed"
FILE_COPIED: Final = "backup.file_copied"
FILES_SYNCED: Final = "backup.files_synced"
MANIFEST_WRITTEN: Final = "backup.manifest_written"
FILE_REMOVED: Final = "backup.file_removed"
#: Crash points, in order.
POINTS: Final = (LEFTOVERS_REMOVED, FILE_COPIED, FILES_SYNCED, MANIFEST_WRITTEN, FILE_REMOVED)


class Cut(NamedTuple):
    """A data directory as of one moment."""

    as_of_ms: int
    files: Sequence[CutFile]
    #: Whole files, by name.
    values: Mapping[str, bytes]
    #: Writes the metadata file to the path it is given; called once. The moment itself is let go of by now.
    write_metadata: Callable[[str], Awaitable[None]]


class BackupFacts(Protocol):
    """What a manifest says of what is backed up."""

    directory_format: int
    origin: str
    bookies: dict[str, str]
    program: str


class BackupSource(BackupFacts, Protocol):
    """What is backed up; its files stay where they are as long as this is used."""

    def preview(self) -> Sequence[CutFile]:
        """Files of now, most of which are those of the cut."""
        ...

    async def cut(self) -> Cut:
        """The state of a moment within this call. Raises StorageError, OSError."""
        ...


class Progress:
    """What a backup has done so far."""

    __slots__ = ("bytes_copied", "bytes_kept", "files_copied", "files_kept", "is_paced", "steps")

    def __init__(self) -> None:
        self.files_copied = self.bytes_copied = self.files_kept = self.bytes_kept = 0
        #: Blocks and files that were written: who makes none while it is not paced hangs.
        self.steps = 0
        self.is_paced = False

    def document(self) -> dict[str, int]:
        """As JSON tells it."""
        return {
            "filesCopied": self.files_copied,
            "bytesCopied": self.bytes_copied,
            "filesKept": self.files_kept,
            "bytesKept": self.bytes_kept,
        }


class Copying(NamedTuple):
    """How a backup is copied."""

    progress: Progress
    #: Also what the backup before has.
    whole: bool = False
    #: None: as fast as it can.
    pace: Pace | None = None


async def read_manifest(disk: Disk, directory: str) -> BackupManifest | None:
    """Of the backup that is there; None: there is none. Raises DataDirectoryError, OSError."""
    path = f"{directory}/{MANIFEST_FILE}"
    try:
        return decode_manifest(await disk.read_file(path), path)
    except FileNotFoundError:
        return None


async def check_target(disk: Disk, directory: str) -> BackupManifest | None:
    """The backup there, if any. Raises DataDirectoryError for a directory that holds something else, OSError."""
    own = (MANIFEST_FILE, FILES_DIRECTORY, f"{MANIFEST_FILE}.tmp", "lost+found")
    foreign = [
        name for name in await disk.list_dir(directory) if name not in own and not name.startswith(REQUEST_PREFIX)
    ]
    # Those that no manifest names are removed: they must be what a backup that was cut off left.
    foreign += [f"{FILES_DIRECTORY}/{name}" for name in await _stored_in(disk, directory) if not is_stored_name(name)]
    if foreign:
        raise DataDirectoryError(
            f"{directory} holds something else than a backup (found {', '.join(foreign[:3])}): name a new directory, "
            "an empty one, or one that holds a backup"
        )
    return await read_manifest(disk, directory)


def are_nested(one: str, other: str) -> bool:
    """Whether a directory is another one, or in it, whatever links lead there."""
    places = os.path.realpath(one), os.path.realpath(other)
    return os.path.commonpath(places) in places


async def _stored_in(disk: Disk, directory: str) -> list[str]:
    try:
        return await disk.list_dir(f"{directory}/{FILES_DIRECTORY}")
    except FileNotFoundError:
        return []


class ManifestWriter(ABC):
    """One backup, whatever of."""

    def __init__(self, disk: Disk, directory: str, facts: BackupFacts, copying: Copying) -> None:
        self._progress, self._whole, self._pace = copying
        self._disk = disk
        self._directory = directory
        self._files = f"{directory}/{FILES_DIRECTORY}"
        self._facts = facts
        self._serial = 1
        #: Final files that are in the directory, by name and size.
        self._have: dict[tuple[str, int], BackupFile] = {}
        #: Stored names that the progress has.
        self._counted: set[str] = set()

    async def write(self) -> BackupManifest:
        """Make it. Raises DataDirectoryError, StorageError, OSError; the backup before is then as it was."""
        facts = self._facts
        # Before anything is made there: what is refused is left as it was.
        before = await check_target(self._disk, self._directory)
        await self._disk.make_dirs(self._files)
        if before is not None:
            self._take_over(before)
        await self._remove_but(before)
        crash_point(LEFTOVERS_REMOVED)
        as_of_ms, stored = await self._collect()
        await self._disk.sync_dir(self._files)
        crash_point(FILES_SYNCED)
        manifest = BackupManifest(
            backup_id=secrets.token_hex(8),
            serial=self._serial,
            as_of_ms=as_of_ms,
            program=facts.program,
            directory_format=facts.directory_format,
            origin=facts.origin,
            bookies=facts.bookies,
            files=tuple(sorted(stored)),
        )
        await self._disk.write_file(f"{self._directory}/{MANIFEST_FILE}", encode_manifest(manifest))
        crash_point(MANIFEST_WRITTEN)
        await self._remove_but(manifest)
        return manifest

    @abstractmethod
    async def _collect(self) -> tuple[int, list[BackupFile]]:
        """Copy what is to be in it: the moment, and all files. Raises as :meth:`write`."""

    def _take_over(self, before: BackupManifest) -> None:
        if not before.is_of(self._facts.origin, self._facts.bookies):
            raise DataDirectoryError(
                f"{self._directory} holds a backup of another server (bookies {', '.join(before.bookies.values())}"
                f"{', restored ' + before.origin if before.origin else ''}): name another directory"
            )
        self._serial = before.serial + 1
        if not self._whole:
            self._have = {(file.name, file.size_bytes): file for file in before.files}

    async def _remove_but(self, manifest: BackupManifest | None) -> None:
        """Unlink all files that no manifest names."""
        named = {file.stored for file in manifest.files} if manifest is not None else set()
        gone = [name for name in await self._disk.list_dir(self._files) if name not in named]
        for name in gone:
            await unlink_if_there(self._disk, f"{self._files}/{name}")
            self._progress.steps += 1
            crash_point(FILE_REMOVED)
        if gone:
            await self._disk.sync_dir(self._files)

    async def _has(self, file: BackupFile) -> bool:
        try:
            return await self._disk.file_size(f"{self._files}/{file.stored}") == file.size_bytes
        except FileNotFoundError:
            return False

    def _stored(self, file: BackupFile) -> BackupFile:
        self._have[file.name, file.size_bytes] = file
        self._counted.add(file.stored)
        self._progress.steps += 1
        self._progress.files_copied += 1
        self._progress.bytes_copied += file.size_bytes
        crash_point(FILE_COPIED)
        return file

    async def _put(self, name: str, value: bytes) -> BackupFile:
        stored = stored_name(self._serial, name)
        await self._disk.write_file(f"{self._files}/{stored}", value)
        return self._stored(BackupFile(name, stored, len(value), crc32c(value)))

    async def _put_metadata(self, write: Callable[[str], Awaitable[None]]) -> BackupFile:
        stored = stored_name(self._serial, METADATA_FILE)
        path = f"{self._files}/{stored}"
        await write(path)
        size = await self._disk.file_size(path)
        crc = await copy_file(self._disk, path, "", size, progress=self._progress)
        return self._stored(BackupFile(METADATA_FILE, stored, size, crc))


class BackupWriter(ManifestWriter):
    """Of a standalone's data directory."""

    def __init__(self, disk: Disk, directory: str, source: BackupSource, copying: Copying) -> None:
        super().__init__(disk, directory, source, copying)
        self._source = source

    async def _collect(self) -> tuple[int, list[BackupFile]]:
        """Copy what is to be in it: the moment, and all files. Raises as :meth:`write`."""
        source = self._source
        for file in source.preview():
            if file.is_final:
                await self._store(file)
        cut = await source.cut()
        # First, and without the pace: as long as it is not done a copy of it is kept beside the store.
        stored = [await self._put_metadata(cut.write_metadata)]
        stored += [await self._store(file) for file in cut.files]
        stored += [await self._put(name, value) for name, value in cut.values.items()]
        return cut.as_of_ms, stored

    async def _store(self, file: CutFile) -> BackupFile:
        size = file.size_bytes
        if size is None:
            size = await self._disk.file_size(file.path)
        have = self._have.get((file.name, size)) if file.is_final else None
        if have is not None and await self._has(have):
            if have.stored not in self._counted:
                self._counted.add(have.stored)
                self._progress.files_kept += 1
                self._progress.bytes_kept += size
            return have
        stored = stored_name(self._serial, f"{file.name}-{size}")
        target = f"{self._files}/{stored}"
        crc = await copy_file(self._disk, file.path, target, size, self._pace, progress=self._progress)
        return self._stored(BackupFile(file.name, stored, size, crc))


async def copy_file(
    disk: Disk,
    source: str,
    target: str,
    size_bytes: int,
    pace: Pace | None = None,
    *,
    progress: Progress | None = None,
) -> int:
    """Copy the first ``size_bytes`` and sync them; their CRC32C. ``target`` empty: sync the source, and no copy.

    ``progress`` has its steps counted. Raises OSError, DataDirectoryError where the file is shorter.
    """
    file = await disk.open_file(source, lane=LANE)
    try:
        copy = await disk.open_file(target, lane=LANE, create=True) if target else None
        try:
            crc = offset = 0
            while offset < size_bytes:
                request = ReadRequest(file, offset, min(COPY_BYTES, size_bytes - offset))
                (data,) = await read(disk, [request], lane=LANE)
                if isinstance(data, OSError):
                    raise data
                if len(data) < request.size_bytes:
                    raise DataDirectoryError(f"{source} has {offset + len(data)} bytes, expected {size_bytes}")
                crc = crc32c(data, crc)
                if copy is not None:
                    await append(disk, copy, offset, (data,), sync=False)
                offset += len(data)
                if progress is not None:
                    progress.steps += 1
                    progress.is_paced = pace is not None
                if pace is not None:
                    await pace.copied(len(data))
                if progress is not None:
                    progress.is_paced = False
            await disk.sync_file(copy if copy is not None else file)
        finally:
            if copy is not None:
                await disk.close_file(copy)
    finally:
        await disk.close_file(file)
    return crc
