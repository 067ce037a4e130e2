"""A broker on the running loop, whatever its storage is: managed ledgers, broker, ports, REST; from start to stop.

Start, in this order: storage (metadata store and bookies, by who composes it) -> ledger client -> managed ledgers ->
ports bound -> broker -> listening: the ports open when whoever connects can be answered. Stop is the reverse: first no
new connections, then producers and consumers are closed gracefully, topics and ledgers closed, at last the stores. A
start that fails closes what it had opened.

A fatal error (failed fsync, corrupt state) is handed to ``on_fatal``, which must not return to the loop: nothing
may be acknowledged after it.
"""

from __future__ import annotations

import asyncio
import socket
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Final, NamedTuple

from geminga.app.lifecycle.process_metrics import process_beans, process_metrics
from geminga.app.servers.bookie_shortage import BookieShortage
from geminga.app.servers.listeners import (
    Addresses,
    ServicePorts,
    addresses_of,
    check_open_start,
    endpoints,
    own_names,
    warn_if_open_to_all,
    with_console,
)
from geminga.app.servers.telemetry_choice import open_telemetry
from geminga.bookkeeper import BookKeeper
from geminga.broker.access.anonymous import OPEN
from geminga.broker.composition.service import Broker
from geminga.broker.configuration.broker_config import MULTI_ROLES_PROVIDER
from geminga.broker.resources import ClusterSetup, Resources, initialize_cluster
from geminga.broker.resources.initialization import FIRST_NAMESPACES
from geminga.broker.rest.calls.core.timeouts import TimeoutLimits
from geminga.broker.rest.http.server import IMPORT_LANE, HttpServer
from geminga.broker.rest.loading import application_maker
from geminga.managed_ledger import ManagedLedgerFactory
from geminga.model.errors import GemingaError, PreconditionFailedError
from geminga.model.topic_name import SYSTEM_NAMESPACE
from geminga.runtime import FatalHandler, Runtime, get_logger, spawn
from geminga.version import __version__

if TYPE_CHECKING:
    from geminga.app.configuration.config import Config
    from geminga.app.configuration.live_settings import LiveSettings
    from geminga.app.configuration.server_config import ServerConfig
    from geminga.app.lifecycle.core.descriptors import DescriptorPlan
    from geminga.app.lifecycle.log_lines import PackageLevels
    from geminga.app.servers.core.metric_rows import MetricRow
    from geminga.app.servers.late_clusters import LateClusters
    from geminga.app.servers.telemetry.spans import Telemetry
    from geminga.broker.access.audit import Auditor
    from geminga.broker.access.ports import Access
    from geminga.broker.administration.services import Backups
    from geminga.broker.authentication.opening import OpenedAuthentication
    from geminga.broker.composition.metric_levels import Row
    from geminga.broker.composition.metrics import Metrics
    from geminga.broker.ownership.endpoints import Endpoints
    from geminga.broker.ownership.membership import Membership
    from geminga.broker.ownership.ports import Ownership
    from geminga.broker.peers.topics import PeerTopics
    from geminga.broker.rest.calls.context import MessageLimits, RestContext
    from geminga.broker.statistics.topics import TopicStatistics
    from geminga.broker.synchronization.synchronizer import Synchronizer
    from geminga.broker.system_topics.table import TablesElsewhere
    from geminga.broker.websocket.service import SocketService
    from geminga.metadata.ports import MetadataStore
    from geminga.model.bookie_port import BookiePool
    from geminga.model.exposition import Labels, Source
    from geminga.wire.cors import CorsRules

#: Of transactions, where the broker has them; Pulsar's default.
COORDINATORS: Final = 16

#: What is closed even after a fatal error: it holds ports, threads or files and writes nothing of its own.
ABANDONED_PARTS: Final = ("HTTP server", "listener", "threads", "disk")

#: Seconds for letting go of ports, threads and files where an orderly stop took too long.
ABANDON_S: Final = 2.0
#: Settings that were changed at run time, for all brokers; Pulsar's.
CONFIGURATION_PATH: Final = "/admin/configuration"
_log = get_logger(__name__)


class Storage(NamedTuple):
    """What a broker stands on."""

    runtime: Runtime
    metadata: MetadataStore
    bookies: BookiePool
    #: Where the ledgers' own metadata are, if elsewhere.
    ledger_metadata: MetadataStore | None = None
    #: Metrics of bookies in this process.
    labelled: Sequence[tuple[Labels, Source]] = ()
    #: What asks for the metrics of the process that has the bookies, if that is another one of the same standalone.
    metrics_elsewhere: Callable[[], Awaitable[Sequence[MetricRow]]] | None = None
    #: With whom the broker shares topics; None: it is alone.
    peers: Peers | None = None
    #: Where the metadata are, as ``metadataStoreUrl`` would say it.
    metadata_url: str = ""
    #: Where what clusters share is, if elsewhere: as ``configurationMetadataStoreUrl`` would say it.
    configuration_url: str = ""
    #: Of all that is kept; None: that is not in files of this process.
    backups: Callable[[], Backups] | None = None


class Peers(NamedTuple):
    """Other brokers, which share what this one stands on."""

    membership: Membership
    tables_elsewhere: TablesElsewhere
    #: What asks them, given the ownership and this broker's listeners.
    topics: Callable[[Ownership, Callable[[], Endpoints]], PeerTopics]


def _sources_of(broker: Broker) -> Sequence[Source]:
    """Metrics of the process and of what its broker has."""
    orphans = broker.ledger_upkeep.orphans
    return process_metrics, lambda: orphans.metrics(), broker.registry.loads.metrics, broker.lookup.metrics


class BrokerServer(ABC):
    """One broker; what it stands on is opened by :meth:`_open_storage` of who composes it."""

    def __init__(self, config: Config, descriptors: DescriptorPlan, on_fatal: FatalHandler) -> None:
        self._config = config
        self._on_fatal = on_fatal
        self._is_abandoned = False
        self._descriptors = descriptors
        self._closers: list[tuple[str, Callable[[], Awaitable[None]]]] = []
        #: Metrics of what runs beside the broker.
        self._sources: list[Source] = []
        self._load_rows: Callable[[], Iterable[Row]] = tuple
        self._bundle_rows: Callable[[], Iterable[Row]] = tuple
        #: Set by :meth:`start`.
        self.broker: Broker | None = None
        self._live: LiveSettings | None = None
        self._levels: PackageLevels | None = None
        #: None: nobody asked for spans.
        self._telemetry: Telemetry | None = None
        self._synchronizer: Synchronizer | None = None
        self._membership: Membership | None = None
        #: Ends this process in good order; None: it is not this broker's to end.
        self._end: Callable[[], None] | None = None
        self._shutting_down: asyncio.Task[None] | None = None
        self._use_live: Callable[[], LiveSettings]
        self._http: HttpServer | None = None
        self._clusters: LateClusters | None = None
        #: Set while it starts.
        self._service_ports: ServicePorts | None = None
        #: Who is asked who they are; None: nobody is, or not yet.
        self._authentication: OpenedAuthentication | None = None
        #: Keeps what administrators change; None: nothing does.
        self._audit: Auditor | None = None
        #: What pages of other origins may; None: nothing.
        self._cors: CorsRules | None = None
        self._shortage: BookieShortage
        self.runtime: Runtime | None = None

    @abstractmethod
    async def _open_storage(self) -> Storage:
        """Open it, and note in ``_closers`` how each part is closed. Raises GemingaError, OSError."""

    @abstractmethod
    async def _start_beside(self, storage: Storage, bookkeeper: BookKeeper) -> None:
        """Start what this process runs beside its broker, once that is made. Raises GemingaError, OSError."""

    def ends_with(self, end: Callable[[], None]) -> None:
        """``end`` begins the end of this process in good order: an administrator may ask for it."""
        self._end = end

    async def _shut_down(self, bundles_per_s: int) -> None:
        """Hand over what is served here, then end the process. Raises PreconditionFailedError where that can not be."""
        if self._end is None:
            raise PreconditionFailedError(
                "this broker lives in another program, which would not end with it, or would start it again: end that"
            )
        if self._shutting_down is None:
            # Who asked may go away meanwhile.
            self._shutting_down = spawn(self._hand_over(bundles_per_s), name="shut down", part=self.broker)
        await asyncio.shield(self._shutting_down)

    async def _hand_over(self, bundles_per_s: int) -> None:
        assert self._end is not None
        _log.info("an administrator shuts this broker down")
        if self._membership is not None:
            await self._membership.leave(bundles_per_s=bundles_per_s)
        self._end()

    async def start(self) -> Addresses:
        """Start everything; raises GemingaError or OSError with a sentence, after closing what had been opened."""
        try:
            check_open_start(self._config.server)
            if self._config.server.audit_log_file:
                from geminga.app.servers.audit_file import require_place

                require_place(self._config.server.audit_log_file)
            self._cors = _cors(self._config.server)
            return await self._start()
        except Exception:
            # Whatever it is: this program may go on, and start another one. Called off it is cut off, as by a crash.
            await self.stop()
            raise

    async def stop(self) -> bool:
        """Stop everything that was started, in reverse order; an error in one part does not keep the rest open.

        One that nobody expected is raised then. False if all that took longer than ``brokerShutdownTimeoutMs``: what
        was left has let go of ports, threads and files only, as after a crash.
        """
        if self.broker is not None:
            self.broker.begin_stop()
        timeout_ms = self._config.server.shutdown_timeout_ms
        part = ""
        unexpected: Exception | None = None
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while self._closers:
                    part, close = self._closers.pop()
                    unexpected = await self._close(part, close) or unexpected
        except TimeoutError:
            _log.error("the %s did not stop within brokerShutdownTimeoutMs=%d; leaving", part, timeout_ms)
            try:
                async with asyncio.timeout(ABANDON_S):
                    await self.abandon()
            except TimeoutError:
                _log.error("threads or files did not close either")
            return False
        if unexpected is not None:
            raise unexpected
        return True

    async def _close(self, part: str, close: Callable[[], Awaitable[None]]) -> Exception | None:
        """What nobody expected."""
        try:
            await close()
        except (GemingaError, OSError) as error:
            _log.error("closing the %s failed: %s", part, error)
        except Exception as error:
            _log.error("closing the %s failed: %s: %s", part, type(error).__name__, error)
            return error
        return None

    def look_at_files(self) -> None:
        """Read the files of certificates and of credentials again, where there are some: SIGHUP."""
        if self._service_ports is not None and self._service_ports.tls is not None:
            self._service_ports.tls.look()
        if self._authentication is not None:
            spawn(self._authentication.refresh(again=True), name="files of credentials")

    def cut_connections(self) -> None:
        """Cut every client off at once, without a word: after a fatal error nothing may be acknowledged."""
        if self.broker is not None:
            self.broker.is_closing = True
            for connection in list(self.broker.connections.open):
                connection.abort()
        if self._http is not None:
            self._http.abort()

    def _fatal(self, part: str, error: BaseException) -> None:
        # Whoever was still writing when files were let go of fails for that: the disk has no fault.
        if self._is_abandoned:
            _log.info("%s: %s, as its files were let go of", part, error)
        else:
            self._on_fatal(part, error)

    async def abandon(self) -> None:
        """After a fatal error: let go of ports, threads and files, without an orderly stop."""
        self._is_abandoned = True
        self.cut_connections()
        closers, self._closers = self._closers, []
        for part, close in reversed(closers):
            if part in ABANDONED_PARTS:
                await self._close(part, close)

    async def _start(self) -> Addresses:
        config = self._config
        storage = await self._open_storage()
        self._shortage = BookieShortage(storage.bookies, config.managed_ledger.ensemble_size)
        self._closers.append(("watch of bookies", self._shortage.close))
        runtime, metadata = storage.runtime, storage.metadata
        await self._follow_configuration(metadata)
        telemetry = open_telemetry(runtime.threads, self._closers)
        self._telemetry = telemetry
        bookies = storage.bookies if telemetry is None else telemetry.pool(storage.bookies)
        bookkeeper = BookKeeper(runtime, storage.ledger_metadata or metadata, bookies, config.bookkeeper)
        ledgers = ManagedLedgerFactory(
            runtime,
            metadata,
            bookkeeper,
            config.managed_ledger,
            entry_bytes_max=config.broker.message_bytes_max,
            cluster=config.server.cluster_name,
            is_shared=storage.peers is not None,
        )
        self._closers.append(("managed ledgers", ledgers.close))
        resources, peers = Resources(metadata), storage.peers
        access = await self._open_access(runtime)
        self._audit = self._auditor(runtime)
        if self._audit is not None:
            access = replace(access, audit=self._audit, audits_readers=config.server.audit_readers)
        clusters = partial(self._use_clusters, runtime, resources)
        is_shared = bool(storage.configuration_url or config.server.configuration_sync_topic)
        broker = Broker(
            runtime,
            metadata,
            ledgers,
            config.broker,
            resources,
            version=__version__,
            ownership=None if peers is None else peers.membership.ownership,
            tables_elsewhere=None if peers is None else peers.tables_elsewhere,
            peers=None if peers is None else peers.topics,
            silent=None if peers is None else peers.membership.silent,
            access=access,
            other_clusters=lambda: clusters().open(),
            sharing=clusters().sharing(storage.configuration_url) if is_shared else None,
            telemetry=telemetry,
        )
        self.broker = broker
        self._membership = None if peers is None else peers.membership
        if peers is not None and broker.administered.elsewhere is not None:
            peers.membership.ownership.departures.ask_through(broker.administered.elsewhere)
        self._closers.append(("links to other clusters", self._close_clusters))
        self._closers.append(("broker", broker.close))
        await self._start_beside(storage, bookkeeper)
        self._shortage.look()
        return await self._listen(broker, storage)

    def _use_clusters(self, runtime: Runtime, resources: Resources) -> LateClusters:
        if self._clusters is None:
            from geminga.app.servers.late_clusters import LateClusters

            self._clusters = LateClusters(runtime, resources, self._config)
        return self._clusters

    async def _close_clusters(self) -> None:
        if self._clusters is not None:
            await self._clusters.close()

    async def _open_access(self, runtime: Runtime) -> Access:
        """Who is asked who they are, and by what. Raises ConfigurationError."""
        config = self._config.authentication
        if config is None:
            return OPEN
        # Not loaded by who asks nobody.
        from geminga.broker.authentication.opening import OpenedAuthentication

        broker = self._config.broker
        has_many_roles = broker.authorization_enabled and broker.authorization_provider == MULTI_ROLES_PROVIDER
        opened = OpenedAuthentication(runtime, config, takes_all_roles=has_many_roles)
        access = await opened.open()
        self._authentication = opened
        self._closers.append(("files of credentials", opened.close))
        opened.start()
        links = self._config.links if broker.authorization_enabled else None
        return access if links is None else replace(access, own_role=links.own_role(runtime, access.authenticator))

    async def _follow_configuration(self, metadata: MetadataStore) -> None:
        """Settings that were changed at run time hold before anything is made of them. Raises MetadataError."""

        def live() -> LiveSettings:
            # Loaded where somebody changes a setting, or did.
            if self._live is None:
                from geminga.app.configuration.live_settings import LiveSettings

                self._live = LiveSettings(
                    self._config, metadata, CONFIGURATION_PATH, self._settings_changed, lambda: self.broker
                )
                self._closers.append(("settings", self._live.close))
                metadata.on_session_event(self._live.heard)
            return self._live

        self._use_live = live
        # Before it is read, so that no change is missed.
        metadata.watch_node(CONFIGURATION_PATH, lambda _: live().follow_soon())
        if await metadata.exists(CONFIGURATION_PATH):
            await live().start()
        self._follow_levels()

    async def _settings_changed(self) -> None:
        """Whoever copied a setting follows."""
        self._follow_levels()
        if self.broker is not None:
            await self.broker.settings_changed()

    def _follow_levels(self) -> None:
        """PackageLevels of packages are as the settings say."""
        texts = self._config.server.log_levels
        if self._levels is None:
            if not texts:
                return
            from geminga.app.lifecycle.log_lines import PackageLevels

            self._levels = PackageLevels()
            self._closers.append(("levels", self._levels.close))
        from geminga.app.configuration.core.log_options import parse_levels

        self._levels.follow(parse_levels(texts))

    async def _listen(self, broker: Broker, storage: Storage) -> Addresses:
        runtime, membership = storage.runtime, None if storage.peers is None else storage.peers.membership
        config, plan = self._config.server, self._descriptors
        make = application_maker(
            lambda: self._rest_context(broker, storage), partial(runtime.threads.call, IMPORT_LANE)
        )
        make = with_console(make, broker, self._config, is_alone=membership is None)
        http = self._http = HttpServer(
            runtime,
            make if self._telemetry is None else self._telemetry.application(make),
            requests_max=config.http_requests_max,
            header_bytes_max=config.http_header_bytes_max,
            body_bytes_max=config.http_body_bytes_max,
            connections_max=plan.web_connections_max,
            limits=TimeoutLimits(config.handshake_timeout_s, config.http_body_timeout_s, config.http_body_timeout_s),
            own_names=lambda: own_names(config, broker.endpoints.all, socket.gethostname()),
            listed_names=config.http_hosts,
            keep_free=plan.keep_free_of_web,
            cors=self._cors,
            front=config.http_front,
        )
        self._sources.append(http.metrics)
        self._closers.append(("HTTP server", http.close))
        ports = self._service_ports = ServicePorts(
            runtime, self._config, http, broker.new_connection, keep_free=plan.keep_free_of_clients
        )
        self._closers.append(("listener", ports.close))
        bound = await ports.bind()
        advertised = endpoints(config, bound, host_name=socket.gethostname(), is_alone=membership is None)
        default = advertised[0]
        urls = {
            "serviceUrl": default.web_url,
            "serviceUrlTls": default.web_url_tls,
            "brokerServiceUrl": default.broker_url,
            "brokerServiceUrlTls": default.broker_url_tls,
        }
        coordinators = COORDINATORS if broker.config.transaction_coordinator_enabled else 0
        # A cluster that was given fewer, or more, keeps them.
        setup = ClusterSetup(
            config.cluster_name,
            {key: url for key, url in urls.items() if url},
            first_coordinators=coordinators,
            # Its own topics are there; that users' namespaces are shared, and which, is said by administrators.
            begins=(SYSTEM_NAMESPACE,) if storage.configuration_url else FIRST_NAMESPACES,
            joins=(SYSTEM_NAMESPACE,) if storage.configuration_url else (),
        )
        await initialize_cluster(broker.resources, setup)
        addresses = addresses_of(default, bound)
        if membership is not None:
            # Undone first: while the bundles are given away this broker still answers, and says who has them now.
            self._closers.append(("part in the cluster", membership.leave))
            await membership.join(advertised)
        await broker.start(advertised)
        self._keep_alike(broker)
        # Whoever connects from here on is served: the namespaces are there, and lookups are answered.
        await ports.open()
        if membership is not None:
            membership.stand_for_election()
        warn_if_open_to_all(config)
        return addresses

    def _rest_context(self, broker: Broker, storage: Storage) -> RestContext:
        """Loaded with the first request."""
        from geminga.broker.rest.calls.context import RestContext

        config = self._config.server

        @cache
        def statistics() -> TopicStatistics:
            from geminga.broker.statistics.topics import TopicStatistics

            return TopicStatistics(broker.runtime.clock, broker)

        @cache
        def metrics() -> Metrics:
            from geminga.app.servers.metric_settings import metric_levels
            from geminga.broker.composition.metrics import Metrics

            return Metrics(
                broker,
                statistics(),
                cluster=config.cluster_name,
                levels=metric_levels(config),
                sources=(*_sources_of(broker), *self._sources),
                labelled=storage.labelled,
                elsewhere=storage.metrics_elsewhere,
                rows=broker.access.metrics,
                load_rows=self._load_rows,
                bundle_rows=self._bundle_rows,
                health=lambda: not (broker.is_closing or self._shortage.story()),
            )

        return RestContext(
            status=broker,
            topics=broker.administered,
            resources=broker.resources,
            policies=broker.policies,
            policies_changed=broker.policies_changed,
            use_schemas=lambda: broker.schemas,
            use_metrics=metrics,
            use_statistics=statistics,
            lookup=broker.lookup,
            ownership=broker.ownership,
            membership=None if storage.peers is None else storage.peers.membership,
            load=self._config.load,
            ledgers=broker.ledgers,
            clock=broker.runtime.clock,
            disk=broker.runtime.disk,
            config=broker.config,
            cluster=config.cluster_name,
            version=__version__,
            access=broker.access,
            transactions=broker.use_transactions if broker.late_transactions.is_on else None,
            audit=self._audit,
            body_bytes_max=config.http_body_bytes_max,
            message_limits=_message_limits(config),
            status_file=config.status_file,
            storage_shortage=self._shortage.story,
            forced=config,
            configuration=self._config.values,
            live=self._use_live,
            shut_down=self._shut_down,
            check_backlog_quotas=broker.check_backlog_quotas,
            sockets=self._sockets(broker) if config.web_sockets else None,
            ask_cluster=lambda cluster, path: self._use_clusters(broker.runtime, broker.resources).ask(cluster, path),
            process=process_beans,
            metadata_url=storage.metadata_url,
            configuration_url=storage.configuration_url,
            is_kept_alike=bool(self._config.server.configuration_sync_topic),
            synchronization=None if self._synchronizer is None else self._synchronizer.state,
            backups=storage.backups,
        )

    def _sockets(self, broker: Broker) -> Callable[[], SocketService]:
        """What makes the WebSockets with the first request for one."""
        made: list[SocketService] = []

        def use() -> SocketService:
            if not made:
                from geminga.app.servers.web.sockets import web_sockets

                connections_max = self._descriptors.web_connections_max
                made.append(web_sockets(broker, self._config, connections_max, is_alone=self._membership is None))
                self._closers.append(("WebSockets", made[0].close))
            return made[0]

        self._sources.append(lambda: made[0].metrics() if made else {})
        return use

    def _auditor(self, runtime: Runtime) -> Auditor | None:
        config = self._config.server
        if not config.audit_log_file:
            return None
        from geminga.app.servers.audit_file import audit_to

        file, auditor = audit_to(runtime, config)
        self._closers.append(("audit log", file.close))
        return auditor

    def _keep_alike(self, broker: Broker) -> None:
        """With other clusters, what administrators say, where a topic for it is named."""
        if self._config.server.configuration_sync_topic:
            from geminga.app.servers.late_clusters import synchronizer_of

            synchronizer = self._synchronizer = synchronizer_of(broker, self._config, self._membership)
            self._sources.append(synchronizer.metrics)
            self._closers.append(("configuration kept alike", synchronizer.close))
            synchronizer.start()


def _message_limits(config: ServerConfig) -> MessageLimits:
    from geminga.broker.rest.calls.context import MessageLimits

    # Whatever waits for messages, as many others are answered beside it.
    waiting = max(1, config.http_requests_max // 2)
    return MessageLimits(config.http_consumers_max, config.http_tails_max, waiting)


def _cors(config: ServerConfig) -> CorsRules | None:
    if not config.cors_origins:
        return None
    # Not loaded by who lets no page of another origin in.
    from geminga.app.servers.web.cors import cors_of

    return cors_of(config)
