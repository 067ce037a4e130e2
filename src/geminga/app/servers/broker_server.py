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
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from geminga.app.lifecycle.process_metrics import process_beans, process_metrics
from geminga.app.servers.core.addresses import is_loopback
from geminga.app.servers.listeners import bound_addresses, endpoints, own_names
from geminga.bookkeeper import BookKeeper
from geminga.broker.access.anonymous import OPEN
from geminga.broker.composition.service import Broker
from geminga.broker.resources import ClusterSetup, Resources, initialize_cluster
from geminga.broker.rest.calls.core.patience import Limits
from geminga.broker.rest.http.server import IMPORT_LANE, HttpServer
from geminga.broker.rest.loading import application_maker
from geminga.managed_ledger import ManagedLedgerFactory
from geminga.model.errors import GemingaError, PreconditionFailedError, UnavailableError
from geminga.runtime import Listener, Runtime, get_logger, spawn
from geminga.version import __version__
from geminga.wire.pulsar import commands

if TYPE_CHECKING:
    from geminga.app.configuration.config import Config
    from geminga.app.configuration.live_settings import LiveSettings
    from geminga.app.lifecycle.core.descriptors import DescriptorPlan
    from geminga.app.servers.core.metric_rows import MetricRow
    from geminga.broker.access.ports import Access
    from geminga.broker.composition.metrics import Metrics
    from geminga.broker.connection.connection import Connection
    from geminga.broker.ownership.endpoints import Endpoints
    from geminga.broker.ownership.membership import Membership
    from geminga.broker.ownership.ports import Ownership
    from geminga.broker.peers.topics import PeerTopics
    from geminga.broker.rest.calls.context import RestContext
    from geminga.broker.statistics.topics import TopicStatistics
    from geminga.broker.system_topics.table import TablesElsewhere
    from geminga.metadata.ports import MetadataStore
    from geminga.model.bookie_port import Availability, BookiePool
    from geminga.model.exposition import Labels, Source

#: Of transactions, where the broker has them; Pulsar's default.
COORDINATORS: Final = 16

#: What is closed even after a fatal error: it holds ports, threads or files and writes nothing of its own.
ABANDONED_PARTS: Final = ("HTTP server", "listener", "threads", "disk")

#: Seconds for letting go of ports, threads and files where an orderly stop took too long.
ABANDON_S: Final = 2.0
#: Settings that were changed at run time, for all brokers; Pulsar's.
CONFIGURATION_PATH: Final = "/admin/configuration"
#: What a client is told that would take a descriptor which is kept for others.
_FULL: Final = UnavailableError("the broker has as many connections as it may open files; try again later")

T = TypeVar("T")

_log = get_logger(__name__)


class Addresses(NamedTuple):
    """Where a running standalone is reached."""

    broker_service_url: str
    web_service_url: str
    broker_port: int
    web_port: int


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


class Peers(NamedTuple):
    """Other brokers, which share what this one stands on."""

    membership: Membership
    tables_elsewhere: TablesElsewhere
    #: What asks them, given the ownership and this broker's listeners.
    topics: Callable[[Ownership, Callable[[], Endpoints]], PeerTopics]


class BookieShortage:
    """Whether there are as many bookies as a new ledger needs: told in the log when that changes, and to who asks.

    By the ensemble size that topics have unless a policy says otherwise.
    """

    def __init__(self, bookies: BookiePool, ensemble_size: int) -> None:
        self._bookies = bookies
        self._wanted = ensemble_size
        #: What was told last.
        self._is_short = False
        self._is_closed = False
        bookies.watch(self._changed)

    async def close(self) -> None:
        """Bookies go from here on because the broker does."""
        self._is_closed = True

    def story(self) -> str:
        """What is wanted and what is there; empty if that is enough."""
        available = self._bookies.available()
        if len(available) >= self._wanted:
            return ""
        names = f" ({', '.join(available)})" if available else ""
        return (
            f"managedLedgerDefaultEnsembleSize={self._wanted}, and {len(available)} bookies take entries{names}: what "
            "needs a new ledger fails until there are more"
        )

    def look(self) -> None:
        """Tell the log if it is another now than was told."""
        story = self.story()
        if self._is_closed or bool(story) == self._is_short:
            return
        self._is_short = bool(story)
        if story:
            _log.warning("%s", story)
        else:
            _log.warning("%d bookies take entries: enough for new ledgers", len(self._bookies.available()))

    def _changed(self, _bookie_id: str, _now: Availability) -> None:
        self.look()


class BrokerServer(ABC):
    """One broker; what it stands on is opened by :meth:`_open_storage` of who composes it."""

    def __init__(self, config: Config, descriptors: DescriptorPlan) -> None:
        self._config = config
        self._descriptors = descriptors
        self._closers: list[tuple[str, Callable[[], Awaitable[None]]]] = []
        #: Metrics of what runs beside the broker.
        self._sources: list[Callable[[], Mapping[str, float]]] = []
        #: Set by :meth:`start`.
        self.broker: Broker | None = None
        self._live: LiveSettings | None = None
        self._membership: Membership | None = None
        #: Ends this process in good order; None: it is not this broker's to end.
        self._end: Callable[[], None] | None = None
        self._shutting_down: asyncio.Task[None] | None = None
        self._use_live: Callable[[], LiveSettings]
        self._http: HttpServer | None = None
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
            return await self._start()
        except (GemingaError, OSError):
            await self.stop()
            raise

    async def stop(self) -> bool:
        """Stop everything that was started, in reverse order; an error in one part does not keep the rest open.

        False if that took longer than ``brokerShutdownTimeoutMs``: then what was left has let go of ports, threads and
        files only, as after a crash.
        """
        if self.broker is not None:
            self.broker.begin_stop()
        timeout_ms = self._config.server.shutdown_timeout_ms
        part = ""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while self._closers:
                    part, close = self._closers.pop()
                    await self._close(part, close)
        except TimeoutError:
            _log.error("the %s did not stop within brokerShutdownTimeoutMs=%d; leaving", part, timeout_ms)
            try:
                async with asyncio.timeout(ABANDON_S):
                    await self.abandon()
            except TimeoutError:
                _log.error("threads or files did not close either")
            return False
        return True

    async def _close(self, part: str, close: Callable[[], Awaitable[None]]) -> None:
        try:
            await close()
        except (GemingaError, OSError) as error:
            _log.error("closing the %s failed: %s", part, error)

    def cut_connections(self) -> None:
        """Cut every client off at once, without a word: after a fatal error nothing may be acknowledged."""
        if self.broker is not None:
            self.broker.is_closing = True
            for connection in list(self.broker.connections.open):
                connection.abort()
        if self._http is not None:
            self._http.abort()

    async def abandon(self) -> None:
        """After a fatal error: let go of ports, threads and files, without an orderly stop."""
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
        bookkeeper = BookKeeper(runtime, storage.ledger_metadata or metadata, storage.bookies, config.bookkeeper)
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
        resources = Resources(metadata)
        peers = storage.peers
        access = await self._open_access(runtime)
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
        )
        self.broker = broker
        self._membership = None if peers is None else peers.membership
        if peers is not None and broker.administered.elsewhere is not None:
            peers.membership.ownership.departures.ask_through(broker.administered.elsewhere)
        self._closers.append(("broker", broker.close))
        await self._start_beside(storage, bookkeeper)
        self._shortage.look()
        return await self._listen(broker, storage)

    async def _open_access(self, runtime: Runtime) -> Access:
        """Who is asked who they are, and by what. Raises ConfigurationError."""
        config = self._config.authentication
        if config is None:
            return OPEN
        # Not loaded by who asks nobody.
        from geminga.broker.authentication.opening import OpenedAuthentication

        opened = OpenedAuthentication(runtime, config)
        access = await opened.open()
        self._closers.append(("files of credentials", opened.close))
        opened.start()
        return access

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

    async def _settings_changed(self) -> None:
        """Whoever copied a setting follows."""
        if self.broker is not None:
            await self.broker.settings_changed()

    async def _listen(self, broker: Broker, storage: Storage) -> Addresses:
        runtime, membership = storage.runtime, None if storage.peers is None else storage.peers.membership
        config = self._config.server
        plan = self._descriptors
        http = HttpServer(
            runtime,
            application_maker(lambda: self._rest_context(broker, storage), partial(runtime.threads.call, IMPORT_LANE)),
            requests_max=config.http_requests_max,
            header_bytes_max=config.http_header_bytes_max,
            body_bytes_max=config.http_body_bytes_max,
            connections_max=plan.web_connections_max,
            limits=Limits(config.handshake_timeout_s, config.http_body_timeout_s, config.http_body_timeout_s),
            own_names=lambda: own_names(config, broker.endpoints.all, socket.gethostname()),
            listed_names=config.http_hosts,
            keep_free=plan.keep_free_of_web,
        )
        self._http = http
        self._closers.append(("HTTP server", http.close))
        extra = bound_addresses(config.bind_addresses)
        web_port = await _bound("webServicePort", http.listen, config.bind_address, config.web_port)
        listeners = [await self._bind_broker_port(runtime, broker, "", config.bind_address, config.broker_port)]
        for item in extra:
            if item.scheme == "http":
                await _bound("bindAddresses", http.listen, item.host, item.port)
            else:
                listeners.append(await self._bind_broker_port(runtime, broker, item.listener, item.host, item.port))
        broker_port = listeners[0].port
        advertised = endpoints(
            config,
            host_name=socket.gethostname(),
            broker_port=broker_port,
            web_port=web_port,
            is_alone=membership is None,
        )
        default = advertised[0]
        urls = {"serviceUrl": default.web_url, "brokerServiceUrl": default.broker_url}
        coordinators = COORDINATORS if broker.config.transaction_coordinator_enabled else 0
        # A cluster that was given fewer, or more, keeps them.
        setup = ClusterSetup(config.cluster_name, urls, first_coordinators=coordinators)
        await initialize_cluster(broker.resources, setup)
        addresses = Addresses(default.broker_url, default.web_url, broker_port, web_port)
        if membership is not None:
            # Undone first: while the bundles are given away this broker still answers, and says who has them now.
            self._closers.append(("part in the cluster", membership.leave))
            await membership.join(advertised)
        await broker.start(advertised)
        # Whoever connects from here on is served: the namespaces are there, and lookups are answered.
        await _opened("webServicePort", http.start)
        for listener in listeners:
            await _opened("brokerServicePort", listener.start)
        if membership is not None:
            membership.stand_for_election()
        self._warn_if_open_to_all()
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
            from geminga.broker.composition.metrics import Metrics

            return Metrics(
                broker,
                statistics(),
                cluster=config.cluster_name,
                has_topic_level=config.topic_metrics,
                sources=(
                    process_metrics,
                    lambda: broker.ledger_upkeep.orphans.metrics(),
                    broker.registry.loads.metrics,
                    *self._sources,
                ),
                labelled=storage.labelled,
                elsewhere=storage.metrics_elsewhere,
                rows=broker.access.metrics,
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
            transactions=broker.use_transactions if broker.late_transactions is not None else None,
            body_bytes_max=config.http_body_bytes_max,
            status_file=config.status_file,
            storage_shortage=self._shortage.story,
            forced=config,
            configuration=self._config.values,
            live=self._use_live,
            shut_down=self._shut_down,
            check_backlog_quotas=broker.check_backlog_quotas,
            process=process_beans,
            metadata_url=storage.metadata_url,
        )

    async def _bind_broker_port(self, runtime: Runtime, broker: Broker, name: str, host: str, port: int) -> Listener:
        def connection() -> Connection:
            return broker.new_connection(name)

        async def bind(host: str, port: int) -> Listener:
            listener = await runtime.network.listen(
                connection,
                host,
                port,
                keep_free=self._descriptors.keep_free_of_clients,
                refusal=commands.error(commands.UNREQUESTED, _FULL.server_error, str(_FULL)),
                start=False,
            )
            self._closers.append(("listener", listener.close))
            return listener

        return await _bound("brokerServicePort" if not name else "bindAddresses", bind, host, port)

    def _warn_if_open_to_all(self) -> None:
        config = self._config.server
        if config.authentication:
            return
        hosts = [config.bind_address] + [item.host for item in bound_addresses(config.bind_addresses)]
        outside = sorted({host for host in hosts if not is_loopback(host)})
        if outside:
            _log.warning(
                "listening on %s without authentication: whoever reaches this machine can read, write and "
                "delete everything",
                ", ".join(outside),
            )


async def _bound(key: str, listen: Callable[[str, int], Awaitable[T]], host: str, port: int) -> T:
    try:
        return await listen(host, port)
    except OSError as error:
        raise UnavailableError(f"{key}: can not listen on {host}:{port}: {error.strerror or error}") from error


async def _opened(key: str, start: Callable[[], Awaitable[None]]) -> None:
    try:
        await start()
    except OSError as error:
        raise UnavailableError(f"{key}: can not listen: {error.strerror or error}") from error
