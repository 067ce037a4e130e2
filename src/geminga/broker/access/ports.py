"""Who answers who somebody is, and whether that one may do something."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

from geminga.broker.access.core.actions import Action, Resource
from geminga.broker.access.core.handshake import Credentials, HandshakeRules, Verdict
from geminga.broker.access.core.principal import Principal

if TYPE_CHECKING:
    from geminga.broker.access.audit import Auditor


@dataclass(frozen=True, slots=True)
class Allowed:
    """It may be done."""


class Denied(NamedTuple):
    """It may not."""

    #: What the client is told of it; empty: which action it is.
    reason: str = ""


Decision: TypeAlias = Allowed | Denied
#: Of a metric: names and values.
Labels: TypeAlias = tuple[tuple[str, str], ...]
#: The role of the broker's own credentials (``brokerClient...``), empty: they have none here. Raises GemingaError
#: where that can not be known now.
OwnRole: TypeAlias = Callable[[], Awaitable[str]]
ALLOWED: Final = Allowed()


class Authorizer(Protocol):
    """Decides at every door."""

    def decide(
        self, principal: Principal, action: Action, resource: Resource
    ) -> Decision | Coroutine[Any, Any, Decision]:
        """Whether ``principal`` may do ``action`` to ``resource``.

        At once where the answer is known, so that a door costs no task. A coroutine where something must be read
        first: commands behind the one that asks wait for it; its GemingaError is the answer to the client.
        """


class Exchange(Protocol):
    """Finding out who one peer is; it may take several rounds."""

    def answer(self, credentials: Credentials) -> Verdict | Coroutine[Any, Any, Verdict]:
        """What to make of what the peer said: at once, or after something was asked elsewhere.

        A GemingaError of the coroutine refuses the peer.
        """


class Authenticator(Protocol):
    """Finds out who peers are."""

    def begin(self, source: str = "", *, in_http: bool = False) -> Exchange:
        """For a peer that nothing is known of; no more than one is held for each connection and identity.

        ``source``: its address, without the port. ``in_http``: credentials are the value of the header Authorization,
        and no method may be named.
        """


def _no_metrics() -> Iterable[tuple[Labels, Mapping[str, float]]]:
    return ()


async def _no_rights_are_asked_for(tenant: str) -> None:
    """Whoever is let in may do everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Who is let in at a broker, and to what."""

    authenticator: Authenticator
    authorizer: Authorizer
    #: Roles that ask in the names of others.
    proxy_roles: frozenset[str] = frozenset()
    #: Whether what a proxy passes on of another's credentials is verified too.
    verifies_original: bool = False
    #: Seconds before credentials expire that new ones are asked for.
    refresh_s: float = 60.0
    #: Whether who asks for ``/metrics`` must be known.
    authenticates_metrics: bool = False
    #: Labels and samples of what became of credentials.
    metrics: Callable[[], Iterable[tuple[Labels, Mapping[str, float]]]] = _no_metrics
    #: Who this broker is by its own authenticators; None: it shows nobody any credentials.
    own_role: OwnRole | None = None
    #: Keeps what is refused and done, by others than REST; None: nothing does.
    audit: Auditor | None = None
    #: Whether each reader has a line there, or only who says that it is a command.
    audits_readers: bool = False
    #: Who consumes here without a connection of the binary protocol: each is a ``lost_rights.Holder``.
    others: set[object] = field(default_factory=set, compare=False)
    #: A tenant is another one now: on return nobody uses a right in it that was lost.
    tenant_changed: Callable[[str], Awaitable[None]] = _no_rights_are_asked_for

    def handshake_rules(self, limit_s: float) -> HandshakeRules:
        """For handshakes that may take so many seconds."""
        return HandshakeRules(
            limit_s,
            refresh_s=self.refresh_s,
            proxy_roles=self.proxy_roles,
            verifies_original=self.verifies_original,
        )
