"""What a cluster begins with, in a ZooKeeper or in the data directory of a standalone; imports are lazy."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

    from geminga.app.storage.core.cluster_options import ClusterOptions
    from geminga.metadata import MetadataStore
    from geminga.metadata.core.zookeeper_address import ZooKeeperAddress
    from geminga.runtime import Runtime


def initialize(options: ClusterOptions, tell: Callable[[str], None] | None = None) -> list[str]:
    """The nodes that were made or changed; ``tell``: what was left out, in a sentence. Raises GemingaError, OSError."""
    import asyncio
    import os

    from geminga.app.configuration.zookeeper_client import with_client_config
    from geminga.app.storage.core.cluster_options import check, configuration_store, metadata_store

    check(options)
    store, shared = metadata_store(options), configuration_store(options)
    if shared is not None:
        shared = with_client_config(shared, options.configuration_store_config or options.store_config)
    if isinstance(store, str):
        return asyncio.run(_write(os.path.abspath(store), shared, options, tell))
    store = with_client_config(store, options.store_config)
    return asyncio.run(_write(store, None if shared == store else shared, options, tell))


async def _write(
    store: str | ZooKeeperAddress,
    shared: ZooKeeperAddress | None,
    options: ClusterOptions,
    tell: Callable[[str], None] | None,
) -> list[str]:
    from geminga.app.storage.core.cluster_options import BUNDLES_DEFAULT, COORDINATORS_DEFAULT, cluster_data
    from geminga.broker.resources import ClusterSetup, Resources, initialize_cluster
    from geminga.broker.resources.initialization import FIRST_NAMESPACES
    from geminga.runtime import real_runtime

    setup = ClusterSetup(
        options.cluster,
        cluster_data(options),
        bundles=options.bundles or BUNDLES_DEFAULT,
        transaction_coordinators=options.transaction_coordinators or 0,
        first_coordinators=COORDINATORS_DEFAULT,
        joins=FIRST_NAMESPACES,
    )
    runtime = real_runtime(_stop)
    try:
        if isinstance(store, str):
            metadata = await _open_directory(runtime, store)
            made: list[str] = []
        else:
            metadata, made = await _open_zookeeper(runtime, store, options.session_timeout_ms)
        if shared is not None:
            metadata = await _with_shared(runtime, metadata, str(store), shared, options.session_timeout_ms)
        try:
            resources = Resources(metadata)
            if tell is not None and await resources.are_kept_alike():
                tell(
                    f"the configuration of cluster {options.cluster} is kept alike with that of others: tenants and "
                    "namespaces that it has not were deleted, and are left to geminga admin"
                )
            return [*made, *await initialize_cluster(resources, setup)]
        finally:
            await metadata.close()
    finally:
        await runtime.disk.close()
        await runtime.threads.close()


async def _open_directory(runtime: Runtime, directory: str) -> MetadataStore:
    import os

    from geminga.app.storage.data_directory import METADATA_FILE, claim_directory
    from geminga.metadata import SqliteMetadataStore
    from geminga.version import __version__

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


async def _with_shared(
    runtime: Runtime, own: MetadataStore, own_url: str, address: ZooKeeperAddress, session_timeout_ms: int
) -> MetadataStore:
    """One tree with what clusters share at ``address``; ``own`` is closed if that fails."""
    from geminga.app.storage.shared_configuration import divided
    from geminga.metadata.copying import refuse_unfinished
    from geminga.metadata.zookeeper import ZooKeeperMetadataStore

    try:
        shared = await ZooKeeperMetadataStore.open(runtime, address, session_timeout_ms=session_timeout_ms)
        try:
            await refuse_unfinished(shared, str(address))
            return await divided(own, shared, own_url, str(address))
        except BaseException:
            await shared.close()
            raise
    except BaseException:
        await own.close()
        raise


async def point_to(address: ZooKeeperAddress, cluster: str, web_url: str, broker_url: str) -> bool:
    """Name new URLs in the data of a cluster that had others on this machine; whether it had. Others stay.

    Raises GemingaError.
    """
    from geminga.broker.resources import Resources
    from geminga.metadata.zookeeper import ZooKeeperMetadataStore
    from geminga.runtime import real_runtime

    wanted = {"serviceUrl": web_url, "brokerServiceUrl": broker_url}
    runtime = real_runtime(_stop)
    try:
        metadata = await ZooKeeperMetadataStore.open(runtime, address)
        try:
            clusters = Resources(metadata).clusters
            data = await clusters.get(cluster)
            stale = {
                key: url for key, url in wanted.items() if url != data.get(key) and _is_loopback_url(data.get(key))
            }
            if stale:
                await clusters.change(cluster, lambda now: {**now, **stale})
            return bool(stale)
        finally:
            await metadata.close()
    finally:
        await runtime.disk.close()
        await runtime.threads.close()


def _is_loopback_url(url: object) -> bool:
    return isinstance(url, str) and "://127.0.0.1:" in url


def _stop(part: str, error: BaseException) -> NoReturn:
    raise SystemExit(f"geminga: stopped by a fatal error in {part}: {str(error) or type(error).__name__}")
