"""A log file that gives way to the next; what can not be written is told once. Loaded where one is asked for."""

from __future__ import annotations

import logging
import logging.handlers
import os
import stat
import sys
from contextlib import suppress
from io import TextIOWrapper
from typing import cast

from geminga.runtime.local_file import FILE_MODE


class RotatedFile(logging.handlers.RotatingFileHandler):
    """Of one process. Who moves or removes it (logrotate) needs to tell nobody: the next line begins it anew."""

    #: What can not be written now was told.
    _is_told = False
    #: The last line was written.
    _is_written = True
    #: Mode and group of the one before, which an operator may have opened to others, and the next one has; None: it is
    #: the first.
    _opened_to: tuple[int, int] | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write the line."""
        self._is_written = True
        super().emit(record)
        if self._is_written:
            self._is_told = False

    def shouldRollover(self, record: logging.LogRecord) -> bool:
        """Whether the line belongs to the next file; one that is not there any more is left before."""
        self._leave_what_went()
        return bool(super().shouldRollover(record))

    def handleError(self, record: logging.LogRecord) -> None:
        """The process goes on: a full disk must not take a broker's answers with it."""
        self._is_written = False
        if self._is_told:
            return
        self._is_told = True
        text = f"log lines can not be written to {self.baseFilename}: {sys.exc_info()[1]}"
        told = logging.makeLogRecord({"msg": text, "levelname": "ERROR", "levelno": logging.ERROR, "name": "geminga"})
        print(self.format(told), file=sys.stderr, flush=True)

    def _open(self) -> TextIOWrapper:
        def opener(path: str, flags: int) -> int:
            try:
                made = os.open(path, flags | os.O_EXCL, FILE_MODE)
            except FileExistsError:
                return os.open(path, flags, FILE_MODE)
            if self._opened_to is not None:
                mode, group = self._opened_to
                with suppress(PermissionError):  # a group that this process is not in
                    os.fchown(made, -1, group)
                os.fchmod(made, mode)  # whatever the umask says
            return made

        made = open(self.baseFilename, self.mode, encoding=self.encoding, errors=self.errors, opener=opener)  # noqa: SIM115
        return cast("TextIOWrapper", made)

    def _leave_what_went(self) -> None:
        if self.stream is None:
            return
        written = os.fstat(self.stream.fileno())
        self._opened_to = stat.S_IMODE(written.st_mode), written.st_gid
        try:
            named = os.stat(self.baseFilename)
        except FileNotFoundError:
            named = None
        if named is None or (named.st_dev, named.st_ino) != (written.st_dev, written.st_ino):
            self.stream.close()
            self.stream = None
