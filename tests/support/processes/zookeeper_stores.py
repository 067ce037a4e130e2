"""A metadata store on a real ZooKeeper, for as long as a test uses it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from geminga.metadata.core.zookeeper_address import ZooKeeperAddress
from geminga.metadata.zookeeper import ZooKeeperMetadataStore
from geminga.runtime import real_runtime
from support.house.real_runtimes import close_runtime


def opened(
    address: ZooKeeperAddress, main: Callable[[ZooKeeperMetadataStore], Awaitable[None]], *, wait_s: float = 30
) -> None:
    """Run ``main`` with a store that is opened within ``wait_s`` seconds. Raises what opening raises."""

    async def scenario() -> None:
        runtime = real_runtime(lambda part, error: pytest.fail(f"{part}: {error}"))
        try:
            store = await ZooKeeperMetadataStore.open(runtime, address, connect_timeout_s=wait_s)
            try:
                await main(store)
            finally:
                await store.close()
        finally:
            await close_runtime(runtime)

    asyncio.run(scenario())
