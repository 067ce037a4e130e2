"""Failures above storage stay with the part they belong to; those of storage and metadata end the process.

A *part* is what can be closed by itself and made anew from what is stored: a connection, a subscription, a topic. Its
entry points (a command, a callback, a timer, a task) run inside :class:`Contained`, which closes the part when
something unexpected comes out of them, and nothing else.

The rule for what may not be contained: an unexpected exception that unwound code of storage leaves nobody to say what
is stored, so nothing may be acknowledged after it. Callbacks that storage makes into a part are contained at the
callback, so that a part's failure never unwinds storage.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Final, Protocol
from weakref import WeakSet

from geminga.model.errors import GemingaError, LocalError
from geminga.runtime.log import get_logger

_log = get_logger(__name__)

#: Packages and modules that say what is stored. ``tests/unit/runtime`` holds that each exists.
STORAGE: Final = (
    "geminga.bookie",
    "geminga.bookkeeper",
    "geminga.metadata",
    "geminga.managed_ledger.log.appender",
    "geminga.managed_ledger.shared.metadata_io",
)
#: Frames that :func:`where` names.
_FRAMES_SHOWN: Final = 4

_strict_loops: WeakSet[asyncio.AbstractEventLoop] = WeakSet()


class Part(Protocol):
    """What breaks, and is closed, by itself."""

    def broke(self, what: str, error: BaseException) -> None:
        """``what`` it was doing raised ``error``: close it. Does not raise."""


class Contained:
    """``with Contained(part, "dispatch"):`` what is unexpected in there closes ``part`` and goes no further.

    Errors that somebody is there to handle (:class:`GemingaError`, but for our own :class:`LocalError`) pass on, unless
    ``is_last``: nobody is. So do cancellation, errors of storage, and everything without a part.
    """

    __slots__ = ("_is_last", "_part", "_what")

    def __init__(self, part: Part | None, what: str, *, is_last: bool = False) -> None:
        self._part = part
        self._what = what
        self._is_last = is_last

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is None or self._part is None:
            return False
        if not self._is_last and isinstance(error, GemingaError) and not isinstance(error, LocalError):
            return False
        return contain(self._part, self._what, error)


def contain(part: Part, what: str, error: BaseException) -> bool:
    """Close ``part`` because of ``error``; False if that must not, or can not, stay with it."""
    if not isinstance(error, Exception) or unwound_storage(error) or is_strict():
        return False
    try:
        part.broke(what, error)
    except Exception as second:
        _log.error("closing what broke in %s failed too: %s at %s", what, second, where(second), exc_info=second)
    return True


def unwound_storage(error: BaseException) -> bool:
    """Whether the error came out of code of storage or metadata, or through it."""
    return unwound(error, STORAGE)


def unwound(error: BaseException, modules: Iterable[str]) -> bool:
    """Whether the error came out of, or through, one of these modules or packages."""
    prefixes = tuple(f"{module}." for module in modules)
    return any(f"{name}.".startswith(prefixes) for name, _, _ in _frames(error))


def where(error: BaseException) -> str:
    """The innermost frames of our own code, for one line of a log."""
    shown = [f"{name.removeprefix('geminga.')}:{line} {function}" for name, function, line in _frames(error)]
    return " < ".join(reversed(shown[-_FRAMES_SHOWN:]))


def _frames(error: BaseException) -> Iterator[tuple[str, str, int]]:
    trace = error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_globals.get("__name__", "")
        if name.startswith("geminga."):
            yield name, trace.tb_frame.f_code.co_name, trace.tb_lineno
        trace = trace.tb_next


# ---- where nothing is contained


def set_strict(loop: asyncio.AbstractEventLoop, is_strict: bool) -> None:
    """Under test nothing is to be contained: what breaks a part is a defect, and fails the run."""
    if is_strict:
        _strict_loops.add(loop)
    else:
        _strict_loops.discard(loop)


def is_strict() -> bool:
    """Whether the running loop contains nothing."""
    return bool(_strict_loops) and asyncio.get_running_loop() in _strict_loops
