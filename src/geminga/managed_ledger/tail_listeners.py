"""Who is told that there is more to read, once for all that one turn of the loop brought."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from geminga.runtime import Contained, Part


class TailListeners:
    """See the module."""

    __slots__ = ("_callbacks", "_is_due")

    def __init__(self) -> None:
        self._callbacks: tuple[Callable[[], None], ...] = ()
        self._is_due = False

    def __len__(self) -> int:
        """How many there are."""
        return len(self._callbacks)

    def add(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Tell ``callback`` from now on; returns what removes it."""
        self._callbacks += (callback,)

        def remove() -> None:
            callbacks = list(self._callbacks)
            if callback in callbacks:
                callbacks.remove(callback)
                self._callbacks = tuple(callbacks)

        return remove

    def tell_later(self, part: Part | None) -> None:
        """On the loop's next turn; what fails there closes ``part``."""
        if self._callbacks and not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._tell, part)

    def _tell(self, part: Part | None) -> None:
        self._is_due = False
        with Contained(part, "new entries"):
            for callback in self._callbacks:
                callback()
