"""A log file that gives way to the next; what can not be written is told once. Loaded where one is asked for."""

from __future__ import annotations

import logging
import logging.handlers
import sys


class RotatedFile(logging.handlers.RotatingFileHandler):
    """Of one process."""

    _is_told = False

    def handleError(self, record: logging.LogRecord) -> None:
        """The process goes on: a full disk must not take a broker's answers with it."""
        if self._is_told:
            return
        self._is_told = True
        text = f"log lines can not be written to {self.baseFilename}: {sys.exc_info()[1]}"
        told = logging.makeLogRecord({"msg": text, "levelname": "ERROR", "levelno": logging.ERROR, "name": "geminga"})
        print(self.format(told), file=sys.stderr, flush=True)
