"""Small awaitable steps over the ``Disk`` port, and what its errors mean to the bookie."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Sequence
from typing import Final, NamedTuple, Self

from geminga.runtime import Buffer, Disk, DiskFile, ReadRequest, Runtime, again, get_logger

_log = get_logger(__name__)

#: Errors that mean "no space": file system full, quota used up, file size limit reached; and "no descriptor" of the
#: process or the system: a file that could not be opened had nothing written to it, and can be later.
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE})

#: File of the ledger directory.
RESERVE_NAME: Final = "reserve"
#: Less is nothing: a file takes blocks of the disk.
_BLOCK_BYTES: Final = 4096
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


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


class DiskReserve:
    """Room that a bookie takes beforehand, for the small files without which a full disk can not be freed.

    A deletion has to be in the checkpoint before an entry log may go, and a checkpoint is a new file beside the old
    one: on a disk without a free byte neither could ever happen. So a file of the directory has the room for one.
    What is to be written goes into it in place and then takes the name of the file it replaces: at no moment is the
    room given to anybody else. It is not synced: one that a power loss shortened is made again. Who calls sees to it
    that nobody else does.
    """

    __slots__ = ("_directory", "_lane", "_path", "_runtime", "size_bytes")

    def __init__(self, runtime: Runtime, directory: str, lane: str) -> None:
        self._runtime = runtime
        self._directory = directory
        self._lane = lane
        self._path = f"{directory}/{RESERVE_NAME}"
        #: Its room.
        self.size_bytes = 0

    async def make(self, wanted_bytes: int) -> None:
        """Take this room, or as much of it as there is; no errors: it is tried again."""
        disk = self._runtime.disk
        try:
            is_new = False
            try:
                self.size_bytes = await disk.file_size(self._path)
            except FileNotFoundError:
                is_new, self.size_bytes = True, 0
            if wanted_bytes > self.size_bytes:
                wanted_bytes = min(wanted_bytes, self.size_bytes + await disk.free_bytes(self._directory))
            while wanted_bytes > max(self.size_bytes, _BLOCK_BYTES):
                try:
                    file = await disk.open_file(
                        self._path, lane=self._lane, create=is_new, preallocate_bytes=wanted_bytes, is_written=False
                    )
                except OSError as error:
                    if error.errno not in _NO_ROOM:
                        raise
                    wanted_bytes = wanted_bytes * 3 // 4
                    continue
                await disk.close_file(file)
                self.size_bytes = wanted_bytes
        except OSError as error:
            _log.warning("no room is kept in %s for deletions on a full disk: %s", self._path, error)

    async def replace(self, path: str, data: bytes) -> bool:
        """``Disk.write_file`` in the room of the reserve, which is used up; False: it has less. Raises OSError."""
        disk = self._runtime.disk
        if len(data) > self.size_bytes:
            return False
        file = await disk.open_file(self._path, lane=self._lane)
        try:
            await append(disk, file, 0, (data,), sync=False)
            await disk.truncate(file, len(data))
            self.size_bytes = len(data)
            await disk.sync_file(file)
        finally:
            await disk.close_file(file)
        await disk.rename(self._path, path)
        self.size_bytes = 0
        await disk.sync_dir(self._directory)
        return True


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
        if failed:
            try:
                raise next(iter(failed.values()))
            finally:
                del failed  # see runtime's value_of

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
