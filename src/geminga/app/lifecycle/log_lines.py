"""Lines of a process's log: their form, their file, the levels of packages. ``docs/formats/log.md``."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Final

from geminga.app.configuration.core.log_options import JSON, LogOptions
from geminga.app.lifecycle.paragraphs import write_paragraphs_as
from geminga.model.errors import ConfigurationError
from geminga.runtime.log import trace_id

#: Of all of Geminga's loggers.
ROOT: Final = "geminga"


def json_line(level: str, logger: str, message: str, time_s: float, *, name: str = "", error: str = "") -> str:
    """One object, without a line end."""
    whole_s, fraction = divmod(int(time_s * 1000), 1000)
    fields = {
        "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole_s))}.{fraction:03d}Z",
        "level": level,
        "logger": logger,
        "message": message,
    }
    if name:
        fields["process"] = name
    if trace := trace_id.get():
        fields["trace"] = trace
    if error:
        fields["error"] = error
    return json.dumps(fields, ensure_ascii=False)


class JsonLines(logging.Formatter):
    """A record as a line of JSON."""

    def __init__(self, name: str = "") -> None:
        super().__init__()
        self._name = name

    def format(self, record: logging.LogRecord) -> str:
        """See :func:`json_line`."""
        error = self.formatException(record.exc_info) if record.exc_info and record.exc_info[0] else ""
        if record.stack_info:
            error = f"{error}\n{record.stack_info}".strip()
        return json_line(
            record.levelname, record.name, record.getMessage(), record.created, name=self._name, error=error
        )


class TextLines(logging.Formatter):
    """A record as a line for people."""

    def __init__(self, name: str = "") -> None:
        super().__init__(f"%(asctime)s %(levelname)s {name and f'{name} '}%(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """With the trace id behind it."""
        text = super().formatMessage(record)
        return f"{text} [{trace}]" if (trace := trace_id.get()) else text


def begin_log(options: LogOptions, *, name: str = "") -> None:
    """Have records written as ``options`` say. Raises ConfigurationError."""
    options.check()
    handler: logging.Handler
    if options.file:
        from geminga.app.lifecycle.log_file import RotatedFile

        try:
            handler = RotatedFile(
                options.file, maxBytes=options.file_bytes, backupCount=options.files, encoding="utf-8"
            )
        except OSError as error:
            raise ConfigurationError(f"--log-file {options.file}: {error.strerror or error}") from error
    else:
        handler = logging.StreamHandler(sys.stderr)
    is_json = options.form == JSON
    handler.setFormatter(JsonLines(name) if is_json else TextLines(name))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger(ROOT).setLevel(options.level.upper())
    if is_json:
        # What people read in paragraphs, and what Python prints of its own accord, are lines like all others.
        write_paragraphs_as(lambda text: json_line("ERROR", ROOT, text, time.time(), name=name))
        logging.captureWarnings(True)
        sys.excepthook = _log_uncaught


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    logging.getLogger(ROOT).critical("ended by an error that nobody caught", exc_info=(kind, error, trace))


class PackageLevels:
    """Levels of packages beside the process's own."""

    def __init__(self) -> None:
        self._set: dict[str, int] = {}
        #: As they were set last.
        self.current: Mapping[str, str] = {}

    def follow(self, levels: Mapping[str, str]) -> None:
        """Have these, and of those before none."""
        for name, before in self._set.items():
            logging.getLogger(name).setLevel(before)
        self._set = {}
        self.current = dict(levels)
        for name, level in levels.items():
            logger = logging.getLogger(name)
            self._set[name] = logger.level
            logger.setLevel(level.upper())

    async def close(self) -> None:
        """As before all of them."""
        self.follow({})
