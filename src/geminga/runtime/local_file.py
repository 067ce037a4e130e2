"""Local files: their modes, errors that name them, and reading small ones that a user names (keys, tokens).

What Geminga makes is its user's alone: folders 0700, files 0600, whatever the umask lets others have; a stricter umask
holds. Blocks for a moment; never on a data path.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import unquote

#: Nothing that is read here is larger.
LOCAL_FILE_BYTES_MAX: Final = 1024 * 1024
#: Of what is made: for its user alone.
DIRECTORY_MODE: Final = 0o700
FILE_MODE: Final = 0o600


def read_local_file(path: str) -> bytes:
    """The whole file; raises OSError, also for one over ``LOCAL_FILE_BYTES_MAX``."""
    with Path(path).open("rb") as file:
        data = file.read(LOCAL_FILE_BYTES_MAX + 1)
    if len(data) > LOCAL_FILE_BYTES_MAX:
        raise OSError(f"{path}: larger than {LOCAL_FILE_BYTES_MAX} bytes")
    return data


def path_of_url(url: str) -> str:
    """Where a ``file:`` URL leads: with what can not stand in one escaped, as ``Path.as_uri`` writes it, or as it is,
    where there is such a file."""
    path = url.removeprefix("file:")
    if path.startswith("//"):
        path = "/" + path[2:].partition("/")[2]  # behind the host, which is none
    return path if os.path.exists(path) else unquote(path)


def private(path: str, flags: int) -> int:
    """The ``opener`` of ``open`` for a file of the user's alone."""
    return os.open(path, flags, FILE_MODE)


def create_private(path: str) -> None:
    """Make an empty file of the user's alone, for a library that would make a readable one; fine if it is there."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
    except FileExistsError:
        pass


def take_room(path: str, size_bytes: int) -> bool:
    """Give a file of the user's alone at least so many bytes of the disk; False: there is no room, and it is as it was.

    What they hold means nothing. Raises OSError.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    try:
        before_bytes = os.fstat(fd).st_size
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(fd, 0, size_bytes)
            else:
                os.pwrite(fd, bytes(max(0, size_bytes - before_bytes)), before_bytes)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            os.ftruncate(fd, before_bytes)
            return False
    finally:
        os.close(fd)
    return True


def open_to_read(path: str) -> BinaryIO:
    """Raises OSError."""
    return Path(path).open("rb")


def copy_private(source: BinaryIO, target: str) -> None:
    """Write what is left of ``source`` to a file of the user's alone, in the place of what it held. Raises OSError."""
    with open(target, "wb", opener=private) as file:
        while piece := source.read(LOCAL_FILE_BYTES_MAX):
            file.write(piece)


def free_bytes(path: str) -> int:
    """Of the disk that the file is on. Raises OSError."""
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize


def remove_file(path: str) -> bool:
    """Unlink; False: it was not there. Raises OSError."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


def make_private_directories(path: str | os.PathLike[str]) -> None:
    """Make a folder, and those above it that are missing, for the user alone; fine if it is there. Raises OSError."""
    whole = os.path.abspath(path)
    if os.path.isdir(whole):
        return
    make_private_directories(os.path.dirname(whole))
    try:
        os.mkdir(whole, DIRECTORY_MODE)
    except FileExistsError:
        if not os.path.isdir(whole):
            raise


def sync_folder_of(path: str) -> None:
    """That a file was made, renamed or removed there is on stable storage when this returns. Raises OSError."""
    fd = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def named(error: OSError, path: str) -> OSError:
    """``error`` with the file that it is about: calls on a descriptor do not name one."""
    if error.filename is not None:
        return error
    if error.errno is None:
        other = OSError(errno.EIO, str(error), path)
        other.__cause__ = error
        return other
    error.filename = path
    return error


def reason_at(error: OSError, path: str) -> str:
    """What is wrong, in a sentence that names ``path`` already: the file is named where it is another."""
    reason = error.strerror or str(error)
    if error.strerror is None or error.filename is None or error.filename == path:
        return reason
    return f"{reason}: {error.filename}"


@contextmanager
def naming(path: str) -> Iterator[None]:
    """An OSError of the block names ``path`` if it names none."""
    try:
        yield
    except OSError as error:
        found = named(error, path)
        if found is error:
            raise
        raise found from error
