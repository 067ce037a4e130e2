"""``DiskReserve``: room that a bookie takes beforehand, for the small files without which a full disk can not be freed.

A deletion has to be in the checkpoint before an entry log may go, and a checkpoint is a new file beside the old one: on
a disk without a free byte neither could ever happen. So a file of the ledger directory has the room for one. What is
to be written goes into it in place and then takes the name of the file it replaces: at no moment is the room given to
anybody else. It is not synced: one that a power loss shortened is made again.
"""

from __future__ import annotations

import errno
from typing import Final

from geminga.bookie.disk_io import append
from geminga.runtime import Runtime, get_logger

_log = get_logger(__name__)

#: File of the ledger directory.
RESERVE_NAME: Final = "reserve"
#: Less is nothing: a file takes blocks of the disk.
_BLOCK_BYTES: Final = 4096
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class DiskReserve:
    """That of one ledger directory. Who calls sees to it that nobody else does."""

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
