"""What a client is told that may not do what it asked for."""

from __future__ import annotations

from geminga.broker.access.core.actions import (
    Action,
    NamespaceOperation,
    PolicyAction,
    TenantAdministration,
)
from geminga.broker.access.core.principal import Principal
from geminga.broker.access.ports import Denied
from geminga.model.errors import AuthenticationError, AuthorizationError, RemoteError


def refused_command(action: Action, denied: Denied) -> AuthorizationError:
    """For the binary protocol."""
    return AuthorizationError(denied.reason or f"Client is not authorized to {action}")


def refused_request(principal: Principal, action: Action, denied: Denied) -> RemoteError:
    """For HTTP, with Pulsar's statuses: 403 for what is done to a namespace, and for policies of it and of topics; 401
    for all else, and to who said nothing of themselves."""
    if principal.is_anonymous:
        return AuthenticationError(denied.reason or "Need to authenticate to perform the request")
    if isinstance(action, TenantAdministration):
        return AuthenticationError("Don't have permission to administrate resources on this tenant")
    if not isinstance(action, NamespaceOperation | PolicyAction):
        return AuthenticationError(denied.reason or f"Unauthorized to {action} for {principal}")
    return AuthorizationError(denied.reason or f"Unauthorized to {action} for {principal}")
