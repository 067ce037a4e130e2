"""Why nothing is read from a connection: a set of reasons, each of which its own part gives and takes back. Pure.

The transport is told when the first reason comes and when the last one goes, and not in between.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntFlag
from typing import Protocol


class PauseReason(IntFlag):
    """Why nothing is read from a connection."""

    NONE = 0
    PENDING_PUBLISHES = 1
    PUBLISH_BUFFER = 2
    WRITE_BUFFER = 4
    PENDING_REQUESTS = 8
    COMMANDS_LEFT = 16
    #: A command is carried out in several turns.
    COMMAND_UNDER_WAY = 32
    #: The rest of a large frame waits for room.
    FRAME_BUFFER = 64
    #: Somebody publishes on it faster than a rate allows.
    PUBLISH_RATE = 128
    #: Too many requests of all connections are under way, and more than a few of its own.
    REQUEST_ROOM = 256


class Readable(Protocol):
    """What is read from."""

    def pause_reading(self) -> None:
        """No more for now."""

    def resume_reading(self) -> None:
        """Go on."""


def _nobody(reasons: PauseReason) -> None:
    """The connection is over."""


class ReadGate:
    """See the module."""

    __slots__ = ("_changed", "_source", "reasons")

    def __init__(self, changed: Callable[[PauseReason], None]) -> None:
        """``changed`` is called with the reasons that are left when one has gone."""
        self._changed = changed
        self._source: Readable | None = None
        #: Empty: it is read.
        self.reasons = PauseReason.NONE

    def attach(self, source: Readable) -> None:
        """What is read from."""
        self._source = source

    def detach(self) -> None:
        """It is not touched any more; reasons come and go as before, for what was read may still be handled."""
        self._source = None

    def end(self) -> None:
        """The connection is over: nobody asks."""
        self._source = None
        self._changed = _nobody

    def hold(self, reason: PauseReason) -> None:
        """Do not read, until :meth:`free` with the same reason."""
        if not self.reasons and self._source is not None:
            self._source.pause_reading()
        self.reasons |= reason

    def free(self, reason: PauseReason) -> None:
        """This is a reason no more."""
        if not self.reasons & reason:
            return
        self.reasons &= ~reason
        # Told before reading goes on: what is read then is read in the new state.
        self._changed(self.reasons)
        if not self.reasons and self._source is not None:
            self._source.resume_reading()
