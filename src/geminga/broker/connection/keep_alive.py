"""PINGs from time to time: a peer that answers none, although it is listened to, is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from geminga.broker.connection.core.read_gate import ReadGate


class KeepAliveSettings(Protocol):
    """The settings of it."""

    @property
    def keep_alive_interval_s(self) -> float:
        """``keepAliveIntervalSeconds``; may change."""
        ...


class KeepAlive:
    """Of one connection."""

    __slots__ = ("_dead", "_gate", "_loop", "_ping", "_settings", "_timer", "is_awaited")

    def __init__(self, settings: KeepAliveSettings, gate: ReadGate, loop: asyncio.AbstractEventLoop) -> None:
        self._settings = settings
        self._gate = gate
        self._loop = loop
        #: A PING is out, and nothing was heard since. Who hears something writes it down here.
        self.is_awaited = False
        self._ping: Callable[[], None] | None = None
        self._dead: Callable[[str], None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self, first_s: float, ping: Callable[[], None], dead: Callable[[str], None]) -> None:
        """The first PING leaves in ``first_s`` seconds; ``dead`` is called with the reason if none is answered."""
        self._ping, self._dead = ping, dead
        self._timer = self._loop.call_later(first_s, self._due)

    def stop(self) -> None:
        """The connection is closed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._ping = self._dead = None

    def _due(self) -> None:
        if self._ping is None or self._dead is None:
            return
        # Who is not listened to can not be heard.
        if self.is_awaited and not self._gate.reasons:
            self._dead("no answer to a keep-alive PING")
            return
        self.is_awaited = True
        self._ping()
        self._timer = self._loop.call_later(self._settings.keep_alive_interval_s, self._due)
