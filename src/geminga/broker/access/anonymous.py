"""Authentication and authorization are off: nobody is asked who it is, and everybody may do everything."""

from __future__ import annotations

from typing import Final

from geminga.broker.access.core.actions import Action, Resource
from geminga.broker.access.core.handshake import Credentials, Known
from geminga.broker.access.core.principal import Principal
from geminga.broker.access.ports import ALLOWED, Access, Authenticator, Authorizer, Decision


class AnonymousMay:
    """Says yes."""

    __slots__ = ()

    def decide(self, principal: Principal, action: Action, resource: Resource) -> Decision:
        """Yes."""
        return ALLOWED


class EverybodyIsAnonymous:
    """Asks nobody who it is, whatever credentials come."""

    __slots__ = ()

    def begin(self, source: str = "", *, in_http: bool = False) -> EverybodyIsAnonymous:
        """For a peer."""
        return self

    def answer(self, credentials: Credentials) -> Known:
        """Anonymous."""
        return Known()


#: They hold nothing: one for all.
ANONYMOUS_MAY: Final[Authorizer] = AnonymousMay()
EVERYBODY_IS_ANONYMOUS: Final[Authenticator] = EverybodyIsAnonymous()
#: Everybody is let in to everything.
OPEN: Final = Access(authenticator=EVERYBODY_IS_ANONYMOUS, authorizer=ANONYMOUS_MAY)
