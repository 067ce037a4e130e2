"""``geminga bookie initnewcluster`` and ``metaformat``: the bookies' part of a ZooKeeper, made and removed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from geminga.app.configuration.bookie_config import BookieProcessConfig
from geminga.app.lifecycle.process_life import end_at_once
from geminga.bookie.cluster_metadata import format_cluster, init_new_cluster, look
from geminga.bookkeeper import MetadataLiveLedgers
from geminga.broker.ownership.core.broker_data import BROKERS_PATH
from geminga.metadata.copying import refuse_unfinished
from geminga.metadata.ports import MetadataStore
from geminga.model.errors import ConfigurationError, DataDirectoryError, MetadataError
from geminga.runtime import Runtime, real_runtime

if TYPE_CHECKING:
    from geminga.metadata.core.zookeeper_address import ZooKeeperAddress

T = TypeVar("T")


def init_cluster(config: BookieProcessConfig) -> dict[str, object]:
    """Make it; what was made. Raises ConfigurationError, DataDirectoryError if something is there, MetadataError."""

    async def making(metadata: MetadataStore, runtime: Runtime) -> dict[str, object]:
        return {"instanceId": await init_new_cluster(metadata, runtime)}

    return _in_cluster(config, making)


def format_metadata(config: BookieProcessConfig, *, force: bool) -> dict[str, object]:
    """Remove it, and begin anew; what was removed.

    Raises ConfigurationError, DataDirectoryError without ``force`` or while a bookie is up, MetadataError.
    """

    async def formatting(metadata: MetadataStore, runtime: Runtime) -> dict[str, object]:
        ledgers = await MetadataLiveLedgers(metadata).live_ledger_ids()
        if ledgers is None:
            raise MetadataError(f"{config.metadata}: which ledgers there are can not be told; nothing was removed")
        brokers = await metadata.children(BROKERS_PATH)
        if brokers:
            raise DataDirectoryError(f"{', '.join(brokers)} is registered as a broker of this cluster. Stop it first")
        found = await look(metadata, len(ledgers))
        if found.is_there and not force:
            raise DataDirectoryError(
                f"{config.metadata} has {found.ledgers} ledgers and the cookies of {found.cookies} bookies. What the "
                "ledgers hold would be lost, and their bookies have to be formatted as well (geminga bookie format). "
                "Add --force to remove them"
            )
        instance_id = await format_cluster(metadata, runtime)
        return {"removedLedgers": found.ledgers, "removedCookies": found.cookies, "instanceId": instance_id}

    return _in_cluster(config, formatting)


def _in_cluster(
    config: BookieProcessConfig, do: Callable[[MetadataStore, Runtime], Awaitable[dict[str, object]]]
) -> dict[str, object]:
    address = config.metadata
    if address is None:
        raise ConfigurationError("no metadata store: expected --metadata zk:host:port/path")

    async def doing(metadata: MetadataStore, runtime: Runtime) -> dict[str, object]:
        await refuse_unfinished(metadata, str(address))
        return await do(metadata, runtime)

    return with_store(config, address, doing)


def with_store(
    config: BookieProcessConfig, address: ZooKeeperAddress, do: Callable[[MetadataStore, Runtime], Awaitable[T]]
) -> T:
    """What ``do`` gives, which is handed the metadata store at ``address``, on a loop of its own. Raises MetadataError,
    and what ``do`` does."""

    async def doing() -> T:
        from geminga.metadata.zookeeper import ZooKeeperMetadataStore

        runtime = real_runtime(end_at_once)
        try:
            timeout_ms = config.server.zk_timeout_ms
            metadata = await ZooKeeperMetadataStore.open(runtime, address, session_timeout_ms=timeout_ms)
            try:
                return await do(metadata, runtime)
            finally:
                await metadata.close()
        finally:
            await runtime.threads.close()
            await runtime.disk.close()

    return asyncio.run(doing())
