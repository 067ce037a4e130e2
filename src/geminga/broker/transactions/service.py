"""What a broker has for transactions, put together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.broker.ownership.ports import Ownership
from geminga.broker.schema.registry import SchemaRegistry
from geminga.broker.system_topics.table import TablesElsewhere
from geminga.broker.transactions.alarm import HeldBackAlarm
from geminga.broker.transactions.coordinators import Coordinators
from geminga.broker.transactions.participants import LoadTopics, LocalParticipants
from geminga.broker.transactions.pending_ack_logs import LedgerPendingAckLogs
from geminga.broker.transactions.snapshots import OpenTopics, SnapshotTables, TopicSnapshots
from geminga.managed_ledger import ManagedLedgerFactory
from geminga.model.topic_name import TopicName
from geminga.runtime import Part, Runtime
from geminga.transaction.coordinator import CoordinatorConfig
from geminga.transaction.ports import BufferSnapshots, HoldsBack, Participants, Registrations, StandingsElsewhere


class TopicsOfBroker(LoadTopics, OpenTopics, Protocol):
    """The topics of this broker."""


class TransactionService:
    """See the module; where ``transactionCoordinatorEnabled`` is set."""

    __slots__ = ("alarm", "coordinators", "own_snapshots", "participants", "pending_ack_logs", "snapshots")

    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        ledgers: ManagedLedgerFactory,
        topics: TopicsOfBroker,
        schemas: SchemaRegistry,
        ownership: Ownership,
        *,
        count: Callable[[], Awaitable[int]],
        part: Part,
        tables_elsewhere: TablesElsewhere | None = None,
        snapshots_of: Callable[[BufferSnapshots], BufferSnapshots] | None = None,
        participants_of: Callable[[Participants], Participants] | None = None,
        standings: StandingsElsewhere | None = None,
    ) -> None:
        """``count``: how many coordinators the cluster has. ``tables_elsewhere``: snapshots whose topics other brokers
        serve. ``snapshots_of``, ``participants_of``: those of the whole cluster, given this broker's own; None: they
        are all here. ``standings``: what coordinators of other brokers know; None: they can not be asked."""
        #: Kept by this broker.
        tables = SnapshotTables(topics, schemas, runtime.clock, ownership, tables_elsewhere)
        self.own_snapshots = TopicSnapshots(tables, runtime.clock, ownership)
        self.snapshots: BufferSnapshots = (
            self.own_snapshots if snapshots_of is None else snapshots_of(self.own_snapshots)
        )
        #: Those that are here.
        self.participants = LocalParticipants(topics)
        told: Participants = self.participants if participants_of is None else participants_of(self.participants)
        self.pending_ack_logs = LedgerPendingAckLogs(ledgers)
        limits = CoordinatorConfig(config.active_transactions_max, config.transaction_timeout_max_ms)
        self.coordinators = Coordinators(
            runtime, ledgers, ownership, told, limits, count=count, part=part, elsewhere=standings
        )
        self.alarm = HeldBackAlarm(runtime.clock, config.transaction_alarm_ms, self.coordinators.described, part)

    @property
    def registrations(self) -> Registrations:
        """What coordinators know of participants."""
        return self.coordinators

    def watch_held(self, holding: HoldsBack) -> None:
        """It begins to wait for the end of a transaction."""
        self.alarm.watch(holding)

    async def close(self) -> None:
        """Close the coordinators; what is decided goes on where each is opened next."""
        self.alarm.close()
        await self.coordinators.close()

    def forget_namespace(self, namespace: str) -> None:
        """It is deleted."""
        self.own_snapshots.forget(namespace)

    def table_written(self, name: TopicName) -> None:
        """Others published in a topic of snapshots here."""
        self.own_snapshots.told(name)
