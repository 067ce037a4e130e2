"""A cluster begins to share its configuration: nothing that its own store has of it is forgotten."""

from __future__ import annotations

import asyncio

import pytest

from geminga.app.storage.shared_configuration import divided, note, noted
from geminga.broker.ownership.core.broker_data import BROKERS_PATH
from geminga.metadata.memory import MemoryMetadata, MemoryMetadataStore
from geminga.model.errors import ConfigurationError
from geminga.runtime import real_runtime
from support.house.real_runtimes import close_runtime

DOCUMENTS = (
    "/admin/policies/acme",
    "/admin/policies/acme/orders",
    "/admin/partitioned-topics/acme/orders/persistent/t",
    "/admin/resourcegroups/g",
)
OWN = (
    "/admin/local-policies/acme/orders",
    "/admin/clusters/east/policies",
    "/managed-ledgers/acme/orders/persistent/t",
)


@pytest.mark.parametrize("missing", [None, *DOCUMENTS])
def test_what_is_not_in_the_shared_store_refuses_the_start_by_name(missing: str | None) -> None:
    async def main() -> None:
        runtime = real_runtime(lambda part, error: None)
        own, shared = MemoryMetadataStore(runtime, MemoryMetadata()), MemoryMetadataStore(runtime, MemoryMetadata())
        for path in (*DOCUMENTS, *OWN):
            await own.put(path, b"{}", expected_version=None)
        for path in DOCUMENTS:
            if path != missing and not (missing and path.startswith(f"{missing}/")):
                await shared.put(path, b"{}", expected_version=None)
        try:
            if missing is None:
                tree = await divided(own, shared, "zk:own", "zk:all")
                assert await tree.children("/admin/policies") == ["acme"]
            else:
                told = rf"configurationMetadataStoreUrl=zk:all: it has no {missing}, which .*\(zk:own\) has; expected"
                with pytest.raises(ConfigurationError, match=told):
                    await divided(own, shared, "zk:own", "zk:all")
        finally:
            await shared.close()
            await own.close()
            await close_runtime(runtime)

    asyncio.run(main())


def test_what_was_deleted_since_keeps_no_broker_from_starting_and_a_place_that_knows_nothing_does() -> None:
    async def main() -> None:
        runtime = real_runtime(lambda part, error: None)
        own, shared, other = (MemoryMetadataStore(runtime, MemoryMetadata()) for _ in range(3))
        for path in DOCUMENTS:
            for store in (own, shared):
                await store.put(path, b"{}", expected_version=None)
        told = (
            r"=zk:all: it knows no cluster east; expected .*initialize-cluster-metadata -c east -cms zk:all -md zk:own"
        )
        with pytest.raises(ConfigurationError, match=told):
            await divided(own, shared, "zk:own", "zk:all", cluster="east")
        await shared.put("/admin/clusters/east", b"{}", expected_version=None)
        await divided(own, shared, "zk:own", "zk:all", cluster="east")
        await note(own, "zk:all")
        for path in reversed(DOCUMENTS):
            await shared.delete(path)
        await divided(own, shared, "zk:own", "zk:all", cluster="east")
        with pytest.raises(ConfigurationError, match="=zk:other: it knows no cluster east"):
            await divided(own, other, "zk:own", "zk:other", cluster="east")
        for store in (own, shared, other):
            await store.close()
        await close_runtime(runtime)

    asyncio.run(main())


def test_brokers_of_a_cluster_look_in_one_place() -> None:
    async def main() -> None:
        runtime = real_runtime(lambda part, error: None)
        own = MemoryMetadataStore(runtime, MemoryMetadata())
        await note(own, "")
        assert await noted(own) == ""
        await own.put(f"{BROKERS_PATH}/apache:8080", b"{}", expected_version=None)  # which notes nothing
        await note(own, "zk:all")
        await own.delete(f"{BROKERS_PATH}/apache:8080")
        await note(own, "")
        await own.put("/admin/policies/acme", b"{}", expected_version=None)
        await note(own, "zk:all")
        broker = f"{BROKERS_PATH}/10.0.0.1:8080"
        await own.put(broker, b"{}", expected_version=None, ephemeral=True)
        await note(own, "zk:all")
        with pytest.raises(
            ConfigurationError, match=r"=\(nothing\): brokers .*10\.0\.0\.1:8080\) keep .* in zk:all, and"
        ):
            await note(own, "")
        await note(own, "zk:all,other")  # may be another name of it
        await own.delete(broker)
        await note(own, "")
        assert await noted(own) == ""
        await own.put(broker, b"{}", expected_version=None, ephemeral=True)
        with pytest.raises(
            ConfigurationError, match=r"=zk:all: .* keep tenants and policies in the cluster's own store"
        ):
            await note(own, "zk:all")
        assert await noted(own) == ""
        await own.close()
        await close_runtime(runtime)

    asyncio.run(main())
