"""What every server process of Geminga does alike: logging, open files, signals, the end.

Nothing of a server is imported here: each process loads its own.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from types import FrameType
from typing import Any, Final, NoReturn, Protocol, TypeVar

from geminga.app.lifecycle.core.descriptors import LIMIT_MIN
from geminga.app.lifecycle.descriptors import raise_descriptor_limit
from geminga.app.lifecycle.paragraphs import shown_paragraph
from geminga.model.errors import ConfigurationError, UnavailableError
from geminga.runtime import get_logger, unclaimed_sockets

#: Exit code after a fatal error.
EXIT_FATAL: Final = 1
#: Seconds beyond the time that an orderly stop has, after which the process ends whatever it is at.
STOP_GRACE_S: Final = 5.0

#: Freed memory that a process keeps is about twice this, bytes.
FREED_BYTES_KEPT: Final = 8 * 1024 * 1024
#: Objects that are made, and not gone again, between two collections of the youngest.
YOUNG_OBJECTS_MAX: Final = 10_000

T = TypeVar("T")

_IMPORTED_AT: Final = time.monotonic()
_log = get_logger(__name__)


def raise_open_files() -> None:
    """Raise the limit on open files as far as may be; raises UnavailableError where that is too few to serve."""
    before, limit = raise_descriptor_limit()
    if limit < LIMIT_MIN:
        raise UnavailableError(
            f"this process may open {limit} files, its hard limit; at least {LIMIT_MIN} are needed, and as many more "
            "as clients are to connect: raise it (ulimit -Hn, LimitNOFILE)"
        )
    _log.info("open files: at most %d%s", limit, f", raised from {before}" if limit > before else "")


def settle_collector() -> None:
    """Once everything is up: what was made until now lives as long as the process, and no collection looks at it again.

    And collections come seldom. What a connection or a topic held is gone without a collector, but a load in flight has
    hundreds of objects that live for a second or more: Python's 700 made the collector walk those of all topics again
    and again, a quarter of the processor time of a broker that loads thousands.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS_MAX, *gc.get_threshold()[1:])


def keep_freed_memory() -> None:
    """Let the C library keep some of what is freed for what is allocated next.

    It gives free memory at the end of its heap back at once, and takes it again page by page: for who reads and sends
    large entries that is a tenth of all processor time. glibc's marks move up when a block beyond them is freed, to its
    size and twice that; it is never written to, so that it takes no memory. Elsewhere this does nothing.
    """
    bytes(FREED_BYTES_KEPT)


def stop_on_signals(loop: asyncio.AbstractEventLoop, stop: asyncio.Event, *, latest_s: Callable[[], float]) -> None:
    """SIGTERM or SIGINT sets ``stop``; a second one ends the process at once, and so does the time after the first.

    The handlers run between two steps of the program, not of the loop: also while one callback holds the loop. That
    costs nothing that was acknowledged; the next start recovers.
    """
    is_stopping = False

    def leave(code: int, why: str) -> NoReturn:
        try:
            os.write(2, f"{shown_paragraph(f'ended at once, {why}; the next start recovers')}\n".encode())
        finally:
            os._exit(code)

    def on_signal(number: int, _: FrameType | None) -> None:
        nonlocal is_stopping
        if is_stopping:
            leave(128 + number, f"by a second signal ({signal.Signals(number).name})")
        is_stopping = True
        after_s = min(latest_s(), threading.TIMEOUT_MAX)
        latest = threading.Timer(after_s, leave, (EXIT_FATAL, f"{after_s:g} s after it was told to stop"))
        latest.daemon = True
        latest.start()
        loop.call_soon_threadsafe(stop.set)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)


async def begun(starting: Coroutine[Any, Any, T], stop: asyncio.Event) -> T | None:
    """What a start comes to, or raises; None: ``stop`` was set before, and it was cut off.

    A start may be cut off anywhere, as by a crash, and what it waits for may never come.
    """
    loop = asyncio.get_running_loop()
    start = loop.create_task(starting, name="start")
    told = loop.create_task(stop.wait(), name="wait for a signal")
    await asyncio.wait((start, told), return_when=asyncio.FIRST_COMPLETED)
    told.cancel()
    if start.done():
        return await start
    _log.info("stopping while starting")
    start.cancel()
    await asyncio.wait((start,), timeout=STOP_GRACE_S)
    return None


class Supervisor:
    """Who started this process and wants to hear of it: nobody, or :mod:`geminga.app.lifecycle.systemd`."""

    is_there = False

    def ready(self, text: str) -> None:
        """It serves."""

    def stopping(self) -> None:
        """It was told to stop."""

    def close(self) -> None:
        """Tell nothing more."""


def supervisor() -> Supervisor:
    """Of this process; raises ConfigurationError for variables of a service manager that are not as they should be."""
    if not os.environ.get("NOTIFY_SOCKET"):
        return Supervisor()
    from geminga.app.lifecycle.systemd import systemd_supervisor

    try:
        return systemd_supervisor()
    except ValueError as error:
        raise ConfigurationError(str(error)) from None


class ReadyLine(Protocol):
    """What is told when everything is up."""

    def __call__(self, *, json_line: bool) -> str:
        """As text, or as JSON."""


async def serve_until(
    stop: asyncio.Event,
    told: Supervisor,
    ready_line: ReadyLine,
    close: Callable[[], Awaitable[object]],
    *,
    json_line: bool,
) -> None:
    """Tell that everything is up, and ``close`` it when it is to stop."""
    print(ready_line(json_line=json_line), flush=True)
    tell_unclaimed()
    told.ready(ready_line(json_line=False))
    await stop.wait()
    _log.info("stopping")
    told.stopping()
    await close()
    told.close()


def tell_unclaimed() -> None:
    """Warn of sockets that systemd made and nobody took: who connects there is never answered."""
    for host, port in unclaimed_sockets():
        _log.warning(
            "systemd listens on %s port %d for this service, which listens there not: nobody is answered there. "
            "ListenStream= takes the very address and port of bindAddress and a port of the configuration",
            host,
            port,
        )


def ignore_hang_up(loop: asyncio.AbstractEventLoop) -> None:
    """``systemctl reload`` where there is no file to look at again: without a handler SIGHUP ends the process."""
    loop.add_signal_handler(signal.SIGHUP, _log.info, "SIGHUP: there is no file to look at again")


def seconds_since_exec() -> float:
    """Seconds since the kernel started this process; where it does not tell, since this module was imported."""
    try:
        with open("/proc/self/stat", "rb") as file:
            # Field 22, counted behind the command's closing parenthesis: start time in clock ticks after boot.
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, IndexError, ValueError):
        return time.monotonic() - _IMPORTED_AT


def end_at_once(part: str, error: BaseException) -> NoReturn:
    """After a fatal error: one paragraph, and the end of the process."""
    # Not an orderly stop: after a failed fsync or on corrupt state nothing more may be written or acknowledged.
    try:
        from geminga.app.lifecycle.paragraphs import print_paragraph

        print_paragraph(
            f"stopped by a fatal error in {part}: {str(error) or type(error).__name__}. Nothing was acknowledged after "
            "it. Find out what is wrong with the disk or the data before you start again."
        )
    finally:
        # Also when nobody reads standard error any more, or an import fails on the disk that is failing.
        os._exit(EXIT_FATAL)
