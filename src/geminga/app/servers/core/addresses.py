"""What the addresses mean that a socket is bound to. Pure."""

from __future__ import annotations

import re
from typing import Final

WILDCARD_ADDRESSES: Final = ("", "0.0.0.0", "::", "*")

#: A name may begin like one of these, and mean any machine.
_OF_LOOPBACK: Final = re.compile(r"127(\.\d{1,3}){3}", re.ASCII)


def host_names(host_name: str) -> tuple[str, str]:
    """This machine's name, whole and without its domain."""
    return host_name, host_name.partition(".")[0]


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach a socket bound to ``address``."""
    return address in ("localhost", "::1") or _OF_LOOPBACK.fullmatch(address) is not None
