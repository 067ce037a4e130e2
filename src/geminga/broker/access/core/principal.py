"""Who somebody is, once that is settled."""

from __future__ import annotations

from typing import Final, NamedTuple


class Principal(NamedTuple):
    """Who asks.

    A proxy asks in another's name: then both must be allowed what is asked for, as in Pulsar.
    """

    #: Pulsar's role; empty: nobody said who it is.
    role: str = ""
    #: For whom a proxy speaks; empty: for itself.
    original: str = ""
    #: All roles that the token of each names, where ``MultiRolesTokenAuthorizationProvider`` asks; None: the one above.
    roles: frozenset[str] | None = None
    original_roles: frozenset[str] | None = None

    @property
    def is_anonymous(self) -> bool:
        """Whether nobody knows who it is."""
        return not self.role

    @property
    def speaker(self) -> str:
        """Whose things are meant: behind a proxy those of whom it asks for. Empty: nobody's in particular."""
        return self.original or self.role

    def __str__(self) -> str:
        name = self.role or "anonymous"
        return f"{name} for {self.original}" if self.original else name


#: Everybody, where nobody is asked who they are.
ANONYMOUS: Final = Principal()
