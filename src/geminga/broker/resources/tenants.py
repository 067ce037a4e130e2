"""Tenants: ``/admin/policies/{tenant}``, a JSON ``TenantInfo`` (adminRoles, allowedClusters)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from geminga.broker.resources.clusters import Clusters
from geminga.broker.resources.documents import Document, DocumentStore, Json
from geminga.model.errors import NotFoundError, PreconditionFailedError
from geminga.model.topic_name import is_valid_named_entity

POLICIES_PATH: Final = "/admin/policies"
#: What is said of a tenant that is not there.
MISSING: Final = "Tenant does not exist"


class Tenants:
    """Create, read, change and delete tenants."""

    __slots__ = ("_clusters", "_store")

    def __init__(self, store: DocumentStore, clusters: Clusters) -> None:
        self._store = store
        self._clusters = clusters

    async def list(self) -> list[str]:
        """Names, sorted."""
        return await self._store.children(POLICIES_PATH)

    async def exists(self, tenant: str) -> bool:
        """Whether the tenant exists; a name that no tenant can have leads nowhere."""
        return is_valid_named_entity(tenant) and await self._store.find(_path(tenant)) is not None

    async def get(self, tenant: str) -> Document:
        """The tenant's info; raises :class:`NotFoundError`."""
        found = await self._store.find(_path(tenant)) if is_valid_named_entity(tenant) else None
        if found is None:
            raise NotFoundError(MISSING)
        return found.document

    async def create(self, tenant: str, info: Mapping[str, Json]) -> None:
        """Raises ConflictError (409) if it exists, PreconditionFailedError (412) for a bad name, cluster or role."""
        if not is_valid_named_entity(tenant) or not tenant.isascii():
            raise PreconditionFailedError("Tenant name is not valid")
        document = await self._checked(info)
        await self._store.create(_path(tenant), document, "Tenant already exist")

    async def update(self, tenant: str, info: Mapping[str, Json]) -> None:
        """Replace the tenant's info; raises NotFoundError (404), PreconditionFailedError (412)."""
        missing = f"Tenant {tenant} not found"
        document = await self._checked(info)
        if not await self.exists(tenant):
            raise NotFoundError(missing)
        await self._store.change(_path(tenant), lambda _: document, missing)

    async def delete(self, tenant: str) -> None:
        """Raises NotFoundError (404), ConflictError (409) while it has namespaces."""
        missing = "Tenant doesn't exist"
        if not is_valid_named_entity(tenant):
            raise NotFoundError(missing)
        await self._store.delete(_path(tenant), missing=missing, not_empty="The tenant still has active namespaces")

    async def _checked(self, info: Mapping[str, Json]) -> Document:
        if info.get("allowedClusters") is None:
            raise PreconditionFailedError("Clusters cannot be null")
        clusters = _names(info, "allowedClusters")
        if not clusters or not all(name.strip() for name in clusters):
            raise PreconditionFailedError("Clusters cannot be empty or blank")
        for name in clusters:
            if await self._clusters.find(name) is None:
                raise PreconditionFailedError("Clusters do not exist")
        roles = _names(info, "adminRoles")
        if any(role != role.strip() for role in roles):
            raise PreconditionFailedError("AdminRoles contains whitespace in the beginning or end.")
        if "" in roles:
            raise PreconditionFailedError("AdminRoles contains a role without a name")
        document: Document = {"adminRoles": list(roles)} if info.get("adminRoles") is not None else {}
        return {**document, "allowedClusters": list(clusters)}


def _names(info: Mapping[str, Json], key: str) -> list[str]:
    value = info.get(key)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise PreconditionFailedError(f"{key} must be a list of names")
    return sorted({item for item in value if isinstance(item, str)})


def _path(tenant: str) -> str:
    return f"{POLICIES_PATH}/{tenant}"
