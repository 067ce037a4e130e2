"""Backups of a standalone, made while it runs: one at a time, in a directory of whoever runs the server.

Who asks over HTTP shows that it may write in the directory by a file that it made there, under a name that nobody
else knows: so a right over HTTP gives no right to write elsewhere on the machine.
"""

from __future__ import annotations

import asyncio
import os
import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from geminga.app.storage.backup_sources import RunningSource
from geminga.app.storage.backup_writing import REQUEST_PREFIX, BackupWriter, Progress, are_nested, check_target
from geminga.app.storage.pace import Pace
from geminga.bookie import LocalBookie
from geminga.metadata import SqliteMetadataStore
from geminga.model.errors import ConflictError, DataDirectoryError, PreconditionFailedError, StorageError
from geminga.runtime import Runtime, get_logger, spawn

_log = get_logger(__name__)

_REQUEST: Final = re.compile(f"{REQUEST_PREFIX}[0-9a-f]{{32}}")


class LocalBackups:
    """Implements ``broker.administration.services.Backups``."""

    def __init__(
        self, runtime: Runtime, data: str, metadata: SqliteMetadataStore, bookies: Mapping[str, LocalBookie]
    ) -> None:
        self._runtime = runtime
        self._data = data
        self._metadata = metadata
        self._bookies = bookies
        self._task: asyncio.Task[None] | None = None
        self._progress = Progress()
        self._state: dict[str, str | int] = {"state": "none"}

    async def start(self, directory: str, request: str, *, whole: bool, rate_limit: int = 0) -> None:
        """See the protocol."""
        if self._task is not None:
            raise ConflictError(f"a backup is being made in {self._state['directory']}")
        _check_request(directory, request, self._data)
        try:
            await check_target(self._runtime.disk, directory)
        except (DataDirectoryError, OSError) as error:
            raise PreconditionFailedError(str(error)) from error
        if self._task is not None:
            raise ConflictError(f"a backup is being made in {self._state['directory']}")
        self._progress = Progress()
        self._state = {"state": "running", "directory": directory}
        self._task = spawn(self._make(directory, whole, Pace(self._runtime.clock, rate_limit)), name="backup")

    async def state(self) -> Mapping[str, str | int]:
        """See the protocol."""
        return {**self._state, **self._progress.document()}

    async def _make(self, directory: str, whole: bool, pace: Pace) -> None:
        told: dict[str, str | int] = {"directory": directory}
        try:
            async with RunningSource(self._runtime, self._data, self._metadata, self._bookies) as source:
                disk, progress = self._runtime.disk, self._progress
                writer = BackupWriter(disk, directory, source, progress, whole=whole, pace=pace)
                manifest = await writer.write()
        except (StorageError, OSError) as error:
            _log.error("the backup in %s was not made: %s", directory, error)
            self._state = {**told, "state": "failed", "error": str(error)}
        else:
            _log.info("a backup was made in %s, of %d bytes", directory, manifest.size_bytes)
            self._state = {**told, "state": "done", **manifest.facts()}
        finally:
            self._task = None

    async def close(self) -> None:
        """End the one that is being made: the one before stays."""
        task = self._task
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def _check_request(directory: str, request: str, data: str) -> None:
    """Raises PreconditionFailedError."""
    if not os.path.isabs(directory) or os.path.normpath(directory) != directory:
        raise PreconditionFailedError(f"directory {directory[:200]!r}: expected an absolute path")
    if not _REQUEST.fullmatch(request):
        raise PreconditionFailedError(f"request {request[:80]!r}: expected {REQUEST_PREFIX} and 32 hex digits")
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
