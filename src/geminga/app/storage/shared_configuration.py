"""The store of what clusters share, beside a cluster's own; nothing that its own store has of it is forgotten."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from geminga.broker.resources.configuration_paths import ConfigurationPaths
from geminga.broker.resources.partitioned_topics import PARTITIONED_TOPICS_PATH
from geminga.broker.resources.resource_groups import GROUPS_PATH
from geminga.broker.resources.tenants import POLICIES_PATH
from geminga.metadata.divided import DividedMetadataStore
from geminga.metadata.ports import MetadataStore
from geminga.model.errors import ConfigurationError

#: How far below each root its documents are: tenants and namespaces, topics by domain, groups.
_DOCUMENTS: Final = ((POLICIES_PATH, (1, 2)), (PARTITIONED_TOPICS_PATH, (4,)), (GROUPS_PATH, (1,)))


async def divided(own: MetadataStore, shared: MetadataStore, own_url: str, shared_url: str) -> DividedMetadataStore:
    """One tree of both. Raises ConfigurationError if ``shared`` lacks what ``own`` has of it, MetadataError.

    A cluster that had its configuration to itself begins to share it by a key of its brokers: without its policies in
    the new place topics would live by those of nobody, and what retention keeps would go.
    """
    async for path in _missing(own, shared):
        raise ConfigurationError(
            f"configurationMetadataStoreUrl={shared_url}: it has no {path}, which this cluster's own store ({own_url}) "
            "has; expected all tenants, namespaces, partitioned topics and resource groups of this cluster in it: copy "
            f"what is below {', '.join(root for root, _ in _DOCUMENTS)} there while no broker of the cluster runs, or "
            "remove it here if it is not wanted any more"
        )
    return DividedMetadataStore(own, shared, ConfigurationPaths())


async def _missing(own: MetadataStore, shared: MetadataStore) -> AsyncIterator[str]:
    """Documents of ``own`` that belong into ``shared`` and are not there, whatever they say."""
    for root, depths in _DOCUMENTS:
        level = [root]
        for depth in range(1, max(depths) + 1):
            below = []
            for parent in level:
                names = await own.children(parent)
                there = set(await shared.children(parent)) if names else set()
                for name in names:
                    below.append(f"{parent}/{name}")
                    if depth in depths and name not in there:
                        yield below[-1]
            level = below
