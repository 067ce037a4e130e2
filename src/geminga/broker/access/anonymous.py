"""Authorization is off: whoever is let in may do everything."""

from __future__ import annotations

from typing import Final

from geminga.broker.access.core.actions import Action, Resource
from geminga.broker.access.core.principal import Principal
from geminga.broker.access.ports import ALLOWED, Authorizer, Decision


class AnonymousMay:
    """Says yes."""

    __slots__ = ()

    def decide(self, principal: Principal, action: Action, resource: Resource) -> Decision:
        """Yes."""
        return ALLOWED


#: It holds nothing: one for all.
ANONYMOUS_MAY: Final[Authorizer] = AnonymousMay()
