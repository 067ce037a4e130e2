"""Namespace isolation policies and failure domains: which brokers an operator wants topics on.

All policies of a cluster are one JSON object at ``/admin/clusters/{cluster}/namespaceIsolationPolicies``, each domain
is one at ``/admin/clusters/{cluster}/failureDomain/{domain}``, as Pulsar has them. Here they are checked and kept;
``broker.load.core.isolation`` reads them for the decision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from geminga.broker.core.coercion import BodyError, number_of, object_of, shown, text_of, texts_of
from geminga.broker.load_rules.isolation import domains_path, isolation_path
from geminga.broker.resources.documents import Change, Document, DocumentStore, Json
from geminga.model.errors import ConflictError, MetadataError, NotFoundError, PreconditionFailedError
from geminga.wire.pulsar.topic_pattern import LinearPattern

#: Of a cluster: all of them are one node, which a metadata store keeps up to 1 MiB.
POLICIES_MAX: Final = 1_000
DOMAINS_MAX: Final = 1_000
#: Regular expressions, or brokers, of one list.
MEMBERS_MAX: Final = 1_000
#: Of the only type that there is: as many primary brokers must be there, or secondary ones take topics too.
POLICY_TYPE: Final = "min_available"
#: Which namespaces are unloaded when a policy is set; ``changed`` unless told.
UNLOAD_SCOPES: Final = ("all_matching", "none", "changed")
LIMIT, THRESHOLD = "min_limit", "usage_threshold"


class IsolationPolicies:
    """Read, set and remove isolation policies."""

    __slots__ = ("_store",)

    def __init__(self, store: DocumentStore) -> None:
        self._store = store

    async def get(self, cluster: str) -> dict[str, Document]:
        """By name, in the order in which they were set first; raises NotFoundError where none was ever set."""
        found = await self._store.find(isolation_path(cluster))
        if found is None:
            raise NotFoundError(f"NamespaceIsolationPolicies for cluster {cluster} does not exist")
        return {name: policy for name, policy in found.document.items() if isinstance(policy, dict)}

    async def set(self, cluster: str, name: str, policy: Document) -> Document | None:
        """Set one, checked before; the one of that name before it. Raises PreconditionFailedError above the limit."""
        before: list[Document | None] = []

        def change(document: Document) -> Document:
            old = document.get(name)
            if old is None and len(document) >= POLICIES_MAX:
                raise PreconditionFailedError(f"a cluster has at most {POLICIES_MAX} namespace isolation policies")
            before[:] = [old if isinstance(old, dict) else None]
            return {**document, name: policy}

        await self._change(cluster, change)
        return before[0]

    async def delete(self, cluster: str, name: str) -> None:
        """Remove one; as in Pulsar it is none that is not there that is told."""
        await self._change(cluster, lambda document: {key: one for key, one in document.items() if key != name})

    async def forget(self, cluster: str) -> None:
        """Remove the node of a cluster that is deleted; raises PreconditionFailedError while it has policies."""
        found = await self._store.find(isolation_path(cluster))
        if found is None:
            return
        if found.document:
            raise PreconditionFailedError("Cluster not empty")
        try:
            await self._store.delete(isolation_path(cluster), missing="", not_empty="", expected_version=found.version)
        except NotFoundError:
            pass

    async def _change(self, cluster: str, change: Change) -> None:
        await self._store.put(isolation_path(cluster), lambda document: change(document or {}))


class FailureDomains:
    """Read, set and remove failure domains."""

    __slots__ = ("_store",)

    def __init__(self, store: DocumentStore) -> None:
        self._store = store

    async def all(self, cluster: str) -> dict[str, Document]:
        """By name, sorted; nothing where there is none, or no such cluster."""
        domains: dict[str, Document] = {}
        for name in await self._store.children(domains_path(cluster)):
            found = await self._store.find(f"{domains_path(cluster)}/{name}")
            if found is not None:
                domains[name] = found.document
        return domains

    async def get(self, cluster: str, name: str) -> Document:
        """Raises NotFoundError."""
        found = await self._store.find(_domain_path(cluster, name))
        if found is None:
            raise NotFoundError(f"Domain {name} for cluster {cluster} does not exist")
        return found.document

    async def set(self, cluster: str, name: str, domain: Document) -> None:
        """Set or make one; raises ConflictError for a broker that is in another one."""
        others = {other: members for other, members in (await self.all(cluster)).items() if other != name}
        wanted = domain.get("brokers")
        for other, members in others.items():
            taken = members.get("brokers")
            twice = (
                [one for one in taken if one in wanted] if isinstance(taken, list) and isinstance(wanted, list) else []
            )
            if twice:
                raise ConflictError(f"[{', '.join(map(str, twice))}] already exists in {other}")
        if len(others) >= DOMAINS_MAX:
            raise PreconditionFailedError(f"a cluster has at most {DOMAINS_MAX} failure domains")
        await self._store.put(_domain_path(cluster, name), lambda _: domain)

    async def delete(self, cluster: str, name: str) -> None:
        """Raises NotFoundError."""
        missing = f"Domain-name {name} or cluster {cluster} does not exist"
        await self._store.delete(_domain_path(cluster, name), missing=missing, not_empty=missing)

    async def forget(self, cluster: str) -> None:
        """Remove all of a cluster that is deleted, and the node above them."""
        for name in await self._store.children(domains_path(cluster)):
            try:
                await self.delete(cluster, name)
            except NotFoundError:
                pass
        try:
            await self._store.remove_empty(domains_path(cluster))
        except MetadataError:
            pass  # the cluster says that it is not empty


def check_isolation_policy(value: Json) -> Document:
    """A policy as it is kept; raises BodyError that says what is wrong and what belongs there."""
    given = object_of(value, "the body")
    failover = object_of(_required(given, "auto_failover_policy"), "auto_failover_policy")
    kind = _required(failover, "policy_type", within="auto_failover_policy.")
    if kind != POLICY_TYPE:
        raise BodyError(f"auto_failover_policy.policy_type must be {POLICY_TYPE}, not {shown(kind)}")
    what = "auto_failover_policy.parameters"
    parameters = {
        key: text_of(item, f"{what}.{key}")
        for key, item in object_of(_required(failover, "parameters", within="auto_failover_policy."), what).items()
    }
    for key in (LIMIT, THRESHOLD):
        if number_of(parameters.get(key), f"{what}.{key}") < 0:
            raise BodyError(f"{what}.{key} must be 0 or more")
    policy: Document = {
        "namespaces": [*_patterns(given, "namespaces", least=1)],
        "primary": [*_patterns(given, "primary", least=1)],
        "secondary": [*_patterns(given, "secondary", least=0)],
        "auto_failover_policy": {"policy_type": POLICY_TYPE, "parameters": {**parameters}},
    }
    scope = given.get("unload_scope")
    if scope is not None:
        if scope not in UNLOAD_SCOPES:
            raise BodyError(f"unload_scope must be one of {', '.join(UNLOAD_SCOPES)}, not {shown(scope)}")
        policy["unload_scope"] = scope
    return policy


def check_failure_domain(value: Json) -> Document:
    """A domain as it is kept; raises BodyError. No body is a domain without brokers."""
    given = {} if value is None else object_of(value, "the body")
    brokers = given.get("brokers")
    if brokers is None:
        return {}
    return {"brokers": [*_members(texts_of(brokers, "brokers"), "brokers")]}


def matcher(patterns: Json) -> Callable[[str], bool]:
    """Whether one of a policy's regular expressions matches a text as a whole; one that is none matches nothing.

    They are compiled here, which takes a hundred times what a text takes: once for many texts.
    """
    found = patterns if isinstance(patterns, list) else []
    compiled = [LinearPattern.compile(pattern) for pattern in found if isinstance(pattern, str)]
    return lambda text: any(pattern is not None and pattern.matches_text(text) for pattern in compiled)


def matches(patterns: Json, text: str) -> bool:
    """The same for one text."""
    return matcher(patterns)(text)


def namespaces_to_unload(policy: Mapping[str, Json], before: Mapping[str, Json] | None) -> list[str]:
    """Expressions of the namespaces that may have to go elsewhere now that ``policy`` took the place of ``before``."""
    scope = policy.get("unload_scope") or "changed"
    if scope == "none":
        return []
    new, old = _texts(policy, "namespaces"), _texts(before or {}, "namespaces")
    combined = list(dict.fromkeys([*new, *old]))
    has_moved = before is not None and sorted(_texts(policy, "primary")) != sorted(_texts(before, "primary"))
    if scope == "all_matching" or has_moved:
        return combined
    return [pattern for pattern in combined if not (pattern in new and pattern in old)]


def _texts(document: Mapping[str, Json], key: str) -> list[str]:
    found = document.get(key)
    return [item for item in found if isinstance(item, str)] if isinstance(found, list) else []


def _required(document: Mapping[str, Json], key: str, *, within: str = "") -> Json:
    value = document.get(key)
    if value is None:
        raise BodyError(f"{within}{key} is required")
    return value


def _patterns(document: Mapping[str, Json], key: str, *, least: int) -> list[str]:
    found = _members(texts_of(_required(document, key), key), key)
    if len(found) < least:
        raise BodyError(f"{key} must have a regular expression, or more")
    for pattern in found:
        if LinearPattern.compile(pattern) is None:
            raise BodyError(f"{key}: {pattern[:100]!r} is no regular expression, or has what RE2 does not know")
    return found


def _members(found: list[str], key: str) -> list[str]:
    if len(found) > MEMBERS_MAX:
        raise BodyError(f"{key} has {len(found)} members; {MEMBERS_MAX} are allowed")
    return found


def _domain_path(cluster: str, name: str) -> str:
    if "/" in name or name in (".", ".."):
        raise PreconditionFailedError(f"Domain name {name!r} is not valid: it can not be . or .. or have a slash")
    return f"{domains_path(cluster)}/{name}"
