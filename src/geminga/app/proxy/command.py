"""``geminga proxy``: between clients and brokers that they can not reach."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from geminga.app.commands.server_options import ReadyAsJson, Settings, files_option, settings_of, with_log_options
from geminga.app.configuration.core.log_options import JSON, LogOptions


@with_log_options
def proxy(
    log: LogOptions,
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
    config: Annotated[list[str] | None, files_option("Pulsar's proxy.conf")] = None,
    assignments: Settings = None,
    json_line: ReadyAsJson = False,
) -> None:
    """Run a proxy between clients and brokers that they can not reach, until SIGTERM or SIGINT."""
    from geminga.app.configuration.proxy_config import load_proxy_config
    from geminga.app.lifecycle.log_lines import begin_log
    from geminga.app.proxy.process import run_proxy

    begin_log(log)
    given = {"metadataStoreUrl": metadata, "servicePort": port, "webServicePort": web_port}
    if broker is not None:
        given["brokerServiceURLTLS" if broker.startswith("pulsar+ssl:") else "brokerServiceURL"] = broker
    if web is not None:
        given["brokerWebServiceURLTLS" if web.startswith("https:") else "brokerWebServiceURL"] = web
    loaded = load_proxy_config(config or (), os.environ, settings_of(assignments, given))
    run_proxy(loaded, json_line=json_line or log.form == JSON)
