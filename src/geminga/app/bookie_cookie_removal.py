"""The node of a stopped bookie's cookie, removed with its files: the emptied bookie may begin anew under its id."""

from __future__ import annotations

import asyncio

from geminga.app.bookie_config import BookieProcessConfig
from geminga.app.process_life import end_at_once
from geminga.bookie.registration import forget_cookie
from geminga.model.errors import ConfigurationError, DataDirectoryError
from geminga.runtime import real_runtime
from geminga.wire.bookkeeper.bookie_cookie import BookieCookie


def remove_cookie(config: BookieProcessConfig, cookie: BookieCookie | None) -> bool:
    """Remove it where ``config`` has the metadata store; False: there was none.

    Raises ConfigurationError without a metadata store, DataDirectoryError where the store holds another bookie's
    cookie under the id, MetadataError.
    """
    address = config.metadata
    if address is None:
        raise ConfigurationError("--delete-cookie: expected a metadata store (--set metadataServiceUri=zk:host:port)")
    if cookie is None:
        raise DataDirectoryError("--delete-cookie: no directory tells the bookie's id (VERSION)")

    async def removing() -> bool:
        from geminga.metadata.zookeeper import ZooKeeperMetadataStore

        runtime = real_runtime(end_at_once)
        try:
            timeout_ms = config.server.zk_timeout_ms
            store = await ZooKeeperMetadataStore.open(runtime, address, session_timeout_ms=timeout_ms)
            try:
                return await forget_cookie(store, cookie)
            finally:
                await store.close()
        finally:
            await runtime.threads.close()
            await runtime.disk.close()

    return asyncio.run(removing())
