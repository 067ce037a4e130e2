"""Files that have to be there after a crash, in full or not at all."""

from __future__ import annotations

import errno
import os
import re
from contextlib import suppress
from itertools import count
from typing import Final

from geminga.runtime.local_file import FILE_MODE, naming, private

#: What mounts say that have no hard links.
_NO_LINKS: Final = frozenset((errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK))

#: Of temporary files: two threads of a process have one each.
_numbers: Final = count()


def local_directory(path: str) -> str | None:
    """A path of this machine, absolute; None for one of an object store."""
    plain = re.sub(r"^file:(//)?(?=/)", "", path)
    return None if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/", plain) else os.path.abspath(plain)


def write_synced(path: str, text: str) -> None:
    """Replace a small file in one step; it is on stable storage then."""
    temporary = _written_beside(path, f"{path}.new", text)
    os.replace(temporary, path)
    sync_directory(os.path.dirname(path))


def write_new_synced(path: str, text: str) -> bool:
    """A small file, as :func:`write_synced`, unless there is one: False then."""
    temporary = _written_beside(path, f"{path}.{os.getpid()}.{next(_numbers)}.new", text)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if not _claimed(path):
            return False
        os.replace(temporary, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        sync_directory(os.path.dirname(path))
    return True


def _claimed(path: str) -> bool:
    """Where there are no hard links: an empty file is who may put the whole one in its place, one of those that try.

    A kill in between leaves it: it says nothing, and is to be deleted by who looks.
    """
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
    except FileExistsError:
        return False
    return True


def _written_beside(path: str, temporary: str, text: str) -> str:
    with naming(path), open(temporary, "w", encoding="utf-8", opener=private) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    return temporary


def sync_directory(path: str) -> None:
    """What was made, renamed and removed in it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with naming(path):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(path: str) -> None:
    """Every file of a directory, and the directories."""
    for directory, _, names in os.walk(path):
        for name in names:
            sync_directory(os.path.join(directory, name))
        sync_directory(directory)
