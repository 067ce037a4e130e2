"""Ports for servers that have to be told theirs before they start.

The kernel gives none of them to who asks for any port, or connects: they are beyond those that it gives out. And no
other process that asks here gets them while this one lives: a UDP socket on the same number says so.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Final

HOST: Final = "127.0.0.1"
_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
#: Where there is no such file: those of macOS, as of RFC 6335.
_GIVEN_OUT: Final = (49152, 65535)
#: Below it are ports that need rights, or are known for something.
_LEAST: Final = 10_000
_MOST: Final = 65_535
#: Say which ports this process has.
_claims: Final[dict[int, socket.socket]] = {}


def beyond_the_kernels() -> range:
    """Ports that the kernel gives nobody by itself: the larger part, below or above of those that it does."""
    low, high = map(int, _RANGE.read_text().split()) if _RANGE.exists() else _GIVEN_OUT
    return max(range(_LEAST, low), range(high + 1, _MOST + 1), key=len)


def free_ports(count: int, *, in_a_row: bool = False) -> list[int]:
    """Ports of the loopback interface that nobody listens on now, and this process's as long as it lives."""
    choice = beyond_the_kernels()
    found: list[int] = []
    # Processes begin at different places, so that few claims are in vain.
    begin = os.getpid() * 101 % len(choice)
    for port in (*choice[begin:], *choice[:begin]):
        if not _is_free(port):
            found = [] if in_a_row else found
            continue
        if in_a_row and found and port != found[-1] + 1:
            found = []
        found.append(port)
        if len(found) == count:
            return found
    raise OSError(f"{count} ports are not free among {choice}")


def _is_free(port: int) -> bool:
    """Whether it could be claimed."""
    if port in _claims:
        return False
    claim = socket.socket(type=socket.SOCK_DGRAM)
    try:
        claim.bind((HOST, port))
        for host in (HOST, ""):
            with socket.socket() as probe:
                probe.bind((host, port))
    except OSError:
        claim.close()
        return False
    _claims[port] = claim
    return True
