"""An authenticator of one's own: roles by shared secrets, and an authorizer that lets each role into its own tenant.

Files that it touches: this module. It is handed to the broker, ``Broker(..., access=access_of(...))``; the binary
protocol and HTTP both ask it. The ports are in ``broker/access/ports.py``; the row of a command or a route says which
action it asks for.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from geminga.broker.access.core.actions import Action, Resource
from geminga.broker.access.core.handshake import Credentials, Known, Rejected, Verdict
from geminga.broker.access.core.principal import Principal
from geminga.broker.access.ports import ALLOWED, Access, Decision, Denied


class SharedSecrets:
    """Knows each role by its secret."""

    def __init__(self, roles: Mapping[bytes, str]) -> None:
        """``roles``: by secret."""
        self._roles = roles

    def begin(self, *_: object, **__: object) -> SharedSecrets:
        """One round is enough, so nothing is kept of a peer."""
        return self

    def answer(self, credentials: Credentials) -> Verdict:
        """Every secret is compared, in time that tells nothing of it."""
        found = [role for secret, role in self._roles.items() if hmac.compare_digest(secret, credentials.data)]
        return Known(found[0]) if found else Rejected("no such secret")


class OwnTenant:
    """Everything of the tenant that is called as the role, and nothing else; the role ``admin`` may do all."""

    def decide(self, principal: Principal, action: Action, resource: Resource) -> Decision:
        """Whose tenant the resource is in; what is in none, such as the brokers, is the administrator's."""
        if principal.role == "admin" or (principal.role and resource.tenant == principal.role):
            return ALLOWED
        return Denied(f"{principal.role or 'nobody'} is let into its own tenant only")


def access_of(roles: Mapping[bytes, str]) -> Access:
    """For ``Broker(access=...)``."""
    return Access(authenticator=SharedSecrets(roles), authorizer=OwnTenant())
