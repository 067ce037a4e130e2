"""Tasks with a name, a reference and an owner for their errors.

``spawn`` is the only way to start a task. asyncio itself keeps weak references to tasks and reports an
unexpected exception only when the task is collected; here the task is held until it is done, and an exception
nobody awaited for closes the part that the task works for (:mod:`.containment`), or is logged and handed to the
loop's fatal handler at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from geminga.model.errors import InvariantError
from geminga.runtime.containment import Part, contain, is_strict, unwound_storage
from geminga.runtime.log import get_logger
from geminga.runtime.ports import FatalHandler

T = TypeVar("T")

_log = get_logger(__name__)
_tasks: set[asyncio.Task[Any]] = set()
_fatal_handlers: WeakKeyDictionary[asyncio.AbstractEventLoop, FatalHandler] = WeakKeyDictionary()


def set_fatal_handler(handler: FatalHandler | None, loop: asyncio.AbstractEventLoop | None = None) -> None:
    """Who hears of unexpected exceptions of tasks of ``loop`` (default: the running one). None: only the log."""
    loop = loop or asyncio.get_running_loop()
    # A handler usually leads back to its loop, so the weak key alone would keep both for ever.
    for other in [other for other in _fatal_handlers if other.is_closed()]:
        del _fatal_handlers[other]
    if handler is None:
        _fatal_handlers.pop(loop, None)
    else:
        _fatal_handlers[loop] = handler


def spawn(coro: Coroutine[Any, Any, T], *, name: str, part: Part | None = None) -> asyncio.Task[T]:
    """Start ``coro`` as a task called ``name`` on the running loop and hold it until it is done.

    An exception other than cancellation closes ``part``. Without a part, and for what :mod:`.containment` does not
    let stay with one, it is logged and handed to the fatal handler: a task that may fail in an ordinary way handles
    its own errors.
    """
    task = asyncio.get_running_loop().create_task(coro, name=name)
    _tasks.add(task)
    task.add_done_callback(_finished if part is None else partial(_finished, part=part))
    return task


def forget(task: asyncio.Task[Any]) -> None:
    """Drop the reference to a task that will never be done (the simulator's lost tasks)."""
    _tasks.discard(task)


def _finished(task: asyncio.Task[Any], part: Part | None = None) -> None:
    _tasks.discard(task)
    if task.cancelled():
        return
    error = task.exception()
    if error is not None and not (part is not None and contain(part, task.get_name(), error)):
        _log.error("task %s failed: %s", task.get_name(), error, exc_info=error)
        _tell_handler(task.get_loop(), task.get_name(), error)


def report_unexpected(part: str, error: BaseException) -> None:
    """A callback of ``part`` on the running loop raised: log it and hand it to the fatal handler."""
    _log.error("%s failed: %s", part, error, exc_info=error)
    _tell_handler(asyncio.get_running_loop(), part, error)


def on_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """The loop's exception handler: what came out of storage in a plain callback or timer is fatal too.

    Anything else there belongs to no part that could be closed for it; it is logged, as by default.
    """
    loop.default_exception_handler(context)
    error = context.get("exception")
    if isinstance(error, Exception) and (unwound_storage(error) or (is_strict() and isinstance(error, InvariantError))):
        _tell_handler(loop, str(context.get("message", "a callback")), error)


def _tell_handler(loop: asyncio.AbstractEventLoop, part: str, error: BaseException) -> None:
    handler = _fatal_handlers.get(loop)
    if handler is not None:
        handler(part, error)
