"""The audit log as files: ``audit.log``, and the ones before it as ``audit.log.1`` to ``audit.log.9``, oldest last.

Lines are written by a thread of its own, many with one call where many come, and synced before the next ones: a request
does not wait for its line. Several brokers of a machine may share the files (``audit.log.lock`` is held for a moment).
Files are their user's alone. What the disk does not take is said in the process' log, with
how many lines are missing; the next line that is written says it too.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from geminga.broker.access.audit import Auditor
from geminga.model.errors import ConfigurationError
from geminga.runtime import SparseWarnings, get_logger
from geminga.runtime.local_file import private

if TYPE_CHECKING:
    from geminga.app.configuration.server_config import ServerConfig
    from geminga.runtime import Runtime

_log = get_logger(__name__)

#: The thread that writes.
LANE: Final = "audit"
#: Lines that wait for the disk; beyond that they are counted only.
LINES_WAITING_MAX: Final = 10_000


class Threads(Protocol):
    """Where blocking calls are made."""

    def submit(self, lane: str, function: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        """See :class:`geminga.runtime.ports.Threads`."""


class AuditFile:
    """See the module."""

    __slots__ = ("_bytes_max", "_files", "_idle", "_is_writing", "_lost", "_path", "_threads", "_waiting", "_warnings")

    def __init__(
        self, threads: Threads, monotonic: Callable[[], float], path: str, *, bytes_max: int, files: int
    ) -> None:
        """``path``: of the newest file. ``bytes_max``: of one file. ``files``: how many there are, with that one."""
        self._threads = threads
        self._path = path
        self._bytes_max = bytes_max
        self._files = files
        self._waiting: list[str] = []
        self._is_writing = False
        #: Lines that could not be kept since the last one that was.
        self._lost = 0
        #: Who waits until everything is written.
        self._idle: asyncio.Event | None = None
        self._warnings = SparseWarnings(_log, monotonic)

    def add(self, line: str) -> None:
        """Keep a line, soon."""
        if len(self._waiting) >= LINES_WAITING_MAX:
            self._lost += 1
            return
        self._waiting.append(line)
        if not self._is_writing:
            self._write()

    def _write(self) -> None:
        lines, self._waiting = self._waiting, []
        lost, self._lost = self._lost, 0
        if lost:
            lines.insert(0, json.dumps({"lost": lost}))
        self._is_writing = True
        data = "".join(f"{line}\n" for line in lines).encode()
        self._threads.submit(LANE, partial(self._append, data), partial(self._written, lost + len(lines) - bool(lost)))

    def _written(self, count: int, error: BaseException | None) -> None:
        self._is_writing = False
        if error is not None:
            self._lost += count
            self._warnings.warn(f"gemingaAuditLogFile={self._path}: {count} lines could not be written: {error}")
        if self._waiting:
            self._write()
        elif self._idle is not None:
            self._idle.set()

    async def close(self) -> None:
        """On return, what was added before is written, as far as the disk takes it."""
        if self._is_writing:
            self._idle = asyncio.Event()
            await self._idle.wait()

    # ---- on the thread

    def _append(self, data: bytes) -> None:
        with open(f"{self._path}.lock", "ab", opener=private) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._append_locked(data)

    def _append_locked(self, data: bytes) -> None:
        size = os.path.getsize(self._path) if os.path.exists(self._path) else 0
        if size and size + len(data) > self._bytes_max:
            self._rotate()
        with open(self._path, "a+b", buffering=0, opener=private) as file:
            _append_whole(file.fileno(), data)

    def _rotate(self) -> None:
        names = [self._path, *(f"{self._path}.{number}" for number in range(1, self._files))]
        for older, newer in zip(reversed(names[1:]), reversed(names[:-1]), strict=True):
            if os.path.exists(newer):
                os.replace(newer, older)
        if self._files == 1:
            os.unlink(self._path)


def _append_whole(descriptor: int, data: bytes) -> None:
    """All of it, or nothing: half a line would be one with the next, and no program reads that. Raises OSError."""
    size = os.fstat(descriptor).st_size
    if size and os.pread(descriptor, 1, size - 1) != b"\n":
        data = b"\n" + data  # who wrote it was killed
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    except OSError:
        with suppress(OSError):
            os.ftruncate(descriptor, size)
        raise


def require_place(path: str) -> None:
    """Raise ConfigurationError where no such file can be written."""
    try:
        with open(path, "ab", opener=private):
            pass
    except OSError as error:
        raise ConfigurationError(
            f"gemingaAuditLogFile={path}: {error.strerror or error}; expected a file that this process can write, in "
            "a directory that is there"
        ) from error


def audit_to(runtime: Runtime, config: ServerConfig) -> tuple[AuditFile, Auditor]:
    """The file that ``gemingaAuditLogFile`` names, and who writes to it what administrators change."""
    file = AuditFile(
        runtime.threads,
        runtime.clock.monotonic,
        config.audit_log_file,
        bytes_max=config.audit_log_bytes_max,
        files=config.audit_log_files,
    )
    return file, Auditor(file, runtime.clock.wall_ms)
