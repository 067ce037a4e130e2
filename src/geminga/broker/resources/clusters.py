"""Clusters known to this one: ``/admin/clusters/{cluster}``, a JSON ``ClusterData``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from geminga.broker.resources.documents import Change, Document, DocumentStore, Json
from geminga.model.errors import NotFoundError, PreconditionFailedError
from geminga.model.topic_name import is_valid_named_entity

CLUSTERS_PATH: Final = "/admin/clusters"
#: What is said of a cluster that is not there.
MISSING: Final = "Cluster does not exist"


class Clusters:
    """Create, read, change and delete clusters."""

    __slots__ = ("_store",)

    def __init__(self, store: DocumentStore) -> None:
        self._store = store

    async def list(self) -> list[str]:
        """Names, sorted."""
        return await self._store.children(CLUSTERS_PATH)

    async def find(self, cluster: str) -> Document | None:
        """The cluster's data, or None; a name that no cluster can have leads nowhere."""
        if not is_valid_named_entity(cluster):
            return None
        found = await self._store.find(_path(cluster))
        return found.document if found else None

    async def get(self, cluster: str) -> Document:
        """The cluster's data; raises :class:`NotFoundError`."""
        found = await self.find(cluster)
        if found is None:
            raise NotFoundError(MISSING)
        return found

    async def create(self, cluster: str, data: Mapping[str, Json]) -> None:
        """Raises ConflictError (409) if it exists, PreconditionFailedError (412) for an invalid name."""
        if not is_valid_named_entity(cluster) or not cluster.isascii():
            raise PreconditionFailedError("Cluster name is not valid")
        # "{}" keeps the node's value from being empty, which would mean "no document".
        await self._store.create(_path(cluster), data, "Cluster already exists")

    async def update(self, cluster: str, data: Mapping[str, Json]) -> None:
        """Replace the cluster's data; raises :class:`NotFoundError`."""
        await self.change(cluster, lambda _: dict(data))

    async def change(self, cluster: str, change: Change) -> None:
        """Apply ``change`` to the cluster's data by compare-and-set; raises :class:`NotFoundError`."""
        if not is_valid_named_entity(cluster):
            raise NotFoundError(MISSING)
        await self._store.change(_path(cluster), change, MISSING)

    async def policies(self, cluster: str) -> Document | None:
        """Where its topics move to (Pulsar's ``ClusterPolicies``); None: nothing was ever said."""
        found = await self._store.find(policies_path(cluster))
        return found.document if found else None

    async def change_policies(self, cluster: str, change: Change) -> None:
        """Apply ``change`` to them, or to nothing, by compare-and-set; raises :class:`NotFoundError`."""
        await self.get(cluster)
        await self._store.put(policies_path(cluster), lambda found: change(found or {}))

    async def delete(self, cluster: str) -> None:
        """Raises NotFoundError (404)."""
        if not is_valid_named_entity(cluster):
            raise NotFoundError(MISSING)
        if await self._store.find(policies_path(cluster)) is not None:
            await self._store.delete(policies_path(cluster), missing=MISSING, not_empty=MISSING)
        await self._store.delete(
            _path(cluster), missing=MISSING, not_empty=f"cluster {cluster} still has failure domains"
        )


def _path(cluster: str) -> str:
    return f"{CLUSTERS_PATH}/{cluster}"


def policies_path(cluster: str) -> str:
    """The node that says where a cluster's topics move to."""
    return f"{_path(cluster)}/policies"
