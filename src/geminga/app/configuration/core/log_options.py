"""How a process logs: what its options say. Pure; ``docs/formats/log.md``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from geminga.model.errors import ConfigurationError

LOG_LEVELS: Final = ("debug", "info", "warning", "error")
TEXT: Final = "text"
JSON: Final = "json"
#: A file, before it is another one's turn; and files that are kept beside it.
FILE_BYTES: Final = 100 * 1024 * 1024
FILES: Final = 10
FILES_MAX: Final = 1000
FILE_BYTES_MIN: Final = 4096

_LOGGER: Final = re.compile(r"geminga(\.[A-Za-z_][A-Za-z0-9_]*)*")


class LogOptions(NamedTuple):
    """Checked by :meth:`check`."""

    level: str = "info"
    form: str = TEXT
    #: Empty: standard error.
    file: str = ""
    file_bytes: int = FILE_BYTES
    files: int = FILES

    def check(self) -> None:
        """Raise ConfigurationError for what is none of those that there are."""
        if self.level not in LOG_LEVELS:
            raise ConfigurationError(f"--log-level {self.level}: expected one of {', '.join(LOG_LEVELS)}")
        if self.form not in (TEXT, JSON):
            raise ConfigurationError(f"--log-format {self.form}: expected text or json")
        if self.file_bytes < FILE_BYTES_MIN:
            raise ConfigurationError(f"--log-file-bytes {self.file_bytes}: expected at least {FILE_BYTES_MIN}")
        if not 1 <= self.files <= FILES_MAX:
            raise ConfigurationError(f"--log-files {self.files}: expected a number of files, 1 to {FILES_MAX}")

    def of_child(self, name: str) -> LogOptions:
        """Of a process beside this one: two do not rotate one file."""
        return self._replace(file=f"{self.file}.{name}") if self.file else self


def parse_levels(texts: Iterable[str]) -> dict[str, str]:
    """Logger -> level of ``geminga.broker=debug`` each; raises ConfigurationError."""
    found = {}
    for text in texts:
        logger, equals, level = (part.strip() for part in text.partition("="))
        if not equals or not _LOGGER.fullmatch(logger) or level.lower() not in LOG_LEVELS:
            raise ConfigurationError(
                f"gemingaLogLevels={text}: expected a package or module and its level, such as geminga.broker=debug; "
                f"levels are {', '.join(LOG_LEVELS)}"
            )
        found[logger] = level.lower()
    return found
