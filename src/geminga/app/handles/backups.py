"""``geminga backup``: asks a running standalone for a backup, or makes one of a directory that nobody uses."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final, Protocol, TypeVar

from geminga.admin._brokers import Brokers
from geminga.app.storage.backup_sources import StoppedSource
from geminga.app.storage.backup_writing import REQUEST_PREFIX, BackupWriter, Copying, Progress, are_nested
from geminga.app.storage.core.backup_format import BackupManifest
from geminga.app.storage.pace import Pace
from geminga.app.storage.stopped_directory import StoppedDirectory, lock_directory
from geminga.model.errors import DataDirectoryError
from geminga.runtime import Runtime, real_runtime
from geminga.runtime.local_file import create_private, make_private_directories

#: Between two questions to a server that makes a backup.
ASK_S: Final = 0.2

R = TypeVar("R")
Told = Callable[[Mapping[str, Any]], None]


class BackupCalls(Protocol):
    """The calls that are used; :class:`geminga.admin.AdminClient` has them."""

    @property
    def brokers(self) -> Brokers: ...


async def back_up_running(
    admin: BackupCalls, directory: str, *, whole: bool, told: Told, rate_limit: int = 0
) -> Mapping[str, Any]:
    """The server's word of a backup that was made. ``rate_limit``: bytes a second; 0: no limit. Raises AdminError,
    DataDirectoryError where it was not, OSError.
    """
    with alone_in(directory):
        return await _asked(admin, directory, whole=whole, told=told, rate_limit=rate_limit)


@contextmanager
def alone_in(directory: str) -> Iterator[None]:
    """Make the directory of a backup, and keep other commands out: each takes what no manifest names for leftovers.

    A new directory in which nothing came to be does not stay. Raises DataDirectoryError while another is there,
    OSError.
    """
    was_there = os.path.isdir(directory)
    make_private_directories(directory)
    try:
        held = lock_directory(directory)
    except BlockingIOError as error:
        raise DataDirectoryError(f"another command makes a backup in {directory}: wait for its end") from error
    try:
        yield
    finally:
        if not was_there and not os.listdir(directory):
            os.rmdir(directory)
        os.close(held)


async def _asked(admin: BackupCalls, directory: str, *, whole: bool, told: Told, rate_limit: int) -> Mapping[str, Any]:
    request = f"{REQUEST_PREFIX}{secrets.token_hex(16)}"
    path = os.path.join(directory, request)
    create_private(path)
    try:
        await admin.brokers.start_backup(directory=directory, request=request, whole=whole, rate_limit=rate_limit)
        while True:
            state = await admin.brokers.backup()
            if state.get("directory", directory) != directory:
                # A server tells of its newest alone.
                raise DataDirectoryError(
                    f"the server makes another backup by now, in {state['directory']}: how this one ended is not "
                    f"known, geminga backup verify {directory} tells whether there is one, and of when"
                )
            if state["state"] != "running":
                break
            told(state)
            await asyncio.sleep(ASK_S)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(path)
    if state["state"] != "done":
        raise DataDirectoryError(str(state.get("error") or f"the server knows no backup: it is {state['state']}"))
    return state


@asynccontextmanager
async def local_runtime() -> AsyncIterator[Runtime]:
    """Files and threads for a command."""

    def on_fatal(part: str, error: BaseException) -> None:
        raise DataDirectoryError(f"{part}: {error}") from error

    runtime = real_runtime(on_fatal)
    try:
        yield runtime
    finally:
        await runtime.disk.close()
        await runtime.threads.close()


async def back_up_stopped(
    data: str, directory: str, *, whole: bool, rate_limit: int = 0
) -> tuple[BackupManifest, Progress]:
    """A backup of a data directory that nobody uses. Raises DataDirectoryError, OSError."""
    if are_nested(directory, data):
        raise DataDirectoryError(f"{directory} and the data directory {data} are one within the other")
    progress = Progress()
    with StoppedDirectory(data), alone_in(directory):
        async with local_runtime() as runtime:
            source = await StoppedSource.open(runtime, data)
            copying = Copying(progress, whole, Pace(runtime.clock, rate_limit))
            writer = BackupWriter(runtime.disk, directory, source, copying)
            return await writer.write(), progress


def carried_out(work: Callable[[Runtime], Awaitable[R]]) -> R:
    """What ``work`` gives, on a loop of its own."""

    async def alone() -> R:
        async with local_runtime() as runtime:
            return await work(runtime)

    return asyncio.run(alone())
