"""``geminga proxy``: between clients and brokers that they can not reach."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from geminga.app.commands.server_options import (
    LogFile,
    LogFileBytes,
    LogFiles,
    LogFormat,
    LogLevel,
    ReadyAsJson,
    Settings,
)
from geminga.app.configuration.core.log_options import FILE_BYTES, FILES, JSON, LogOptions


def proxy(
    broker: Annotated[
        str | None,
        typer.Option("--broker", metavar="URL", help="brokerServiceURL (or with +ssl, brokerServiceURLTLS)."),
    ] = None,
    web: Annotated[
        str | None, typer.Option("--web", metavar="URL", help="brokerWebServiceURL (or with https, ...TLS).")
    ] = None,
    metadata: Annotated[
        str | None,
        typer.Option("--metadata", metavar="zk:HOST:PORT", help="metadataStoreUrl: brokers are found there."),
    ] = None,
    port: Annotated[
        int | None, typer.Option("--port", help="Port of the binary protocol (6650); 0: a free one.")
    ] = None,
    web_port: Annotated[int | None, typer.Option("--web-port", help="Port of HTTP (8080); 0: a free one.")] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="FILE", help="Pulsar's proxy.conf or a .toml file; may be repeated."),
    ] = None,
    assignments: Settings = None,
    json_line: ReadyAsJson = False,
    log_level: LogLevel = "info",
    log_format: LogFormat = "text",
    log_file: LogFile = "",
    log_file_bytes: LogFileBytes = FILE_BYTES,
    log_files: LogFiles = FILES,
) -> None:
    """Run a proxy between clients and brokers that they can not reach, until SIGTERM or SIGINT."""
    from geminga.app.configuration.proxy_config import load_proxy_config
    from geminga.app.lifecycle.log_lines import begin_log
    from geminga.app.proxy.process import run_proxy

    begin_log(LogOptions(log_level, log_format, log_file, log_file_bytes, log_files))
    given = {"metadataStoreUrl": metadata, "servicePort": port, "webServicePort": web_port}
    if broker is not None:
        given["brokerServiceURLTLS" if broker.startswith("pulsar+ssl:") else "brokerServiceURL"] = broker
    if web is not None:
        given["brokerWebServiceURLTLS" if web.startswith("https:") else "brokerWebServiceURL"] = web
    overrides = [*(assignments or ()), *(f"{key}={value}" for key, value in given.items() if value is not None)]
    run_proxy(load_proxy_config(config or (), os.environ, overrides), json_line=json_line or log_format == JSON)
