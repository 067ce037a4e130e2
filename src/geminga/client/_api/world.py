"""The real world for a client: clock, randomness and network; no disk, no threads of its own."""

from __future__ import annotations

from geminga.runtime import (
    AsyncioNetwork,
    LaneThreads,
    MemoryDisk,
    Runtime,
    SystemClock,
    SystemRng,
    get_logger,
)

_log = get_logger(__name__)


def client_runtime() -> Runtime:
    """Ports over the operating system; a fatal error is only logged: a library does not end its program."""
    return Runtime(
        clock=SystemClock(),
        rng=SystemRng(),
        disk=MemoryDisk(),
        network=AsyncioNetwork(),
        threads=LaneThreads(),
        on_fatal=_log_fatal,
    )


def _log_fatal(part: str, error: BaseException) -> None:
    _log.critical("%s: %s", part, error, exc_info=error)
