"""Authorization by what is stored, put together; loaded where ``authorizationEnabled`` is set."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from geminga.broker.access.core.rules import Rules
from geminga.broker.access.lost_rights import Holder, LostRights
from geminga.broker.access.policy_authorizer import Document, PolicyAuthorizer, Stored
from geminga.broker.registry.tenant_infos import TenantInfos

if TYPE_CHECKING:
    from geminga.broker.access.ports import Access
    from geminga.broker.composition.service import Broker


def authorizing(
    broker: Broker, access: Access, tenant_changed: Callable[[str], None]
) -> tuple[Access, TenantInfos, LostRights]:
    """Who may do what at ``broker``, whom ``access`` lets in; what it remembers of tenants, and who sends away."""
    config, namespaces = broker.config, broker.namespaces
    rules = Rules(
        frozenset(config.super_user_roles),
        has_wildcards=config.authorization_has_wildcards,
        are_subscriptions_closed=config.subscription_roles_required,
    )
    tenants = TenantInfos(broker.runtime.clock, broker.resources.tenants, broker.metadata, tenant_changed, part=broker)

    def known(namespace: str) -> Document | None:
        found = namespaces.known(namespace)
        return None if found is None else found.document

    async def read(namespace: str) -> Document | None:
        found = await namespaces.policies(namespace)
        return None if found is None else found.document

    authorizer = PolicyAuthorizer(
        lambda: rules,
        Stored(tenants.known, tenants.read, lambda: tenants.changes),
        Stored(known, read, lambda: namespaces.changes),
    )

    def holders() -> Collection[Holder]:
        # Each of them is a whole connection.
        return cast("Collection[Holder]", broker.connections.open)

    return replace(access, authorizer=authorizer), tenants, LostRights(authorizer, holders, broker)
