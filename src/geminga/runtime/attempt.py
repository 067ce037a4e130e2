"""Calls into code that is not ours: what it raises comes back as a value, and nobody who waits is forgotten.

An application's key readers, interceptors, callbacks and schemas may raise anything. Whoever calls them on behalf of
somebody else (a batch with its futures, entries that wait their turn) must go on to tell those, so here, and only here,
every ``Exception`` is caught. Cancellation, interrupts and exits of the interpreter pass.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")
E = TypeVar("E", bound=BaseException)


class Raised:
    """What came instead of a result."""

    __slots__ = ("error",)

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __str__(self) -> str:
        return f"{type(self.error).__name__}: {self.error}"


def attempt(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R | Raised:
    """What ``function`` returns, or what it raised."""
    try:
        return function(*args, **kwargs)
    except Exception as error:
        return Raised(error)


async def attempt_await(awaitable: Awaitable[R]) -> R | Raised:
    """What ``awaitable`` gives, or what it raised."""
    try:
        return await awaitable
    except Exception as error:
        return Raised(error)


def value_of(outcome: R | BaseException) -> R:
    """What was waited for, or the error that came in its place, raised.

    Who raises an error that a variable of his holds makes a cycle: its traceback has his frame. All that the frames of
    the call hold (payloads, connections) would wait for the collector. Nothing of this frame is left in it; who calls
    it deletes what holds the outcome (a task, say) as well.
    """
    if isinstance(outcome, BaseException):
        try:
            raise outcome
        finally:
            del outcome
    return outcome


def again(error: E) -> E:
    """A copy of an error that is kept, to raise it: the kept one would grow by a traceback each time it is raised, and
    hold the frames of all who were told."""
    kind = type(error)
    args = cast("tuple[object, ...]", error.__reduce__()[1])
    copied = kind.__new__(kind, *args)
    # Not by the kind's own constructor, which takes other arguments than it hands on.
    builtin: Any = next(one for one in kind.__mro__ if one.__module__ == "builtins")
    builtin.__init__(copied, *args)
    vars(copied).update(vars(error))
    copied.__cause__, copied.__suppress_context__ = error.__cause__, error.__suppress_context__
    return copied


def tell(log: logging.Logger, what: str, function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
    """Call ``function``, whose result nobody wants; what it raises is logged as an error of ``what``."""
    outcome = attempt(function, *args, **kwargs)
    if isinstance(outcome, Raised):
        log.error("%s: %s", what, outcome, exc_info=outcome.error)
