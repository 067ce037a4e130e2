"""Namespaces: ``/admin/policies/{tenant}/{namespace}``, a JSON ``Policies``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from geminga.broker.resources.documents import Change, DocumentStore, Json
from geminga.broker.resources.policies import Policies, completed
from geminga.broker.resources.tenants import MISSING as MISSING_TENANT
from geminga.broker.resources.tenants import POLICIES_PATH, Tenants
from geminga.model.errors import (
    AuthorizationError,
    ConflictError,
    MetadataError,
    NotFoundError,
    PreconditionFailedError,
)
from geminga.model.topic_name import is_valid_named_entity

if TYPE_CHECKING:
    from geminga.broker.ownership.core.bundles import Bundles
    from geminga.wire.bookkeeper.isolation import IsolationGroups

#: What is said of a namespace that is not there.
_MISSING: Final = "Namespace does not exist"
#: Of local policies: Pulsar's ``BookieAffinityGroupData``.
BOOKIE_AFFINITY: Final = "bookieAffinityGroup"
#: How a cluster cuts namespaces into bundles: ``ownership.core.local_policies``, which a standalone does not load.
LOCAL_POLICIES_PATH: Final = "/admin/local-policies"


class OfNamespaces:
    """What else is stored for namespaces."""

    __slots__ = ("_namespaces", "_store")

    def __init__(self, store: DocumentStore, namespaces: Namespaces) -> None:
        self._store = store
        self._namespaces = namespaces

    async def _local_policy(self, namespace: str, member: str) -> Json:
        """A member of its local policies; None: it has none. Raises NotFoundError without the namespace."""
        await self._namespaces.get(namespace)
        found = await self._store.find(_local_path(namespace))
        return None if found is None else found.document.get(member)


class Namespaces:
    """Create, read, change and delete namespaces; names are ``tenant/namespace``."""

    __slots__ = ("_store", "_tenants")

    def __init__(self, store: DocumentStore, tenants: Tenants) -> None:
        self._store = store
        self._tenants = tenants

    async def all(self) -> list[str]:
        """Full names of the namespaces of all tenants, sorted; also of one that goes meanwhile, or is not there."""
        return [
            f"{tenant}/{name}"
            for tenant in await self._tenants.list()
            for name in await self._store.children(f"{POLICIES_PATH}/{tenant}")
        ]

    async def list(self, tenant: str) -> list[str]:
        """Full names of the tenant's namespaces, sorted; raises NotFoundError (404), PreconditionFailedError (412)."""
        if not is_valid_named_entity(tenant):
            raise PreconditionFailedError("Tenant name is not valid")
        if not await self._tenants.exists(tenant):
            raise NotFoundError("Tenant not found")
        return [f"{tenant}/{name}" for name in await self._store.children(f"{POLICIES_PATH}/{tenant}")]

    async def find(self, namespace: str) -> Policies | None:
        """The namespace's policies, or None if there is no such namespace."""
        found = await self._store.find(_path(namespace))
        return Policies(found.document, found.version, created_ms=found.created_ms) if found else None

    async def get(self, namespace: str) -> Policies:
        """The namespace's policies; raises :class:`NotFoundError`."""
        found = await self.find(namespace)
        if found is None:
            raise NotFoundError(_MISSING)
        return found

    async def create(self, namespace: str, policies: Mapping[str, Json] | None = None) -> None:
        """Raises NotFoundError (404) without the tenant, ConflictError (409), PreconditionFailedError (412).

        AuthorizationError (403) for a cluster that the tenant may not use.
        """
        tenant, _, local_name = namespace.partition("/")
        if not is_valid_named_entity(tenant) or not is_valid_named_entity(local_name) or not namespace.isascii():
            raise PreconditionFailedError("Namespace name is not valid")
        info = await self._tenants.get(tenant)
        allowed = info.get("allowedClusters")
        clusters = [name for name in allowed if isinstance(name, str)] if isinstance(allowed, list) else []
        document = completed(policies or {}, clusters)
        outside = sorted(set(Policies(document).replication_clusters) - set(clusters))
        if outside:
            raise AuthorizationError(
                f"Cluster [{outside[0]}] is not in the list of allowed clusters list for tenant [{tenant}]"
            )
        await self._forget_bundles_of_before(namespace)
        version = await self._store.create(_path(namespace), document, "Namespace already exists")
        if not await self._tenants.exists(tenant):
            # It was deleted meanwhile, and the store made its node anew, without a value; from now on it could not be.
            await self._store.delete(_path(namespace), missing="", not_empty="", expected_version=version)
            await self._store.remove_empty(f"{POLICIES_PATH}/{tenant}")
            raise NotFoundError(MISSING_TENANT)

    async def bookies(self, namespace: str) -> IsolationGroups | None:
        """The groups of bookies that its ledgers keep to, of its local policies; None: there are none.

        Raises CorruptionError, MetadataError.
        """
        found = await self._store.find(_local_path(namespace))
        group = None if found is None else found.document.get(BOOKIE_AFFINITY)
        if not isinstance(group, dict):
            return None
        # Loaded where a namespace has them.
        from geminga.broker.resources.bookie_affinity import groups_in

        return groups_in(group)

    async def update(self, namespace: str, change: Change, missing: str = _MISSING) -> Policies:
        """Apply ``change`` to the policies by compare-and-set (it may run again).

        Raises NotFoundError (404) with the sentence ``missing``, and what ``change`` raises: then nothing is changed.
        """
        found = await self._store.change(_path(namespace), change, missing)
        return Policies(found.document, found.version, created_ms=found.created_ms)

    async def set_policy(self, namespace: str, key: str, value: Json) -> Policies:
        """Set one field, or remove it with None; raises NotFoundError (404)."""
        return await self.update(namespace, lambda document: {**document, key: value})

    async def keep_cuts(self, namespace: str, bundles: Bundles) -> None:
        """Have clusters that begin to serve it cut it so, too. Raises NotFoundError (404), CorruptionError."""
        from geminga.broker.ownership.core.local_policies import with_cuts

        await self.update(namespace, lambda document: with_cuts(namespace, document, bundles))

    async def delete(self, namespace: str, *, expected_version: int | None = None) -> None:
        """Remove the namespace itself; its topics must be gone already.

        Raises NotFoundError (404), ConflictError (409) if its policies are not of ``expected_version`` any more.
        """
        await self._store.delete(
            _path(namespace),
            missing=f"Namespace {namespace} does not exist.",
            not_empty="Cannot delete non empty namespace",
            expected_version=expected_version,
        )
        try:
            try:
                await self._store.delete(_local_path(namespace), missing="", not_empty="")
            except NotFoundError:
                pass
            await self._store.remove_empty_from(_local_path(namespace), LOCAL_POLICIES_PATH)
        except (ConflictError, MetadataError):
            # The namespace is gone; who makes one of that name tries again.
            pass

    async def _forget_bundles_of_before(self, namespace: str) -> None:
        """How a cluster cut a namespace of that name which is gone: nothing of it holds for the next one."""
        before = await self._store.find(_local_path(namespace))
        if before is None or await self.find(namespace) is not None:
            return
        try:
            await self._store.delete(_local_path(namespace), missing="", not_empty="", expected_version=before.version)
        except (NotFoundError, ConflictError):
            # Gone, or made anew for a namespace that another one created meanwhile.
            pass


def _local_path(namespace: str) -> str:
    return f"{LOCAL_POLICIES_PATH}/{namespace}"


def _path(namespace: str) -> str:
    return f"{POLICIES_PATH}/{namespace}"
