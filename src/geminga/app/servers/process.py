"""The process of ``geminga standalone`` and ``geminga broker``: from the start to the ready line and the end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from geminga.app.configuration.config import Config
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
from geminga.app.servers.broker_server import BrokerServer
from geminga.app.servers.listeners import Addresses
from geminga.app.servers.standalone import StandaloneServer
from geminga.runtime import get_logger
from geminga.version import __version__

_log = get_logger(__name__)


class DataLocation(NamedTuple):
    """Where everything is kept, as the ready line tells it."""

    key: str
    where: str
    words: str
    #: A line before it, for what waits for one.
    announce: str = ""


def run_standalone(config: Config, data_dir: str, *, json_line: bool, announce: str = "") -> None:
    """Run until SIGTERM or SIGINT; raises what kept it from starting (GemingaError, OSError).

    ``announce``: a line that is printed before the ready line.
    """
    raise_open_files()
    keep_freed_memory()
    for warning in config.warnings:
        _log.warning("%s", warning)

    def server() -> BrokerServer:
        return StandaloneServer(config, data_dir, on_fatal=end_at_once, pid=os.getpid())

    with asyncio.Runner(loop_factory=loop_factory(config.server.event_loop)) as runner:
        location = DataLocation("dataDir", data_dir, "data in", announce)
        runner.run(serve(config, server, location, json_line=json_line))


async def serve(
    config: Config, make_server: Callable[[], BrokerServer], location: DataLocation, *, json_line: bool
) -> None:
    """Start a broker on the running loop, and stop it at a signal; raises what kept it from starting."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    told = supervisor()
    stop_on_signals(loop, stop, latest_s=lambda: config.server.shutdown_timeout_ms / 1000 + STOP_GRACE_S)
    server = make_server()
    # As if an operator had sent it: the same limit holds.
    server.ends_with(partial(signal.raise_signal, signal.SIGTERM))
    if config.follows_files:
        # Without, it ends the process as it always did.
        loop.add_signal_handler(signal.SIGHUP, server.look_at_files)
    elif told.is_there:
        ignore_hang_up(loop)
    addresses = await begun(server.start(), stop)
    if addresses is None:
        return
    settle_collector()
    if location.announce:
        print(json.dumps({"message": location.announce}) if json_line else location.announce, flush=True)
    await serve_until(stop, told, partial(ready_line, addresses, location), server.stop, json_line=json_line)


def ready_line(addresses: Addresses, location: DataLocation, *, json_line: bool) -> str:
    """The line that tells that everything is up."""
    seconds = round(seconds_since_exec(), 3)
    if json_line:
        return json.dumps(
            {
                "brokerServiceUrl": addresses.broker_service_url,
                "webServiceUrl": addresses.web_service_url,
                **{
                    key: url
                    for key, url in (
                        ("brokerServiceUrlTls", addresses.broker_service_url_tls),
                        ("webServiceUrlTls", addresses.web_service_url_tls),
                    )
                    if url
                },
                "startupSeconds": seconds,
                "pid": os.getpid(),
                location.key: location.where,
                "version": __version__,
            }
        )
    urls = dict.fromkeys((*addresses[:2], addresses.broker_service_url_tls, addresses.web_service_url_tls))
    return (
        f"Geminga {__version__} is ready after {seconds:.2f} s: {' '.join(filter(None, urls))} "
        f"({location.words} {location.where}, process {os.getpid()})"
    )
