"""``python failing_sync.py PATTERN TRIGGER standalone ...``: the real command, but syncs fail once TRIGGER exists.

PATTERN is matched against the path of what is synced; ``metadata`` stands for the commits of SQLite, whose own syncs
Python can not reach.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import sqlite3
import sys
from collections.abc import Callable

from geminga.app import cli
from geminga.metadata.sqlite_tree import SqliteTree


def failing(sync: Callable[[int], None], pattern: str, trigger: str) -> Callable[[int], None]:
    """``sync``, until the trigger is there."""

    def wrapped(fd: int) -> None:
        if os.path.exists(trigger) and fnmatch.fnmatch(os.readlink(f"/proc/self/fd/{fd}"), pattern):
            raise OSError(errno.EIO, "injected")
        sync(fd)

    return wrapped


def main() -> None:
    """Install the failure, run the command."""
    pattern, trigger = sys.argv[1:3]
    del sys.argv[1:3]
    if pattern == "metadata":
        commit = SqliteTree.commit

        def failing_commit(tree: SqliteTree) -> None:
            if os.path.exists(trigger):
                error = sqlite3.OperationalError("disk I/O error (injected)")
                error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
                raise error
            commit(tree)

        SqliteTree.commit = failing_commit  # type: ignore[method-assign]
    else:
        for name in ("fsync", "fdatasync"):
            setattr(os, name, failing(getattr(os, name), pattern, trigger))
    cli.main()


if __name__ == "__main__":
    main()
