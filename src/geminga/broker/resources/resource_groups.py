"""Resource groups: ``/admin/resourcegroups/{name}``, Pulsar's ``ResourceGroup``; which namespaces are in one is said by
their policies (``resource_group_name``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from geminga.broker.core.coercion import INT_MAX, LONG_MAX, BodyError, Document, Json, object_of, shown
from geminga.broker.resources.namespaces import OfNamespaces
from geminga.model.errors import ConflictError, NotFoundError, PreconditionFailedError
from geminga.model.topic_name import is_valid_named_entity

GROUPS_PATH: Final = "/admin/resourcegroups"
#: What brokers tell each other of a group (:mod:`geminga.broker.groups.usage`).
USAGE_PATH: Final = "/geminga/resource-group-usage"
#: Messages and bytes per second; below 1: no limit. With Java's largest numbers.
LIMITS: Final[Mapping[str, int]] = {
    "publishRateInMsgs": INT_MAX,
    "publishRateInBytes": LONG_MAX,
    "dispatchRateInMsgs": INT_MAX,
    "dispatchRateInBytes": LONG_MAX,
}
#: The same of what is copied to other clusters; newer brokers of Apache's have them. A group shows those that were set.
COPYING_LIMITS: Final[Mapping[str, int]] = {
    "replicationDispatchRateInMsgs": LONG_MAX,
    "replicationDispatchRateInBytes": LONG_MAX,
}
#: In Pulsar's words.
MISSING: Final = "ResourceGroup does not exist"
_POLICY: Final = "resource_group_name"


def group_path(name: str) -> str:
    """Where a group is stored."""
    return f"{GROUPS_PATH}/{name}"


def usage_path(name: str) -> str:
    """Where what brokers tell each other of a group is."""
    return f"{USAGE_PATH}/{name}"


def checked_limits(value: Json) -> Document:
    """What a client sent: the limits that it names. Raises BodyError; what Pulsar's has not is left out."""
    given = object_of(value, "the body")
    found: Document = {}
    for name, most in {**LIMITS, **COPYING_LIMITS}.items():
        limit = given.get(name)
        if limit is None:
            continue
        if isinstance(limit, bool) or not isinstance(limit, int) or not -most - 1 <= limit <= most:
            raise BodyError(f"{name} must be a whole number up to {most}, not {shown(limit)}")
        found[name] = limit
    return found


class ResourceGroups(OfNamespaces):
    """Create, read, change and delete groups."""

    __slots__ = ()

    async def list(self) -> list[str]:
        """Names, sorted."""
        return await self._store.children(GROUPS_PATH)

    async def find(self, name: str) -> Document | None:
        """Its limits; None: there is no such group."""
        found = await self._store.find(group_path(name)) if is_valid_named_entity(name) else None
        return None if found is None else found.document

    async def get(self, name: str) -> Document:
        """The same; raises NotFoundError."""
        found = await self.find(name)
        if found is None:
            raise NotFoundError(MISSING)
        return found

    async def put(self, name: str, limits: Document) -> None:
        """Make it, or change the limits that are named. Raises PreconditionFailedError (412) for a bad name."""
        if not is_valid_named_entity(name):
            raise PreconditionFailedError(f"the name of a resource group is not valid: {shown(name)}")
        await self._store.put(group_path(name), lambda found: {**(found or dict.fromkeys(LIMITS, -1)), **limits})

    async def delete(self, name: str) -> None:
        """Raises NotFoundError (404), PreconditionFailedError (412) while a namespace is in it."""
        await self.get(name)
        for namespace in await self._namespaces.all():
            policies = await self._namespaces.find(namespace)
            if policies is not None and policies.document.get(_POLICY) == name:
                raise PreconditionFailedError("ResourceGroup is in use")
        await self._store.delete(group_path(name), missing=MISSING, not_empty=f"{group_path(name)} has children")
        try:
            await self._store.delete(usage_path(name), missing=MISSING, not_empty=MISSING)
        except (NotFoundError, ConflictError):
            return  # no broker ever told anything, or one tells that it goes
