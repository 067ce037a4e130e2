"""What systemd is told of a server (sd_notify(3)): that it is ready, that it stops, and that its loop turns.

``Type=notify``: ``systemctl start`` returns when the server serves. ``WatchdogSec=``: a timer of the loop says so twice
in that time; a loop that stands still says nothing, and systemd ends the process and starts it again. Loaded where
``NOTIFY_SOCKET`` is there.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import MutableMapping
from typing import Final

from geminga.app.lifecycle.process_life import Supervisor
from geminga.runtime import get_logger

_log = get_logger(__name__)

SOCKET: Final = "NOTIFY_SOCKET"
WATCHDOG: Final = "WATCHDOG_USEC"
WATCHDOG_PROCESS: Final = "WATCHDOG_PID"


class SystemdSupervisor(Supervisor):
    """See the module. What can not be sent is told once, and changes nothing."""

    is_there = True

    def __init__(self, address: str, watchdog_s: float) -> None:
        """``address``: a path, or an abstract name behind ``@``. ``watchdog_s``: 0: none."""
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._interval_s = watchdog_s / 2
        self._timer: asyncio.TimerHandle | None = None
        self._has_warned = False
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)

    def ready(self, text: str) -> None:
        """It serves; ``text`` is seen in ``systemctl status``."""
        self._send(f"READY=1\nSTATUS={text}")
        if self._interval_s:
            self._turn()

    def stopping(self) -> None:
        """It was told to stop; the loop is watched on, for a stop may hang, too."""
        self._send("STOPPING=1\nSTATUS=stopping")

    def close(self) -> None:
        """Tell nothing more."""
        if self._timer is not None:
            self._timer.cancel()
        self._socket.close()

    def _turn(self) -> None:
        self._send("WATCHDOG=1")
        self._timer = asyncio.get_running_loop().call_later(self._interval_s, self._turn)

    def _send(self, text: str) -> None:
        try:
            self._socket.sendto(text.encode(), self._address)
        except OSError as error:
            if not self._has_warned:
                self._has_warned = True
                _log.warning("the service manager can not be told (%s): %s", SOCKET, error.strerror)


def systemd_supervisor(environ: MutableMapping[str, str] = os.environ) -> SystemdSupervisor:
    """Of the variables, which go: children have no word here. Raises ValueError for a watchdog that is no number."""
    address, usec, process = (environ.pop(name, "") for name in (SOCKET, WATCHDOG, WATCHDOG_PROCESS))
    if usec and not (usec.isascii() and usec.isdecimal()):
        raise ValueError(f"{WATCHDOG}={usec}: expected microseconds")
    is_watched = bool(usec) and process in ("", str(os.getpid()))
    return SystemdSupervisor(address, int(usec) / 1e6 if is_watched else 0.0)
