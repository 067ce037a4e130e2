"""``Condition``: whether what a client opened can go on, and what its calls raise when it can not."""

from __future__ import annotations

import asyncio

from geminga.client._api.errors import AlreadyClosed, PulsarException
from geminga.client._api.place import Place, running_loop
from geminga.runtime import again


class Condition:
    """Open, failed with an error, or closed: once it is not open, it never is again. Of one loop."""

    __slots__ = ("_loop", "_place", "error", "is_closed", "name")

    def __init__(self, place: Place, name: str) -> None:
        """``name``: what it is, for errors and the log."""
        self._place = place
        self._loop = asyncio.get_running_loop()
        self.name = name
        #: Why it can not go on; None while it can.
        self.error: PulsarException | None = None
        self.is_closed = False

    def check_here(self) -> None:
        """Raise ForkedProcess or WrongLoop in another place."""
        if running_loop() is not self._loop:
            self._place.check()

    def check_not_closed(self) -> None:
        """Raise AlreadyClosed."""
        if self.is_closed:
            raise AlreadyClosed(f"{self.name} is closed")

    def check_alive(self) -> None:
        """Not closed, and in its place; one that failed may still acknowledge what it got of other topics."""
        self._place.check()
        self.check_not_closed()

    def check_open(self) -> None:
        """Neither closed nor failed, and in its place; raises AlreadyClosed, or why it failed."""
        self.check_here()
        self.check_not_closed()
        if self.error is not None:
            raise again(self.error)
