"""``geminga initialize-cluster-metadata``: what a cluster begins with, before its first broker starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from geminga.app.core.cluster_options import ClusterOptions
    from geminga.metadata import MetadataStore
    from geminga.metadata.core.zookeeper_address import ZooKeeperAddress
    from geminga.runtime import Runtime


def initialize_cluster_metadata(
    cluster: Annotated[str, typer.Option("-c", "--cluster", help="Name of the cluster.")],
    web_service_url: Annotated[str, typer.Option("-uw", "--web-service-url", help="http://host:port.")],
    metadata_store: Annotated[
        str,
        typer.Option("-md", "--metadata-store", metavar="STORE", help="zk:HOST:PORT/PATH, or sqlite:DIR (--data DIR)."),
    ],
    configuration_metadata_store: Annotated[
        str, typer.Option("-cms", "--configuration-metadata-store", help="The same as --metadata-store.")
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
        int, typer.Option("--initial-num-transaction-coordinators", help="Coordinators of transactions.")
    ] = 16,
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
        str, typer.Option("-cmscp", "--configuration-metadata-store-config-path", help="The same, or nothing.")
    ] = "",
    is_json: Annotated[bool, typer.Option("--json", help="Print what was made as JSON.")] = False,
) -> None:
    """Write what a new cluster begins with: its data, tenants public and pulsar, their first namespaces.

    What is there stays as it is, so that it may be run again. A standalone does it by itself when it starts.
    """
    from geminga.app.core.cluster_options import ClusterOptions

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
    _tell(cluster, _initialize(options), is_json=is_json)


def _tell(cluster: str, changed: list[str], *, is_json: bool) -> None:
    import json

    if is_json:
        print(json.dumps({"cluster": cluster, "changed": changed}))
    elif changed:
        print(f"Metadata of cluster {cluster} are set up: {', '.join(changed)}")
    else:
        print(f"Metadata of cluster {cluster} were there already")


def _initialize(options: ClusterOptions) -> list[str]:
    """The nodes that were made or changed; raises GemingaError, OSError."""
    import asyncio
    import os

    from geminga.app.core.cluster_options import check, metadata_store
    from geminga.app.zookeeper_client import with_client_config

    check(options)
    store = metadata_store(options)
    if isinstance(store, str):
        return asyncio.run(_write(os.path.abspath(store), options))
    return asyncio.run(_write(with_client_config(store, options.store_config), options))


async def _write(store: str | ZooKeeperAddress, options: ClusterOptions) -> list[str]:
    from geminga.app.core.cluster_options import BUNDLES_DEFAULT, cluster_data
    from geminga.broker.resources import ClusterSetup, Resources, initialize_cluster
    from geminga.runtime import real_runtime

    setup = ClusterSetup(
        options.cluster,
        cluster_data(options),
        bundles=options.bundles or BUNDLES_DEFAULT,
        transaction_coordinators=options.transaction_coordinators,
        joins=True,
    )
    runtime = real_runtime(_stop)
    try:
        if isinstance(store, str):
            metadata = await _open_directory(runtime, store)
            made: list[str] = []
        else:
            metadata, made = await _open_zookeeper(runtime, store, options.session_timeout_ms)
        try:
            return [*made, *await initialize_cluster(Resources(metadata), setup)]
        finally:
            await metadata.close()
    finally:
        await runtime.disk.close()
        await runtime.threads.close()


async def _open_directory(runtime: Runtime, directory: str) -> MetadataStore:
    import os

    from geminga import __version__
    from geminga.app.data_directory import METADATA_FILE, claim_directory
    from geminga.metadata import SqliteMetadataStore

    await claim_directory(runtime.disk, directory, pid=os.getpid(), program=f"geminga {__version__}")
    return await SqliteMetadataStore.open(runtime, os.path.join(directory, METADATA_FILE))


async def _open_zookeeper(
    runtime: Runtime, address: ZooKeeperAddress, session_timeout_ms: int
) -> tuple[MetadataStore, list[str]]:
    """With what bookies and their clients look for, and which of that was made."""
    from geminga.bookie.registration import draw_cluster_id, prepare_cluster
    from geminga.metadata.copying import refuse_unfinished
    from geminga.metadata.zookeeper import ZooKeeperMetadataStore
    from geminga.wire.bookkeeper.bookie_registration import COOKIES_PATH, INSTANCE_ID_PATH
    from geminga.wire.bookkeeper.ledger_path import LAYOUT_PATH

    metadata = await ZooKeeperMetadataStore.open(runtime, address, session_timeout_ms=session_timeout_ms)
    try:
        await refuse_unfinished(metadata, str(address))
        missing = [path for path in (LAYOUT_PATH, INSTANCE_ID_PATH) if not await metadata.exists(path)]
        await prepare_cluster(metadata)
        if await metadata.children(COOKIES_PATH):
            # Its bookies have none in their cookies: they would not fit any more.
            missing = [path for path in missing if path != INSTANCE_ID_PATH]
        elif INSTANCE_ID_PATH in missing:
            await draw_cluster_id(metadata, runtime)
    except BaseException:
        await metadata.close()
        raise
    return metadata, missing


def _stop(part: str, error: BaseException) -> NoReturn:
    raise SystemExit(f"geminga: stopped by a fatal error in {part}: {error or type(error).__name__}")
