"""Which bookies a namespace's ledgers are on: Pulsar's ``BookieAffinityGroupData`` in its local policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from geminga.broker.core.coercion import Document, Json, object_of, text_of
from geminga.broker.resources.local_policies import set_local_policy
from geminga.broker.resources.namespaces import BOOKIE_AFFINITY, OfNamespaces
from geminga.model.errors import PreconditionFailedError
from geminga.wire.bookkeeper.isolation import IsolationGroups, group_names

PRIMARY: Final = "bookkeeperAffinityGroupPrimary"
SECONDARY: Final = "bookkeeperAffinityGroupSecondary"
#: Characters of a list of groups: each ledger's metadata have them.
GROUPS_CHARACTERS_MAX: Final = 512


def groups_in(group: Mapping[str, Json]) -> IsolationGroups:
    """What is stored, whoever wrote it: names with commas between them; what is no text is nothing."""

    def names(value: Json) -> tuple[str, ...]:
        return group_names(value) if isinstance(value, str) else ()

    return IsolationGroups(names(group.get(PRIMARY)), names(group.get(SECONDARY)))


def checked_affinity(value: Json) -> Document | None:
    """What a client sent -> the document to store; None: none, as in Pulsar. Raises BodyError, PreconditionFailedError.

    A first group must be named: without it the namespace would be kept off all bookies that are in groups.
    """
    if value is None:
        return None
    given = object_of(value, "the body")
    found: Document = {}
    for member in (PRIMARY, SECONDARY):
        if given.get(member) is None:
            continue
        text = text_of(given[member], member)
        if len(text) > GROUPS_CHARACTERS_MAX:
            raise PreconditionFailedError(f"{member} has {len(text)} characters; at most {GROUPS_CHARACTERS_MAX} fit")
        found[member] = text
    if not group_names(str(found.get(PRIMARY, ""))):
        raise PreconditionFailedError(f"{PRIMARY} must name a group of bookies")
    return found


class BookieAffinity(OfNamespaces):
    """Read, set and remove. Raises NotFoundError where there is no such namespace, StorageError."""

    __slots__ = ()

    async def get(self, namespace: str) -> Document | None:
        """As it is stored; None: there is none."""
        group = await self._local_policy(namespace, BOOKIE_AFFINITY)
        return group if isinstance(group, dict) else None

    async def set(self, namespace: str, group: Document | None) -> None:
        """From the next ledgers on; None: there is none any more."""
        await set_local_policy(self._store, self._namespaces, namespace, BOOKIE_AFFINITY, group)
