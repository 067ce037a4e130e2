"""Changes of a namespace's local policies: which namespaces are kept apart on brokers, and its cut into bundles.

The document is that of ``ownership.core.local_policies``; all else in it stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from geminga.broker.ownership.core.bundles import Bundle, Bundles
from geminga.broker.ownership.core.local_policies import (
    bundles_in,
    first_local_policies,
    local_policies_path,
    with_bundles,
)
from geminga.broker.resources.documents import Document, DocumentStore, Json
from geminga.broker.resources.namespaces import Namespaces, OfNamespaces

_GROUP: Final = "namespaceAntiAffinityGroup"


async def set_local_policy(
    store: DocumentStore, namespaces: Namespaces, namespace: str, member: str, value: Json
) -> None:
    """One member, by compare-and-set; None: it is not there any more. They are made where there are none.

    Raises NotFoundError where there is no such namespace, ConflictError, StorageError.
    """
    policies = await namespaces.get(namespace)
    path = local_policies_path(namespace)

    if value is None and await store.find(path) is None:
        return
    first = first_local_policies(namespace, policies.document)
    await store.put(path, lambda document: {**(first if document is None else document), member: value})


class AntiAffinity(OfNamespaces):
    """Read, set and remove groups. Raises NotFoundError where there is no such namespace, StorageError."""

    __slots__ = ()

    async def get(self, namespace: str) -> str | None:
        """None: it has none."""
        group = await self._local_policy(namespace, _GROUP)
        return group if isinstance(group, str) else None

    async def set(self, namespace: str, group: str | None) -> None:
        """None: it has none any more. Local policies are made as a cluster makes them where there are none."""
        await set_local_policy(self._store, self._namespaces, namespace, _GROUP, group)

    async def namespaces_of(self, tenant: str, group: str) -> list[str]:
        """A tenant's namespaces of the group, whatever their case, as Pulsar compares them."""
        found = []
        for namespace in await self._namespaces.list(tenant):
            node = await self._store.find(local_policies_path(namespace))
            name = None if node is None else node.document.get(_GROUP)
            if isinstance(name, str) and name.lower() == group.lower():
                found.append(namespace)
        return found


class BundleCuts(OfNamespaces):
    """How namespaces are cut where a broker is alone. What it writes is what a cluster begins with that it becomes."""

    __slots__ = ()

    async def get(self, namespace: str) -> Bundles:
        """As it is cut now; raises NotFoundError where there is no such namespace, StorageError."""
        policies = await self._namespaces.get(namespace)
        found = await self._store.find(local_policies_path(namespace))
        document = first_local_policies(namespace, policies.document) if found is None else found.document
        return bundles_in(namespace, document)

    async def split(self, bundle: Bundle, keys: Sequence[int]) -> None:
        """Cut it before each of ``keys``; raises PreconditionFailedError where that can not be, StorageError."""
        namespace = bundle.namespace
        policies = await self._namespaces.get(namespace)
        first = first_local_policies(namespace, policies.document)
        after: Bundles | None = None

        def change(document: Document | None) -> Document:
            nonlocal after
            before = first if document is None else document
            after = bundles_in(namespace, before).with_split(bundle, keys)
            return with_bundles(before, after)

        await self._store.put(local_policies_path(namespace), change)
        cut = after
        assert cut is not None
        # From these other clusters begin.
        await self._namespaces.keep_cuts(namespace, cut)
