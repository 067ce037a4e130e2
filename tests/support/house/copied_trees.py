"""What is copied from, in memory: the tree of a metadata server as ``metadata.copying`` reads an SQLite file."""

from __future__ import annotations

from collections.abc import Sequence

from geminga.metadata import MemoryMetadata
from geminga.metadata.core.copying import SourceNode
from geminga.metadata.core.tree import NO_SESSION, split_path


class MemorySource:
    """Persistent nodes of a server, in windows of few."""

    def __init__(self, server: MemoryMetadata, window: int = 7) -> None:
        self._server = server
        self._window = window

    async def nodes_after(self, path: str, limit: int) -> Sequence[SourceNode]:
        return [node for node in self.all() if not path or split_path(node.path) > split_path(path)][: self._window]

    def all(self) -> list[SourceNode]:
        nodes = self._server.tree._nodes
        kept = {path for path, node in nodes.items() if node.session == NO_SESSION}
        return [
            SourceNode(
                path,
                nodes[path].value,
                nodes[path].next_sequence,
                tuple(name for name in sorted(nodes[path].children) if f"{path.rstrip('/')}/{name}" in kept),
            )
            for path in sorted(kept, key=lambda path: ("/", "") if path == "/" else split_path(path))
        ]


def values_of(server: MemoryMetadata) -> dict[str, bytes]:
    """Paths and values of all nodes that stay."""
    return {node.path: node.value for node in MemorySource(server).all()}
