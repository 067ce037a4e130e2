"""What the addresses mean that a socket is bound to. Pure."""

from __future__ import annotations

from typing import Final

WILDCARD_ADDRESSES: Final = ("", "0.0.0.0", "::", "*")


def host_names(host_name: str) -> tuple[str, str]:
    """This machine's name, whole and without its domain."""
    return host_name, host_name.partition(".")[0]


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach a socket bound to ``address``."""
    return address in ("localhost", "::1") or address.startswith("127.")
