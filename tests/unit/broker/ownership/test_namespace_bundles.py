"""The bundles of namespaces that a broker remembers: how many, and what news of one costs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from geminga.broker.ownership import namespace_bundles, owner_nodes
from geminga.broker.ownership.namespace_bundles import NamespaceBundles
from geminga.broker.ownership.ports import HERE
from geminga.broker.registry import namespaces, tenant_infos
from geminga.managed_ledger.factory import LIST_WATCHES_MAX
from geminga.metadata import MemoryMetadata, MemoryMetadataStore, Node
from geminga.metadata.socket import served
from geminga.metadata.socket import store as socket_store
from geminga.metadata.zookeeper import armed_watches
from geminga.model.topic_name import TopicName
from geminga.runtime import Runtime, next_turn
from geminga.sim import SimNode, SimWorld
from geminga.sim import run as run_simulated
from support.clusters.owning_pair import Pair, run_pair
from support.house.python_calls import counted_calls


def run_on_node(story: Callable[[SimNode], Awaitable[None]]) -> None:
    async def main(world: SimWorld) -> None:
        await world.node("broker").run(story)

    run_simulated(main, seed=1)


def test_news_of_one_bundle_has_not_all_namespaces_held_against_all_bundles():
    """A broker with bundles of 2,000 namespaces stood still for seconds whenever it heard of one, and every round."""

    async def story(pair: Pair):
        names = [TopicName.parse(f"public/n{number}/one") for number in range(200)]
        pair.a.known |= {name.namespace for name in names}
        for name in names:
            assert await pair.a.ask(name, is_authoritative=True) is HERE
        await pair.world.sleep(0.01)
        with counted_calls() as calls:
            pair.a.ownership.doubt(names[0])
            await pair.world.sleep(0.01)
            count = calls()
        assert await pair.a.ask(names[0]) is HERE
        assert count < 50 * len(names)

    run_pair(story)


def test_as_many_namespaces_are_remembered_as_may_be_and_the_oldest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespace_bundles, "NAMESPACES_REMEMBERED_MAX", 3)

    async def on_node(node: SimNode) -> None:
        async def policies_of(_namespace: str) -> dict[str, object]:
            return {"bundles": {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1}}

        store = MemoryMetadataStore(node.runtime)
        bundles = NamespaceBundles(store, node.runtime.clock, policies_of, lambda: None)
        names = [f"t/n{number}" for number in range(5)]
        remembered = []
        for name in names:
            assert await bundles.get(name) is not None
            remembered.append([one for one in names if bundles.known(one) is not None])
        assert remembered == [names[:1], names[:2], names[:3], names[1:4], names[2:5]]
        bundles.close()
        assert not store._watches._of_nodes

    run_on_node(on_node)


class ReadSlowly(MemoryMetadataStore):
    """Whoever reads a node for the ``count``-th time gets what was there before ``meanwhile``."""

    def __init__(self, runtime: Runtime, server: MemoryMetadata, count: int) -> None:
        super().__init__(runtime, server)
        self.left = count
        self.meanwhile: Callable[[], Awaitable[object]] | None = None

    async def get(self, path: str) -> Node | None:
        found = await super().get(path)
        self.left -= 1
        if self.left == 0:
            assert self.meanwhile is not None
            await self.meanwhile()
        return found


def test_who_reads_a_namespace_first_takes_no_split_of_another_broker_back() -> None:
    async def on_node(node: SimNode) -> None:
        async def policies_of(_namespace: str) -> dict[str, object]:
            return {}

        async def read_and_split() -> None:
            found = await there.get("t/n")
            assert found is not None
            await there.split(next(iter(found.all())), [1 << 20])

        server, clock = MemoryMetadata(), node.runtime.clock
        there = NamespaceBundles(MemoryMetadataStore(node.runtime, server), clock, policies_of, lambda: None)
        store = ReadSlowly(node.runtime, server, 1)
        store.meanwhile = read_and_split
        here = NamespaceBundles(store, clock, policies_of, lambda: None)
        found = [await each.read("t/n") for each in (here, there)]
        assert found[0] is not None
        assert (1 << 20) in found[0].boundaries
        assert found[0] == found[1]
        here.close()
        there.close()

    run_on_node(on_node)


@pytest.mark.parametrize("reads", [1, 2])
def test_bundles_that_are_split_while_they_are_read_are_not_remembered_as_they_were(reads: int) -> None:
    async def on_node(node: SimNode) -> None:
        async def policies_of(_namespace: str) -> dict[str, object]:
            return {}

        server, clock = MemoryMetadata(), node.runtime.clock
        there = NamespaceBundles(
            MemoryMetadataStore(node.runtime, server), node.runtime.clock, policies_of, lambda: None
        )
        whole = await there.get("t/n")
        assert whole is not None
        store = ReadSlowly(node.runtime, server, reads)
        store.meanwhile = lambda: there.split(next(iter(whole.all())), [1 << 20])
        here = NamespaceBundles(store, clock, policies_of, lambda: None)
        await here.get("t/n")
        assert store.left <= 0
        for _ in range(5):
            await next_turn()
        found = await here.get("t/n")
        assert found is not None
        assert len(found.all()) == len(whole.all()) + 1
        here.close()
        there.close()

    run_on_node(on_node)


def test_what_a_broker_watches_of_others_leaves_room_for_its_own_bundles() -> None:
    """A metadata store takes so many watches: one more, and policies or owners could not be read."""
    # Policies, and local policies, which say how a namespace is cut.
    of_namespaces = 2 * max(namespaces.NAMESPACES_REMEMBERED_MAX, namespace_bundles.NAMESPACES_REMEMBERED_MAX)
    watched = LIST_WATCHES_MAX + of_namespaces + owner_nodes.OWNERS_REMEMBERED_MAX + tenant_infos.TENANTS_REMEMBERED_MAX
    assert watched <= 0.95 * min(armed_watches.WATCHED_MAX, socket_store.WATCHED_MAX, served.WATCHES_MAX)
