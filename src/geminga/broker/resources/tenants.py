"""Tenants: ``/admin/policies/{tenant}``, a JSON ``TenantInfo`` (adminRoles, allowedClusters)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from geminga.broker.resources.clusters import Clusters
from geminga.broker.resources.documents import Document, DocumentStore, Json
from geminga.model.errors import NotFoundError, PreconditionFailedError
from geminga.model.topic_name import is_valid_named_entity

POLICIES_PATH: Final = "/admin/policies"


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
        """Whether the tenant exists."""
        return await self._store.find(_path(tenant)) is not None

    async def get(self, tenant: str) -> Document:
        """The tenant's info; raises :class:`NotFoundError`."""
        found = await self._store.find(_path(tenant))
        if found is None:
            raise NotFoundError(_missing(tenant))
        return found.document

    async def create(self, tenant: str, info: Mapping[str, Json]) -> None:
        """Raises ConflictError (409) if it exists, PreconditionFailedError (412) for a bad name, cluster or role."""
        if not is_valid_named_entity(tenant):
            raise PreconditionFailedError(f"{tenant!r} is no name for a tenant: use letters, digits and -=:._")
        document = await self._checked(info)
        await self._store.create(_path(tenant), document, f"tenant {tenant} exists already")

    async def update(self, tenant: str, info: Mapping[str, Json]) -> None:
        """Replace the tenant's info; raises NotFoundError (404), PreconditionFailedError (412)."""
        if not await self.exists(tenant):
            raise NotFoundError(_missing(tenant))
        document = await self._checked(info)
        await self._store.change(_path(tenant), lambda _: document, _missing(tenant))

    async def delete(self, tenant: str) -> None:
        """Raises NotFoundError (404), ConflictError (409) while it has namespaces."""
        await self._store.delete(
            _path(tenant), missing=_missing(tenant), not_empty=f"tenant {tenant} still has namespaces"
        )

    async def _checked(self, info: Mapping[str, Json]) -> Document:
        clusters = _names(info, "allowedClusters")
        if not clusters:
            raise PreconditionFailedError("allowedClusters is empty: name at least one cluster")
        unknown = [name for name in clusters if await self._clusters.find(name) is None]
        if unknown:
            raise PreconditionFailedError(f"allowedClusters names clusters that do not exist: {', '.join(unknown)}")
        roles = _names(info, "adminRoles")
        padded = [role for role in roles if role != role.strip() or not role]
        if padded:
            raise PreconditionFailedError(f"adminRoles has an empty role or one with spaces around it: {padded}")
        return {**info, "adminRoles": list(roles), "allowedClusters": list(clusters)}


def _names(info: Mapping[str, Json], key: str) -> list[str]:
    value = info.get(key)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise PreconditionFailedError(f"{key} must be a list of names")
    return sorted({item for item in value if isinstance(item, str)})


def _path(tenant: str) -> str:
    return f"{POLICIES_PATH}/{tenant}"


def _missing(tenant: str) -> str:
    return f"tenant {tenant} does not exist"
