"""Files that have to be there after a crash, in full or not at all."""

from __future__ import annotations

import os
import re

from geminga.runtime.local_file import naming, private


def local_directory(path: str) -> str | None:
    """A path of this machine, absolute; None for one of an object store."""
    plain = re.sub(r"^file:(//)?(?=/)", "", path)
    return None if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/", plain) else os.path.abspath(plain)


def write_synced(path: str, text: str) -> None:
    """Replace a small file in one step; it is on stable storage then."""
    temporary = f"{path}.new"
    with naming(path), open(temporary, "w", encoding="utf-8", opener=private) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_directory(os.path.dirname(path))


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
