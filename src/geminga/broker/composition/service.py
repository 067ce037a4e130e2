"""The broker: connections, topics, and the services that other parts (handlers, REST, metrics) call.

Made by a composition root, which also listens (``runtime.network.listen`` with :meth:`Broker.new_connection`) and says
with :meth:`Broker.start` under which URLs clients reach it. :meth:`Broker.close` sends every client away
gracefully and closes every topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final, cast

from geminga.broker.access.anonymous import OPEN
from geminga.broker.composition.late_filters import LateFilters
from geminga.broker.composition.late_groups import LateGroups
from geminga.broker.composition.late_transactions import LateTransactions, NoTransactions
from geminga.broker.connection.back_pressure import TURN_COMMANDS_MAX
from geminga.broker.connection.connections import Connections
from geminga.broker.connection.output_budget import OutputBudget
from geminga.broker.connection.publish_buffer import PublishBuffer
from geminga.broker.connection.request_room import RequestRoom
from geminga.broker.connection.services import ConnectionServices
from geminga.broker.core.dispatch.recent_candidates import RecentCandidates
from geminga.broker.failures import BrokenPart, Failures
from geminga.broker.geo.residence import PeerClusters
from geminga.broker.ownership.endpoints import Endpoint, Endpoints
from geminga.broker.ownership.lookup import TopicLookup
from geminga.broker.ownership.sole import SoleOwnership
from geminga.broker.policies.rules import broker_levels
from geminga.broker.publishing.rates import broker_throttles
from geminga.broker.registry.namespaces import Namespaces
from geminga.broker.registry.policy_following import PolicyFollowing, leave_if_elsewhere
from geminga.broker.registry.ports import Belongings, PartitionedCalls, SharingClusters
from geminga.broker.registry.topic_registry import TopicRegistry
from geminga.broker.resources.initialization import COORDINATORS_TOPIC
from geminga.broker.system_topics.policies import PolicyService
from geminga.broker.system_topics.topic_policies import TopicPolicyStore
from geminga.broker.upkeep.admin_steps import AdminSteps
from geminga.broker.upkeep.inactive_topics import InactiveTopics
from geminga.broker.upkeep.ledger_upkeep import LedgerUpkeep
from geminga.model.errors import ConflictError, UnavailableError
from geminga.model.histogram import Latencies
from geminga.model.topic_name import CHANGE_EVENTS, TopicName
from geminga.runtime import Runtime, get_logger, spawn
from geminga.runtime.frame_room import FrameRoom

if TYPE_CHECKING:
    from geminga.broker.access.ports import Access
    from geminga.broker.administration.services import AdministeredTopics
    from geminga.broker.admission.topic_schemas import Schemas
    from geminga.broker.composition.authorization import Authorization
    from geminga.broker.composition.traces import Traces
    from geminga.broker.configuration.broker_config import BrokerConfig
    from geminga.broker.connection.connection import Connection
    from geminga.broker.handlers.rows import CommandTable
    from geminga.broker.ownership.ports import Ownership
    from geminga.broker.ownership.silent_brokers import SilentBrokers
    from geminga.broker.peers.topics import PeerTopics
    from geminga.broker.policies.core.row import Settings
    from geminga.broker.registry.partitions import Partitions
    from geminga.broker.registry.topic_watches import TopicWatches
    from geminga.broker.resources import Document, Resources
    from geminga.broker.system_topics.table import TablesElsewhere
    from geminga.broker.topic.base import Topic
    from geminga.broker.topic.parts import RemoteClusters
    from geminga.broker.topic.services import TopicServices
    from geminga.broker.transactions.service import TransactionService
    from geminga.broker.upkeep.policies import PolicyUpkeep
    from geminga.managed_ledger import ManagedLedger, ManagedLedgerFactory
    from geminga.metadata.ports import MetadataStore

_log = get_logger(__name__)

#: The name of the part that guards a topic's backlog quotas.
BACKLOG_QUOTAS_PART: Final = "backlogQuotas"
#: Lists of topics that are made, or matched, at the same time.
LONG_WORK_AT_ONCE: Final = 2


class Broker:
    """See the module."""

    def __init__(
        self,
        runtime: Runtime,
        metadata: MetadataStore,
        ledgers: ManagedLedgerFactory,
        config: BrokerConfig,
        resources: Resources,
        *,
        version: str = "",
        ownership: Ownership | None = None,
        tables_elsewhere: TablesElsewhere | None = None,
        peers: Callable[[Ownership, Callable[[], Endpoints]], PeerTopics] | None = None,
        silent: SilentBrokers | None = None,
        access: Access = OPEN,
        other_clusters: Callable[[], RemoteClusters] | None = None,
        sharing: SharingClusters | None = None,
        telemetry: Traces | None = None,
    ) -> None:
        """``version``: of the program, told to clients. ``ownership``: which topics are its; None: all of them.
        ``tables_elsewhere``: tables whose topics other brokers serve; None: they are refused. ``peers`` makes what asks
        other brokers, given the ownership and this broker's listeners; None: what would need them is refused.
        ``silent``: who was killed. ``access``: who is let in. ``other_clusters``: to copy to. ``sharing``: those
        whose configuration is this one's, too; None: none. ``telemetry``: spans.
        """
        # Bottom-up: each part uses those above it; what of topics and policies stands below is reached by a call.
        self.runtime = runtime
        self.metadata, self.ledgers, self.config = metadata, ledgers, config
        self.resources, self.version = resources, version
        #: The second: the process is about to stop, and what an administrator asked for ends at its next step.
        self.is_closing = self.is_stopping = False
        self._endpoints: Endpoints | None = None
        #: What broke above storage, and stays closed for a while.
        self.failures = Failures(runtime.clock)
        #: Held by what takes long and many turns of the loop. Nothing waits for a client while it holds it.
        self.long_work = asyncio.Semaphore(LONG_WORK_AT_ONCE)

        # Whose topics are whose.
        self.ownership = ownership if ownership is not None else SoleOwnership()
        self.tables_elsewhere, self.other_clusters, self._telemetry = tables_elsewhere, other_clusters, telemetry
        self._sharing, shared_as = sharing, config.cluster_name if sharing else ""
        self._elsewhere = None if peers is None else peers(self.ownership, lambda: self.endpoints)

        # What topics have in common.
        #: From the arrival of entries to their receipts.
        self.publish_latency = Latencies()
        #: What dispatch found out about entries, for the other subscriptions of their topics.
        self.recent_candidates = RecentCandidates()
        self.unacked_budget = config.new_unacked_budget()
        self._throttles = broker_throttles(config, runtime.clock.monotonic, self)
        self.entry_filters, self.groups = LateFilters(runtime, config, self), LateGroups(self)

        # Topics, and what holds for them.
        self.namespaces = Namespaces(runtime.clock, resources, self._policies_watched, part=self, sharing_as=shared_as)
        #: Decides by what is stored; None: whoever is let in may do everything.
        self.authorization = None if not config.authorization_enabled else _authorization(self, access)
        #: Who is let in, and to what.
        self.access = access if self.authorization is None else self.authorization.access
        self.registry = self._new_registry()
        self.policies = PolicyService(self.namespaces, TopicPolicyStore(self), self._levels(), config.cluster_name)
        self._following = self._new_following()
        self.late_transactions = self._new_late_transactions()

        # What they need from time to time.
        self._inactive_topics = self._new_inactive_topics()
        self.ledger_upkeep = LedgerUpkeep(runtime, metadata, ledgers, config, self.registry.loaded, part=self)
        self._policy_upkeep: PolicyUpkeep | None = None

        # Clients.
        #: Where they go for a topic.
        self.lookup = self._new_lookup(silent)
        self._topic_watches: TopicWatches | None = None
        self.connections = Connections(config, runtime.clock)
        self.publish_buffer, self.requests = PublishBuffer(config.publish_buffer_bytes), RequestRoom()
        self.frame_room = FrameRoom(runtime.clock.monotonic)
        self.output_budget = OutputBudget(runtime.clock.monotonic)
        self.connection_services = self._new_connection_services()

    # ---- what it is made of

    def _new_following(self) -> PolicyFollowing:
        leave = partial(leave_if_elsewhere, self.registry, self.namespaces, self.config.cluster_name)
        return PolicyFollowing(self.registry.loaded, self.namespaces.forget, self, leave, self.policies.topics.retries)

    def _new_lookup(self, silent: SilentBrokers | None) -> TopicLookup:
        peers = PeerClusters(self.resources, self.config.cluster_name, self.namespaces.policies)
        known, now = self.registry.require_namespace, self.runtime.clock.monotonic
        return TopicLookup(self.ownership, lambda: self.endpoints, known, silent, peers, monotonic=now)

    def _new_registry(self) -> TopicRegistry:
        return TopicRegistry(
            self.config,
            self.ledgers,
            self.resources,
            self.namespaces,
            self.ownership,
            make_topic=self._make_topic,
            belongings=Belongings(lambda name: self.policies.topics.judged(name), self._forget),
            partitioned=PartitionedCalls(
                lambda name, count: self.partitions.create(name, count),
                lambda name: self.partitions.finish_deletion_soon(name),
            ),
            levels=lambda policies: self.policies.levels(policies),
            policy_changes=lambda: policy_changes(self),
            failures=self.failures,
            clock=self.runtime.clock,
            is_closing=lambda: self.is_closing,
            dropped=self.recount_unacked,
            part=self,
            others_non_persistent=None if self._elsewhere is None else self._elsewhere.non_persistent,
        )

    def _new_inactive_topics(self) -> InactiveTopics:
        return InactiveTopics(
            self.config,
            self.registry,
            rules_now=self.policies.rules_now,
            delete_if_empty=lambda name: self.partitions.delete_if_empty(name),
            part=self,
        )

    @cached_property
    def partitions(self) -> Partitions:
        """The partitioned topics; loaded with the first that is made, changed or deleted."""
        from geminga.broker.registry.partitions import Partitions

        return Partitions(
            self.config,
            self.ledgers,
            self.resources,
            self.registry,
            forget=lambda name: self._forget(name, has_partitions=True),
            clock=self.runtime.clock,
            is_stopping=lambda: self.is_stopping,
            part=self,
            elsewhere=self._elsewhere,
            sharing=self._sharing,
        )

    @cached_property
    def topic_services(self) -> TopicServices:
        """What topics use of the broker; made with the first of them."""
        from geminga.broker.compaction.lake_latest import COMPACTION
        from geminga.broker.geo.migration import TopicMigration
        from geminga.broker.geo.moves import Moves
        from geminga.broker.geo.part import GeoReplication
        from geminga.broker.geo.subscriptions import ReplicatedSubscriptions
        from geminga.broker.shadow.links import PeerShadows
        from geminga.broker.shadow.source import ShownTopic
        from geminga.broker.topic.registered_parts import PARTS
        from geminga.broker.topic.services import TopicServices

        loaded, follow = self.registry.loaded, self.policies_changed
        moves = Moves(self.metadata, self.resources.clusters, self.config.cluster_name, loaded, follow, self)
        return TopicServices(
            runtime=self.runtime,
            config=self.config,
            metadata=self.metadata,
            ledgers=self.ledgers,
            parts=(
                *(() if self._telemetry is None else self._telemetry.parts),
                *PARTS[:-1],
                *COMPACTION,
                ShownTopic,
                *(() if self.other_clusters is None else (GeoReplication, ReplicatedSubscriptions, TopicMigration)),
                # It remembers what it admits, and the migration refuses.
                PARTS[-1],
            ),
            failures=self.failures,
            whole=self,
            unload=self.registry.unload,
            unload_fenced=self.registry.unload_fenced,
            drop_soon=self.registry.drop_soon,
            departure_of=self.ownership.departure_of,
            rules=moves.around(self.policies.rules),
            rules_now=self.policies.rules_now,
            moves=moves,
            admit_consumer=self.schemas.admit_consumer,
            find_schema=self.schemas.find,
            table_written=self._table_written,
            transactions=self.late_transactions if isinstance(self.late_transactions, LateTransactions) else None,
            remote_clusters=None if self.other_clusters is None else self.other_clusters(),
            shadows=PeerShadows(self.registry, self._elsewhere),
            publish_latency=self.publish_latency,
            recent_candidates=self.recent_candidates,
            unacked_budget=self.unacked_budget,
            recount_unacked=self.recount_unacked,
            entry_filters=self.entry_filters.of,
            group_throttles=self.groups.throttles,
            throttles=lambda: self._throttles,
            consumer_kind=None if self._telemetry is None else self._telemetry.consumer_kind,
        )

    def _new_late_transactions(self) -> LateTransactions | NoTransactions:
        if not self.config.transaction_coordinator_enabled:
            return NoTransactions()
        return LateTransactions(self.ledgers, self.ownership, self._new_transactions, self)

    def _new_transactions(self) -> TransactionService:
        from geminga.broker.transactions.service import TransactionService

        async def count() -> int:
            return await self.registry.partitioned_count(COORDINATORS_TOPIC)

        return TransactionService(
            self.runtime,
            self.config,
            self.ledgers,
            self.registry,
            self.schemas.registry,
            self.ownership,
            count=count,
            part=self,
            tables_elsewhere=self.tables_elsewhere,
            snapshots_of=None if self._elsewhere is None else self._elsewhere.snapshots,
            participants_of=None if self._elsewhere is None else self._elsewhere.participants,
            standings=None if self._elsewhere is None else self._elsewhere.standings(),
        )

    @cached_property
    def schemas(self) -> Schemas:
        """Of topics; loaded with the first of them."""
        from geminga.broker.admission.topic_schemas import Schemas

        async def exists(name: TopicName) -> bool:
            if await self.registry.exists(name):
                return True
            return await self.resources.partitioned_topics.find(name) is not None

        return Schemas(
            self.runtime,
            self.metadata,
            self.ledgers,
            rules=lambda name: self.policies.rules(name),
            exists=exists,
        )

    @cached_property
    def administered(self) -> AdministeredTopics:
        """For those who administer topics: the REST, the embedded broker; loaded with the first of them."""
        from geminga.broker.administration.services import AdministeredTopics

        return AdministeredTopics(
            registry=self.registry,
            partitions=self.partitions,
            resources=self.resources,
            ledgers=self.ledgers,
            shadows=lambda: self.topic_services.shadows,
            elsewhere=self._elsewhere,
            steps=self.admin_steps,
            forget_policies=self.namespaces.forget,
            forget_namespace=self._forget_namespace,
        )

    async def _forget_namespace(self, namespace: str) -> None:
        await self.schemas.forget_namespace(namespace)
        self.policies.topics.forget_namespace(namespace)
        self.late_transactions.forget_namespace(namespace)

    @cached_property
    def commands(self) -> CommandTable:
        """What is done with each command; loaded with the first connection."""
        from geminga.broker.handlers import command_table
        from geminga.broker.handlers.producer_names import ProducerNames
        from geminga.broker.handlers.services import CommandServices

        services = CommandServices(
            version=self.version,
            config=self.config,
            access=self.access,
            clock=self.runtime.clock,
            topics=self.registry,
            schemas=self.schemas,
            lookup=self.lookup,
            name_producer=ProducerNames(self.metadata, self.config.cluster_name).next,
            watch_topics=lambda watcher: self.topic_watches.open(watcher),
            long_work=self.long_work,
            transactions=self.use_transactions if self.late_transactions.is_on else None,
        )
        table = command_table(services)
        if self._telemetry is not None:
            table.ack = self._telemetry.acknowledge
        return table

    def _new_connection_services(self) -> ConnectionServices:
        return ConnectionServices(
            monotonic=self.runtime.clock.monotonic,
            config=self.config,
            access=self.access,
            connections=self.connections,
            failures=self.failures,
            frame_room=self.frame_room,
            output_budget=self.output_budget,
            publish_buffer=self.publish_buffer,
            requests=self.requests,
        )

    def _make_topic(self, name: TopicName, ledger: ManagedLedger | None) -> Topic:
        from geminga.broker.shadow.kinds import made

        services, _ = self.topic_services, self.policy_upkeep
        return made(services, name, ledger)

    def _table_written(self, name: TopicName) -> None:
        if name.local_name == CHANGE_EVENTS:
            self.policies.topics.told(name.namespace)
        else:
            self.late_transactions.table_written(name)

    async def _forget(self, name: TopicName, judged: Document | None = None, *, has_partitions: bool = False) -> None:
        if self._elsewhere is None or await self._elsewhere.keeps_policies_here(name):
            await self.policies.topics.forget_topic(name, judged=judged)
        elif found := await self.policies.topics.judged(name):
            if judged is not None and judged != found:
                raise ConflictError(f"the policies of {name} changed while it was to be deleted")
            await self._elsewhere.forget_policies(name)
        await self.schemas.forget_topic(name)
        await self.namespaces.forget_grants(name, has_partitions=has_partitions)

    # ---- life

    async def start(self, endpoints: Sequence[Endpoint]) -> None:
        """Begin to serve; ``endpoints`` are the advertised listeners, the default one first."""
        self._endpoints = Endpoints(endpoints)
        self.namespaces.start(self.metadata)
        self._inactive_topics.start()
        self.ledger_upkeep.start()
        self.late_transactions.start()

    def begin_stop(self) -> None:
        """Long work of administrators ends at its next step; clients are served until :meth:`close`."""
        self.is_stopping = True

    def admin_steps(self) -> AdminSteps:
        """For a loop over many topics that an administrator asked for."""
        return AdminSteps(self.runtime.clock, lambda: self.is_stopping)

    async def close(self) -> None:
        """Send clients away gracefully, close topics and connections. The caller stopped listening before."""
        if self.is_closing:
            return
        self.is_closing = self.is_stopping = True
        self._inactive_topics.close()
        self.ledger_upkeep.close()
        for part in (self._policy_upkeep, self._topic_watches, self.authorization):
            if part is not None:
                part.close()
        self.namespaces.close()
        self.policies.topics.retries.close()
        await self.late_transactions.close()
        await self.registry.close()
        await self.entry_filters.close()
        await self.groups.close()
        for connection in list(self.connections.open):
            connection.close()
        self.frame_room.close()
        self.output_budget.close()

    @property
    def transactions(self) -> TransactionService | None:
        """The coordinators and what belongs to them, loaded with the first use; None: transactions are off.

        Raises UnavailableError.
        """
        return self.use_transactions() if self.late_transactions.is_on else None

    def use_transactions(self) -> TransactionService:
        """:attr:`transactions`, where they are on."""
        assert isinstance(self.late_transactions, LateTransactions)
        return cast("TransactionService", self.late_transactions.service())

    @property
    def policy_upkeep(self) -> PolicyUpkeep:
        """What topics need from time to time; begins with the first of them."""
        if self._policy_upkeep is None:
            from geminga.broker.upkeep.policies import PolicyUpkeep

            self._policy_upkeep = PolicyUpkeep(self)
            if not self.is_closing:
                self._policy_upkeep.start()
        return self._policy_upkeep

    @property
    def topic_watches(self) -> TopicWatches:
        """Who watches the names of topics; loaded with the first of them."""
        if self._topic_watches is None:
            from geminga.broker.registry.topic_watches import TopicWatches

            self._topic_watches = TopicWatches(
                self.runtime.clock,
                self.metadata,
                lambda namespace: self.registry.list(namespace),
                frame_bytes_max=self.config.message_bytes_max,
                long_work=self.long_work,
                part=self,
            )
            if self.is_closing:
                self._topic_watches.close()
        return self._topic_watches

    @property
    def is_ready(self) -> bool:
        """Whether it serves: between :meth:`start` and :meth:`close`."""
        return self._endpoints is not None and not self.is_closing

    def broke(self, what: str, error: BaseException) -> None:
        """Work for no single topic or connection failed: the broker goes on, and does it again when it is due."""
        self.failures.note(BrokenPart.BROKER, "itself", what, error)

    def recount_unacked(self) -> None:
        """A dispatcher was thrown away as it was: what is outstanding is what the others say."""
        if self.unacked_budget is None:
            return
        total = 0
        for topic in self.topics.values():
            for subscription in topic.subscriptions.values():
                total += subscription.unacked_count
        self.unacked_budget.recount(total)

    # ---- connections, and where they come

    def new_connection(self, listener: str = "", *, turn_commands_max: int = TURN_COMMANDS_MAX) -> Connection:
        """The protocol of a new connection, loaded with the first of them; see :class:`Connection`."""
        from geminga.broker.connection.connection import Connection

        return Connection(self.connection_services, self.commands, listener, turn_commands_max=turn_commands_max)

    @property
    def endpoints(self) -> Endpoints:
        """The advertised listeners; raises UnavailableError before :meth:`start`."""
        if self._endpoints is None:
            raise UnavailableError("the broker is starting")
        return self._endpoints

    @property
    def broker_url(self) -> str:
        """The binary service URL that clients are told."""
        return self.endpoints.default.broker_url or self.endpoints.default.broker_url_tls

    @property
    def web_url(self) -> str:
        """The HTTP service URL that clients are told."""
        return self.endpoints.default.web_url or self.endpoints.default.web_url_tls

    # ---- topics

    @property
    def topics(self) -> Mapping[str, Topic]:
        """The loaded topics by full name."""
        return self.registry.loaded

    # ---- policies

    async def policies_changed(self, namespace: str) -> None:
        """Take note of changed policies; on return who lost a right is gone, and the loaded topics follow them."""
        if self.authorization is not None:
            await self.authorization.policies_changed(namespace)
        await self._following.follow(namespace)

    def _levels(self) -> Settings:
        return {**broker_levels(self.config), **broker_levels(self.ledgers.config)}

    def check_backlog_quotas(self) -> None:
        """Look at the backlog quotas of all topics now, whatever the interval."""
        self.policy_upkeep.keep_now(BACKLOG_QUOTAS_PART)

    @property
    def connection_counts(self) -> tuple[int, int]:
        """Connections of clients: those that are open, and all since the start."""
        return len(self.connections.open), self.connections.opened_count

    async def settings_changed(self) -> None:
        """Values of :attr:`config`, or of the ledgers' one, are others; on return whoever copied one follows."""
        if self.authorization is not None:
            await self.authorization.settings_changed()
        self.publish_buffer.resize(self.config.publish_buffer_bytes)
        self.ledgers.settings_changed()
        self._inactive_topics.settings_changed()
        before = self._throttles
        self._throttles = broker_throttles(self.config, self.runtime.clock.monotonic, self, before)
        if self.policies.settings != (levels := self._levels()):
            self.policies.use_settings(levels)
        # Rates of the broker are taken together with those of the topic.
        for namespace in {topic.name.namespace for topic in self.topics.values()}:
            await self._following.follow(namespace)
        for old, new in zip(before, self._throttles, strict=True):
            if old is not None and old is not new:
                old.close()
        from geminga.broker.topic.persistent import PersistentTopic

        steps = self.admin_steps()
        for topic in list(self.topics.values()):
            try:
                await steps.next()
            except UnavailableError:
                return  # the broker stops: nobody is served by these settings any more
            if isinstance(topic, PersistentTopic):
                for subscription in list(topic.subscriptions.values()):
                    subscription.settings_changed()

    def _policies_watched(self, namespace: str) -> None:
        self.policies.topics.namespace_changed(namespace)
        if self.authorization is not None or any(topic.name.namespace == namespace for topic in self.topics.values()):
            spawn(self.policies_changed(namespace), name=f"follow policies of {namespace}", part=self)


def _authorization(broker: Broker, access: Access) -> Authorization:
    from geminga.broker.composition.authorization import Authorization

    return Authorization(broker, access)


def policy_changes(broker: Broker) -> int:
    """Counts what was heard of changes that topics follow."""
    moves = broker.topic_services.moves
    return broker.namespaces.changes + broker.policies.topics.changes + (0 if moves is None else moves.changes)
