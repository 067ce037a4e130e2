"""What a client is told that may not do what it asked for."""

from __future__ import annotations

from geminga.broker.access.core.actions import Action
from geminga.broker.access.core.principal import Principal
from geminga.broker.access.ports import Denied
from geminga.model.errors import AuthenticationError, AuthorizationError, RemoteError


def refused_command(action: Action, denied: Denied) -> AuthorizationError:
    """For the binary protocol."""
    return AuthorizationError(denied.reason or f"Client is not authorized to {action}")


def refused_request(principal: Principal, action: Action, denied: Denied) -> RemoteError:
    """For HTTP: 401 where saying who it is could help, as in Pulsar; else 403."""
    if principal.is_anonymous:
        return AuthenticationError(denied.reason or "Need to authenticate to perform the request")
    return AuthorizationError(denied.reason or f"Unauthorized to {action} for {principal}")
