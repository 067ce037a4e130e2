"""Decides by what is stored: tenants' administrators and namespaces' grants, as Pulsar's provider does.

What is remembered answers at once; what is not is read first, and the answer is a coroutine. What it is asked about is
never made: a namespace or tenant that is not there gives nobody anything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, NamedTuple

from geminga.broker.access.core.actions import (
    Action,
    BrokerOperation,
    ClusterOperation,
    NamespaceOperation,
    PolicyAction,
    Resource,
    SuperUser,
    TenantAdministration,
    TenantOperation,
    TopicOperation,
)
from geminga.broker.access.core.grants import NO_GRANTS, Grants, grants_of
from geminga.broker.access.core.principal import Principal
from geminga.broker.access.core.rules import (
    NO_FACTS,
    Facts,
    Need,
    Refusal,
    Rules,
    administrators_of,
    decide,
    is_of_brokers,
    need_of,
    settled_without_facts,
)
from geminga.broker.access.ports import ALLOWED, Allowed, Decision, Denied, OwnRole
from geminga.broker.core.coercion import Json

#: Namespaces whose grants are kept in the form that is asked; the one that was added longest ago goes first.
NAMESPACES_KEPT_MAX: Final = 1000
#: How often is read again what changed meanwhile: changes of anything count, and must not hold a client for ever.
READS_MAX: Final = 5

#: What refusals are counted by.
KINDS: Final[Mapping[type, str]] = {
    TopicOperation: "topic",
    NamespaceOperation: "namespace",
    PolicyAction: "policy",
    TenantOperation: "tenant",
    TenantAdministration: "tenant",
    ClusterOperation: "cluster",
    BrokerOperation: "broker",
    SuperUser: "super_user",
}

Document = Mapping[str, Json]


class Stored(NamedTuple):
    """Documents of one kind, by name."""

    #: What is remembered of it and holds; None: nothing is.
    known: Callable[[str], Document | None]
    #: What is stored; None: there is none of that name. Raises GemingaError.
    read: Callable[[str], Awaitable[Document | None]]
    #: Counts what was heard of changes: what was read while it grew may be old.
    changes: Callable[[], int]


class PolicyAuthorizer:
    """See the module."""

    __slots__ = ("_kept", "_namespaces", "_own_role", "_rules", "_tenants", "refused")

    def __init__(
        self, rules: Callable[[], Rules], tenants: Stored, namespaces: Stored, own_role: OwnRole | None = None
    ) -> None:
        """``rules``: in force now. Tenants by their names, namespaces by ``tenant/namespace``.

        ``own_role``: that of the broker's own credentials, which other clusters' brokers may share.
        """
        self._rules = rules
        self._own_role = own_role
        self._tenants = tenants
        self._namespaces = namespaces
        #: Policies of a namespace, and what they give.
        self._kept: dict[str, tuple[Document, Grants]] = {}
        #: How often each kind of action was refused, since the start.
        self.refused = dict.fromkeys(KINDS.values(), 0)

    def decide(
        self, principal: Principal, action: Action, resource: Resource
    ) -> Decision | Coroutine[Any, Any, Decision]:
        """See :class:`~geminga.broker.access.ports.Authorizer`."""
        rules = self._rules()
        if settled_without_facts(rules, principal, action):
            return self._told(rules, NO_FACTS, principal, action, resource)
        asks_grants = _asks_grants(action, resource)
        tenant = self._tenants.known(resource.tenant)
        policies = self._namespaces.known(resource.namespace) if asks_grants else None
        if tenant is None or (asks_grants and policies is None):
            return self._read_and_decide(principal, action, resource, asks_grants=asks_grants)
        facts = Facts(administrators_of(tenant), self._grants(resource.namespace, policies))
        return self._told(rules, facts, principal, action, resource)

    async def _read_and_decide(
        self,
        principal: Principal,
        action: Action,
        resource: Resource,
        *,
        asks_grants: bool,
        brokers: frozenset[str] | None = None,
    ) -> Decision:
        """``brokers``: what those of this cluster are; None: nobody has asked yet."""
        tenant = policies = None
        for _ in range(READS_MAX):
            before = self._changes
            tenant = await self._tenants.read(resource.tenant) if resource.tenant else None
            policies = await self._namespaces.read(resource.namespace) if asks_grants else None
            if before == self._changes:
                break
        facts = Facts(administrators_of(tenant), self._grants(resource.namespace, policies))
        if brokers is None:
            told = self._told(self._rules(), facts, principal, action, resource)
            return told if isinstance(told, Allowed | Denied) else await told
        refusal = decide(self._rules()._replace(brokers=brokers), facts, principal, action, resource)
        return ALLOWED if refusal is None else self._denied(action, refusal)

    @property
    def _changes(self) -> int:
        return self._tenants.changes() + self._namespaces.changes()

    def _grants(self, namespace: str, policies: Document | None) -> Grants:
        if policies is None:
            return NO_GRANTS
        kept = self._kept.get(namespace)
        if kept is not None and kept[0] is policies:
            return kept[1]
        grants = grants_of(policies)
        self._kept.pop(namespace, None)
        self._kept[namespace] = (policies, grants)
        if len(self._kept) > NAMESPACES_KEPT_MAX:
            del self._kept[next(iter(self._kept))]
        return grants

    def _told(
        self, rules: Rules, facts: Facts, principal: Principal, action: Action, resource: Resource
    ) -> Decision | Coroutine[Any, Any, Decision]:
        refusal = decide(rules, facts, principal, action, resource)
        if refusal is None:
            return ALLOWED
        is_asked = action is TenantAdministration.REPLICATE or is_of_brokers(action, resource)
        if self._own_role is not None and is_asked and not principal.is_anonymous:
            return self._told_of_own(self._own_role, principal, action, resource)
        return self._denied(action, refusal)

    async def _told_of_own(
        self, own_role: OwnRole, principal: Principal, action: Action, resource: Resource
    ) -> Decision:
        """The same where it is known what the brokers' own role is: it may replicate, and use what brokers keep."""
        brokers = frozenset([await own_role()])
        # What was known before that may be old.
        return await self._read_and_decide(
            principal, action, resource, asks_grants=_asks_grants(action, resource), brokers=brokers
        )

    def _denied(self, action: Action, refusal: Refusal) -> Denied:
        self.refused[KINDS[type(action)]] += 1
        return Denied(refusal.reason)


def _asks_grants(action: Action, resource: Resource) -> bool:
    return need_of(action) is not Need.ADMINISTRATOR and bool(resource.namespace)
