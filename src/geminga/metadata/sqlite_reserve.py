"""Room beside a metadata file that is taken beforehand, for a disk that others fill to its last byte.

Without room nothing could be deleted there either: a deletion goes to the log first, and the log has to grow. Who gives
the reserve up has room for the log, and for what of it moves into the file; it is made again as far as there is room.
Blocking: called on the store's writing thread.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from geminga.runtime import get_logger
from geminga.runtime.local_file import remove_file, take_room

_log = get_logger(__name__)

#: What SQLite's log has when it is moved into the file: 1,000 pages, which may all be new there.
RESERVE_BYTES: Final = 4 * 1024 * 1024
#: Less is not taken.
RESERVE_BYTES_MIN: Final = 64 * 1024


class SqliteReserve:
    """That of one file."""

    __slots__ = ("_is_whole", "_path")

    def __init__(self, path: str) -> None:
        self._path = f"{path}-reserve"
        self._is_whole = False

    def make(self) -> None:
        """Take the room, or as much as there is of it; no errors: it is tried again after the next commit."""
        if self._is_whole:
            return
        size_bytes = RESERVE_BYTES
        try:
            while not (has_room := take_room(self._path, size_bytes)) and size_bytes > RESERVE_BYTES_MIN:
                size_bytes = size_bytes * 3 // 4
        except OSError as error:
            _log.warning("no room is kept in %s for a full disk: %s", self._path, error)
            has_room = True
            size_bytes = RESERVE_BYTES
        self._is_whole = has_room and size_bytes == RESERVE_BYTES

    def give_up(self) -> bool:
        """Give the room to others; False: there was none."""
        self._is_whole = False
        try:
            return remove_file(self._path)
        except OSError as error:
            _log.warning("%s can not be given up: %s", self._path, error)
            return False


def is_no_room(error: BaseException | None) -> bool:
    """Whether SQLite found no space: for its log and file, or for the index of the log."""
    code = getattr(error, "sqlite_errorcode", 0)
    return isinstance(error, sqlite3.Error) and (code & 0xFF == sqlite3.SQLITE_FULL or code == _NO_ROOM_FOR_INDEX)


#: ``SQLITE_IOERR_SHMSIZE``.
_NO_ROOM_FOR_INDEX: Final = 4874
