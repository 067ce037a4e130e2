"""A metadata store whose server lags behind, as a follower of ZooKeeper's leader may."""

from __future__ import annotations

from geminga.metadata.memory import MemoryMetadata, MemoryMetadataStore
from geminga.metadata.ports import Node
from geminga.runtime import Runtime


class MetadataBehind(MemoryMetadataStore):
    """Until the next sync it answers of some nodes what they were."""

    def __init__(self, runtime: Runtime, server: MemoryMetadata | None = None) -> None:
        super().__init__(runtime, server)
        self.nodes_before: dict[str, Node | None] = {}
        self.children_before: dict[str, list[str]] = {}

    async def get(self, path: str) -> Node | None:
        node = await super().get(path)
        return self.nodes_before.get(path, node)

    async def children(self, path: str) -> list[str]:
        names = await super().children(path)
        return self.children_before.get(path, names)

    async def sync(self, path: str = "/") -> None:
        await super().sync(path)
        self.nodes_before.clear()
        self.children_before.clear()
