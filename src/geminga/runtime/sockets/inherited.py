"""Listening sockets that a service manager made before this process and passed on: sd_listen_fds(3) of systemd.

``LISTEN_PID`` names the process that they are for, ``LISTEN_FDS`` how many there are; they are the descriptors from 3
on. Whoever listens takes the one that is bound to just that address and port; the kernel keeps who connects before.
A socket on every address is never taken for one that is to listen on loopback alone.
"""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Collection, MutableMapping
from typing import Final

#: Where they begin.
FIRST_DESCRIPTOR: Final = 3
#: More are no service's.
DESCRIPTORS_MAX: Final = 1024
PROCESS: Final = "LISTEN_PID"
COUNT: Final = "LISTEN_FDS"
NAMES: Final = "LISTEN_FDNAMES"

#: Host and port, as ``getsockname`` has them.
Address = tuple[str, int]


class InheritedSockets:
    """Those that nobody has taken yet."""

    __slots__ = ("_sockets",)

    def __init__(self, sockets: Collection[socket.socket] = ()) -> None:
        self._sockets = {_address_of(sock): sock for sock in sockets}

    @property
    def addresses(self) -> list[Address]:
        """Of those that are left, in order."""
        return sorted(self._sockets)

    def take(self, address: Address) -> socket.socket | None:
        """The one that is bound there, once; None: there is none."""
        return self._sockets.pop(address, None)


def inherited_sockets(
    environ: MutableMapping[str, str] = os.environ, first: int = FIRST_DESCRIPTOR
) -> InheritedSockets:
    """What was passed to this process; the variables go, so that no child takes them for its own.

    ``first``: the first descriptor. Raises ValueError for variables or sockets that are not as they should be.
    """
    process, count, _ = (environ.pop(name, "") for name in (PROCESS, COUNT, NAMES))
    if process != str(os.getpid()) or not count:
        return InheritedSockets()
    if not count.isascii() or not count.isdecimal() or int(count) > DESCRIPTORS_MAX:
        raise ValueError(f"{COUNT}={count}: expected a number of sockets up to {DESCRIPTORS_MAX}")
    sockets: list[socket.socket] = []
    try:
        for number in range(first, first + int(count)):
            sockets.append(_listening(number))
    except ValueError as error:
        for sock in sockets:
            sock.close()
        raise ValueError(f"{COUNT}={count}: {error}") from error
    return InheritedSockets(sockets)


def _listening(number: int) -> socket.socket:
    """The socket of a descriptor; raises ValueError unless it listens by TCP."""
    expected = f"descriptor {number}: expected a listening TCP socket (ListenStream=address:port)"
    try:
        fcntl.fcntl(number, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
        sock = socket.socket(fileno=number)
    except OSError as error:
        raise ValueError(f"{expected}: {error.strerror}") from error
    is_listening = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    if sock.type != socket.SOCK_STREAM or not is_listening or sock.family not in (socket.AF_INET, socket.AF_INET6):
        found = f"{sock.family.name}, {sock.type.name}{'' if is_listening else ', not listening'}"
        sock.close()
        raise ValueError(f"{expected}, found {found}")
    sock.setblocking(False)
    return sock


def _address_of(sock: socket.socket) -> Address:
    host, port = sock.getsockname()[:2]
    return str(host), int(port)
