"""Files that have to be there after a crash, in full or not at all."""

from __future__ import annotations

import errno
import os
import re
from contextlib import suppress
from typing import Final

from geminga.runtime.local_file import naming, private

#: What mounts say that have no hard links.
_NO_LINKS: Final = frozenset((errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK))


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
    temporary = _written_beside(path, f"{path}.{os.getpid()}.new", text)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS or os.path.exists(path):
            raise
        os.replace(temporary, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        sync_directory(os.path.dirname(path))
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
