"""The store of what clusters share, beside a cluster's own; nothing that its own store has of it is forgotten."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from geminga.broker.ownership.core.broker_data import BROKERS_PATH
from geminga.broker.resources.clusters import CLUSTERS_PATH
from geminga.broker.resources.configuration_paths import NOTED_PATH, ConfigurationPaths
from geminga.broker.resources.partitioned_topics import PARTITIONED_TOPICS_PATH
from geminga.broker.resources.resource_groups import GROUPS_PATH
from geminga.broker.resources.tenants import POLICIES_PATH
from geminga.metadata import cas
from geminga.metadata.divided import DividedMetadataStore
from geminga.metadata.ports import MetadataStore
from geminga.model.errors import ConfigurationError
from geminga.runtime import get_logger

if TYPE_CHECKING:
    from geminga.metadata.core.zookeeper_address import ZooKeeperAddress
    from geminga.runtime import Runtime

_log = get_logger(__name__)

#: How far below each root its documents are: tenants and namespaces, topics by domain, groups.
_DOCUMENTS: Final = ((POLICIES_PATH, (1, 2)), (PARTITIONED_TOPICS_PATH, (4,)), (GROUPS_PATH, (1,)))


async def noted(own: MetadataStore) -> str:
    """Where a cluster keeps what it shares, as its brokers last said; empty: in its own store. Raises MetadataError."""
    node = await own.get(NOTED_PATH)
    return "" if node is None else node.value.decode(errors="replace")


async def note(own: MetadataStore, shared_url: str) -> None:
    """Note where a broker of the cluster is told to look; ``shared_url`` empty: in its own store.

    Raises ConfigurationError where other brokers, which are up, look elsewhere: each would follow other policies.
    MetadataError.
    """
    before = await noted(own)
    if before == shared_url:
        return
    others = await own.children(BROKERS_PATH)
    # Brokers of another make note nothing; without a tenant here they look elsewhere, too.
    has_own = bool(before) or bool(await own.children(POLICIES_PATH))
    if others and has_own and not (before and shared_url):
        places = [url or "the cluster's own store" for url in (before, shared_url)]
        raise ConfigurationError(
            f"configurationMetadataStoreUrl={shared_url or '(nothing)'}: brokers of this cluster that are up "
            f"({', '.join(others)}) keep tenants and policies in {places[0]}, and this one would in {places[1]}; "
            "expected the same of all. Stop them first to change it"
        )
    if others:
        _log.warning("what clusters share is in %s for this broker, and for others in %s", shared_url, before)
    if shared_url:
        await cas.update(own, NOTED_PATH, lambda _: shared_url.encode())
    else:
        await cas.remove(own, NOTED_PATH)


@asynccontextmanager
async def whole_tree(
    runtime: Runtime, own: MetadataStore, address: ZooKeeperAddress, session_timeout_ms: int
) -> AsyncIterator[MetadataStore]:
    """All that is a cluster's, for who reads it: with what it shares, where that is elsewhere.

    ``address``: of ``own``; the other store is spoken to alike. Raises MetadataError, ConfigurationError.
    """
    url = await noted(own)
    if not url:
        yield own
        return
    from geminga.metadata.core.zookeeper_address import parse_zookeeper_address
    from geminga.metadata.zookeeper import ZooKeeperMetadataStore

    there = parse_zookeeper_address(url)._replace(tls=address.tls, credentials=address.credentials)
    shared = await ZooKeeperMetadataStore.open(runtime, there, session_timeout_ms=session_timeout_ms)
    try:
        yield DividedMetadataStore(own, shared, ConfigurationPaths())
    finally:
        await shared.close()


async def divided(
    own: MetadataStore, shared: MetadataStore, own_url: str, shared_url: str, *, cluster: str = ""
) -> DividedMetadataStore:
    """One tree of both. Raises ConfigurationError if ``shared`` lacks what ``own`` has of it, MetadataError.

    A cluster that had its configuration to itself begins to share it by a key of its brokers: without its policies in
    the new place topics would live by those of nobody, and what retention keeps would go. Later its own copies are not
    looked at: what they have may have been deleted since. ``cluster``: must be known there, where it is a new place.
    """
    before = await noted(own)
    missing = "" if before else await _missing(own, shared)
    if missing:
        raise ConfigurationError(
            f"configurationMetadataStoreUrl={shared_url}: it has no {missing}, which this cluster's own store "
            f"({own_url}) has; expected all tenants, namespaces, partitioned topics and resource groups of the cluster "
            f"in it: copy what is below {', '.join(root for root, _ in _DOCUMENTS)} there while no broker of the "
            "cluster runs, or remove it here if it is not wanted any more"
        )
    if cluster and before != shared_url and not await shared.exists(f"{CLUSTERS_PATH}/{cluster}"):
        raise ConfigurationError(
            f"configurationMetadataStoreUrl={shared_url}: it knows no cluster {cluster}; expected one in which geminga "
            f"initialize-cluster-metadata -c {cluster} -cms {shared_url} -md {own_url} was run"
        )
    return DividedMetadataStore(own, shared, ConfigurationPaths())


async def _missing(own: MetadataStore, shared: MetadataStore) -> str:
    """The first document of ``own`` that belongs into ``shared`` and is not there, whatever it says; empty: none."""
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
                        return below[-1]
            level = below
    return ""
