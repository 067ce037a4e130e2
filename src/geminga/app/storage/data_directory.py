"""The data directory of a standalone: whose it is, which format it has, who uses it now.

::

    DIR/geminga.json      {"format":1,"createdBy":"geminga 0.1.0"}: written before anything else, and when it is moved
    DIR/process.json      {"pid":4711}: the process that holds the directory, or held it last
    DIR/metadata.sqlite   the metadata store
    DIR/bookie/           journal, entry logs, index of the first bookie in the process; bookie-2/, ... of others

``format`` numbers the layout and every format below it; an older program refuses a newer directory. The directory
itself is locked for as long as the process lives, so a crash leaves no stale lock. See docs/formats/data-directory.md.
"""

from __future__ import annotations

import json
import os.path
from typing import Final, NamedTuple

from geminga.bookie.disk_io import is_disk_full, unlink_if_there
from geminga.model.errors import DataDirectoryError
from geminga.runtime import get_logger
from geminga.runtime.local_file import reason_at
from geminga.runtime.ports import Disk

_log = get_logger(__name__)

#: Format of the directories this program writes, and the newest it reads.
DIRECTORY_FORMAT: Final = 1
FORMAT_FILE: Final = "geminga.json"
PROCESS_FILE: Final = "process.json"
METADATA_FILE: Final = "metadata.sqlite"
#: Where broker processes reach the metadata store, and each bookie by its name.
METADATA_SOCKET: Final = "metadata.socket"
#: Where the first of them asks for the metrics of the process that has both.
METRICS_SOCKET: Final = "metrics.socket"
#: Where any of them asks for a backup, which the same process makes.
BACKUP_SOCKET: Final = "backup.socket"

# What may lie in a directory that nothing was ever started in: a file system's own, and our unfinished first write.
_ALLOWED_IN_NEW: Final = frozenset(("lost+found", f"{FORMAT_FILE}.tmp", PROCESS_FILE, f"{PROCESS_FILE}.tmp"))


def bookie_socket(name: str) -> str:
    """Name of the Unix socket of a bookie."""
    return f"{name}.socket"


class MetadataMove(NamedTuple):
    """Where the metadata of a directory are copied to (``geminga metadata copy``)."""

    #: The metadata store, as ``zk:host:port/chroot``.
    to: str
    #: Tells this copy from any other.
    copy_id: str
    #: Whether all of it is there: from then on it is what counts.
    is_done: bool


async def claim_directory(disk: Disk, path: str, *, pid: int, program: str, may_be_moved: bool = False) -> bool:
    """Lock ``path`` for this process and check its format; create it if it is new.

    ``may_be_moved``: also one whose metadata are elsewhere since.
    True if it was new. Raises :class:`DataDirectoryError` with a sentence for the operator if it is in use, foreign,
    damaged or newer than this program; such a directory is not changed.
    """
    try:
        await disk.make_dirs(path)
        await _lock(disk, path)
        names = await disk.list_dir(path)
        is_new = FORMAT_FILE not in names
        if is_new:
            _check_empty(path, names)
            document = {"format": DIRECTORY_FORMAT, "createdBy": program}
            await disk.write_file(os.path.join(path, FORMAT_FILE), json.dumps(document).encode() + b"\n")
        else:
            move = _move_of(_checked_document(path, await disk.read_file(os.path.join(path, FORMAT_FILE))), path)
            if move is not None and move.is_done and not may_be_moved:
                raise DataDirectoryError(
                    f"data directory {path} was moved to a cluster: its metadata are in {move.to}, and change there. "
                    f"Start its bookie (geminga bookie --data {path} --metadata {move.to}) and a broker (geminga "
                    f"broker --metadata {move.to})"
                )
        await _name_process(disk, path, pid)
    except FileExistsError as error:
        raise DataDirectoryError(
            f"data directory {path}: {error.filename or path} is a file; expected a directory, or a name that is free"
        ) from error
    except OSError as error:
        raise DataDirectoryError(f"data directory {path}: {reason_at(error, path)}") from error
    return is_new


async def _name_process(disk: Disk, path: str, pid: int) -> None:
    """It is for people: where there is no room for it, nobody is named, and not the process that was the last."""
    name = os.path.join(path, PROCESS_FILE)
    try:
        await disk.write_file(name, json.dumps({"pid": pid}).encode() + b"\n")
    except OSError as error:
        if not is_disk_full(error):
            raise
        _log.warning("no space for %s", name)
        await unlink_if_there(disk, name)


async def _lock(disk: Disk, path: str) -> None:
    try:
        await disk.lock_dir(path)
    except BlockingIOError as error:
        raise DataDirectoryError(f"data directory {path} is in use by {await _holder(disk, path)}") from error


async def _holder(disk: Disk, path: str) -> str:
    try:
        document = json.loads(await disk.read_file(os.path.join(path, PROCESS_FILE)))
    except (FileNotFoundError, ValueError):
        return "another process"
    pid = document.get("pid") if isinstance(document, dict) else None
    return f"process {pid}" if isinstance(pid, int) else "another process"


def _check_empty(path: str, names: list[str]) -> None:
    foreign = [name for name in names if name not in _ALLOWED_IN_NEW]
    if foreign:
        raise DataDirectoryError(
            f"data directory {path} is not empty and holds no {FORMAT_FILE}: it belongs to something else "
            f"(found {', '.join(foreign[:3])}); name an empty or a new directory"
        )


async def read_move(disk: Disk, path: str) -> MetadataMove | None:
    """Where it was moved to, or is being; None: nowhere. Raises DataDirectoryError, OSError."""
    return _move_of(_checked_document(path, await disk.read_file(os.path.join(path, FORMAT_FILE))), path)


async def write_move(disk: Disk, path: str, move: MetadataMove) -> None:
    """Note it in a directory that is locked. Raises DataDirectoryError, OSError."""
    document = _checked_document(path, await disk.read_file(os.path.join(path, FORMAT_FILE)))
    document["moved"] = {"to": move.to, "copyId": move.copy_id, "isDone": move.is_done}
    await disk.write_file(os.path.join(path, FORMAT_FILE), json.dumps(document).encode() + b"\n")


async def read_origin(disk: Disk, path: str) -> str:
    """Which restoring of a backup made the directory; empty: none. Raises DataDirectoryError, OSError."""
    document = _checked_document(path, await disk.read_file(os.path.join(path, FORMAT_FILE)))
    restored = document.get("restored")
    return str(restored.get("id", "")) if isinstance(restored, dict) else ""


def _move_of(document: dict[str, object], path: str) -> MetadataMove | None:
    moved = document.get("moved")
    if moved is None:
        return None
    if isinstance(moved, dict):
        to, copy_id, is_done = (moved.get(key) for key in ("to", "copyId", "isDone"))
        if isinstance(to, str) and isinstance(copy_id, str) and isinstance(is_done, bool):
            return MetadataMove(to, copy_id, is_done)
    raise DataDirectoryError(f"{os.path.join(path, FORMAT_FILE)} is damaged: moved is {json.dumps(moved)[:80]}")


def _checked_document(path: str, data: bytes) -> dict[str, object]:
    try:
        document = json.loads(data)
    except ValueError as error:
        raise DataDirectoryError(f"{os.path.join(path, FORMAT_FILE)} is damaged: {error}") from error
    number = document.get("format") if isinstance(document, dict) else None
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise DataDirectoryError(f"{os.path.join(path, FORMAT_FILE)} is damaged: it names no format number")
    if number > DIRECTORY_FORMAT:
        raise DataDirectoryError(
            f"data directory {path} has format {number}, written by {document.get('createdBy', 'a newer program')}; "
            f"this program reads formats up to {DIRECTORY_FORMAT}: start the newer program"
        )
    return {str(key): value for key, value in document.items()}
