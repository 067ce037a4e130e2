"""What topics use of the broker around them; made once, where the broker is put together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from geminga.broker.publishing.rates import NO_THROTTLES, BrokerThrottles

if TYPE_CHECKING:
    from geminga.broker.configuration.broker_config import BrokerConfig
    from geminga.broker.core.departure import Departure
    from geminga.broker.core.dispatch.recent_candidates import RecentCandidates
    from geminga.broker.core.dispatch.unacked_budget import UnackedBudget
    from geminga.broker.core.source_word import SourceWord
    from geminga.broker.failures import Failures
    from geminga.broker.filters.ports import AsksFilters
    from geminga.broker.policies.rules import TopicRules
    from geminga.broker.schema.core.storage_format import StoredSchema
    from geminga.broker.subscription.consumer import Consumer
    from geminga.broker.subscription.ports import PendingAckLogs
    from geminga.broker.topic.base import Topic
    from geminga.broker.topic.parts import OtherPlace, RemoteClusters, TopicPart
    from geminga.broker.topic.ports import KeptTransactions
    from geminga.managed_ledger import ManagedLedgerFactory
    from geminga.metadata.ports import MetadataStore
    from geminga.model.histogram import Latencies
    from geminga.model.position import Position
    from geminga.model.topic_name import TopicName
    from geminga.runtime import Part, Runtime
    from geminga.transaction.ports import BufferSnapshots, HoldsBack, Registrations
    from geminga.wire._generated import pulsar_api_pb2 as pb


#: Topics of a broker that are compacted at the same time; others wait for their turn.
COMPACTIONS_AT_ONCE: Final = 2


class ShadowLinks(Protocol):
    """Between who has a topic and who has a topic that shows it (broker/shadow)."""

    async def ask(self, source: TopicName, shadow: TopicName, known: Position) -> SourceWord:
        """What the source's owner says to a shadow that knows of aborts up to ``known``. Raises GemingaError,
        TopicNotFoundError where there is no source."""
        ...

    async def tell(self, shadow: TopicName, word: SourceWord) -> bool:
        """Tell the shadow's owner; whether that is this broker. Raises GemingaError."""
        ...

    async def answer(self, source: TopicName, shadow: TopicName, known: Position) -> SourceWord:
        """What a source that this broker has says to a shadow of it. Raises GemingaError."""
        ...

    def heard(self, shadow: TopicName, word: SourceWord) -> None:
        """A shadow that this broker has is told; one that is not loaded asks when it is."""
        ...


class TopicMoves(Protocol):
    """Whether topics move to another cluster."""

    @property
    def changes(self) -> int:
        """Counts what was heard of changes."""
        ...

    def place_of(self, rules: TopicRules) -> OtherPlace | None:
        """Where a topic with these rules moves to; None: it stays."""
        ...


class Compactions:
    """What the compactions of a broker's topics have in common."""

    __slots__ = ("asked", "turns")

    def __init__(self) -> None:
        #: Topics that somebody asked to be compacted now.
        self.asked: set[TopicName] = set()
        self.turns = asyncio.Semaphore(COMPACTIONS_AT_ONCE)


async def _no_group(rules: TopicRules) -> BrokerThrottles:
    return NO_THROTTLES


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicServices:
    """One for all topics of a broker. What is called may raise GemingaError where its type is awaitable."""

    # ---- what everything has
    runtime: Runtime
    config: BrokerConfig
    metadata: MetadataStore
    ledgers: ManagedLedgerFactory

    #: What persistent topics may have beside their log, in the order in which it is asked.
    parts: tuple[type[TopicPart], ...]

    # ---- failures
    failures: Failures
    #: Whose failure it is that is no single topic's: the broker's own.
    whole: Part

    # ---- the topic's life, as others decide it
    #: Send its clients away and close it.
    unload: Callable[[TopicName], Coroutine[None, None, None]]
    #: The same where another broker opened what is stored of it.
    unload_fenced: Callable[[TopicName], Coroutine[None, None, None]]
    #: It broke: cut its clients off and let go of it without saving; returns at once.
    drop_soon: Callable[[Topic], None]
    #: It is closed because another broker is to have it; None: nobody is.
    departure_of: Callable[[TopicName], Departure | None] = lambda _: None

    # ---- policies
    #: The rules of a topic: its own, its namespace's, the broker's.
    rules: Callable[[TopicName], Awaitable[TopicRules]]
    #: The same by what is stored now; None: nobody may conclude anything.
    rules_now: Callable[[TopicName], Awaitable[TopicRules | None]]
    #: Raises IncompatibleSchemaError if the schema of a SUBSCRIBE does not fit.
    admit_consumer: Callable[[Topic, pb.CommandSubscribe], Awaitable[None]]

    #: A version of the schema of a topic; None: there is none. Raises StorageError.
    find_schema: Callable[[TopicName, int], Awaitable[StoredSchema | None]] | None = None

    #: What topics and subscriptions keep of transactions; None: the broker has none.
    transactions: KeptTransactions | None = None

    #: Where topics are copied to; None: the broker knows no other cluster.
    remote_clusters: RemoteClusters | None = None

    #: Whether topics move to another cluster; None: none does.
    moves: TopicMoves | None = None

    #: Others published in a topic in which this broker keeps a table.
    table_written: Callable[[TopicName], None] | None = None

    #: Between topics and those that show them.
    shadows: ShadowLinks

    # ---- what topics and subscriptions of a broker have in common
    #: From the arrival of entries to their receipts.
    publish_latency: Latencies
    #: What dispatch found out about entries.
    recent_candidates: RecentCandidates
    #: How much all subscriptions together may leave unacknowledged; None: no limit.
    unacked_budget: UnackedBudget | None
    #: A dispatcher was thrown away as it was.
    recount_unacked: Callable[[], None]
    #: Which are compacted, and how many at once.
    compactions: Compactions = field(default_factory=Compactions)
    #: The entry filters of a topic by the rules that hold for it, given those it had; None: it has none.
    entry_filters: Callable[[TopicName, TopicRules, AsksFilters | None], AsksFilters | None] = lambda *_: None
    #: What holds a topic with the other topics of its resource group.
    group_throttles: Callable[[TopicRules], Awaitable[BrokerThrottles]] = _no_group
    #: Rates of all topics together, as they are now.
    throttles: Callable[[], BrokerThrottles] = lambda: NO_THROTTLES
    #: What makes the consumers, of what a plain one is made of; None: they are plain.
    consumer_kind: Callable[..., Consumer] | None = None

    @property
    def snapshots(self) -> BufferSnapshots | None:
        """Where the snapshots of transaction buffers are kept; None: the broker has no transactions."""
        return self.transactions.snapshots if self.transactions is not None else None

    @property
    def registrations(self) -> Registrations | None:
        """What coordinators know of participants; None: the broker has no transactions."""
        return self.transactions.registrations if self.transactions is not None else None

    @property
    def pending_ack_logs(self) -> PendingAckLogs | None:
        """Where subscriptions keep what they acknowledge in transactions; None: the broker has no transactions."""
        return self.transactions.pending_ack_logs if self.transactions is not None else None

    async def holds(self, name: TopicName, rules: TopicRules) -> bool:
        """Whether these rules are what is stored now: before something goes that later ones might keep.

        Who brought others has the topic follow them. Raises GemingaError.
        """
        return await self.rules_now(name) == rules

    def watch_held(self, holding: HoldsBack) -> None:
        """It begins to wait for the end of a transaction."""
        if self.transactions is not None:
            self.transactions.watch_held(holding)

    @property
    def has_transactions(self) -> bool:
        """Whether the broker has them."""
        return self.transactions is not None
