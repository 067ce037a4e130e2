"""Logging: standard library loggers under the package's names; ``app`` decides where records go.

Only shells log; cores return events and commands for the shell to log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

#: Seconds between two warnings of one kind.
WARNING_INTERVAL_S: Final = 60.0
#: Of the request that is served here, 32 hexadecimal digits; empty: none. In every line that it causes.
trace_id: ContextVar[str] = ContextVar("trace_id", default="")


class RequestTrace(str):
    """The trace id of a request that is served here, which is over at some time: what it left behind keeps the id."""

    is_over = False


def is_under_way(trace: str) -> bool:
    """Whether the request of this trace id is still served here."""
    return isinstance(trace, RequestTrace) and not trace.is_over


def get_logger(name: str) -> logging.Logger:
    """The logger ``name`` (pass ``__name__``)."""
    return logging.getLogger(name)


class SparseWarnings:
    """Warnings of what strangers can cause as often as they like: one of a kind a minute, with the number left out."""

    __slots__ = ("_left_out", "_logger", "_monotonic", "_written_s")

    def __init__(self, logger: logging.Logger, monotonic: Callable[[], float]) -> None:
        self._logger = logger
        self._monotonic = monotonic
        self._written_s: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def warn(self, text: str, kind: str = "") -> None:
        """Log ``text``, unless one of its ``kind`` (one of a few) was logged within :data:`WARNING_INTERVAL_S`."""
        now_s = self._monotonic()
        if now_s - self._written_s.get(kind, -WARNING_INTERVAL_S) < WARNING_INTERVAL_S:
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return
        self._written_s[kind] = now_s
        if left_out := self._left_out.pop(kind, 0):
            text += f" ({left_out} more like it since the last of these lines)"
        self._logger.warning("%s", text)
