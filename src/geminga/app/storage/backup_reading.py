"""Looks at a backup, and makes a data directory of it: ``docs/formats/backup.md``."""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from geminga.app.storage.backup_writing import LANE, are_nested, copy_file, read_manifest
from geminga.app.storage.cookies import COOKIES_PATH
from geminga.app.storage.core.backup_format import FILES_DIRECTORY, MANIFEST_FILE, BackupFile, BackupManifest
from geminga.app.storage.core.bookie_set import BOOKIES_MAX, bookie_slot
from geminga.app.storage.data_directory import DIRECTORY_FORMAT, FORMAT_FILE, METADATA_FILE
from geminga.app.storage.pace import Pace
from geminga.app.storage.restoring import Restoring, restore_files
from geminga.bookie.core import entry_log_format, journal_format
from geminga.bookie.core.checkpoint_format import decode_checkpoint, decode_cookie
from geminga.metadata.sqlite_tree import SqliteTree
from geminga.model.errors import DataDirectoryError, StorageError
from geminga.runtime import Runtime
from geminga.version import __version__

#: Told at most.
FAULTS_MAX: Final = 20
#: Of logs and journals.
_HEADER_BYTES: Final = 64


class Verified(NamedTuple):
    """What is wrong with a backup."""

    manifest: BackupManifest
    #: Sentences; none: nothing.
    faults: list[str]


async def manifest_of(runtime: Runtime, directory: str) -> BackupManifest:
    """Raises DataDirectoryError where there is no backup, or one that this program does not know, OSError."""
    manifest = await read_manifest(runtime.disk, directory)
    if manifest is None:
        raise DataDirectoryError(f"{directory} holds no backup: {MANIFEST_FILE} is not there")
    if manifest.directory_format > DIRECTORY_FORMAT:
        raise DataDirectoryError(
            f"the backup in {directory} is of a data directory of format {manifest.directory_format}, made by "
            f"{manifest.program}; this program reads formats up to {DIRECTORY_FORMAT}: use the newer program"
        )
    return manifest


async def verify(runtime: Runtime, directory: str, told: Callable[[BackupFile], None] = lambda _: None) -> Verified:
    """Read every file, compare checksums, and open what has a format. Raises DataDirectoryError, OSError."""
    manifest = await manifest_of(runtime, directory)
    faults: list[str] = []
    for file in manifest.files:
        told(file)
        try:
            await check_file(runtime, f"{directory}/{FILES_DIRECTORY}/{file.stored}", file)
        except DataDirectoryError as error:
            faults.append(str(error))
            if len(faults) >= FAULTS_MAX:
                return Verified(manifest, faults)
    if not faults:
        faults += await _check_contents(runtime, directory, manifest)
    if faults and (await manifest_of(runtime, directory)).backup_id != manifest.backup_id:
        return await verify(runtime, directory, told)  # another one was made meanwhile, and the files of this one went
    return Verified(manifest, faults)


async def check_file(runtime: Runtime, path: str, file: BackupFile) -> None:
    """Its size and its checksum. Raises DataDirectoryError, which names it, OSError."""
    try:
        size = await runtime.disk.file_size(path)
    except FileNotFoundError as error:
        raise DataDirectoryError(f"{path} ({file.name}) is missing") from error
    if size != file.size_bytes:
        raise DataDirectoryError(f"{path} ({file.name}) has {size} bytes, expected {file.size_bytes}")
    crc = await copy_file(runtime.disk, path, "", size)
    if crc != file.crc32c:
        raise DataDirectoryError(f"{path} ({file.name}) is damaged: CRC32C {crc:08x}, expected {file.crc32c:08x}")


async def _check_contents(runtime: Runtime, directory: str, manifest: BackupManifest) -> list[str]:
    by_name = {file.name: f"{directory}/{FILES_DIRECTORY}/{file.stored}" for file in manifest.files}
    faults = []
    for name, instance in manifest.bookies.items():
        faults += await _check_bookie(runtime, by_name, name, bytes.fromhex(instance))
    if METADATA_FILE not in by_name:
        return [*faults, f"{METADATA_FILE} is not in the backup"]
    faults += await runtime.threads.call(LANE, lambda: _metadata_faults(by_name[METADATA_FILE], manifest))
    if manifest.is_of_cluster and not faults:
        from geminga.app.storage.cluster_restore import segment_faults

        faults += await segment_faults(runtime, directory, manifest)
    return faults


async def _check_bookie(runtime: Runtime, by_name: dict[str, str], name: str, instance: bytes) -> list[str]:
    """Whether all that the checkpoint names is there, and whether each file is this bookie's."""
    faults = []
    wanted = [f"{name}/journal/cookie", f"{name}/ledgers/cookie", f"{name}/ledgers/checkpoint"]
    missing = [each for each in wanted if each not in by_name]
    if missing:
        return [f"{each} is not in the backup" for each in missing]
    for each in wanted[:2]:
        cookie = decode_cookie(await runtime.disk.read_file(by_name[each]))
        if cookie is None or cookie.instance_id != instance:
            faults.append(f"{by_name[each]} ({each}) is not of bookie {instance.hex()}")
    checkpoint = decode_checkpoint(await runtime.disk.read_file(by_name[wanted[2]]), instance)
    if checkpoint is None:
        return [*faults, f"{by_name[wanted[2]]} ({wanted[2]}) is no checkpoint of bookie {instance.hex()}"]
    needed = [f"{name}/ledgers/{log_id:010d}.log" for log_id, _ in checkpoint.logs]
    needed += [f"{name}/ledgers/{run_id:010d}.index" for run_id in checkpoint.run_ids]
    if checkpoint.mark_journal_id:
        needed.append(f"{name}/journal/{checkpoint.mark_journal_id:010d}.journal")
    faults += [f"{each} is not in the backup, and the checkpoint names it" for each in needed if each not in by_name]
    for each, path in by_name.items():
        if not (each.startswith(f"{name}/") and each.endswith((".log", ".journal"))):
            continue
        decode = (entry_log_format if each.endswith(".log") else journal_format).decode_file_header
        header = decode(await runtime.threads.call(LANE, partial(_head, path)))
        if header is None or header[2] != instance:
            faults.append(f"{path} ({each}) has no header of bookie {instance.hex()}")
    return faults


def _head(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(_HEADER_BYTES)


def _metadata_faults(path: str, manifest: BackupManifest) -> list[str]:
    try:
        tree = SqliteTree(path, read_only=True)
        try:
            tree.verify()
            known = []
            slots = {slot.name: slot.bookie_id for slot in map(bookie_slot, range(1, BOOKIES_MAX + 1))}
            for name, instance in manifest.bookies.items():
                node = tree.get(f"{COOKIES_PATH}/{slots.get(name, name)}", 0)
                if node is None or f'instanceId: "{instance}"'.encode() not in node.value:
                    known.append(f"{path} ({METADATA_FILE}) does not know bookie {instance}, which is in the backup")
            if manifest.is_of_cluster:
                from geminga.app.storage.cluster_restore import ledger_faults

                known += ledger_faults(tree, manifest)
            return known
        finally:
            tree.close()
    except (StorageError, sqlite3.Error) as error:
        return [str(error)]


async def _check_empty(runtime: Runtime, target: str) -> None:
    expected = "expected a new directory, or one that is empty"
    try:
        found = [name for name in await runtime.disk.list_dir(target) if name != "lost+found"]
    except FileNotFoundError:
        return
    except NotADirectoryError as error:
        raise DataDirectoryError(f"{target} is no directory: {expected}") from error
    if found:
        raise DataDirectoryError(f"{target} is not empty (found {', '.join(found[:3])}): {expected}")


async def verified_manifest(runtime: Runtime, directory: str) -> BackupManifest:
    """Of a backup in which nothing is wrong. Raises DataDirectoryError, OSError."""
    verified = await verify(runtime, directory)
    if verified.faults:
        raise DataDirectoryError(f"the backup in {directory} is damaged: {verified.faults[0]}. Nothing was restored")
    return verified.manifest


async def restore(
    runtime: Runtime,
    directory: str,
    target: str,
    told: Callable[[BackupFile], None] = lambda _: None,
    *,
    rate_limit: int = 0,
) -> BackupManifest:
    """Make ``target`` a data directory of what the backup has. Raises DataDirectoryError, OSError.

    ``rate_limit``: bytes a second that are written there; 0: no limit.
    ``geminga.json`` is written last: a directory that was not finished is one that no server starts on.
    """
    manifest = await manifest_of(runtime, directory)
    if are_nested(directory, target):
        raise DataDirectoryError(
            f"the backup {directory} and {target} are one within the other: name another directory"
        )
    await _check_empty(runtime, target)
    manifest = await verified_manifest(runtime, directory)
    await runtime.disk.make_dirs(target)
    try:
        await runtime.disk.lock_dir(target)
    except BlockingIOError as error:
        raise DataDirectoryError(f"{target} is in use by another process. Nothing was restored") from error
    # Once more: verifying takes its time, in which a server may have started there and stored what it acknowledged.
    await _check_empty(runtime, target)
    backup = Restoring(runtime, directory, manifest, Pace(runtime.clock, rate_limit), told)
    if manifest.is_of_cluster:
        from geminga.app.storage.cluster_restore import fill

        await restore_files(backup, target, [file for file in manifest.files if file.name == METADATA_FILE])
        await fill(backup, target)
        await runtime.disk.sync_dir(target)
    else:
        await restore_files(backup, target, manifest.files)
    document = {
        "format": manifest.directory_format,
        "createdBy": f"geminga {__version__}",
        "restored": {"from": manifest.backup_id, "id": secrets.token_hex(8)},
    }
    await runtime.disk.write_file(f"{target}/{FORMAT_FILE}", json.dumps(document).encode() + b"\n")
    return manifest
