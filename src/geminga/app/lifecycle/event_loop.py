"""The event loop a process runs on: uvloop where it is installed and wanted, asyncio's own otherwise."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable

from geminga.model.errors import ConfigurationError


def loop_factory(choice: str) -> Callable[[], asyncio.AbstractEventLoop]:
    """The maker of loops for ``gemingaEventLoop``: ``auto``, ``asyncio`` or ``uvloop``.

    ``auto`` is uvloop if it is installed; ``uvloop`` without it is a ConfigurationError.
    """
    if choice == "asyncio" or (choice == "auto" and importlib.util.find_spec("uvloop") is None):
        return asyncio.new_event_loop
    try:
        import uvloop
    except ImportError as error:
        raise ConfigurationError(
            "gemingaEventLoop=uvloop: uvloop is not installed; install geminga[fast] or set asyncio"
        ) from error
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
