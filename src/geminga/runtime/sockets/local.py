"""Unix sockets by path: how one is bound and reached, whatever is left of an earlier process and however long the path.

The caller owns the directory and holds its lock, so that a socket that is found there is nobody's: whoever made it is
gone. Only the user of this process may connect (mode 0600); the mode is set before connections are taken.

An address holds 107 bytes on Linux. A longer path is reached through a descriptor of its directory, where the system
shows those (``/proc/self/fd``); elsewhere it is refused with its length.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

#: Bytes of a path that an address of a Unix socket holds; the field has one more, for the end (Linux; others 104).
ADDRESS_BYTES_MAX: Final = 107 if os.path.isdir("/proc/self/fd") else 103
#: Of a connection, as far as the kernel lets (``net.core.wmem_max``): what the other end may be behind before who sends
#: must wait for it. The kernel's default, 208 KiB, is twenty entries of 10 KB: each end wakes the other for so few.
SEND_BUFFER_BYTES: Final = 1024 * 1024
#: Who may connect.
SOCKET_MODE: Final = 0o600

_DESCRIPTORS: Final = "/proc/self/fd"


def bound_local(path: str) -> socket.socket:
    """A socket that is bound to ``path`` and does not listen yet; one that is left there is replaced.

    Raises OSError: something else is there, the directory is missing, or the path is too long.
    """
    _remove_left(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        with short_address(path) as address:
            sock.bind(address)
        os.chmod(path, SOCKET_MODE)
    except OSError:
        sock.close()
        raise
    return sock


def widen(sock: socket.socket) -> None:
    """Give a connection its buffer."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)


def remove_local(path: str) -> None:
    """Take the name away at the end; fine if it is gone."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


@contextmanager
def short_address(path: str) -> Iterator[str]:
    """``path`` as an address that fits, as long as the block runs. Raises OSError."""
    if len(os.fsencode(path)) <= ADDRESS_BYTES_MAX:
        yield path
        return
    directory, name = os.path.split(path)
    if not os.path.isdir(_DESCRIPTORS):
        raise OSError(errno.ENAMETOOLONG, f"{path}: a socket's path may have {ADDRESS_BYTES_MAX} bytes here")
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        address = f"{_DESCRIPTORS}/{descriptor}/{name}"
        if len(os.fsencode(address)) > ADDRESS_BYTES_MAX:
            raise OSError(errno.ENAMETOOLONG, f"{path}: a socket's name may have {ADDRESS_BYTES_MAX} bytes")
        yield address
    finally:
        os.close(descriptor)


def _remove_left(path: str) -> None:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise OSError(errno.EEXIST, f"{path} is there and is no socket")
    os.unlink(path)
