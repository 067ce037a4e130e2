"""The process of ``geminga standalone``: logging, signals, the ready line, the end."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import Final, NoReturn

from geminga import __version__
from geminga.app.config import Config
from geminga.app.core.descriptors import LIMIT_MIN
from geminga.app.descriptors import raise_descriptor_limit
from geminga.app.event_loop import loop_factory
from geminga.app.standalone import Addresses, StandaloneServer
from geminga.model.errors import ConfigurationError, UnavailableError
from geminga.runtime import get_logger

#: Exit code after a fatal error.
EXIT_FATAL: Final = 1
#: Seconds beyond ``brokerShutdownTimeoutMs`` after which the process ends whatever it is at.
STOP_GRACE_S: Final = 5.0
LOG_LEVELS: Final = ("debug", "info", "warning", "error")

_IMPORTED_AT: Final = time.monotonic()
_log = get_logger(__name__)


def configure_logging(level: str) -> None:
    """One line a record on standard error; raises :class:`ConfigurationError` for an unknown level."""
    if level not in LOG_LEVELS:
        raise ConfigurationError(f"--log-level {level}: expected one of {', '.join(LOG_LEVELS)}")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("geminga").setLevel(level.upper())


def run_standalone(config: Config, data_dir: str, *, json_line: bool) -> None:
    """Run until SIGTERM or SIGINT; raises what kept it from starting (GemingaError, OSError)."""
    before, limit = raise_descriptor_limit()
    if limit < LIMIT_MIN:
        raise UnavailableError(
            f"this process may open {limit} files, its hard limit; at least {LIMIT_MIN} are needed, and as many more "
            "as clients are to connect: raise it (ulimit -Hn, LimitNOFILE)"
        )
    _log.info("open files: at most %d%s", limit, f", raised from {before}" if limit > before else "")
    for warning in config.warnings:
        _log.warning("%s", warning)
    with asyncio.Runner(loop_factory=loop_factory(config.server.event_loop)) as runner:
        runner.run(_serve(config, data_dir, json_line))


async def _serve(config: Config, data_dir: str, json_line: bool) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    stop_on_signals(loop, stop, latest_s=config.server.shutdown_timeout_ms / 1000 + STOP_GRACE_S)
    server = StandaloneServer(config, data_dir, on_fatal=_end_at_once, pid=os.getpid())
    starting = loop.create_task(server.start(), name="start")
    stopping = loop.create_task(stop.wait(), name="wait for a signal")
    await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        # A start may be cut off anywhere, as by a crash, and recovery may take long.
        _log.info("stopping while starting")
        starting.cancel()
        await asyncio.wait((starting,), timeout=STOP_GRACE_S)
        return
    addresses = await starting
    # What was made until now lives as long as the process: later collections need not look at it.
    gc.collect()
    gc.freeze()
    print(ready_line(addresses, data_dir, json_line=json_line), flush=True)
    await stopping
    _log.info("stopping")
    await server.stop()


def stop_on_signals(loop: asyncio.AbstractEventLoop, stop: asyncio.Event, *, latest_s: float) -> None:
    """SIGTERM or SIGINT sets ``stop``; a second one ends the process at once, and so does the time after the first.

    The handlers run between two steps of the program, not of the loop: also while one callback holds the loop. That
    costs nothing that was acknowledged; the next start recovers.
    """
    is_stopping = False

    def leave(code: int, why: str) -> NoReturn:
        try:
            os.write(2, f"geminga: ended at once, {why}; the next start recovers\n".encode())
        finally:
            os._exit(code)

    def on_signal(number: int, _: FrameType | None) -> None:
        nonlocal is_stopping
        if is_stopping:
            leave(128 + number, f"by a second signal ({signal.Signals(number).name})")
        is_stopping = True
        latest = threading.Timer(latest_s, leave, (EXIT_FATAL, f"{latest_s:g} s after it was told to stop"))
        latest.daemon = True
        latest.start()
        loop.call_soon_threadsafe(stop.set)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)


def ready_line(addresses: Addresses, data_dir: str, *, json_line: bool) -> str:
    """The line that tells that everything is up."""
    seconds = round(seconds_since_exec(), 3)
    if json_line:
        return json.dumps(
            {
                "brokerServiceUrl": addresses.broker_service_url,
                "webServiceUrl": addresses.web_service_url,
                "startupSeconds": seconds,
                "pid": os.getpid(),
                "dataDir": data_dir,
                "version": __version__,
            }
        )
    return (
        f"Geminga {__version__} is ready after {seconds:.2f} s: {addresses.broker_service_url} "
        f"{addresses.web_service_url} (data in {data_dir}, process {os.getpid()})"
    )


def seconds_since_exec() -> float:
    """Seconds since the kernel started this process; where it does not tell, since this module was imported."""
    try:
        with open("/proc/self/stat", "rb") as file:
            # Field 22, counted behind the command's closing parenthesis: start time in clock ticks after boot.
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, IndexError, ValueError):
        return time.monotonic() - _IMPORTED_AT


def _end_at_once(part: str, error: BaseException) -> NoReturn:
    # Not an orderly stop: after a failed fsync or on corrupt state nothing more may be written or acknowledged.
    try:
        from geminga.app.cli import print_paragraph

        print_paragraph(
            f"stopped by a fatal error in {part}: {error or type(error).__name__}. Nothing was acknowledged after it. "
            "Find out what is wrong with the disk or the data before you start again."
        )
    finally:
        # Also when nobody reads standard error any more, or an import fails on the disk that is failing.
        os._exit(EXIT_FATAL)
