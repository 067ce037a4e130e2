"""A backup that is brought back: where it is, how fast, and its files copied as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from geminga.app.storage.backup_writing import copy_file
from geminga.app.storage.core.backup_format import FILES_DIRECTORY, BackupFile, BackupManifest
from geminga.app.storage.pace import Pace
from geminga.model.errors import DataDirectoryError
from geminga.runtime import Runtime


class Restoring(NamedTuple):
    """What is brought back."""

    runtime: Runtime
    directory: str
    manifest: BackupManifest
    pace: Pace
    #: Called with each file when its turn comes.
    told: Callable[[BackupFile], None]


async def restore_files(backup: Restoring, target: str, files: Sequence[BackupFile]) -> None:
    """Copy them to ``target``, synced. Raises DataDirectoryError where one is damaged, OSError."""
    disk = backup.runtime.disk
    folders = {f"{target}/{file.name}".rpartition("/")[0] for file in files}
    for folder in sorted(folders):
        await disk.make_dirs(folder)
    for file in files:
        backup.told(file)
        path = f"{backup.directory}/{FILES_DIRECTORY}/{file.stored}"
        crc = await copy_file(disk, path, f"{target}/{file.name}", file.size_bytes, backup.pace)
        if crc != file.crc32c:
            raise DataDirectoryError(f"{path} ({file.name}) is damaged: CRC32C {crc:08x}, expected {file.crc32c:08x}")
    for folder in sorted(folders):
        await disk.sync_dir(folder)
