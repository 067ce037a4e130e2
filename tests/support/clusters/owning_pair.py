"""Two brokers on one metadata store that misbehaves at a chosen moment."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from geminga import sim
from geminga.broker.core.coercion import encode_document
from geminga.broker.ownership.core.bundles import Bundle, equal_bundles
from geminga.broker.ownership.core.local_policies import local_policies_path, with_bundles
from geminga.broker.ownership.core.owner_data import owner_path
from geminga.broker.ownership.endpoints import Endpoints
from geminga.broker.ownership.ports import Elsewhere
from geminga.metadata.memory import MemoryMetadata, MemoryMetadataStore
from geminga.model.topic_name import TopicName
from support.clusters.bundle_owners import NAMESPACE, ONE, Owning
from support.worlds.ownership import endpoints_of

BUNDLE = equal_bundles(NAMESPACE, 4).find(ONE)
PATH = owner_path(BUNDLE)
OTHER = b'{"nativeUrl":"pulsar://other:6650","disabled":false}'
NEXT = Elsewhere(Endpoints(endpoints_of("b")), is_owner=False)


class Pair:
    """Two brokers on one tree, each with a session of its own."""

    def __init__(self, world: sim.SimWorld, node: sim.SimNode) -> None:
        self.world = world
        self.server = MemoryMetadata()
        self.stores = {name: MemoryMetadataStore(node.runtime, self.server) for name in "ab"}
        self.a, self.b = (Owning(node.runtime, self.stores[name], name) for name in "ab")

    def owner(self) -> str | None:
        """Whose session made the node."""
        for name, store in self.stores.items():
            node = self.server.tree.get(PATH, session=store.session)
            if node is not None and node.stat.is_own:
                return name
        return None

    def take_node(self) -> None:
        """As an operator would."""
        self.server.notify(self.server.tree.delete(PATH, expected_version=None, session=self.stores["b"].session))

    async def cut(self, bundles: Any) -> None:
        value = encode_document(with_bundles({}, bundles))
        await self.stores["b"].put(local_policies_path(NAMESPACE), value, expected_version=None)


def run_pair(story: Callable[[Pair], Coroutine[Any, Any, None]], seed: int = 3) -> None:
    async def scenario(world: sim.SimWorld) -> None:
        async def on(node: sim.SimNode) -> None:
            await story(Pair(world, node))

        await world.node("both").run(on)

    sim.run(scenario, seed=seed)


async def split(pair: Pair, keys: list[int]) -> list[Bundle]:
    return await pair.a.ownership.split(BUNDLE, keys)


def url(owner: object) -> str:
    """Of an owner that is another broker."""
    assert isinstance(owner, Elsewhere)
    assert owner.is_owner
    return owner.endpoints.default.broker_url


def topic_names() -> list[TopicName]:
    """Of the pair's namespace: some in each of its bundles."""
    return [TopicName.parse(str(number)) for number in range(40)]
