"""Authorization by what is stored, put together; loaded where ``authorizationEnabled`` is set."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from geminga.broker.access.core.rules import Rules
from geminga.broker.access.core.shown_roles import shown_principal
from geminga.broker.access.lost_rights import Holder, LostRights
from geminga.broker.access.policy_authorizer import Document, PolicyAuthorizer, Stored
from geminga.broker.registry.tenant_infos import TenantInfos
from geminga.runtime import spawn

if TYPE_CHECKING:
    from geminga.broker.access.core.principal import Principal
    from geminga.broker.access.ports import Access
    from geminga.broker.composition.service import Broker


class Authorization:
    """Decides at a broker's doors, and follows what decides."""

    __slots__ = ("_authorizer", "_broker", "_rules", "_tenants", "access", "lost_rights")

    def __init__(self, broker: Broker, access: Access) -> None:
        """For ``broker``, which has its namespaces already. ``access``: whom it lets in."""
        self._broker = broker
        namespaces = broker.namespaces
        self._rules = self._configured()
        self._tenants = tenants = TenantInfos(
            broker.runtime.clock, broker.resources.tenants, broker.metadata, self._tenant_changed, part=broker
        )

        def known(namespace: str) -> Document | None:
            found = namespaces.known(namespace)
            return None if found is None else found.document

        async def read(namespace: str) -> Document | None:
            found = await namespaces.policies(namespace)
            return None if found is None else found.document

        self._authorizer = authorizer = PolicyAuthorizer(
            lambda: self._rules,
            Stored(tenants.known, tenants.read, lambda: tenants.changes),
            Stored(known, read, lambda: namespaces.changes),
            access.own_role,
        )
        #: The same who are let in, and this one decides.
        self.access: Final = replace(access, authorizer=authorizer, others=set(), tenant_changed=self.tenant_changed)
        #: Sends away who lost a right.
        self.lost_rights: Final = LostRights(authorizer, self._connections, broker, self._shown)

    def close(self) -> None:
        """The broker goes."""
        self._tenants.close()
        self.lost_rights.close()

    @property
    def refused(self) -> Mapping[str, int]:
        """How often each kind of action was refused, since the start; read at scrape time."""
        return self._authorizer.refused

    async def policies_changed(self, namespace: str) -> None:
        """On return nobody uses a right that is not in the policies any more that were stored before."""
        self._broker.namespaces.forget(namespace)
        await self.lost_rights.look(namespace)

    async def tenant_changed(self, tenant: str) -> None:
        """The same of who administers a tenant, which the metadata store's watch tells of a while later."""
        self._tenants.forget(tenant)
        await self.lost_rights.look(tenant)

    async def settings_changed(self) -> None:
        """On return nobody uses what they may not any more by the configuration in force."""
        rules = self._configured()
        if rules == self._rules:
            return
        self._rules = rules
        await self.lost_rights.look("")

    def _configured(self) -> Rules:
        config = self._broker.config
        return Rules(
            frozenset(config.super_user_roles),
            has_wildcards=config.authorization_has_wildcards,
            are_subscriptions_closed=config.subscription_roles_required,
            replicators=frozenset(config.replicator_roles),
        )

    def _tenant_changed(self, tenant: str) -> None:
        spawn(self.lost_rights.look(tenant), name=f"rights in {tenant}", part=self._broker)

    def _shown(self, principal: Principal) -> str:
        return shown_principal(principal, self._broker.config.role_anonymizer)

    def _connections(self) -> Collection[Holder]:
        # Each of them is a whole connection.
        return cast("Collection[Holder]", [*self._broker.connections.open, *self.access.others])
