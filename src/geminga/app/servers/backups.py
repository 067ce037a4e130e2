"""Backups of a standalone, made while it runs: one at a time, in a directory of whoever runs the server.

Who asks over HTTP shows that it may write in the directory by a file that it made there, under a name that nobody
else knows: so a right over HTTP gives no right to write elsewhere on the machine.
"""

from __future__ import annotations

import asyncio
import os
import re
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from geminga.app.storage.backup_sources import RunningSource
from geminga.app.storage.backup_writing import (
    LANE,
    REQUEST_PREFIX,
    BackupWriter,
    Copying,
    Progress,
    are_nested,
    check_target,
)
from geminga.app.storage.core.backup_format import BackupManifest
from geminga.app.storage.pace import Pace
from geminga.model.errors import ConflictError, DataDirectoryError, PreconditionFailedError, StorageError
from geminga.runtime import Raised, Runtime, again, attempt_await, get_logger, spawn
from geminga.runtime.disk_threads import ThreadedDisk
from geminga.runtime.threads import LaneThreads

_log = get_logger(__name__)

#: Seconds in which a directory is to have been looked at, and in which something is to be written.
LOOK_S: Final = 20.0
STALLED_S: Final = 600.0
#: What is waited for the files of a backup to be closed.
CLOSE_S: Final = 5.0
_REQUEST: Final = re.compile(f"{REQUEST_PREFIX}[0-9a-f]{{32}}")


class _Place:
    """Where a backup goes: a disk and a thread of its own, as a file system that hangs keeps both.

    Nobody else waits for them: not the server's own files, nor its end.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.disk = ThreadedDisk(syncs_by_kernel=False)
        self._threads = LaneThreads()

    async def look(self, request: str, data: str) -> None:
        """Raises PreconditionFailedError, DataDirectoryError, OSError."""
        await self._threads.call(LANE, lambda: _check_request(self.directory, request, data))
        await check_target(self.disk, self.directory)

    async def end(self, work: asyncio.Task[Any] | None) -> None:
        """Let go once ``work`` has."""
        if work is not None:
            await asyncio.wait({work})
        await self.disk.close()
        await self._threads.close()


class LocalBackups:
    """Implements ``broker.administration.services.Backups``."""

    def __init__(self, runtime: Runtime, data: str, open_source: Callable[[], RunningSource]) -> None:
        """``data``: the directory that is backed up."""
        self._runtime = runtime
        self._data = data
        self._open_source = open_source
        self._task: asyncio.Task[None] | None = None
        #: The place that is looked at, or written to.
        self._place: _Place | None = None
        #: Until the last place has let go.
        self._ending: asyncio.Task[None] | None = None
        self._progress = Progress()
        self._state: dict[str, str | int] = {"state": "none"}

    async def start(self, directory: str, request: str, *, whole: bool, rate_limit: int = 0) -> None:
        """See the protocol."""
        if self._place is not None:
            raise ConflictError(f"a backup is being made in {self._place.directory}")
        _check_words(directory, request)
        place = self._place = _Place(directory)
        looking = spawn(attempt_await(place.look(request, self._data)), name="place of a backup")
        is_good = False
        try:
            await asyncio.wait({looking}, timeout=LOOK_S)
            if not looking.done():
                raise PreconditionFailedError(
                    f"{directory} did not answer within {LOOK_S:g} s: is it on a file system that hangs?"
                )
            outcome = looking.result()
            if isinstance(outcome, Raised):
                if isinstance(outcome.error, DataDirectoryError | OSError):
                    raise PreconditionFailedError(str(outcome.error)) from outcome.error
                raise again(outcome.error)
            is_good = True
        finally:
            if not is_good:
                await self._leave(place, looking)
        self._progress = Progress()
        copying = Copying(self._progress, whole, Pace(self._runtime.clock, rate_limit))
        self._state = {"state": "running", "directory": directory}
        self._task = spawn(self._make(place, copying), name="backup")

    async def state(self) -> Mapping[str, str | int]:
        """See the protocol."""
        return {**self._state, **self._progress.document()}

    async def _make(self, place: _Place, copying: Copying) -> None:
        directory = place.directory
        state: dict[str, str | int]
        writing: asyncio.Task[BackupManifest | Raised] | None = None
        try:
            try:
                async with self._open_source() as source:
                    writer = BackupWriter(place.disk, directory, source, copying)
                    writing = spawn(attempt_await(writer.write()), name="files of a backup")
                    manifest = await self._unless_stalled(directory, writing)
            finally:
                # The bookies' files may go again, whatever becomes of those of the place.
                await self._leave(place, writing)
        except (StorageError, OSError) as error:
            _log.error("the backup in %s was not made: %s", directory, error)
            state = {"state": "failed", "error": str(error)}
        else:
            _log.info("a backup was made in %s, of %d bytes", directory, manifest.size_bytes)
            state = {"state": "done", **manifest.facts()}
        finally:
            self._task = None
        self._state = {"directory": directory, **state}

    async def _unless_stalled(self, directory: str, writing: asyncio.Task[BackupManifest | Raised]) -> BackupManifest:
        """What it wrote. Raises DataDirectoryError where nothing was for :data:`STALLED_S`, what writing raises."""
        steps = -1
        while not writing.done():
            before, steps = steps, self._progress.steps
            if before == steps and not self._progress.is_paced:
                raise DataDirectoryError(
                    f"nothing was written to {directory} for {STALLED_S:g} s: is it on a file system that hangs? "
                    "The backup before, if there is one, is as it was"
                )
            await asyncio.wait({writing}, timeout=STALLED_S)
        outcome = writing.result()
        if isinstance(outcome, Raised):
            raise again(outcome.error)
        return outcome

    async def _leave(self, place: _Place, work: asyncio.Task[Any] | None) -> None:
        """It is waited for no longer than :data:`CLOSE_S`; as long as it hangs, no other one is begun."""
        if work is not None:
            work.cancel()
        self._ending = spawn(self._end(place, work), name="end of a backup")
        await asyncio.wait({self._ending}, timeout=CLOSE_S)

    async def _end(self, place: _Place, work: asyncio.Task[Any] | None) -> None:
        try:
            await place.end(work)
        finally:
            self._place = None

    async def close(self) -> None:
        """End the one that is being made: the one before stays."""
        task = self._task
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def _check_words(directory: str, request: str) -> None:
    """Raises PreconditionFailedError."""
    if not os.path.isabs(directory) or os.path.normpath(directory) != directory:
        raise PreconditionFailedError(f"directory {directory[:200]!r}: expected an absolute path")
    if not _REQUEST.fullmatch(request):
        raise PreconditionFailedError(f"request {request[:80]!r}: expected {REQUEST_PREFIX} and 32 hex digits")


def _check_request(directory: str, request: str, data: str) -> None:
    """On a thread. Raises PreconditionFailedError."""
    if are_nested(directory, data):
        raise PreconditionFailedError(f"{directory} and the data directory {data} are one within the other")
    owner = os.geteuid()
    for path, is_kind in ((directory, stat.S_ISDIR), (os.path.join(directory, request), stat.S_ISREG)):
        try:
            found = os.lstat(path)
        except OSError as error:
            raise PreconditionFailedError(
                f"{path}: {error.strerror}. Backups are made on the server's machine, by who may write in the directory"
            ) from error
        if not is_kind(found.st_mode) or found.st_uid != owner or found.st_mode & 0o022:
            raise PreconditionFailedError(
                f"{path}: expected to be of user {owner}, who runs the server, and not writable by others"
            )
