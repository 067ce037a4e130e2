"""Clusters known to this one: ``/admin/clusters/{cluster}``, a JSON ``ClusterData``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from geminga.broker.resources.documents import Document, DocumentStore, Json
from geminga.model.errors import NotFoundError, PreconditionFailedError
from geminga.model.topic_name import is_valid_named_entity

CLUSTERS_PATH: Final = "/admin/clusters"


class Clusters:
    """Create, read, change and delete clusters."""

    __slots__ = ("_store",)

    def __init__(self, store: DocumentStore) -> None:
        self._store = store

    async def list(self) -> list[str]:
        """Names, sorted."""
        return await self._store.children(CLUSTERS_PATH)

    async def find(self, cluster: str) -> Document | None:
        """The cluster's data, or None."""
        found = await self._store.find(_path(cluster))
        return found.document if found else None

    async def get(self, cluster: str) -> Document:
        """The cluster's data; raises :class:`NotFoundError`."""
        found = await self.find(cluster)
        if found is None:
            raise NotFoundError(_missing(cluster))
        return found

    async def create(self, cluster: str, data: Mapping[str, Json]) -> None:
        """Raises ConflictError (409) if it exists, PreconditionFailedError (412) for an invalid name."""
        if not is_valid_named_entity(cluster):
            raise PreconditionFailedError(f"{cluster!r} is no name for a cluster: use letters, digits and -=:._")
        # "{}" keeps the node's value from being empty, which would mean "no document".
        await self._store.create(_path(cluster), data, f"cluster {cluster} exists already")

    async def update(self, cluster: str, data: Mapping[str, Json]) -> None:
        """Replace the cluster's data; raises :class:`NotFoundError`."""
        await self._store.change(_path(cluster), lambda _: dict(data), _missing(cluster))

    async def delete(self, cluster: str) -> None:
        """Raises NotFoundError (404)."""
        await self._store.delete(
            _path(cluster), missing=_missing(cluster), not_empty=f"cluster {cluster} still has failure domains"
        )


def _path(cluster: str) -> str:
    return f"{CLUSTERS_PATH}/{cluster}"


def _missing(cluster: str) -> str:
    return f"cluster {cluster} does not exist"
