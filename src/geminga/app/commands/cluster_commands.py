"""``geminga initialize-cluster-metadata``: what a cluster begins with, before its first broker starts."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer


def initialize_cluster_metadata(
    cluster: Annotated[str, typer.Option("-c", "--cluster", help="Name of the cluster.")],
    web_service_url: Annotated[str, typer.Option("-uw", "--web-service-url", help="http://host:port.")],
    metadata_store: Annotated[
        str,
        typer.Option("-md", "--metadata-store", metavar="STORE", help="zk:HOST:PORT/PATH, or sqlite:DIR (--data DIR)."),
    ],
    configuration_metadata_store: Annotated[
        str, typer.Option("-cms", "--configuration-metadata-store", help="zk:HOST:PORT/PATH that clusters share.")
    ] = "",
    web_service_url_tls: Annotated[str, typer.Option("-tw", "--web-service-url-tls", help="https://host:port.")] = "",
    broker_service_url: Annotated[str, typer.Option("-ub", "--broker-service-url", help="pulsar://host:port.")] = "",
    broker_service_url_tls: Annotated[
        str, typer.Option("-tb", "--broker-service-url-tls", help="pulsar+ssl://host:port.")
    ] = "",
    proxy_url: Annotated[str, typer.Option("-pu", "--proxy-url", help="Where a proxy is to be connected to.")] = "",
    proxy_protocol: Annotated[str, typer.Option("-pp", "--proxy-protocol", help="SNI.")] = "",
    tls_enable: Annotated[bool, typer.Option("-te", "--tls-enable", help="Other clusters connect with TLS.")] = False,
    auth_plugin: Annotated[str, typer.Option("--auth-plugin", help="How other clusters authenticate.")] = "",
    auth_parameters: Annotated[str, typer.Option("--auth-parameters", help="What that takes.")] = "",
    bundles: Annotated[
        int, typer.Option("-bn", "--default-namespace-bundle-number", help="Bundles of the first namespaces; 0: 16.")
    ] = 0,
    transaction_coordinators: Annotated[
        int | None,
        typer.Option("--initial-num-transaction-coordinators", help="Of transactions; without: 16 if there are none."),
    ] = None,
    stream_storage_containers: Annotated[
        int, typer.Option("--initial-num-stream-storage-containers", help="Without effect: there is no such storage.")
    ] = 16,
    session_timeout_ms: Annotated[
        int, typer.Option("--zookeeper-session-timeout-ms", help="Of the session with a ZooKeeper.")
    ] = 30_000,
    existing_bookkeeper: Annotated[
        str, typer.Option("--existing-bk-metadata-service-uri", help="Refused: not built.")
    ] = "",
    store_config: Annotated[
        str, typer.Option("-mscp", "--metadata-store-config-path", help="A file of ZooKeeper's client properties: TLS.")
    ] = "",
    configuration_store_config: Annotated[
        str, typer.Option("-cmscp", "--configuration-metadata-store-config-path", help="The same file of -cms.")
    ] = "",
    is_json: Annotated[bool, typer.Option("--json", help="Print what was made as JSON.")] = False,
) -> None:
    """Write what a new cluster begins with: its data, tenants public and pulsar, their first namespaces.

    What is there stays as it is, so that it may be run again. A standalone does it by itself when it starts.
    """
    from geminga.app.storage.cluster_metadata import initialize
    from geminga.app.storage.core.cluster_options import ClusterOptions

    options = ClusterOptions(
        cluster=cluster,
        web_service_url=web_service_url,
        metadata_store=metadata_store,
        configuration_metadata_store=configuration_metadata_store,
        web_service_url_tls=web_service_url_tls,
        broker_service_url=broker_service_url,
        broker_service_url_tls=broker_service_url_tls,
        proxy_url=proxy_url,
        proxy_protocol=proxy_protocol,
        is_tls_enabled=tls_enable,
        auth_plugin=auth_plugin,
        auth_parameters=auth_parameters,
        bundles=bundles,
        transaction_coordinators=transaction_coordinators,
        stream_storage_containers=stream_storage_containers,
        session_timeout_ms=session_timeout_ms,
        existing_bookkeeper=existing_bookkeeper,
        store_config=store_config,
        configuration_store_config=configuration_store_config,
    )
    _tell(cluster, initialize(options, partial(typer.echo, err=True)), is_json=is_json)


def _tell(cluster: str, changed: list[str], *, is_json: bool) -> None:
    import json

    if is_json:
        print(json.dumps({"cluster": cluster, "changed": changed}))
    elif changed:
        print(f"Metadata of cluster {cluster} are set up: {', '.join(changed)}")
    else:
        print(f"Metadata of cluster {cluster} were there already")
