"""What only Python's collector of cycles frees: errors of ours, whose tracebacks hold the frames of a failed call."""

from __future__ import annotations

import gc as collector
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from geminga.model.errors import GemingaError


@contextmanager
def uncollected() -> Iterator[list[str]]:
    """Filled, at the end, with the errors that were given up meanwhile and are there nevertheless."""
    found: list[str] = []
    collector.collect()
    collector.disable()
    try:
        yield found
        collector.set_debug(collector.DEBUG_SAVEALL)
        collector.collect()
        collector.set_debug(0)
        # One that was never raised holds no frames; what it is kept in (two simulated transports) may be a cycle.
        errors = (one for one in collector.garbage if isinstance(one, GemingaError))
        found += [repr(one) for one in errors if one.__traceback__ is not None]
        collector.garbage.clear()
    finally:
        collector.set_debug(0)
        collector.enable()


async def fails(call: Callable[[], Awaitable[object]]) -> bool:
    """Whether it does, with an error of ours."""
    try:
        await call()
    except GemingaError:
        return True
    return False
