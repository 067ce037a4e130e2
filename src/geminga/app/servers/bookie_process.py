"""The process of ``geminga bookie``: its life from the start to the ready line and the end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from functools import partial
from typing import Final

from geminga.app.configuration.bookie_config import BookieProcessConfig
from geminga.app.lifecycle.event_loop import loop_factory
from geminga.app.lifecycle.process_life import (
    STOP_GRACE_S,
    begun,
    end_at_once,
    ignore_hang_up,
    keep_freed_memory,
    raise_open_files,
    seconds_since_exec,
    serve_until,
    settle_collector,
    stop_on_signals,
    supervisor,
)
from geminga.app.servers.bookie_server import BookieProcessServer, ServedBookie
from geminga.runtime import get_logger
from geminga.version import __version__

#: Seconds that an orderly stop may take: the write cache is flushed.
STOP_S: Final = 60.0

_log = get_logger(__name__)


def run_bookie(config: BookieProcessConfig, data_dir: str, *, json_line: bool) -> None:
    """Run until SIGTERM or SIGINT; raises what kept it from starting (GemingaError, OSError)."""
    raise_open_files()
    keep_freed_memory()
    for warning in config.warnings:
        _log.warning("%s", warning)
    with asyncio.Runner(loop_factory=loop_factory(config.server.event_loop)) as runner:
        runner.run(_serve(config, data_dir, json_line))


async def _serve(config: BookieProcessConfig, data_dir: str, json_line: bool) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    told = supervisor()
    stop_on_signals(loop, stop, latest_s=lambda: STOP_S + STOP_GRACE_S)
    server = BookieProcessServer(config, data_dir, on_fatal=end_at_once)
    if config.tls is not None:
        loop.add_signal_handler(signal.SIGHUP, server.look_at_files)
    elif told.is_there:
        ignore_hang_up(loop)
    address = await begun(server.start(), stop)
    if address is None:
        return
    settle_collector()
    await serve_until(stop, told, partial(bookie_ready_line, address), server.stop, json_line=json_line)


def bookie_ready_line(address: ServedBookie, *, json_line: bool) -> str:
    """The line that tells that everything is up."""
    seconds = round(seconds_since_exec(), 3)
    if json_line:
        return json.dumps(
            {
                "bookieId": address.bookie_id,
                "host": address.host,
                "port": address.port,
                "httpPort": address.http_port,
                "journalDirectories": [pair.journal for pair in address.directories],
                "ledgerDirectories": [pair.ledgers for pair in address.directories],
                "startupSeconds": seconds,
                "pid": os.getpid(),
                "version": __version__,
            }
        )
    http = "" if address.http_port is None else f", metrics on port {address.http_port}"
    journals, ledgers = (", ".join(paths) for paths in zip(*address.directories, strict=True))
    return (
        f"Geminga {__version__}: bookie {address.bookie_id} is ready after {seconds:.2f} s on port "
        f"{address.port}{http} (journal in {journals}, entries in {ledgers}, process {os.getpid()})"
    )
