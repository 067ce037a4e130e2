"""Small awaitable steps over the ``Disk`` port, and what its errors mean to the bookie."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Sequence
from typing import Final, NamedTuple, Self

from geminga.runtime import Buffer, Disk, DiskFile, ReadRequest, again

#: Errors that mean "no space": file system full, quota used up, file size limit reached; and "no descriptor" of the
#: process or the system: a file that could not be opened had nothing written to it, and can be later.
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE})


class DiskLanes(NamedTuple):
    """The lanes of one bookie: none of these waits for another, and no bookie for another bookie's."""

    journal: str = "journal"
    flush: str = "bookie-flush"
    read: str = "bookie-read"
    gc: str = "bookie-gc"

    @classmethod
    def of(cls, number: int) -> Self:
        """Those of the bookie with this number in its process; the first one's are the plain names."""
        lanes = cls()
        if number == 1:
            return lanes
        return cls(*(f"{lane}-{number}" for lane in (lanes.journal, lanes.flush, lanes.read, lanes.gc)))


#: Of a bookie that is alone.
ONLY_LANES: Final = DiskLanes()


def is_disk_full(error: OSError) -> bool:
    """Whether the error goes away when space, or a descriptor, returns."""
    return error.errno in _FULL


async def append(disk: Disk, file: DiskFile, offset: int, buffers: Sequence[Buffer], *, sync: bool) -> None:
    """``Disk.append`` as an awaitable; raises OSError."""
    future: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()

    def done(error: OSError | None) -> None:
        if not future.done():
            future.set_result(error)

    disk.append(file, offset, buffers, sync=sync, done=done)
    error = await future
    if error is not None:
        # A copy: the error's frames have the future, and what was to be written.
        raise again(error)


async def read(disk: Disk, requests: Sequence[ReadRequest], *, lane: str) -> Sequence[bytes | OSError]:
    """``Disk.read`` as an awaitable."""
    future: asyncio.Future[Sequence[bytes | OSError]] = asyncio.get_running_loop().create_future()

    def done(results: Sequence[bytes | OSError]) -> None:
        if not future.done():
            future.set_result(results)

    disk.read(requests, lane=lane, done=done)
    return await future


class HeldFiles:
    """Unlinks what nobody needs any more; while somebody copies, not before that is over.

    A crash in between leaves files that the checkpoint does not name: the next start removes them.
    """

    __slots__ = ("_disk", "_holders", "_left")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._holders = 0
        #: Paths to unlink at the end.
        self._left: list[str] = []

    def hold(self) -> None:
        """Nothing goes until :meth:`release`, which is called once for each of these."""
        self._holders += 1

    async def release(self) -> None:
        """Unlink what was to go meanwhile, if nobody else holds. Raises OSError for one that can not go.

        That is tried again when the next one releases.
        """
        self._holders -= 1
        failed: dict[str, OSError] = {}
        while self._left and not self._holders:
            path = self._left.pop()
            try:
                await unlink_if_there(self._disk, path)
            except OSError as error:
                failed[path] = error
        self._left += failed
        for failure in failed.values():
            raise failure

    async def unlink(self, path: str) -> None:
        """Unlink, now or later; fine if it is gone. Raises OSError."""
        if self._holders:
            self._left.append(path)
        else:
            await unlink_if_there(self._disk, path)


async def unlink_if_there(disk: Disk, path: str) -> None:
    """Unlink; fine if it is gone."""
    try:
        await disk.unlink(path)
    except FileNotFoundError:
        pass
