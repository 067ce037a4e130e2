"""A tree in two stores against the same in one, for any sequence of operations on nodes that are of one store."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from geminga.broker.resources.configuration_paths import ConfigurationPaths
from geminga.metadata.divided import DividedMetadataStore
from geminga.metadata.memory import MemoryMetadataStore
from geminga.model.errors import MetadataError
from geminga.runtime import real_runtime
from support.house.real_runtimes import close_runtime

PATHS = ConfigurationPaths()
BORDERS = ("/", "/admin", "/admin/clusters/c")
NODES = (
    *("/admin/policies/t", "/admin/policies/t/n", "/admin/policies/u/n"),
    *("/admin/clusters/c/failureDomain", "/admin/clusters/c/failureDomain/d", "/admin/clusters/c/policies"),
    *("/admin/partitioned-topics/t/n/persistent/x", "/admin/resourcegroups/g", "/admin/resourcegroups"),
    *("/admin/local-policies/t/n", "/admin/configuration", "/managed-ledgers/t/n", "/ledgers/L1"),
)
#: Parents as well, which the store makes.
SEEN = sorted({*BORDERS, *NODES, *(node.rpartition("/")[0] or "/" for node in NODES)})

OPERATIONS = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(NODES), st.binary(max_size=2), st.sampled_from((None, -1, 0, 1))),
    st.tuples(st.just("add"), st.sampled_from(NODES)),
    st.tuples(st.just("delete"), st.sampled_from(NODES), st.sampled_from((None, 0, 1))),
)


async def done(store: Any, operation: tuple[Any, ...]) -> object:
    match operation:
        case "put", path, value, expected:
            outcome = await store.put(path, value, expected_version=expected)
            return outcome.path, outcome.stat.version
        case "add", path:
            return (await store.put(f"{path}/s-", b"", expected_version=None, sequential=True)).path
        case "delete", path, expected:
            await store.delete(path, expected_version=expected)
    return None


async def seen(store: Any, path: str) -> tuple[object, ...]:
    node = await store.get(path)
    what = None if node is None else (node.value, node.stat.version)
    return what, await store.exists(path), await store.children(path)


@given(st.lists(OPERATIONS, max_size=12))
def test_it_is_one_tree(operations: list[tuple[Any, ...]]) -> None:
    async def main() -> None:
        runtime = real_runtime(lambda part, error: None)
        own, shared, one = (MemoryMetadataStore(runtime) for _ in range(3))
        divided = DividedMetadataStore(own, shared, PATHS)
        # Of a cluster that is not there nothing is kept.
        for operation in (("put", "/admin/clusters/c", b"{}", None), *operations):
            outcomes: list[object] = []
            for store in (divided, one):
                try:
                    outcomes.append(await done(store, operation))
                except MetadataError as error:
                    outcomes.append(type(error))
            assert outcomes[0] == outcomes[1], operation
            for path in SEEN:
                assert await seen(divided, path) == await seen(one, path), (operation, path)
        for store, is_shared in ((own, False), (shared, True)):
            for path in NODES:
                node = await store.get(path)
                assert node is None or not node.value or PATHS.is_shared(path) == is_shared, path
        await divided.close()
        await one.close()
        await close_runtime(runtime)

    asyncio.run(main())
