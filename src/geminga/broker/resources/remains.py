"""What is left of a namespace in the metadata when its topics and its policies are gone: nodes that others hung on.

Pulsar leaves some of them for ever (apache/pulsar 11195, 11734, 12710, 12968). Most are parents that the store made on
the way to a node that is deleted by now; those go if they are empty, so that nothing of a namespace that somebody
makes anew meanwhile is touched. What is known of a bundle's load is of no use to a later namespace of the name.
"""

from __future__ import annotations

from typing import Final

from geminga.broker.resources.tenants import POLICIES_PATH
from geminga.metadata import cas
from geminga.metadata.ports import MetadataStore
from geminga.model.errors import NodeNotEmptyError

#: Roots of ``TENANT/NAMESPACE`` whose nodes are deleted with the topics, schemas, bundles or policies they belong to.
PARENT_ROOTS: Final = (
    "/managed-ledgers",
    "/admin/partitioned-topics",
    "/admin/local-policies",
    "/schemas",
    "/geminga/delayed-index",
    "/namespace",
)
#: Roots of documents ``TENANT/NAMESPACE/BUNDLE`` that nobody else deletes.
BUNDLE_ROOTS: Final = ("/loadbalance/bundle-data", "/loadbalance/resource-quota")


async def remove_remains(metadata: MetadataStore, namespace: str) -> None:
    """Remove them, of a ``tenant/namespace`` that is going. Raises MetadataError; then some are left."""
    for root in BUNDLE_ROOTS:
        place = f"{root}/{namespace}"
        for name in await metadata.children(place):
            try:
                await cas.remove(metadata, f"{place}/{name}")
            except NodeNotEmptyError:
                continue
        await cas.remove_empty_from(metadata, place, root)
    for root in PARENT_ROOTS:
        await _remove_parents(metadata, root, namespace)


async def _remove_parents(metadata: MetadataStore, root: str, namespace: str) -> None:
    place = f"{root}/{namespace}"
    for domain in await metadata.children(place):
        await cas.remove_if_empty(metadata, f"{place}/{domain}")
    await cas.remove_empty_from(metadata, place, root)


async def sweep_parents(metadata: MetadataStore) -> None:
    """Remove the empty parents of namespaces that are gone: some come to be behind the deletion.

    The node of a bundle's owner that is killed goes with its session, and who finds that the namespace is gone takes
    back the node of the topic that it just made; nobody is there to take the parents along. Raises MetadataError.
    """
    for root in PARENT_ROOTS:
        for tenant in await metadata.children(root):
            for name in await metadata.children(f"{root}/{tenant}"):
                if not await metadata.exists(f"{POLICIES_PATH}/{tenant}/{name}"):
                    await _remove_parents(metadata, root, f"{tenant}/{name}")
            if not await metadata.exists(f"{POLICIES_PATH}/{tenant}"):
                await cas.remove_if_empty(metadata, f"{root}/{tenant}")
