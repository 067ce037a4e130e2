"""What requests work on, in parts; made once, where the broker is put together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from geminga.broker.ownership.endpoints import Endpoints
    from geminga.broker.peers.topics import PeerTopics
    from geminga.broker.registry.partitions import Partitions
    from geminga.broker.registry.topic_registry import TopicRegistry
    from geminga.broker.resources import Resources
    from geminga.broker.topic.services import ShadowLinks
    from geminga.broker.upkeep.admin_steps import AdminSteps
    from geminga.managed_ledger import ManagedLedgerFactory


class BrokerStatus(Protocol):
    """The broker itself."""

    is_closing: bool

    @property
    def endpoints(self) -> Endpoints:
        """Its listeners; raises UnavailableError before it serves."""
        ...

    @property
    def connection_counts(self) -> tuple[int, int]:
        """Connections of clients: those that are open, and all since the start."""
        ...

    @property
    def web_url(self) -> str:
        """The HTTP service URL that clients are told."""
        ...


class Backups(Protocol):
    """Copies of all that a server keeps, made while it runs; one at a time."""

    async def start(self, directory: str, request: str, *, whole: bool, rate_limit: int = 0) -> None:
        """Begin one. ``directory``: absolute, of the server's machine; ``request``: name of a file that lies there.

        ``rate_limit``: bytes a second that are copied; 0: no limit.
        Raises PreconditionFailedError, ConflictError while one is being made.
        """
        ...

    async def state(self) -> Mapping[str, str | int]:
        """Of the one that was begun last."""
        ...


class ForcedDeletion(Protocol):
    """What may be deleted with all that is in it."""

    @property
    def force_delete_namespace(self) -> bool:
        """A namespace with topics."""
        ...

    @property
    def force_delete_tenant(self) -> bool:
        """A tenant with namespaces."""
        ...


class Force(NamedTuple):
    """Said once."""

    force_delete_namespace: bool = False
    force_delete_tenant: bool = False


NO_FORCE: Final = Force()


class LiveConfiguration(Protocol):
    """Settings that are changed at run time, for all brokers of the cluster."""

    @property
    def names(self) -> Sequence[str]:
        """Those that can be."""
        ...

    async def values(self) -> dict[str, str]:
        """What was set, as it is stored. Raises MetadataError, CorruptionError."""
        ...

    async def set(self, key: str, text: str) -> None:
        """For all brokers; on return this one follows. Raises PreconditionFailedError, MetadataError."""
        ...

    async def delete(self, key: str) -> None:
        """As each broker's own configuration says from now on. Raises PreconditionFailedError, MetadataError."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AdministeredTopics:
    """Topics, and what is stored of them."""

    registry: TopicRegistry
    partitions: Partitions
    resources: Resources
    ledgers: ManagedLedgerFactory
    #: Between topics and those that show them; loaded by who asks.
    shadows: Callable[[], ShadowLinks]
    #: Those that other brokers serve; None: this one serves all.
    elsewhere: PeerTopics | None = None
    #: For a loop over many topics: a turn of the loop between two, until the broker stops.
    steps: Callable[[], AdminSteps]
    #: What was remembered of a namespace's policies is read anew.
    forget_policies: Callable[[str], None]
    #: Schemas and policies of topics that went with their namespace; raises GemingaError.
    forget_namespace: Callable[[str], Awaitable[None]]
