"""``python failing_sync.py PATTERN TRIGGER standalone ...``: the real command, but syncs fail once TRIGGER exists.

PATTERN is matched against the path of what is synced; ``metadata`` stands for the commits of SQLite, whose own syncs
Python can not reach.
"""

from __future__ import annotations

import asyncio
import errno
import fnmatch
import os
import sqlite3
import sys
from collections.abc import Callable

from geminga.app.commands import cli
from geminga.metadata.sqlite_tree import SqliteTree
from geminga.runtime.kernel_sync import KernelSyncs, SyncDone


def is_due(fd: int, pattern: str, trigger: str) -> bool:
    """Whether a sync of this descriptor must fail now."""
    return os.path.exists(trigger) and fnmatch.fnmatch(os.readlink(f"/proc/self/fd/{fd}"), pattern)


def failing(sync: Callable[[int], None], pattern: str, trigger: str) -> Callable[[int], None]:
    """``sync``, until the trigger is there."""

    def wrapped(fd: int) -> None:
        if is_due(fd, pattern, trigger):
            raise OSError(errno.EIO, "injected")
        sync(fd)

    return wrapped


def fail_kernel_syncs(pattern: str, trigger: str) -> None:
    """The same for those that the kernel carries out as requests: the answer is the error."""
    submit = KernelSyncs.submit

    def failing_submit(syncs: KernelSyncs, fd: int, done: SyncDone) -> bool:
        if is_due(fd, pattern, trigger):
            asyncio.get_running_loop().call_soon(done, OSError(errno.EIO, "injected"))
            return True
        return submit(syncs, fd, done)

    KernelSyncs.submit = failing_submit  # type: ignore[method-assign]


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
        fail_kernel_syncs(pattern, trigger)
    cli.main()


if __name__ == "__main__":
    main()
