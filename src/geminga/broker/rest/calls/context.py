"""What the REST handlers know of the broker they administer. Imports nothing of the HTTP software."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from geminga.broker.administration.services import (
    NO_FORCE,
    AdministeredTopics,
    Backups,
    BrokerStatus,
    ForcedDeletion,
    LiveConfiguration,
)

if TYPE_CHECKING:
    from geminga.broker.access.audit import Auditor
    from geminga.broker.access.ports import Access
    from geminga.broker.admission.topic_schemas import Schemas
    from geminga.broker.composition.metrics import Metrics
    from geminga.broker.configuration.broker_config import BrokerConfig
    from geminga.broker.core.coercion import Document
    from geminga.broker.load_rules.config import LoadConfig
    from geminga.broker.ownership.lookup import TopicLookup
    from geminga.broker.ownership.membership import Membership
    from geminga.broker.ownership.ports import Ownership
    from geminga.broker.peers.http_client import PeerAnswer
    from geminga.broker.resources import Resources
    from geminga.broker.statistics.topics import TopicStatistics
    from geminga.broker.system_topics.policies import PolicyService
    from geminga.broker.transactions.service import TransactionService
    from geminga.broker.websocket.service import SocketService
    from geminga.managed_ledger import ManagedLedgerFactory
    from geminga.runtime import Clock
    from geminga.runtime.ports import Disk


class MessageLimits(NamedTuple):
    """How many may read messages over HTTP at a time."""

    consumers: int = 256
    tails: int = 256
    #: Requests that wait for messages, tails among them: others are answered beside them.
    waiting: int = 512


MESSAGE_LIMITS: Final = MessageLimits()


def _nothing() -> None:
    """There is nothing to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestContext:
    """Handed to every handler."""

    status: BrokerStatus
    topics: AdministeredTopics
    resources: Resources
    policies: PolicyService
    #: Returns when the loaded topics of a namespace follow its changed policies.
    policies_changed: Callable[[str], Awaitable[None]]
    #: Each of these three is made with its first use, and the same from then on: they know what topics are.
    use_schemas: Callable[[], Schemas]
    use_metrics: Callable[[], Metrics]
    use_statistics: Callable[[], TopicStatistics]
    lookup: TopicLookup
    ownership: Ownership
    #: This broker's part in a cluster of several; None: it is alone.
    membership: Membership | None = None
    #: Of a broker whose load is managed; None: Pulsar's defaults.
    load: LoadConfig | None = None
    ledgers: ManagedLedgerFactory
    clock: Clock
    disk: Disk
    config: BrokerConfig
    cluster: str
    version: str
    #: Who is let in, and to what.
    access: Access
    #: Keeps what administrators change; None: nothing does.
    audit: Auditor | None = None
    #: Largest body of a request, bytes; -1: :data:`~geminga.broker.rest.calls.core.timeouts.BODY_BYTES_MAX_DEFAULT`.
    body_bytes_max: int = -1
    message_limits: MessageLimits = MESSAGE_LIMITS
    #: Path of the file whose presence ``/status.html`` tells; empty: none.
    status_file: str = ""
    #: Why new ledgers can not be made now, as far as the number of bookies goes; empty: they can.
    storage_shortage: Callable[[], str] = str
    #: What may be deleted with all that is in it.
    forced: ForcedDeletion = NO_FORCE
    #: Loaded with the first use, raises UnavailableError; None: the broker has no transactions.
    transactions: Callable[[], TransactionService] | None = None
    #: Where the metadata are, as ``metadataStoreUrl`` would say it.
    metadata_url: str = ""
    #: Where what clusters share is, as ``configurationMetadataStoreUrl`` would say it; empty: nothing is shared.
    configuration_url: str = ""
    #: Whether a topic keeps the configuration alike with that of other clusters.
    is_kept_alike: bool = False
    #: How that stands, as JSON, by the broker that leads; None: nothing is kept alike.
    synchronization: Callable[[], Awaitable[Document]] | None = None
    #: Every configuration key in force, for ``brokers/configuration/runtime``.
    configuration: Callable[[], Mapping[str, str]] = dict
    #: Hands over what is served here, so many bundles a second, and ends the process. Raises PreconditionFailedError
    #: where it is not this broker's to end; None: it never is.
    shut_down: Callable[[int], Awaitable[None]] | None = None
    #: Looks at the backlog quotas of all topics.
    check_backlog_quotas: Callable[[], None] = _nothing
    #: What the process tells of itself, by what it is about.
    process: Callable[[], Mapping[str, Mapping[str, float]]] = dict
    #: Made with the first use; None: what is to be backed up is elsewhere, or in no files.
    backups: Callable[[], Backups] | None = None
    #: WebSockets, made with the first use; None: they are not served (``webSocketServiceEnabled``).
    sockets: Callable[[], SocketService] | None = None
    #: The answer of another cluster's administration, by name, to a GET of a path; raises UnavailableError.
    ask_cluster: Callable[[str, str], Awaitable[PeerAnswer]] | None = None
    #: What of it can be changed at run time, made with the first use; None: nothing.
    live: Callable[[], LiveConfiguration] | None = None

    @property
    def shares_configuration(self) -> bool:
        """Whether what is said of tenants and namespaces here holds in other clusters, too."""
        return bool(self.configuration_url) or self.is_kept_alike

    @property
    def schemas(self) -> Schemas:
        """Of topics."""
        return self.use_schemas()

    @property
    def metrics(self) -> Metrics:
        """What ``/metrics`` tells."""
        return self.use_metrics()

    @property
    def statistics(self) -> TopicStatistics:
        """Of topics and their subscriptions."""
        return self.use_statistics()
